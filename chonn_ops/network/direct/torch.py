"""The backend "torch" of the direct method: batched dense fronts, on any device.

Regions of one height and size are one batch. The algebra is the kernel's: conductances, leaks,
shares and entries of the inverse are sums and products of positive numbers. No tensor is changed in
place, so every result has derivatives of any order by PyTorch's own rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from chonn_ops._dtypes import widened, widest_dtype
from chonn_ops._library import CONSTANTS
from chonn_ops.network.direct.cpu import Solution
from chonn_ops.network.direct.kept import kept
from chonn_ops.network.direct.pivoted import Pivoted
from chonn_ops.network.direct.plan import Array, Plan
from chonn_ops.network.edges import relative_residual

# Complex pivots below this part of what they are the sum of have lost digits, which a determinant
# and an inverse do not get back.
_CANCELLED = 1e-3


@dataclass(frozen=True, eq=False)
class _Batch:
    """Regions of one height, number of pivots and width; index tensors for all of them."""

    count: int
    pivots: int
    width: int
    nodes: Tensor  # (count, pivots + width): positions of the fronts' nodes
    edges: Tensor  # entries of the conductances
    edges_to: Tensor  # and where in the fronts, above the diagonals; below follow behind
    halves: list[tuple[int, Tensor, Tensor]]  # batch, its regions, (regions, width): rows in fronts

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        halves = (x for _, regions, place in self.halves for x in (regions, place))
        return sum(x.nbytes for x in (self.nodes, self.edges, self.edges_to, *halves))


@dataclass(frozen=True, eq=False)
class _Batches:
    """The batches of a plan, in the order of elimination, and the node of each position."""

    node: Tensor
    each: list[_Batch]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return self.node.nbytes + sum(batch.nbytes for batch in self.each)


@kept
def _batches_of(plan: Plan, device: torch.device) -> _Batches:
    """Put regions that can be eliminated side by side into batches."""
    height = np.zeros(plan.regions, np.int64)
    for region, parent in enumerate(plan.parent):
        if parent >= 0:
            height[parent] = max(height[parent], height[region] + 1)
    keys = np.column_stack([height, plan.pivots, plan.width])
    kinds, batch_of = np.unique(keys, axis=0, return_inverse=True)
    batch_of = batch_of.ravel()
    members = [np.flatnonzero(batch_of == batch) for batch in range(len(kinds))]
    within = np.empty(plan.regions, np.int64)
    for rows in members:
        within[rows] = np.arange(len(rows))
    front = plan.pivots + plan.width

    def tensor(array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(device)

    def boundary_of(rows: Array, values: Array) -> Array:
        return values[plan.boundary_at[rows][:, None] + np.arange(int(plan.width[rows[0]]))]

    owner = np.repeat(np.arange(plan.regions), np.diff(plan.edge_at))
    batches = []
    for batch, rows in enumerate(members):
        f = int(front[rows[0]])
        mine = batch_of[owner] == batch
        at = within[owner[mine]] * f
        upper = (at + plan.row[mine]) * f + plan.column[mine]
        lower = (at + plan.column[mine]) * f + plan.row[mine]
        kids = plan.kids[rows]
        kids = kids[kids >= 0]
        halves = []
        for other in np.unique(batch_of[kids]):
            these = kids[batch_of[kids] == other]
            place = within[plan.parent[these]][:, None] * f + boundary_of(these, plan.place)
            halves.append((int(other), tensor(within[these]), tensor(place)))
        positions = plan.first[rows][:, None] + np.arange(int(plan.pivots[rows[0]]))
        batches.append(
            _Batch(
                count=len(rows),
                pivots=int(plan.pivots[rows[0]]),
                width=int(plan.width[rows[0]]),
                nodes=tensor(np.concatenate([positions, boundary_of(rows, plan.boundary)], 1)),
                edges=tensor(plan.edge[mine]),
                edges_to=tensor(np.concatenate([upper, lower])),
                halves=halves,
            )
        )
    return _Batches(tensor(plan.node), batches)


def _magnitude(x: Tensor) -> Tensor:
    """Estimate magnitudes from below: a result is at least 1 / sqrt(2) of the number's."""
    return torch.view_as_real(x).abs().amax(-1) if x.is_complex() else x


def _eliminate(
    g: Tensor, leak: Tensor, pivots: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Eliminate the first pivots of fronts (M, regions, f, f) with leaks (M, regions, f).

    A complex pivot below sqrt(eps) times the sum of its row's magnitudes has too few digits to be
    divided by, and is raised to that.

    Returns the shares (..., pivots, f), the inverse pivots, ground's shares, the rest of fronts and
    leaks, and (M,) whether a complex pivot has lost digits.
    """
    f = g.shape[-1]
    info = torch.finfo(g.dtype)
    shares, inverses, grounded = [], [], []
    cancelled = torch.zeros(leak.shape[:1], dtype=torch.bool, device=leak.device)
    for k in range(pivots):
        edges = g[..., 0, 1:]
        total = leak[..., 0] + edges.sum(-1)
        size = total
        if g.is_complex():
            with torch.no_grad():
                size = leak[..., 0].abs() + edges.abs().sum(-1)
                least = info.eps**0.5 * size
                small = (total.abs() < least) & (size >= info.tiny)
                few = (total.abs() < _CANCELLED * size) & (size >= info.tiny)
                cancelled = cancelled | few.flatten(1).any(1)
            # A larger leak raises the pivot: all pivots after it are those of one changed network.
            more = torch.where(small, least - total, 0)
            leak = torch.cat([leak[..., :1] + more[..., None], leak[..., 1:]], -1)
            total = torch.where(small, least, total)
        some = size >= info.tiny
        inverse = torch.where(some, 1 / torch.where(some, total, 1), 0)
        share = edges * inverse[..., None]
        # A pivot without edges hands all to ground; the product would round that.
        to_ground = torch.where(total == leak[..., 0], 1, leak[..., 0] * inverse)
        grounded.append(torch.where(some, to_ground, 0))
        leak = leak[..., 1:] + share * leak[..., :1]
        g = g[..., 1:, 1:] + share[..., :, None] * edges[..., None, :]
        shares.append(torch.nn.functional.pad(share, (k + 1, 0)))
        inverses.append(inverse)
    empty = g.new_zeros(*g.shape[:-2], 0, f)
    return (
        torch.stack(shares, -2) if shares else empty,
        torch.stack(inverses, -1) if inverses else empty[..., 0],
        torch.stack(grounded, -1) if grounded else empty[..., 0],
        g,
        leak,
        cancelled,
    )


def _part_sizes(u: Tensor, parts: Tensor) -> Tensor:
    """Powers of two near the largest |u| of each node's part, (M, S, nodes); 1 outside parts."""
    to = parts.clamp_min(0)
    most = torch.zeros_like(u).scatter_reduce(2, to, torch.where(parts >= 0, u.abs(), 0), "amax")
    exponent = torch.frexp(most.nan_to_num(0, 0)).exponent.gather(2, to)
    limit = math.frexp(torch.finfo(most.dtype).max)[1] - 2
    exponent = torch.where(most.gather(2, to) == 0, -limit, exponent)
    exponent = torch.where(parts >= 0, exponent, 0).clamp(-limit, limit)
    return torch.ldexp(torch.ones_like(most), exponent)


def _take(x: Tensor, at: Tensor) -> Tensor:
    """Gather the nodes of regions, (M, regions, nodes, S), from rows (M, S, nodes)."""
    return x[:, :, at].permute(0, 2, 3, 1)


def _flat(value: Tensor) -> Tensor:
    """Reshape values (M, regions, nodes, S) to rows (M, S, regions * nodes)."""
    return value.permute(0, 3, 1, 2).flatten(2)


class Factors:
    """Networks eliminated by batched dense fronts, like the compiled `Factors`: on any device, of
    one floating or complex dtype."""

    def __init__(
        self,
        plan: Plan,
        conductance: Sequence[Tensor],
        leak: Tensor,
        source: Tensor | None = None,
        *,
        drops: bool = False,
    ) -> None:
        self._plan, self._shape = plan, leak.shape
        batches = _batches_of(plan, leak.device)
        self._node, self._batches = batches.node, batches.each
        g = torch.cat([self._rows(field) for field in conductance], 1)  # (M, axes * entries)
        used = torch.zeros(g.shape[1], dtype=torch.bool, device=leak.device)
        used[torch.from_numpy(plan.edge).to(leak.device)] = True
        l = self._rows(leak)  # noqa: E741
        # Entries that are no edges may be anything; networks with NaN or infinity are left out.
        g = torch.where(used, g, 0)
        with torch.no_grad():
            largest = torch.maximum(_magnitude(g).amax(1), _magnitude(l).amax(1))
            self._sound = largest.isfinite() & g.isfinite().all(1) & l.isfinite().all(1)
            exponent = torch.frexp(torch.where(self._sound, largest, 0)).exponent
            # The scale stays a normal number, though denormal conductances would need a larger one.
            most = math.frexp(torch.finfo(largest.dtype).max)[1] - 2
            exponent = exponent.clamp(-most, most)
            self._scale = torch.ldexp(torch.ones_like(largest), -exponent)
        g, l = (torch.where(self._sound[:, None], x * self._scale[:, None], 0) for x in (g, l))  # noqa: E741
        self._g = g
        self._leak = l = l[:, self._node]  # noqa: E741
        M = len(l)
        self._cancelled = torch.zeros_like(self._sound)
        updates: list[tuple[Tensor, Tensor]] = []
        self._shares: list[Tensor] = []
        self._inverses: list[Tensor] = []
        self._grounded: list[Tensor] = []
        for batch in self._batches:
            f = batch.pivots + batch.width
            values = g[:, batch.edges]
            front = g.new_zeros(M, batch.count * f * f)
            front = front.index_add(1, batch.edges_to, torch.cat([values, values], 1))
            own = torch.nn.functional.pad(l[:, batch.nodes[:, : batch.pivots]], (0, batch.width))
            leaks = own.flatten(1)
            for other, regions, place in batch.halves:
                edges, grounds = updates[other]
                leaks = leaks.index_add(1, place.flatten(), grounds[:, regions].flatten(1))
                to = place[:, :, None] * f + (place % f)[:, None, :]
                front = front.index_add(1, to.flatten(), edges[:, regions].flatten(1))
            front = front.reshape(M, batch.count, f, f)
            shares, inverse, grounded, edges, grounds, cancelled = _eliminate(
                front, leaks.reshape(M, batch.count, f), batch.pivots
            )
            self._cancelled |= cancelled
            updates.append((edges, grounds))
            self._shares.append(shares)
            self._inverses.append(inverse)
            self._grounded.append(grounded)
        self.solution: Solution | None = None
        if source is not None:
            self.solution = self.solve(source, drops=drops, network=(leak, *conductance))

    @classmethod
    def solved(
        cls,
        plan: Plan,
        conductance: Sequence[Tensor],
        leak: Tensor,
        source: Tensor,
        *,
        drops: bool = False,
    ) -> Solution:
        """The solution for sources (B, S, \\*grid, C)."""
        factors = cls(plan, conductance, leak, source, drops=drops)
        assert factors.solution is not None
        return factors.solution

    def state(self) -> list[Tensor]:
        """The elimination as tensors."""
        numbers = (self._g, self._leak, self._scale, self._sound, self._cancelled)
        return [*numbers, *self._shares, *self._inverses, *self._grounded]

    @classmethod
    def restored(cls, plan: Plan, state: Sequence[Tensor], leak: Tensor, *_: Tensor) -> Factors:
        """The factors with this `state`."""
        self = cls.__new__(cls)
        self._plan, self._shape, self.solution = plan, leak.shape, None
        batches = _batches_of(plan, leak.device)
        self._node, self._batches = batches.node, batches.each
        self._g, self._leak, self._scale, self._sound, self._cancelled, *fronts = state
        n = len(self._batches)
        self._shares, self._inverses = list(fronts[:n]), list(fronts[n : 2 * n])
        self._grounded = list(fronts[2 * n :])
        return self

    @property
    def finite(self) -> Tensor:
        """(B, C): whether conductances and leaks are finite."""
        return self._sound.reshape(self._shape[0], self._shape[-1])

    def _rows(self, field: Tensor) -> Tensor:
        """Reshape a field (B, \\*grid, C) to rows (M, nodes), conductances likewise."""
        return field.movedim(-1, 1).flatten(0, 1).flatten(1)

    def _upper(self, index: int) -> tuple[Tensor, Tensor]:
        """The rows of U at a batch's pivots: the columns of pivots, and minus those of the
        boundary."""
        n = self._batches[index].pivots
        shares = self._shares[index]
        one = torch.eye(n, dtype=shares.dtype, device=shares.device)
        return one - shares[..., :n], shares[..., n:]

    def _whole(self, index: int) -> Tensor:
        """What a pivot's shares, ground's among them, sum to, (M, regions, pivots): 1 but for their
        rounding, which has no derivative. Complex shares may cancel, so that theirs may not."""
        inverse = self._inverses[index].detach()
        if inverse.is_complex():
            return torch.ones_like(inverse)
        shares, grounded = self._shares[index].detach(), self._grounded[index].detach()
        whole = shares.sum(-1, dtype=widest_dtype(shares.dtype, shares.device)) + grounded
        return torch.where(inverse == 0, 1, whole)

    def _up(self, x: Tensor) -> Tensor:
        """D^-1 U^-T x of rows (M, S, nodes) by position: forward substitution.

        Where sources cancel, what is left of them may be smaller than the rounding of shares. So
        each pivot hands on what it received over the sum of its shares, in float64: no current is
        lost, and the shares are those of a network that differs by rounding of its conductances.
        """
        x = x if x.is_complex() else widened(x)
        for index, batch in enumerate(self._batches):
            pivots, others = batch.nodes.split([batch.pivots, batch.width], 1)
            upper, beyond = (y.to(x.dtype) for y in self._upper(index))
            upper = upper + torch.diag_embed(self._whole(index) - 1)
            handed = torch.linalg.solve_triangular(upper.mT, _take(x, pivots), upper=False)
            own = handed * self._inverses[index][..., None]
            x = x.index_copy(2, pivots.flatten(), _flat(own))
            x = x.index_add(2, others.flatten(), _flat(beyond.mT @ handed))
        return x.to(self._g.dtype)

    def _down(self, x: Tensor) -> Tensor:
        """U^-1 x of rows (M, S, nodes) by position: back substitution."""
        for index, batch in reversed(list(enumerate(self._batches))):
            pivots, others = batch.nodes.split([batch.pivots, batch.width], 1)
            upper, beyond = self._upper(index)
            own = torch.linalg.solve_triangular(
                upper,
                _take(x, pivots) + beyond @ _take(x, others),
                upper=True,
                unitriangular=True,
            )
            x = x.index_copy(2, pivots.flatten(), _flat(own))
        return x

    def _roots(self) -> Tensor:
        """D^(-1/2), (M, 1, nodes) by position; 0 where a pivot is no part of the network."""
        inverse = self._inverse()
        return torch.where(inverse > 0, torch.where(inverse > 0, inverse, 1).sqrt(), 0)[:, None]

    def _potentials(
        self, source: Tensor, sample: bool, wanted: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Potentials, and drops where they are wanted."""
        B, S, *grid, C = source.shape
        x = source.movedim(-1, 1).reshape(B * C, S, self._plan.nodes)[..., self._node]
        finite = x.isfinite().all(-1, keepdim=True) & self._sound[:, None, None]
        x = torch.where(finite, x, 0)
        parts = rest = limit = None
        if wanted:  # see `take_levels` of the kernel
            parts = self._parts[:, None].expand(-1, S, -1)
            to, inside = parts.clamp_min(0), parts >= 0
            leak = self._leak[:, None].expand(-1, S, -1)

            def total(y: Tensor) -> Tensor:
                return torch.zeros_like(y).scatter_add(2, to, torch.where(inside, y, 0))

            ground, rest = total(leak), x if x.is_complex() else widened(x)
            ground = torch.where(ground != 0, ground, 1)
            for _ in range(2):  # what the first leaves is rounding of sources, not of itself
                levels = torch.where(inside, (total(rest) / ground).gather(2, to), 0)
                rest = rest - leak * levels
            size = total(rest.abs())
            last = parts == torch.arange(self._plan.nodes, device=x.device)
            limit = torch.where(last, 4 * torch.finfo(x.dtype).eps * size / ground, 0)

        def field(rows: Tensor, shape: Sequence[int] = grid) -> Tensor:
            return rows.reshape(B, C, S, *shape).movedim(1, -1)

        # Potentials have a solve of their own, so that they do not depend on `wanted`.
        u = self._down(x * self._roots() if sample else self._up(x))
        scale = (self._scale.sqrt() if sample else self._scale)[:, None, None]
        u = torch.where(finite, u * scale, math.nan)
        v = field(torch.empty_like(u).index_copy(2, self._node, u))
        if parts is None or rest is None or limit is None:
            return v, []
        x = self._up(rest)
        x = torch.where(x.abs() <= limit, 0, x)  # see `without_rounding` of the kernel
        size = _part_sizes(self._down(x).detach(), parts)
        x = x / size  # see `solve_some` of the kernel
        drops = x.new_zeros(len(x), S, self._g.shape[1])
        level: dict[int, Tensor] = {}
        relative: dict[int, Tensor] = {}  # see `sweep_down_drops` of the kernel
        for index in reversed(range(len(self._batches))):
            batch = self._batches[index]
            upper, beyond = self._upper(index)
            pivots, beyond_pivots = batch.nodes.split([batch.pivots, batch.width], 1)
            here = _take(x, pivots)
            reference = level.pop(index) if batch.width else here[:, :, -1:]
            here = here - self._grounded[index][..., None] * reference
            beside = relative.pop(index, _take(x, beyond_pivots))
            here = torch.linalg.solve_triangular(
                upper, here + beyond @ beside, upper=True, unitriangular=True
            )
            front = torch.cat([here, beside], 2).flatten(1, 2)
            f = batch.pivots + batch.width
            row, column = batch.edges_to[: len(batch.edges)] // f, batch.edges_to % f
            column = row // f * f + column[: len(row)]
            drop = (front[:, row] - front[:, column]).movedim(2, 1)
            drops = drops.index_copy(2, batch.edges, drop)
            for other, regions, place in batch.halves:
                if not place.shape[1]:  # another part
                    continue
                block = front[:, place.flatten()].unflatten(1, place.shape)
                change = block[:, :, :1]
                if other not in relative:
                    count = self._batches[other].count
                    relative[other] = block.new_zeros(len(x), count, *block.shape[2:])
                    level[other] = relative[other][:, :, :1]
                relative[other] = relative[other].index_copy(1, regions, block - change)
                lifted = reference[:, place[:, 0] // f] + change
                level[other] = level[other].index_copy(1, regions, lifted)
        size = field(torch.empty_like(size).index_copy(2, self._node, size) * scale)
        entries, found = self._plan.edge_grid, []
        fields = drops.split(math.prod(entries), 2)
        layout = self._plan.layout
        ends = layout.starts(size), layout.drops(v), layout.sums_of_ends(v.detach().abs())
        for axis, (start, plain, both) in enumerate(zip(*ends, strict=True)):
            solved = field(fields[axis], entries) * start
            # See `judge_drops` of the kernel.
            most = CONSTANTS["DIRECT_OFF"] * torch.finfo(v.dtype).eps * both
            right = (solved - plain).detach().abs() <= most
            drop = torch.where(right, solved, plain)
            found.append(
                torch.where(field(finite.expand_as(fields[axis]), entries), drop, math.nan)
            )
        return v, found

    @cached_property
    def _parts(self) -> Tensor:
        """(M, nodes) by position: which connected part a node belongs to, named by the position of
        the part's last node; -1 for a node that is no part of the network."""
        plan, M = self._plan, len(self._g)
        shape = (M, len(plan.grid), *plan.edge_grid, 1)
        edges = self._g.detach().reshape(shape).unbind(1)
        part = plan.layout.connected_parts(edges)[..., 0]
        position = torch.from_numpy(plan.position).to(part.device).expand(M, -1)
        last = torch.zeros_like(part).scatter_reduce(1, part, position, "amax").gather(1, part)
        return torch.where(self._inverse().detach() != 0, last[:, self._node], -1)

    def solve(
        self, source: Tensor, *, drops: bool = False, network: Sequence[Tensor] = ()
    ) -> Solution:
        """The solution for sources (B, S, \\*grid, C); with the residual where leak and
        conductances are given once more."""
        v, found = self._potentials(source, False, drops)
        if not network:
            return Solution(v, found, None)
        leak, *g = (x.detach() for x in network)
        residual = [
            relative_residual(v[:, i].detach(), source[:, i].detach(), g, leak, self._plan.layout)
            for i in range(source.shape[1])
        ]
        nothing = source.new_empty(source.shape[0], 0, source.shape[-1])
        return Solution(v, found, torch.stack(residual, 1) if residual else nothing)

    def sample(self, noise: Tensor) -> Tensor:
        """Fields for white noise (B, S, \\*grid, C)."""
        return self._potentials(noise, True)[0]

    def logdet(self) -> Tensor:
        """(B, C), float64 or complex128; nodes that are not part of a network left out."""
        inverse = torch.cat([x.flatten(1) for x in self._inverses], 1)
        inverse = widened(inverse)
        some = inverse != 0
        value = torch.where(some, inverse, 1).log().sum(1).neg()
        for network, pivoted in self._pivoted.items():
            at = torch.tensor([network], device=value.device)
            value = value.index_copy(0, at, pivoted.logdet[None].to(value.dtype))
        value = value - some.sum(1) * widened(self._scale).log()
        value = torch.where(self._without_ground().any(1), -math.inf, value)
        value = torch.where(self._sound, value, math.nan)
        return value.reshape(self._shape[0], self._shape[-1])

    @property
    def cancelled(self) -> Tensor:
        """(B, C): whether complex pivots have lost digits."""
        return self._cancelled.reshape(self._shape[0], self._shape[-1])

    @cached_property
    def _pivoted(self) -> dict[int, Pivoted]:
        """Networks whose pivots have lost digits, eliminated once more with pivoting."""
        found = {}
        for network in self._cancelled.nonzero()[:, 0].tolist():
            pivoted = Pivoted(self._plan, self._g[network], self._leak[network])
            if not pivoted.sound:
                where = divmod(network, self._shape[-1])
                raise RuntimeError(
                    f"factorize: expected a network with an inverse, got network {where} (batch, "
                    "channel) of which the whole or a part is at a resonance (estimated error of "
                    f"its determinant: {pivoted.loss:.1e}). To eliminate it: loss, or another "
                    "frequency"
                )
            found[network] = pivoted
        return found

    def inverse_entries(self) -> tuple[Tensor, list[Tensor]]:
        """Entries of the inverse, (B, \\*grid, C): its diagonal, and for each axis those of the
        nodes that an edge joins, 0 where there is no edge."""
        M = len(self._scale)
        known: dict[int, Tensor] = {}
        diagonal = self._g.new_zeros(M, self._plan.nodes)
        entry = self._g.new_zeros(self._g.shape)
        scale = torch.where(self._sound, self._scale, math.nan)[:, None]
        for index in reversed(range(len(self._batches))):
            batch = self._batches[index]
            n, f = batch.pivots, batch.pivots + batch.width
            upper, beyond = self._upper(index)
            one = torch.eye(n, dtype=upper.dtype, device=upper.device).expand_as(upper)
            back = torch.linalg.solve_triangular(upper, one, upper=True, unitriangular=True)
            to = back @ beyond
            bb = known.pop(index, upper.new_zeros(M, batch.count, 0, 0))
            sb = to @ bb
            ss = (back * self._inverses[index][..., None, :]) @ back.mT + sb @ to.mT
            z = torch.cat([torch.cat([ss, sb], -1), torch.cat([sb.mT, bb], -1)], -2)
            diagonal = diagonal.index_copy(
                1, batch.nodes[:, :n].flatten(), ss.diagonal(dim1=-2, dim2=-1).flatten(1)
            )
            z = z.flatten(1)
            entry = entry.index_copy(1, batch.edges, z[:, batch.edges_to[: len(batch.edges)]])
            for other, regions, place in batch.halves:
                index_of = place[:, :, None] * f + (place % f)[:, None, :]
                width = place.shape[1]
                block = z[:, index_of.flatten()].reshape(M, len(regions), width, width)
                whole = known.get(other)
                if whole is None:
                    whole = z.new_zeros(M, self._batches[other].count, width, width)
                known[other] = whole.index_copy(1, regions, block)
        for network, pivoted in self._pivoted.items():
            at = torch.tensor([network], device=diagonal.device)
            own, beside = pivoted.inverse_entries()
            diagonal = diagonal.index_copy(0, at, own[None])
            entry = entry.index_copy(0, at, beside[None])
        diagonal = torch.empty_like(diagonal).index_copy(1, self._node, diagonal) * scale
        entry = entry * scale
        B, *grid, C = self._shape

        def field(rows: Tensor, shape: Sequence[int]) -> Tensor:
            return rows.reshape(B, C, *shape).movedim(1, -1)

        entries = self._plan.edge_grid
        fields = entry.split(math.prod(entries), 1)
        return field(diagonal, grid), [field(x, entries) for x in fields]

    def _inverse(self) -> Tensor:
        """The inverses of the pivots, (M, nodes) by position."""
        inverse = self._g.new_empty(len(self._g), self._plan.nodes)
        for batch, values in zip(self._batches, self._inverses, strict=True):
            at = batch.nodes[:, : batch.pivots].flatten()
            inverse = inverse.index_copy(1, at, values.flatten(1))
        return inverse

    def _without_ground(self) -> Tensor:
        """Which nodes, (M, nodes) by position, have a pivot of zero though edges lead to them: each
        is the last one of a part without leak."""
        plan, device = self._plan, self._g.device
        inverse = self._inverse().detach()
        g = self._g.detach()[:, torch.from_numpy(plan.edge).to(device)].abs()
        degree = torch.zeros_like(inverse, dtype=g.dtype)
        for end in torch.from_numpy(plan.ends).to(device):
            degree = degree.index_add(1, end, g)
        return (inverse == 0) & (degree > 0) & self._sound[:, None]
