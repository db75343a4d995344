# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: conjugate gradients on networks too large for a program of their own, kernel by kernel.

Program (part, network) does its part of the network's nodes. Sums over a network are left a number
a part in `sums` (4, networks, parts), and added up by whoever needs them in the next kernel, always
in the same order. A network that has stopped (`running` is 0) is left alone.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.network.triton.cycle import (
    do_step,
    do_steps,
    dot,
    draw,
    level_of,
    turn_way,
    walk,
)
from chonn_ops.network.triton.level import POTENTIAL, node_count, slot

# Which of `sums`: drawn . z, way . drawn, way . source, source . source.
TURN = tl.constexpr(0)
POWER = tl.constexpr(1)
ALONG = tl.constexpr(2)
SQUARE = tl.constexpr(3)


@triton.jit
def _at(sums, which, network, networks, parts):
    return sums + (which * networks + network) * parts


@triton.jit
def _total(sums, which, network, networks, parts, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    at = _at(sums, which, network, networks, parts) + part
    return tl.sum(tl.load(at, mask=part < parts, other=0.0), 0)


@triton.jit(do_not_specialize=("what", "index", "networks"))
def share_step(
    what,
    index,
    fields,
    factors,
    table,
    running,
    networks,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One step of a cycle."""
    network = tl.program_id(1)
    if tl.load(running + network) != 0:
        do_step(
            *(what, index, fields, factors, table, network, networks),
            *(tl.program_id(0), tl.num_programs(0), END, RINGS, BLOCK, ROWS, COLUMNS),
        )


@triton.jit(do_not_specialize=("first", "last", "networks"))
def take_steps(
    first,
    last,
    schedule,
    fields,
    factors,
    table,
    running,
    networks,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Steps first .. last - 1 of a cycle, on levels small enough for one program a network."""
    network = tl.program_id(0)
    if tl.load(running + network) != 0:
        do_steps(
            *(first, last, schedule, fields, factors, table, network, networks),
            *(END, RINGS, BLOCK, ROWS, COLUMNS),
        )


@triton.jit(do_not_specialize=("networks",))
def share_dot(
    fields, table, drawn, sums, running, networks, BLOCK: tl.constexpr, REAL: tl.constexpr
):
    """A part of what turns the direction: currents drawn, times what a cycle gave."""
    part, parts, network = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    if tl.load(running + network) != 0:
        level = level_of(fields, table, 0, network, networks)
        nodes = node_count(level)
        drawn += network.to(tl.int64) * nodes
        value = dot(drawn, slot(level, POTENTIAL), nodes, part, parts, BLOCK, REAL)
        tl.store(_at(sums, TURN, network, networks, parts) + part, value)


@triton.jit(do_not_specialize=("networks",))
def share_turn(
    fields, table, way, sums, running, networks, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """The next direction of conjugate gradients."""
    part, parts, network = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    if tl.load(running + network) != 0:
        level = level_of(fields, table, 0, network, networks)
        nodes = node_count(level)
        power = _total(sums, POWER, network, networks, parts, PARTS)
        turn = -_total(sums, TURN, network, networks, parts, PARTS) / power
        way += network.to(tl.int64) * nodes
        turn_way(way, slot(level, POTENTIAL), turn, nodes, part, parts, BLOCK)


@triton.jit(do_not_specialize=("networks",))
def share_draw(
    fields,
    table,
    way,
    drawn,
    sums,
    running,
    networks,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
    REAL: tl.constexpr,
):
    """Currents that the direction draws, and its products with them."""
    part, parts, network = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    if tl.load(running + network) != 0:
        level = level_of(fields, table, 0, network, networks)
        first = network.to(tl.int64) * node_count(level)
        power, along = draw(level, way + first, drawn + first, part, parts, END, RINGS, BLOCK, REAL)
        tl.store(_at(sums, POWER, network, networks, parts) + part, power)
        tl.store(_at(sums, ALONG, network, networks, parts) + part, along)


@triton.jit(do_not_specialize=("networks",))
def share_walk(
    fields,
    table,
    way,
    drawn,
    v,
    sums,
    running,
    networks,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    REAL: tl.constexpr,
):
    """A step along the direction, and a part of the square of what is left."""
    part, parts, network = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    if tl.load(running + network) != 0:
        power = _total(sums, POWER, network, networks, parts, PARTS)
        if power > 0:
            level = level_of(fields, table, 0, network, networks)
            first = network.to(tl.int64) * node_count(level)
            length = _total(sums, ALONG, network, networks, parts, PARTS) / power
            ways = (way + first, drawn + first, v + first)
            square = walk(level, ways[0], ways[1], ways[2], length, part, parts, BLOCK, REAL)
            tl.store(_at(sums, SQUARE, network, networks, parts) + part, square)


@triton.jit(do_not_specialize=("networks", "parts"))
def settle(whole, square, iterations, running, sums, tol, networks, parts, PARTS: tl.constexpr):
    """After an iteration: which networks go on. `whole`: the squares of the sources."""
    network = tl.program_id(0)
    if tl.load(running + network) != 0:
        power = _total(sums, POWER, network, networks, parts, PARTS)
        if power > 0:
            now = _total(sums, SQUARE, network, networks, parts, PARTS)
            enough = tol * tol * tl.load(whole + network)
            tl.store(square + network, now)
            tl.store(iterations + network, tl.load(iterations + network) + 1)
            tl.store(running + network, tl.where(now > enough, 1, 0))
        else:  # no further: rounding, or a part of the network without leak
            tl.store(running + network, 0)
