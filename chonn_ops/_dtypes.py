"""What the operators read, and what they compute in."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def compute_dtype(*tensors: Tensor | None) -> torch.dtype:
    """float64 where any input has it, else float32: narrower inputs are widened."""
    wide = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32
