"""From a network to one of fewer nodes: the interpolation of black-box multigrid, in edge form.

Coarse nodes are the even ones along the axes that are coarsened. A node between them takes the
mean of its neighbours' potentials, weighted by its conductances to them; steps along the axes on
which it is even, or that are not coarsened, count as staying where they are. Weights sum to one:
a constant potential is a constant potential on every level.

A fine edge g between nodes of weights P and Q over the corners a of a coarse cell adds
``-g (P_a - Q_a) (P_b - Q_b)`` to the conductance between a and b, and a leak is shared out by the
weights. So every level is a network again: edges in series follow the series law, rows side by
side add up, and no level loses leak.

Source: Dendy, Black box multigrid, J. Comput. Phys. 48 (1982) 366; the edge form is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import torch
from torch import Tensor

from chonn_ops.network._halo import Grid, Network, Offset, half_offsets

# Which axes a node is odd on, and a corner of its coarse cell.
Corner = tuple[int, ...]


def _corners(odd: Offset) -> Iterator[Corner]:
    return product(*((0, 1) if bit else (0,) for bit in odd))


class Transfer:
    """Interpolation from a coarse grid to a fine one, and its transpose."""

    def __init__(self, network: Network, axes: Sequence[bool]):
        self.axes = tuple(axes)
        self.fine = fine = network.grid
        halves = [(n + 1) // 2 if axis else n for n, axis in zip(fine.sizes, axes, strict=True)]
        self.coarse = Grid(halves, fine.ring)
        self.step = tuple(2 if axis else 1 for axis in axes)
        # Fewest odd axes first: the others build on them.
        self.classes = sorted(product(*((0, 1) if axis else (0,) for axis in axes)), key=sum)
        self.weights: dict[tuple[Offset, Corner], Tensor] = {}
        tied = network.ties() > 0
        for odd in self.classes[1:]:
            self._weigh(network, odd, tied)
            self._wrap_weights(odd)

    def _count(self, odd: Offset) -> list[int]:
        each = zip(self.fine.sizes, odd, self.step, strict=True)
        return [(n - bit + s - 1) // s for n, bit, s in each]

    def fine_view(self, field: Tensor, odd: Offset) -> Tensor:
        """Fine nodes that are odd along those axes."""
        return self.fine.view(field, odd, self.step, self._count(odd))

    def coarse_view(self, field: Tensor, odd: Offset, shift: Sequence[int]) -> Tensor:
        """The corners at `shift` of the cells of those nodes."""
        return self.coarse.view(field, shift, (1,) * len(odd), self._count(odd))

    def weight(
        self, odd: Offset, corner: Corner, nodes: Offset, shift: Sequence[int]
    ) -> Tensor | float:
        """Weights at `corner` of nodes odd along `odd`, where the cells are those of `nodes`."""
        if not any(odd):
            return 1.0
        return self.coarse_view(self.weights[odd, corner], nodes, shift)

    def _weigh(self, network: Network, odd: Offset, tied: Tensor) -> None:
        count = self._count(odd)
        steps: dict[Offset, Tensor] = {}
        for offset in product((-1, 0, 1), repeat=len(odd)):
            step = tuple(o * bit for o, bit in zip(offset, odd, strict=True))
            ties = network.toward(offset, odd, self.step, count) if any(step) else None
            if ties is not None:
                steps[step] = steps[step] + ties if step in steps else ties
        steps = {step: ties.clamp(min=0) for step, ties in steps.items()}
        total = torch.stack(list(steps.values())).sum(0)
        # A node with edges, but none along its odd axes: all neighbours there count alike.
        alike = self.fine_view(tied, odd) & (total == 0)
        exists = self.fine.wrap(self._ones(network.leak))
        for axis, bit in enumerate(odd):
            for way in (-1, 1) if bit else ():
                step = tuple(way * (other == axis) for other in range(len(odd)))
                start = [i + o for i, o in zip(odd, step, strict=True)]
                there = alike * self.fine.view(exists, start, self.step, count)
                steps[step] = steps[step] + there if step in steps else there
                total = total + there
        share = torch.where(total > 0, total.reciprocal(), 0)
        for corner in _corners(odd):
            self.weights[odd, corner] = self.coarse.new(network.leak)
        for step, ties in steps.items():
            rest = tuple(bit * (o == 0) for bit, o in zip(odd, step, strict=True))
            shift = [int(o > 0) for o in step]
            for corner in _corners(rest):
                target = tuple(a + b for a, b in zip(corner, shift, strict=True))
                known = self.weight(rest, corner, odd, shift)
                into = self.coarse_view(self.weights[odd, target], odd, (0,) * len(odd))
                into.add_(ties * share * known)

    def _ones(self, like: Tensor) -> Tensor:
        ones = self.fine.new(like[:1])
        self.fine.inside(ones).fill_(1)
        return ones

    def _wrap_weights(self, odd: Offset) -> None:
        """Weights of nodes beyond the seam of a ring, as seen from the cells before it."""
        for corner in _corners(odd):
            self.coarse.wrap(self.weights[odd, corner])
        for axis, bit in enumerate(odd):
            if not (bit and self.fine.ring[axis] and self.fine.sizes[axis] % 2):
                continue
            # Around an odd ring two coarse nodes are neighbours: the last one's neighbour is in
            # the place of an odd node, and is the first node, which is coarse.
            last = self.coarse.sizes[axis]
            even = tuple(bit * (other != axis) for other, bit in enumerate(odd))
            for corner in _corners(odd):
                ends = self.weights[odd, corner]
                other = tuple(c * (i != axis) for i, c in enumerate(corner))
                for here, there, side in ((last, 1, 1), (0, last, 0)):
                    end = ends.select(axis + 1, here)
                    if corner[axis] != side:
                        end.zero_()
                    elif any(even):
                        end.copy_(self.weights[even, other].select(axis + 1, there))
                    else:
                        end.fill_(1)

    def interpolate(self, coarse: Tensor, fine: Tensor) -> None:
        """``fine += P coarse``; wraps the halo of `coarse`."""
        self.coarse.wrap(coarse)
        zero = self.classes[0]
        self.fine_view(fine, zero).add_(self.coarse_view(coarse, zero, zero))
        for (odd, corner), weight in self.weights.items():
            share = self.coarse_view(weight, odd, zero)
            self.fine_view(fine, odd).addcmul_(share, self.coarse_view(coarse, odd, corner))

    def restrict(self, fine: Tensor) -> Tensor:
        """``P^T fine``."""
        coarse = self.coarse.new(fine)
        zero = self.classes[0]
        self.coarse_view(coarse, zero, zero).copy_(self.fine_view(fine, zero))
        for (odd, corner), weight in self.weights.items():
            share = self.coarse_view(weight, odd, zero)
            self.coarse_view(coarse, odd, corner).addcmul_(share, self.fine_view(fine, odd))
        return self.coarse.fold(coarse)


def _difference(transfer: Transfer, odd: Offset, offset: Offset) -> dict[Corner, Tensor | float]:
    """Weights of nodes less those of their neighbours at `offset`, by corner of the cell."""
    zero = (0,) * len(odd)
    delta = {corner: transfer.weight(odd, corner, odd, zero) for corner in _corners(odd)}
    reached = [bit + o for bit, o in zip(odd, offset, strict=True)]
    shift = [at // s for at, s in zip(reached, transfer.step, strict=True)]
    other = tuple(at % s for at, s in zip(reached, transfer.step, strict=True))
    for corner in _corners(other):
        there = transfer.weight(other, corner, odd, shift)
        at = tuple(c + i for c, i in zip(corner, shift, strict=True))
        delta[at] = delta.get(at, 0.0) - there
    return delta


def coarsen(network: Network, axes: Sequence[bool]) -> tuple[Transfer, Network]:
    """The network of every other node along `axes`, and the transfer to and from it."""
    transfer = Transfer(network, axes)
    grid = transfer.coarse
    edges = {offset: grid.new(network.leak) for offset in half_offsets([n > 1 for n in grid.sizes])}
    for offset, conductance in network.edges.items():
        for odd in transfer.classes:
            fine = transfer.fine_view(conductance, odd)
            delta = _difference(transfer, odd, offset)
            for a, b in combinations(sorted(delta), 2):
                step = tuple(j - i for i, j in zip(a, b, strict=True))
                # Sorted corners: the step is one of the half that is kept.
                if step in edges:
                    into = transfer.coarse_view(edges[step], odd, a)
                    into.sub_(fine * delta[a] * delta[b])
    for edge in edges.values():
        grid.wrap(grid.fold(edge))
    return transfer, Network(grid, edges, transfer.restrict(network.leak))
