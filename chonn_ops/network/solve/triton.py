"""The backend "triton": networks that are iterated, not eliminated, run on PyTorch.

What is eliminated runs on the kernels of `chonn_ops.network.direct.triton`.
"""

from chonn_ops.network.solve.torch import solve

__all__ = ["solve"]
