r"""Derivatives of the operator; each is one more solve of the same network.

With A v = s the nodal equations, A symmetric:

- backward: A w = grad_v, then grad_s = w, grad_l = -w v, grad_g_pq = -(w_p - w_q) (v_p - v_q);
- forward mode: A v' = s' - l' v - sum over q of g'_pq (v_p - v_q).

The solves go through `potentials` again, so derivatives of any order are solves, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from chonn_ops.network._op import fold, network


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


def _again(source: Tensor, saved: Sequence[Any], options: Sequence[Any]) -> Tensor:
    """Potentials of the network of an earlier call for another source; it passed its checks."""
    _, *conductance, leak, _ = saved
    return potentials(source, *conductance, leak, *options[:4], None, None, False)[0]


def _setup_context(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]
) -> None:
    v, iterations, residual = output
    ctx.save_for_backward(*inputs[:5], v)
    ctx.options = inputs[5:]
    ctx.mark_non_differentiable(iterations, residual)


def _backward(ctx: Any, grad_v: Tensor | None, *_: Any) -> tuple[Any, ...]:
    grads: list[Tensor | None] = [None] * (5 + len(ctx.options))
    if grad_v is None:
        return tuple(grads)
    source, *conductance, leak, v = ctx.saved_tensors
    ring = ctx.options[0]
    w = _again(grad_v, ctx.saved_tensors, ctx.options)
    if ctx.needs_input_grad[4]:
        grads[4] = (w * v).neg_().to(leak.dtype)
    for axis, g in enumerate(conductance):
        if ctx.needs_input_grad[axis + 1]:
            grads[axis + 1] = _edge_gradient(w, v, axis, ring).to(g.dtype)
    if ctx.needs_input_grad[0]:
        grads[0] = w.to(source.dtype)
    return tuple(grads)


network.register_autograd(_backward, setup_context=_setup_context)


class _WithTangents(torch.autograd.Function):
    """The operator with a forward mode, which `torch.library` has no place for: an operator drops
    tangents, without a word."""

    @staticmethod
    def forward(*args: Any) -> Any:
        return network(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:5], output[0])

    backward = staticmethod(_backward)
    vmap = staticmethod(fold)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        v, ring = ctx.saved_tensors[5], ctx.options[0]
        source, *conductance, leak = tangents[:5]
        current = torch.zeros_like(v) if source is None else source
        if leak is not None:
            current = current - leak * v
        for axis, g in enumerate(conductance):
            if g is not None:
                flow = _used(g, v, axis, ring) * _drops(v, axis, ring)
                current = current - _net_outflow(flow, v, axis, ring)
        return _again(current, ctx.saved_tensors, ctx.options), None, None


def potentials(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The operator (same arguments) with derivatives of every kind and order."""
    if forward_ad._current_level >= 0:  # inside jvp, jacfwd, hessian or dual_level
        return _WithTangents.apply(*args)  # pyright: ignore[reportReturnType]
    return torch.ops.chonn_ops.kirchhoff_network(*args)
