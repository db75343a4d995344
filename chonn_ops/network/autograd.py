r"""Derivatives of the operator; each is one more solve of the same network.

With A v = s the nodal equations, A symmetric:

- backward: A w = grad_v, then grad_s = w, grad_l = -w v, grad_g_pq = -(w_p - w_q) (v_p - v_q);
- forward mode: A v' = s' - l' v - sum over q of g'_pq (v_p - v_q).

The solves are calls of the operator, so they have derivatives, too: of any order and mix of modes.

PyTorch's own rule for custom operators knows neither forward mode, whose tangents it drops without
a word, nor reverse mode under `torch.func`. So the kernel of the dispatch key "Autograd" is here.
`torch.func` runs it once for each of its transforms, with that level's tensors, as it does for
PyTorch's own operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

import chonn_ops.network.operator  # noqa: F401 - defines the operator
from chonn_ops.network._edges import drops, outflow, pad, used_edges

_OPERATOR = torch.ops.chonn_ops.kirchhoff_network.default
# What runs without the derivatives of this level: in the guard, of these dispatch keys.
_below_autograd = torch._C._AutoDispatchBelowAutograd
_BELOW = torch._C._after_autograd_keyset
_DEFAULTS = (None, None, True)
# Of another solve of a network that has passed its checks: no values to look at.
_AGAIN = (None, None, False)


def _end(v: Tensor, axis: int, ring: Sequence[bool]) -> str:
    return "ring" if ring[axis] and v.shape[axis + 1] > 1 else "open"


def _edge_gradient(w: Tensor, v: Tensor, axis: int, ring: Sequence[bool]) -> Tensor:
    end = _end(v, axis, ring)
    product = (drops(w, axis, end) * drops(v, axis, end)).neg_()
    return product if end == "ring" else pad(product, axis, 0, 1)


def _tangent(
    tangents: Sequence[Tensor | None],
    conductance: Sequence[Any],
    leak: Tensor,
    v: Tensor,
    options: Any,
) -> Tensor:
    """The tangent of v; `tangents` are those of source, g0, g1, g2 and leak, `options` the
    operator's from ring to backend."""
    ring = options[0]
    current = torch.zeros_like(v) if tangents[0] is None else tangents[0]
    if tangents[4] is not None:
        current = current - tangents[4] * v
    for axis, g in enumerate(tangents[1:4]):
        if g is not None:
            end = _end(v, axis, ring)
            flow = used_edges(g, axis, ring[axis]) * drops(v, axis, end)
            current = current - outflow(flow, axis, end)
    return _OPERATOR(current, *conductance, leak, *options, *_AGAIN)[0]


class _Network(_SingleLevelFunction):
    """Reverse mode, and forward mode where both meet at one level."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        # Other levels, of transforms around this one, go on differentiating.
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), _below_autograd():
            v, iterations, residual = _OPERATOR.redispatch(keyset & _BELOW, *args)
        ctx.save_for_backward(*args[:5], v)
        ctx.save_for_forward(*args[:5], v)
        ctx.options = args[5:9]
        ctx.mark_non_differentiable(iterations, residual)
        ctx.set_materialize_grads(False)
        return v, iterations, residual

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        grad_v = grad_outputs[0]
        if grad_v is None:
            return (None,) * 13
        source, *conductance, leak, v = ctx.saved_tensors
        needed, ring = ctx.needs_input_grad[1:], ctx.options[0]
        w = _OPERATOR(grad_v, *conductance, leak, *ctx.options, *_AGAIN)[0]
        grad_leak = (w * v).neg_().to(leak.dtype) if needed[4] else None
        grads = [
            _edge_gradient(w, v, axis, ring).to(g.dtype) if needed[axis + 1] else None
            for axis, g in enumerate(conductance)
        ]
        return (None, w.to(source.dtype) if needed[0] else None, *grads, grad_leak, *[None] * 7)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Tensor | None) -> Any:
        _, *conductance, leak, v = ctx.saved_tensors
        return _tangent(grad_inputs[1:6], conductance, leak, v, ctx.options), None, None


def _kernel(keyset: Any, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What the dispatch key "Autograd" runs, at every level of differentiation in its turn."""
    # The dispatcher leaves out last arguments that equal their defaults.
    args: tuple[Any, ...] = (*given, *_DEFAULTS[len(given) - 12 + len(_DEFAULTS) :])
    tensors, rest = args[:5], args[5:]
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        with enable_single_level_autograd_function():
            outputs: Any = _Network.apply(  # pyright: ignore[reportAttributeAccessIssue]
                keyset, *args
            )
        return outputs
    # Levels are numbered by PyTorch, which has only one, and enters it without Python's knowing.
    duals = [(None, None) if x is None else forward_ad.unpack_dual(x, level=0) for x in tensors]
    primals, tangents = zip(*duals, strict=True)
    if all(tangent is None for tangent in tangents):
        with _below_autograd():
            return _OPERATOR.redispatch(keyset & _BELOW, *args)
    v, iterations, residual = _OPERATOR(*primals, *rest)
    tangent = _tangent(tangents, primals[1:4], primals[4], v, rest[:4])
    return forward_ad.make_dual(v, tangent, level=0), iterations, residual


_LIBRARY = torch.library.Library("chonn_ops", "FRAGMENT")
_LIBRARY.impl("kirchhoff_network", torch._disable_dynamo(_kernel), "Autograd", with_keyset=True)
