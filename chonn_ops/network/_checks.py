"""What the networks accept; every message says what was expected and what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops import _ends
from chonn_ops._dtypes import DTYPES
from chonn_ops.network._edges import used_edges

ENDS = ("open", "short", "ring", "matched")
# Where a line that goes on for ever has no meaning.
BOUNDED_ENDS = ENDS[:3]
AXES = 3


def error(name: str, expected: object, actual: object) -> ValueError:
    return ValueError(f"{name}: expected {expected}, got {actual}")


def check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a Tensor, got {type(value).__name__}")


def check_field(name: str, field: Any) -> None:
    """A (B, \\*grid, C) tensor of real numbers with at least one node and one channel."""
    check_tensor(name, field)
    if not 3 <= field.dim() <= AXES + 2:
        raise error(name, f"shape (B, *grid, C) with 1 to {AXES} grid axes", tuple(field.shape))
    if 0 in field.shape[1:]:
        raise error(name, "at least one node and one channel", f"shape {tuple(field.shape)}")
    if field.dtype not in DTYPES:
        raise error(name, f"a dtype of {DTYPES}", field.dtype)


def check_like(name: str, tensor: Any, source: Tensor) -> None:
    """A tensor of the shape of a field, where that is."""
    check_tensor(name, tensor)
    if tensor.shape != source.shape:
        raise error(name, f"shape (B, *grid, C) = {tuple(source.shape)}", tuple(tensor.shape))
    _check_kind(name, tensor, source)


def _check_kind(name: str, tensor: Tensor, source: Tensor) -> None:
    if tensor.device != source.device:
        raise error(name, f"device {source.device}, where the source is", tensor.device)
    if tensor.dtype not in DTYPES:
        raise error(name, f"a dtype of {DTYPES}", tensor.dtype)


def check_arguments(
    source: Any,
    conductance: Any,
    leak: Any,
    ends: str | Sequence[str],
    wall: Any,
    tol: float,
    max_iterations: int,
) -> tuple[str, ...]:
    """Shapes, dtypes, devices and options: nothing here reads a tensor's values.

    Returns one word of `ends` an axis.
    """
    check_field("source", source)
    axes = source.dim() - 2
    if not isinstance(conductance, (tuple, list)):
        kind = type(conductance).__name__
        raise TypeError(f"conductance: expected a tuple of one Tensor an axis, got {kind}")
    if len(conductance) != axes:
        raise error("conductance", f"{axes} tensors, one an axis", len(conductance))
    for axis, g in enumerate(conductance):
        check_like(f"conductance[{axis}]", g, source)
    check_like("leak", leak, source)
    words = _ends.of_axes(ends, axes, ENDS)
    if wall is not None:
        check_tensor("wall", wall)
        _check_kind("wall", wall, source)
        if "open" not in words:
            raise error("wall", "None where no axis has ends='open'", "a tensor")
        C = source.shape[-1]
        if wall.shape not in ((C,), (axes, 2, C)):
            expected = f"shape (C,) = {(C,)} or (axes, 2, C) = {(axes, 2, C)}"
            raise error("wall", expected, tuple(wall.shape))
    if not 0 < tol < 1:
        raise error("tol", "above 0 and below 1", tol)
    if max_iterations != int(max_iterations) or max_iterations < 1:
        raise error("max_iterations", "a whole number of at least 1", max_iterations)
    return words


def _smallest(tensor: Tensor) -> float:
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0:  # expanded: every entry is the first
            tensor = tensor.narrow(dim, 0, min(1, tensor.shape[dim]))
    return tensor.amin().item() if tensor.numel() else 0.0


def traced(tensor: Tensor) -> bool:
    """Whether no value may be read here: a compiler, a transform or a CUDA graph is looking on."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def readable(tensor: Tensor) -> bool:
    """Whether values may be checked: on the CPU, because reading on a GPU would stall its queue."""
    return tensor.device.type == "cpu" and not traced(tensor)


def check_not_negative(name: str, tensor: Tensor) -> None:
    """Where it can be read; a NaN is no refusal."""
    if readable(tensor):
        _check_positive(name, tensor)


def _check_positive(name: str, tensor: Tensor) -> None:
    smallest = _smallest(tensor)
    if smallest < 0:  # a NaN is no refusal: it makes its own network NaN
        raise error(name, ">= 0 everywhere", f"minimum {smallest:g}")


def check_values(
    conductance: Sequence[Tensor],
    leak: Tensor,
    ring: Sequence[bool],
    own_leak: Tensor | None,
    wall: Tensor | None,
) -> None:
    """No negative value, and a way to ground in every network.

    CPU only, because reading the answer on a GPU would stall its queue. `own_leak` is the leak
    before walls were added to it, if any were.
    """
    if leak.device.type != "cpu":
        return
    for axis, (g, closed) in enumerate(zip(conductance, ring, strict=True)):
        if not _smallest(g) >= 0:  # whole tensors are read quicker than what is used of them
            _check_positive(f"conductance[{axis}]", used_edges(g, axis, closed))
    _check_positive("leak", leak if own_leak is None else own_leak)
    if wall is not None:
        _check_positive("wall", wall)
    if _smallest(leak) > 0:  # as it mostly is, and quicker to see
        return
    grounded = leak.flatten(1, -2).amax(1) != 0
    if not bool(grounded.all()):
        count = int((~grounded).sum())
        raise error(
            "leak",
            "> 0 at some node of every network (its ends may add to it: 'short', 'matched', wall)",
            f"none in {count} of {grounded.numel()} networks, whose potentials are not determined",
        )
