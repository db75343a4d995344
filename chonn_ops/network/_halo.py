"""Grids with a halo of one node: neighbours are shifted views, rings are copies into the halo.

A field of M networks is one contiguous tensor (M, n_1 + 2, ..., n_d + 2). A step to a neighbour is
then one shift of the flattened field for all nodes of all networks, whatever the dimension: what
runs off the end of a row lands in the halo. Across open ends no edge conducts, so the halo of a
field holds zero there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

Offset = tuple[int, ...]


def along(axis: int, axes: int) -> Offset:
    """One step along an axis."""
    return tuple(int(other == axis) for other in range(axes))


def half_offsets(axes: Sequence[bool]) -> list[Offset]:
    """Steps to half of the neighbours, the other half being their negatives; none along an axis
    that is False."""
    steps = product(*((-1, 0, 1) if axis else (0,) for axis in axes))
    return [step for step in steps if step > (0,) * len(axes)]


class Grid:
    """Sizes (n_1, ..., n_d) of a grid, and which of its axes are rings."""

    def __init__(self, sizes: Sequence[int], ring: Sequence[bool]):
        self.sizes = tuple(sizes)
        self.ring = tuple(ring)
        self.padded = tuple(n + 2 for n in self.sizes)
        self.nodes = 1
        self._strides = [1]
        for n in reversed(self.sizes):
            self.nodes *= n
            self._strides.insert(0, self._strides[0] * (n + 2))
        self._whole = (slice(None), *(slice(1, n + 1) for n in self.sizes))

    def new(self, like: Tensor) -> Tensor:
        """A field of zeros, of as many networks as `like`."""
        return like.new_zeros((like.shape[0], *self.padded))

    def pad(self, values: Tensor) -> Tensor:
        """A field of the values (M, n_1, ..., n_d)."""
        field = self.new(values)
        self.inside(field).copy_(values)
        return field

    def inside(self, field: Tensor) -> Tensor:
        """View (M, n_1, ..., n_d) without the halo."""
        return field[self._whole]

    def distance(self, offset: Offset) -> int:
        """What a step means in the flattened field."""
        return sum(o * stride for o, stride in zip(offset, self._strides[1:], strict=True))

    def span(self, offset: Offset) -> int:
        """How far apart in row-major order a step may lead: across seams, anywhere."""
        if any(o and ring for o, ring in zip(offset, self.ring, strict=True)):
            return self.nodes
        distance, stride = 0, self.nodes
        for o, n in zip(offset, self.sizes, strict=True):
            stride //= n
            distance += o * stride
        return distance

    def view(
        self, field: Tensor, start: Sequence[int], step: Sequence[int], count: Sequence[int]
    ) -> Tensor:
        """Every `step`-th node from `start`, which may lie in the halo (-1)."""
        each = zip(start, step, count, strict=True)
        return field[(slice(None), *(slice(i + 1, i + 1 + s * n, s) for i, s, n in each))]

    def _ends(self, field: Tensor) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Low halo, first node, last node, high halo along every ring."""
        picks = [
            tuple(field.select(axis + 1, i) for i in (0, 1, n, n + 1))
            for axis, n in enumerate(self.sizes)
            if self.ring[axis]
        ]
        return [(low, first, last, high) for low, first, last, high in picks]

    def wrap(self, field: Tensor) -> Tensor:
        """Copy both ends of every ring into the halo at the other end, in place."""
        for low, first, last, high in self._ends(field):
            low.copy_(last)
            high.copy_(first)
        return field

    def clear(self, field: Tensor) -> Tensor:
        """Zero the halo of every ring, in place."""
        for low, _, _, high in self._ends(field):
            low.zero_()
            high.zero_()
        return field

    def fold(self, field: Tensor) -> Tensor:
        """Transpose of `wrap`: add the halo of every ring to the nodes it stands for."""
        for low, first, last, high in self._ends(field):
            last.add_(low)
            first.add_(high)
        return self.clear(field)


class Network:
    """M resistor networks on one grid: conductances to neighbours and leaks to ground.

    ``edges[offset]`` at p is the conductance between p and p + offset, for half of the offsets.
    Currents are conductances times differences of potentials; the matrix, whose diagonal would
    drown small leaks in rounding, is never formed.
    """

    def __init__(self, grid: Grid, edges: dict[Offset, Tensor], leak: Tensor):
        self.grid = grid
        self.edges = edges
        self.leak = leak

    def pick(self, rows: Tensor) -> Network:
        """Some of the networks."""
        edges = {offset: conductance[rows] for offset, conductance in self.edges.items()}
        return Network(self.grid, edges, self.leak[rows])

    def subtract_currents(self, source: Tensor, potential: Tensor) -> Tensor:
        """``source -= A potential``, in place; wraps the halo of `potential`."""
        self.grid.wrap(potential)
        source.addcmul_(self.leak, potential, value=-1)
        v, s = potential.view(-1), source.view(-1)
        for offset, conductance in self.edges.items():
            k = self.grid.distance(offset)
            current = torch.sub(v[k:], v[:-k]).mul_(conductance.view(-1)[:-k])
            s[:-k].add_(current)
            s[k:].sub_(current)
        return self.grid.clear(source)

    def ties(self) -> Tensor:
        """Sum of the magnitudes of every node's conductances to its neighbours."""
        total = self.grid.new(self.leak)
        flat = total.view(-1)
        for offset, conductance in self.edges.items():
            k = self.grid.distance(offset)
            magnitude = conductance.view(-1)[:-k].abs()
            flat[:-k].add_(magnitude)
            flat[k:].add_(magnitude)
        return self.grid.clear(total)

    def toward(self, offset: Offset, start: Sequence[int], *where: Sequence[int]) -> Tensor | None:
        """Conductances of the nodes of a view (see `Grid.view`) to their neighbours at `offset`."""
        if offset in self.edges:
            return self.grid.view(self.edges[offset], start, *where)
        back = tuple(-o for o in offset)
        if back not in self.edges:
            return None
        shifted = [i + o for i, o in zip(start, offset, strict=True)]
        return self.grid.view(self.edges[back], shifted, *where)
