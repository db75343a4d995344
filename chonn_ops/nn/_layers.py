"""Layers that a block is made of, by its options: norms, local convolutions and cells."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.nn.cell import KirchhoffCell
from chonn_ops.nn.network_cell import NetworkCell
from chonn_ops.nn.options import CKBOptions


def build_cell(options: CKBOptions, dim: int, axes: int, factory: dict) -> nn.Module:
    """A cell of a block for fields of so many axes."""
    if options.cell == "network":
        return NetworkCell(
            dim,
            options.networks,
            axes,
            ends=options.termination,
            nodes=options.nodes,
            selective=options.selective,
            **factory,
        )
    assert isinstance(options.termination, str)
    bounded = options.stages > 2 if options.selective_norm is None else options.selective_norm
    return KirchhoffCell(
        dim,
        options.d_state,
        dt_rank=options.dt_rank,
        dt_min=options.dt_min,
        dt_max=options.dt_max,
        directions=options.directions,
        termination=options.termination,
        constrained=options.constrained,
        selective_norm=bounded,
        **factory,
    )


class _FieldNorm(nn.GroupNorm):
    """One mean and variance a sample, over channels and positions, for channels-last fields."""

    def __init__(self, dim: int, device=None, dtype=None) -> None:
        super().__init__(1, dim, device=device, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        field = input.movedim(-1, 1)
        return F.group_norm(field, 1, self.weight, self.bias, self.eps).movedim(1, -1)


# "open": the scan's mirror image repeats the last point (its way back starts there), as "replicate"
# does at kernel size 3 and "reflect" never does. "short": the mirror image has the opposite sign,
# so the wall itself, half a step outside, is at 0; PyTorch pads zeros, but no odd mirror images.
PADDINGS = {
    "matched": "zeros",
    "ring": "circular",
    "open": "replicate",
    "short": "zeros",
    "wall": "zeros",
}
CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMS = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "group": _FieldNorm,
    "none": nn.Identity,
}
