"""The backend "triton" of the direct method: few launches a level of the plan on a CUDA device.

`kernels` has the algorithm. This module lays the plan out in tables, chooses the sizes of blocks,
and launches. No value is read back from the device, so that a solve can be recorded as a CUDA
graph; what a check would read, parts without ground and inputs that are not finite, marks its
network's residual. Networks are real, on grids or graphs.

Under ``TRITON_INTERPRET=1`` the backend also takes CPU tensors; it is slow, and serves the tests.

These kernels have not run on a GPU; tests run them in Triton's interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from torch import Tensor

from chonn_ops._library import CONSTANTS
from chonn_ops.network.direct import torch as dense
from chonn_ops.network.direct.plan import Array, Plan, begins, make_plan
from chonn_ops.network.direct.solution import Solution
from chonn_ops.network.direct.triton import kernels
from chonn_ops.network.layout import Layout

# Triton kernels have no Python types.
_K: Any = kernels

# Boxes of at most so many nodes are not cut: the pivots of one block of the smallest size.
LEAF = 16
# Most pivots that are eliminated at once; levels of larger fronts take several panels, and fronts
# that have no rest, as the last one, as many as `_ALONE`.
_PANEL, _ALONE = 32, 64
# Columns of the rest that one program takes where it has the fewest pivots, and half as many where
# it has more. The rest that it updates from registers has at most `_FUSED`; others are updated in
# tiles.
_COLUMNS = 128
_FUSED = 64
_TILE = 64
_SWEPT = 1024  # entries of the shares that one program of `down` takes at a time
_ADDED = {"ROWS": 16, "BLOCK": 32}  # of the shares, that one program adds at a time
_BLOCK = 1024  # nodes or edges of one program where each has work of its own
# How float64 is multiplied; see the kernels.
_WIDE = "sums" if triton.__version__.startswith(("3.2.", "3.3.", "3.4.")) else "ieee"
_FRONTS = 2**16 - 1  # of one launch: what CUDA takes along the second axis of programs


def plan_of(layout: Layout) -> Plan:
    """The plan that suits the kernels."""
    return make_plan(layout, LEAF)


class _Panel(NamedTuple):
    """One panel of so many fronts of a level, from row `start` of `info` on."""

    start: int
    fronts: int
    k0: int
    width: int  # most columns of the rest
    begin: bool
    end: bool
    kids: bool
    edges: int  # of a pivot at most
    pivots: int  # rows of a block
    columns: int
    work: int  # entries of the workspaces of all fronts together


class _Tables(NamedTuple):
    """What the kernels read of a plan, on a device."""

    panels: list[_Panel]
    info: Tensor  # by level
    node: Tensor  # by position
    entry: Tensor  # by edge: where it is in the conductances
    edge_of: Tensor  # by entry of the conductances: the edge, or -1
    edge_at: Tensor  # where the edges of each pivot begin
    column: Tensor  # by edge: in the front of its pivot
    before_at: Tensor  # where in `before` those of each position begin
    before: Tensor  # edges by their later ends
    near: Tensor  # by edge: entries of the tables of fronts
    far: Tensor
    position: Tensor  # by entry of the fronts
    kid: Tensor  # (2, entries): where they are in the children's boundaries, or -1
    place: Tensor  # by boundary entry: where it is in the parent's front
    num_shares: int
    num_updates: int
    num_grounds: int


def _pad(n: int) -> int:
    """The rows or columns of a block that holds n: products take 16 at least."""
    return max(16, 1 << max(0, int(n) - 1).bit_length())


def _panels_of(plan: Plan, rows: Array, **common: Any) -> Iterator[_Panel]:
    """The panels of the fronts of these regions, all of one level."""
    pivots, width = plan.pivots[rows], plan.width[rows]
    most, work = int(pivots.max()), int(((pivots + width) ** 2).sum())
    block = _pad(most) if most <= (_PANEL if width.any() else _ALONE) else _PANEL
    most_columns = _COLUMNS if block == 16 else _COLUMNS // 2
    for k0 in range(0, max(1, most), block):  # fronts without pivots hand on what they receive
        rest = int((pivots + width - np.minimum(pivots, k0 + block)).max())
        yield _Panel(
            fronts=len(rows),
            k0=k0,
            width=rest,
            begin=k0 == 0,
            end=k0 + block >= most,
            pivots=block,
            columns=min(_pad(rest), most_columns),
            work=work,
            **common,
        )


@lru_cache(maxsize=16)
def _tables(plan: Plan, device: torch.device) -> _Tables:
    regions, pivots, width = plan.regions, plan.pivots, plan.width
    size = pivots + width
    height = plan.height
    share_at, update_at, front_at = map(begins, (pivots * size, width**2, size))
    # What the arrays over positions, boundary entries and edges belong to.
    of_pivot, of_boundary, of_edge = (
        np.repeat(np.arange(regions), x) for x in (pivots, width, np.diff(plan.edge_at))
    )
    within = np.arange(len(of_pivot)) - plan.first[of_pivot]
    beyond = np.arange(len(of_boundary)) - plan.boundary_at[of_boundary]

    position = np.zeros(front_at[-1], np.int64)
    position[front_at[of_pivot] + within] = np.arange(len(of_pivot))
    position[(front_at[:-1] + pivots)[of_boundary] + beyond] = plan.boundary
    side = np.zeros(regions, np.int64)
    side[plan.kids[:, 1][plan.kids[:, 1] >= 0]] = 1
    inner = plan.parent[of_boundary] >= 0
    kid = np.full((2, len(position)), -1)
    at = front_at[plan.parent[of_boundary][inner]] + plan.place[inner]
    kid[side[of_boundary[inner]], at] = beyond[inner]

    info = np.zeros((regions, kernels.WORDS), np.int64)
    places = (x[:-1] for x in (share_at, update_at, plan.boundary_at, front_at))
    info[:, :8] = np.stack([plan.first, pivots, size, *places, front_at[plan.parent]], 1)
    for k, child in enumerate(plan.kids.T):
        there = child >= 0
        rows = child[there]
        info[there, 8 + k], info[there, 10 + k] = update_at[rows], plan.boundary_at[rows]
        info[there, 12 + k] = width[rows]

    near, far = front_at[of_edge] + plan.row, front_at[of_edge] + plan.column
    ends = np.sort(position[np.stack([near, far])], axis=0)
    counts = np.stack([np.bincount(x, minlength=plan.nodes) for x in ends])
    edge_at, before_at = map(begins, counts)
    column = np.maximum(plan.row, plan.column)
    edge_of = np.full(len(plan.layout.shape) * math.prod(plan.layout.edge_shape), -1)
    edge_of[plan.edge] = np.arange(len(plan.edge))

    most = np.zeros(regions, np.int64)  # edges of a pivot
    np.maximum.at(most, of_pivot, counts[0])
    order = np.argsort(height, kind="stable")
    panels: list[_Panel] = []
    for start, stop in pairwise(np.flatnonzero(np.diff(height[order], prepend=-1, append=-1))):
        for begin in range(start, stop, _FRONTS):
            rows = order[begin : min(begin + _FRONTS, stop)]
            info[rows, 14] = begins(size[rows] ** 2)[:-1]
            edges = int(most[rows].max())
            panels += _panels_of(
                plan,
                rows,
                start=int(begin),
                kids=bool(height[rows[0]]),
                edges=1 << (edges - 1).bit_length() if edges else 0,
            )

    def tensor(array: Array) -> Tensor:
        if array.max(initial=0) > np.iinfo(np.int32).max:
            raise ValueError(f"factors: expected less than 2^31 entries, got {share_at[-1]}")
        return torch.from_numpy(np.ascontiguousarray(array, np.int32)).to(device)

    edges = (plan.edge, edge_of, edge_at, column, before_at, np.argsort(ends[1], kind="stable"))
    arrays = (info[order], plan.node, *edges, near, far, position, kid, plan.place)
    return _Tables(
        panels,
        *map(tensor, arrays),
        num_shares=int(share_at[-1]),
        num_updates=int(update_at[-1]),
        num_grounds=int(plan.boundary_at[-1]),
    )


def _warps_of(panel: _Panel) -> int:
    """Warps of a program of `pivots`: with fewer, the larger blocks spilled registers."""
    if panel.pivots == 16:
        return 4 if panel.columns == 64 else 2
    return panel.pivots // 8


def _launch(kernel: Any, grid: tuple[int, ...], *args: Any, warps: int, **constants: Any) -> None:
    kernel[grid](*args, **constants, num_warps=warps, enable_fp_fusion=True)


class Factors:
    """Networks eliminated by the kernels.

    Parameters
    ----------
    plan : Plan
    conductance : sequence of Tensor, shape (B, \\*grid, C)
        One an axis, all float32 or all float64, on one device like all tensors here; of a graph
        one, (B, E, C).
    leak : Tensor, shape (B, \\*grid, C)
    source, drops
        As in the compiled `Factors`, `solution` too, but for its residuals: 0, infinite in networks
        with a part without ground, and NaN in those with an input that is not finite.
    """

    def __init__(
        self,
        plan: Plan,
        conductance: Sequence[Tensor],
        leak: Tensor,
        source: Tensor | None = None,
        *,
        drops: bool = False,
    ) -> None:
        tables = self._prepare(plan, leak)
        M, nodes, edges = self._networks, plan.nodes, len(plan.edge)
        fields = [x.contiguous() for x in conductance]
        leak = leak.contiguous()
        # The bits of the largest number, and what is judged, of each network.
        self._numbers = leak.new_zeros(2, M)
        self._g, self._own = leak.new_empty(M, edges), leak.new_empty(M, nodes)
        self._shares = leak.new_empty(M, tables.num_shares)
        self._inverse, self._grounded = torch.empty_like(self._own), torch.empty_like(self._own)
        self._whole = torch.empty_like(self._own, dtype=torch.float64)
        if M:
            with torch.cuda.device_of(leak):
                self._eliminate([*fields, *fields[-1:] * 2][:3], leak)
        self.solution: Solution | None = None
        if source is not None:
            self.solution = self.solve(source, drops=drops)

    def state(self) -> list[Tensor]:
        """The elimination as tensors."""
        pivots = [self._inverse, self._grounded, self._whole]
        return [self._g, self._own, self._numbers, self._shares, *pivots]

    @classmethod
    def restored(cls, plan: Plan, state: Sequence[Tensor], leak: Tensor) -> Factors:
        """The factors with this `state`."""
        self = cls.__new__(cls)
        self._prepare(plan, leak)
        self._g, self._own, self._numbers, self._shares, *fields = state
        self._inverse, self._grounded, self._whole = fields
        self.solution = None
        return self

    def _prepare(self, plan: Plan, leak: Tensor) -> _Tables:
        self._plan, self._shape = plan, leak.shape
        self._networks = leak.shape[0] * leak.shape[-1]
        self._tables = _tables(plan, leak.device)
        return self._tables

    @property
    def _most(self) -> Tensor:
        """The bits of the largest number of each network."""
        return self._numbers[0].view(torch.int32 if self._numbers.itemsize == 4 else torch.int64)

    def _eliminate(self, fields: Sequence[Tensor], leak: Tensor) -> None:
        t, M, nodes, edges = self._tables, self._networks, self._plan.nodes, self._g.shape[1]
        most, entries = self._most, len(t.position)
        _launch(
            _K.pack,
            (M, -(-max(nodes, edges) // _BLOCK)),
            *(*fields, leak, self._g, self._own, most, t.entry, t.node),
            *(nodes, edges, math.prod(self._plan.layout.edge_shape), self._shape[-1]),
            AXES=len(self._plan.layout.shape),
            BLOCK=_BLOCK,
            warps=4,
        )
        updates = leak.new_empty(M, t.num_updates)
        grounds = leak.new_empty(M, t.num_grounds)
        work, work_leak = updates, leak.new_empty(M, entries)
        for p in t.panels:
            if p.begin and not p.end:
                work = leak.new_empty(M, p.work)
            fused = p.begin and p.end and p.width <= min(p.columns, _FUSED)
            # The compiler of Triton 3.2 fails on other products of the smallest blocks.
            precision = "tf32x3" if p.kids else "ieee"
            if leak.dtype == torch.float64:
                precision = _WIDE
            block = {"KIDS": p.kids, "P": p.pivots, "BEGIN": p.begin, "END": p.end}
            offsets = (p.start, p.k0, nodes, edges, t.num_shares, t.num_updates)
            whole = p.width <= p.columns
            _launch(
                _K.pivots,
                (M, p.fronts),
                *(self._g, self._own, most, self._numbers[1], self._shares, self._inverse),
                *(self._grounded, updates, grounds, work, work_leak),
                *(t.info, t.kid, t.edge_at, t.column, t.before_at, t.before),
                *(*offsets, t.num_grounds, p.work, entries),
                KE=p.edges,
                **block,
                C=p.columns,
                REST=p.width > 0,
                WHOLE=whole,
                FUSED=fused,
                PRECISION=precision,
                warps=_warps_of(p),
            )
            if not whole:
                _launch(
                    _K.beyond,
                    (M, p.fronts, -(-p.width // p.columns)),
                    *(self._own, most, self._shares, self._inverse, grounds, work_leak),
                    *(t.info, t.kid, p.start, p.k0, nodes),
                    *(t.num_shares, t.num_grounds, entries),
                    **block,
                    C=p.columns,
                    PRECISION=precision,
                    warps=8,
                )
            if p.width and not fused:
                tile = _TILE if p.width > 2 * _TILE else _TILE // 2
                tiles = -(-p.width // tile)
                _launch(
                    _K.update,
                    (M, p.fronts, tiles**2),
                    *(self._g, most, self._shares, self._inverse, updates, work),
                    *(t.info, t.kid, t.edge_at, t.column),
                    *(*offsets, p.work, entries, tiles),
                    KE=p.edges,
                    **block,
                    T=tile,
                    PRECISION=precision,
                    warps=tile // 8,
                )

        _launch(
            _K.add,
            (M * self._plan.regions,),
            *(self._shares, self._inverse, self._grounded, self._whole, t.info),
            *(self._plan.regions, nodes, t.num_shares),
            **_ADDED,
            warps=1,
        )

    def _up(self, source: Tensor, level: Tensor, x: Tensor, *, drops: bool) -> None:
        """Currents over totals of pivots into x, (1 + drops, rows, nodes)."""
        t, rows, nodes = self._tables, x.shape[1], x.shape[2]
        handed = x.new_empty(len(x), rows, t.num_grounds, dtype=torch.float64)
        values = x.new_empty(len(x), rows, len(t.position), dtype=torch.float64)
        for p in t.panels:
            columns = min(p.columns, _COLUMNS // 2)
            _launch(
                _K.up,
                (rows, p.fronts, max(1, -(-p.width // columns))),
                *(source, self._own, self._most, level, x, handed, values),
                *(self._shares, self._inverse, self._whole, t.info, t.kid, t.node),
                *(p.start, p.k0, nodes, t.num_shares, t.num_grounds, len(t.position)),
                *(self._shape[-1], rows // self._networks),
                P=p.pivots,
                C=columns,
                KIDS=p.kids,
                BEGIN=p.begin,
                END=p.end,
                DROPS=drops,
                warps=max(2, p.pivots // 8),  # larger blocks spilled with fewer
            )

    def _down(
        self, x: Tensor, potential: Tensor, *, drops: bool = False, sample: bool = False
    ) -> Tensor:
        """Potentials from x, which becomes them by position; the last panels come first. For
        drops, returns relative potentials and their bases by entry of the fronts."""
        t, rows, nodes = self._tables, x.shape[1], x.shape[2]
        split = x.new_empty(2, rows, len(t.position) if drops else 1)
        for p in reversed(t.panels):
            _launch(
                _K.down,
                (rows, p.fronts),
                *(x, potential, *split, self._most, self._shares, self._grounded),
                *(t.info, t.position, t.place, t.node, p.start, p.k0, nodes),
                *(t.num_shares, len(t.position), self._shape[-1], rows // self._networks),
                P=p.pivots,
                C=min(p.columns, _SWEPT // p.pivots),
                END=p.end,
                DROPS=drops,
                SAMPLE=sample,
                warps=p.pivots // 16 * (2 if drops else 1),
            )
        return split

    def solve(
        self, source: Tensor, *, drops: bool = False, network: Sequence[Tensor] = ()
    ) -> Solution:
        """As the compiled `Factors`; the residuals are those of the class, of any `network`."""
        del network
        t, plan, source = self._tables, self._plan, source.contiguous()
        B, S, C = source.shape[0], source.shape[1], source.shape[-1]
        rows, axes, per_axis = B * S * C, len(plan.layout.shape), math.prod(plan.layout.edge_shape)
        potential = torch.empty_like(source)
        drop = source.new_empty(axes if drops else 0, B, S, *plan.layout.edge_shape, C)
        residual = self._numbers[1].reshape(B, 1, C).expand(B, S, C)
        if rows:
            x = source.new_empty(1 + drops, rows, plan.nodes)
            level = source.new_empty(rows if drops else 1, dtype=torch.float64)
            sizes = (plan.nodes, C, S)
            with torch.cuda.device_of(source):
                if drops:
                    first = (source, self._own, self._inverse, self._most, level, t.node)
                    _launch(_K.levels, (rows,), *first, *sizes, BLOCK=_BLOCK, warps=4)
                self._up(source, level, x, drops=drops)
                split = self._down(x, potential, drops=drops)
                if drops:
                    _launch(
                        _K.drops,
                        (rows, -(-axes * per_axis // _BLOCK)),
                        *(x, *split, self._most, drop, t.edge_of, t.near, t.far, t.position),
                        *(plan.nodes, per_axis, len(t.position), rows * per_axis, C, S),
                        OFF=CONSTANTS["DIRECT_OFF"] * torch.finfo(source.dtype).eps,
                        AXES=axes,
                        BLOCK=_BLOCK,
                        warps=4,
                    )
        return Solution(potential, list(drop), residual)

    def sample(self, noise: Tensor) -> Tensor:
        """Fields for white noise (B, S, \\*grid, C)."""
        noise = noise.contiguous()
        B, S, C = noise.shape[0], noise.shape[1], noise.shape[-1]
        rows = noise.movedim(-1, 1).reshape(B * C, S, self._plan.nodes)[..., self._tables.node]
        x = (rows * self._inverse.sqrt()[:, None]).reshape(1, B * C * S, self._plan.nodes)
        field = torch.empty_like(noise)
        if x.numel():
            with torch.cuda.device_of(noise):
                self._down(x, field, sample=True)
        return field

    def _scale(self) -> Tensor:
        """(M,), float64, of conductances; see the kernels."""
        exponent = torch.frexp(self._numbers[0].double()).exponent - 1
        limit = math.frexp(torch.finfo(self._own.dtype).max)[1] - 2
        exponent = exponent.clamp(-limit - 1, limit)
        return torch.ldexp(torch.ones_like(exponent, dtype=torch.float64), -exponent)

    def logdet(self) -> Tensor:
        """(B, C), float64; nodes that are not part of a network left out."""
        inverse = self._inverse.double()
        some = inverse > 0
        logs = torch.where(some, inverse, 1).log().sum(1).neg()
        value = logs - some.sum(1) * self._scale().log()
        judged = self._numbers[1]
        value = torch.where(judged.isinf(), -math.inf, value)
        value = torch.where(judged.isnan(), math.nan, value)
        return value.reshape(self._shape[0], self._shape[-1])

    def inverse_entries(self) -> tuple[Tensor, list[Tensor]]:
        """Entries of the inverse, (B, \\*grid, C), by the backend "torch"."""
        B, *grid, C = self._shape
        t, entries = self._tables, self._plan.layout.edge_shape
        g = self._g.new_zeros(len(self._g), len(t.edge_of)).index_copy(1, t.entry.long(), self._g)
        leak = torch.empty_like(self._own).index_copy(1, t.node.long(), self._own)
        fields = [x.reshape(B, C, *entries) for x in g.split(math.prod(entries), 1)]
        leak, *g = (x.movedim(1, -1) for x in (leak.reshape(B, C, *grid), *fields))
        return dense.Factors(self._plan, g, leak).inverse_entries()

    @property
    def nbytes(self) -> int:
        """Bytes that the factors hold."""
        return sum(x.nbytes for x in (self._shares, self._inverse, self._grounded, self._whole))
