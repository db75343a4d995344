"""Nested dissection: which nodes of a graph separate the others, and which of those they separate.

A *separator* cuts a graph in two; so do those of its halves, until a handful of nodes is left. What
each cut makes of a node is a digit of the node's number, two bits of it, so that sorting these
numbers sorts nodes by regions, in the order of elimination.

`dissect_box` cuts a grid, or a box of one, by planes one node thick; the first cut of a periodic
axis takes two planes. `dissect_graph` cuts along coordinates: positions, or what `coordinates_of`
finds of a graph without them. Between the halves lies a small set of nodes that touches all edges
between them. All parts of a depth are cut at a time, by operations on arrays.

References: A. George, "Nested dissection of a regular finite element mesh", SIAM J. Numer. Anal. 10
(1973); G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular
graphs", SIAM J. Sci. Comput. 20 (1998): METIS.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

# Parts of at most so many nodes are left whole where networks, or tiles of one, fill the vectors.
LEAF = 8
# Where a node is after a cut, in the order of elimination: in the first half (0), the second half,
# the separator, the separator's second plane. Two bits of the node's number.
SECOND, SEPARATOR, PLANE = 1, 2, 3
_SEPARATORS = np.int64(0x2AAAAAAAAAAAAAAA)
_MOST_CUTS = 30
_SMOOTHINGS = 30
_LANDMARKS = 4
# How far from the middle, in parts of a half, a cut between two different coordinates may lie.
_UNEVEN = 0.2


class Dissection(NamedTuple):
    """The regions of a graph, in the order in which they are eliminated.

    Regions form trees in post-order: each follows its children, two at most, and those of a subtree
    follow one another. An edge joins nodes of one region, or of a region and one above it in the
    tree.

    `node` (positions,) has pivots of one region after the other, then those nodes next to them that
    are not eliminated; `pivots` (regions,) how many nodes each region eliminates, at least one; and
    `parent` (regions,) is -1 for a root.
    """

    node: Array
    pivots: Array
    parent: Array


def begins(lengths: Array) -> Array:
    """Where runs of these lengths begin, one after the other, and where the last one ends."""
    at = np.zeros(len(lengths) + 1, lengths.dtype)
    np.cumsum(lengths, out=at[1:])
    return at


def regions_of(number: Array, cuts: int) -> tuple[Array, Array, Array]:
    """The regions that numbers of nodes describe: nodes in the order of elimination, where each
    region's begin, and each region's parent."""
    # Cuts after the one whose separator a node is in do not concern it.
    used = np.frexp((number & _SEPARATORS).astype(np.float64))[1].astype(np.int64)
    unused = np.maximum(used - 2, 0)
    number = number >> unused << unused
    order = np.argsort(number, kind="stable")
    unused, depth = unused[order], cuts - used[order] // 2
    region = number[order] & ~(np.where(depth < cuts, 1, 0) << unused)
    first = np.flatnonzero(np.append(True, region[1:] != region[:-1]))
    region, depth = region[first], depth[first]

    # A parent's number has the same digits down to its own, which is its separator's.
    below = 2 * (cuts - depth)
    parent = np.searchsorted(region, (region >> (below + 2) << 2 | SEPARATOR) << below)
    parent[depth == 0] = -1
    return order, first, parent


def axis_to_cut(largest: Sequence[int], ring: Sequence[bool]) -> int:
    """The axis along which boxes are cut whose largest extents are given. Two planes cut a ring."""
    return max(range(len(largest)), key=lambda axis: largest[axis] / (1 + ring[axis]))


def halves_of(extent: Any, ring: bool) -> tuple[Any, Any]:
    """The extents of the halves of boxes, numbers or arrays, along the axis of a cut."""
    return extent // 2 - ring, extent - extent // 2 - 1


def _cut(low: Array, extent: Array, ring: bool) -> tuple[Array, Array, Array]:
    """Cut the boxes along one axis.

    `low`, `extent`: for each line of the axis where the box begins that it is in, and its extent,
    0 for lines of separators. Returns how lines lie to the cut, and the same of the halves.
    """
    line, middle = np.arange(len(low)), low + extent // 2
    after = line > middle
    digit = np.where(after, SECOND, np.where(line == middle, SEPARATOR, 0))
    if ring:
        digit[middle[0]], digit[0] = PLANE, SEPARATOR
    first, second = halves_of(extent, ring)
    half = np.where(after, second, first)
    half[(digit >= SEPARATOR) | (extent == 0)] = 0
    return digit, np.where(after, middle + 1, low + ring), half


def dissect_box(
    grid: tuple[int, ...],
    periodic: tuple[bool, ...],
    leaf: int,
    inside: tuple[slice, ...] | None = None,
) -> tuple[Dissection, Array, Array]:
    """The dissection of a grid, or of the box of it that is `inside` and so no longer periodic.
    Nodes next to that box are not eliminated. Boxes of at most `leaf` nodes are not cut. Also
    returns the low corner and the extent of each region that is such a box, (regions, axes) each;
    extents of separators contain a 0.

    All boxes of a depth are cut along one axis, and where a box is cut depends on its place along
    that axis alone. So each cut is a vector over one axis, and the number of a node, two bits a
    cut, is the sum of its coordinates' numbers. Sorting these numbers sorts nodes by regions, in
    post-order.
    """
    node = np.arange(prod(grid)).reshape(grid)
    if inside is not None:
        node = node[inside]
    size = node.shape
    ring = [closed and n > 1 and inside is None for closed, n in zip(periodic, grid, strict=True)]
    low, extent = [np.zeros(n, np.int64) for n in size], [np.full(n, n) for n in size]
    largest, numbers, cuts = [*size], [np.zeros(n, np.int64) for n in size], 0
    while prod(largest) > leaf:
        axis = axis_to_cut(largest, ring)
        digit, low[axis], extent[axis] = _cut(low[axis], extent[axis], ring[axis])
        largest[axis], ring[axis] = int(extent[axis].max()), False
        numbers = [number << 2 for number in numbers]
        numbers[axis] += digit
        cuts += 1
    number = reduce(np.add.outer, numbers).ravel()

    order, first, parent = regions_of(number, cuts)
    at = np.unravel_index(order[first], size)
    low, extent = (
        np.stack([line[k] for line, k in zip(lines, at, strict=True)], -1)
        for lines in (low, extent)
    )

    node = node.ravel()[order]
    if inside is not None:
        outside = [np.ones(n, np.int64) for n in grid]
        for x, part in zip(outside, inside, strict=True):
            x[part] = 0
        node = np.append(node, np.flatnonzero(reduce(np.add.outer, outside) == 1))
    pivots = np.diff(first, append=len(order))
    return Dissection(node, pivots, parent), low, extent


def dissect_graph(ends: Array, num_nodes: int, coordinates: Sequence[Array]) -> Dissection:
    """The dissection of a graph whose edges have these ends, (2, edges), by coordinates (nodes,).

    Each part is cut along the coordinate that fewest edges cross, near the middle. A part of `LEAF`
    nodes or fewer is its own separator; where no edge crosses a cut, one node is.
    """
    p, q = ends
    number, part = np.zeros((2, num_nodes), np.int64)
    orders, cuts = [np.argsort(x, kind="stable") for x in coordinates], 0
    while len(orders[0]):
        cuts += 1
        size = np.bincount(part[orders[0]])
        whole = size <= (LEAF if cuts < _MOST_CUTS else num_nodes)
        second, fewest = np.zeros(num_nodes, bool), np.full(len(size), len(p) + 1)
        for k, x in enumerate(coordinates):
            orders[k] = order = orders[k][np.argsort(part[orders[k]], kind="stable")]
            after = np.zeros(num_nodes, bool)
            after[order] = _second_halves(x[order], size)
            across = np.bincount(part[p[after[p] != after[q]]], minlength=len(size))
            second = np.where((across < fewest)[part], after, second)
            fewest = np.minimum(across, fewest)
        second &= ~whole[part]
        separates = np.zeros(num_nodes, bool)
        across = second[p] != second[q]
        one, other = p[across], q[across]
        swapped = second[one]
        cover = _vertex_cover(np.where(swapped, other, one), np.where(swapped, one, other))
        separates[cover] = True
        joined = np.bincount(part[cover], minlength=len(size)) > 0
        separates[orders[0][begins(size)[:-1][~joined]]] = True
        order = orders[0]
        separates[order[whole[part[order]]]] = True

        number <<= 2
        number[order] |= np.where(separates[order], SEPARATOR, second[order])
        orders = [order[~separates[order]] for order in orders]
        part = 2 * part + second
        present = np.bincount(part[orders[0]], minlength=2 * len(size)) > 0
        part = (np.cumsum(present) - 1)[part]
        kept = ~separates[p] & ~separates[q]
        kept[kept] = part[p[kept]] == part[q[kept]]
        p, q = p[kept], q[kept]
    order, first, parent = regions_of(number, cuts)
    return Dissection(order, np.diff(first, append=num_nodes), parent)


def _second_halves(x: Array, size: Array) -> Array:
    """Whether each node is in the second half of its part, of parts of these sizes, one after the
    other, in which x ascends. Nodes of one x stay together where that is nearly in the middle."""
    at, total = begins(size), np.repeat(size, size)
    index = np.arange(len(x)) - np.repeat(at[:-1], size)
    off = np.abs(2 * index - total)
    off[np.append(True, x[1:] == x[:-1]) | (index == 0)] = 2 * len(x) + 1
    least = np.minimum.reduceat(off, at[:-1])
    cut = size // 2
    nearest = np.flatnonzero((off == np.repeat(least, size)) & (off <= _UNEVEN * total))
    cut[np.repeat(np.arange(len(size)), size)[nearest]] = index[nearest]
    return index >= np.repeat(cut, size)


def _vertex_cover(one: Array, other: Array) -> Array:
    """A small set of nodes that touches all edges from a node `one` to a node `other`. Only one of
    the two arrays contains a node.

    The neighbour of a node with one edge belongs to some smallest set, so these come first, and
    nodes with the most edges where there are none. In the end nodes leave whose neighbours are all
    in the set. Eliminations took 0.98 to 1.04 times the multiply-adds of smallest sets (Delaunay
    graphs of two and three dimensions, pore networks, rasters).
    """
    count = max(one.max(initial=0), other.max(initial=0)) + 1
    cover, p, q = np.zeros(count, bool), one, other
    while len(p):
        degree = np.bincount(np.append(p, q), minlength=count)
        chosen, single = np.zeros(count, bool), degree == 1
        chosen[q[single[p]]] = True
        chosen[p[single[q] & ~single[p]]] = True
        if not chosen.any():
            chosen = degree == degree.max()
        cover |= chosen
        kept = ~(chosen[p] | chosen[q])
        p, q = p[kept], q[kept]
    for side, opposite in ((one, other), (other, one)):
        needed = np.zeros(count, bool)
        needed[side[~cover[opposite]]] = True
        cover[side] &= needed[side]
    return np.flatnonzero(cover)


def coordinates_of(ends: Array, num_nodes: int) -> list[Array]:
    """Coordinates of nodes without positions.

    With pymetis they are the parts that METIS has found, and distances from a node, along which
    these parts are cut. Without it they are places in space, along which meshes are cut, and the
    order of a depth-first search, along which trees are. The places are those whose distances from
    a few nodes fit best (landmark multidimensional scaling); a Delaunay graph of 100,000 nodes
    takes less than half of the multiply-adds that cuts along three of the distances take.

    They are smoothed, by averages over neighbours: without it that graph takes 1.5 times as many.
    """
    start, end = np.concatenate([ends, ends[::-1]], 1)
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    degree = np.bincount(start, minlength=num_nodes)
    at = begins(degree)
    graph = at.tolist(), end.tolist()
    distances = [_distances(*graph, 0)]
    if importlib.util.find_spec("pymetis") is None:
        while len(distances) < _LANDMARKS:
            farthest = int(np.minimum.reduce(distances).argmax())
            distances.append(_distances(*graph, farthest))
        distances = _places(np.stack(distances, 1))
        coordinates = [_distances(*graph, 0, depth_first=True)]
    else:
        import pymetis  # pyright: ignore[reportMissingImports]

        # Parts are numbered by halves, and so are the halves' parts.
        parts = 1 << max(num_nodes // (16 * LEAF), 1).bit_length()
        rows = pymetis.CSRAdjacency(*(x.astype(pymetis.zero_copy_dtype()) for x in (at, end)))
        coordinates = [np.array(pymetis.part_graph(parts, rows, recursive=True)[1])]
    for x in distances:
        for _ in range(_SMOOTHINGS):
            x = (x + np.bincount(start, x[end], num_nodes) / np.maximum(degree, 1)) / 2
        coordinates.append(x)
    return coordinates


def _places(distances: Array) -> list[Array]:
    """Coordinates (nodes,) of nodes whose distances from landmarks are (nodes, landmarks)."""
    squares = distances.astype(np.float64) ** 2
    squares -= squares.mean(0)
    squares -= squares.mean(1, keepdims=True)
    _, directions = np.linalg.eigh(squares.T @ squares)
    return list((squares @ directions[:, :0:-1]).T)


def _distances(at: list[int], end: list[int], start: int, depth_first: bool = False) -> Array:
    """How many edges lead to each node from `start`, or when a depth-first search comes by it.
    Connected parts follow one another."""
    distance, last = [-1] * (len(at) - 1), 0
    for root in (start, *range(len(distance))):
        if distance[root] >= 0:
            continue
        if depth_first:
            stack = [root]
            while stack:
                node = stack.pop()
                if distance[node] < 0:
                    distance[node] = last = last + 1
                    stack.extend(end[at[node] : at[node + 1]])
            continue
        distance[root] = last = last + 2
        frontier = [root]
        while frontier:
            before, frontier, far = frontier, [], last + 1
            for node in before:
                for other in end[at[node] : at[node + 1]]:
                    if distance[other] < 0:
                        distance[other] = far
                        frontier.append(other)
            last = far if frontier else last
    return np.array(distance)
