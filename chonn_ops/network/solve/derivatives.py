r"""Derivatives of any order: potentials and their differences in float64, with digits of their own.

Elimination finds potentials v of sources s, and their differences d along edges, with the digits
that `Elimination.solve_all` promises. Besides its sources s a network has currents c of edges,
which leave one node and enter the next. Their net inflow r sums to 0 over each connected part,
which a sum of rounded numbers does not, and small leaks make large potentials of what is left. So r
is solved for with one more conductance to ground, k at one node x of the part: with
A' = A + k e_x e_x^T, A = A' - k e_x e_x^T has

    A^-1 r = a + m b,   a = A'^-1 r,   b = k A'^-1 e_x,   m = k a_x / sum(l b),

where k a_x = sum(b r) is minus the sum of c times the differences of b, which have digits.

Iterations have potentials right to `tol` of the largest, which small leaks may lift far above all
differences. So there s is split into l V, with the level V = sum(s) / sum(l) of each part, and a
rest that sums to 0 and is solved for as r is, with b = 1 - A'^-1 l and m from a.

This map from s and c to v and d is symmetric up to a sign, so that its derivatives are the same
map. Let it make w and e of the gradient for v and of minus that for d, both conjugated: then the
gradients are those of `adjoint`, and -e* for c.

Sources are (B, \*grid, C), or (B, S, \*grid, C) where S of them share one elimination of networks
(B, \*grid, C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops import _in_graph
from chonn_ops._dtypes import compute_dtype, to_dtype_of, widest_dtype
from chonn_ops._pytorch import at_lower_levels
from chonn_ops.network.direct.elimination import Elimination
from chonn_ops.network.layout import Layout, beside, nodes_of, over_parts
from chonn_ops.network.solve.ground import at_limits, grounded, labels_of, without
from chonn_ops.network.solve.methods import Networks, choose, with_signs
from chonn_ops.network.solve.operator import BACKENDS, direct_backend, run_network


def adjoint(
    w: Tensor,
    drops_w: Sequence[Tensor],
    v: Tensor,
    drops_v: Sequence[Tensor],
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
    drops_w, drops_v : sequence of Tensor
        For each axis the differences of w and v along its edges, as `Layout.drops` has them;
        empty where no gradient of a conductance is needed.
    inputs : sequence of Tensor
        Source, g0, g1, g2 and leak; None for g1 and g2 where there is no such axis.
    needed : sequence of bool
        Which of their gradients are returned; the others are None.
    """
    source, *conductance, leak = inputs
    several, nothing = v.dim() > leak.dim(), w.new_zeros(())

    def product(a: Tensor, b: Tensor, like: Tensor) -> Tensor:
        # Minus the product, in one pass. Conjugated last: where a `TorchDispatchMode` is active,
        # PyTorch 2.15 forgets the lazy conjugate of what the body of an operator computes with.
        gradient = torch.addcmul(nothing, a, b, value=-1)
        return to_dtype_of((gradient.sum(1) if several else gradient).conj(), like)

    gradients = [to_dtype_of(w.conj(), source) if needed[0] else None]
    for axis, (g, wanted) in enumerate(zip(conductance, needed[1:4], strict=True)):
        gradients.append(product(drops_w[axis], drops_v[axis], g) if wanted else None)
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
    `rates` of `chonn_ops.network.solve.ground` or None."""

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
        source, currents, *network, rates, v, drops_v = ctx.saved_tensors
        options, needed = ctx.options, ctx.needs_input_grad
        whole = Networks.of(*network, *options)
        w, drops_w = potentials(grads[0].conj(), -grads[1].conj(), whole, rates)
        limit = partial(at_limits, whole, labels_of(whole), rates)
        fields = (*limit(w, drops_w.unbind(-1), walls=False), *limit(v, drops_v.unbind(-1)))
        of_source, *others = adjoint(*fields, (source, *network), (needed[0], *needed[2:6]))
        of_currents = to_dtype_of(-drops_w.conj(), currents) if needed[1] else None
        return of_source, of_currents, *others, *[None] * (len(options) + 1)

    @staticmethod
    def jvp(ctx: Any, *changes: Any) -> Any:
        with at_lower_levels(*ctx.saved_tensors) as (*inputs, rates, v, drops_v):
            return tangents(v, drops_v, changes[:6], Networks.of(*inputs[2:], *ctx.options), rates)

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
        return fold(apply_potentials, info, in_dims, *args)


def apply_potentials(*args: Any) -> tuple[Tensor, Tensor]:
    """Apply `_Potentials`."""
    solved: Any = _Potentials.apply(*args)
    return solved


def potentials(
    source: Tensor, currents: Tensor | None, network: Networks, rates: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Solve for potentials and their differences, in float64 or complex128.

    The differences have a last dimension for the axes: each node's potential less the next one's, 0
    where no edge is; a graph has one axis, along its edges. `currents`, of that shape, run from
    each node to the next.
    """
    compiling = torch.compiler.is_compiling()
    apply = _in_graph.apply_potentials if compiling else apply_potentials
    return apply(source, currents, *network.arguments(), rates)


def tangents(
    v: Tensor,
    drops_v: Tensor,
    changes: Sequence[Tensor | None],
    network: Networks,
    rates: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Forward mode of `potentials`, which returned `v` and `drops_v`. `changes` are the tangents of
    source, currents, g0, g1, g2 and leak."""
    source, currents, *g, leak = changes
    v, drops = at_limits(network, labels_of(network), rates, v, drops_v.unbind(-1))
    if source is None:
        source = torch.zeros_like(v)
    if leak is not None:
        source = source - beside(leak, v) * v
    for axis, change in enumerate(g):
        if change is not None:
            if currents is None:
                currents = torch.zeros_like(drops_v)
            flow = beside(change, v) * drops[axis]
            rest = drops_v.shape[-1] - axis - 1
            currents = currents + torch.nn.functional.pad(flow[..., None], (axis, rest))
    return potentials(source, currents, network, rates)


torch.library.define(
    "chonn_ops::network_potentials",
    "(Tensor source, Tensor? currents, Tensor g0, Tensor? g1, Tensor? g2, Tensor leak, "
    "bool[] periodic, float tol, int max_iterations, str backend, str method, Tensor? graph) "
    "-> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


def _parts(conductance: Sequence[Tensor], layout: Layout) -> tuple[Tensor, Tensor]:
    """Find where to ground each connected part: at the node whose edges conduct most.

    Returns (B, \\*grid, C) each: the node, in row-major order, at which the part of a node is
    grounded, and the conductance of the edges there, 0 for all other nodes.
    """
    g = [x.abs().nan_to_num() for x in conductance]
    label, size = layout.connected_parts(g), layout.sums_at_nodes(layout.edges(g))
    nodes = nodes_of(size)
    count = nodes.numel()
    here = torch.where(size == over_parts(size, label, largest=True), count - nodes, 0)
    node = count - over_parts(here, label, largest=True)
    return node, torch.where(node == nodes, size, 0)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """Divide; 0 where b is 0, as at nodes without edges or without leaks."""
    some = b != 0
    return torch.where(some, a / torch.where(some, b, 1), 0)


@torch.library.impl("chonn_ops::network_potentials", "default")
def _network_potentials(
    source: Tensor, currents: Tensor | None, *arguments: Any
) -> tuple[Tensor, Tensor]:
    """Compute `potentials`, without derivatives."""
    network, _ = with_signs(Networks.of(*arguments), source)
    layout, backend, several = network.layout, network.backend, source.dim() > network.leak.dim()
    dtype = widest_dtype(compute_dtype(source, currents, *network.fields), source.device)
    s, leak, *g = (x.to(dtype) for x in (source, network.leak, *network.conductance))
    off = labels_of(network)
    if off is not None:
        s, leak = grounded(s, g, leak, off)
    name, method = BACKENDS.name_for(backend, s.device), network.method
    eliminates = (
        several or choose(layout, network.num_networks, dtype, name, method).method == "direct"
    )
    if eliminates:
        network = network._replace(backend=direct_backend(backend, s.device), method="direct")

    def solve(total: Tensor, *sources: Tensor) -> list[Any]:
        """Potentials and drops of networks with leaks `total`, for each source."""
        if several:
            elimination = Elimination(g, total, layout, dtype=dtype, backend=network.backend)
            return [elimination.solve_all(x, drops=True)[:2] for x in sources]
        networks = network._replace(conductance=g, leak=total)
        if eliminates and len(sources) > 1:
            solved = run_network(torch.stack(sources, 1), networks, False, drops=True)
            return [(solved.v[:, i], [x[:, i] for x in solved.drops]) for i in range(len(sources))]
        return [run_network(x, networks, False, drops=eliminates)[::3] for x in sources]

    def result(v: Tensor, drops_v: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        # Forward mode wants tangents with the strides of the values.
        return v.contiguous(), torch.stack([x.contiguous() for x in drops_v], -1)

    if eliminates and currents is None:
        return result(*solve(leak, s)[0])
    node, ground = _parts(g, layout)
    # Edges of conductance 0 between two parts, whose currents are sources of both.
    apart = [beside(drop != 0, s) for drop in layout.drops(node)]
    if currents is None:
        flows = across = [torch.zeros_like(x, dtype=dtype) for x in apart]
    else:
        flows = layout.edges([x.to(dtype) for x in currents.unbind(-1)])
        across = [torch.where(*pair, 0) for pair in zip(apart, flows, strict=True)]
        flows = [torch.where(x, 0, flow) for x, flow in zip(apart, flows, strict=True)]
    if off is not None:  # what runs inside of a part without ground changes nothing
        inside = [beside(x >= 0, s) for x in layout.starts(off)]
        flows = [torch.where(x, 0, flow) for x, flow in zip(inside, flows, strict=True)]
    within = -layout.outflow(flows)
    s = without(s - layout.outflow(across), off)
    if dtype.is_complex:  # complex networks, which have no level, are solved as they are
        return result(*solve(leak, s + within)[0])
    if eliminates:
        [(v, drops_v)] = solve(leak, s)
        (b, drops_b), (a, drops_a) = solve(leak + ground, ground, within)
        b, drops_b, leak = beside(b, a), [beside(x, a) for x in drops_b], beside(leak, a)
        # Each edge counts for both of its ends.
        pairs = zip(flows, drops_b, strict=True)
        m = over_parts(-layout.sums_at_nodes([flow * x for flow, x in pairs]) / 2, node)
    else:
        leaks = over_parts(leak, node)
        v = _ratio(over_parts(s, node), leaks)
        # The level is taken off twice: a node's own leak may take nearly all of its source, and
        # leave rounding.
        rest = s - leak * v
        rest = rest - leak * _ratio(over_parts(rest, node), leaks)
        (a, _), (b, _) = solve(leak + ground, rest + within, leak)
        b = 1 - b
        # Two forms are equal without rounding; the one that has less is taken.
        at_ground, at_leaks = over_parts(ground * a, node), -over_parts(leak * a, node)
        rounding = over_parts(a.abs(), node, largest=True) * over_parts(ground, node)
        m = torch.where(over_parts(leak * a.abs(), node) > rounding, at_ground, at_leaks)
        drops_v, drops_a, drops_b = (layout.drops(x) for x in (v, a, b))
    m = _ratio(m, over_parts(leak * b, node))
    u = a + m * b
    drops_u = layout.drops(u)
    for axis, start in enumerate(layout.starts(m)):
        inner = drops_a[axis] + start * drops_b[axis]
        drops_u[axis] = drops_v[axis] + torch.where(apart[axis], drops_u[axis], inner)
    return result(v + u, drops_u)


@torch.library.register_fake("chonn_ops::network_potentials")
def _(source: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    dtype = widest_dtype(compute_dtype(source, *arguments[:5]), source.device)
    g0 = arguments[1]
    axes = sum(g is not None for g in arguments[1:4])
    v = source.new_empty(source.shape, dtype=dtype)
    shape = (*source.shape[: 1 + source.dim() - g0.dim()], *g0.shape[1:], axes)
    return v, source.new_empty(shape, dtype=dtype)
