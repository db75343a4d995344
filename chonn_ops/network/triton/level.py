# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: smoothing, residuals, restriction, prolongation and elimination on one multigrid level.

A level has fields of ``n0 * n1 * n2`` nodes in row-major order, with n0 = 1 on a plane. The slots
of the fields are leak, smoothing scale, potential, source and residual, followed by a conductance
for each offset to half of the neighbours. A conductance is 0 where there is no edge, so that only
periodic axes need the grid's sizes. Every function processes the blocks ``part, part + parts, ...``
of a field: with parts = 1 one program processes a whole network.

``level`` is the tuple ``(fields, stride, n0, n1, n2)``: the start of the network's fields, the
distance of two slots, and the sizes. The offset (o0, o1, o2) of a neighbour has the code
``9 (o0 + 1) + 3 (o1 + 1) + o2 + 1``; stored conductances have the codes 14 .. END - 1. With
AXES_ONLY the level has edges along the axes only, as the finest level does.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.network.multigrid import CENTRE, RADIUS

LEAK = tl.constexpr(0)
SCALE = tl.constexpr(1)
POTENTIAL = tl.constexpr(2)
SOURCE = tl.constexpr(3)
RESIDUAL = tl.constexpr(4)
EDGES = tl.constexpr(5)

# Coefficients of two steps of Chebyshev iteration, as in `multigrid`.
_CENTRE = tl.constexpr(CENTRE)
_RADIUS = tl.constexpr(RADIUS)
_RATE = tl.constexpr(RADIUS / CENTRE)
_FASTER = tl.constexpr(1 / (2 * CENTRE / RADIUS - RADIUS / CENTRE))


@triton.jit
def slot(level, index):
    """The start of a level's field by its index."""
    return level[0] + index * level[1]


@triton.jit
def node_count(level):
    """The number of nodes of a level."""
    return level[2] * level[3] * level[4]


@triton.jit
def _neighbour(
    p, level, B0: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr, PERIODIC: tl.constexpr
):
    """The index of the neighbour at the offset (B0, B1, B2).

    Where there is no neighbour, the result is the index of another node or out of range.
    """
    n0, n1, n2 = level[2], level[3], level[4]
    q = p + (B0 * n1 + B1) * n2 + B2
    if PERIODIC & 4 != 0 and B0 != 0:
        q += tl.where(p // (n1 * n2) == (n0 - 1 if B0 > 0 else 0), -B0 * n0 * n1 * n2, 0)
    if PERIODIC & 2 != 0 and B1 != 0:
        q += tl.where(p // n2 % n1 == (n1 - 1 if B1 > 0 else 0), -B1 * n1 * n2, 0)
    if PERIODIC & 1 != 0 and B2 != 0:
        q += tl.where(p % n2 == (n2 - 1 if B2 > 0 else 0), -B2 * n2, 0)
    return q


@triton.jit
def _potential(x, scale, q, inside, SCALED: tl.constexpr):
    """x at nodes q, or with SCALED the first smoothing step, scale * x / _CENTRE."""
    value = tl.load(x + q, mask=inside, other=0.0)
    if SCALED:
        value *= tl.load(scale + q, mask=inside, other=0.0) / _CENTRE
    return value


@triton.jit
def currents(
    level,
    x,
    p,
    SCALED: tl.constexpr,
    AXES_ONLY: tl.constexpr,
    END: tl.constexpr,
    PERIODIC: tl.constexpr,
):
    """The currents that leave nodes p for potentials x, and these potentials at p.

    Currents are computed from differences of potentials, because the rounding of the matrix's
    diagonal would lose small leaks.
    """
    nodes = node_count(level)
    inside = p < nodes
    scale = slot(level, SCALE)
    here = _potential(x, scale, p, inside, SCALED)
    total = tl.load(slot(level, LEAK) + p, mask=inside, other=0.0) * here
    for code in tl.static_range(14, END):
        if not AXES_ONLY or code == 14 or code == 16 or code == 22:
            edge = slot(level, EDGES + ((code - 12) // 4 if AXES_ONLY else code - 14))
            q = _neighbour(p, level, code // 9 - 1, code // 3 % 3 - 1, code % 3 - 1, PERIODIC)
            there = inside & (q >= 0) & (q < nodes)
            g = tl.load(edge + p, mask=inside, other=0.0)
            total += g * (here - _potential(x, scale, q, there, SCALED))
            q = _neighbour(p, level, 1 - code // 9, 1 - code // 3 % 3, 1 - code % 3, PERIODIC)
            there = inside & (q >= 0) & (q < nodes)
            g = tl.load(edge + q, mask=there, other=0.0)
            total += g * (here - _potential(x, scale, q, there, SCALED))
    return total, here


@triton.jit
def smooth(
    level,
    part,
    parts,
    again,
    AXES_ONLY: tl.constexpr,
    END: tl.constexpr,
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Two steps of Chebyshev iteration from zero.

    They start from SOURCE and set POTENTIAL, or with `again` start from RESIDUAL and add to
    POTENTIAL.
    """
    nodes = node_count(level)
    source = slot(level, tl.where(again, RESIDUAL, SOURCE))
    potential = slot(level, POTENTIAL)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        p = block * BLOCK + tl.arange(0, BLOCK)
        inside = p < nodes
        out, step = currents(level, source, p, True, AXES_ONLY, END, PERIODIC)
        scale = tl.load(slot(level, SCALE) + p, mask=inside, other=0.0)
        left = tl.load(source + p, mask=inside, other=0.0) - out
        before = tl.load(potential + p, mask=inside & (p >= tl.where(again, 0, nodes)), other=0.0)
        step += step * (_RATE * _FASTER) + left * scale * (2 * _FASTER / _RADIUS)
        tl.store(potential + p, before + step, mask=inside)


@triton.jit
def subtract(
    level,
    part,
    parts,
    AXES_ONLY: tl.constexpr,
    END: tl.constexpr,
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """RESIDUAL = SOURCE - A POTENTIAL."""
    nodes = node_count(level)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        p = block * BLOCK + tl.arange(0, BLOCK)
        inside = p < nodes
        out, _ = currents(level, slot(level, POTENTIAL), p, False, AXES_ONLY, END, PERIODIC)
        source = tl.load(slot(level, SOURCE) + p, mask=inside, other=0.0)
        tl.store(slot(level, RESIDUAL) + p, source - out, mask=inside)


@triton.jit
def _odds(cell, n, half, step, PERIODIC: tl.constexpr):
    """The fine nodes along one axis that have a weight at a coarse node.

    They are the even node at the same place, the odd node after it, and the odd node before it,
    which belongs to the previous cell. The result has for each the cell, the fine node, and whether
    it exists. On an axis that is not halved all nodes are even. (`end` replaces a mask of a scalar
    ``&`` a vector, which fails under the interpreter.)
    """
    end = tl.where(step == 2, n, 0)
    before = cell - 1
    if PERIODIC:
        before = tl.where(before < 0, half - 1, before)
    fine = cell * step
    last = before * step + 1
    return (
        (cell, fine, fine < n),
        (cell, fine + 1, fine + 1 < end),
        (before, last, (before >= 0) & (last < end)),
    )


@triton.jit
def restrict(
    level,
    coarse,
    steps,
    weights,
    part,
    parts,
    END: tl.constexpr,
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Set SOURCE of the coarse level to the restriction of RESIDUAL.

    The weights of `multigrid.coarsen` are fields of the coarse grid, in the order of the codes
    ``9 d0 + 3 d1 + d2 - 1``. d is 0 for axes on which the fine node is even, else 1 + the corner.
    """
    nodes = node_count(coarse)
    half1, half2 = coarse[3], coarse[4]
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        i = block * BLOCK + tl.arange(0, BLOCK)
        inside = i < nodes
        i0, i1, i2 = i // (half1 * half2), i // half2 % half1, i % half2
        p = (i0 * steps[0] * level[3] + i1 * steps[1]) * level[4] + i2 * steps[2]
        total = tl.load(slot(level, RESIDUAL) + p, mask=inside, other=0.0)
        along0 = _odds(i0, level[2], coarse[2], steps[0], PERIODIC & 4 != 0)
        along1 = _odds(i1, level[3], half1, steps[1], PERIODIC & 2 != 0)
        along2 = _odds(i2, level[4], half2, steps[2], PERIODIC & 1 != 0)
        for code in tl.static_range(1, 9 if END == 18 else 27):
            c0, f0, e0 = along0[code // 9]
            c1, f1, e1 = along1[code // 3 % 3]
            c2, f2, e2 = along2[code % 3]
            exists = inside & e0 & e1 & e2
            at = weights + (code - 1) * coarse[1] + (c0 * half1 + c1) * half2 + c2
            left = slot(level, RESIDUAL) + (f0 * level[3] + f1) * level[4] + f2
            weight = tl.load(at, mask=exists, other=0.0)
            total += weight * tl.load(left, mask=exists, other=0.0)
        tl.store(slot(coarse, SOURCE) + i, total, mask=inside)


@triton.jit
def _corners(cell, half, PERIODIC: tl.constexpr):
    """The two corners of a cell along one axis, and whether they exist."""
    after = cell + 1
    if PERIODIC:
        after = tl.where(after == half, 0, after)
    return (cell, cell < half), (after, after < half)


@triton.jit
def prolong(
    level,
    coarse,
    steps,
    weights,
    part,
    parts,
    END: tl.constexpr,
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the prolongation of the coarse potentials to POTENTIAL."""
    nodes = node_count(coarse)
    half1, half2 = coarse[3], coarse[4]
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        i = block * BLOCK + tl.arange(0, BLOCK)
        inside = i < nodes
        i0, i1, i2 = i // (half1 * half2), i // half2 % half1, i % half2
        along0 = _odds(i0, level[2], coarse[2], steps[0], False)
        along1 = _odds(i1, level[3], half1, steps[1], False)
        along2 = _odds(i2, level[4], half2, steps[2], False)
        corners0 = _corners(i0, coarse[2], PERIODIC & 4 != 0)
        corners1 = _corners(i1, half1, PERIODIC & 2 != 0)
        corners2 = _corners(i2, half2, PERIODIC & 1 != 0)
        for odd in tl.static_range(0, 4 if END == 18 else 8):
            _, f0, e0 = along0[odd // 4]
            _, f1, e1 = along1[odd // 2 % 2]
            _, f2, e2 = along2[odd % 2]
            exists = inside & e0 & e1 & e2
            fine = slot(level, POTENTIAL) + (f0 * level[3] + f1) * level[4] + f2
            total = tl.load(fine, mask=exists, other=0.0)
            for corner in tl.static_range(0, odd + 1):
                if corner | odd == odd:
                    c0, d0 = corners0[corner // 4]
                    c1, d1 = corners1[corner // 2 % 2]
                    c2, d2 = corners2[corner % 2]
                    there = exists & d0 & d1 & d2
                    from_ = slot(coarse, POTENTIAL) + (c0 * half1 + c1) * half2 + c2
                    potential = tl.load(from_, mask=there, other=0.0)
                    if odd > 0:
                        code = (
                            9 * (odd // 4 + corner // 4)
                            + 3 * (odd // 2 % 2 + corner // 2 % 2)
                            + odd % 2
                            + corner % 2
                        )
                        at = weights + (code - 1) * coarse[1] + i
                        potential *= tl.load(at, mask=there, other=0.0)
                    total += potential
            tl.store(fine, total, mask=exists)


@triton.jit
def eliminate(level, factor, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Potentials ``W^T (W source)`` of the coarsest level; W (nodes, nodes) at `factor`."""
    nodes = node_count(level)
    column = tl.arange(0, COLUMNS)
    source = tl.load(slot(level, SOURCE) + column, mask=column < nodes, other=0.0)
    for first in range(0, nodes, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < nodes)[:, None] & (column < nodes)[None, :]
        tile = tl.load(factor + row[:, None] * nodes + column[None, :], mask=inside, other=0.0)
        total = tl.sum(tile * source[None, :], 1)
        tl.store(slot(level, RESIDUAL) + row, total, mask=row < nodes)
    tl.debug_barrier()
    halfway = tl.load(slot(level, RESIDUAL) + column, mask=column < nodes, other=0.0)
    for first in range(0, nodes, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (column < nodes)[:, None] & (row < nodes)[None, :]
        tile = tl.load(factor + column[:, None] * nodes + row[None, :], mask=inside, other=0.0)
        total = tl.sum(tile * halfway[:, None], 0)
        tl.store(slot(level, POTENTIAL) + row, total, mask=row < nodes)
