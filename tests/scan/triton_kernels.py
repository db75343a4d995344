"""A kernel for the tests; imported only where Triton is, and after its interpreter is chosen."""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.scan.triton.kernels import loss_keep_slope, loss_of


@triton.jit
def coefficients(z_at, out, SIZE: tl.constexpr):
    """Rows of `out`: the forward's loss, then the backward's loss, keep and slope, at decay 1."""
    at = tl.arange(0, SIZE)
    z = tl.load(z_at + at)
    loss, keep, slope = loss_keep_slope(z, z * 0.0 + 1.0)
    tl.store(out + at, loss_of(z, z * 0.0 + 1.0))
    tl.store(out + SIZE + at, loss)
    tl.store(out + 2 * SIZE + at, keep)
    tl.store(out + 3 * SIZE + at, slope)
