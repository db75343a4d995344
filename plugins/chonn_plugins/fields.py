"""Our models for hosts that call models with fields (B, C, \\*grid) alone and keep the arguments of
their constructors in files as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import chonn_ops
from chonn_ops import CKBOptions, Network
from chonn_ops.checks import plain
from chonn_ops.models.geometry import Nodes, node_positions

# Name -> number of axes -> class.
MODELS: dict[str, dict[int, type[Any]]] = {
    "chonn_network": {
        1: chonn_ops.CHONNNetwork1d,
        2: chonn_ops.CHONNNetwork2d,
        3: chonn_ops.CHONNNetwork3d,
    },
    "chonn_fno": {1: chonn_ops.CHONNFNO1d, 2: chonn_ops.CHONNFNO2d, 3: chonn_ops.CHONNFNO3d},
    "chonn_unet": {1: chonn_ops.CHONNUNet1d, 2: chonn_ops.CHONNUNet2d, 3: chonn_ops.CHONNUNet3d},
}


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a model as a host's file should have them: of types that JSON knows, and ``ckb``
    with all options of the blocks, so that files survive a change of a default.

    Raises
    ------
    ValueError
        For unknown options of the blocks, and what JSON does not know, such as a dtype.
    """
    arguments = {name: plain(name, value) for name, value in options.items()}
    ckb = arguments.get("ckb") or {}
    if not isinstance(ckb, Mapping):
        raise ValueError(f"ckb: expected a mapping of options or None, got {ckb!r}")
    return {**arguments, "ckb": CKBOptions.from_mapping(ckb).to_mapping()}


def build(
    name: str, in_channels: int, out_channels: int, axes: int, options: Mapping[str, Any]
) -> nn.Module:
    """A model (B, in_channels, \\*grid) -> (B, out_channels, \\*grid) for a host's learning rates,
    out of `MODELS`. `options` are what `plain_options` returns: other keywords of the class, and
    ``ckb``. A ValueError for another number of axes, and unfit options."""
    classes = MODELS[name]
    if axes not in classes:
        raise ValueError(f"{name}: expected a grid of 1, 2 or 3 axes, got {axes!r}")
    options = {**options, "ckb": CKBOptions.from_mapping(options["ckb"])}
    if name == "chonn_fno":
        given = {"box": [(0.0, 1.0)] * axes, **options}
        fno = classes[axes](out_channels, initial_step=1, in_channels=in_channels, **given)
        cell = options["ckb"].cell
        return _OfFields(fno, cell.nodes if isinstance(cell, Network) else "centres")
    return classes[axes](in_channels, out_channels, **options)


class _OfFields(nn.Module):
    """A `CHONNFNO*` that is called with fields, and makes the coordinates of their nodes in its
    box."""

    def __init__(self, model: Any, nodes: Nodes) -> None:
        super().__init__()
        self.model, self.nodes = model, nodes

    def forward(self, x: Tensor) -> Tensor:
        x = x.movedim(1, -1)
        places = zip(node_positions(x, self.nodes), self.model.box, strict=True)
        grid = torch.stack([low + (high - low) * place for place, (low, high) in places], -1)
        y = self.model(x, grid.expand(len(x), *grid.shape))
        return y.squeeze(-2).movedim(-1, 1)
