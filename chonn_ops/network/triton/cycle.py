# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: multigrid cycles, and conjugate gradients that they precondition.

A cycle is a list of steps (kind, level) in memory. A program that solves a network alone runs the
list with a barrier after each step, within a loop of conjugate gradients, until the network meets
the rule of `chonn_ops.network.stopping`; the host does not take part. Many programs share the large
levels of few networks, with one kernel a step, and one program a network runs the steps of the
smaller levels.

`table` has a row of ROW numbers for each level: the offset of its fields, the offset of its
weights, its three sizes, and for each axis 2 if the next level halves it, else 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.network.stopping import ALLOWED, LEAST, MOST
from chonn_ops.network.triton.level import (
    POTENTIAL,
    SOURCE,
    currents,
    eliminate,
    node_count,
    prolong,
    restrict,
    slot,
    smooth,
    subtract,
)

ROW = tl.constexpr(8)
_LEAST, _MOST, _ALLOWED = tl.constexpr(LEAST), tl.constexpr(MOST), tl.constexpr(ALLOWED)
SMOOTH = tl.constexpr(0)
SMOOTH_AGAIN = tl.constexpr(1)
SUBTRACT = tl.constexpr(2)
RESTRICT = tl.constexpr(3)
PROLONG = tl.constexpr(4)
ELIMINATE = tl.constexpr(5)


@triton.jit
def level_of(fields, table, index, network, networks):
    """A level of one network by its index: start and stride of its fields, and its sizes."""
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
    PERIODIC: tl.constexpr,
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
            subtract(level, part, parts, True, END, PERIODIC, BLOCK)
        else:
            subtract(level, part, parts, False, END, PERIODIC, BLOCK)
    elif what <= SMOOTH_AGAIN:
        again = what == SMOOTH_AGAIN
        if index == 0:
            smooth(level, part, parts, again, True, END, PERIODIC, BLOCK)
        else:
            smooth(level, part, parts, again, False, END, PERIODIC, BLOCK)
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
            restrict(level, coarse, steps, weights, part, parts, END, PERIODIC, BLOCK)
        else:
            prolong(level, coarse, steps, weights, part, parts, END, PERIODIC, BLOCK)


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
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Steps first .. last - 1 of a cycle, run by one program."""
    for i in range(first, last):
        what, index = tl.load(schedule + 2 * i), tl.load(schedule + 2 * i + 1)
        do_step(
            *(what, index, fields, factors, table, network, networks, 0, 1),
            *(END, PERIODIC, BLOCK, ROWS, COLUMNS),
        )
        tl.debug_barrier()


@triton.jit
def dot(a, b, nodes, part, parts, BLOCK: tl.constexpr, REAL: tl.constexpr):
    """This part's sum of the scalar product of two fields."""
    total = tl.zeros((BLOCK,), REAL)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        node = block * BLOCK + tl.arange(0, BLOCK)
        inside = node < nodes
        x = tl.load(a + node, mask=inside, other=0.0)
        total += x * tl.load(b + node, mask=inside, other=0.0)
    return tl.sum(total, 0)


@triton.jit
def update_direction(p, z, beta, nodes, part, parts, BLOCK: tl.constexpr):
    """``p = z + beta * p``."""
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        node = block * BLOCK + tl.arange(0, BLOCK)
        inside = node < nodes
        new = tl.load(z + node, mask=inside, other=0.0)
        new += beta * tl.load(p + node, mask=inside, other=0.0)
        tl.store(p + node, new, mask=inside)


@triton.jit
def apply(
    level,
    p,
    Ap,
    part,
    parts,
    END: tl.constexpr,
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
    REAL: tl.constexpr,
):
    """``Ap = A p``; returns p . Ap and p . source."""
    pAp, pr = tl.zeros((BLOCK,), REAL), tl.zeros((BLOCK,), REAL)
    nodes = node_count(level)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        node = block * BLOCK + tl.arange(0, BLOCK)
        inside = node < nodes
        out, here = currents(level, p, node, False, True, END, PERIODIC)
        tl.store(Ap + node, out, mask=inside)
        pAp += here * out
        pr += here * tl.load(slot(level, SOURCE) + node, mask=inside, other=0.0)
    return tl.sum(pAp, 0), tl.sum(pr, 0)


@triton.jit
def update(level, p, Ap, v, alpha, part, parts, BLOCK: tl.constexpr, REAL: tl.constexpr):
    """``v += alpha p``, ``source -= alpha Ap``.

    Returns source . source, max |alpha p| and max |v|.
    """
    rr, most, largest = tl.zeros((BLOCK,), REAL), tl.zeros((BLOCK,), REAL), tl.zeros((BLOCK,), REAL)
    nodes = node_count(level)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        node = block * BLOCK + tl.arange(0, BLOCK)
        inside = node < nodes
        step = alpha * tl.load(p + node, mask=inside, other=0.0)
        ahead = tl.load(v + node, mask=inside, other=0.0) + step.to(tl.float64)
        tl.store(v + node, ahead, mask=inside)
        most = tl.maximum(most, tl.abs(step))
        largest = tl.maximum(largest, tl.abs(ahead).to(REAL))
        r = tl.load(slot(level, SOURCE) + node, mask=inside, other=0.0)
        r -= alpha * tl.load(Ap + node, mask=inside, other=0.0)
        tl.store(slot(level, SOURCE) + node, r, mask=inside)
        rr += r * r
    return tl.sum(rr, 0), tl.max(most, 0), tl.max(largest, 0)


@triton.jit
def deviation_of(rr, whole, term, largest, last_term, last_ratio):
    """The deviation of `chonn_ops.network.stopping`, and this iteration's ratio of terms."""
    ratio = tl.where(last_term > 0, term / last_term, 0.0)
    q = tl.minimum(tl.maximum(tl.maximum(ratio, last_ratio), _LEAST), _MOST)
    error = term * q / ((1 - q) * _ALLOWED * largest)
    residual = tl.sqrt(rr / whole)
    # A NaN of either stays.
    deviation = tl.where((residual > error) | (residual != residual), residual, error)
    return tl.where(rr == 0, 0.0, deviation), ratio


@triton.jit(do_not_specialize=("steps", "max_iterations", "networks"))
def solve_alone(
    fields,
    factors,
    table,
    schedule,
    steps,
    p,
    Ap,
    v,
    iterations,
    deviation,
    tol,
    max_iterations,
    networks,
    END: tl.constexpr,
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    REAL: tl.constexpr,
):
    """Conjugate gradients with one program for each network."""
    network = tl.program_id(0)
    level = level_of(fields, table, 0, network, networks)
    nodes = node_count(level)
    first = network.to(tl.int64) * nodes
    p, Ap, v = p + first, Ap + first, v + first
    source, z = slot(level, SOURCE), slot(level, POTENTIAL)
    whole = dot(source, source, nodes, 0, 1, BLOCK, REAL)
    pAp = whole * 0 + 1
    last_term, last_ratio = pAp * float("inf"), whole * 0
    left, done, running = tl.where(whole > 0, pAp, 0.0), 0, whole > 0
    while (done < max_iterations) & running:
        do_steps(
            *(0, steps, schedule, fields, factors, table, network, networks),
            *(END, PERIODIC, BLOCK, ROWS, COLUMNS),
        )
        beta = -dot(Ap, z, nodes, 0, 1, BLOCK, REAL) / pAp
        update_direction(p, z, beta, nodes, 0, 1, BLOCK)
        tl.debug_barrier()
        pAp, pr = apply(level, p, Ap, 0, 1, END, PERIODIC, BLOCK, REAL)
        tl.debug_barrier()
        if pAp > 0:
            alpha = pr / pAp
            rr, term, largest = update(level, p, Ap, v, alpha, 0, 1, BLOCK, REAL)
            left, last_ratio = deviation_of(rr, whole, term, largest, last_term, last_ratio)
            last_term = term
            running = left > tol
            done += 1
        else:  # stop: p A p <= 0 by rounding, or by a part of the network without leak
            running = pAp > 0
        tl.debug_barrier()
    tl.store(iterations + network, done)
    tl.store(deviation + network, left)
