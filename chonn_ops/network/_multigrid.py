"""One cycle of multigrid on resistor networks: the preconditioner of the PyTorch backend."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.network._coarsen import Transfer, coarsen
from chonn_ops.network._elimination import inverse, reciprocal
from chonn_ops.network._halo import Network

# Grids of at most so many nodes are solved by elimination.
BOTTOM = 64


def _axes(network: Network, lead: list[int]) -> list[bool]:
    """Axes to coarsen: those that lead by most, of those that can be; one leads no longer then."""
    grid = network.grid
    can = [n > 2 or (n == 2 and not ring) for n, ring in zip(grid.sizes, grid.ring, strict=True)]
    most = max(k for k, ok in zip(lead, can, strict=True) if ok)
    axes = [ok and k == most for k, ok in zip(lead, can, strict=True)]
    for axis, chosen in enumerate(axes):
        lead[axis] -= chosen
    least = min(lead)
    lead[:] = [k - least for k in lead]
    return axes


class Multigrid:
    """Symmetric cycles over networks that get smaller by half along their best conducting axes."""

    def __init__(self, network: Network, lead: Sequence[int], *, degree: int = 2, cycles: int = 2, fraction=0.25, bottom=None):
        self.degree, self.cycles, self.fraction = degree, cycles, fraction
        bottom = BOTTOM if bottom is None else bottom
        ahead = list(lead)
        self.levels: list[tuple[Network, Tensor, Transfer]] = []
        while network.grid.nodes > bottom:
            transfer, coarse = coarsen(network, _axes(network, ahead))
            # Conductances of a coarse level may be negative; magnitudes bound the spectrum by 2.
            self.levels.append((network, reciprocal(network.ties() + network.leak), transfer))
            network = coarse
        self.bottom = network.grid
        self.inverse = inverse(network)

    def solve(self, source: Tensor) -> Tensor:
        """An approximation to the potentials of `source`, linear and symmetric in it."""
        return self._solve(source.clone(), 0)

    def _solve(self, residual: Tensor, level: int) -> Tensor:
        """Overwrites `residual`."""
        if level == len(self.levels):
            potential = self.bottom.new(residual)
            flat = self.bottom.inside(residual).flatten(1)
            flat = (self.inverse @ flat[:, :, None]).view(-1, *self.bottom.sizes)
            self.bottom.inside(potential).copy_(flat)
            return potential
        network, _, transfer = self.levels[level]
        potential = network.grid.new(residual)
        self._smooth(level, residual, potential)
        coarse = transfer.restrict(residual)
        last = level + 1 == len(self.levels)
        correction = self._solve(coarse.clone(), level + 1)
        if not last:
            for _ in range(1, self.cycles):
                self.levels[level + 1][0].subtract_currents(coarse, correction)
                correction += self._solve(coarse.clone(), level + 1)
        step = network.grid.new(residual)
        transfer.interpolate(correction, step)
        potential += step
        network.subtract_currents(residual, step)
        self._smooth(level, residual, potential, last=True)
        return potential

    def _smooth(self, level: int, residual: Tensor, potential: Tensor, last: bool = False) -> None:
        """Chebyshev iteration on the upper part of the spectrum; updates both."""
        network, weight, _ = self.levels[level]
        high, low = 2.0, 2.0 * self.fraction
        centre, radius = (high + low) / 2, (high - low) / 2
        rate = radius / centre
        step = residual * weight / centre
        for k in range(self.degree):
            potential += step
            if last and k + 1 == self.degree:
                break
            network.subtract_currents(residual, step)
            if k + 1 < self.degree:
                new = 1 / (2 * centre / radius - rate)
                step.mul_(rate * new).addcmul_(residual, weight, value=2 * new / radius)
                rate = new
