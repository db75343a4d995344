"""The direct method: networks eliminated by nested dissection without any subtraction."""

from chonn_ops.network.direct.cpu import Solution
from chonn_ops.network.direct.factor import (
    BACKENDS,
    Factor,
    flops,
    predicted_bytes,
    small_results,
    too_large,
)

__all__ = [
    "BACKENDS",
    "Factor",
    "Solution",
    "flops",
    "predicted_bytes",
    "small_results",
    "too_large",
]
