"""The direct method: networks eliminated by nested dissection without any subtraction."""

from chonn_ops.network.direct.elimination import (
    BACKENDS,
    TOL,
    Elimination,
    flops,
    predicted_bytes,
    small_results,
    too_large,
)
from chonn_ops.network.direct.solution import Solution

__all__ = [
    "BACKENDS",
    "TOL",
    "Elimination",
    "Solution",
    "flops",
    "predicted_bytes",
    "small_results",
    "too_large",
]
