"""The functions, by kernels where these take the fields.

Compilers, transforms, modes that see each operation (as PyTorch's counter of multiply-adds),
derivatives of derivatives, and all that is not float32 or half precision on a CUDA device get
PyTorch's operations.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import Backends, has_triton
from chonn_ops._forward_mode import are_mapped, has_tangents
from chonn_ops.nn.fused import torch as operations

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_CLASSES = (Tensor, torch.nn.Parameter)
# Channels on the one side and on the other of the kernels' matrix products, whose blocks have all
# of them: wider ones spilled registers.
WIDEST = 32, 64


@torch.no_grad()
def _small_results(module: Any, device: torch.device) -> tuple[Tensor, ...]:
    """What the functions of a module give for a small field, and their gradients.

    PyTorch's are computed in float64, which neither autocast nor TF32 makes less accurate."""
    options: Any = {"dtype": torch.float32, "device": device}  # whatever the default is
    raw = torch.linspace(-9, 9, 2 * 5 * 7 * 3, **options).reshape(2, 5, 7, 3)
    k = operations.conductivity(raw, raw[0, 0, 0], 8.0)[0]
    mean = torch.linspace(0, 1, 3, **options)
    weight = torch.linspace(-9, 9, 48 * 24, **options).sin().reshape(48, 24)
    geometry = ((0.5, 0.25), ("robin", "periodic"), ((0.5, 0.25), (0.5, 0.5)), (2.0, 1.5, 0.5))
    calls: Any = (
        ("bounded_sum", (2.0,), raw, raw),
        ("conductivity", (8.0,), raw, raw[0, 0, 0]),
        ("grid_circuit", geometry, k, mean, mean + 0.1, mean),
        ("gated", (), raw[0, 0], raw[1, 0]),
        ("linear", (1.0, False), weight[:, 0], weight, weight[:33]),
        ("linear", (2.0, True), None, weight.T, weight.T.contiguous()),
    )
    found = []
    for name, constants, *inputs in calls:
        if module is operations:
            inputs = [x if x is None else x.double().requires_grad_() for x in inputs]
        outputs = getattr(module, name)(*inputs, *constants)
        grads = [torch.linspace(0.5, 1.5, x.numel(), **options).view_as(x) for x in outputs]
        if module is operations:
            needed = [x is not None for x in inputs]
            more = _gradients(name, constants, inputs, needed, [x.double() for x in grads])
        else:
            more = getattr(module, f"{name}_backward")(grads, *inputs, *constants)
        found += [x.detach() for x in (*outputs, *more) if x is not None]
    return tuple(found)


# What selects the backend of networks selects these kernels, too: see `takes`.
BACKENDS = Backends("chonn_ops.nn.fused", "", names=("torch", "triton"), results_on=_small_results)


def takes(*fields: Tensor | None) -> bool:
    """Whether the kernels take these fields. Tensors of other classes may have no memory."""
    given = [x for x in fields if x is not None]
    device = given[0].device
    return (
        device.type == "cuda"
        and not torch.compiler.is_compiling()  # first: sizes may be symbols, which a choice fixes
        and all(type(x) in _CLASSES and x.dtype in _DTYPES and x.device == device for x in given)
        and all(0 < x.numel() < 2**31 for x in given)
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._len_torch_dispatch_stack()
        and not has_tangents(*given)
        and has_triton()  # the operators warn where it is not
        and os.environ.get("CHONN_NETWORK_BACKEND", "triton") == "triton"
        and BACKENDS.check(device)
    )


class _Kernel(torch.autograd.Function):
    """A function of `triton`, by its name; its derivatives of higher order are those of `torch`."""

    @staticmethod
    def forward(ctx: Any, name: str, constants: Sequence[Any], *inputs: Tensor | None) -> Any:
        ctx.name, ctx.constants = name, constants
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        with torch.cuda.device_of(inputs[-1]):
            return getattr(BACKENDS["triton"], name)(*inputs, *constants)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        if torch.is_grad_enabled() or has_tangents(*grads, *inputs) or are_mapped(*grads):
            return None, None, *_gradients(ctx.name, ctx.constants, inputs, needed, grads)
        with torch.cuda.device_of(inputs[-1]):
            backward = getattr(BACKENDS["triton"], f"{ctx.name}_backward")
            found = backward(grads, *inputs, *ctx.constants)
        return None, None, *(x if need else None for x, need in zip(found, needed, strict=True))


def _gradients(
    name: str,
    constants: Sequence[Any],
    inputs: Sequence[Tensor | None],
    needed: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients of a function by PyTorch's operations, which can be differentiated."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, because an input may be computed from another one: each counts alone here.
        views = [x if x is None else x.view_as(x) for x in inputs]
        outputs = getattr(operations, name)(*views, *constants)
    wanted: Any = [x for x, need in zip(views, needed, strict=True) if need]
    pairs = [
        (y, grad)
        for y, grad in zip(outputs, grads, strict=True)
        if grad is not None and y.requires_grad
    ]
    if not pairs:
        return [None] * len(needed)
    ends, given = zip(*pairs, strict=True)
    options: Any = {"create_graph": differentiable, "allow_unused": True}
    found = iter(torch.autograd.grad(ends, wanted, given, **options))
    return [next(found) if need else None for need in needed]


def _call(name: str, inputs: Sequence[Tensor | None], constants: Sequence[Any]) -> Any:
    if takes(*inputs):
        return _Kernel.apply(name, constants, *inputs)
    return getattr(operations, name)(*inputs, *constants)


def _rows(x: Tensor) -> Tensor:
    """A field as rows, whose channels have no stride; a view where that is one."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: float = 1.0, silu: bool = False
) -> tuple[Tensor, Tensor]:
    """gain (weight x + bias) of x (..., D), weight (H, D), bias (H,) or None, or that of SiLU(x);
    and x for what else depends on it, whose gradient is then added in the same launch.

    Autocast gets PyTorch's operations, as its products are in half precision, and so do widths for
    which PyTorch's products are made."""
    inputs = (bias, weight, x)
    if (
        takes(*inputs)
        and all(n <= most for n, most in zip(sorted(weight.shape), WIDEST, strict=True))
        and x.shape[-1:] == weight.shape[1:]
        and all(y is None or y.dtype == torch.float32 for y in inputs)
        and not torch.is_autocast_enabled(x.device.type)
    ):
        made, rows = _Kernel.apply("linear", (gain, silu), bias, weight, _rows(x))
        return made.view(*x.shape[:-1], -1), rows.view(x.shape)
    return operations.linear(*inputs, gain, silu)


def gated(x: Tensor, gate: Tensor) -> Tensor:
    """x SiLU(gate), of one shape, in the dtype of the gate."""
    if takes(x, gate):
        return _Kernel.apply("gated", (), _rows(x), _rows(gate))[0].view(x.shape)
    return operations.gated(x, gate)[0]


def bounded_sum(h: Tensor, x: Tensor, most: float) -> Tensor:
    """h + x, of one shape, with x between -most and most, see `bounded`."""
    return _call("bounded_sum", (h, x), (most,))[0]


def conductivity(raw: Tensor, bias: Tensor, largest: float) -> Tensor:
    """exp(largest tanh((raw + bias) / largest)) of raw (B, \\*grid, C) and bias (C,)."""
    return _call("conductivity", (raw, bias), (largest,))[0]


def grid_circuit(
    k: Tensor, mean: Tensor, wall: Tensor | None, leak: Tensor, *geometry: Any
) -> tuple[list[Tensor], Tensor, Tensor | None]:
    """Edges of each axis, leaks with walls, and the walls' conductances, None without walls, of
    fields that the kernels take; see `operations.grid_circuit`."""
    made = _Kernel.apply("grid_circuit", geometry, k, mean, wall, leak)
    axes = len(geometry[0])
    return list(made[:axes]), made[axes], made[axes + 1] if len(made) > axes + 1 else None
