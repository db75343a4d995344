r"""Potentials and their differences in float64: with digits at any leak.

Small leaks lift all potentials of a part alike, so that rounding them takes the digits of their
differences, which gradients of conductances are made of. Here v = V + u, with the level
V = sum(s) / sum(l) of each connected part. u has the mean 0, weighted with the leaks, and is found
with one more conductance to ground, k at one node x of the part, which lifts nothing: with
A' = A + k e_x e_x^T,

    a = A'^-1 (s - l V),   b = A'^-1 l,   u = a + m (1 - b),   m = -sum(l a) / (k b_x).

What has sources s also has currents c of edges, which leave one node and enter the next. They add
their net inflow to s - l V and nothing to V: their sum over a part is 0, which a sum of rounded
numbers is not. From s and c follow v and its differences d along edges. Derivatives are
`chonn_ops.network.derivatives`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.network.derivatives import NAME
from chonn_ops.network.direct import factor_of
from chonn_ops.network.edges import at_both_ends, differences_by_axis, pad, used_edges
from chonn_ops.network.operator import direct_backend

torch.library.define(
    NAME,
    "(Tensor source, Tensor? currents, Tensor g0, Tensor? g1, Tensor? g2, Tensor leak, "
    "bool[] periodic, float tol, int max_iterations, str backend, str method) "
    "-> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


def _parts(conductance: Sequence[Tensor], periodic: Sequence[bool]) -> tuple[Tensor, Tensor]:
    """(B, C, nodes): the node, in row-major order, at which each node's connected part is grounded,
    and the conductance of the edges there; of all nodes of a part it has the largest."""
    g0 = conductance[0]
    B, *grid, C = g0.shape
    nodes = torch.arange(g0[0, ..., 0].numel() if B and C else 0, device=g0.device)
    part = nodes.reshape(-1, 1).expand(B, len(nodes), C).reshape(g0.shape)
    total = torch.zeros_like(g0)
    joined: list[tuple[int, bool, Tensor]] = []
    for axis, g in enumerate(conductance):
        if grid[axis] > 1:
            edges = used_edges(g.nan_to_num(), axis, periodic[axis]).abs()
            total = total + at_both_ends(edges, axis, periodic[axis])
            joined.append((axis + 1, bool(periodic[axis]), edges != 0))

    def flat(field: Tensor) -> Tensor:
        return field.movedim(-1, 1).flatten(2)

    before = torch.empty_like(part[:0])
    while not torch.equal(part, before):  # labels grow to the largest node of each part
        before = part
        for dim, closed, edge in joined:
            n = part.shape[dim]
            low = part if closed else part.narrow(dim, 0, n - 1)
            high = part.roll(-1, dim) if closed else part.narrow(dim, 1, n - 1)
            both = torch.where(edge, torch.maximum(low, high), -1)
            part = torch.maximum(part, both if closed else pad(both, dim - 1, 0, 1))
            part = torch.maximum(part, both.roll(1, dim) if closed else pad(both, dim - 1, 1, 0))
        rows = flat(part)
        part = rows.gather(2, rows).unflatten(2, grid).movedim(1, -1)
    label, size = flat(part), flat(total)
    largest = torch.zeros_like(size).scatter_reduce(2, label, size, "amax").gather(2, label)
    here = torch.where(size == largest, nodes, len(nodes))
    first = torch.full_like(label, len(nodes)).scatter_reduce(2, label, here, "amin")
    node = first.gather(2, label)
    return node, torch.where(node == nodes, size, 0)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, 0 where b is 0: at nodes without edges or without leaks."""
    some = b != 0
    return torch.where(some, a / torch.where(some, b, 1), 0)


def _total(field: Tensor, node: Tensor, reduce: str = "sum") -> Tensor:
    """The sum, or the largest value of magnitudes, over each node's part."""
    C, nodes = node.shape[1:]
    rows = field.movedim(-1, 1).reshape(field.shape[0], C, -1, nodes)
    node = node[:, :, None].expand(rows.shape)
    found = torch.zeros_like(rows).scatter_reduce(-1, node, rows, reduce).gather(-1, node)
    return found.reshape(field.movedim(-1, 1).shape).movedim(1, -1)


def _wide(source: Tensor, *fields: Tensor | None) -> torch.dtype:
    dtype = compute_dtype(source, *fields)
    if source.device.type == "mps":
        return dtype
    return torch.complex128 if dtype.is_complex else torch.float64


def _found(source: Tensor, currents: Tensor | None, *arguments: Any) -> tuple[Tensor, Tensor]:
    """See `potentials` of `chonn_ops.network.derivatives`."""
    periodic, tol, max_iterations, backend, method = arguments[4:]
    axes, several = len(periodic), source.dim() > arguments[3].dim()
    dtype = _wide(source, currents, *arguments[:4])
    s, *g, leak = (x.to(dtype) for x in (source, *arguments[:4]) if x is not None)

    def prepare(total: Tensor) -> Callable[[Tensor], Tensor]:
        if several:
            name = direct_backend(backend, leak.device)
            return factor_of(g, total, periodic, dtype=dtype, backend=name).solve
        three, options = (*g, None, None)[:3], (periodic, tol, max_iterations, backend, method)
        operator = torch.ops.chonn_ops.kirchhoff_network
        return lambda s: operator(s, *three, total, *options, False)[0]

    def differ(v: Tensor) -> Tensor:
        return torch.stack([x.contiguous() for x in differences_by_axis(v, periodic)], -1)

    node, ground = _parts([x.abs() for x in g], periodic)
    label, ground = (x.unflatten(2, leak.shape[1:-1]).movedim(1, -1) for x in (node, ground))
    within = torch.zeros_like(s)
    for axis in range(0 if currents is None else axes):
        assert currents is not None
        current, axis = currents[..., axis].to(dtype), axis - 1 - axes
        # Into another part, over an edge of conductance 0.
        across = label != label.roll(-1, axis)
        across = torch.where(across[:, None] if several else across, current, 0)
        within = within - (current - across) + (current - across).roll(1, axis)
        s = s - across + across.roll(1, axis)
    if dtype.is_complex:  # complex networks, which have no level, are solved as they are
        v = prepare(leak)(s + within)
        return v.contiguous(), differ(v)
    solve = prepare(leak + ground)
    b = solve(leak)
    leaks, held = _total(leak, node), _total(ground * b, node)
    if several:
        leak, ground, b, leaks, held = (x[:, None] for x in (leak, ground, b, leaks, held))
    level = _ratio(_total(s, node), leaks)
    # Twice: a node's own leak may take nearly all of its source, and leave rounding.
    rest = s - leak * level
    rest = rest - leak * _ratio(_total(rest, node), leaks)
    u = solve(rest + within)
    # m is a_x / b_x, too, since all currents sum to 0: the form whose rounding is less.
    lost, kept = _total(leak * u.abs(), node), _total(u.abs(), node, "amax") * _total(ground, node)
    m = torch.where(lost > kept, _total(ground * u, node), -_total(leak * u, node))
    u = u + _ratio(m, held) * (1 - b)
    # Levels of one part are equal. Forward mode wants tangents with the strides of the values.
    return (level + u).contiguous(), differ(level) + differ(u)


torch.library.impl(NAME, "default", _found)


@torch.library.register_fake(NAME)
def _(source: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    dtype, axes = _wide(source, *arguments[:5]), len(arguments[5])
    v = source.new_empty(source.shape, dtype=dtype)
    return v, source.new_empty((*source.shape, axes), dtype=dtype)
