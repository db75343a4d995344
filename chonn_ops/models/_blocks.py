"""Building a CKB from options inside a backbone."""

from __future__ import annotations

import dataclasses

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

    def forward(self, x: Tensor) -> Tensor:
        dims = x.ndim - 2
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
        coarse = pool(x, self.factor, ceil_mode=True)
        mode = ("linear", "bilinear", "trilinear")[dims - 1]
        return x + F.interpolate(self.ckb(coarse) - coarse, size=x.shape[2:], mode=mode)
