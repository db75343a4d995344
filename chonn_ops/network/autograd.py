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
import torch.nn.functional as F
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

import chonn_ops.network.operator  # noqa: F401 - defines the operator

_OPERATOR = torch.ops.chonn_ops.kirchhoff_network.default
_DEFAULTS = (None, None, True)


def _closed(v: Tensor, axis: int, ring: Sequence[bool]) -> bool:
    return ring[axis] and v.shape[axis + 1] > 1


def _drops(v: Tensor, axis: int, ring: Sequence[bool]) -> Tensor:
    """v_p - v_q along every edge of an axis."""
    dim, n = axis + 1, v.shape[axis + 1]
    if _closed(v, axis, ring):
        return v - v.roll(-1, dim)
    return v.narrow(dim, 0, n - 1) - v.narrow(dim, 1, n - 1)


def _pad(edges: Tensor, axis: int, before: int, after: int) -> Tensor:
    return F.pad(edges, [0, 0] * (edges.dim() - axis - 2) + [before, after])


def _edge_gradient(w: Tensor, v: Tensor, axis: int, ring: Sequence[bool]) -> Tensor:
    product = (_drops(w, axis, ring) * _drops(v, axis, ring)).neg_()
    return product if _closed(v, axis, ring) else _pad(product, axis, 0, 1)


def _net_outflow(flow: Tensor, v: Tensor, axis: int, ring: Sequence[bool]) -> Tensor:
    """What the currents along an axis' edges carry out of each node."""
    if _closed(v, axis, ring):
        return flow - flow.roll(1, axis + 1)
    return _pad(flow, axis, 0, 1) - _pad(flow, axis, 1, 0)


def _used(g: Tensor, v: Tensor, axis: int, ring: Sequence[bool]) -> Tensor:
    return g if _closed(v, axis, ring) else g.narrow(axis + 1, 0, v.shape[axis + 1] - 1)


def _below(keyset: Any, args: tuple[Any, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """The operator without the derivatives of this level of differentiation."""
    with torch._C._AutoDispatchBelowAutograd():
        return _OPERATOR.redispatch(keyset & torch._C._after_autograd_keyset, *args)


def _again(source: Tensor, conductance: Sequence[Any], leak: Tensor, options: Any) -> Tensor:
    """Potentials of the network of an earlier call for another source; it passed its checks."""
    return _OPERATOR(source, *conductance, leak, *options[:4], None, None, False)[0]


def _tangent(
    tangents: Sequence[Tensor | None],
    conductance: Sequence[Any],
    leak: Tensor,
    v: Tensor,
    options: Any,
) -> Tensor:
    """The tangent of v; `tangents` are those of source, g0, g1, g2 and leak."""
    ring = options[0]
    current = torch.zeros_like(v) if tangents[0] is None else tangents[0]
    if tangents[4] is not None:
        current = current - tangents[4] * v
    for axis, g in enumerate(tangents[1:4]):
        if g is not None:
            flow = _used(g, v, axis, ring) * _drops(v, axis, ring)
            current = current - _net_outflow(flow, v, axis, ring)
    return _again(current, conductance, leak, options)


class _Network(_SingleLevelFunction):
    """Reverse mode, and forward mode where both meet at one level."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        # Other levels, of transforms around this one, go on differentiating.
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
            v, iterations, residual = _below(keyset, args)
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
        w = _again(grad_v, conductance, leak, ctx.options)
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
        return _below(keyset, args)
    v, iterations, residual = _OPERATOR(*primals, *rest)
    tangent = _tangent(tangents, primals[1:4], primals[4], v, rest)
    return forward_ad.make_dual(v, tangent, level=0), iterations, residual


_LIBRARY = torch.library.Library("chonn_ops", "FRAGMENT")
_LIBRARY.impl("kirchhoff_network", torch._disable_dynamo(_kernel), "Autograd", with_keyset=True)
