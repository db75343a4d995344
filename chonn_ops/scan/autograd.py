"""Derivatives of the operator: the first in reverse mode by its backward, all others by PyTorch.

PyTorch's rule for custom operators drops forward-mode tangents silently, does not support
`torch.func`, and provides the first derivative only. This module registers its own kernels for the
dispatch key "Autograd". They run `_differentiable` where an argument has a tangent or a transform
of `torch.func` is active.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

import chonn_ops.scan.operator  # noqa: F401 - defines the operators
from chonn_ops.scan import _differentiable
from chonn_ops.scan.arguments import Modes, split

_OPERATOR = torch.ops.chonn_ops.kirchhoff_scan.default
_BACKWARD = torch.ops.chonn_ops.kirchhoff_scan_backward.default
# The guard and the dispatch keys of calls without derivatives.
_below_autograd = torch._C._AutoDispatchBelowAutograd
_BELOW = torch._C._after_autograd_keyset


def _beyond_reverse(tensors: Iterable[Tensor | None]) -> bool:
    """Whether a transform of `torch.func` is active, or an argument has a tangent."""
    return torch._C._are_functorch_transforms_active() or any(
        x is not None and unpack_dual(x).tangent is not None for x in tensors
    )


def _needs_gradient(tensors: Iterable[Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keyset: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        with _below_autograd():
            y, state, checkpoints = _OPERATOR.redispatch(keyset & _BELOW, *args)
        ctx.modes = Modes(*args[7:])
        ctx.save_for_backward(checkpoints, *args[:7])
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(checkpoints)
        return y, state, checkpoints

    @staticmethod
    def backward(
        ctx: Any,
        *grad_outputs: Tensor | None,
    ) -> tuple[Any, ...]:
        grad_y, grad_state, _ = grad_outputs
        checkpoints, *tensors = ctx.saved_tensors
        modes: Modes = ctx.modes
        if grad_y is None:
            grad_y = torch.zeros_like(tensors[0])
        if not modes.keep:  # the forward of an exported program keeps no checkpoints
            with torch.no_grad():
                checkpoints = _OPERATOR(*tensors, *modes._replace(keep=True))[2]
        grads = _BACKWARD(grad_y, grad_state, checkpoints, *tensors, *modes[:6])
        present = (None if x is None else g for g, x in zip(grads, tensors, strict=True))
        return (None, *present, *[None] * 7)


class _ScanBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keyset: Any, *args: Any) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.modes = Modes(*args[10:])
        ctx.save_for_backward(*args[:2], *args[3:10])
        with _below_autograd():
            return _BACKWARD.redispatch(keyset & _BELOW, *args)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        grad_y, grad_state, *inputs = ctx.saved_tensors
        of_grad_y, of_grad_state, *of_inputs = _differentiable.gradients_of_gradients(
            grad_outputs, grad_y, grad_state, inputs, ctx.modes
        )
        return (None, of_grad_y, of_grad_state, None, *of_inputs, *[None] * 6)


def _scan(keyset: Any, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs, modes = split(given)
    if _beyond_reverse(inputs):
        y, state = _differentiable.scan(inputs, modes)
        return y, state, y.new_empty(0)
    if _needs_gradient(inputs):
        outputs: Any = _Scan.apply(keyset, *inputs, *modes)
        return outputs
    with _below_autograd():
        return _OPERATOR.redispatch(keyset & _BELOW, *inputs, *modes)


def _scan_backward(keyset: Any, *given: Any) -> tuple[Tensor, ...]:
    grad_y, grad_state, checkpoints, *forward = given
    inputs, modes = split(forward)
    tensors = (grad_y, grad_state, checkpoints, *inputs)
    if _beyond_reverse(tensors):
        grads = _differentiable.gradients(grad_y, grad_state, inputs, modes)
        return tuple(
            inputs.u.new_zeros(0 if x is None else x.shape) if grad is None else grad
            for grad, x in zip(grads, inputs, strict=True)
        )
    if _needs_gradient(tensors):
        outputs: Any = _ScanBackward.apply(keyset, *tensors, *modes[:6])
        return outputs
    with _below_autograd():
        return _BACKWARD.redispatch(keyset & _BELOW, *tensors, *modes[:6])


def _one_by_one(operator: Any) -> Any:
    """A vmap rule: run the operator on each slice and stack what it returns."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        outputs = [
            operator(
                *(
                    arg.select(dim, i)
                    if isinstance(dim, int)
                    else arg  # in_dims of a list is a list
                    for arg, dim in zip(args, in_dims, strict=True)
                )
            )
            for i in range(info.batch_size)
        ]
        stacked = tuple(torch.stack(column) for column in zip(*outputs, strict=True))
        return stacked, (0,) * len(stacked)

    return rule


_LIBRARY = torch.library.Library("chonn_ops", "FRAGMENT")
for _operator, _kernel in ((_OPERATOR, _scan), (_BACKWARD, _scan_backward)):
    # torch.compile must not trace the kernels where a graph break calls the operator.
    _kernel = torch._disable_dynamo(_kernel)
    _LIBRARY.impl(_operator, _kernel, "Autograd", with_keyset=True)
    torch.library.register_vmap(_operator.name(), _one_by_one(_operator))
