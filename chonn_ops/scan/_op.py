"""The `torch.library` operator behind `kirchhoff_scan`: one forward, its backward, any backend."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from chonn_ops.scan import _chunked, _cpu, reference
from chonn_ops.scan._checkpoints import checkpoint_shape
from chonn_ops.scan._checks import check_decay

_BACKENDS: dict[str, ModuleType] = {"reference": reference, "torch": _chunked, "cpu": _cpu}

_INPUTS = (
    "Tensor u, Tensor delta, Tensor decay, Tensor b, Tensor c, Tensor? d, Tensor? initial_state, "
    "bool reverse, str backend"
)


def available_backends() -> tuple[str, ...]:
    """Names `kirchhoff_scan` takes as `backend` here; "cpu" needs the compiled kernel."""
    return tuple(name for name in _BACKENDS if name != "cpu" or _cpu.available_isas())


def _backend(name: str, device: torch.device) -> ModuleType:
    """The forced backend (argument, then environment), else the fastest for the device.

    Resolved when the operator runs, so that an exported program picks the machine it runs on.
    """
    known = available_backends()
    forced = name or os.environ.get("CHONN_SCAN_BACKEND", "")
    if not forced:
        return _BACKENDS["cpu" if device.type == "cpu" and "cpu" in known else "torch"]
    if forced not in known:
        raise ValueError(f"backend: expected one of {known}, got {forced!r}")
    if forced == "cpu" and device.type != "cpu":
        raise ValueError(f"backend 'cpu': expected tensors on the CPU, got {device}")
    return _BACKENDS[forced]


def compute_dtype(*tensors: Tensor | None) -> torch.dtype:
    """float64 where any input has it, else float32: narrower inputs are widened."""
    wide = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32


def _cast(tensors: tuple[Tensor | None, ...], dtype: torch.dtype) -> list[Any]:
    return [None if tensor is None else tensor.to(dtype) for tensor in tensors]


def _working_dtype(implementation: ModuleType, dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if implementation is reference else dtype


@torch.library.custom_op(
    "chonn_ops::kirchhoff_scan",
    mutates_args=(),
    schema=f"({_INPUTS}, bool passive=True, bool keep=False) -> (Tensor, Tensor, Tensor)",
)
def scan(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    reverse: bool,
    backend: str,
    passive: bool = True,
    keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, final state, and what the backward starts from: empty unless `keep`."""
    if passive:
        check_decay(decay)
    implementation = _backend(backend, u.device)
    inputs = (u, delta, decay, b, c, d, initial_state)
    dtype = compute_dtype(*inputs)
    # Zeros, because the reference leaves them alone.
    make = torch.zeros if implementation is reference else torch.empty
    shape = checkpoint_shape(u, decay) if keep else (0,)
    checkpoints = make(shape, dtype=dtype, device=u.device)
    with torch.autocast(u.device.type, enabled=False):
        y, state = implementation.forward(
            *_cast(inputs, _working_dtype(implementation, dtype)),
            reverse,
            checkpoints if keep else None,
        )
    return y.to(u.dtype), state.to(dtype), checkpoints


@scan.register_fake
def _(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    reverse: bool,  # noqa: ARG001
    backend: str,  # noqa: ARG001
    passive: bool = True,  # noqa: ARG001
    keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(u, delta, decay, b, c, d, initial_state)
    return (
        u.new_empty(u.shape),
        u.new_empty(u.shape[0], *decay.shape, dtype=dtype),
        u.new_empty(checkpoint_shape(u, decay) if keep else (0,), dtype=dtype),
    )


@torch.library.custom_op(
    "chonn_ops::kirchhoff_scan_backward",
    mutates_args=(),
    schema=f"(Tensor grad_y, Tensor? grad_state, Tensor checkpoints, {_INPUTS}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def scan_backward(
    grad_y: Tensor,
    grad_state: Tensor | None,
    checkpoints: Tensor,
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    reverse: bool,
    backend: str,
) -> tuple[Tensor, ...]:
    """Gradients of the seven inputs; empty for an absent d or initial_state."""
    implementation = _backend(backend, u.device)
    inputs = (u, delta, decay, b, c, d, initial_state)
    dtype = _working_dtype(implementation, compute_dtype(*inputs))
    with torch.autocast(u.device.type, enabled=False):
        grads = implementation.backward(
            *_cast((grad_y, grad_state, *inputs), dtype), reverse, checkpoints
        )
    return tuple(
        u.new_empty(0) if x is None else grad.to(x.dtype)
        for grad, x in zip(grads, inputs, strict=True)
    )


@scan_backward.register_fake
def _(
    grad_y: Tensor,  # noqa: ARG001
    grad_state: Tensor | None,  # noqa: ARG001
    checkpoints: Tensor,  # noqa: ARG001
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    reverse: bool,  # noqa: ARG001
    backend: str,  # noqa: ARG001
) -> tuple[Tensor, ...]:
    return tuple(
        u.new_empty(0) if x is None else x.new_empty(x.shape)
        for x in (u, delta, decay, b, c, d, initial_state)
    )


def _setup_context(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]
) -> None:
    *tensors, ctx.reverse, ctx.backend, ctx.passive, ctx.keep = inputs
    ctx.save_for_backward(output[2], *tensors)


def _backward(
    ctx: Any,
    grad_y: Tensor | None,
    grad_state: Tensor | None,
    grad_checkpoints: Tensor | None,  # noqa: ARG001 - no caller sees checkpoints
) -> tuple[Any, ...]:
    checkpoints, *tensors = ctx.saved_tensors
    modes = (ctx.reverse, ctx.backend)
    if not ctx.keep:  # recorded by a caller that did not foresee a backward
        checkpoints = scan(*tensors, *modes, ctx.passive, True)[2]
    if grad_y is None:
        grad_y = torch.zeros_like(tensors[0])
    grads = scan_backward(grad_y, grad_state, checkpoints, *tensors, *modes)
    present = (None if x is None else grad for grad, x in zip(grads, tensors, strict=True))
    return (*present, None, None, None, None)


scan.register_autograd(_backward, setup_context=_setup_context)


def _one_by_one(op: Any) -> Any:
    """A vmap rule: run the operator on each slice and stack what it returns."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        outputs = [
            op(
                *(
                    arg if dim is None else arg.select(dim, i)
                    for arg, dim in zip(args, in_dims, strict=True)
                )
            )
            for i in range(info.batch_size)
        ]
        stacked = tuple(torch.stack(column) for column in zip(*outputs, strict=True))
        return stacked, (0,) * len(stacked)

    return rule


scan.register_vmap(_one_by_one(scan))
scan_backward.register_vmap(_one_by_one(scan_backward))
