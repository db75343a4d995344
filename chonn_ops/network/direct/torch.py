"""The backend "torch" of the direct method: batched dense fronts, on any device.

Star-mesh elimination: let a node have conductances g_q to its neighbours, a leak l, which is its
conductance to ground, and let ``t = l + sum g``. Eliminating the node adds a conductance
``g_q g_r / t`` between every two of its neighbours, ground among them. Shares ``g_q / t`` and
entries of the inverse are sums and products, too, so that real networks lose no digit at any
contrast. Regions of one height and size are one batch. No tensor is changed in place, so every
result has derivatives of any order by PyTorch's own rules.

Complex numbers may cancel in a pivot t without the network being singular. A leak larger by d
raises such a pivot, so that the network eliminated is A' = A + E D E^T, with a column of E for each
raised node. With Y = A'^-1 E and K = D^-1 - E^T Y, A has

    A^-1 = A'^-1 + Y K^-1 Y^T,    det A = det A' det D det K,

and solves are refined: v += A^-1 r for the residual r = s - A v. All this is in complex128.

References: D. J. Rosen, "A new network theorem", J. IEE 62 (1924) 916: the star-mesh transform;
W. K. Grassmann, M. I. Taksar, D. P. Heyman, Oper. Res. 33 (1985) 1107: its accuracy; M. A.
Woodbury, "Inverting modified matrices", Princeton University (1950).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chonn_ops._dtypes import widened
from chonn_ops._library import CONSTANTS
from chonn_ops.network.direct.plan import Array, Plan
from chonn_ops.network.direct.solution import Solution
from chonn_ops.network.layout import is_tied, kept, relative_residual, residual_of

# A complex pivot is a sum. Where it is below this share of the sum of its terms' magnitudes, that
# sum takes its place. With 1e-2, errors of inverses were 17 times larger (lattices of integers,
# waves).
_CANCELLED = 3e-2
# An estimated relative error of the determinant, or an error of the inverse, above which a network
# counts as at a resonance.
_LOST = 1e-3


@dataclass(frozen=True, eq=False)
class _Batch:
    """Regions of one height, number of pivots and width; index tensors for all of them. A front's
    nodes are pivots, boundary and ground."""

    pivots: Tensor  # (regions, pivots): their positions
    others: Tensor  # (regions, width): positions of the boundary
    edges: Tensor  # entries of the conductances
    to: Tensor  # where in the fronts: edges above the diagonals, below them, and leaks
    halves: list[tuple[int, Tensor, Tensor]]  # batch, its regions, (regions, width + 1): their rows

    @property
    def size(self) -> int:
        """Nodes of a front, ground among them."""
        return self.pivots.shape[1] + self.others.shape[1] + 1


@dataclass(frozen=True, eq=False)
class _Batches:
    """A plan's batches in the order of elimination, and the tensors that results are made with."""

    each: list[_Batch]
    node: Tensor
    position: Tensor
    edge: Tensor
    ends: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        tensors = [self.node, self.position, self.edge, self.ends]
        for batch in self.each:
            tensors += [batch.pivots, batch.others, batch.edges, batch.to]
            tensors += [x for _, *pair in batch.halves for x in pair]
        return sum(x.nbytes for x in tensors)


@kept
def _batches_of(plan: Plan, device: torch.device) -> _Batches:
    """Put regions that can be eliminated side by side into batches."""
    keys = np.column_stack([plan.height, plan.pivots, plan.width])
    kinds, batch_of = np.unique(keys, axis=0, return_inverse=True)
    batch_of = batch_of.ravel()
    members = [np.flatnonzero(batch_of == batch) for batch in range(len(kinds))]
    within = np.empty(plan.regions, np.int64)
    for rows in members:
        within[rows] = np.arange(len(rows))
    size = plan.pivots + plan.width + 1  # of a front

    def tensor(array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(device)

    def boundary_of(rows: Array, values: Array) -> Array:
        return values[plan.boundary_at[rows][:, None] + np.arange(int(plan.width[rows[0]]))]

    owner = np.repeat(np.arange(plan.regions), np.diff(plan.edge_at))
    batches = []
    for batch, rows in enumerate(members):
        f, n = int(size[rows[0]]), int(plan.pivots[rows[0]])
        mine = batch_of[owner] == batch
        at = within[owner[mine]] * f
        upper = (at + plan.row[mine]) * f + plan.column[mine]
        lower = (at + plan.column[mine]) * f + plan.row[mine]
        leaks = (np.arange(len(rows))[:, None] * f + np.arange(n)) * f + f - 1
        kids = plan.kids[rows]
        kids = kids[kids >= 0]
        halves = []
        for other in np.unique(batch_of[kids]):
            these = kids[batch_of[kids] == other]
            place = np.pad(boundary_of(these, plan.place), ((0, 0), (0, 1)), constant_values=f - 1)
            place = within[plan.parent[these]][:, None] * f + place
            halves.append((int(other), tensor(within[these]), tensor(place)))
        pivots = tensor(plan.first[rows][:, None] + np.arange(n))
        others = tensor(boundary_of(rows, plan.boundary))
        to = tensor(np.concatenate([upper, lower, leaks.ravel()]))
        batches.append(_Batch(pivots, others, tensor(plan.edge[mine]), to, halves))
    arrays = (plan.node, plan.position, plan.edge, plan.ends)
    return _Batches(batches, *(tensor(x) for x in arrays))


def _eliminate(front: Tensor, pivots: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Eliminate the first pivots of fronts (M, regions, f, f), whose last node is ground.

    Returns the shares (..., pivots, f), the inverse pivots (..., pivots), 0 of nodes that are no
    part of the network, what complex leaks were raised by, and the rest of the fronts.
    """
    info = torch.finfo(front.dtype)
    shares, inverses, raised = [], [], []
    for k in range(pivots):
        edges = front[..., 0, 1:]
        total = edges.sum(-1)
        size, more = total.detach(), torch.zeros_like(total)
        if front.is_complex():
            size = edges.detach().abs().sum(-1)
            small = (total.abs() < _CANCELLED * size) & (size >= info.tiny)
            more = torch.where(small, size - total, 0)
            edges = torch.cat([edges[..., :-1], edges[..., -1:] + more[..., None]], -1)
            total = torch.where(small, size, total)
        some = size >= info.tiny
        total = torch.where(some, total, 1)
        # Division, because the share of a node that has a leak alone is 1 without rounding.
        share = torch.where(some[..., None], edges / total[..., None], 0)
        front = front[..., 1:, 1:] + share[..., :, None] * edges[..., None, :]
        shares.append(pad(share, (k + 1, 0)))
        inverses.append(torch.where(some, 1 / total, 0))
        raised.append(more)
    if not shares:
        nothing = front[..., :0, :]
        return nothing, nothing[..., 0], nothing[..., 0], front
    return torch.stack(shares, -2), torch.stack(inverses, -1), torch.stack(raised, -1), front


def _take(x: Tensor, at: Tensor) -> Tensor:
    """Gather the nodes of regions, (M, regions, nodes, S), from rows (M, S, nodes)."""
    return x[:, :, at].permute(0, 2, 3, 1)


def _flat(value: Tensor) -> Tensor:
    """Reshape values (M, regions, nodes, S) to rows (M, S, regions * nodes)."""
    return value.permute(0, 3, 1, 2).flatten(2)


def _power_of_two(size: Tensor, least: int) -> Tensor:
    """Powers of two near sizes, normal numbers whose inverses are normal, too; 2^least for 0."""
    limit = math.frexp(torch.finfo(size.dtype).max)[1] - 2
    exponent = torch.where(size == 0, least, torch.frexp(size).exponent).clamp(-limit, limit)
    return torch.ldexp(torch.ones_like(size), exponent)


class Factors:
    """Networks eliminated by batched dense fronts, like the compiled `Factors`: on any device.

    Complex networks are eliminated in complex128. Their solves need `network` and are refined until
    the relative residual is at most `tol`, or as far as rounding allows.
    """

    def __init__(
        self,
        plan: Plan,
        conductance: Sequence[Tensor],
        leak: Tensor,
        source: Tensor | None = None,
        *,
        drops: bool = False,
        tol: float = 0.0,
    ) -> None:
        self._prepare(plan, leak, tol)
        as_given = leak, *conductance
        if leak.is_complex():
            conductance, leak = [widened(x) for x in conductance], widened(leak)
        g = torch.cat([self._rows(field) for field in conductance], 1)  # (M, axes * entries)
        leak = self._rows(leak)
        # Entries that are no edges may be anything; networks with NaN or infinity are left out.
        used = torch.zeros(g.shape[1], dtype=torch.bool, device=g.device)
        g = torch.where(used.index_fill(0, self._batches.edge, True), g, 0)
        with torch.no_grad():
            parts = (torch.view_as_real(x).flatten(1) if x.is_complex() else x for x in (g, leak))
            largest = torch.stack([x.abs().amax(1) for x in parts]).amax(0)
            self._sound = largest.isfinite()
            self._scale = 1 / _power_of_two(torch.where(self._sound, largest, 1), 0)
        scaled = (torch.where(self._sound[:, None], x * self._scale[:, None], 0) for x in (g, leak))
        g, leak = scaled
        self._g, self._leak = g, leak[:, self._batches.node]
        self._shares: list[Tensor] = []
        self._inverses: list[Tensor] = []
        rests: list[Tensor] = []
        self._raised = torch.zeros_like(self._leak)
        for batch in self._batches.each:
            (count, n), pivots = batch.pivots.shape, batch.pivots.flatten()
            f = batch.size
            values = torch.cat([g[:, batch.edges], g[:, batch.edges], self._leak[:, pivots]], 1)
            front = g.new_zeros(len(g), count * f * f).index_add(1, batch.to, values)
            for other, regions, place in batch.halves:
                to = (place[:, :, None] * f + (place % f)[:, None, :]).flatten()
                front = front.index_add(1, to, rests[other][:, regions].flatten(1))
            shares, inverse, raised, rest = _eliminate(front.reshape(-1, count, f, f), n)
            self._shares.append(shares)
            self._inverses.append(inverse)
            self._raised = self._raised.index_copy(1, pivots, raised.flatten(1))
            rests.append(rest)
        self.solution: Solution | None = None
        if source is not None:
            self.solution = self.solve(source, drops=drops, network=as_given)

    def _prepare(self, plan: Plan, leak: Tensor, tol: float) -> None:
        self._plan, self._shape, self._tol = plan, leak.shape, tol
        self._batches = _batches_of(plan, leak.device)

    def state(self) -> list[Tensor]:
        """The elimination as tensors."""
        numbers = (self._g, self._leak, self._scale, self._sound, self._raised)
        return [*numbers, *self._shares, *self._inverses]

    @classmethod
    def restored(
        cls, plan: Plan, state: Sequence[Tensor], leak: Tensor, *, tol: float = 0.0
    ) -> Factors:
        """The factors with this `state`."""
        self = cls.__new__(cls)
        self._prepare(plan, leak, tol)
        self._g, self._leak, self._scale, self._sound, self._raised, *fronts = state
        n, self.solution = len(fronts) // 2, None
        self._shares, self._inverses = fronts[:n], fronts[n:]
        return self

    def _rows(self, field: Tensor) -> Tensor:
        """Reshape a field (B, \\*grid, C) to rows (M, nodes), conductances likewise."""
        return field.movedim(-1, 1).flatten(0, 1).flatten(1)

    def _field(self, rows: Tensor, shape: Sequence[int]) -> Tensor:
        """Reshape rows (M, ..., entries) to a field (B, ..., \\*shape, C)."""
        B, C = self._shape[0], self._shape[-1]
        return rows.reshape(B, C, *rows.shape[1:-1], *shape).movedim(1, -1)

    def _by_node(self, rows: Tensor) -> Tensor:
        """The field of rows (M, ..., nodes) by position."""
        return self._field(rows[..., self._batches.position], self._plan.layout.shape)

    def _by_axis(self, rows: Tensor) -> list[Tensor]:
        """The fields of rows (M, ..., axes * entries)."""
        shape = self._plan.layout.edge_shape
        return [self._field(x, shape) for x in rows.split(math.prod(shape), -1)]

    # ---- Solves. Sources and potentials are rows (M, S, nodes) by position. ----

    def _upper(self, index: int) -> tuple[Tensor, Tensor]:
        """The rows of U at a batch's pivots: the columns of pivots, and minus those of the
        boundary."""
        shares = self._shares[index]
        n = shares.shape[-2]
        unit = torch.eye(n, dtype=shares.dtype, device=shares.device)
        return unit - shares[..., :n], shares[..., n:-1]

    def _up(self, x: Tensor) -> Tensor:
        """D^-1 U^-T x: forward substitution.

        Where sources cancel, what is left of them may be smaller than the rounding of shares. So
        each real pivot hands on what it received over the sum of its shares, which is 1 but for
        their rounding, in float64: no current is lost, and the shares are those of a network that
        differs by rounding of its conductances.
        """
        x = widened(x)
        for index, batch in enumerate(self._batches.each):
            upper, beyond = (y.to(x.dtype) for y in self._upper(index))
            if not x.is_complex():
                shares, inverse = self._shares[index].detach(), self._inverses[index]
                whole = torch.where(inverse == 0, 1, shares.sum(-1, dtype=x.dtype))
                upper = upper + torch.diag_embed(whole - 1)
            handed = torch.linalg.solve_triangular(upper.mT, _take(x, batch.pivots), upper=False)
            kept_there = handed * self._inverses[index][..., None]
            x = x.index_copy(2, batch.pivots.flatten(), _flat(kept_there))
            x = x.index_add(2, batch.others.flatten(), _flat(beyond.mT @ handed))
        return x.to(self._g.dtype)

    def _down(self, x: Tensor) -> Tensor:
        """U^-1 x: back substitution."""
        for index, batch in reversed(list(enumerate(self._batches.each))):
            upper, beyond = self._upper(index)
            y = _take(x, batch.pivots) + beyond @ _take(x, batch.others)
            solved = torch.linalg.solve_triangular(upper, y, upper=True, unitriangular=True)
            x = x.index_copy(2, batch.pivots.flatten(), _flat(solved))
        return x

    def _sources(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Sources (B, S, \\*grid, C) as rows, 0 where they or the network are not finite, and
        (M, S, 1) whether they are."""
        x = source.movedim(-1, 1).flatten(0, 1).flatten(2)[..., self._batches.node]
        finite = x.isfinite().all(-1, keepdim=True) & self._sound[:, None, None]
        return torch.where(finite, x, 0), finite

    def _potentials(self, x: Tensor, finite: Tensor, scale: Tensor) -> Tensor:
        """Potentials (B, S, \\*grid, C) of D^-1 U^-T times sources."""
        u = self._down(x)
        if (raised := self._correction) is not None:
            at, columns, small, _ = raised
            part = u.gather(2, at[:, None].expand(-1, u.shape[1], -1))
            u = u + torch.linalg.solve_ex(small, part.mT).result.mT @ columns
        return self._by_node(torch.where(finite, u * scale[:, None, None], math.nan))

    def solve(
        self, source: Tensor, *, drops: bool = False, network: Sequence[Tensor] = ()
    ) -> Solution:
        """The solution for sources (B, S, \\*grid, C); with the residual where leak and
        conductances are given once more, which complex networks need."""
        if source.is_complex():
            return self._refined(source, drops, network)
        x, finite = self._sources(source)
        v = self._potentials(self._up(x), finite, self._scale)
        over_v = self._drops(x, finite, v) if drops else []
        if not network:
            return Solution(v, over_v, None)
        leak, *g = (x.detach() for x in network)
        pairs = zip(v.detach().unbind(1), source.detach().unbind(1), strict=True)
        residual = [relative_residual(*pair, g, leak, self._plan.layout) for pair in pairs]
        nothing = source.new_empty(source.shape[0], 0, source.shape[-1])
        return Solution(v, over_v, torch.stack(residual, 1) if residual else nothing)

    def _refined(self, source: Tensor, drops: bool, network: Sequence[Tensor]) -> Solution:
        """The solution of complex networks."""
        leak, *g = (widened(x) for x in network)
        layout, each = self._plan.layout, (..., *[None] * (leak.dim() - 2), slice(None))
        s = widened(source)
        s = torch.where(is_tied(g, leak, layout)[:, None], s, 0 * s)

        def norm(field: Tensor) -> Tensor:  # (B, S, C)
            return torch.linalg.vector_norm(field.flatten(2, -2), dim=2)

        size = norm(s)
        v, leftover, residual = torch.zeros_like(s), s, torch.full_like(size, math.inf)
        for _ in range(1 + CONSTANTS["DIRECT_REFINEMENTS"]):
            x, finite = self._sources(leftover)
            ahead = v + self._potentials(self._up(x), finite, self._scale)
            rest = residual_of(ahead, s, g, leak, layout)
            now = norm(rest) / torch.where(size > 0, size, 1)
            better, going = now < residual, now < residual / 4
            v, leftover = (
                torch.where(better[each], a, b) for a, b in ((ahead, v), (rest, leftover))
            )
            residual = torch.where(better, now, residual)
            if not bool((going & (residual > self._tol)).any()):
                break
        sound = self._sound.reshape(self._shape[0], 1, self._shape[-1]) & size.isfinite()
        v = torch.where(sound[each], v, math.nan)
        over_v = [x.to(source.dtype) for x in layout.drops(v)] if drops else []
        return Solution(v.to(source.dtype), over_v, torch.where(sound, residual, math.nan))

    def sample(self, noise: Tensor) -> Tensor:
        """U^-1 D^(-1/2) noise of white noise (B, S, \\*grid, C), for real networks."""
        x, finite = self._sources(noise)
        inverse = self._inverse()
        roots = torch.where(inverse > 0, torch.where(inverse > 0, inverse, 1).sqrt(), 0)
        return self._potentials(x * roots[:, None], finite, self._scale.sqrt())

    @cached_property
    def _parts(self) -> Tensor:
        """(M, nodes) by position: which connected part a node belongs to, named by the position of
        the part's last node; -1 for a node that is no part of the network."""
        plan, M, position = self._plan, len(self._g), self._batches.position
        shape = (M, len(plan.layout.shape), *plan.layout.edge_shape, 1)
        edges = self._g.detach().reshape(shape).unbind(1)
        part = plan.layout.connected_parts(edges).flatten(1)
        last = torch.zeros_like(part).scatter_reduce(1, part, position.expand(M, -1), "amax")
        last = last.gather(1, part)[:, self._batches.node]
        return torch.where(self._inverse().detach() != 0, last, -1)

    def _drops(self, x: Tensor, finite: Tensor, v: Tensor) -> list[Tensor]:
        """Differences of the real potentials v along each axis, with digits of their own.

        The sources x less what leaks take at the mean potential of each part make potentials that
        small leaks do not lift, relative to one node of each region's boundary; see `take_levels`
        and `sweep_down_drops` of the kernel.
        """
        parts = self._parts[:, None].expand(x.shape)
        to, inside, leak = parts.clamp_min(0), parts >= 0, self._leak[:, None].expand(x.shape)

        def total(y: Tensor) -> Tensor:
            return torch.zeros_like(y).scatter_add(2, to, torch.where(inside, y, 0))

        ground, rest = total(leak), widened(x)
        ground = torch.where(ground != 0, ground, 1)
        for _ in range(2):  # what the first leaves is rounding of sources, not of itself
            rest = rest - leak * torch.where(inside, (total(rest) / ground).gather(2, to), 0)
        last = parts == torch.arange(x.shape[2], device=x.device)
        rounding = 4 * torch.finfo(x.dtype).eps * total(rest.abs()) / ground
        x = self._up(rest)  # the next line: see `without_rounding` of the kernel
        x = torch.where(x.abs() <= torch.where(last, rounding, 0), 0, x)
        # References may be nodes of other parts, so the largest potential of each becomes about 1.
        most = torch.where(inside, self._down(x).detach().abs(), 0).nan_to_num(0, 0)
        most = torch.zeros_like(x).scatter_reduce(2, to, most, "amax").gather(2, to)
        size = torch.where(inside, _power_of_two(most, -(2**20)), 1)
        drops = self._relative_drops(x / size)
        limit = CONSTANTS["DIRECT_OFF"] * torch.finfo(v.dtype).eps
        size, judged = self._by_node(size * self._scale[:, None, None]), []
        layout, both = self._plan.layout, v.detach().abs()
        axes = layout.starts(size), layout.drops(v), layout.sums_at_edges(both)
        for solved, start, plain, both in zip(self._by_axis(drops), *axes, strict=True):
            solved = solved * start
            right = (solved - plain).detach().abs() <= limit * both  # see `judge_drops`
            drop = torch.where(right, solved, plain)
            judged.append(torch.where(self._field(finite, (1,) * (v.dim() - 3)), drop, math.nan))
        return judged

    def _relative_drops(self, x: Tensor) -> Tensor:
        """Drops (M, S, axes * entries) of the potentials U^-1 x, found relative to one node of each
        region's boundary."""
        drops = x.new_zeros(*x.shape[:2], self._g.shape[1])
        level: dict[int, Tensor] = {}
        relative: dict[int, Tensor] = {}
        for index, batch in reversed(list(enumerate(self._batches.each))):
            upper, beyond = self._upper(index)
            here = _take(x, batch.pivots)
            reference = level.pop(index) if batch.others.shape[1] else here[:, :, -1:]
            here = here - self._shares[index][..., -1:] * reference
            beside = relative.pop(index, _take(x, batch.others))
            here = torch.linalg.solve_triangular(
                upper, here + beyond @ beside, upper=True, unitriangular=True
            )
            # Ground has no entry of edges, and a row so that places are those of fronts.
            front = pad(torch.cat([here, beside], 2), (0, 0, 0, 1)).flatten(1, 2)
            f = batch.size
            row, column = batch.to[: len(batch.edges)] // f, batch.to[: len(batch.edges)] % f
            drop = front[:, row] - front[:, row // f * f + column]
            drops = drops.index_copy(2, batch.edges, drop.movedim(2, 1))
            for other, regions, place in batch.halves:
                if place.shape[1] == 1:  # another part
                    continue
                block = front[:, place[:, :-1].flatten()].unflatten(1, place[:, :-1].shape)
                change = block[:, :, :1]
                if other not in relative:
                    count = len(self._batches.each[other].pivots)
                    relative[other] = block.new_zeros(len(x), count, *block.shape[2:])
                    level[other] = relative[other][:, :, :1]
                relative[other] = relative[other].index_copy(1, regions, block - change)
                lifted = reference[:, place[:, 0] // f] + change
                level[other] = level[other].index_copy(1, regions, lifted)
        return drops

    # ---- Determinants and inverses. ----

    def _inverse(self) -> Tensor:
        """The inverses of the pivots, (M, nodes) by position."""
        every = torch.cat([x.flatten(1) for x in self._inverses], 1)
        pivots = [x.pivots.flatten() for x in self._batches.each]
        return torch.empty_like(every).index_copy(1, torch.cat(pivots), every)

    @cached_property
    def _correction(self) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Positions (M, r) of raised nodes, r in the network with most of them, Y^T (M, r, nodes),
        K (M, r, r) and the sizes of what its entries are sums of. Networks with fewer have columns
        of 0, and K is 1 there. None where no node is raised."""
        raised = self._raised != 0
        count = int(raised.sum(1).max()) if self._raised.is_complex() and len(raised) else 0
        if not count:
            return None
        at = raised.int().argsort(1, descending=True)[:, :count]
        inside = raised.gather(1, at)
        unit = torch.zeros(*at.shape, raised.shape[1], dtype=self._g.dtype, device=at.device)
        unit = unit.scatter(2, at[..., None], inside[..., None].to(unit.dtype))
        columns = self._down(self._up(unit))
        coupled = columns.gather(2, at[:, None].expand(-1, count, -1)) * inside[:, None]
        each = torch.diag_embed(1 / torch.where(inside, self._raised.gather(1, at), 1))
        return at, columns, each - coupled, (each.abs() + coupled.abs()).detach()

    def _sums(self, values: Tensor) -> Tensor:
        """Sums of values (M, edges) of the plan's edges at nodes, (M, nodes) by position."""
        start, end = self._batches.ends
        nothing = values.new_zeros(len(values), self._plan.nodes)
        return nothing.index_add(1, start, values).index_add(1, end, values)

    def _require(self, error: Tensor) -> None:
        """Refuse networks whose determinant or inverse has an error (M,) above `_LOST`."""
        wrong = ~(error <= _LOST) & self._sound
        if bool(wrong.any()):
            network = int(wrong.nonzero()[0])
            where = divmod(network, self._shape[-1])
            raise RuntimeError(
                f"factorize: expected a network with an inverse, got network {where} (batch, "
                "channel) of which the whole or a part is at a resonance (estimated error of its "
                f"determinant or inverse: {float(error[network]):.1e}). To eliminate it: loss, or "
                "another frequency"
            )

    def logdet(self) -> Tensor:
        """(B, C), float64 or complex128; nodes that are not part of a network left out."""
        pivots = widened(self._inverse())
        some = pivots != 0
        value = torch.where(some, pivots, 1).log().sum(1).neg()
        if (raised := self._correction) is not None:
            _, _, small, size = raised
            inverse = torch.linalg.inv_ex(small.detach()).inverse
            self._require((inverse.abs() * size.mT).sum((1, 2)) * torch.finfo(size.dtype).eps)
            sign, log = torch.linalg.slogdet(small)
            more = torch.where(self._raised != 0, self._raised, 1)
            value = value + more.log().sum(1) + log + sign.log()
        value = value - some.sum(1) * widened(self._scale).log()
        # A pivot of 0 though edges lead there is the last one of a part without leak.
        degree = self._sums(self._g.detach()[:, self._batches.edge].abs())
        value = torch.where(((degree > 0) & ~some).any(1), -math.inf, value)
        value = torch.where(self._sound, value, math.nan)
        return value.reshape(self._shape[0], self._shape[-1])

    def inverse_entries(self) -> tuple[Tensor, list[Tensor]]:
        """Entries of the inverse, (B, \\*grid, C): its diagonal, and for each axis those of the
        nodes that an edge joins, 0 where there is no edge."""
        known: dict[int, Tensor] = {}
        diagonal, entries = torch.zeros_like(self._leak), torch.zeros_like(self._g)
        for index, batch in reversed(list(enumerate(self._batches.each))):
            f = batch.size
            upper, beyond = self._upper(index)
            unit = torch.eye(upper.shape[-1], dtype=upper.dtype, device=upper.device)
            back = torch.linalg.solve_triangular(
                upper, unit.expand_as(upper), upper=True, unitriangular=True
            )
            to = back @ beyond
            bb = known.pop(index, beyond[..., :0, :])
            sb = to @ bb
            ss = (back * self._inverses[index][..., None, :]) @ back.mT + sb @ to.mT
            z = torch.cat([torch.cat([ss, sb], -1), torch.cat([sb.mT, bb], -1)], -2)
            pivots = batch.pivots.flatten()
            diagonal = diagonal.index_copy(1, pivots, ss.diagonal(dim1=-2, dim2=-1).flatten(1))
            z = pad(z, (0, 1, 0, 1)).flatten(1)  # ground, so that places are those of fronts
            entries = entries.index_copy(1, batch.edges, z[:, batch.to[: len(batch.edges)]])
            for other, regions, place in batch.halves:
                place = place[:, :-1]
                at = place[:, :, None] * f + (place % f)[:, None, :]
                block = z[:, at.flatten()].reshape(len(z), *at.shape)
                if other not in known:
                    count = len(self._batches.each[other].pivots)
                    known[other] = z.new_zeros(len(z), count, *at.shape[1:])
                known[other] = known[other].index_copy(1, regions, block)
        edge, (start, end) = self._batches.edge, self._batches.ends
        if (raised := self._correction) is not None:
            _, columns, small, _ = raised
            weighted = torch.linalg.solve_ex(small, columns).result
            diagonal = diagonal + (weighted * columns).sum(1)
            entry = (weighted[:, :, start] * columns[:, :, end]).sum(1)
            entries = entries.index_add(1, edge, entry)
        if self._g.is_complex():  # near a resonance nothing else tells that pivots have lost digits
            with torch.no_grad():
                g, leak, entry = self._g[:, edge], self._leak, entries[:, edge]
                product = (leak + self._sums(g)) * diagonal - self._sums(g * entry)
                tied = leak.abs() + self._sums(g.abs()) > 0
                self._require(torch.where(tied, product - 1, 0).abs().amax(1))
        scale = torch.where(self._sound, self._scale, math.nan)[:, None]
        return self._by_node(diagonal * scale), self._by_axis(entries * scale)
