"""Grids with a halo of one node.

A field of M networks is one contiguous tensor (M, n_1 + 2, ..., n_d + 2). The neighbour at an
offset is the same shift of the flattened field for all nodes of all networks, in any dimension: a
shift beyond the end of a row reads the halo. Periodic axes copy their ends into the halo. Other
axes have no edges across their faces and zeros in the halo.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

Offset = tuple[int, ...]


def along(axis: int, axes: int) -> Offset:
    """The offset of the next node along an axis."""
    return tuple(int(other == axis) for other in range(axes))


def half_offsets(axes: Sequence[bool]) -> list[Offset]:
    """Offsets to half of the neighbours; the others are their negatives.

    Offsets along an axis are 0 where `axes` is False.
    """
    steps = product(*((-1, 0, 1) if axis else (0,) for axis in axes))
    return [step for step in steps if step > (0,) * len(axes)]


class HaloGrid:
    """Sizes (n_1, ..., n_d) of a grid, and which of its axes are periodic."""

    def __init__(self, sizes: Sequence[int], periodic: Sequence[bool]):
        self.sizes = tuple(sizes)
        self.periodic = tuple(periodic)
        self.padded = tuple(n + 2 for n in self.sizes)
        self.nodes = 1
        self._strides = [1]
        for n in reversed(self.sizes):
            self.nodes *= n
            self._strides.insert(0, self._strides[0] * (n + 2))
        self._whole = (slice(None), *(slice(1, n + 1) for n in self.sizes))

    def new(self, like: Tensor) -> Tensor:
        """A field of zeros for as many networks as `like` has."""
        return like.new_zeros((like.shape[0], *self.padded))

    def pad(self, values: Tensor) -> Tensor:
        """A field with the values (M, n_1, ..., n_d) inside a halo of zeros."""
        field = self.new(values)
        self.inside(field).copy_(values)
        return field

    def inside(self, field: Tensor) -> Tensor:
        """View of a field without its halo, (M, n_1, ..., n_d)."""
        return field[self._whole]

    def distance(self, offset: Offset) -> int:
        """The shift of the flattened field that reads the neighbour at `offset`."""
        return sum(o * stride for o, stride in zip(offset, self._strides[1:], strict=True))

    def span(self, offset: Offset) -> int:
        """An upper bound of the row-major distance between a node and its neighbour at `offset`."""
        if any(o and closed for o, closed in zip(offset, self.periodic, strict=True)):
            return self.nodes
        distance, stride = 0, self.nodes
        for o, n in zip(offset, self.sizes, strict=True):
            stride //= n
            distance += o * stride
        return distance

    def view(
        self, field: Tensor, start: Sequence[int], step: Sequence[int], count: Sequence[int]
    ) -> Tensor:
        """View of every `step`-th node from `start` on; a start of -1 is in the halo."""
        each = zip(start, step, count, strict=True)
        return field[(slice(None), *(slice(i + 1, i + 1 + s * n, s) for i, s, n in each))]

    def _ends(self, field: Tensor) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Views of low halo, first node, last node and high halo of every periodic axis."""
        picks = [
            tuple(field.select(axis + 1, i) for i in (0, 1, n, n + 1))
            for axis, n in enumerate(self.sizes)
            if self.periodic[axis]
        ]
        return [(low, first, last, high) for low, first, last, high in picks]

    def wrap(self, field: Tensor) -> Tensor:
        """Copy both ends of every periodic axis into the halo at the other end, in place."""
        for low, first, last, high in self._ends(field):
            low.copy_(last)
            high.copy_(first)
        return field

    def clear(self, field: Tensor) -> Tensor:
        """Zero the halo of every periodic axis, in place."""
        for low, _, _, high in self._ends(field):
            low.zero_()
            high.zero_()
        return field

    def fold(self, field: Tensor) -> Tensor:
        """Transpose of `wrap`: add the halo of periodic axes to the nodes that it copies."""
        for low, first, last, high in self._ends(field):
            last.add_(low)
            first.add_(high)
        return self.clear(field)


class Network:
    """M resistor networks on one grid: conductances to neighbours and leaks to ground.

    ``edges[offset]`` at p is the conductance between p and p + offset, for half of the offsets.
    Currents are computed from differences of potentials. The matrix is never formed, because the
    rounding of its diagonal would lose small leaks.
    """

    def __init__(self, grid: HaloGrid, edges: dict[Offset, Tensor], leak: Tensor):
        self.grid = grid
        self.edges = edges
        self.leak = leak

    def pick(self, rows: Tensor) -> Network:
        """The networks at `rows`."""
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

    def edge_sums(self) -> Tensor:
        """The sum of the magnitudes of each node's conductances to its neighbours."""
        total = self.grid.new(self.leak)
        flat = total.view(-1)
        for offset, conductance in self.edges.items():
            k = self.grid.distance(offset)
            magnitude = conductance.view(-1)[:-k].abs()
            flat[:-k].add_(magnitude)
            flat[k:].add_(magnitude)
        return self.grid.clear(total)

    def toward(self, offset: Offset, start: Sequence[int], *where: Sequence[int]) -> Tensor | None:
        """Conductances from the nodes of a `HaloGrid.view` to their neighbours at `offset`."""
        if offset in self.edges:
            return self.grid.view(self.edges[offset], start, *where)
        back = tuple(-o for o in offset)
        if back not in self.edges:
            return None
        shifted = [i + o for i, o in zip(start, offset, strict=True)]
        return self.grid.view(self.edges[back], shifted, *where)
