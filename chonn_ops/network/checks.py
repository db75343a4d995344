"""Checks of the networks' arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops._dtypes import COMPLEX_DTYPES, DTYPES
from chonn_ops.checks import answer, check_kind, check_tensor, error
from chonn_ops.network.layout import AXES, Layout

# Dtypes of networks, those at one frequency included.
NETWORK_DTYPES = (*DTYPES, *COMPLEX_DTYPES)
Dtypes = Sequence[torch.dtype]


def check_field(name: str, field: Any, dtypes: Dtypes = DTYPES) -> None:
    """Require a (B, \\*grid, C) tensor with at least one node and one channel."""
    check_tensor(name, field)
    if not 3 <= field.dim() <= AXES + 2:
        raise error(name, f"shape (B, *grid, C) with 1 to {AXES} grid axes", tuple(field.shape))
    if 0 in field.shape[1:]:
        raise error(name, "at least one node and one channel", f"shape {tuple(field.shape)}")
    if field.dtype not in dtypes:
        raise error(name, f"a dtype of {dtypes}", field.dtype)


def check_like(
    name: str, tensor: Any, field: Tensor, owner: str = "the source", dtypes: Dtypes = DTYPES
) -> None:
    """Require a tensor with the shape and the device of `field`, which messages call `owner`."""
    check_tensor(name, tensor)
    if tensor.shape != field.shape:
        raise error(name, f"shape (B, *grid, C) = {tuple(field.shape)}", tuple(tensor.shape))
    check_kind(name, tensor, field.device, owner, dtypes)


def check_sources(name: str, source: Any, leak: Tensor, dtypes: Dtypes = DTYPES) -> None:
    """Require (B, \\*grid, C) or (B, S, \\*grid, C), where the leak is."""
    check_tensor(name, source)
    shape = tuple(leak.shape)
    several = source.dim() == leak.dim() + 1
    if tuple(source.shape[:1] + source.shape[2:] if several else source.shape) != shape:
        raise error(name, f"shape (B, *grid, C) = {shape} or (B, S, *grid, C)", tuple(source.shape))
    check_kind(name, source, leak.device, "the network", dtypes)


def any_complex(*tensors: Tensor | None) -> bool:
    """Whether a network has a complex number, so that it is one at a frequency."""
    return any(tensor is not None and tensor.is_complex() for tensor in tensors)


def smallest_of(tensor: Tensor) -> float:
    """The smallest entry, NaN where one is; 0 of none. Reads values."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0:  # expanded: all entries equal the first
            tensor = tensor.narrow(dim, 0, min(1, tensor.shape[dim]))
    return float(tensor.amin()) if tensor.numel() else 0.0


def recording(field: Tensor) -> bool:
    """Whether a CUDA graph is being recorded: then nothing may be read from the device."""
    return field.is_cuda and torch.cuda.is_current_stream_capturing()


def check_not_negative(name: str, tensor: Tensor) -> float | None:
    """Refuse negative values where values may be read; a NaN passes.

    Returns the smallest value, None where it may not be read.
    """
    smallest = answer(lambda: smallest_of(tensor), tensor)
    if smallest is not None and smallest < 0:
        raise error(name, ">= 0 everywhere", f"minimum {smallest:g}")
    return smallest


def check_positive(name: str, tensor: Tensor) -> None:
    """Refuse values that are not above 0 where values may be read; a NaN passes."""
    smallest = answer(lambda: smallest_of(tensor) if tensor.numel() else 1.0, tensor)
    if smallest is not None and smallest <= 0:
        raise error(name, "> 0 everywhere", f"minimum {smallest:g}")


def refuse_negative(conductance: Sequence[Tensor], leak: Tensor, layout: Layout) -> float | None:
    """Refuse negative values on the CPU. Returns the smallest leak."""
    for axis, g in enumerate(conductance):
        # Reading a whole tensor is faster than reading its edges only.
        if not smallest_of(g) >= 0:
            check_not_negative(f"conductance[{axis}]", layout.entries(conductance)[axis])
    return check_not_negative("leak", leak)


def resonance(residual: float, tol: float, network: tuple[int, ...]) -> RuntimeError:
    """The error of a complex network (batch, channel) that complex128 does not solve."""
    return RuntimeError(
        f"Circuit.solve: expected a residual of at most tol={tol:g}, got {residual:.2e} in "
        f"network {network} (batch, channel): it is at a resonance, or so near that complex128 has "
        "no digits left, or a part of it has no leak. To solve it: loss (of a wave, a negative "
        "imaginary part of the leak; of admittances, a positive real part), or another frequency"
    )
