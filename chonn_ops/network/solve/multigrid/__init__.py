"""A multigrid cycle over resistor networks: the preconditioner of the PyTorch backend.

Every level is a network made by `coarsen`. The cycle is a W-cycle, because a V-cycle converges
slowly where inclusions are smaller than the spacing of a coarse grid. For the same reason the
coarsest network, which is eliminated without a subtraction as `chonn_ops.network.direct.torch`
says, has as many as 2 sqrt(N) nodes.

The smoother is two steps of Chebyshev iteration, which computes the residuals of all nodes at once;
Gauss-Seidel would process 2^d colours one after the other. The table gives the iterations to a
relative residual of 1e-5 on 64 x 64 nodes, with a W-cycle down to 64 nodes:

=====================================  =========  ===========  ============
contrast, pattern                      1 step     **2 steps**  Gauss-Seidel
=====================================  =========  ===========  ============
100, inclusions of 8 x 8 / 3 x 3       6 / 7      4 / 5        5 / 6
10,000, inclusions of 8 x 8 / 3 x 3    6 / 14     4 / 10       5 / 12
100 / 10,000, thresholded random field 7 / 8      5 / 6        6 / 7
100 / 10,000, every node on its own    15 / 100+  10 / 79      13 / 98
=====================================  =========  ===========  ============

The solutions of the last row have no approximation on a grid of every other node: at contrast
10,000 each cluster of good conductors has its own potential.

Aggregation, as the compiled kernel has it, is a third of this code. With this smoother it took 16
and 69 iterations where this takes 6 and 8 (128 x 128 nodes, thresholded random field, contrast 100
and 10,000), and four times as long in the second case. In volumes of 24 nodes a side it took 6 to
19 for 5 to 13, and was 2 to 4 times faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.network.solve.halo import Network, along
from chonn_ops.network.solve.multigrid.coarsen import Transfer, coarsen

_CYCLES = 2
_MOST_LEAD = 20
_STEPS = 2
# The smoother damps the interval 1.25 +- 0.75 of the scaled matrix' spectrum, which ends at 2.
CENTRE, RADIUS = 1.25, 0.75


def reciprocal(total: Tensor) -> Tensor:
    """1 / t, or 0 where t is 0: a node without edges and leak has the potential 0."""
    return torch.where(total > 0, total.reciprocal(), 0)


def inverse_factors(network: Network) -> Tensor:
    """W (M, N, N) with ``W^T W = A^-1``, for small networks of N nodes in row-major order.

    Multiplying by W and then by its transpose keeps the digits of sources that sum to zero. A
    product with A^-1 would lose them, because a small leak adds a large constant to all entries of
    A^-1.
    """
    grid = network.grid
    leak = grid.inside(network.leak).flatten(1).clone()
    g = leak.new_zeros(leak.shape[0], grid.nodes, grid.nodes)
    nodes = torch.arange(grid.nodes, device=leak.device).reshape(grid.sizes)
    axes = tuple(range(nodes.ndim))
    for offset, conductance in network.edges.items():
        # Every axis is rolled: across the faces of an axis that is not periodic g is 0.
        neighbours = nodes.roll([-o for o in offset], axes).flatten()
        g[:, nodes.flatten(), neighbours] += grid.inside(conductance).flatten(1)
    g += g.mT.clone()
    # The bandwidth of the matrix, which elimination does not increase.
    reach = max((grid.span(offset) for offset in network.edges), default=0)
    factor = torch.zeros_like(g)
    totals = leak.clone()
    for k in range(grid.nodes):
        ahead = slice(k + 1, k + 1 + reach)
        edges = g[:, k, ahead]
        total = leak[:, k] + edges.sum(1)
        # A total of rounding size: the node is the last one of a part without leak.
        total = torch.where(total > torch.finfo(g.dtype).eps * edges.abs().sum(1), total, 0)
        totals[:, k] = total
        share = edges * reciprocal(total)[:, None]
        g[:, ahead, ahead].addcmul_(edges[:, :, None], share[:, None, :])
        leak[:, ahead].addcmul_(share, leak[:, k, None])
        factor[:, ahead, k] = share.neg_()
    one = torch.eye(grid.nodes, dtype=g.dtype, device=g.device)
    lower = torch.linalg.solve_triangular(factor, one, upper=False, unitriangular=True)
    return lower.mul_(reciprocal(totals).sqrt()[:, :, None])


def _bottom(nodes: int) -> int:
    """The most nodes of the coarsest grid.

    The factors of its matrix have the square of this number of entries, so that they take the
    memory of a few fields of the finest grid.
    """
    return max(128, 2 * math.isqrt(nodes))


def _axes(network: Network, lead: list[int]) -> list[bool]:
    """Whether to halve each axis next: those with the largest lead; updates `lead`."""
    grid = network.grid
    can = [
        n > 2 or (n == 2 and not periodic)
        for n, periodic in zip(grid.sizes, grid.periodic, strict=True)
    ]
    most = max(ahead for ahead, ok in zip(lead, can, strict=True) if ok)
    axes = [ok and ahead == most for ahead, ok in zip(lead, can, strict=True)]
    if any(ok and not chosen for ok, chosen in zip(can, axes, strict=True)):
        lead[:] = [ahead - chosen for ahead, chosen in zip(lead, axes, strict=True)]
    return axes


class Multigrid:
    """Multigrid cycles for M networks on one grid, `network`, the finest level. `lead` says for
    each axis how often it is halved before the axes with a smaller lead, see `lead_of_axes`."""

    def __init__(self, network: Network, lead: Sequence[int]):
        self.levels: list[tuple[Network, Tensor, Transfer]] = []
        ahead, bottom = list(lead), _bottom(network.grid.nodes)
        while network.grid.nodes > bottom:
            transfer, coarse = coarsen(network, _axes(network, ahead))
            # Coarse edges may be negative. With their magnitudes the spectrum ends at 2.
            scale = reciprocal(network.edge_sums().add_(network.leak))
            self.levels.append((network, scale, transfer))
            network = coarse
        self.coarsest = network
        self.factors = inverse_factors(network)

    def solve(self, source: Tensor) -> Tensor:
        """Approximate potentials of `source`: linear, symmetric and positive definite in it."""
        return self._cycle(source.clone(), 0)

    def _eliminate(self, source: Tensor) -> Tensor:
        grid = self.coarsest.grid
        values = grid.inside(source).flatten(1)[:, :, None]
        values = self.factors.mT @ (self.factors @ values)
        return grid.pad(values.view(-1, *grid.sizes))

    def _cycle(self, residual: Tensor, level: int) -> Tensor:
        """Approximate potentials by one cycle from a level downwards; overwrites `residual`."""
        if level == len(self.levels):
            return self._eliminate(residual)
        network, _, transfer = self.levels[level]
        potential = self._smooth(level, residual, update=True)
        step = network.grid.new(residual)
        transfer.prolong(self._coarse_correction(transfer.restrict(residual), level + 1), step)
        network.subtract_currents(residual, step)
        return potential.add_(step).add_(self._smooth(level, residual, update=False))

    def _coarse_correction(self, residual: Tensor, level: int) -> Tensor:
        """Approximate potentials of a coarse level by `_CYCLES` cycles."""
        potential = self._cycle(residual.clone(), level)
        for _ in range(1, _CYCLES if level < len(self.levels) else 1):
            network = self.levels[level][0]
            r = network.subtract_currents(residual.clone(), potential)
            potential += self._cycle(r, level)
        return potential

    def _smooth(self, level: int, residual: Tensor, *, update: bool) -> Tensor:
        """Potentials after `_STEPS` steps of Chebyshev iteration from zero.

        With `update`, `residual` is that of the result; otherwise it lacks the last step.
        """
        network, scale, _ = self.levels[level]
        step = (residual * scale).div_(CENTRE)
        potential = step.clone()
        rate = RADIUS / CENTRE
        for _ in range(1, _STEPS):
            network.subtract_currents(residual, step)
            faster = 1 / (2 * CENTRE / RADIUS - rate)
            step.mul_(rate * faster).addcmul_(residual, scale, value=2 * faster / RADIUS)
            rate = faster
            potential += step
        if update:
            network.subtract_currents(residual, step)
        return potential


def lead_of_axes(network: Network) -> Tensor:
    """How often to halve an axis alone before all axes conduct alike, shape (M, axes).

    Halving an axis halves its conductances and doubles those of the other axes, a factor of 4. The
    smoother is effective only along axes that conduct about as well as the best one.
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
