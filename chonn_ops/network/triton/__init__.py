"""Resistor networks on CUDA by Triton: the hierarchy of the PyTorch backend, iterated by kernels.

PyTorch eliminates lines and builds the hierarchy of coarser networks, as in
`chonn_ops.network.torch`. Triton runs the same iterations. One program solves a network of up to
64 x 64 nodes and iterates until it has converged (`cycle`). Many programs share a
larger network, with one kernel for each step (`shared`); the host checks every fourth iteration
whether any network is still running.

During the recording of a CUDA graph the host checks nothing. Large networks launch the kernels of
`max_iterations` iterations, which do nothing for converged networks. All axes are halved together,
which costs iterations where one axis conducts much better than another. Call the operator once
before recording, because the first call compiles kernels and copies constants to the device.

These costs are counted, not measured. An iteration on a plane moves about 90 values a node over all
levels. In float32, 5 iterations of 400 networks of 64 x 64 nodes move 2.9 GB, mostly within the
second-level cache, which takes less than 1 ms. 6 iterations of 32 networks of 256 x 256 nodes move
4.5 GB, which takes 1.3 ms on an H200, with 26 launches an iteration. The hierarchy costs more:
PyTorch launches about 2400 kernels for 64 x 64 nodes, 6200 for 256 x 256 and 12800 for
32 x 32 x 32, most of them for the factors of the coarsest level. They take 10 to 60 ms, unless a
CUDA graph replays them.

Under ``TRITON_INTERPRET=1`` the backend also takes CPU tensors; it is slow, and serves the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chonn_ops.network import torch as on_torch
from chonn_ops.network.grid import Network
from chonn_ops.network.multigrid import Multigrid
from chonn_ops.network.triton import cycle, shared
from chonn_ops.network.triton.cycle import (
    ELIMINATE,
    PROLONG,
    RESTRICT,
    SMOOTH,
    SMOOTH_AGAIN,
    SUBTRACT,
)
from chonn_ops.network.triton.level import EDGES, LEAK, SCALE, SOURCE

# Triton kernels have no Python types.
solve_alone: Any = cycle.solve_alone
share_step: Any = shared.share_step
take_steps: Any = shared.take_steps
share_dot: Any = shared.share_dot
share_direction: Any = shared.share_direction
share_apply: Any = shared.share_apply
share_update: Any = shared.share_update
stop_converged: Any = shared.stop_converged

_BLOCK = 1024  # nodes that a program processes at once
_PARTS = 1024  # the most programs that share a network
_NODES_ALONE = 64 * 64  # one network's fields of this size about fill a processor's cache
_TILE = 4096  # entries of the coarsest level's factors that a program loads at once


def _three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Pad the values of 1 or 2 axes in front, as for a grid whose first axes have one node."""
    return (*(fill,) * (3 - len(values)), *values)


def _schedule(levels: int) -> tuple[tuple[int, int], ...]:
    """The steps of one cycle, each a pair (kind, level); the last level is eliminated."""

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
            (PROLONG.value, level),
            *again,
        ]

    return tuple(visit(0, True))


@lru_cache(64)
def _numbers(rows: tuple[tuple[int, ...], ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Constants on the device, cached because a CUDA graph cannot record the copy."""
    return torch.tensor(rows, dtype=dtype, device=device)


class _Hierarchy:
    """The levels of a hierarchy in one block of memory, in the layout of the kernels."""

    def __init__(self, network: Network, cycle: Multigrid):
        networks = network.leak.shape[0]
        planar = len(network.grid.sizes) == 2
        self.levels = [level for level, _, _ in cycle.levels] + [cycle.coarsest]
        self.end = 18 if planar else 27
        self.periodic = sum(2**i * r for i, r in enumerate(reversed(network.grid.periodic)))
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
        columns = triton.next_power_of_2(self.levels[-1].grid.nodes)
        wide = self.fields.dtype == torch.float64
        return {
            "END": self.end,
            "PERIODIC": self.periodic,
            "BLOCK": min(_BLOCK, max(16, triton.next_power_of_2(self.levels[0].grid.nodes))),
            "ROWS": max(1, min(columns, _TILE // columns)),
            "COLUMNS": columns,
            "REAL": tl.float64 if wide else tl.float32,
            "num_warps": 8,
            "enable_fp_fusion": True,
        }


def _runs(hierarchy: _Hierarchy) -> list[tuple[int, int]]:
    """Ranges (first, last) of a cycle's steps for one kernel each.

    One program a network runs the steps of small levels together. A step on a level of more than
    `_NODES_ALONE` nodes is a range of its own, for many programs.
    """
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
    """Iterations and deviations, by one kernel a step; many programs share a large level."""
    p, Ap, v = vectors
    networks = p.shape[0]
    constants = hierarchy.constants()
    step = {name: constants[name] for name in ("END", "PERIODIC", "BLOCK", "ROWS", "COLUMNS")}
    options = {name: constants[name] for name in ("num_warps", "enable_fp_fusion")}
    shape, sums_of = (
        {"END": hierarchy.end, "PERIODIC": hierarchy.periodic},
        {"REAL": constants["REAL"]},
    )
    block = {"BLOCK": constants["BLOCK"], **options}
    nodes = hierarchy.levels[0].grid.nodes
    parts = min(_PARTS, -(-nodes // constants["BLOCK"]))
    PARTS = {"PARTS": triton.next_power_of_2(parts)}
    whole = hierarchy.finest(SOURCE.value).flatten(1).square().sum(1)
    running = (whole > 0).int()
    iterations = torch.zeros_like(running)
    rule = torch.stack([running.to(whole.dtype), torch.full_like(whole, torch.inf), 0 * whole])
    sums = whole.new_ones(6, networks, parts)
    of_cycle = (hierarchy.fields, hierarchy.factors, hierarchy.table, running, networks)
    of_level = (hierarchy.fields, hierarchy.table)
    runs = _runs(hierarchy)
    recording = on_torch.recording(p)
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
        share_dot[grid](*of_level, Ap, *state, **sums_of, **block)
        share_direction[grid](*of_level, p, *state, **PARTS, **block)
        share_apply[grid](*of_level, p, Ap, *state, **shape, **sums_of, **block)
        share_update[grid](*of_level, p, Ap, v, *state, **PARTS, **sums_of, **block)
        stop_converged[(networks,)](
            whole, rule, iterations, running, sums, tol, networks, parts, **PARTS, **options
        )
    return iterations, rule[0]


def _solve_alone(
    hierarchy: _Hierarchy, vectors: tuple[Tensor, Tensor, Tensor], tol: float, max_iterations: int
) -> tuple[Tensor, Tensor]:
    """Iterations and deviations, by one kernel with one program a network."""
    networks = vectors[0].shape[0]
    iterations = vectors[0].new_empty(networks, dtype=torch.int32)
    deviation = vectors[0].new_empty(networks)
    solve_alone[(networks,)](
        *(hierarchy.fields, hierarchy.factors, hierarchy.table, hierarchy.schedule),
        *(len(hierarchy.cycle), *vectors, iterations, deviation, tol, max_iterations, networks),
        **hierarchy.constants(),
    )
    return iterations, deviation


def conjugate_gradients(
    network: Network, cycle: Multigrid, source: Tensor, tol: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials, iterations and deviations, as in `chonn_ops.network.torch`."""
    grid = network.grid
    with torch.cuda.device_of(source):
        hierarchy = _Hierarchy(network, cycle)
        hierarchy.finest(SOURCE.value).copy_(grid.inside(source))
        shape = (source.shape[0], *grid.sizes)
        # float64, rounded once at the end: rounding every step would leave residuals above `tol`.
        v = source.new_zeros(shape, dtype=torch.float64)
        vectors = (source.new_zeros(shape), source.new_zeros(shape), v)
        solve = _solve_alone if grid.nodes <= _NODES_ALONE else _solve_shared
        iterations, deviation = solve(hierarchy, vectors, tol, max_iterations)
    return grid.pad(v.to(source.dtype)), iterations, deviation


def solve(
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    periodic: tuple[bool, ...],
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials (B, \\*grid, C), iterations and deviations (B, C), see `operator`."""
    return on_torch.solve(
        source, conductance, leak, periodic, tol, max_iterations, iterate=conjugate_gradients
    )
