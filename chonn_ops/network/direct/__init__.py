"""The direct method: networks eliminated by nested dissection without any subtraction."""

from chonn_ops.network.direct.cpu import Solution
from chonn_ops.network.direct.factor import (
    BACKENDS,
    Factor,
    Factorization,
    factor_of,
    factorize,
    flops,
    predicted_bytes,
    restored,
    small_results,
    solve,
)

__all__ = [
    "BACKENDS",
    "Factor",
    "Factorization",
    "Solution",
    "factor_of",
    "factorize",
    "flops",
    "predicted_bytes",
    "restored",
    "small_results",
    "solve",
]
