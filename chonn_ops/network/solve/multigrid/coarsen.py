"""Coarser networks: the prolongation and restriction of black-box multigrid, in edge form.

The coarse nodes are the even nodes along the axes that are coarsened. A node between coarse nodes
gets the mean of its neighbours' potentials, weighted by its conductances to them. Edges are first
collapsed onto the axes on which the node is odd: components along other axes are ignored. The
weights of a node sum to one, so that a constant potential is constant on every level.

Let P and Q be the weights of two fine nodes over the corners a of a coarse cell. A fine edge g
between them adds ``-g (P_a - Q_a) (P_b - Q_b)`` to the conductance between a and b. The weights
also distribute a leak over the corners. Every level is therefore a network: edges in series follow
the series law, parallel edges add up, and the sum of the leaks is the same on every level.

Source: Dendy, Black box multigrid, J. Comput. Phys. 48 (1982) 366; the edge form is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import torch
from torch import Tensor

from chonn_ops.network.solve.halo import HaloGrid, Network, Offset, half_offsets

# A corner of a coarse cell: 0 or 1 along each axis.
Corner = tuple[int, ...]


def _corners(odd: Offset) -> Iterator[Corner]:
    return product(*((0, 1) if bit else (0,) for bit in odd))


class Transfer:
    """The prolongation P from a coarse grid to a fine one, and the restriction, its transpose.

    `weights[odd, corner]` is a field on the coarse grid: for the fine nodes that are odd along the
    axes `odd`, the weight of that corner of their cell.
    """

    def __init__(self, network: Network, axes: Sequence[bool]):
        self.axes = tuple(axes)
        self.fine = fine = network.grid
        halves = [(n + 1) // 2 if axis else n for n, axis in zip(fine.sizes, axes, strict=True)]
        self.coarse = HaloGrid(halves, fine.periodic)
        self.step = tuple(2 if axis else 1 for axis in axes)
        # Classes of fewer odd axes come first, because the weights of the others need theirs.
        self.classes = sorted(product(*((0, 1) if axis else (0,) for axis in axes)), key=sum)
        self.weights: dict[tuple[Offset, Corner], Tensor] = {}
        connected = network.edge_sums() > 0
        for odd in self.classes[1:]:
            self._compute_weights(network, odd, connected)
            self._wrap_weights(odd)

    def _count(self, odd: Offset) -> list[int]:
        each = zip(self.fine.sizes, odd, self.step, strict=True)
        return [(n - bit + s - 1) // s for n, bit, s in each]

    def fine_view(self, field: Tensor, odd: Offset) -> Tensor:
        """View of the fine nodes that are odd along the axes `odd` and even along the others."""
        return self.fine.view(field, odd, self.step, self._count(odd))

    def coarse_view(self, field: Tensor, odd: Offset, shift: Sequence[int]) -> Tensor:
        """View of the coarse nodes at `shift` from the cells of the fine nodes of class `odd`."""
        return self.coarse.view(field, shift, (1,) * len(odd), self._count(odd))

    def weight(
        self, odd: Offset, corner: Corner, nodes: Offset, shift: Sequence[int]
    ) -> Tensor | float:
        """Weights of class `odd` at `corner`, at `shift` from the cells of class `nodes`."""
        if not any(odd):
            return 1.0
        return self.coarse_view(self.weights[odd, corner], nodes, shift)

    def _compute_weights(self, network: Network, odd: Offset, connected: Tensor) -> None:
        """Set the weights of the fine nodes of class `odd`."""
        count = self._count(odd)
        steps: dict[Offset, Tensor] = {}
        for offset in product((-1, 0, 1), repeat=len(odd)):
            step = tuple(o * bit for o, bit in zip(offset, odd, strict=True))
            g = network.toward(offset, odd, self.step, count) if any(step) else None
            if g is not None:
                steps[step] = steps[step] + g if step in steps else g
        steps = {step: g.clamp(min=0) for step, g in steps.items()}
        total = torch.stack(list(steps.values())).sum(0)
        # A node with edges, but none along its odd axes, weights its neighbours there equally.
        alike = self.fine_view(connected, odd) & (total == 0)
        exists = self.fine.wrap(self._ones(network.leak))
        for axis, bit in enumerate(odd):
            for sign in (-1, 1) if bit else ():
                step = tuple(sign * (other == axis) for other in range(len(odd)))
                start = [i + o for i, o in zip(odd, step, strict=True)]
                there = alike * self.fine.view(exists, start, self.step, count)
                steps[step] = steps[step] + there if step in steps else there
                total = total + there
        share = torch.where(total > 0, total.reciprocal(), 0)
        for corner in _corners(odd):
            self.weights[odd, corner] = self.coarse.new(network.leak)
        for step, g in steps.items():
            rest = tuple(bit * (o == 0) for bit, o in zip(odd, step, strict=True))
            shift = [int(o > 0) for o in step]
            for corner in _corners(rest):
                target = tuple(a + b for a, b in zip(corner, shift, strict=True))
                known = self.weight(rest, corner, odd, shift)
                into = self.coarse_view(self.weights[odd, target], odd, (0,) * len(odd))
                into.add_(g * share * known)

    def _ones(self, like: Tensor) -> Tensor:
        ones = self.fine.new(like[:1])
        self.fine.inside(ones).fill_(1)
        return ones

    def _wrap_weights(self, odd: Offset) -> None:
        """Copy weights across the seam of periodic axes, into the halo of the cells before it."""
        for corner in _corners(odd):
            self.coarse.wrap(self.weights[odd, corner])
        for axis, bit in enumerate(odd):
            if not (bit and self.fine.periodic[axis] and self.fine.sizes[axis] % 2):
                continue
            # A periodic axis of odd length has two coarse nodes that are neighbours, the last and
            # the first. The first takes the place of the odd node after the last: its weights are
            # those of a coarse node.
            last = self.coarse.sizes[axis]
            even = tuple(bit * (other != axis) for other, bit in enumerate(odd))
            for corner in _corners(odd):
                face = self.weights[odd, corner]
                other = tuple(c * (i != axis) for i, c in enumerate(corner))
                for here, there, side in ((last, 1, 1), (0, last, 0)):
                    end = face.select(axis + 1, here)
                    if corner[axis] != side:
                        end.zero_()
                    elif any(even):
                        end.copy_(self.weights[even, other].select(axis + 1, there))
                    else:
                        end.fill_(1)

    def prolong(self, coarse: Tensor, fine: Tensor) -> None:
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
    """The weights of nodes minus those of their neighbours at `offset`, by corner of the cell."""
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
    """The transfer to the network of every other node along `axes`, and that network."""
    transfer = Transfer(network, axes)
    grid = transfer.coarse
    edges = {offset: grid.new(network.leak) for offset in half_offsets([n > 1 for n in grid.sizes])}
    for offset, conductance in network.edges.items():
        for odd in transfer.classes:
            fine = transfer.fine_view(conductance, odd)
            delta = _difference(transfer, odd, offset)
            for a, b in combinations(sorted(delta), 2):
                step = tuple(j - i for i, j in zip(a, b, strict=True))
                # The corners are sorted, so the step is one of `half_offsets` or 0 along an axis.
                if step in edges:
                    into = transfer.coarse_view(edges[step], odd, a)
                    into.sub_(fine * delta[a] * delta[b])
    for edge in edges.values():
        grid.wrap(grid.fold(edge))
    return transfer, Network(grid, edges, transfer.restrict(network.leak))
