"""`CHONNNetwork2d` with one thing changed, for `neuralop_darcy.py`; widths level parameters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from chonn_ops import (
    CHONNNetwork2d,
    CKBOptions,
    NetworkCell,
    kirchhoff_network,
)
from chonn_ops.experiments._steady_controls import NoCell
from chonn_ops.network._conductance import end_walls

UNIT_GATE = 1.2784645427610738  # SiLU of it is 1
CG_STEPS = 12


class _Changed(NetworkCell):
    """A cell whose networks are built as ever and solved in another way."""

    def forward(
        self, u: Tensor, spacing: list[float] | None = None, mask: Tensor | None = None
    ) -> Tensor:
        assert mask is None
        k, leak, source = self.coefficients(u)
        assert spacing is not None
        steps = [self._unit * step for step in spacing]
        volume = math.prod(steps)
        return self.solve(k, leak * volume, source * (self._gain * volume), steps)

    def solve(self, k: Tensor, leak: Tensor, source: Tensor, steps: list[float]) -> Tensor:
        raise NotImplementedError

    def walls(self, k: Tensor, steps: list[float], axes: tuple[bool, bool]) -> Tensor:
        return end_walls(k, steps, list(axes), self._margins(k), self._distances)


class Lines(_Changed):
    """Every row and every column a line of its own, as scans have them; the mean of both."""

    def solve(self, k: Tensor, leak: Tensor, source: Tensor, steps: list[float]) -> Tensor:
        g = tuple(self.edges(k, steps))
        none = torch.zeros_like(k)
        rows = leak + self.walls(k, steps, (True, False))
        columns = leak + self.walls(k, steps, (False, True))
        along = kirchhoff_network(source, (g[0], none), rows, tol=self.tol)
        return (along + kirchhoff_network(source, (none, g[1]), columns, tol=self.tol)) / 2


class FewSteps(_Changed):
    """Twelve steps of conjugate gradients with Jacobi's preconditioner in place of the solve."""

    def solve(self, k: Tensor, leak: Tensor, source: Tensor, steps: list[float]) -> Tensor:
        g = tuple(self.edges(k, steps))
        leak = leak + self.walls(k, steps, (True, True))
        diagonal = leak + sum(e + e.roll(1, axis + 1) for axis, e in enumerate(g))

        def apply(v: Tensor) -> Tensor:
            product = diagonal * v
            for axis, e in enumerate(g):
                product = product - e * v.roll(-1, axis + 1) - (e * v).roll(1, axis + 1)
            return product

        def dot(a: Tensor, b: Tensor) -> Tensor:
            return (a * b).sum((1, 2), keepdim=True)

        v, residual = torch.zeros_like(source), source
        direction = z = residual / diagonal
        for _ in range(CG_STEPS):
            product = apply(direction)
            before = dot(residual, z)
            step = before / dot(direction, product).clamp_min(1e-30)
            v, residual = v + step * direction, residual - step * product
            z = residual / diagonal
            direction = z + dot(residual, z) / before.clamp_min(1e-30) * direction
        return v


def network(width: int = 24, depth: int = 2, coordinates: bool = True, **ckb: Any) -> nn.Module:
    """For neuralop's files, whose points lie at i / n."""
    options = CKBOptions(cell="network", nodes="left", **ckb)
    return CHONNNetwork2d(width=width, depth=depth, coordinates=coordinates, ckb=options)


def _with_cells(kind: Callable[..., nn.Module], width: int = 24) -> nn.Module:
    model = network(width)
    for block in model.blocks:
        block.cells = nn.ModuleList(
            kind(cell.dim, cell.networks, nodes=cell.nodes) for cell in block.cells
        )
    return model


def _without_gate() -> nn.Module:
    model = network()

    def ungated(inner: int, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:  # noqa: ARG001
        gate = torch.full_like(output[..., inner:], UNIT_GATE)
        return torch.cat((output[..., :inner], gate), -1)

    for block in model.blocks:
        block.in_proj.register_forward_hook(functools.partial(ungated, block.cells[0].dim))
    return model


ABLATIONS: dict[str, Callable[[], nn.Module]] = {
    "constant conductances": lambda: network(25, selective=False),
    "lines, not planes": lambda: _with_cells(Lines),
    "12 CG steps": lambda: _with_cells(FewSteps),
    "no gate": _without_gate,
    "no cell": lambda: _with_cells(lambda dim, networks, **_: NoCell(dim, networks), width=25),
    "no coordinates": lambda: network(coordinates=False),
    "no walls": lambda: network(termination="open"),
    "short walls": lambda: network(termination="short"),
    **{f"order {n}": functools.partial(network, order=n) for n in (2, 3, 4)},
}
