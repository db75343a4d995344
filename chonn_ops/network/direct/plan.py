"""Nested dissection of a grid: in which order its nodes are eliminated, and what that fills in.

The grid is a box. A separator, one node thick, cuts it in two; so do its halves, until a handful of
nodes is left. A *region* is a box with its own nodes to eliminate (the *pivots*: its separator, or
all of a leaf's) after those of its halves, and with a *boundary*: the nodes of earlier cuts next to
the box. Pivots and boundary together are the region's *front*, a dense symmetric matrix. The first
cut of a periodic axis takes two planes.

Everything is made of arrays over all regions, so that a grid of 512 x 512 takes a fraction of a
second, once.

Reference: A. George, "Nested dissection of a regular finite element mesh", SIAM J. Numer. Anal. 10
(1973); I. S. Duff, J. K. Reid, "The multifrontal solution of indefinite sparse symmetric linear
equations", ACM Trans. Math. Softw. 9 (1983).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

# Nodes of boxes that are not cut where networks, or tiles of one, fill the vectors.
LEAF = 8
# The arrays that the kernels read, as int64_t and int32_t.
LONG = ("first", "pivots", "width", "boundary_at", "edge_at", "share_at", "kids")
SHORT = ("node", "boundary", "place", "edge", "row", "column")


@dataclass(frozen=True, eq=False)
class Plan:
    """The elimination of one grid. Regions are in the order in which they are eliminated.

    Attributes
    ----------
    node : Array, shape (nodes,)
        The node of the grid, in row-major order, that is eliminated at each position.
    first, pivots, width : Array, shape (regions,)
        Position of a region's first pivot, number of its pivots, nodes on its boundary.
    boundary, boundary_at : Array
        Positions of boundary nodes, ascending, and where each region's begin; (regions + 1,).
    place : Array
        Where each entry of `boundary` is in the parent's front.
    parent : Array, shape (regions,)
        -1 for the last.
    kids : Array, shape (regions, 2)
        -1 where there is none.
    edge, row, column, edge_at : Array
        Edges by the region that eliminates one of its nodes first: the entry of the conductances
        (axis * nodes + node), where in the front that node is and the next one along the axis;
        where each region's begin.
    share_at : Array, shape (regions + 1,)
        Where each region's factors begin: rows of its front, right of the diagonal.
    low, extent : Array, shape (regions, axes)
        The low corner of each region's box, and its nodes along each axis.
    depth : Array, shape (regions,)
        Cuts that led to the box.
    """

    grid: tuple[int, ...]
    periodic: tuple[bool, ...]
    node: Array
    first: Array
    pivots: Array
    width: Array
    boundary: Array
    boundary_at: Array
    place: Array
    parent: Array
    kids: Array
    edge: Array
    row: Array
    column: Array
    edge_at: Array
    share_at: Array
    low: Array
    extent: Array
    depth: Array

    @property
    def nodes(self) -> int:
        return len(self.node)

    @property
    def regions(self) -> int:
        return len(self.first)

    @cached_property
    def largest_front(self) -> int:
        return int((self.pivots + self.width).max())

    @property
    def num_shares(self) -> int:
        """Entries of the factors, besides one inverse pivot a node."""
        return int(self.share_at[-1])

    @cached_property
    def update(self) -> Array:
        """Entries of the update that each region hands to its parent: edges and leaks."""
        width = self.width.astype(np.int64)
        return width * (width + 1) // 2

    @cached_property
    def stack(self) -> int:
        """Most entries of updates that wait at a time."""
        return int(self.stack_of(0, self.regions))

    def stack_of(self, start: int, stop: int) -> int:
        """The same for regions of a subtree, which follow one another."""
        return self._most_waiting(self.update, start, stop)

    @cached_property
    def waiting(self) -> int:
        """Most boundary nodes, together, of regions that wait at a time."""
        return self._most_waiting(self.width, 0, self.regions)

    def _most_waiting(self, size: Array, start: int, stop: int) -> int:
        growth = size.astype(np.int64)
        inner = self.parent >= 0
        np.subtract.at(growth, self.parent[inner], size[inner])
        return int(np.cumsum(growth[start:stop]).max(initial=0))

    def subtrees(self, count: int) -> list[tuple[int, int]]:
        """At least `count` subtrees of similar work, if there are as many: (first region, one
        after the last). None is part of another."""
        size = np.ones(self.regions, np.int64)
        load = self.work.copy()
        for region, parent in enumerate(self.parent):
            if parent >= 0:
                size[parent] += size[region]
                load[parent] += load[region]
        roots = [self.regions - 1]
        while len(roots) < count:
            largest = max(roots, key=lambda region: load[region])
            kids = [int(kid) for kid in self.kids[largest] if kid >= 0]
            if not kids or not self.pivots[kids].all():
                break
            roots.remove(largest)
            roots += kids
        return sorted((root + 1 - int(size[root]), root + 1) for root in roots)

    @cached_property
    def work(self) -> Array:
        """Multiply-adds of each region's elimination."""
        f = (self.pivots + self.width).astype(np.float64)
        b = self.width.astype(np.float64)
        return (f * (f + 1) * (f + 2) - b * (b + 1) * (b + 2)) / 6

    @cached_property
    def total_work(self) -> float:
        return float(self.work.sum())

    @cached_property
    def _read_by_kernels(self) -> dict[str, Array]:
        long = {name: np.ascontiguousarray(getattr(self, name), np.int64) for name in LONG}
        short = {name: np.ascontiguousarray(getattr(self, name), np.int32) for name in SHORT}
        return long | short

    @cached_property
    def addresses(self) -> dict[str, int]:
        """Where the arrays are that the kernels read, by name; good as long as the plan."""
        return {name: array.ctypes.data for name, array in self._read_by_kernels.items()}


def _runs(lengths: Array) -> tuple[Array, Array]:
    """Where runs of these lengths begin (one more for the end), and the run of every entry."""
    at = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=at[1:])
    return at, np.repeat(np.arange(len(lengths)), lengths)


def _groups(*columns: Array) -> list[Array]:
    """Indices of equal rows."""
    keys, inverse = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    return np.split(order, np.cumsum(np.bincount(inverse.ravel(), minlength=len(keys)))[:-1])


def _box(*ranges: Array | range) -> Array:
    """Coordinates of all combinations, (points, axes), the last axis fastest."""
    return np.stack(np.meshgrid(*map(np.asarray, ranges), indexing="ij"), -1).reshape(
        -1, len(ranges)
    )


class _Boxes(NamedTuple):
    """Boxes in the order of elimination.

    Attributes
    ----------
    low, extent, cut, first, pivots, parent, depth : Array
        Low corner, extent, cut axis (-1: leaf), position of the first pivot, number of pivots,
        parent (-1: none), cuts that led here.
    """

    low: Array
    extent: Array
    cut: Array
    first: Array
    pivots: Array
    parent: Array
    depth: Array


def _dissect(grid: Array, periodic: Array, leaf: int, low: Array, extent: Array) -> _Boxes:
    """The boxes of a box. All boxes of a depth are cut along one axis; along each axis they have
    the same extent, or one node less."""
    low, extent = low[None], extent[None]
    start, parent = np.zeros(1, np.int64), np.full(1, -1)
    levels: list[tuple[Array, ...]] = []
    known = 0
    while len(low):
        wraps = periodic & (extent == grid) & (extent > 1)
        largest = extent.max(0)
        is_leaf = largest.prod() <= leaf
        axis = int(np.argmax(largest / (1 + wraps.max(0))))
        cut = np.full(len(low), -1 if is_leaf else axis)
        levels.append((low, extent, cut, start, parent, np.full(len(low), len(levels))))
        if is_leaf:
            break
        ring = wraps[:, axis].astype(np.int64)
        middle = extent[:, axis] // 2
        index = np.arange(len(low)) + known
        halves = []
        begin = start
        for second in (0, 1):
            half_low, half_extent = low.copy(), extent.copy()
            if second:
                half_low[:, axis] += middle + 1
                half_extent[:, axis] -= middle + 1
            else:
                half_low[:, axis] += ring
                half_extent[:, axis] = middle - ring
            some = half_extent[:, axis] > 0
            halves.append((half_low[some], half_extent[some], begin[some], index[some]))
            begin = begin + half_extent.prod(1)
        known += len(low)
        low, extent, start, parent = (np.concatenate(x) for x in zip(*halves, strict=True))
    low, extent, cut, start, parent, depth = (np.concatenate(x) for x in zip(*levels, strict=True))
    wraps = periodic & (extent == grid) & (extent > 1)
    planes = 1 + wraps[np.arange(len(cut)), cut]
    size = extent.prod(1)
    pivots = np.where(cut < 0, size, planes * size // extent[np.arange(len(cut)), cut])
    first = start + size - pivots
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    parent = np.where(parent >= 0, rank[parent], -1)
    return _Boxes(*(x[order] for x in (low, extent, cut, first, pivots, parent, depth)))


@lru_cache(maxsize=32)
def make_plan(grid: tuple[int, ...], periodic: tuple[bool, ...], leaf: int = LEAF) -> Plan:
    """The plan of a grid; `leaf`: boxes of at most as many nodes are not cut. Lines are cut down to
    single nodes."""
    if sum(n > 1 for n in grid) < 2:
        leaf = 1
    n = np.array(grid, np.int64)
    return plan_of_box(grid, periodic, leaf, 0 * n, n)


def plan_of_box(
    grid: tuple[int, ...], periodic: tuple[bool, ...], leaf: int, corner: Array, size: Array
) -> Plan:
    """The plan of a box of the grid. Nodes next to it have positions behind its own; edges are all
    those of its nodes."""
    n = np.array(grid, np.int64)
    ring = np.array(periodic, bool) & (n > 1)
    axes, nodes, inside = len(grid), prod(grid), int(size.prod())
    strides = np.array([prod(grid[axis + 1 :]) for axis in range(axes)], np.int64)
    boxes = _dissect(n, ring, leaf, corner, size)
    low, extent, cut, first, pivots, parent, depth = boxes
    wraps = ring & (extent == n) & (extent > 1)

    def index(corner: Array, relative: Array) -> Array:
        """Nodes (regions, points) at coordinates relative to the boxes' corners."""
        return ((corner[:, None] + relative[None]) % n) @ strides

    node = np.empty(inside, np.int64)
    for group in _groups(extent, cut, wraps):
        e, axis = extent[group[0]], cut[group[0]]
        ranges = [np.arange(k) for k in e]
        if axis >= 0:
            middle = e[axis] // 2
            ranges[axis] = np.array([0, middle] if wraps[group[0], axis] else [middle])
            # Plane by plane, so that neighbours in a plane stay neighbours.
            others = [*ranges[:axis], *ranges[axis + 1 :]]
            relative = np.concatenate(
                [
                    np.insert(_box(*others) if others else np.zeros((1, 0), np.int64), axis, k, 1)
                    for k in ranges[axis]
                ]
            )
        else:
            relative = _box(*ranges)
        node[first[group][:, None] + np.arange(len(relative))] = index(low[group], relative)
    coordinates = np.stack(np.unravel_index(np.arange(nodes), grid), -1)
    off = ((coordinates < corner) | (coordinates >= corner + size)).sum(1)
    node = np.concatenate([node, np.flatnonzero(off == 1)])
    position = np.full(nodes, -1)
    position[node] = np.arange(len(node))

    beside = np.stack([ring | (low > 0), ring | (low + extent < n)], -1) & ~wraps[..., None]
    faces = np.stack([extent.prod(1) // extent[:, axis] for axis in range(axes)], -1)
    width = (faces * beside.sum(-1)).sum(-1)
    boundary_at, region_of = _runs(width)
    boundary = np.empty(boundary_at[-1], np.int64)
    for group in _groups(extent, beside.reshape(len(low), -1)):
        e, there = extent[group[0]], beside[group[0]]
        parts = [np.zeros((0, axes), np.int64)]
        for axis in range(axes):
            for side, at in ((0, -1), (1, int(e[axis]))):
                if there[axis, side]:
                    parts.append(
                        _box(
                            *(
                                range(k) if i != axis else range(at, at + 1)
                                for i, k in enumerate(map(int, e))
                            )
                        )
                    )
        positions = np.sort(position[index(low[group], np.concatenate(parts))], axis=1)
        boundary[boundary_at[group][:, None] + np.arange(positions.shape[1])] = positions

    # Entry (region, position) of the boundaries is ascending in both: one search finds any.
    keys = region_of * nodes + boundary

    def place_in(region: Array, where: Array) -> Array:
        """Where positions are in regions' fronts."""
        inside = where - first[region]
        found = np.searchsorted(keys, region * nodes + where) - boundary_at[region]
        return np.where(inside < pivots[region], inside, pivots[region] + found)

    place = place_in(parent[region_of], boundary)
    kids = np.full((len(first), 2), -1)
    for kid in np.flatnonzero(parent >= 0):
        kids[parent[kid], int(kids[parent[kid], 0] >= 0)] = kid

    owner_of = np.repeat(np.arange(len(first)), pivots)  # of a position
    edges, ends = [], []
    every = np.arange(nodes).reshape(grid)
    for axis in range(axes):
        if grid[axis] == 1:
            continue
        closed = ring[axis]
        here = every if closed else every.take(range(grid[axis] - 1), axis)
        there = np.roll(every, -1, axis) if closed else every.take(range(1, grid[axis]), axis)
        edges.append(axis * nodes + here.ravel())
        ends.append(np.stack([position[here.ravel()], position[there.ravel()]]))
    edge = np.concatenate([np.zeros(0, np.int64), *edges])
    both = np.concatenate([np.zeros((2, 0), np.int64), *ends], axis=1)
    low_end, high_end = both.min(0), both.max(0)
    order = np.lexsort((high_end, low_end))
    order = order[(low_end[order] >= 0) & (low_end[order] < inside)]
    edge, both = edge[order], both[:, order]
    owner = owner_of[low_end[order]]
    front = pivots + width
    return Plan(
        grid=grid,
        periodic=periodic,
        node=node,
        first=first,
        pivots=pivots,
        width=width,
        boundary=boundary,
        boundary_at=boundary_at,
        place=place,
        parent=parent,
        kids=kids,
        edge=edge,
        row=place_in(owner, both[0]),
        column=place_in(owner, both[1]),
        edge_at=np.searchsorted(owner, np.arange(len(first) + 1)),
        share_at=_runs(pivots * front - pivots * (pivots + 1) // 2)[0],
        low=low,
        extent=extent,
        depth=depth,
    )
