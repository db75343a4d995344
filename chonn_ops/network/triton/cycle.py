# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: cycles of the multigrid and conjugate gradients around them.

A cycle is a list of steps (what to do, on which level) in memory. A program that has a network to
itself runs down the list, with a barrier after each step, and the whole iteration around it until
its residual is small: nothing is asked of the host. Large levels of few networks are shared by
many programs, a kernel a step; below, one program a network again.

`table` holds a row of ROW numbers a level: where its fields begin, where its weights begin, its
sizes, and 2 for axes the next level halves, else 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.network.triton.level import (
    POTENTIAL,
    SOURCE,
    currents,
    eliminate,
    interpolate,
    node_count,
    restrict,
    slot,
    smooth,
    subtract,
)

ROW = tl.constexpr(8)
SMOOTH = tl.constexpr(0)
SMOOTH_AGAIN = tl.constexpr(1)
SUBTRACT = tl.constexpr(2)
RESTRICT = tl.constexpr(3)
INTERPOLATE = tl.constexpr(4)
ELIMINATE = tl.constexpr(5)


@triton.jit
def level_of(fields, table, index, network, networks):
    """A level by its index, for one network: start, distance of its fields, sizes."""
    row = table + index * ROW
    n0 = tl.load(row + 2).to(tl.int32)
    n1 = tl.load(row + 3).to(tl.int32)
    n2 = tl.load(row + 4).to(tl.int32)
    nodes = n0 * n1 * n2
    start = fields + tl.load(row) + network.to(tl.int64) * nodes
    return start, networks.to(tl.int64) * nodes, n0, n1, n2


@triton.jit
def do_step(
    what,
    index,
    fields,
    factors,
    table,
    network,
    networks,
    part,
    parts,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One step of a cycle on one network's level."""
    level = level_of(fields, table, index, network, networks)
    if what == ELIMINATE:
        nodes = node_count(level)
        eliminate(level, factors + network.to(tl.int64) * nodes * nodes, ROWS, COLUMNS)
    elif what == SUBTRACT:
        if index == 0:
            subtract(level, part, parts, True, END, RINGS, BLOCK)
        else:
            subtract(level, part, parts, False, END, RINGS, BLOCK)
    elif what <= SMOOTH_AGAIN:
        again = what == SMOOTH_AGAIN
        if index == 0:
            smooth(level, part, parts, again, True, END, RINGS, BLOCK)
        else:
            smooth(level, part, parts, again, False, END, RINGS, BLOCK)
    else:
        coarse = level_of(fields, table, index + 1, network, networks)
        row = table + index * ROW
        steps = (
            tl.load(row + 5).to(tl.int32),
            tl.load(row + 6).to(tl.int32),
            tl.load(row + 7).to(tl.int32),
        )
        weights = fields + tl.load(row + 1) + network.to(tl.int64) * node_count(coarse)
        if what == RESTRICT:
            restrict(level, coarse, steps, weights, part, parts, END, RINGS, BLOCK)
        else:
            interpolate(level, coarse, steps, weights, part, parts, END, RINGS, BLOCK)


@triton.jit
def do_steps(
    first,
    last,
    schedule,
    fields,
    factors,
    table,
    network,
    networks,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Steps first .. last - 1 of a cycle, by this program alone."""
    for i in range(first, last):
        what, index = tl.load(schedule + 2 * i), tl.load(schedule + 2 * i + 1)
        do_step(
            *(what, index, fields, factors, table, network, networks, 0, 1),
            *(END, RINGS, BLOCK, ROWS, COLUMNS),
        )
        tl.debug_barrier()


@triton.jit
def dot(a, b, nodes, part, parts, BLOCK: tl.constexpr, REAL: tl.constexpr):
    """A program's part of the scalar product of two fields."""
    total = tl.zeros((BLOCK,), REAL)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        p = block * BLOCK + tl.arange(0, BLOCK)
        inside = p < nodes
        x = tl.load(a + p, mask=inside, other=0.0)
        total += x * tl.load(b + p, mask=inside, other=0.0)
    return tl.sum(total, 0)


@triton.jit
def turn_way(way, z, turn, nodes, part, parts, BLOCK: tl.constexpr):
    """``way = z + turn * way``."""
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        p = block * BLOCK + tl.arange(0, BLOCK)
        inside = p < nodes
        new = tl.load(z + p, mask=inside, other=0.0)
        new += turn * tl.load(way + p, mask=inside, other=0.0)
        tl.store(way + p, new, mask=inside)


@triton.jit
def draw(
    level,
    way,
    drawn,
    part,
    parts,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
    REAL: tl.constexpr,
):
    """``drawn = A way``; returns way . drawn and way . source."""
    power, along = tl.zeros((BLOCK,), REAL), tl.zeros((BLOCK,), REAL)
    nodes = node_count(level)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        p = block * BLOCK + tl.arange(0, BLOCK)
        inside = p < nodes
        out, here = currents(level, way, p, False, True, END, RINGS)
        tl.store(drawn + p, out, mask=inside)
        power += here * out
        along += here * tl.load(slot(level, SOURCE) + p, mask=inside, other=0.0)
    return tl.sum(power, 0), tl.sum(along, 0)


@triton.jit
def walk(level, way, drawn, v, length, part, parts, BLOCK: tl.constexpr, REAL: tl.constexpr):
    """``v += length way``, ``source -= length drawn``; returns source . source."""
    square = tl.zeros((BLOCK,), REAL)
    nodes = node_count(level)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        p = block * BLOCK + tl.arange(0, BLOCK)
        inside = p < nodes
        step = (length * tl.load(way + p, mask=inside, other=0.0)).to(tl.float64)
        tl.store(v + p, tl.load(v + p, mask=inside, other=0.0) + step, mask=inside)
        left = tl.load(slot(level, SOURCE) + p, mask=inside, other=0.0)
        left -= length * tl.load(drawn + p, mask=inside, other=0.0)
        tl.store(slot(level, SOURCE) + p, left, mask=inside)
        square += left * left
    return tl.sum(square, 0)


@triton.jit(do_not_specialize=("steps", "max_iterations", "networks"))
def solve_alone(
    fields,
    factors,
    table,
    schedule,
    steps,
    way,
    drawn,
    v,
    iterations,
    residual,
    tol,
    max_iterations,
    networks,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    REAL: tl.constexpr,
):
    """One program, one network: conjugate gradients until its residual is small."""
    network = tl.program_id(0)
    level = level_of(fields, table, 0, network, networks)
    nodes = node_count(level)
    first = network.to(tl.int64) * nodes
    way, drawn, v = way + first, drawn + first, v + first
    source, z = slot(level, SOURCE), slot(level, POTENTIAL)
    whole = dot(source, source, nodes, 0, 1, BLOCK, REAL)
    enough = tol * tol * whole
    square, power = whole, whole * 0 + 1
    done = 0
    while (done < max_iterations) & (square > enough):
        do_steps(
            *(0, steps, schedule, fields, factors, table, network, networks),
            *(END, RINGS, BLOCK, ROWS, COLUMNS),
        )
        turn = -dot(drawn, z, nodes, 0, 1, BLOCK, REAL) / power
        turn_way(way, z, turn, nodes, 0, 1, BLOCK)
        tl.debug_barrier()
        power, along = draw(level, way, drawn, 0, 1, END, RINGS, BLOCK, REAL)
        tl.debug_barrier()
        if power > 0:
            length = along / power
            square = walk(level, way, drawn, v, length, 0, 1, BLOCK, REAL)
            done += 1
        else:  # no further: rounding, or a part of the network without leak
            enough = square
        tl.debug_barrier()
    tl.store(iterations + network, done)
    tl.store(residual + network, tl.sqrt(square / tl.where(whole > 0, whole, 1.0)))
