# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""The exponential rate: a loop of 2^x in registers. Imported only where Triton is."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exponentials(out, count, SIZE: tl.constexpr):
    """`count` exponentials one after another in each of SIZE elements a program."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = at.to(tl.float32) * 1e-9
    for _ in range(count):
        x = tl.exp2(-x)
    tl.store(out + at, x)
