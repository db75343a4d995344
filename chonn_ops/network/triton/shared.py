# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: conjugate gradients on networks that many programs share, with one kernel a step.

Program (part, network) processes its part of the network's nodes. It stores its part of a sum in
`sums` (6, networks, parts), and the programs of the next kernel add up the parts in a fixed order.
A network whose `running` is 0 does not change any more.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.network.triton.cycle import (
    apply,
    deviation_of,
    do_step,
    do_steps,
    dot,
    level_of,
    update,
    update_direction,
)
from chonn_ops.network.triton.level import POTENTIAL, node_count, slot

# Index into `sums`: Ap . z, p . Ap, p . r, r . r, max |alpha p|, max |v|; the source of the finest
# level is r.
AP_Z = tl.constexpr(0)
P_AP = tl.constexpr(1)
P_R = tl.constexpr(2)
R_R = tl.constexpr(3)
TERM = tl.constexpr(4)
LARGEST = tl.constexpr(5)


@triton.jit
def _at(sums, which, network, networks, parts):
    return sums + (which * networks + network) * parts


@triton.jit
def _total(sums, which, network, networks, parts, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    at = _at(sums, which, network, networks, parts) + part
    return tl.sum(tl.load(at, mask=part < parts, other=0.0), 0)


@triton.jit
def _most(sums, which, network, networks, parts, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    at = _at(sums, which, network, networks, parts) + part
    return tl.max(tl.load(at, mask=part < parts, other=0.0), 0)


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
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One step of a cycle, shared by all programs of a network."""
    network = tl.program_id(1)
    if tl.load(running + network) != 0:
        do_step(
            *(what, index, fields, factors, table, network, networks),
            *(tl.program_id(0), tl.num_programs(0), END, PERIODIC, BLOCK, ROWS, COLUMNS),
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
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Steps first .. last - 1 of a cycle on small levels, by one program for each network."""
    network = tl.program_id(0)
    if tl.load(running + network) != 0:
        do_steps(
            *(first, last, schedule, fields, factors, table, network, networks),
            *(END, PERIODIC, BLOCK, ROWS, COLUMNS),
        )


@triton.jit(do_not_specialize=("networks",))
def share_dot(fields, table, Ap, sums, running, networks, BLOCK: tl.constexpr, REAL: tl.constexpr):
    """Store this part of Ap . z."""
    part, parts, network = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    if tl.load(running + network) != 0:
        level = level_of(fields, table, 0, network, networks)
        nodes = node_count(level)
        Ap += network.to(tl.int64) * nodes
        value = dot(Ap, slot(level, POTENTIAL), nodes, part, parts, BLOCK, REAL)
        tl.store(_at(sums, AP_Z, network, networks, parts) + part, value)


@triton.jit(do_not_specialize=("networks",))
def share_direction(
    fields, table, p, sums, running, networks, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """``p = z + beta p``, the next search direction."""
    part, parts, network = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    if tl.load(running + network) != 0:
        level = level_of(fields, table, 0, network, networks)
        nodes = node_count(level)
        pAp = _total(sums, P_AP, network, networks, parts, PARTS)
        beta = -_total(sums, AP_Z, network, networks, parts, PARTS) / pAp
        p += network.to(tl.int64) * nodes
        update_direction(p, slot(level, POTENTIAL), beta, nodes, part, parts, BLOCK)


@triton.jit(do_not_specialize=("networks",))
def share_apply(
    fields,
    table,
    p,
    Ap,
    sums,
    running,
    networks,
    END: tl.constexpr,
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
    REAL: tl.constexpr,
):
    """``Ap = A p``; store this part of p . Ap and of p . r."""
    part, parts, network = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    if tl.load(running + network) != 0:
        level = level_of(fields, table, 0, network, networks)
        first = network.to(tl.int64) * node_count(level)
        pAp, pr = apply(level, p + first, Ap + first, part, parts, END, PERIODIC, BLOCK, REAL)
        tl.store(_at(sums, P_AP, network, networks, parts) + part, pAp)
        tl.store(_at(sums, P_R, network, networks, parts) + part, pr)


@triton.jit(do_not_specialize=("networks",))
def share_update(
    fields,
    table,
    p,
    Ap,
    v,
    sums,
    running,
    networks,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    REAL: tl.constexpr,
):
    """``v += alpha p`` and ``r -= alpha Ap``; store this part of r . r, max |alpha p|, max |v|."""
    part, parts, network = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    if tl.load(running + network) != 0:
        pAp = _total(sums, P_AP, network, networks, parts, PARTS)
        if pAp > 0:
            level = level_of(fields, table, 0, network, networks)
            first = network.to(tl.int64) * node_count(level)
            alpha = _total(sums, P_R, network, networks, parts, PARTS) / pAp
            vectors = (p + first, Ap + first, v + first)
            rr, term, largest = update(
                level, vectors[0], vectors[1], vectors[2], alpha, part, parts, BLOCK, REAL
            )
            tl.store(_at(sums, R_R, network, networks, parts) + part, rr)
            tl.store(_at(sums, TERM, network, networks, parts) + part, term)
            tl.store(_at(sums, LARGEST, network, networks, parts) + part, largest)


@triton.jit(do_not_specialize=("networks", "parts"))
def stop_converged(
    whole, rule, iterations, running, sums, tol, networks, parts, PARTS: tl.constexpr
):
    """Stop the networks that have converged.

    `whole` has the squared norms of the sources; `rule` (3, networks) the deviations of
    `chonn_ops.network.stopping`, and the last iteration's terms and ratios.
    """
    network = tl.program_id(0)
    if tl.load(running + network) != 0:
        pAp = _total(sums, P_AP, network, networks, parts, PARTS)
        if pAp > 0:
            deviation = rule + network
            last_term = deviation + networks
            last_ratio = last_term + networks
            term = _most(sums, TERM, network, networks, parts, PARTS)
            now, ratio = deviation_of(
                _total(sums, R_R, network, networks, parts, PARTS),
                tl.load(whole + network),
                term,
                _most(sums, LARGEST, network, networks, parts, PARTS),
                tl.load(last_term),
                tl.load(last_ratio),
            )
            tl.store(deviation, now)
            tl.store(last_term, term)
            tl.store(last_ratio, ratio)
            tl.store(iterations + network, tl.load(iterations + network) + 1)
            tl.store(running + network, tl.where(now > tol, 1, 0))
        else:  # stop: p A p <= 0 by rounding, or by a part of the network without leak
            tl.store(running + network, 0)
