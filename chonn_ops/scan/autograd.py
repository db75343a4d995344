"""Derivatives of the operator: the first in reverse mode by its backward, all others by PyTorch.

`_Scan` and `_ScanBackward` run the kernels, under transforms of `torch.func`, too. Tangents, and
gradients of gradients, are those of `chonn_ops.scan.derivatives`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

import chonn_ops.scan.operator  # noqa: F401 - defines the operators
from chonn_ops._pytorch import (
    at_lower_levels,
    below_autograd,
    differentiate,
    has_tangents,
    needs_graph,
    transforms_are_active,
)
from chonn_ops.scan import derivatives
from chonn_ops.scan.arguments import Modes, split
from chonn_ops.scan.derivatives import pull, push

_OPERATOR = torch.ops.chonn_ops.kirchhoff_scan.default
_BACKWARD = torch.ops.chonn_ops.kirchhoff_scan_backward.default


def _one_by_one(function: Callable[..., Any], info: Any, in_dims: Any, *args: Any) -> Any:
    """A vmap rule: apply the function to each slice and stack what it returns."""

    def slices(i: int) -> list[Any]:
        # in_dims of a list is a list
        pairs = zip(args, in_dims, strict=True)
        return [x.select(dim, i) if isinstance(dim, int) else x for x, dim in pairs]

    columns = zip(*(function(*slices(i)) for i in range(info.batch_size)), strict=True)
    stacked = tuple(map(torch.stack, columns))
    return stacked, (0,) * len(stacked)


def _run(operator: Any, *args: Any) -> Any:
    """An operator without its rule of differentiation, which takes as long as a small scan."""
    with below_autograd():
        return operator(*args)


class _Scan(torch.autograd.Function):
    """Arguments and outputs are those of the operator."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
        return _run(_OPERATOR, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        tensors, ctx.modes = split(inputs)
        ctx.save_for_backward(*tensors, output[2])
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        grad_y, grad_state, _ = grads
        *inputs, checkpoints = ctx.saved_tensors
        modes: Modes = ctx.modes
        if modes.directions != "raster":  # the forward returned an empty state
            grad_state = None
        if grad_y is None:
            grad_y = torch.zeros_like(inputs[0])
        differentiable = needs_graph(grad_y, grad_state, *inputs)
        gradients = _ScanBackward.apply if differentiable else partial(_run, _BACKWARD)
        every: Any = gradients(grad_y, grad_state, checkpoints, *inputs, *modes[:6])
        present = (None if x is None else grad for grad, x in zip(every, inputs, strict=True))
        return *present, *[None] * len(modes)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        with at_lower_levels(*ctx.saved_tensors[:7]) as inputs:
            return *push(partial(derivatives.scan, ctx.modes), inputs, tangents[:7]), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return _one_by_one(_Scan.apply, info, in_dims, *args)


class _ScanBackward(torch.autograd.Function):
    """Arguments and outputs are those of the operator's backward."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return _run(_BACKWARD, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        grad_y, grad_state, _, *forward = inputs
        tensors, ctx.modes = split(forward)
        ctx.save_for_backward(grad_y, grad_state, *tensors)
        ctx.save_for_forward(grad_y, grad_state, *tensors)
        ctx.set_materialize_grads(False)
        absent = (y for y, x in zip(output, tensors, strict=True) if x is None)
        ctx.mark_non_differentiable(*absent)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Any, ...]:
        function = partial(derivatives.gradients, ctx.modes)
        of_grad_y, of_grad_state, *of_inputs = pull(function, ctx.saved_tensors, cotangents)
        return of_grad_y, of_grad_state, None, *of_inputs, *[None] * 6

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        with at_lower_levels(*ctx.saved_tensors[:9]) as saved:
            function = partial(derivatives.gradients, ctx.modes)
            changes = push(function, saved, (*tangents[:2], *tangents[3:10]))
        return tuple(None if x is None else y for y, x in zip(changes, saved[2:], strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return _one_by_one(_ScanBackward.apply, info, in_dims, *args)


def scan(inputs: Sequence[Tensor | None], modes: Modes) -> tuple[Tensor, Tensor]:
    """Output and final state, differentiable in every mode.

    Compilers and exporters record the operator, which differentiates itself as below.
    """
    apply: Any = _OPERATOR
    if not torch.compiler.is_compiling():
        if modes.keep or transforms_are_active():
            apply = _Scan.apply
        elif not has_tangents(*inputs):
            return _run(_OPERATOR, *inputs, *modes)[:2]
    y, state, _ = apply(*inputs, *modes)
    return y, state


def _transformed(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs, modes = split(args)
    y, state = derivatives.scan(modes, *inputs)
    return y, state, y.new_empty(0)


# PyTorch binds the arguments of each call; without this it parses the signature each time.
for _function in (_Scan, _ScanBackward):
    _forward: Any = _function.forward
    _forward.__signature__ = inspect.signature(_forward)

_LIBRARY = torch.library.Library("chonn_ops", "FRAGMENT")
differentiate(_LIBRARY, _OPERATOR, _Scan.apply, _transformed)
torch.library.register_autograd(
    _BACKWARD, _ScanBackward.backward, setup_context=_ScanBackward.setup_context
)
for _operator in (_OPERATOR, _BACKWARD):
    torch.library.register_vmap(_operator, partial(_one_by_one, _operator))
