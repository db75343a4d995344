r"""Potentials as the level of each connected part plus what they differ from it by.

Small leaks lift all potentials of a part alike, so that rounding them takes the digits of their
differences, which gradients of conductances are made of. Here v = V + u, with the level
V = sum(s) / sum(l) of each part. u has the mean 0, weighted with the leaks, and is found with one
more conductance to ground, k at one node x of the part, which lifts nothing: with
A' = A + k e_x e_x^T,

    a = A'^-1 (s - l V),   b = A'^-1 l,   u = a + m (1 - b),   m = -sum(l a) / (k b_x).

So u keeps its digits at any leak. Edge currents c, which leave one node and enter the next, add
their net inflow to s - l V and nothing to V: their sum over a part is 0, which a sum of rounded
numbers is not.

All of it is made of differentiable solves, and has derivatives of any order and mix of modes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


class Levels:
    """Networks for which potentials are found as levels and differences, in float64.

    Parameters
    ----------
    conductance : sequence of Tensor, shape (B, \\*grid, C)
    leak : Tensor, shape (B, \\*grid, C)
    periodic : sequence of bool
    prepare : callable
        Gives what solves other networks of this grid, for sources (B, \\*grid, C).
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
        self._complex, self._periodic = dtype.is_complex, periodic
        double = torch.complex128 if dtype.is_complex else torch.float64
        self.dtype = dtype if leak.device.type == "mps" else double
        g = [x.to(self.dtype) for x in conductance]
        self._leak = leak.to(self.dtype)
        if self._complex:
            self._solve = prepare(g, self._leak)
            return
        with torch.no_grad():
            given = (*(x.detach() for x in g), None, None)[:3]
            node, ground = torch.ops.chonn_ops.network_parts(*given, periodic)
        self._node = node
        ground = ground.unflatten(2, leak.shape[1:-1]).movedim(1, -1)
        self._solve = prepare(g, self._leak + ground)
        self._b = self._solve(self._leak)
        self._all_leaks = self._total(self._leak)
        self._held = self._total(ground * self._b)

    def _total(self, field: Tensor) -> Tensor:
        """The sum over each node's part."""
        axes = len(self._periodic)
        rows = field.movedim(-1, 1).flatten(-axes)
        node = self._node if rows.dim() == 3 else self._node[:, :, None].expand(rows.shape)
        sums = torch.zeros_like(rows).scatter_add(-1, node, rows).gather(-1, node)
        return sums.unflatten(-1, field.shape[-1 - axes : -1]).movedim(1, -1)

    def _for(self, source: Tensor, *fields: Tensor) -> tuple[Tensor, ...]:
        """Fields (B, \\*grid, C), to go with sources (B, S, \\*grid, C), too."""
        several = source.dim() > self._leak.dim()
        return tuple(x[:, None] if several else x for x in fields)

    def solve(
        self, source: Tensor, currents: Sequence[Tensor | None] = ()
    ) -> tuple[Tensor | float, Tensor]:
        """Level and differences from it for sources (B, \\*grid, C) or (B, S, \\*grid, C) and, one
        an axis, currents of edges from each node to the next."""
        rest = source.to(self.dtype)
        level: Tensor | float = 0.0
        if not self._complex:
            leak, leaks = self._for(source, self._leak, self._all_leaks)
            level = _ratio(self._total(rest), leaks)
            rest = rest - leak * level
        for axis, current in enumerate(currents, -1 - len(self._periodic)):
            if current is not None:
                rest = rest - current + current.roll(1, axis)
        u = self._solve(rest)
        if not self._complex:
            leak, b, held = self._for(source, self._leak, self._b, self._held)
            u = u - _ratio(self._total(leak * u), held) * (1 - b)
        return level, u

    def edge_gradients(self, source: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """v, conj(w) and, one an axis, the gradients of conductances for that of v."""
        v_level, v = self.solve(source)
        w_level, w = self.solve(grad.conj())
        axes = range(len(self._periodic))
        over_v, over_w = ([self.drops(x, axis).conj() for axis in axes] for x in (v, w))
        products = [-(a * b) for a, b in zip(over_v, over_w, strict=True)]
        return v + v_level, w + w_level, products

    def tangent(
        self,
        source: Tensor,
        change: Tensor | None,
        leak_change: Tensor | None,
        changes: Sequence[Tensor | None],
    ) -> Tensor:
        """The tangent of the potentials of `source` for those of it, of leaks and of each axis's
        conductances."""
        level, v = self.solve(source)
        s = torch.zeros_like(v) if change is None else change
        if leak_change is not None:
            s = s - leak_change * (v + level)
        currents = [
            None if g is None else -(g * self.drops(v, axis)) for axis, g in enumerate(changes)
        ]
        level, v = self.solve(s, currents)
        return v + level

    def drops(self, v: Tensor, axis: int) -> Tensor:
        """Each node's potential less the next one's along an axis, 0 where no edge is."""
        return differences(v, axis - len(self._periodic) - 1, self._periodic[axis])


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, 0 where b is 0: at nodes without edges or without leaks."""
    some = b != 0
    return torch.where(some, a / torch.where(some, b, 1), 0)
