"""What the networks should take on an H200, from bytes and launches. Expected, never measured.

Two ways, as the backend has them. Where a network with its coarse levels fits into the memory of
one processor, one launch solves all: the inputs come in once, the potentials go out once, and
iterations move their fields through the processor's own memory. Elsewhere every pass over a level
is a launch, and moves its fields through the memory of the card.
"""

from __future__ import annotations

import math
from typing import Any

from _networks import Case, unavoidable_bytes

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
