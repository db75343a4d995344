"""Resistor networks on CUDA by Triton: the hierarchy of the PyTorch backend, its loops as kernels.

Lines are eliminated and hierarchies of coarser networks are made by PyTorch, as in
`chonn_ops.network._torch`. What is done in every iteration is Triton's: `_triton_cycle`.

Runs on CPU tensors too under ``TRITON_INTERPRET=1``, slowly, which is how the tests check it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from chonn_ops.network import _torch, _triton_cycle
from chonn_ops.network._halo import Network
from chonn_ops.network._multigrid import Multigrid
from chonn_ops.network._triton_level import EDGES, LEAK, SCALE, SOURCE

# Kernels take what no Python type says.
solve_alone: Any = _triton_cycle.solve_alone

_BLOCK = 1024  # nodes at once
_TILE = 4096  # entries of the coarsest level's factors at once


def _power_of_two(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def _three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Of a plane, as of a space whose first axis has one node."""
    return (*(fill,) * (3 - len(values)), *values)


def _schedule(levels: int) -> tuple[tuple[int, int], ...]:
    """The steps of one cycle: what, and on which level; the last level is eliminated."""

    def visit(level: int, first: int) -> list[tuple[int, int]]:
        if level == levels - 1:
            return [(5, level)]
        before = [(0, level)] if first else [(2, level), (1, level)]
        below = visit(level + 1, 1)
        if level + 1 < levels - 1:
            below += visit(level + 1, 0)
        return [*before, (2, level), (3, level), *below, (4, level), (2, level), (1, level)]

    return tuple(visit(0, 1))


@lru_cache(64)
def _numbers(rows: tuple[tuple[int, ...], ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers for kernels, kept: copying them to the device would not go into a CUDA graph."""
    return torch.tensor(rows, dtype=dtype, device=device)


class _Hierarchy:
    """The levels of a hierarchy in one block of memory, as kernels find them."""

    def __init__(self, network: Network, cycle: Multigrid):
        networks = network.leak.shape[0]
        planar = len(network.grid.sizes) == 2
        self.levels = [level for level, _, _ in cycle.levels] + [cycle.coarsest]
        self.end = 18 if planar else 27
        self.rings = sum(2**i * r for i, r in enumerate(reversed(network.grid.ring)))
        rows, total = [], 0
        for index, level in enumerate(self.levels):
            grid = level.grid
            start = total
            edges = len(grid.sizes) if index == 0 else self.end - 14
            weights, step = 0, (1,) * len(grid.sizes)
            total += (EDGES.value + edges) * networks * grid.nodes
            if index < len(cycle.levels):
                transfer = cycle.levels[index][2]
                weights, step = total, transfer.step
                total += (3 ** len(grid.sizes) - 1) * networks * transfer.coarse.nodes
            rows.append((start, weights, *_three(grid.sizes, 1), *_three(step, 1)))
        self.fields = network.leak.new_zeros(total)
        for index, (level, row) in enumerate(zip(self.levels, rows, strict=True)):
            self._fill(level, index == 0, row[0])
            if index < len(cycle.levels):
                _, scale, transfer = cycle.levels[index]
                self._slot(level, row[0], SCALE.value).copy_(level.grid.inside(scale))
                for (odd, corner), weight in transfer.weights.items():
                    code = 0
                    for bit, at in zip(odd, corner, strict=True):
                        code = 3 * code + bit + at
                    coarse = self.levels[index + 1]
                    into = self._slot(coarse, row[1], code - 1)
                    into.copy_(transfer.coarse.inside(weight))
        self.factors = cycle.factors.contiguous()
        device = network.leak.device
        self.table = _numbers(tuple(rows), torch.int64, device)
        steps = _schedule(len(self.levels))
        self.steps = len(steps)
        self.schedule = _numbers(steps, torch.int32, device)

    def _slot(self, level: Network, start: int, index: int) -> Tensor:
        grid = level.grid
        networks = level.leak.shape[0]
        size = networks * grid.nodes
        return self.fields[start + index * size :][:size].view(networks, *grid.sizes)

    def _fill(self, level: Network, finest: bool, start: int) -> None:
        grid = level.grid
        self._slot(level, start, LEAK.value).copy_(grid.inside(level.leak))
        for offset, conductance in level.edges.items():
            o0, o1, o2 = _three(offset, 0)
            code = 9 * (o0 + 1) + 3 * (o1 + 1) + o2 + 1
            index = (code - 12) // 4 if finest else code - 14
            into = self._slot(level, start, EDGES.value + index)
            into.copy_(grid.inside(conductance))

    def finest(self, index: int) -> Tensor:
        return self._slot(self.levels[0], 0, index)

    def constants(self) -> dict[str, Any]:
        columns = _power_of_two(self.levels[-1].grid.nodes)
        wide = self.fields.dtype == torch.float64
        return {
            "END": self.end,
            "RINGS": self.rings,
            "BLOCK": min(_BLOCK, max(16, _power_of_two(self.levels[0].grid.nodes))),
            "ROWS": max(1, min(columns, _TILE // columns)),
            "COLUMNS": columns,
            "REAL": tl.float64 if wide else tl.float32,
        }


def conjugate_gradients(
    network: Network, cycle: Multigrid, source: Tensor, tol: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials, iterations and relative residuals of networks."""
    grid = network.grid
    hierarchy = _Hierarchy(network, cycle)
    hierarchy.finest(SOURCE.value).copy_(grid.inside(source))
    networks = source.shape[0]
    shape = (networks, *grid.sizes)
    way, drawn = source.new_zeros(shape), source.new_zeros(shape)
    v = source.new_zeros(shape, dtype=torch.float64)
    iterations = source.new_empty(networks, dtype=torch.int32)
    residual = source.new_empty(networks)
    with torch.cuda.device_of(source):
        solve_alone[(networks,)](
            *(hierarchy.fields, hierarchy.factors, hierarchy.table, hierarchy.schedule),
            *(hierarchy.steps, way, drawn, v, iterations, residual),
            *(tol, max_iterations, networks),
            **hierarchy.constants(),
        )
    return grid.pad(v.to(source.dtype)), iterations, residual


def solve(
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    ring: tuple[bool, ...],
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials (B, \\*grid, C), iterations and relative residuals (B, C), see `_op`."""
    return _torch.solve(
        source, conductance, leak, ring, tol, max_iterations, iterate=conjugate_gradients
    )
