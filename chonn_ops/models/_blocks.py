"""Building a CKB from options inside a backbone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.nn import CKB, CKBOptions


def build_ckb(
    dim: int,
    spatial_dims: int,
    options: CKBOptions,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> CKB:
    """CKB for channels-first fields (B, dim, \\*grid)."""
    return CKB(dim, spatial_dims, **dataclasses.asdict(options), device=device, dtype=dtype)


class DownsampledCKB(nn.Module):
    """A CKB whose evolution runs on a coarser grid; the residual path keeps full resolution.

    ``Y = X + up(CKB(pool(X)) - pool(X))`` with average pooling and linear interpolation: the
    paper's "downsampling factor" in its shallow-water branch, the filters being our choice.

    Parameters
    ----------
    ckb : CKB
        Block for channels-first fields.
    factor : int
        Coarsening of every axis.
    """

    def __init__(self, ckb: CKB, factor: int) -> None:
        super().__init__()
        self.ckb, self.factor = ckb, factor

    def forward(self, x: Tensor, spacing: Sequence[float] | None = None) -> Tensor:
        dims = x.ndim - 2
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
        coarse = pool(x, self.factor, ceil_mode=True)
        mode = ("linear", "bilinear", "trilinear")[dims - 1]
        if spacing is None:
            evolved = self.ckb(coarse)
        else:
            evolved = self.ckb(coarse, [self.factor * step for step in spacing])
        return x + F.interpolate(evolved - coarse, size=x.shape[2:], mode=mode)


def grid_spacing(grid: Tensor) -> list[float]:
    """Distance of the nodes along each axis, where the longest axis of the domain has length 1.

    Parameters
    ----------
    grid : Tensor, shape (B, \\*grid, number of axes)
        Coordinates, equally spaced and the same for all samples. An axis of one point, or whose
        coordinates are all the same, counts as one of length 1.
    """
    first, axes = grid[0].detach(), grid.shape[-1]
    steps = []
    for axis in range(axes):
        line = first[..., axis].movedim(axis, 0).reshape(first.shape[axis], -1)[:, 0]
        step = abs(float(line[1] - line[0])) if len(line) > 1 else 0.0
        steps.append(step if step > 0 else 1 / len(line))
    longest = max(n * step for n, step in zip(first.shape, steps, strict=False))
    return [step / longest for step in steps]
