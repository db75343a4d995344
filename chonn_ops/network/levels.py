r"""Potentials and their differences in float64: with digits at any leak, and all derivatives.

Small leaks lift all potentials of a part alike, so that rounding them takes the digits of their
differences, which gradients of conductances are made of. Here v = V + u, with the level
V = sum(s) / sum(l) of each connected part. u has the mean 0, weighted with the leaks, and is found
with one more conductance to ground, k at one node x of the part, which lifts nothing: with
A' = A + k e_x e_x^T,

    a = A'^-1 (s - l V),   b = A'^-1 l,   u = a + m (1 - b),   m = -sum(l a) / (k b_x).

What has sources s also has currents c of edges, which leave one node and enter the next. They add
their net inflow to s - l V and nothing to V: their sum over a part is 0, which a sum of rounded
numbers is not. From s and c follow v and its differences d along edges. This map is symmetric up to
a sign, and so its derivatives are the same map: for the gradients of v and d, with w and e what the
map makes of them and of minus them, w for s, -e for c, -w v for the leak and -e d for conductances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops.network.edges import at_both_ends, differences, pad, used_edges

# From conductances and leaks what solves for sources.
Prepare = Callable[[Sequence[Tensor], Tensor], Callable[[Tensor], Tensor]]

_NAME = "chonn_ops::network_parts"
torch.library.define(
    _NAME,
    "(Tensor g0, Tensor? g1, Tensor? g2, bool[] periodic) -> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


def _parts(
    g0: Tensor, g1: Tensor | None, g2: Tensor | None, periodic: Sequence[bool]
) -> tuple[Tensor, Tensor]:
    """(B, C, nodes): the node, in row-major order, at which each node's connected part is grounded,
    and the conductance of the edges there; of all nodes of a part it has the largest."""
    conductance = [g for g in (g0, g1, g2) if g is not None]
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


torch.library.impl(_NAME, "default", _parts)


@torch.library.register_fake(_NAME)
def _(g0: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    B, *grid, C = g0.shape
    nodes = 1
    for n in grid:
        nodes = nodes * n
    shape = (B, C, nodes)
    return g0.new_empty(shape, dtype=torch.int64), g0.new_empty(shape)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, 0 where b is 0: at nodes without edges or without leaks."""
    some = b != 0
    return torch.where(some, a / torch.where(some, b, 1), 0)


def _total(field: Tensor, node: Tensor) -> Tensor:
    """The sum over each node's part, of fields (B, \\*grid, C) or (B, S, \\*grid, C)."""
    C, nodes = node.shape[1:]
    rows = field.movedim(-1, 1).reshape(field.shape[0], C, -1, nodes)
    node = node[:, :, None].expand(rows.shape)
    sums = torch.zeros_like(rows).scatter_add(-1, node, rows).gather(-1, node)
    return sums.reshape(field.movedim(-1, 1).shape).movedim(1, -1)


class _Potentials(torch.autograd.Function):
    """Sources and currents to potentials and their differences."""

    generate_vmap_rule = True

    @staticmethod
    def forward(prepare: Any, periodic: Any, *tensors: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        axes = len(periodic)
        s, leak, node, ground, b = tensors[:5]
        g, currents = tensors[5 : 5 + axes], tensors[5 + axes :]
        several, within = s.dim() > leak.dim(), torch.zeros_like(s)
        label = node.unflatten(2, leak.shape[1:-1]).movedim(1, -1)
        solve = prepare(g, leak + ground)

        def differ(v: Tensor) -> list[Tensor]:
            pairs = enumerate(periodic, -1 - axes)
            return [differences(v, axis, closed) for axis, closed in pairs]

        for axis, current in enumerate(currents, -1 - axes):
            # Into another part, over an edge of conductance 0.
            across = label != label.roll(-1, axis)
            across = torch.where(across[:, None] if several else across, current, 0)
            within = within - (current - across) + (current - across).roll(1, axis)
            s = s - across + across.roll(1, axis)
        if s.is_complex():
            v = solve(s + within)
            return v, *differ(v)
        leaks, held = _total(leak, node), _total(ground * b, node)
        if several:
            leak, b, leaks, held = (x[:, None] for x in (leak, b, leaks, held))
        level = _ratio(_total(s, node), leaks)
        u = solve(s - leak * level + within)
        u = u - _ratio(_total(leak * u, node), held) * (1 - b)
        # Levels of one part are equal.
        return level + u, *(x + y for x, y in zip(differ(level), differ(u), strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        prepare, periodic, source, *network = inputs
        ctx.prepare, ctx.periodic, ctx.several = prepare, periodic, source.dim() > network[0].dim()
        tensors = (*network[: 4 + len(periodic)], *output)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        axes = len(ctx.periodic)
        saved = ctx.saved_tensors
        network, v, drops = saved[: 4 + axes], saved[4 + axes], saved[5 + axes :]
        currents = [-x.conj() for x in grads[1:]]
        out: Any = _Potentials.apply(
            ctx.prepare, ctx.periodic, grads[0].conj(), *network, *currents
        )
        w, *over_w = (x.conj() for x in out)

        def of_network(x: Tensor) -> Tensor:
            return x.sum(1).neg() if ctx.several else x.neg()

        leak = of_network(w * v.conj())
        g = [of_network(a * b.conj()) for a, b in zip(over_w, drops, strict=True)]
        return None, None, w, leak, None, None, None, *g, *(-x for x in over_w)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        axes = len(ctx.periodic)
        saved = ctx.saved_tensors
        network, v, drops = saved[: 4 + axes], saved[4 + axes], saved[5 + axes :]
        _, _, source, leak, _, _, _, *rest = tangents
        if source is None:
            source = torch.zeros_like(v)
        if leak is not None:
            source = source - (leak[:, None] if ctx.several else leak) * v
        currents = []
        for g, current, drop in zip(rest[:axes], rest[axes:], drops, strict=True):
            total = torch.zeros_like(v) if current is None else current
            if g is not None:
                total = total + (g[:, None] if ctx.several else g) * drop
            currents.append(total)
        return _Potentials.apply(ctx.prepare, ctx.periodic, source, *network, *currents)


class Levels:
    """Networks for which potentials are found as levels and differences, in float64.

    Parameters
    ----------
    conductance : sequence of Tensor, shape (B, \\*grid, C)
    leak : Tensor, shape (B, \\*grid, C)
    periodic : sequence of bool
    prepare : callable
        Gives what solves networks of this grid, for sources (B, \\*grid, C) and, if this is asked
        for such ones, (B, S, \\*grid, C). It is called with the same networks each time.
    dtype : torch.dtype
        Of the potentials that are wanted. Complex networks, which have no level, are solved as they
        are, in complex128.
    """

    def __init__(
        self,
        conductance: Sequence[Tensor],
        leak: Tensor,
        periodic: Sequence[bool],
        prepare: Prepare,
        dtype: torch.dtype,
    ) -> None:
        double = torch.complex128 if dtype.is_complex else torch.float64
        self._dtype = dtype if leak.device.type == "mps" else double
        leak, *g = (x.to(self._dtype) for x in (leak, *conductance))
        self._prepare, self._periodic = prepare, tuple(periodic)
        with torch.no_grad():
            fixed = [x.detach() for x in g]
            magnitudes = (*(x.abs() for x in fixed), None, None)[:3]
            node, ground = torch.ops.chonn_ops.network_parts(*magnitudes, periodic)
            ground = ground.unflatten(2, leak.shape[1:-1]).movedim(1, -1)
            if dtype.is_complex:
                b = ground = torch.zeros_like(leak)
            else:
                b = prepare(fixed, leak.detach() + ground)(leak.detach())
        self._network = (leak, node, ground, b, *g)

    def solve(self, source: Tensor, currents: Sequence[Tensor | None] = ()) -> tuple[Tensor, ...]:
        """Potentials and, one an axis, each node's potential less the next one's, 0 where no edge
        is, for sources (B, \\*grid, C) or (B, S, \\*grid, C) and, one an axis, currents of edges
        from each node to the next."""
        s = source.to(self._dtype)
        given = [torch.zeros_like(s) if x is None else x.to(self._dtype) for x in currents]
        given += [torch.zeros_like(s)] * (len(self._periodic) - len(given))
        found: Any = _Potentials.apply(self._prepare, self._periodic, s, *self._network, *given)
        return found

    def edge_gradients(self, source: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """v, conj(w) and, one an axis, the gradients of conductances for that of v."""
        v, *over_v = self.solve(source)
        w, *over_w = self.solve(grad.conj())
        return v, w, [-(a * b).conj() for a, b in zip(over_w, over_v, strict=True)]

    def tangent(
        self,
        source: Tensor,
        change: Tensor | None,
        leak_change: Tensor | None,
        changes: Sequence[Tensor | None],
    ) -> Tensor:
        """The tangent of the potentials of `source` for those of it, of leaks and of each axis's
        conductances."""
        v, *over_v = self.solve(source)
        s = torch.zeros_like(v) if change is None else change
        if leak_change is not None:
            s = s - leak_change * v
        pairs = zip(changes, over_v, strict=True)
        return self.solve(s, [None if g is None else g * drop for g, drop in pairs])[0]
