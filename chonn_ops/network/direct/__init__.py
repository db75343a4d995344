"""The direct method: networks eliminated by nested dissection without any subtraction."""

from chonn_ops.network.direct.factor import (
    ComplexFactor,
    Factor,
    Factorization,
    factorize,
    flops,
    predicted_bytes,
    solve,
)

__all__ = [
    "ComplexFactor",
    "Factor",
    "Factorization",
    "factorize",
    "flops",
    "predicted_bytes",
    "solve",
]
