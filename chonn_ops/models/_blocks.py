"""Building blocks that several models share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.checks import GRID_AXES, as_field, check_axes
from chonn_ops.nn import CKB, CKBOptions
from chonn_ops.nn.gain import learn_faster
from chonn_ops.nn.geometry import Nodes

AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
# How many times as fast a block of networks learns inside a host's model.
BLOCK_GAIN = 8.0
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}


class Factory(TypedDict, total=False):
    """Keywords of `torch.nn` modules that say where and in which type parameters are made."""

    device: torch.device | str | None
    dtype: torch.dtype | None


def build_ckb(dim: int, spatial_dims: int, options: CKBOptions, factory: Factory) -> CKB:
    """A CKB with these options for channels-first fields (B, dim, \\*grid)."""
    return CKB(dim, spatial_dims, **vars(options), **factory)


def hosted_ckb(dim: int, spatial_dims: int, options: CKBOptions, factory: Factory) -> CKB:
    """A CKB inside a model that is trained at its host's learning rate: networks have a gain."""
    block = build_ckb(dim, spatial_dims, options, factory)
    if block.has_networks:
        learn_faster(block, BLOCK_GAIN)
    return block


class DownsampledCKB(nn.Module):
    """A CKB that runs on a coarser grid; the residual path keeps full resolution.

    ``Y = X + up(CKB(pool(X)) - pool(X))`` with average pooling and linear interpolation: the
    paper's "downsampling factor" in its shallow-water branch; the filters are our choice.

    Parameters
    ----------
    ckb : CKB
        Block for channels-first fields.
    factor : int
        Coarsening of every axis.
    """

    def __init__(self, ckb: nn.Module, factor: int) -> None:
        super().__init__()
        self.ckb, self.factor = ckb, factor

    def forward(
        self, x: Tensor, spacing: Sequence[float] | None = None, nodes: Nodes | None = None
    ) -> Tensor:
        """Apply the block; `spacing` and `nodes` are those of the input's grid."""
        dims = x.ndim - 2
        coarse = AVG_POOL[dims](x, self.factor, ceil_mode=True)
        if spacing is not None:
            spacing = [self.factor * step for step in spacing]
        evolved = self.ckb(coarse, spacing=spacing, nodes=nodes)
        return x + F.interpolate(evolved - coarse, size=x.shape[2:], mode=INTERPOLATION[dims])


def checked_field(
    model: nn.Module, x: Tensor, in_channels: int, axes: int, multiple: int = 1
) -> Tensor:
    """The input x as a field that the model takes, see `as_field`; a ValueError unless x is
    (B, in_channels, \\*grid) with so many axes, every size of the grid a multiple of a number."""
    x = as_field("x", x, model.parameters())
    sizes = tuple(x.shape)
    check_axes("x", sizes)
    fits = len(sizes) == axes + 2 and sizes[1] == in_channels
    if not fits or any(n % multiple for n in sizes[2:]):
        names = ", ".join(GRID_AXES[:axes])
        multiples = "" if multiple == 1 else f", sizes multiples of {multiple}"
        raise ValueError(f"x: expected shape (B, {in_channels}, {names}){multiples}, got {sizes}")
    return x
