"""The dtypes that the operators accept, the dtype they compute in, and the dtypes' codes in C."""

from __future__ import annotations

import torch
from torch import Tensor

from chonn_ops._library import CONSTANTS

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
CODES = {
    torch.float32: CONSTANTS["DTYPE_FLOAT32"],
    torch.float64: CONSTANTS["DTYPE_FLOAT64"],
    torch.bfloat16: CONSTANTS["DTYPE_BFLOAT16"],
    torch.float16: CONSTANTS["DTYPE_FLOAT16"],
}


def compute_dtype(*tensors: Tensor | None) -> torch.dtype:
    """float64 if any input is float64, else float32."""
    wide = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32
