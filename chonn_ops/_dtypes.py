"""The dtypes that the operators accept, the dtype they compute in, and the dtypes' codes in C."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from chonn_ops._library import CONSTANTS

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
COMPLEX_DTYPES = (torch.complex64, torch.complex128)
NARROW_DEVICES = {"mps"}  # Apple's GPUs have no float64
_WIDE = {torch.float64, torch.complex128}
CODES = {
    torch.float32: CONSTANTS["DTYPE_FLOAT32"],
    torch.float64: CONSTANTS["DTYPE_FLOAT64"],
    torch.bfloat16: CONSTANTS["DTYPE_BFLOAT16"],
    torch.float16: CONSTANTS["DTYPE_FLOAT16"],
}


def compute_dtype(*tensors: Tensor | None) -> torch.dtype:
    """float64 if any input is float64 or complex128, else float32; complex if any input is."""
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    wide = not dtypes.isdisjoint(_WIDE)
    if not dtypes.isdisjoint(COMPLEX_DTYPES):
        return torch.complex128 if wide else torch.complex64
    return torch.float64 if wide else torch.float32


def widest_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """float64, or complex128 for a complex dtype; on a device without them float32 or complex64."""
    if device.type in NARROW_DEVICES:
        return torch.complex64 if dtype.is_complex else torch.float32
    return torch.complex128 if dtype.is_complex else torch.float64


def widened(field: Tensor) -> Tensor:
    """A field in the widest dtype of its device."""
    return field.to(widest_dtype(field.dtype, field.device))


def at_least_float32(field: Tensor) -> Tensor:
    """A field in float32 where its dtype is narrower."""
    return field.to(torch.promote_types(field.dtype, torch.float32))


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a number's parts."""
    return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)


def potential_dtype(source: Tensor, dtype: torch.dtype) -> torch.dtype:
    """The dtype of potentials that were computed in `dtype`: the precision of their source."""
    if source.is_complex() or not dtype.is_complex:
        return source.dtype
    return torch.complex128 if source.dtype == torch.float64 else torch.complex64


def to_dtype_of(gradient: Tensor, tensor: Tensor) -> Tensor:
    """A gradient for a tensor: its real part where the tensor is real, and without PyTorch's lazy
    conjugation, which `numpy()` refuses."""
    if gradient.is_complex() and not tensor.is_complex():
        gradient = gradient.real
    return gradient.to(tensor.dtype).resolve_conj()


def without_autocast(field: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast is off. Entering it takes time only where autocast is on."""
    kind = field.device.type
    # The meta device has no autocast, and PyTorch no answer for it.
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()
