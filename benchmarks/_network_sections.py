"""Sections of the network benchmark beside the peers: growth, memory, and what a GPU should take.

Growth of time, memory and iterations with nodes. Memory is resident memory above that before, in a
process of its own: buffers inside compiled code count. Exponents of its growth are fitted where it
is at least `LEAST_BYTES`: below, a page is a good part of it.

An H200's times are counted from bytes and launches: expected, never measured. Two ways, as the
backend has them. Where a network with its coarse levels fits into the memory of one processor, one
launch solves all: the inputs come in once, the potentials go out once, and iterations move their
fields through the processor's own memory. Elsewhere every pass over a level is a launch, and moves
its fields through the memory of the card.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from _harness import fresh_peak, slope
from _networks import Case, channels_last, make, unavoidable_bytes
from _peers import Bench
from _solvers import prepare_both

LEAST_BYTES = 1 << 20
# Name and cases; sixteen networks, a vector of channels.
SERIES = (
    ("1-D", tuple(Case((n,), 16) for n in (1_000, 10_000, 100_000, 1_000_000))),
    ("2-D", tuple(Case((n, n), 16) for n in (16, 32, 64, 128, 256, 512))),
    ("3-D", tuple(Case((n, n, n), 16) for n in (8, 16, 32, 64))),
)
SMOKE_SERIES = (("2-D", tuple(Case((n, n), 2) for n in (8, 16))),)
MEMORY = tuple(Case((128, 128), count) for count in (16, 64))
SMOKE_MEMORY = (Case((16, 16), 2),)
GROWN = ("forward_ms", "both_ms", "both_peak_bytes", "iterations")
MEMORY_NAMES = ("chonn-ops", "torch")  # torch-sla takes minutes a call here

BYTES_PER_S = 4.8e12  # memory of the card
PROCESSORS = 132
ON_CHIP_BYTES = 227 * 1024  # a processor's shared memory that a program can have
ON_CHIP_BYTES_PER_S = 128 * 1.98e9  # of one processor: 32 words a clock
LAUNCH_S = 2e-6  # of a kernel within a CUDA graph

# Fields of float32 that a node has: source, leak, potentials and four vectors of CG; conductances
# an axis on the finest level, 4 and 13 on the coarse ones.
VECTORS = 7
EDGES = {1: 1, 2: 4, 3: 13}
# Fields moved in a visit of a level by kind of pass: two sweeps of smoothing, the residual on the
# way down, the correction on the way up; each reads the edges, the leak and two vectors and writes
# one. Conjugate gradients moves 14 vectors and the fine edges once more in an iteration.
PASSES = 4
CG_VECTORS = 14
LAUNCHES_PER_VISIT = 6
LAUNCHES_PER_ITERATION = 4


def prepare_peak(name: str, case: Case) -> Any:
    """In another process: what the call leaves behind on the way is none of its own."""
    warnings.simplefilter("ignore")
    return prepare_both(name, make(case))


def measure_growth(bench: Bench, series: tuple[Any, ...], name: str) -> list[dict[str, Any]]:
    """A series of points each of one contender, with the exponents of growth."""
    results = []
    for label, cases in series:
        points = [point for case in cases for point in _points(bench, case, name)]
        results.append({"name": label, "points": points, "slopes": _slopes(points)})
    return results


def _points(bench: Bench, case: Case, name: str) -> list[dict[str, Any]]:
    """One, or none where the contender fails."""
    rows = bench.measure(case, names=(name,))["rows"]
    return [
        {**case.label(), **row, "both_peak_bytes": fresh_peak(prepare_peak, name, case)}
        for row in rows
    ]


def _slopes(points: list[dict[str, Any]]) -> dict[str, float]:
    found = {}
    for key in GROWN:
        kept = [p for p in points if (p.get(key) or 0) >= (LEAST_BYTES if "bytes" in key else 1e-9)]
        if len(kept) > 1:
            nodes = [torch.Size(p["grid"]).numel() for p in kept]
            found[key] = slope(nodes, [p[key] for p in kept])
    return found


def measure_memory(cases: tuple[Case, ...], names: list[str], notes: list[str]) -> list[Any]:
    """Peaks of forward and backward, beside the size of the source and of all inputs."""
    rows = []
    for case in cases:
        inputs = channels_last(make(case))
        for name in names:
            row: dict[str, Any] = {**case.label(), "name": name}
            row["source_bytes"] = inputs[0].nbytes
            try:
                row["peak_bytes"] = fresh_peak(prepare_peak, name, case)
            except Exception as failure:
                notes.append(f"{name} left out of memory: {type(failure).__name__}: {failure}")
                continue
            if row["peak_bytes"] is not None:
                row["peak_fields"] = row["peak_bytes"] / row["source_bytes"]
            rows.append(row)
    return rows


def levels(grid: tuple[int, ...]) -> list[int]:
    """Nodes of the levels, even nodes kept, down to about 8 sqrt(N)."""
    least = 8 * math.sqrt(math.prod(grid))
    found = [grid]
    while math.prod(found[-1]) > least and max(found[-1]) > 2:
        found.append(tuple(-(-size // 2) for size in found[-1]))
    return [math.prod(sizes) for sizes in found]


def expected(case: Case, iterations: int) -> dict[str, Any]:
    """Milliseconds of a forward, of it with a backward, and what they are made of."""
    axes, count = len(case.grid), case.networks
    sizes = levels(case.grid)
    visits = [2**level for level in range(len(sizes))]  # W-cycles
    stored = moved = 0.0
    for level, (nodes, often) in enumerate(zip(sizes, visits, strict=True)):
        edges = axes if level == 0 else EDGES[axes]
        stored += 4 * nodes * (VECTORS + edges)
        moved += 4 * nodes * often * PASSES * (edges + 4)
    moved += 4 * sizes[0] * (CG_VECTORS + axes)
    once = unavoidable_bytes(case)
    on_chip = stored <= ON_CHIP_BYTES
    launches = 1 if on_chip else iterations * (LAUNCHES_PER_VISIT * sum(visits[:-1])
                                               + LAUNCHES_PER_ITERATION)  # fmt: skip
    if on_chip:
        turns = -(-count // PROCESSORS)
        solve = turns * iterations * moved / ON_CHIP_BYTES_PER_S + LAUNCH_S
        forward = max(solve, once["forward"] / BYTES_PER_S)
    else:
        solve = iterations * count * moved / BYTES_PER_S
        forward = max(solve, launches * LAUNCH_S)
    rest = (once["both"] - once["forward"]) / BYTES_PER_S + LAUNCH_S
    return {
        **case.label(),
        "iterations": iterations,
        "way": "a program a network" if on_chip else "a kernel a pass",
        "launches": launches,
        "bytes_ms": once["forward"] / BYTES_PER_S * 1e3,
        "forward_ms": forward * 1e3,
        "both_ms": (2 * forward + rest) * 1e3,
    }
