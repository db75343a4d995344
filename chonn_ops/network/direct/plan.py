"""In which order the nodes of a graph are eliminated, and what that fills in.

A *region* is a part of a dissection (`chonn_ops.network.layout.dissection`) with its own nodes to
eliminate (the *pivots*: its separator, or all nodes of a part that is not cut) after those of its
halves, and with a *boundary*: nodes of earlier separators next to the part. Pivots and boundary
together are the region's *front*, a dense symmetric matrix.

`plan_of_dissection` turns a tree of regions, a `Dissection`, into the arrays that eliminations
read. It knows nodes and edges only.

Everything is made of arrays over all nodes, edges or regions, because users bring a new size with
each crop: the first solve of a size is to take no more than half of what SciPy's takes.

Reference: I. S. Duff, J. K. Reid, "The multifrontal solution of indefinite sparse symmetric linear
equations", ACM Trans. Math. Softw. 9 (1983).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from chonn_ops.network.layout import Layout, kept
from chonn_ops.network.layout.dissection import LEAF, Array, Dissection, begins

# Runs of edges end at each multiple of this node, so that all edges of a node are near each other.
_RUN = 256
# The arrays that the kernels read, as int64_t and int32_t.
LONG = ("first", "pivots", "width", "boundary_at", "edge_at", "share_at", "kids")
SHORT = ("node", "position", "boundary", "place", "edge", "row", "column")


@dataclass(frozen=True, eq=False)
class Plan:
    """The elimination of a layout. Regions are in the order in which they are eliminated."""

    layout: Layout
    node: Array  # (nodes,): the one, in row-major order, that is eliminated at each position
    first: Array  # (regions,): position of a region's first pivot
    pivots: Array  # (regions,): how many
    width: Array  # (regions,): nodes on the boundary
    boundary: Array  # positions of boundary nodes, ascending
    boundary_at: Array  # (regions + 1,): where each region's begin
    place: Array  # where each entry of `boundary` is in the parent's front
    parent: Array  # (regions,): -1 for the last
    kids: Array  # (regions, 2): -1 where there is none
    # Edges, ordered by the node of each that is eliminated first: the entry of the conductances
    # (see `Layout.edge_ends`), where in the front the edge's first node is and its second, and
    # where each region's begin.
    edge: Array
    row: Array
    column: Array
    edge_at: Array
    share_at: Array  # (regions + 1,): where each region's factors begin, rows right of the diagonal

    @cached_property
    def nodes(self) -> int:
        return len(self.node)

    @property
    def regions(self) -> int:
        return len(self.first)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, those for the kernels included."""
        arrays = (*vars(self).values(), *self._read_by_kernels.values())
        return sum(x.nbytes for x in arrays if isinstance(x, np.ndarray))

    @cached_property
    def position(self) -> Array:
        """The position of each node."""
        position = np.empty(self.nodes, np.int64)
        position[self.node] = np.arange(self.nodes)
        return position

    @property
    def ends(self) -> Array:
        """The positions of the two nodes of each edge, (2, edges)."""
        owner = np.repeat(np.arange(self.regions), np.diff(self.edge_at))
        place = np.stack([self.row, self.column]).astype(np.int64)
        at, beyond = self.first[owner] + place, place - self.pivots[owner]
        outer = beyond >= 0
        at[outer] = self.boundary[(self.boundary_at[owner] + beyond)[outer]]
        return at

    @cached_property
    def runs(self) -> Array:
        """All edges as runs, ordered by their lower nodes: axis, first entry, first node, how far
        behind their beginnings edges end, edges; (runs, 5)."""
        edge, (start, end) = self.layout.edge_ends()
        axis, entry = np.divmod(edge, prod(self.layout.edge_shape))
        far = end - start
        same = [np.diff(axis) == 0, np.diff(far) == 0, np.diff(entry) == 1, np.diff(start) == 1]
        same.append(start[1:] % _RUN > 0)
        first = np.flatnonzero(np.append(True, ~np.logical_and.reduce(same))[: len(edge)])
        count = np.diff(first, append=len(edge))
        runs = np.stack([axis[first], entry[first], start[first], far[first], count], 1)
        return runs[np.argsort(runs[:, 2] + np.minimum(runs[:, 3], 0), kind="stable")]

    @cached_property
    def largest_front(self) -> int:
        return int((self.pivots + self.width).max())

    @property
    def num_shares(self) -> int:
        """Entries of the factors, besides one inverse pivot a node."""
        return int(self.share_at[-1])

    @cached_property
    def height(self) -> Array:
        """Most regions from each one down to one without children, which come first."""
        height = np.zeros(self.regions, np.int64)
        for region, parent in enumerate(self.parent):
            if parent >= 0:
                height[parent] = max(height[parent], height[region] + 1)
        return height

    @cached_property
    def update(self) -> Array:
        """Entries of the update that each region hands to its parent: edges and leaks."""
        return self.width * (self.width + 1) // 2

    @cached_property
    def stack(self) -> int:
        """Most entries of updates that wait at a time."""
        return int(self.stack_of(0, self.regions))

    def stack_of(self, start: int, stop: int) -> int:
        """Most entries of updates that wait at a time, of the regions of one subtree."""
        return self._most_waiting(self.update, start, stop)

    @cached_property
    def waiting(self) -> int:
        """Most boundary nodes, together, of regions that wait at a time."""
        return self._most_waiting(self.width, 0, self.regions)

    def _most_waiting(self, size: Array, start: int, stop: int) -> int:
        growth = size - np.where(self.kids >= 0, size[self.kids], 0).sum(1)
        return int(np.cumsum(growth[start:stop]).max(initial=0))

    def subtrees(self, count: int) -> list[tuple[int, int]]:
        """At least `count` subtrees of similar work, if there are as many: (first region, one
        after the last). None is part of another."""
        begin = _subtree_begins(self.parent)
        until = begins(self.work)
        roots = [self.regions - 1]
        while len(roots) < count:
            largest = max(roots, key=lambda region: until[region + 1] - until[begin[region]])
            kids = [int(kid) for kid in self.kids[largest] if kid >= 0]
            if not kids or not self.pivots[kids].all():
                break
            roots.remove(largest)
            roots += kids
        return sorted((int(begin[root]), root + 1) for root in roots)

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
        """The addresses of the arrays that the kernels read, valid while the plan lives."""
        return {name: array.ctypes.data for name, array in self._read_by_kernels.items()}


def _subtree_begins(parent: Array) -> Array:
    """The first region of each region's subtree, which in post-order ends with the region."""
    begin = np.arange(len(parent))
    below = above = np.arange(len(parent))
    while len(above):
        above = parent[above]
        below, above = below[above >= 0], above[above >= 0]
        np.minimum.at(begin, above, below)
    return begin


def _kids_of(parent: Array) -> Array:
    """The children of each region, (regions, 2), in their order; -1 where there is none."""
    kids = np.full((len(parent), 2), -1)
    kid = np.flatnonzero(parent >= 0)
    kid = kid[np.argsort(parent[kid], kind="stable")]
    of = parent[kid]
    kids[of, np.append(0, of[1:] == of[:-1])[: len(of)]] = kid
    return kids


def plan_of_dissection(dissection: Dissection, edge: Array, ends: Array, layout: Layout) -> Plan:
    """The plan of a dissection of a layout and of its edges, as `Layout.edge_ends` has them. Edges
    of nodes that the dissection lacks, and edges between nodes that are not eliminated, are left
    out."""
    node, pivots, parent = dissection
    count, regions = len(node), len(pivots)
    first = begins(pivots)
    eliminated, first = int(first[-1]), first[:-1]
    owner_of = np.full(count, -1)  # the region that eliminates a position
    owner_of[:eliminated] = np.repeat(np.arange(regions), pivots)
    position = np.full(prod(layout.shape), -1)
    position[node] = np.arange(count)

    ends = position[ends]
    low, high = np.minimum(*ends), np.maximum(*ends)
    there = np.flatnonzero((low >= 0) & (low < eliminated))
    there = there[np.argsort((low * count + high)[there], kind="stable")]
    edge, low, high, swapped = edge[there], low[there], high[there], ends[0, there] > low[there]
    owner = owner_of[low]

    # A node is on the boundary of each region from the one that eliminates a neighbour of it first
    # up to its own. So the later node of every edge walks up the tree, all of them step by step.
    region, later, last, steps = owner, high, owner_of[high], []
    while True:
        outside = (region != last) & (region >= 0)
        steps.append((region, later, outside))
        if not outside.any():
            break
        region, later, last = parent[region[outside]], later[outside], last[outside]
    region, later, outside = (np.concatenate(x) for x in zip(*steps, strict=True))
    if ((region < 0) & (later < eliminated)).any():
        raise ValueError("dissection: expected no edge between separate subtrees")
    place_at = later - first[region]  # in the front of the region that a walk ends in
    walks = np.flatnonzero(outside)  # the k-th of them goes on to the k-th step of those to parents
    region, later = region[walks], later[walks]
    entry = region * count + later
    # The keys are nearly sorted, so that a stable sort takes half as long as another one.
    order = np.argsort(entry, kind="stable")
    entry = entry[order]
    new = np.append(True, entry[1:] != entry[:-1])[: len(entry)]
    rank = np.empty_like(order)
    rank[order] = np.cumsum(new) - 1
    entry = order[new]
    width = np.bincount(region[entry], minlength=regions)
    boundary_at = begins(width)
    place_at[walks] = pivots[region] + rank - boundary_at[region]
    near, far = low - first[owner], place_at[: len(owner)]

    front = pivots + width
    return Plan(
        layout=layout,
        node=node,
        first=first,
        pivots=pivots,
        width=width,
        boundary=later[entry],
        boundary_at=boundary_at,
        place=place_at[len(owner) :][entry],
        parent=parent,
        kids=_kids_of(parent),
        edge=edge,
        row=np.where(swapped, far, near),
        column=np.where(swapped, near, far),
        edge_at=np.searchsorted(owner, np.arange(regions + 1)),
        share_at=begins(pivots * front - pivots * (pivots + 1) // 2),
    )


@kept
def make_plan(layout: Layout, leaf: int = LEAF) -> Plan:
    """The plan of a layout; `leaf` as in `Layout.dissection`."""
    return plan_of_dissection(layout.dissection(leaf), *layout.edge_ends(), layout)
