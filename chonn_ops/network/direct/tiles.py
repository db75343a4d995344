"""Tiles: boxes at the bottom of a dissection that look alike, so that they are eliminated side by
side, one in each lane of a vector, where there are too few networks to fill the vectors.

Fronts of a handful of nodes leave vectors along their rows half empty, and most fronts are such.
Tiles are the boxes of some depth. All of them are taken to have the largest one's extent and
neighbours on all sides: nodes and edges that one of them lacks have no conductance. They share an
order in which their nodes are eliminated, down to the *rim*, the nodes next to a tile, which the
regions above eliminate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np

from chonn_ops.network.direct.plan import LEAF, Array, Plan, begins, make_plan, plan_of_dissection
from chonn_ops.network.layout import Grid, kept
from chonn_ops.network.layout.dissection import axis_to_cut, dissect_box, halves_of

_LARGEST = 128  # nodes of a tile's largest front: what fills the L2 cache with a vector an entry


@dataclass(frozen=True, eq=False)
class Tiles:
    """The tiles of a grid, in the order of its plan."""

    # The elimination of one tile, which all share. The tile's nodes have the first positions, its
    # rim has the last ones. Edges are numbered in the order of this plan.
    plan: Plan
    region: Array  # (tiles,): the region of the grid's plan that each tile takes the place of
    # (tiles, positions): where each node of a tile and its rim is in the grid's plan; (tiles,
    # edges): the entry of the conductances of each edge. -1 for what a tile lacks.
    position: Array
    edge: Array
    # For each entry of the grid's `boundary` the place in the rim of the tile whose boundary it is
    # on; 0 where it is on another region's.
    rim: Array


@dataclass(frozen=True, eq=False)
class TiledPlan(Plan):
    """A plan whose lowest regions are tiles. Such a region has a boundary, but no pivots, edges and
    factors: `tiles` has them."""

    tiles: Tiles

    @property
    def nbytes(self) -> int:
        arrays = (x for x in vars(self.tiles).values() if isinstance(x, np.ndarray))
        return super().nbytes + self.tiles.plan.nbytes + sum(x.nbytes for x in arrays)

    @cached_property
    def work(self) -> Array:
        work = super().work.copy()
        work[self.tiles.region] = self.tiles.plan.total_work
        return work


@kept
def make_tiled_plan(grid: Grid, leaf: int, count: int) -> Plan:
    """The plan of a grid with at least `count` tiles, as large as possible. It is `make_plan`'s
    where there are no such tiles. Volumes have none, because most of their work is in large
    fronts."""
    largest = _largest_extent(grid.shape, grid.periodic, leaf, count)
    if largest is None:
        return make_plan(grid, leaf)
    dissection, low, extent = dissect_box(grid.shape, grid.periodic, prod(largest))
    is_tile = np.asarray(extent.all(1))
    edge, ends = grid.edge_ends()
    region = np.empty(len(dissection.node), np.int64)
    region[dissection.node] = np.repeat(np.arange(len(is_tile)), dissection.pivots)
    at, to = region[ends]
    apart = (at != to) | ~is_tile[at]  # the others are in the tile's plan
    plan = plan_of_dissection(dissection, edge[apart], ends[:, apart], grid)
    return _with_tiles(plan, grid, is_tile, low[is_tile], extent[is_tile])


def _largest_extent(
    grid: tuple[int, ...], periodic: tuple[bool, ...], leaf: int, count: int
) -> list[int] | None:
    """The extent of the largest of at least `count` tiles; None where there are no tiles.

    It counts boxes by their extents, cut by cut, as `dissect_box` would cut them.
    """
    if sum(n > 1 for n in grid) > 2:
        return None
    ring = [closed and n > 1 for closed, n in zip(periodic, grid, strict=True)]
    numbers = [Counter({n: 1}) for n in grid]  # along each axis: how many boxes have an extent
    largest = [*grid]
    while prod(largest) > max(leaf, LEAF):
        axis = axis_to_cut(largest, ring)
        halves: Counter[int] = Counter()
        for extent, boxes in numbers[axis].items():
            for half in halves_of(extent, ring[axis]):
                halves[half] += boxes
        del halves[0]
        numbers[axis], ring[axis], largest[axis] = halves, False, max(halves, default=0)
        faces = sum(2 * prod(largest) // k for k, n in zip(largest, grid, strict=True) if k < n)
        pivots = prod(largest)
        if pivots > leaf:
            pivots //= largest[axis_to_cut(largest, ring)]
        many = prod(sum(boxes.values()) for boxes in numbers) >= count
        if many and not any(ring) and faces + pivots <= _LARGEST:
            return largest if prod(largest) > LEAF else None
    return None


def _plan_of_tile(extent: Array, inner: Array) -> tuple[Plan, Array, Array, Array]:
    """The plan of a tile that has a rim along its `inner` axes. Returns the plan and for each edge
    the axis, the two nodes, and whether the edge leads over the first line of the tile."""
    shape = tuple(int(n) for n in extent + 2 * inner)
    inside = tuple(slice(int(i), int(i + n)) for i, n in zip(inner, extent, strict=True))
    grid = Grid(shape)
    edge, ends = grid.edge_ends()
    # Where a tile is a node shorter, its second line is next to the rim.
    every, axes = np.arange(prod(shape)).reshape(shape), np.flatnonzero(inner)
    over = [every.take((0, 2), axis).swapaxes(0, axis).reshape(2, -1) for axis in axes]
    axis = [edge // prod(shape), *(np.full(x.shape[1], i) for x, i in zip(over, axes, strict=True))]
    ends = np.concatenate([ends, *over], axis=1)
    dissection, *_ = dissect_box(shape, grid.periodic, LEAF, inside)
    plan = plan_of_dissection(dissection, np.arange(ends.shape[1]), ends, grid)
    used = plan.edge
    plan = replace(plan, edge=np.arange(len(used)))
    return plan, np.concatenate(axis)[used], ends[:, used], used >= len(edge)


def _with_tiles(plan: Plan, grid: Grid, is_tile: Array, low: Array, extent: Array) -> TiledPlan:
    """The plan with tiles, which have these corners and extents, in place of some regions."""
    region, above = np.flatnonzero(is_tile), ~is_tile
    largest = extent.max(0)
    inner = np.array(grid.shape) > largest
    tile, axis, ends, over = _plan_of_tile(largest, inner)

    # A tile's nodes along an axis: coordinate -1 is in the rim before it, its extent in the one
    # behind. One that is a node shorter lacks its first line.
    node = np.zeros((len(region), 1), np.int64)
    for i, n in enumerate(grid.shape):
        at = np.arange(tile.layout.shape[i]) - inner[i]
        shorter = (extent[:, i] < largest[i])[:, None]
        line = low[:, i, None] + at - ((at > 0) & shorter)
        missing = (at == 0) & shorter
        if grid.periodic[i]:
            line %= n
        else:
            missing |= (line < 0) | (line >= n)
        # Where a line is missing, no sum with lines of other axes reaches 0.
        line = np.where(missing, -plan.nodes, line * prod(grid.shape[i + 1 :]))
        node = (node[:, :, None] + line[:, None]).reshape(len(region), -1)
    node = np.maximum(node, -1)
    position = np.full(plan.nodes + 1, -1)
    position[plan.node] = np.arange(plan.nodes)
    position = position[node[:, tile.node]]

    begin, end = node[:, ends[0]], node[:, ends[1]]
    exists = (begin >= 0) & (end >= 0) & (~over | (extent < largest)[:, axis])
    edge = np.where(exists, axis * plan.nodes + begin, -1)

    # A boundary's entries are looked up in the rim of its tile. Tile and position are one number.
    rims = position[:, tile.nodes - int(tile.width[-1]) :]
    of_rim = np.where(rims >= 0, rims + plan.nodes * np.arange(len(rims))[:, None], -1).ravel()
    order = np.argsort(of_rim)
    tile_of = np.repeat(np.where(above, -1, np.cumsum(is_tile) - 1), plan.width)
    place = np.searchsorted(of_rim, plan.boundary + plan.nodes * tile_of, sorter=order)
    rim = np.where(tile_of >= 0, order[place % len(order)] % rims.shape[1], 0)

    tile = replace(tile, node=np.arange(tile.nodes))
    num_edges, num_shares = np.diff(plan.edge_at), np.diff(plan.share_at)
    kept_edges = np.repeat(above, num_edges)
    changed = {
        "first": np.where(above, plan.first, 0),
        "pivots": np.where(above, plan.pivots, 0),
        "kids": np.where(above[:, None], plan.kids, -1),
        "edge": plan.edge[kept_edges],
        "row": plan.row[kept_edges],
        "column": plan.column[kept_edges],
        "edge_at": begins(np.where(above, num_edges, 0)),
        "share_at": begins(np.where(above, num_shares, 0)),
    }
    arrays = {f.name: getattr(plan, f.name) for f in fields(Plan)} | changed
    return TiledPlan(**arrays, tiles=Tiles(tile, region, position, edge, rim))


def in_lanes(values: Array, first: Sequence[int], lanes: int) -> Array:
    """Numbers (tiles, n) by groups of at most `lanes` tiles, (groups, n, lanes). A group begins at
    its entry of `first` and ends where the next one begins. Lanes without a tile have -1."""
    out = np.full((len(first) - 1, values.shape[1], lanes), -1, np.int32)
    for group, (begin, end) in enumerate(pairwise(first)):
        out[group, :, : end - begin] = values[begin:end].T
    return out
