# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""The kernels of the backend "triton" for small fronts.

Such fronts are many, and blocks of a single one would leave most of a program idle. So a program
takes one front of `LANES` networks, one pivot after the other: entries are (columns, LANES) blocks,
and of each network a few threads share the columns. Ground is a column, the last one, so that leaks
need no rule of their own. A row is found when its turn comes, from those of the pivots before it:

    row_r = own entries + sum over earlier pivots p of h_pr h_p,    h_p = row_p / sqrt(total_p)

which is star-mesh, as the share of r times the row. Rows h are kept, those of boundary nodes are
the update. Going up, pivot k hands on what it receives, x_k, over whole_k, the sum of h_k in
float64: q_k = x_k / whole_k, x += h_k q_k. Its potential is v_k = (q_k + h_k . v) / sqrt(total_k).

Rows and updates are kept for `LANES` networks side by side: (groups, entries, LANES). All other
arrays are those of the other kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.network.direct.triton.kernels import (
    _WORDS,
    BOUNDARY,
    FIRST,
    FRONT,
    KID_BOUNDARY,
    KID_UPDATE,
    KID_WIDTH,
    LANES,
    PARENT_FRONT,
    PIVOTS,
    PLAIN,
    SHARES,
    SIZE,
    UPDATE,
    _finite,
    _inverse,
    _scale,
    _source,
)


@triton.jit
def _root(x):
    """The square root, rounded as it should be."""
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    else:
        return tl.sqrt(x)


@triton.jit
def _front(INFO, REGION, start):
    """The front of a program: its row of INFO, and of that what every kernel reads."""
    info = INFO + tl.load(REGION + start + tl.program_id(1)) * _WORDS
    first, n, f = tl.load(info + FIRST), tl.load(info + PIVOTS), tl.load(info + SIZE)
    return info, first, n, f, tl.load(info + FRONT)


@triton.jit
def _block(group, networks, C: tl.constexpr):
    """Lanes, columns and networks of a block, and which of its networks there are; the last one
    stands for those that are not. Networks are in the layout of rows, which no load has to leave.
    """
    lane = tl.arange(0, LANES)[None, :]
    c = tl.arange(0, C)[:, None]
    m = group * LANES + lane
    return lane, c, tl.minimum(m, networks - 1) + 0 * c, m < networks


@triton.jit
def _row(
    rows, lower, info, KID, entries, r, pivots, f, c, lane, kids, j_0, j_1, KIDS: tl.constexpr
):  # fmt: skip
    """What the children and pivots before add to columns c > r of row r of a front."""
    later = (c > r) & (c <= f)
    row = tl.zeros([c.shape[0], LANES], rows.dtype.element_ty)
    if KIDS:
        for side in tl.static_range(2):
            i = tl.load(KID + side * entries + r)
            if i >= 0:
                j = j_0 if side == 0 else j_1
                at = tl.load(info + KID_UPDATE + side) + i * tl.load(info + KID_WIDTH + side) + j
                at = (kids + at) * LANES + lane
                row += tl.load(lower + at, mask=(j >= 0) & later, other=0.0)
    of_row, of_columns = rows + (r + 0 * c) * LANES, rows + c * LANES
    for p in range(pivots):
        at = p * (f + 1) * LANES
        row += tl.load(of_row + at) * tl.load(of_columns + at)
    return tl.where(later, row, 0.0)


@triton.jit(do_not_specialize=PLAIN)
def eliminate(
    g, own, most, judged, rows, inverse, grounded, whole, lower, grounds, INFO, REGION, KID,
    EDGE_AT, COLUMN, BEFORE_AT, BEFORE, start, networks, nodes, edges, num_rows, num_lower,
    num_grounds, entries, KIDS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Eliminate the fronts of a level. C: columns of the largest one, ground's included."""
    group = tl.program_id(0).to(tl.int64)
    info, first, n, f, front = _front(INFO, REGION, start)
    lane, c, m, live = _block(group, networks, C)
    bits = tl.load(most + m)
    scale, finite = _scale(bits), _finite(bits)
    rows += (group * num_rows + tl.load(info + SHARES)) * LANES + lane
    update = lower + (group * num_lower + tl.load(info + UPDATE)) * LANES + lane
    at_first = m * nodes + first
    kids = group * num_lower
    j_0, j_1 = c, c
    if KIDS:  # the columns of both children's updates
        j_0 = tl.load(KID + front + c, mask=c < f, other=-1)
        j_1 = tl.load(KID + entries + front + c, mask=c < f, other=-1)
        j_0 = tl.where(c == f, tl.load(info + KID_WIDTH) - 1, j_0)
        j_1 = tl.where(c == f, tl.load(info + KID_WIDTH + 1) - 1, j_1)
    # Of each pivot, in the place of its column: its total, its leak (-1 where it has no edge), and
    # the sum of its row.
    totals = tl.zeros([C, LANES], own.dtype.element_ty)
    parts, sums = totals, totals.to(tl.float64)
    for r in range(n):
        row = tl.load(own + at_first + r, mask=(c == f) & live, other=0.0) * scale
        for edge in range(tl.load(EDGE_AT + first + r), tl.load(EDGE_AT + first + r + 1)):
            there = (c == tl.load(COLUMN + edge)) & live
            row += tl.load(g + m * edges + edge, mask=there, other=0.0) * scale
        row += _row(
            rows, lower, info, KID + front, entries, r, r, f, c, lane, kids, j_0, j_1, KIDS
        )  # fmt: skip
        to_nodes = tl.sum(tl.where(c < f, row, 0.0), 0)[None, :]
        to_ground = tl.sum(tl.where(c == f, row, 0.0), 0)[None, :]
        h = row * _root(_inverse(to_nodes + to_ground))
        tl.store(rows + (r * (f + 1) + c) * LANES, h, mask=c <= f)
        totals = tl.where(c == r, to_nodes + to_ground, totals)
        parts = tl.where(c == r, tl.where(to_nodes > 0, to_ground, -1.0), parts)
        sums = tl.where(c == r, tl.sum(h.to(tl.float64), 0)[None, :], sums)
        tl.debug_barrier()  # other threads read this row
    grounds += m * num_grounds + tl.load(info + BOUNDARY)
    for r in range(n, f):
        row = _row(
            rows, lower, info, KID + front, entries, r, n, f, c, lane, kids, j_0, j_1, KIDS
        )  # fmt: skip
        at = ((r - n) * (f + 1 - n) + c - n) * LANES
        tl.store(update + at, row, mask=(c >= n) & (c <= f))
        tl.store(grounds + r - n, row, mask=(c == f) & live)
    pivot = (c < n) & live
    here = at_first + c
    inv = _inverse(totals)
    tl.store(inverse + here, inv, mask=pivot)
    tl.store(whole + here, tl.where(inv > 0, sums, 1.0), mask=pivot)
    # Just 1 where a pivot without edges hands all to ground, which no other does.
    below = 0.99999994 if inv.dtype == tl.float32 else 0.9999999999999999
    parts = tl.where((parts < 0) & (inv > 0), 1.0, tl.minimum(parts * inv, below))
    tl.store(grounded + here, parts.to(inv.dtype), mask=pivot)
    # Pivots that have neither edge nor leak left, but had one.
    over = pivot & (inv == 0)
    wrong = pivot & (finite == 0)
    if tl.max(tl.max((over | wrong).to(tl.int32), 1), 0) > 0:
        tied = (tl.load(own + here, mask=over, other=0.0) != 0) | (totals > 0)
        before = tl.load(BEFORE_AT + first + c, mask=c < n, other=0)
        degree = tl.load(BEFORE_AT + first + c + 1, mask=c < n, other=0) - before
        for d in range(tl.max(tl.max(degree, 1), 0)):
            edge = tl.load(BEFORE + before + d, mask=d < degree, other=0)
            conductance = tl.load(g + m * edges + edge, mask=over & (d < degree), other=0.0)
            tied = tied | (conductance != 0)
        wrong = wrong | (over & tied)
        judgement = tl.where(finite, float("inf"), float("nan")).to(inv.dtype)
        tl.store(judged + m, judgement, mask=wrong)


@triton.jit
def _of_kids(handed, info, KID, entries, at, c, f, live, KIDS: tl.constexpr):
    """What both children hand to the columns of a front."""
    total = tl.zeros([c.shape[0], LANES], tl.float64)
    if KIDS:
        for side in tl.static_range(2):
            j = tl.load(KID + side * entries + c, mask=c < f, other=-1)
            kid = tl.load(info + KID_BOUNDARY + side)
            total += tl.load(handed + at + kid + j, mask=(j >= 0) & live, other=0)
    return total


@triton.jit(do_not_specialize=PLAIN)
def up(
    source, own, most, level, x, handed, rows, inverse, whole, INFO, REGION, KID, NODE, start,
    networks, nodes, num_rows, num_grounds, entries, channels, sources, KIDS: tl.constexpr,
    C: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Received currents over totals of the fronts of a level, and what they hand to boundaries.
    DROPS: for `_source`'s second sources, too."""
    group = (tl.program_id(0) // sources).to(tl.int64)
    info, first, n, f, front = _front(INFO, REGION, start)
    lane, c, m, live = _block(group, networks, C)
    s = tl.program_id(0) % sources
    at = (m // channels * sources + s) * nodes * channels + m % channels
    rows += (group * num_rows + tl.load(info + SHARES)) * LANES + lane
    pivot = (c < n) & live
    at_pivot = m * nodes + first + c
    over = 1.0 / tl.load(whole + at_pivot, mask=pivot, other=1.0)
    root = _root(tl.load(inverse + at_pivot, mask=pivot, other=0.0))
    # Triton 3.2 does not broadcast positions to all lanes.
    own_source = m * sources + s
    position = first + c + 0 * m
    now = _source(
        source, own, most, level, NODE, own_source, m, at, nodes, channels, position, pivot, 0
    )  # fmt: skip
    now += _of_kids(handed, info, KID + front, entries, own_source * num_grounds, c, f, live, KIDS)
    now *= over  # of pivots what they receive over `whole`, from the start
    more = now
    second = networks * sources + own_source
    if DROPS:
        more = _source(
            source, own, most, level, NODE, own_source, m, at, nodes, channels, position, pivot, 1
        )  # fmt: skip
        more += _of_kids(handed, info, KID + front, entries, second * num_grounds, c, f, live, KIDS)
        more *= over
    for k in range(n):
        h = tl.load(rows + (k * (f + 1) + c) * LANES, mask=c < f, other=0.0).to(tl.float64)
        shares = h * over
        now += shares * tl.sum(tl.where(c == k, now, 0.0), 0)[None, :]
        if DROPS:
            more += shares * tl.sum(tl.where(c == k, more, 0.0), 0)[None, :]
    root = root.to(tl.float64)
    to = handed + tl.load(info + BOUNDARY) + c - n
    boundary = (c >= n) & (c < f) & live
    tl.store(x + own_source * nodes + first + c, now * root, mask=pivot)
    tl.store(to + own_source * num_grounds, now, mask=boundary)
    if DROPS:
        tl.store(x + second * nodes + first + c, more * root, mask=pivot)
        tl.store(to + second * num_grounds, more, mask=boundary)


@triton.jit(do_not_specialize=PLAIN)
def down(
    x, potential, relative, base, most, rows, inverse, grounded, INFO, REGION, POSITION, PLACE,
    NODE, start, networks, nodes, num_rows, entries, channels, sources, C: tl.constexpr,
    DROPS: tl.constexpr, SAMPLE: tl.constexpr,
):  # fmt: skip
    """Potentials of the fronts of a level; as `kernels.down`, one pivot after the other."""
    group = (tl.program_id(0) // sources).to(tl.int64)
    info, first, n, f, front = _front(INFO, REGION, start)
    lane, c, m, live = _block(group, networks, C)
    s = tl.program_id(0) % sources
    row = m * sources + s
    at = (m // channels * sources + s) * nodes * channels + m % channels
    rows += (group * num_rows + tl.load(info + SHARES)) * LANES + lane
    pivot, rest = (c < n) & live, (c >= n) & (c < f) & live
    root = _root(tl.load(inverse + m * nodes + first + c, mask=pivot, other=0.0))
    position = tl.load(POSITION + front + c, mask=c < f, other=0)
    v = tl.load(x + row * nodes + position, mask=(c < f) & live, other=0.0)
    none = float("-inf")
    if DROPS:
        relative, base = relative + row * entries, base + row * entries
        above = tl.load(info + PARENT_FRONT)
        place = PLACE + tl.load(info + BOUNDARY)
        one = above + tl.load(place, mask=f > n, other=0)
        some = live & (c < tl.where(f > n, C, 0))
        change = tl.load(relative + one, mask=some, other=0.0)
        changed = tl.load(base + one, mask=some, other=0.0)
        there = above + tl.load(place + c - n, mask=(c >= n) & (c < f), other=0)
        u = tl.load(relative + there, mask=rest, other=0.0)
        bases = tl.load(base + there, mask=rest, other=0.0)
        shift = tl.where(rest & (bases == changed), change, 0.0)
        u -= shift
        bases += shift
        z = tl.load(x + (networks * sources + row) * nodes + first + c, mask=pivot, other=0.0)
        ground = tl.load(grounded + m * nodes + first + c, mask=pivot, other=0.0)
    for q in range(n):
        k = n - 1 - q
        h = tl.load(rows + (k * (f + 1) + c) * LANES, mask=c < f, other=0.0)
        v += tl.where(c == k, root * tl.sum(h * v, 0)[None, :], 0.0)
        if DROPS:
            beside = tl.max(tl.where(h > 0, bases, none), 0)[None, :]
            mine = tl.where(ground == 1, z, beside)
            mine = tl.where(mine == none, 0.0, mine)  # no part of the network
            own = z + root * tl.sum(h * u, 0)[None, :] - ground * mine
            u = tl.where(c == k, own, u)
            bases = tl.where(c == k, mine, bases)
    tl.store(x + row * nodes + first + c, v, mask=pivot)
    bits = tl.load(most + m)
    factor = tl.where(_finite(bits), _scale(bits), float("nan"))
    if SAMPLE:
        factor = _root(factor)
    node = tl.load(NODE + first + c, mask=c < n, other=0)
    tl.store(potential + at + node * channels, v * factor, mask=pivot)
    if DROPS:
        tl.store(relative + front + c, u, mask=(c < f) & live)
        tl.store(base + front + c, bases, mask=(c < f) & live)
