r"""Derivatives of the networks; each is one more solve of the same network.

With A v = s the nodal equations, A symmetric:

- backward: A w* = grad_v*, then grad_s = w, grad_l = -w v*, and for edges
  grad_g_pq = -(w_p - w_q) (v_p - v_q)*, where the star conjugates complex numbers: PyTorch's
  gradient of a real loss points where the loss rises. What is real has the real part as gradient;
- forward mode: A v' = s' - l' v - sum over q of g'_pq (v_p - v_q).

A backward that is not differentiated itself is one operator, ``network_gradients``. It takes the
factor of an eliminated forward, and differences of potentials with digits of their own, as tensors
that the forward has returned; autograd saves them as it saves all tensors. Derivatives of
derivatives, those of `torch.func` among them, are solved in float64, for potentials and differences
(`chonn_ops.network.derivatives`): four solves for the gradients of conductances, two more for each
further order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops import _in_graph
from chonn_ops._dtypes import compute_dtype, to_dtype_of, without_autocast
from chonn_ops._forward_mode import at_lower_levels, has_tangents
from chonn_ops.network import derivatives, levels  # noqa: F401 - levels registers an operator
from chonn_ops.network.checks import recording
from chonn_ops.network.derivatives import edge_gradients, fold, potentials
from chonn_ops.network.direct import restored
from chonn_ops.network.edges import differences_by_axis
from chonn_ops.network.methods import lifted
from chonn_ops.network.operator import direct_backend


class _Network(torch.autograd.Function):
    """Arguments are those of the operator, whether to keep what a backward can use, and whether
    that has differences. Returns potentials, iterations and residuals, how many of the next tensors
    are differences, the differences and the factor."""

    @staticmethod
    def forward(*args: Any) -> Any:
        *given, keep, drops = args
        if not keep:
            return (*torch.ops.chonn_ops.kirchhoff_network(*given), 0)
        *solved, over_v, factor = torch.ops.chonn_ops.kirchhoff_network_kept(*given, drops=drops)
        return (*solved, len(over_v), *over_v, *factor)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        v, iterations, residual, ctx.num_drops, *kept = output
        ctx.save_for_backward(*inputs[:5], v, *kept)
        ctx.save_for_forward(*inputs[:5], v)
        ctx.options, ctx.traced, ctx.num_outputs = inputs[5:10], not inputs[11], len(output)
        ctx.mark_non_differentiable(iterations, residual, *kept)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return _gradients(ctx, grads[0], ctx.needs_input_grad)

    @staticmethod
    def jvp(ctx: Any, *changes: Any) -> tuple[Any, ...]:
        with at_lower_levels(*ctx.saved_tensors[:6]) as (source, *network, v):
            tangent = _tangent(changes[:5], source, (*network, *ctx.options), v)
        return tangent, *[None] * (ctx.num_outputs - 1)

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
        # Differences and factors belong to unmapped networks, so none are wanted.
        outputs, dims = fold(apply_network, info, in_dims, *args[:11], False, False)
        return (*outputs, 0), (*dims, None)


def apply_network(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials, iterations and residuals of `_Network`."""
    outputs: Any = _Network.apply(*args)
    return outputs[:3]


def solve_network(
    source: Tensor, network: tuple[Any, ...], *, check: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials, iterations and what was compared with `tol`, differentiable in every mode.

    `network`: what the operator takes behind the source, up to `method`.
    """
    # A traced program keeps nothing, because what there is to keep depends on values.
    wanted = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    needed = [wanted and x is not None and x.requires_grad for x in (source, *network[:4])]
    apply = _in_graph.apply_network if torch.compiler.is_compiling() else apply_network
    return apply(source, *network, check, any(needed), any(needed[1:4]))


def _tangent(
    changes: Sequence[Tensor | None], source: Tensor, network: tuple[Any, ...], v: Tensor
) -> Tensor:
    """The tangent of v; `changes` are those of source, g0, g1, g2 and leak."""
    if any(g is not None for g in changes[1:4]):
        found = potentials(source, None, network)
        every = (changes[0], None, *changes[1:])
        return derivatives.tangents(*found, every, network)[0].to(v.dtype)
    current = torch.zeros_like(v) if changes[0] is None else changes[0]
    if changes[4] is not None:
        several = v.dim() > changes[4].dim()
        current = current - (changes[4][:, None] if several else changes[4]) * v
    return solve_network(current, network, check=False)[0]


def _gradients(
    ctx: Any, grad_v: Tensor | None, needed: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """One gradient for each argument of the operator, from what `_Network` has saved."""
    if grad_v is None:
        return (None,) * len(needed)
    saved = ctx.saved_tensors  # hooks may let them be read once only
    source, *conductance, leak, v = saved[:6]
    kept = saved[6:]
    network, edges = (*conductance, leak, *ctx.options), any(needed[1:4])
    products: Sequence[Tensor] = ()
    if torch.is_grad_enabled() or has_tangents(grad_v, source, *conductance, leak):
        if edges:
            v, conj_w, products = edge_gradients(source, grad_v, network)
        else:
            conj_w = solve_network(grad_v.conj(), network, check=False)[0]
    else:
        drops, factor = kept[: ctx.num_drops], kept[ctx.num_drops :]
        found = (grad_v, source, v, drops, factor)
        conj_w, *products = torch.ops.chonn_ops.network_gradients(
            *found, *network, edges, ctx.traced
        )
    several = v.dim() > leak.dim()

    def of_networks(product: Tensor) -> Tensor:
        return product.sum(1) if several else product

    grads: list[Tensor | None] = [None] * len(needed)
    if needed[0]:
        grads[0] = to_dtype_of(conj_w.conj(), source)
    for axis, product in enumerate(products):
        if needed[1 + axis]:
            grads[1 + axis] = to_dtype_of(of_networks(product), conductance[axis])
    if needed[4]:
        grads[4] = to_dtype_of(of_networks((conj_w * v).neg().conj()), leak)
    return tuple(grads)


def _setup_operator(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """As for a `_Network` that keeps nothing."""
    _Network.setup_context(ctx, (*inputs, False, False), (*output, 0))


# Reverse mode of the bare operator, for callers such as exported programs.
torch.library.register_autograd(
    "chonn_ops::kirchhoff_network", _Network.backward, setup_context=_setup_operator
)

torch.library.define(
    "chonn_ops::network_gradients",
    "(Tensor grad, Tensor source, Tensor v, Tensor[] drops, Tensor[] factor, Tensor g0, "
    "Tensor? g1, Tensor? g2, Tensor leak, bool[] periodic, float tol, int max_iterations, "
    "str backend, str method, bool edges, bool again) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


@torch.library.impl("chonn_ops::network_gradients", "default")
def _network_gradients(
    grad: Tensor,
    source: Tensor,
    v: Tensor,
    drops: list[Tensor],
    factor: list[Tensor],
    *arguments: Any,
) -> tuple[Tensor, ...]:
    """conj(w) and, where `edges` are wanted, the gradients of g0, g1 and g2, each else empty.

    `again`: the forward was traced, so that it could keep neither differences nor a factor; both
    are found once more.
    """
    *network, edges, again = arguments
    periodic, tol = network[4:6]
    operator = torch.ops.chonn_ops.kirchhoff_network_kept
    if again and edges:
        v, _, _, drops, factor = operator(source, *network, False, drops=True)
    conj_w, over_w = _solve_again(grad.conj(), network, factor, drops=edges)
    nothing = [conj_w.new_empty(0) for _ in range(3)]
    if not edges:
        return conj_w, *nothing
    dtype = conj_w.dtype
    fields = []
    for x, found in ((v, drops), (conj_w, over_w)):
        if not found:
            found = differences_by_axis(x, periodic)
            if not recording(x) and bool(lifted(x, found, tol).any()):
                _, w, products = edge_gradients(source, grad, tuple(network))
                found = [x.to(dtype).contiguous() for x in (w, *products)]
                return *found, *nothing[len(periodic) :]
        fields.append(found)
    products = []
    for over_v, over_w in zip(*fields, strict=True):
        product = over_w.mul_(over_v)  # of this call, so that it may be overwritten
        product.real.neg_()  # less its conjugate, in one pass
        products.append(product)
    return conj_w, *products, *nothing[len(periodic) :]


def _solve_again(
    source: Tensor, network: Sequence[Any], factor: list[Tensor], *, drops: bool
) -> tuple[Tensor, list[Tensor]]:
    """Potentials and, where they are wanted and the operator gives them, their differences."""
    *conductance, leak, periodic, tol, _, backend, _ = network
    if not factor:
        operator = torch.ops.chonn_ops.kirchhoff_network_kept
        v, _, _, found, _ = operator(source, *network, False, drops=drops)
        return v, found
    dtype = compute_dtype(source, leak, *conductance)
    name = direct_backend(backend, source.device)
    g = [x.detach() for x in conductance if x is not None]
    with without_autocast(source), torch.no_grad():
        kept = restored(factor, g, leak.detach(), periodic, dtype=dtype, tol=tol, backend=name)
        solution = kept.solve_all(source, drops=drops)
    return solution.potential.to(dtype).contiguous(), [x.to(dtype) for x in solution.drops]


@torch.library.register_fake("chonn_ops::network_gradients")
def _(
    grad: Tensor, source: Tensor, v: Tensor, drops: Any, factor: Any, *arguments: Any
) -> tuple[Tensor, ...]:
    del v, drops, factor
    dtype = compute_dtype(grad, source, *arguments[:4])
    shapes = [tuple(source.shape)] * (1 + (len(arguments[4]) if arguments[-2] else 0))
    shapes += [(0,)] * (4 - len(shapes))
    return tuple(source.new_empty(shape, dtype=dtype) for shape in shapes)


def _batched_gradients(
    grad: Tensor, source: Tensor, v: Tensor, drops: Any, factor: Any, *arguments: Any
) -> tuple[Tensor, ...]:
    """For `is_grads_batched`, by operators without lists of tensors, which PyTorch batches."""
    del drops, factor
    *network, edges, _ = arguments
    products: Sequence[Tensor] = ()
    if edges:
        _, conj_w, products = edge_gradients(source, grad, tuple(network))
    else:
        conj_w = torch.ops.chonn_ops.kirchhoff_network(grad.conj(), *network, False)[0]
    nothing = [v.new_empty(0)] * (3 - len(products))
    return *(x.to(v.dtype) for x in (conj_w, *products)), *nothing


_LIBRARY = torch.library.Library("chonn_ops", "IMPL")
_LIBRARY.impl("network_gradients", _batched_gradients, "Batched")
# `torch.vmap` of the bare operator; the functions above have rules of their own.
torch.library.register_vmap(
    "chonn_ops::kirchhoff_network", partial(fold, torch.ops.chonn_ops.kirchhoff_network)
)
