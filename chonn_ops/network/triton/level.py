# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: what is done on one level of the multigrid, for nodes of one network.

A level has fields of ``n0 * n1 * n2`` nodes in row-major order (n0 = 1 on a plane), one a slot:
leak, smoothing scale, potential, source, what is left of it, then a conductance for each step to
half of the neighbours, zero where there is no edge. So no sweep asks where the grid ends, but
around rings. Every function does blocks ``part, part + parts, ...`` of a field: all of them where a
program has a network to itself, one where many programs share it.

``level`` is the tuple ``(fields, apart, n0, n1, n2)``: where the network's fields begin, how far
slots are apart, and sizes. Steps to neighbours are numbers ``9 (o0 + 1) + 3 (o1 + 1) + o2 + 1``;
those above 13 are the half that is kept, END - 1 the last. NARROW: steps along the axes alone.
"""

from __future__ import annotations

import triton
import triton.language as tl

LEAK = tl.constexpr(0)
SCALE = tl.constexpr(1)
POTENTIAL = tl.constexpr(2)
SOURCE = tl.constexpr(3)
LEFT = tl.constexpr(4)
EDGES = tl.constexpr(5)

# Chebyshev iteration, two steps, as in `multigrid`.
_CENTRE = tl.constexpr(1.25)
_RADIUS = tl.constexpr(0.75)
_RATE = tl.constexpr(0.75 / 1.25)
_FASTER = tl.constexpr(1 / (2 * 1.25 / 0.75 - 0.75 / 1.25))


@triton.jit
def slot(level, index):
    """Start of a level's field by its index."""
    return level[0] + index * level[1]


@triton.jit
def node_count(level):
    """Nodes of a level."""
    return level[2] * level[3] * level[4]


@triton.jit
def _neighbour(p, level, B0: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr, RINGS: tl.constexpr):
    """Number of the neighbour at step (B0, B1, B2). Where there is none: that of some other node,
    or out of range."""
    n0, n1, n2 = level[2], level[3], level[4]
    q = p + (B0 * n1 + B1) * n2 + B2
    if RINGS & 4 != 0 and B0 != 0:
        q += tl.where(p // (n1 * n2) == (n0 - 1 if B0 > 0 else 0), -B0 * n0 * n1 * n2, 0)
    if RINGS & 2 != 0 and B1 != 0:
        q += tl.where(p // n2 % n1 == (n1 - 1 if B1 > 0 else 0), -B1 * n1 * n2, 0)
    if RINGS & 1 != 0 and B2 != 0:
        q += tl.where(p % n2 == (n2 - 1 if B2 > 0 else 0), -B2 * n2, 0)
    return q


@triton.jit
def _potential(x, scale, q, inside, SCALED: tl.constexpr):
    """At nodes: x, or scale * x / _CENTRE, which is the first step of smoothing."""
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
    NARROW: tl.constexpr,
    END: tl.constexpr,
    RINGS: tl.constexpr,
):
    """What leaves nodes p through leaks and edges at those potentials, and the potentials there.

    By differences of potentials: the matrix's diagonal would drown small leaks.
    """
    nodes = node_count(level)
    inside = p < nodes
    scale = slot(level, SCALE)
    here = _potential(x, scale, p, inside, SCALED)
    total = tl.load(slot(level, LEAK) + p, mask=inside, other=0.0) * here
    for code in tl.static_range(14, END):
        if not NARROW or code == 14 or code == 16 or code == 22:
            edge = slot(level, EDGES + ((code - 12) // 4 if NARROW else code - 14))
            q = _neighbour(p, level, code // 9 - 1, code // 3 % 3 - 1, code % 3 - 1, RINGS)
            there = inside & (q >= 0) & (q < nodes)
            g = tl.load(edge + p, mask=inside, other=0.0)
            total += g * (here - _potential(x, scale, q, there, SCALED))
            q = _neighbour(p, level, 1 - code // 9, 1 - code // 3 % 3, 1 - code % 3, RINGS)
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
    NARROW: tl.constexpr,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Two steps of Chebyshev iteration: for the potentials that SOURCE gives from zero, or, with
    `again`, added to those there are, from what is LEFT."""
    nodes = node_count(level)
    source = slot(level, tl.where(again, LEFT, SOURCE))
    potential = slot(level, POTENTIAL)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        p = block * BLOCK + tl.arange(0, BLOCK)
        inside = p < nodes
        out, step = currents(level, source, p, True, NARROW, END, RINGS)
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
    NARROW: tl.constexpr,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """LEFT: what the potentials leave of SOURCE."""
    nodes = node_count(level)
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        p = block * BLOCK + tl.arange(0, BLOCK)
        inside = p < nodes
        out, _ = currents(level, slot(level, POTENTIAL), p, False, NARROW, END, RINGS)
        source = tl.load(slot(level, SOURCE) + p, mask=inside, other=0.0)
        tl.store(slot(level, LEFT) + p, source - out, mask=inside)


@triton.jit
def _odds(cell, n, half, step, RING: tl.constexpr):
    """Along one axis, the fine nodes that a coarse one has a part of: the even one in its own
    place, the odd one after it, and the one before it, whose cell is another. For each the cell,
    the fine node and whether there is one; on an axis as fine as before all nodes are even.
    (A mask of a scalar and a vector ``&`` fails interpreted: hence `end`.)
    """
    end = tl.where(step == 2, n, 0)
    before = cell - 1
    if RING:
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
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """SOURCE of the coarser level: what is LEFT, shared out by the weights of `multigrid.coarsen`.

    Weights lie a field of the coarse grid after the other, in the order of the numbers
    ``9 d0 + 3 d1 + d2 - 1``, d being 0 for axes a node is even on, else 1 + the corner.
    """
    nodes = node_count(coarse)
    half1, half2 = coarse[3], coarse[4]
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        i = block * BLOCK + tl.arange(0, BLOCK)
        inside = i < nodes
        i0, i1, i2 = i // (half1 * half2), i // half2 % half1, i % half2
        p = (i0 * steps[0] * level[3] + i1 * steps[1]) * level[4] + i2 * steps[2]
        total = tl.load(slot(level, LEFT) + p, mask=inside, other=0.0)
        along0 = _odds(i0, level[2], coarse[2], steps[0], RINGS & 4 != 0)
        along1 = _odds(i1, level[3], half1, steps[1], RINGS & 2 != 0)
        along2 = _odds(i2, level[4], half2, steps[2], RINGS & 1 != 0)
        for code in tl.static_range(1, 9 if END == 18 else 27):
            c0, f0, e0 = along0[code // 9]
            c1, f1, e1 = along1[code // 3 % 3]
            c2, f2, e2 = along2[code % 3]
            exists = inside & e0 & e1 & e2
            at = weights + (code - 1) * coarse[1] + (c0 * half1 + c1) * half2 + c2
            left = slot(level, LEFT) + (f0 * level[3] + f1) * level[4] + f2
            weight = tl.load(at, mask=exists, other=0.0)
            total += weight * tl.load(left, mask=exists, other=0.0)
        tl.store(slot(coarse, SOURCE) + i, total, mask=inside)


@triton.jit
def _corners(cell, half, RING: tl.constexpr):
    """Along one axis, the two corners of a cell, and whether they exist."""
    after = cell + 1
    if RING:
        after = tl.where(after == half, 0, after)
    return (cell, cell < half), (after, after < half)


@triton.jit
def interpolate(
    level,
    coarse,
    steps,
    weights,
    part,
    parts,
    END: tl.constexpr,
    RINGS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Adds to the potentials of the fine nodes of each cell those between which they lie."""
    nodes = node_count(coarse)
    half1, half2 = coarse[3], coarse[4]
    for block in range(part, tl.cdiv(nodes, BLOCK), parts):
        i = block * BLOCK + tl.arange(0, BLOCK)
        inside = i < nodes
        i0, i1, i2 = i // (half1 * half2), i // half2 % half1, i % half2
        along0 = _odds(i0, level[2], coarse[2], steps[0], False)
        along1 = _odds(i1, level[3], half1, steps[1], False)
        along2 = _odds(i2, level[4], half2, steps[2], False)
        corners0 = _corners(i0, coarse[2], RINGS & 4 != 0)
        corners1 = _corners(i1, half1, RINGS & 2 != 0)
        corners2 = _corners(i2, half2, RINGS & 1 != 0)
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
        tl.store(slot(level, LEFT) + row, total, mask=row < nodes)
    tl.debug_barrier()
    halfway = tl.load(slot(level, LEFT) + column, mask=column < nodes, other=0.0)
    for first in range(0, nodes, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (column < nodes)[:, None] & (row < nodes)[None, :]
        tile = tl.load(factor + column[:, None] * nodes + row[None, :], mask=inside, other=0.0)
        total = tl.sum(tile * halfway[:, None], 0)
        tl.store(slot(level, POTENTIAL) + row, total, mask=row < nodes)
