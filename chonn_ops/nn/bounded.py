"""A function that bounds what layers add to features."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from chonn_ops._forward_mode import at_lower_levels
from chonn_ops.nn.memory import is_large


def bounded(x: Tensor, most: float) -> Tensor:
    """Values between -most and most, which are x where it is small.

    The slope falls with a power of x, that of tanh exponentially. So gradients do not vanish after
    a step of an optimiser that was too large.
    """
    if x.dtype == torch.float16:  # whose fourth powers end at 16
        return bounded(x.float(), most).to(x.dtype)
    if torch.compiler.is_compiling():
        return (x * _factor(x, most)).clamp(-most, most)
    return cast("Tensor", _Bounded.apply(x, most)[0])


def _factor(x: Tensor, most: float) -> Tensor:
    """(1 + (x / most)^4)^(-1/4) in functions that are fast; as at 10^5 where x / most is more,
    whose fourth power would overflow."""
    if torch.is_grad_enabled():
        return (1 + (x / most).clamp(-1e5, 1e5).square().square()).rsqrt().sqrt()
    return (x / most).clamp_(-1e5, 1e5).square_().square_().add_(1).rsqrt_().sqrt_()


def _slope(factor: Tensor) -> Tensor:
    return factor.square().square() * factor


class _Bounded(torch.autograd.Function):
    """x times its factor, whose fifth power is the slope. Returns the factor, too, which large
    fields do not keep.

    Autograd's own graph of these operations would keep all of them and take twice as long.
    """

    @staticmethod
    def forward(x: Tensor, most: float) -> tuple[Tensor, Tensor]:
        factor = _factor(x, most)
        return (x * factor).clamp_(-most, most), factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, ctx.most = inputs
        ctx.save_for_backward(x, *([] if is_large(x) else output[1:]))
        ctx.save_for_forward(x)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        del info
        return _Bounded.apply(*inputs), (in_dims[0], in_dims[0])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, None]:
        x, *kept = ctx.saved_tensors
        if grads[0] is None:
            return None, None
        again = torch.is_grad_enabled() or not kept
        return grads[0] * _slope(_factor(x, ctx.most) if again else kept[0]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        with at_lower_levels(ctx.saved_tensors[0]) as (x,):
            return tangents[0] * _slope(_factor(x, ctx.most)), None
