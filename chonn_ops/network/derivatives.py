r"""Derivatives of any order: potentials and their differences in float64, with digits at any leak.

Small leaks lift all potentials of a part alike, so that rounding them takes the digits of their
differences, which gradients of conductances are made of. Here v = V + u, with the level
V = sum(s) / sum(l) of each connected part. u has the mean 0, weighted with the leaks, and is found
with one more conductance to ground, k at one node x of the part, which lifts nothing: with
A' = A + k e_x e_x^T,

    a = A'^-1 (s - l V),   b = A'^-1 l,   u = a + m (1 - b),   m = -sum(l a) / (k b_x).

Besides its sources s a network has currents c of edges, which leave one node and enter the next.
They add their net inflow to s - l V and nothing to V: their sum over a part is 0, which a sum of
rounded numbers is not. v and its differences d along edges follow from s and c.

This map from s and c to v and d is symmetric up to a sign, so that its derivatives are the same
map. Let it make w and e of the gradient for v and of minus that for d, both conjugated: then the
gradients are those of `adjoint`, and -e* for c.

`network` is what the operator takes behind the source: g0, g1 and g2, None where there is no such
axis, the leak, and its options from `periodic` to `graph`. Sources are (B, \*grid, C), or
(B, S, \*grid, C) where S of them share one elimination of networks (B, \*grid, C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops import _in_graph
from chonn_ops._dtypes import compute_dtype, to_dtype_of, widest_dtype
from chonn_ops._forward_mode import at_lower_levels
from chonn_ops.network.direct import factor_of
from chonn_ops.network.edges import (
    connected_parts,
    differences_by_axis,
    drops_along,
    edges_by_axis,
    outflow,
    rings,
    sums_at_nodes,
)
from chonn_ops.network.graph import Joined, joined
from chonn_ops.network.ground import at_limits, grounded, labels_of, without
from chonn_ops.network.operator import direct_backend


def adjoint(
    w: Tensor,
    over_w: Sequence[Tensor],
    v: Tensor,
    over_v: Sequence[Tensor],
    inputs: Sequence[Any],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    r"""Gradients through potentials v of networks A v = s; A is symmetric.

    .. math::

        A w = \bar v^*, \qquad \bar s = w^*, \qquad \bar l_p = -(w_p v_p)^*, \qquad
        \bar g_{pq} = -((w_p - w_q) (v_p - v_q))^*

    The bar denotes gradients, PyTorch's of a real loss, and the star conjugates complex numbers.
    Real inputs get the real part.

    Parameters
    ----------
    w, v : Tensor, shape (B, \*grid, C) or (B, S, \*grid, C)
    over_w, over_v : sequence of Tensor
        For each axis the differences of w and v along its edges, as `differences_by_axis` has them;
        empty where no gradient of a conductance is needed.
    inputs : sequence of Tensor
        Source, g0, g1, g2 and leak; None for g1 and g2 where there is no such axis.
    needed : sequence of bool
        Which of their gradients are returned; the others are None.
    """
    source, *conductance, leak = inputs
    several, nothing = v.dim() > leak.dim(), w.new_zeros(())

    def product(a: Tensor, b: Tensor, given: Tensor) -> Tensor:
        # Minus the product, in one pass.
        gradient = torch.addcmul(nothing, a, b, value=-1).conj()
        return to_dtype_of(gradient.sum(1) if several else gradient, given)

    gradients = [to_dtype_of(w.conj(), source) if needed[0] else None]
    for axis, (g, wanted) in enumerate(zip(conductance, needed[1:4], strict=True)):
        gradients.append(product(over_w[axis], over_v[axis], g) if wanted else None)
    gradients.append(product(w, v, leak) if needed[4] else None)
    return gradients


def fold(operator: Callable[..., Any], info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
    """A vmap rule: networks are independent, so the mapped axis joins the batch of all tensors."""
    count = info.batch_size

    def folded(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor) or x.dtype == torch.int64:  # the graph of all networks
            return x
        return (x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)

    outputs = operator(*map(folded, args, in_dims))
    unfolded = tuple(x.unflatten(0, (count, -1)) for x in outputs)
    return unfolded, (0,) * len(unfolded)


class _Potentials(torch.autograd.Function):
    """The arguments are source, currents, g0, g1, g2, leak, the options of the operator, and the
    `rates` of `chonn_ops.network.ground` or None."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor]:
        return torch.ops.chonn_ops.network_potentials(*args[:-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[:6], inputs[12], *output)
        ctx.save_for_forward(*inputs[:6], inputs[12], *output)
        ctx.options = inputs[6:12]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        source, currents, *network, rates, v, over_v = ctx.saved_tensors
        options, needed = ctx.options, ctx.needs_input_grad
        whole = (*network, *options)
        w, over_w = potentials(grads[0].conj(), -grads[1].conj(), whole, rates)
        limit = partial(at_limits, whole, labels_of(whole), rates)
        fields = (*limit(w, over_w.unbind(-1), walls=False), *limit(v, over_v.unbind(-1)))
        of_source, *others = adjoint(*fields, (source, *network), (needed[0], *needed[2:6]))
        of_currents = to_dtype_of(-over_w.conj(), currents) if needed[1] else None
        return of_source, of_currents, *others, *[None] * (len(options) + 1)

    @staticmethod
    def jvp(ctx: Any, *changes: Any) -> Any:
        with at_lower_levels(*ctx.saved_tensors) as (*inputs, rates, v, over_v):
            return tangents(v, over_v, changes[:6], (*inputs[2:], *ctx.options), rates)

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
        return fold(apply_potentials, info, in_dims, *args)


def apply_potentials(*args: Any) -> tuple[Tensor, Tensor]:
    """Apply `_Potentials`."""
    found: Any = _Potentials.apply(*args)
    return found


def potentials(
    source: Tensor,
    currents: Tensor | None,
    network: tuple[Any, ...],
    rates: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Solve for potentials and their differences, in float64 or complex128.

    The differences have a last dimension for the axes: each node's potential less the next one's, 0
    where no edge is; a graph has one axis, along its edges. `currents`, of that shape, run from
    each node to the next.
    """
    compiling = torch.compiler.is_compiling()
    apply = _in_graph.apply_potentials if compiling else apply_potentials
    return apply(source, currents, *network, rates)


def tangents(
    v: Tensor,
    over_v: Tensor,
    changes: Sequence[Tensor | None],
    network: tuple[Any, ...],
    rates: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Forward mode of `potentials`, which returned `v` and `over_v`. `changes` are the tangents of
    source, currents, g0, g1, g2 and leak."""
    source, currents, *g, leak = changes
    several = v.dim() > network[3].dim()
    v, drops = at_limits(network, labels_of(network), rates, v, over_v.unbind(-1))
    if source is None:
        source = torch.zeros_like(v)
    if leak is not None:
        source = source - (leak[:, None] if several else leak) * v
    for axis, change in enumerate(g):
        if change is not None:
            if currents is None:
                currents = torch.zeros_like(over_v)
            flow = (change[:, None] if several else change) * drops[axis]
            rest = over_v.shape[-1] - axis - 1
            currents = currents + torch.nn.functional.pad(flow[..., None], (axis, rest))
    return potentials(source, currents, network, rates)


torch.library.define(
    "chonn_ops::network_potentials",
    "(Tensor source, Tensor? currents, Tensor g0, Tensor? g1, Tensor? g2, Tensor leak, "
    "bool[] periodic, float tol, int max_iterations, str backend, str method, Tensor? graph) "
    "-> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


def _parts(
    conductance: Sequence[Tensor], grid: Sequence[int], periodic: Sequence[Joined]
) -> tuple[Tensor, Tensor]:
    """Find where to ground each connected part: at the node whose edges conduct most.

    Returns (B, C, nodes) each: the node, in row-major order, at which the part of a node is
    grounded, and the conductance of the edges there, 0 for all other nodes.
    """
    B, C = conductance[0].shape[0], conductance[0].shape[-1]
    g = [x.nan_to_num() for x in conductance]
    edges = [x.abs() for x in edges_by_axis(g, periodic)]
    total = sums_at_nodes(g[0].new_zeros(B, *grid, C), edges, periodic)

    def flat(field: Tensor) -> Tensor:
        return field.movedim(-1, 1).flatten(2)

    label, size = connected_parts(g, grid, periodic).movedim(-1, 1), flat(total)
    nodes = torch.arange(size.shape[2], device=size.device)
    largest = torch.zeros_like(size).scatter_reduce(2, label, size, "amax").gather(2, label)
    here = torch.where(size == largest, nodes, len(nodes))
    first = torch.full_like(label, len(nodes)).scatter_reduce(2, label, here, "amin")
    node = first.gather(2, label)
    return node, torch.where(node == nodes, size, 0)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """Divide; 0 where b is 0, as at nodes without edges or without leaks."""
    some = b != 0
    return torch.where(some, a / torch.where(some, b, 1), 0)


def _total(field: Tensor, node: Tensor, reduce: str = "sum") -> Tensor:
    """Reduce a field over the part of each node: sum it, or take its largest magnitude."""
    C, nodes = node.shape[1:]
    rows = field.movedim(-1, 1).reshape(field.shape[0], C, -1, nodes)
    node = node[:, :, None].expand(rows.shape)
    found = torch.zeros_like(rows).scatter_reduce(-1, node, rows, reduce).gather(-1, node)
    return found.reshape(field.movedim(-1, 1).shape).movedim(1, -1)


@torch.library.impl("chonn_ops::network_potentials", "default")
def _found(source: Tensor, currents: Tensor | None, *arguments: Any) -> tuple[Tensor, Tensor]:
    """Compute `potentials`, without derivatives."""
    options = arguments[4:]
    periodic, backend = joined(options[0], options[5]), options[3]
    axes, several = len(periodic), source.dim() > arguments[3].dim()
    dtype = widest_dtype(compute_dtype(source, currents, *arguments[:4]), source.device)
    s, *g, leak = (x.to(dtype) for x in (source, *arguments[:4]) if x is not None)
    off = labels_of(arguments)
    if off is not None:
        s, leak = grounded(s, g, leak, off)

    def prepare(total: Tensor) -> Callable[[Tensor], Tensor]:
        if several:
            name = direct_backend(backend, leak.device)
            return factor_of(g, total, periodic, dtype=dtype, backend=name).solve
        three = (*g, None, None)[:3]
        operator = torch.ops.chonn_ops.kirchhoff_network
        return lambda s: operator(s, *three, total, *options, False)[0]

    def differ(v: Tensor) -> Tensor:
        return torch.stack([x.contiguous() for x in differences_by_axis(v, periodic)], -1)

    node, ground = _parts([x.abs() for x in g], leak.shape[1:-1], periodic)
    label, ground = (x.unflatten(2, leak.shape[1:-1]).movedim(1, -1) for x in (node, ground))
    within = torch.zeros_like(s)
    for axis in range(0 if currents is None else axes):
        assert currents is not None
        current, around = currents[..., axis].to(dtype), rings(periodic)[axis]
        # These currents enter another part, over an edge of conductance 0.
        across = drops_along(label, axis, around) != 0
        across = torch.where(across[:, None] if several else across, current, 0)
        within = within - outflow(current - across, axis + several, around)
        s = s - outflow(across, axis + several, around)
    s, within = without(s, off), without(within, off)
    if dtype.is_complex:  # complex networks, which have no level, are solved as they are
        v = prepare(leak)(s + within)
        return v.contiguous(), differ(v)
    solve = prepare(leak + ground)
    b = solve(leak)
    leaks, held = _total(leak, node), _total(ground * b, node)
    if several:
        leak, ground, b, leaks, held = (x[:, None] for x in (leak, ground, b, leaks, held))
    level = _ratio(_total(s, node), leaks)
    # The level is taken off twice: a node's own leak may take nearly all of its source, and leave
    # rounding.
    rest = s - leak * level
    rest = rest - leak * _ratio(_total(rest, node), leaks)
    u = solve(rest + within)
    # m equals a_x / b_x, because all currents sum to 0. Of the two forms the one with less rounding
    # is taken.
    lost, kept = _total(leak * u.abs(), node), _total(u.abs(), node, "amax") * _total(ground, node)
    m = torch.where(lost > kept, _total(ground * u, node), -_total(leak * u, node))
    u = u + _ratio(m, held) * (1 - b)
    # Levels of one part are equal. Forward mode wants tangents with the strides of the values.
    return (level + u).contiguous(), differ(level) + differ(u)


@torch.library.register_fake("chonn_ops::network_potentials")
def _(source: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    dtype = widest_dtype(compute_dtype(source, *arguments[:5]), source.device)
    g0 = arguments[1]
    axes = sum(g is not None for g in arguments[1:4])
    v = source.new_empty(source.shape, dtype=dtype)
    shape = (*source.shape[: 1 + source.dim() - g0.dim()], *g0.shape[1:], axes)
    return v, source.new_empty(shape, dtype=dtype)
