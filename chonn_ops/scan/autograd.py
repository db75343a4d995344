"""Derivatives of the operator: the first reverse one by its backward, all others by PyTorch.

PyTorch's own rule for custom operators drops forward-mode tangents without a word, knows nothing of
`torch.func` and ends at the first derivative. So the kernels of the dispatch key "Autograd" are
here: where a tangent or a transform of `torch.func` has come in, they run `_differentiable`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

import chonn_ops.scan.operator  # noqa: F401 - defines the operators
from chonn_ops.scan import _differentiable

_OPERATOR = torch.ops.chonn_ops.kirchhoff_scan.default
_BACKWARD = torch.ops.chonn_ops.kirchhoff_scan_backward.default
# What runs without derivatives: in the guard, of these dispatch keys.
_below_autograd = torch._C._AutoDispatchBelowAutograd
_BELOW = torch._C._after_autograd_keyset


def _beyond_reverse(args: tuple[Any, ...]) -> bool:
    """Whether `torch.func` differentiates, or a tangent comes with an argument."""
    return torch._C._are_functorch_transforms_active() or any(
        isinstance(x, Tensor) and unpack_dual(x).tangent is not None for x in args
    )


def _needs_gradient(args: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in args)


def _with_defaults(given: tuple[Any, ...], least: int, defaults: tuple[bool, ...]) -> Any:
    """The dispatcher leaves out last arguments that equal their defaults."""
    return (*given, *defaults[len(given) - least :])


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keyset: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        with _below_autograd():
            y, state, checkpoints = _OPERATOR.redispatch(keyset & _BELOW, *args)
        ctx.modes, ctx.passive, ctx.keep = args[7:12], args[12], args[13]
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
        if grad_y is None:
            grad_y = torch.zeros_like(tensors[0])
        if not ctx.keep:  # recorded by a caller that did not foresee a backward
            with torch.no_grad():
                checkpoints = _OPERATOR(*tensors, *ctx.modes, ctx.passive, True)[2]
        grads = _BACKWARD(grad_y, grad_state, checkpoints, *tensors, *ctx.modes, ctx.passive)
        present = (None if x is None else g for g, x in zip(grads, tensors, strict=True))
        return (None, *present, *[None] * 7)


class _ScanBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keyset: Any, *args: Any) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.modes = (*args[10:14], args[15])
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
    args = _with_defaults(given, 12, (True, False))
    if _beyond_reverse(args):
        modes: Any = (*args[7:11], args[12])
        y, state = _differentiable.scan(*args[:7], *modes)
        return y, state, y.new_empty(0)
    if _needs_gradient(args):
        outputs: Any = _Scan.apply(keyset, *args)
        return outputs
    with _below_autograd():
        return _OPERATOR.redispatch(keyset & _BELOW, *args)


def _scan_backward(keyset: Any, *given: Any) -> tuple[Tensor, ...]:
    args = _with_defaults(given, 15, (True,))
    if _beyond_reverse(args):
        grad_y, grad_state, _, *inputs = args[:10]
        modes = (*args[10:14], args[15])
        grads = _differentiable.gradients(grad_y, grad_state, inputs, modes)
        u = inputs[0]
        return tuple(
            u.new_zeros(0 if x is None else x.shape) if grad is None else grad
            for grad, x in zip(grads, inputs, strict=True)
        )
    if _needs_gradient(args):
        outputs: Any = _ScanBackward.apply(keyset, *args)
        return outputs
    with _below_autograd():
        return _BACKWARD.redispatch(keyset & _BELOW, *args)


def _one_by_one(operator: Any) -> Any:
    """A vmap rule: run the operator on each slice and stack what it returns."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        outputs = [
            operator(
                *(
                    arg.select(dim, i) if isinstance(dim, int) else arg  # a list has a list
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
    # torch.compile must not look into them where a broken graph calls the operator.
    _kernel = torch._disable_dynamo(_kernel)
    _LIBRARY.impl(_operator._opname, _kernel, "Autograd", with_keyset=True)
    torch.library.register_vmap(_operator.name(), _one_by_one(_operator))
