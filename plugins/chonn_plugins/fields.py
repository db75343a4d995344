"""Our models for hosts that call models with fields (B, C, \\*grid) alone and keep the arguments of
their constructors in files as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import chonn_ops
from chonn_ops.checks import json_value
from chonn_ops.models.geometry import node_positions
from chonn_ops.models.pretrained import options_of

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


def build(
    name: str, in_channels: int, out_channels: int, axes: int, options: Mapping[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """A model (B, in_channels, \\*grid) -> (B, out_channels, \\*grid) out of `MODELS`, and all of
    its options as a host's file should have them: of types that JSON knows, and with the defaults,
    so that files survive other ones.

    `options` are other keywords of the class; boundary conditions and ``ckb``, the options of
    blocks (`chonn_ops.CKBOptions.from_mapping`), may be mappings. A ValueError for another number
    of axes, unfit options, and what JSON does not know, such as a dtype.
    """
    classes = MODELS[name]
    if axes not in classes:
        raise ValueError(f"{name}: expected a grid of 1, 2 or 3 axes, got {axes!r}")
    keywords = {option: json_value(option, value) for option, value in options.items()}
    channels = {"in_channels": in_channels, "out_channels": out_channels}
    if name == "chonn_fno":
        channels = {"in_channels": in_channels, "num_channels": out_channels, "initial_step": 1}
        keywords = {"box": [(0.0, 1.0)] * axes, **keywords}
    try:
        model = classes[axes](**channels, **options_of(keywords))
    except TypeError as failure:
        raise ValueError(f"{name}: {failure}") from failure
    known = {
        option: json_value(option, value)
        for option, value in model.options.items()
        if option not in (*channels, "device", "dtype")
    }
    return _OfFields(model) if name == "chonn_fno" else model, known


class _OfFields(nn.Module):
    """A `CHONNFNO*` that is called with fields, and makes the coordinates of their nodes in its
    box."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.nodes = model, model.options.get("nodes", "centres")

    def forward(self, x: Tensor) -> Tensor:
        x = x.movedim(1, -1)
        places = zip(node_positions(x, self.nodes), self.model.box, strict=True)
        grid = torch.stack([low + (high - low) * place for place, (low, high) in places], -1)
        y = self.model(x, grid.expand(len(x), *grid.shape))
        return y.squeeze(-2).movedim(-1, 1)
