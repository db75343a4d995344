"""The direct method: networks eliminated by nested dissection without any subtraction."""

from chonn_ops.network.direct.cpu import Solution
from chonn_ops.network.direct.factor import (
    Factor,
    factor_of,
    flops,
    predicted_bytes,
    solve,
)

__all__ = [
    "Factor",
    "Solution",
    "factor_of",
    "flops",
    "predicted_bytes",
    "solve",
]
