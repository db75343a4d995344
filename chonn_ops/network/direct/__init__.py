"""The direct method: networks eliminated by nested dissection without any subtraction."""

from chonn_ops.network.direct.factor import (
    BACKENDS,
    Factor,
    flops,
    predicted_bytes,
    small_results,
    too_large,
)
from chonn_ops.network.direct.solution import Solution

__all__ = [
    "BACKENDS",
    "Factor",
    "Solution",
    "flops",
    "predicted_bytes",
    "small_results",
    "too_large",
]
