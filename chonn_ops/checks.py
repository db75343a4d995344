"""Checks of arguments and shapes, one implementation for all packages.

Every message names the argument and states what was expected and what was given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from chonn_ops._dtypes import COMPLEX_DTYPES, DTYPES, widest_dtype
from chonn_ops._pytorch import is_functorch_wrapped_tensor

T = TypeVar("T")

GRID_AXES = ("H", "W", "D")  # the names of a grid's axes in messages
AXES = len(GRID_AXES)  # of a grid at most
# Dtypes of networks, those at one frequency included.
NETWORK_DTYPES = (*DTYPES, *COMPLEX_DTYPES)


def error(name: object, expected: object, actual: object) -> ValueError:
    """The error that an argument of a wrong value raises, or a file with a wrong content."""
    return ValueError(f"{name}: expected {expected}, got {actual}")


def answer(question: Callable[[], T], *tensors: Tensor) -> T | None:
    """Answer a question about values of tensors, or return None where they may not be read.

    Reading stalls a GPU. Compilers, `vmap`, modes that trace and tensors without values refuse it,
    all by a RuntimeError.
    """
    if torch.compiler.is_compiling() or any(x.device.type != "cpu" for x in tensors):
        return None
    try:
        with torch.no_grad():
            return question()
    except RuntimeError:
        return None


def refuse_trace(name: str) -> None:
    """Refuse `torch.jit.trace`, on which ONNX's exporter of TorchScript relies, too."""
    if torch.jit.is_tracing():
        raise RuntimeError(
            f"{name}: expected a call outside torch.jit.trace, which records neither the operator "
            "nor its options. To save the model as a program: torch.export.export; for ONNX: "
            "chonn_ops.decompositions"
        )


def refuse_transforms(
    name: str,
    *tensors: Tensor,
    instead: str = "torch.autograd differentiates factors; Circuit.solve "
    "takes several sources (B, S, *grid, C), and all transforms",
) -> None:
    """Refuse tensors that `torch.func` or `torch.vmap` transforms, and say what to do `instead`."""
    if any(is_functorch_wrapped_tensor(x) for x in tensors):
        raise RuntimeError(
            f"{name}: expected networks made outside of torch.func's transforms and torch.vmap, "
            f"got some inside. {instead}"
        )


def check_integer(least: int, /, **values: Any) -> None:
    """Raise a ValueError for the first value that is no integer of at least `least`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise error(name, f"an integer of at least {least}", repr(value))


def is_real(value: object) -> bool:
    """Whether it is a real number of Python's or NumPy's, which a bool is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_symbol(value: object) -> bool:
    """Whether it stands for a number that is free in `torch.export`."""
    return isinstance(value, (torch.SymFloat, torch.SymInt))


def check_number(**values: Any) -> None:
    """Raise a ValueError for the first value that is neither a real number nor a symbol."""
    for name, value in values.items():
        if not is_real(value) and not _is_symbol(value):
            raise error(name, "a number", repr(value))


def check_above(least: float, /, **values: Any) -> None:
    """Raise a ValueError for the first value that is neither a symbol nor a finite number above
    `least`."""
    for name, value in values.items():
        if not _is_symbol(value) and not (is_real(value) and least < float(value) < math.inf):
            raise error(name, f"a finite number > {least:g}", repr(value))


def check_unit_interval(**values: Any) -> None:
    """Raise a ValueError for the first value that is no number from 0 to 1."""
    for name, value in values.items():
        if not is_real(value) or not 0 <= float(value) <= 1:
            raise error(name, "a number from 0 to 1", repr(value))


def check_open_unit_interval(**values: Any) -> None:
    """Raise a ValueError for the first value that is no number above 0 and below 1."""
    check_number(**values)
    for name, value in values.items():
        if not 0 < value < 1:
            raise error(name, "above 0 and below 1", value)


def check_each(name: str, values: Tensor, right: Tensor, expected: str) -> None:
    """Raise a ValueError with the first of the values, and its place, that is not `right`."""
    if not bool(right.all()):
        at = tuple((~right).nonzero()[0].tolist())
        raise error(name, expected, f"{values[at].item()} at {at}")


def check_bool(**values: Any) -> None:
    """Raise a ValueError for the first value that is neither True nor False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise error(name, "a bool", repr(value))


def check_choice(name: str, value: object, known: Collection[object]) -> None:
    """Raise a ValueError unless the value is one of the known ones: words, integers and None."""
    known = tuple(known)
    plain = value is None or (isinstance(value, (str, Integral)) and not isinstance(value, bool))
    if not plain or value not in known:
        raise error(name, f"one of {known}", repr(value))


def check_shape(name: str, tensor: Tensor, *shape: str | int, multiple: int = 1) -> None:
    """Raise a ValueError unless the tensor has this shape; a word stands for any size that is a
    multiple of a number, the first one for any number of samples."""
    sizes = tuple(tensor.shape)
    check_axes(name, sizes)
    if len(sizes) != len(shape) or any(
        wanted != size if isinstance(wanted, int) else axis and size % multiple
        for axis, (wanted, size) in enumerate(zip(shape, sizes, strict=True))
    ):
        multiples = "" if multiple == 1 else f", sizes multiples of {multiple}"
        comma = "," if len(shape) == 1 else ""
        raise error(name, f"shape ({', '.join(map(str, shape))}{comma}){multiples}", sizes)


def check_axes(name: str, sizes: tuple[int, ...]) -> None:
    """Raise a ValueError for an axis without points behind that of the samples."""
    if 0 in sizes[1:]:
        raise error(name, "at least 1 point on every axis", f"the shape {sizes}")


def is_integer(tensor: Tensor) -> bool:
    """Whether the tensor has a dtype of integers; booleans are none."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def check_tensor(name: str, value: Any) -> None:
    """Require a dense tensor: a TypeError for another type, a ValueError for a sparse tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    if value.layout != torch.strided:
        raise error(name, "a dense tensor", f"the layout {value.layout}")


def as_tensor(
    name: str,
    values: Any,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Numbers of any array as a Tensor; a ValueError for what is none."""
    try:
        if isinstance(values, np.ndarray):
            # A copy, because PyTorch reads neither the other byte order nor negative strides.
            values = np.array(values, values.dtype.newbyteorder("="))
        return torch.as_tensor(values, dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError) as failure:
        shown = repr(values)
        actual = shown if len(shown) < 60 else type(values).__name__
        raise error(name, "numbers, as an array or a Tensor", actual) from failure


def json_value(name: str, value: Any) -> Any:
    """An argument as files of JSON can hold it: tensors, arrays and numbers of NumPy become numbers
    and lists of Python's, other sequences and mappings lists and dictionaries, and so does what has
    a method `to_mapping`. A ValueError for what has no such form, such as a dtype or a tensor on
    the meta device."""
    if hasattr(value, "to_mapping"):
        value = value.to_mapping()
    if isinstance(value, Mapping):
        return {key: json_value(f"{name}.{key}", entry) for key, entry in value.items()}
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        try:
            return json_value(name, value.tolist())
        except RuntimeError as failure:  # no values, or not dense
            raise error(name, "numbers that can be read", repr(value)) from failure
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    if isinstance(value, Sequence):
        return [json_value(name, entry) for entry in value]
    raise error(name, "numbers, words, or lists or mappings of them", repr(value))


def numbers_of(name: str, values: Any, device: torch.device | None = None) -> Tensor:
    """Numbers of any array as a Tensor; those of Python with all of their digits."""
    tensor = as_tensor(name, values, device)
    if hasattr(values, "dtype") or not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    return as_tensor(name, values, device, widest_dtype(tensor.dtype, tensor.device))


def expanded(
    name: str,
    value: Any,
    like: Tensor,
    owner: str = "the conductivity",
    dtype: torch.dtype | None = None,
    forms: str = "a number, or a shape",
) -> Tensor:
    """A number or a Tensor in the shape of the Tensor `like`, which messages call `owner`: where
    that is, and in `dtype` or wider. By default a number has its dtype, and a Tensor its own.
    `forms` is what messages say that a value may be."""
    if not isinstance(value, Tensor):
        number = is_real(value)
        # Compilers know no `isfinite` of a number that they trace.
        if not number or not abs(float(value)) < math.inf:
            raise error(name, f"a {'finite ' if number else ''}number or a Tensor", repr(value))
        value = torch.full((), float(value), dtype=dtype or like.dtype, device=like.device)
    elif value.device != like.device:
        raise error(name, f"device {like.device}, as {owner}", value.device)
    shape = tuple(like.shape)
    try:
        wide = value if dtype is None else value.to(torch.promote_types(value.dtype, dtype))
        return wide.expand(shape)
    except RuntimeError:
        raise error(name, f"{forms} that expands to {shape}", tuple(value.shape)) from None


def as_field(
    name: str, tensor: Tensor, parameters: Iterable[Tensor], *shape: str | int, multiple: int = 1
) -> Tensor:
    """Check the input of a module with these parameters, and return it as floating-point numbers.

    Integers and booleans get the dtype of the parameters, because PyTorch rounds a constant that it
    multiplies with an integer. What is no dense tensor is refused here, and so are complex numbers,
    other floating dtypes than that of the parameters (under autocast, float64 only), and other
    shapes than the given one (`check_shape`): PyTorch's own messages do not name the argument.
    """
    check_tensor(name, tensor)
    if shape:
        check_shape(name, tensor, *shape, multiple=multiple)
    numbers = tensor.is_floating_point() or tensor.is_complex()
    # The replicas of `DataParallel` have no parameters.
    unknown = tensor.dtype if numbers else torch.get_default_dtype()
    dtype = next((p.dtype for p in parameters if p.is_floating_point()), unknown)
    if not numbers:
        return tensor.to(dtype)
    if tensor.dtype != dtype and (
        tensor.is_complex()
        or tensor.dtype == torch.float64
        or not torch.is_autocast_enabled(tensor.device.type)
    ):
        raise error(name, f"dtype {dtype}, as the parameters have", tensor.dtype)
    return tensor


def check_kind(
    name: str,
    tensor: Tensor,
    device: torch.device,
    owner: str,
    dtypes: Collection[torch.dtype] = DTYPES,
) -> None:
    """Require a dtype that the operators read, and the device of the argument `owner`."""
    if tensor.device != device:
        raise error(name, f"device {device}, where {owner} is", tensor.device)
    if tensor.dtype not in dtypes:
        raise error(name, f"a dtype of {dtypes}", tensor.dtype)


def check_field(name: str, field: Any, dtypes: Collection[torch.dtype] = DTYPES) -> None:
    """Require a (B, \\*grid, C) tensor with at least one node and one channel."""
    check_tensor(name, field)
    if not 3 <= field.dim() <= AXES + 2:
        raise error(name, f"shape (B, *grid, C) with 1 to {AXES} grid axes", tuple(field.shape))
    if 0 in field.shape[1:]:
        raise error(name, "at least one node and one channel", f"shape {tuple(field.shape)}")
    if field.dtype not in dtypes:
        raise error(name, f"a dtype of {dtypes}", field.dtype)


def check_like(
    name: str,
    tensor: Any,
    field: Tensor,
    owner: str = "the source",
    dtypes: Collection[torch.dtype] = DTYPES,
) -> None:
    """Require a tensor with the shape and the device of `field`, which messages call `owner`."""
    check_tensor(name, tensor)
    if tensor.shape != field.shape:
        raise error(name, f"shape (B, *grid, C) = {tuple(field.shape)}", tuple(tensor.shape))
    check_kind(name, tensor, field.device, owner, dtypes)


def check_sources(
    name: str, source: Any, leak: Tensor, dtypes: Collection[torch.dtype] = DTYPES
) -> None:
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
    return float(tensor.detach().amin()) if tensor.numel() else 0.0


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


def resonance(residual: float, tol: float, network: tuple[int, ...]) -> RuntimeError:
    """The error of a complex network (batch, channel) that complex128 does not solve."""
    return RuntimeError(
        f"Circuit.solve: expected a residual of at most tol={tol:g}, got {residual:.2e} in "
        f"network {network} (batch, channel): it is at a resonance, or so near that complex128 has "
        "no digits left, or a part of it has no leak. To solve it: loss (of a wave, a negative "
        "imaginary part of the leak; of admittances, a positive real part), or another frequency"
    )
