"""A multigrid cycle over resistor networks: the preconditioner of the PyTorch backend.

Every level is a network of `chonn_ops.network.multigrid.coarsen`; W-cycles, because networks whose
inclusions have become smaller than a node are hard. The coarsest one is eliminated, and is not
small (2 sqrt(N) nodes) for the same reason.

Smoothing is two steps of Chebyshev iteration: it needs residuals only, for all nodes at once, where
a sweep of Gauss-Seidel walks the slices of 2^d colours one by one. Iterations to 1e-5 on 64 x 64
nodes, each with a W-cycle down to 64 nodes:

=====================================  =========  ===========  ============
contrast, pattern                      1 step     **2 steps**  Gauss-Seidel
=====================================  =========  ===========  ============
100, inclusions of 8 x 8 / 3 x 3       6 / 7      4 / 5        5 / 6
10,000, inclusions of 8 x 8 / 3 x 3    6 / 14     4 / 10       5 / 12
100 / 10,000, thresholded random field 7 / 8      5 / 6        6 / 7
100 / 10,000, every node on its own    15 / 100+  10 / 79      13 / 98
=====================================  =========  ===========  ============

The last row has what no coarse grid of every other node can hold: at 10,000 each cluster of good
conductors floats on its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.network._elimination import inverse_factors, reciprocal
from chonn_ops.network._halo import Network, along
from chonn_ops.network.multigrid.coarsen import Transfer, coarsen

_CYCLES = 2
_MOST_LEAD = 20
_STEPS = 2
# Smoothed: the upper three quarters of the spectrum of the scaled matrix, which ends at 2.
_CENTRE, _RADIUS = 1.25, 0.75


def _bottom(nodes: int) -> int:
    """Most nodes of the coarsest grid: the factors of its matrix take its square, which stays
    within a few fields of the finest grid."""
    return max(128, 2 * math.isqrt(nodes))


def _axes(network: Network, lead: list[int]) -> list[bool]:
    """The axes to halve next: of those that can be, the ones that lead; updates the leads."""
    grid = network.grid
    can = [n > 2 or (n == 2 and not ring) for n, ring in zip(grid.sizes, grid.ring, strict=True)]
    most = max(ahead for ahead, ok in zip(lead, can, strict=True) if ok)
    axes = [ok and ahead == most for ahead, ok in zip(lead, can, strict=True)]
    if any(ok and not chosen for ok, chosen in zip(can, axes, strict=True)):
        lead[:] = [ahead - chosen for ahead, chosen in zip(lead, axes, strict=True)]
    return axes


class Multigrid:
    """Cycles over M networks of one grid and the coarser networks made from them.

    Parameters
    ----------
    network : Network
        The finest level.
    lead : sequence of int
        How often each axis is halved before those that lead by less: see `lead_of_axes`.
    """

    def __init__(self, network: Network, lead: Sequence[int]):
        self.levels: list[tuple[Network, Tensor, Transfer]] = []
        ahead, bottom = list(lead), _bottom(network.grid.nodes)
        while network.grid.nodes > bottom:
            transfer, coarse = coarsen(network, _axes(network, ahead))
            # Edges of coarse levels may be negative; with magnitudes, the spectrum ends at 2.
            scale = reciprocal(network.ties().add_(network.leak))
            self.levels.append((network, scale, transfer))
            network = coarse
        self.coarsest = network
        self.factors = inverse_factors(network)

    def solve(self, source: Tensor) -> Tensor:
        """About the potentials of `source`: linear, symmetric and positive definite in it."""
        return self._solve(source.clone(), 0)

    def _eliminate(self, source: Tensor) -> Tensor:
        grid = self.coarsest.grid
        values = grid.inside(source).flatten(1)[:, :, None]
        values = self.factors.mT @ (self.factors @ values)
        return grid.pad(values.view(-1, *grid.sizes))

    def _solve(self, residual: Tensor, level: int) -> Tensor:
        """Potentials after one cycle from a level downwards; overwrites `residual`."""
        if level == len(self.levels):
            return self._eliminate(residual)
        network, _, transfer = self.levels[level]
        potential = self._smooth(level, residual, update=True)
        step = network.grid.new(residual)
        transfer.interpolate(self._correct(transfer.restrict(residual), level + 1), step)
        network.subtract_currents(residual, step)
        return potential.add_(step).add_(self._smooth(level, residual, update=False))

    def _correct(self, residual: Tensor, level: int) -> Tensor:
        """Potentials after the cycles of a coarse level."""
        potential = self._solve(residual.clone(), level)
        for _ in range(1, _CYCLES if level < len(self.levels) else 1):
            network = self.levels[level][0]
            left = network.subtract_currents(residual.clone(), potential)
            potential += self._solve(left, level)
        return potential

    def _smooth(self, level: int, residual: Tensor, *, update: bool) -> Tensor:
        """Steps of Chebyshev iteration from zero; whether `residual` is wanted after the last."""
        network, scale, _ = self.levels[level]
        step = (residual * scale).div_(_CENTRE)
        potential = step.clone()
        rate = _RADIUS / _CENTRE
        for _ in range(1, _STEPS):
            network.subtract_currents(residual, step)
            faster = 1 / (2 * _CENTRE / _RADIUS - rate)
            step.mul_(rate * faster).addcmul_(residual, scale, value=2 * faster / _RADIUS)
            rate = faster
            potential += step
        if update:
            network.subtract_currents(residual, step)
        return potential


def lead_of_axes(network: Network) -> Tensor:
    """(M, axes): how often an axis is to be halved alone until all axes conduct alike.

    Halving an axis halves its conductances and doubles those across it: a factor of 4. Smoothing
    only works along axes that conduct about as well as the best.
    """
    axes = len(network.grid.sizes)
    levels = []
    for axis in range(axes):
        g = network.grid.inside(network.edges[along(axis, axes)]).flatten(1)
        edges = (g > 0).sum(1)
        mean = torch.where(g > 0, g.log2(), 0).sum(1) / edges
        levels.append(torch.where(edges > 0, mean, -math.inf))
    level = torch.stack(levels, 1)
    lead = (level - level.amin(1, keepdim=True)).nan_to_num(nan=0) / 2
    return lead.clamp(max=_MOST_LEAD).round().int()
