"""Resistor networks on CUDA by Triton: the hierarchy of the PyTorch backend, its loops as kernels.

Lines are eliminated and hierarchies of coarser networks are made by PyTorch, as in
`chonn_ops.network.torch`; iterations, and so their number, are the same. What is done in each of
them is Triton's. Networks of up to 64 x 64 nodes get a program each, which iterates until its own
residual is small (`cycle`). Larger ones are shared by many programs, a kernel a step
(`shared`); there the host looks every fourth iteration whether any network goes on.

In a CUDA graph nothing is looked at: large networks take the launches of `max_iterations`
iterations, in which those that have stopped do nothing, and all axes are halved together, which
costs iterations where one conducts much better than another. Call once before recording: kernels
are compiled and numbers copied to the device by the first call.

What to expect, counted and not measured: an iteration on a plane moves about 90 values a node, with
all levels. In float32 at 5 iterations 400 networks of 64 x 64 nodes move 2.9 GB, mostly within the
second-level cache: below 1 ms. At 6 iterations 32 networks of 256 x 256 move 4.5 GB: 1.3 ms on an
H200, and 26 launches an iteration. The hierarchy costs more than that: PyTorch launches about 2400
kernels for a plane of 64 x 64 nodes, 6200 for one of 256 x 256 and 12800 for 32 x 32 x 32, most of
them for the factors of the coarsest level: 10 to 60 ms, unless replayed from a CUDA graph.

Runs on CPU tensors too under ``TRITON_INTERPRET=1``, slowly, which is how the tests check it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from chonn_ops.network import torch as on_torch
from chonn_ops.network._halo import Network
from chonn_ops.network.multigrid import Multigrid
from chonn_ops.network.triton import cycle, shared
from chonn_ops.network.triton.cycle import (
    ELIMINATE,
    INTERPOLATE,
    RESTRICT,
    SMOOTH,
    SMOOTH_AGAIN,
    SUBTRACT,
)
from chonn_ops.network.triton.level import EDGES, LEAK, SCALE, SOURCE

# Kernels take what no Python type says.
solve_alone: Any = cycle.solve_alone
share_step: Any = shared.share_step
take_steps: Any = shared.take_steps
share_dot: Any = shared.share_dot
share_turn: Any = shared.share_turn
share_draw: Any = shared.share_draw
share_walk: Any = shared.share_walk
settle: Any = shared.settle

_BLOCK = 1024  # nodes at once
_PARTS = 1024  # most programs a network
_NODES_ALONE = 64 * 64  # about what a processor's cache holds of a network, in float32
_TILE = 4096  # entries of the coarsest level's factors at once


def _power_of_two(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def _three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Of a plane, as of a space whose first axis has one node."""
    return (*(fill,) * (3 - len(values)), *values)


def _schedule(levels: int) -> tuple[tuple[int, int], ...]:
    """The steps of one cycle: what, and on which level; the last level is eliminated."""

    def visit(level: int, first: bool) -> list[tuple[int, int]]:
        if level == levels - 1:
            return [(ELIMINATE.value, level)]
        again = [(SUBTRACT.value, level), (SMOOTH_AGAIN.value, level)]
        below = visit(level + 1, True)
        if level + 1 < levels - 1:
            below += visit(level + 1, False)
        return [
            *([(SMOOTH.value, level)] if first else again),
            *((SUBTRACT.value, level), (RESTRICT.value, level)),
            *below,
            (INTERPOLATE.value, level),
            *again,
        ]

    return tuple(visit(0, True))


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
        self.cycle = _schedule(len(self.levels))
        self.schedule = _numbers(self.cycle, torch.int32, device)

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
            "num_warps": 8,
            "enable_fp_fusion": True,
        }


def _runs(hierarchy: _Hierarchy) -> list[tuple[int, int]]:
    """Steps of a cycle, from and to, that one program a network takes, or many if it is one on a
    level of more than `_NODES_ALONE` nodes."""
    large = [level.grid.nodes > _NODES_ALONE for level in hierarchy.levels]
    runs: list[tuple[int, int]] = []
    together = False
    for i, (what, level) in enumerate(hierarchy.cycle):
        alone = what == ELIMINATE.value or not large[level]
        if alone and together:
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((i, i + 1))
        together = alone
    return runs


def _solve_shared(
    hierarchy: _Hierarchy, vectors: tuple[Tensor, Tensor, Tensor], tol: float, max_iterations: int
) -> tuple[Tensor, Tensor]:
    """Iterations and residuals; a kernel a step, on large levels many programs a network."""
    way, drawn, v = vectors
    networks = way.shape[0]
    constants = hierarchy.constants()
    step = {name: constants[name] for name in ("END", "RINGS", "BLOCK", "ROWS", "COLUMNS")}
    options = {name: constants[name] for name in ("num_warps", "enable_fp_fusion")}
    shape, sums_of = {"END": hierarchy.end, "RINGS": hierarchy.rings}, {"REAL": constants["REAL"]}
    block = {"BLOCK": constants["BLOCK"], **options}
    nodes = hierarchy.levels[0].grid.nodes
    parts = min(_PARTS, -(-nodes // constants["BLOCK"]))
    PARTS = {"PARTS": _power_of_two(parts)}
    whole = hierarchy.finest(SOURCE.value).flatten(1).square().sum(1)
    square = whole.clone()
    running = (whole * (1 - tol * tol) > 0).int()
    iterations = torch.zeros_like(running)
    sums = whole.new_ones(4, networks, parts)
    of_cycle = (hierarchy.fields, hierarchy.factors, hierarchy.table, running, networks)
    of_level = (hierarchy.fields, hierarchy.table)
    runs = _runs(hierarchy)
    recording = on_torch.recording(way)
    for k in range(max_iterations):
        if k % 4 == 0 and not recording and not running.any():
            break
        for first, last in runs:
            what, level = hierarchy.cycle[first]
            size = hierarchy.levels[level].grid.nodes
            if what == ELIMINATE.value or size <= _NODES_ALONE:
                take_steps[(networks,)](
                    first, last, hierarchy.schedule, *of_cycle, **step, **options
                )
            else:
                grid = (min(_PARTS, -(-size // constants["BLOCK"])), networks)
                share_step[grid](what, level, *of_cycle, **step, **options)
        grid, state = (parts, networks), (sums, running, networks)
        share_dot[grid](*of_level, drawn, *state, **sums_of, **block)
        share_turn[grid](*of_level, way, *state, **PARTS, **block)
        share_draw[grid](*of_level, way, drawn, *state, **shape, **sums_of, **block)
        share_walk[grid](*of_level, way, drawn, v, *state, **PARTS, **sums_of, **block)
        settle[(networks,)](
            whole, square, iterations, running, sums, tol, networks, parts, **PARTS, **options
        )
    return iterations, (square / torch.where(whole > 0, whole, 1)).sqrt()


def _solve_alone(
    hierarchy: _Hierarchy, vectors: tuple[Tensor, Tensor, Tensor], tol: float, max_iterations: int
) -> tuple[Tensor, Tensor]:
    """Iterations and residuals; one kernel, a program a network."""
    networks = vectors[0].shape[0]
    iterations = vectors[0].new_empty(networks, dtype=torch.int32)
    residual = vectors[0].new_empty(networks)
    solve_alone[(networks,)](
        *(hierarchy.fields, hierarchy.factors, hierarchy.table, hierarchy.schedule),
        *(len(hierarchy.cycle), *vectors, iterations, residual, tol, max_iterations, networks),
        **hierarchy.constants(),
    )
    return iterations, residual


def conjugate_gradients(
    network: Network, cycle: Multigrid, source: Tensor, tol: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials, iterations and relative residuals, as those of the PyTorch backend."""
    grid = network.grid
    with torch.cuda.device_of(source):
        hierarchy = _Hierarchy(network, cycle)
        hierarchy.finest(SOURCE.value).copy_(grid.inside(source))
        shape = (source.shape[0], *grid.sizes)
        # Rounded once, at the end: rounding at every step adds up to residuals above `tol`.
        v = source.new_zeros(shape, dtype=torch.float64)
        vectors = (source.new_zeros(shape), source.new_zeros(shape), v)
        solve = _solve_alone if grid.nodes <= _NODES_ALONE else _solve_shared
        iterations, residual = solve(hierarchy, vectors, tol, max_iterations)
    return grid.pad(v.to(source.dtype)), iterations, residual


def solve(
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    ring: tuple[bool, ...],
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials (B, \\*grid, C), iterations and relative residuals (B, C), see `operator`."""
    return on_torch.solve(
        source, conductance, leak, ring, tol, max_iterations, iterate=conjugate_gradients
    )
