# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""The kernels of the backend "triton": star-mesh elimination of fronts, level by level.

A front holds the pivots of a region and its boundary; only edges right of the diagonal are kept.
Its pivots are eliminated in panels of at most P, each together with the rest of the front: later
pivots and the boundary. Star-mesh keeps the sum of a row, so the turns of all pivots of a panel
follow from its own P x P block D and, of everything else, from the sums of rows. This gives, by
additions of positive numbers,

    X      (P x P, unit lower triangular): the part of what enters at pivot m that reaches pivot k
    total  of each pivot when its turn comes, edges and leak

and the rest is products of positive numbers: E = X B, the edges from the pivots to the rest when
their turns come (B: before), the shares S = E / total, and the update S^T E of the rest. Currents
go up as y = X x, rest += S^T y. Potentials come down as v = X^T (y / total + S v_rest).

Sources may cancel but for less than the rounding of shares. So currents are float64, and a pivot
hands on what it receives over `whole`, the sum of its shares: H to later pivots of its panel, S to
the rest, and ground's. With w = y / whole this is (whole - H^T) w = x, which X almost inverts, so
that steps w += X (x + H^T w - whole w) solve it. H is kept above the diagonal, where X is 0.

Every kernel takes its program's front from `INFO`, a row of `WORDS` numbers a front, level by
level, and the network, or its pair with a source, from the first axis of the grid. Arrays of nodes
are in the order of elimination ("positions"), and edges in the order of their earlier ends. The
fields of the caller are (batches, nodes, channels), or with sources (batches, sources, nodes,
channels), and of the conductances of an axis (batches, per_axis, channels). Conductances are scaled
by a power of two, `_scale`, when they are read.
"""

from __future__ import annotations

import triton
import triton.language as tl

# The columns of INFO: position of the first pivot, numbers of pivots and of nodes of the front, and
# where begin its shares (rows of the whole front), update (a square) and boundary, and its entries
# of the tables POSITION, KID and so on. Then where its parent's entries begin, for both children
# where their updates and boundaries begin, and how long their rows are, and where it has its
# workspace.
WORDS = 15
FIRST, PIVOTS, SIZE, SHARES, UPDATE, BOUNDARY, FRONT, PARENT_FRONT = map(tl.constexpr, range(8))
KID_UPDATE, KID_BOUNDARY, KID_WIDTH, WORK = map(tl.constexpr, (8, 10, 12, 14))
_WORDS = tl.constexpr(WORDS)

# Sizes that would be compiled in as multiples of 16 or as 1: a kernel for all grids is enough.
PLAIN = (
    *("start", "k0", "nodes", "edges", "per_axis", "channels", "sources", "entries", "tiles"),
    *("num_shares", "num_updates", "num_grounds", "num_work", "size", "regions"),
)
# Edges of a pivot that are read side by side.
_STEP = tl.constexpr(8)


@triton.jit
def _scale(most):
    """The power of two that makes the largest number, given as bits, about 1."""
    if most.dtype == tl.int32:
        bits = tl.minimum(tl.maximum(254 - (most >> 23), 1), 254) << 23
        return bits.to(tl.float32, bitcast=True)
    else:
        bits = tl.minimum(tl.maximum(2046 - (most >> 52), 1), 2046) << 52
        return bits.to(tl.float64, bitcast=True)


@triton.jit
def _finite(most):
    """Whether all conductances and leaks of a network are."""
    if most.dtype == tl.int32:
        return (most >> 23) < 255
    else:
        return (most >> 52) < 2047


@triton.jit
def _bits(x):
    """The magnitudes of numbers as integers in the same order, NaN above all."""
    if x.dtype == tl.float32:
        return tl.abs(x).to(tl.int32, bitcast=True)
    else:
        return tl.abs(x).to(tl.int64, bitcast=True)


@triton.jit
def _inverse(total):
    """1 / total; 0 for totals that are no normal numbers, and NaN for those below 0, which no
    positive definite network has. Division may be off by two units in the last place and to one
    side, which a Newton step mends."""
    tiniest = 1.1754943508222875e-38 if total.dtype == tl.float32 else 2.2250738585072014e-308
    some = total >= tiniest
    inverse = 1.0 / tl.where(some, total, 1.0)
    inverse = tl.where(some, tl.fma(tl.fma(-total, inverse, 1.0), inverse, inverse), 0.0)
    return tl.where(total < 0, float("nan"), inverse)


@triton.jit
def _product(a, b, PRECISION: tl.constexpr):
    """The product of two blocks; "sums": column by row, as Triton has no float64 before 3.5."""
    if PRECISION == "sums":
        k = tl.arange(0, a.shape[1])
        total = tl.zeros([a.shape[0], b.shape[1]], a.dtype)
        for q in range(a.shape[1]):
            column = tl.sum(tl.where(k[None, :] == q, a, 0.0), 1)
            row = tl.sum(tl.where(k[:, None] == q, b, 0.0), 0)
            total += column[:, None] * row[None, :]
    else:
        total = tl.dot(a, b, input_precision=PRECISION, out_dtype=a.dtype)
    return total


@triton.jit
def _panel(INFO, start, k0, P: tl.constexpr):
    """The front of a program: its row of INFO, where its pivots and entries begin, its size, its
    pivots of this panel, and the first column of the rest."""
    info = INFO + (start + tl.program_id(1)) * _WORDS
    first, front, f = tl.load(info + FIRST), tl.load(info + FRONT), tl.load(info + SIZE)
    n = tl.minimum(tl.load(info + PIVOTS) - k0, P)  # below 0 in a front that is done before
    return info, first, front, f, tl.maximum(n, 0), k0 + n


@triton.jit
def _conductance(g0, g1, g2, m, entry, there, per_axis, channels, AXES: tl.constexpr):
    """Entries axis * per_axis + i of the conductances of a network; 0 where none is `there`."""
    axis = entry // per_axis
    to = (m // channels * per_axis + entry % per_axis) * channels + m % channels
    value = tl.load(g0 + to, mask=there & (axis == 0), other=0.0)
    if AXES > 1:
        value += tl.load(g1 + to, mask=there & (axis == 1), other=0.0)
    if AXES > 2:
        value += tl.load(g2 + to, mask=there & (axis == 2), other=0.0)
    return value


@triton.jit
def _kids(updates, info, KID, entries, i, j, inside):
    """What both children's updates add to entries (i, j) of a front, i < j."""
    size = tl.load(info + SIZE)
    total = tl.zeros(inside.shape, updates.dtype.element_ty)
    for side in tl.static_range(2):
        a = tl.load(KID + side * entries + i, mask=i < size, other=-1)
        b = tl.load(KID + side * entries + j, mask=j < size, other=-1)
        at = tl.load(info + KID_UPDATE + side) + a * tl.load(info + KID_WIDTH + side) + b
        total += tl.load(updates + at, mask=(a >= 0) & (b >= 0) & inside, other=0.0)
    return total


@triton.jit
def _handed(handed, info, KID, entries, r, inside):
    """What both children hand over to the nodes r of a front."""
    total = tl.zeros(r.shape, handed.dtype.element_ty)
    for side in tl.static_range(2):
        a = tl.load(KID + side * entries + r, mask=inside, other=-1)
        at = tl.load(info + KID_BOUNDARY + side) + a
        total += tl.load(handed + at, mask=a >= 0, other=0.0)
    return total


@triton.jit
def _entries(
    g, scale, updates, W, info, KID, EDGE_AT, COLUMN, entries, i, j, inside,
    KE: tl.constexpr, KIDS: tl.constexpr, BEGIN: tl.constexpr,
):  # fmt: skip
    """Entries (i, j) of a front, i < j: before its first panel edges of the network and what both
    children add, later what the panel before left in the workspace."""
    if BEGIN:
        total = tl.zeros(inside.shape, g.dtype.element_ty)
        if KIDS:
            total += _kids(updates, info, KID, entries, i, j, inside)
        if KE > 0:
            pivot = i < tl.load(info + PIVOTS)
            at = tl.load(EDGE_AT + i, mask=pivot, other=0)
            end = tl.load(EDGE_AT + i + 1, mask=pivot, other=0)
            for q in range(0, KE, _STEP):
                for e in tl.static_range(KE if KE < _STEP else _STEP):
                    edge = at + q + e
                    column = tl.load(COLUMN + edge, mask=edge < end, other=-1)
                    value = tl.load(g + edge, mask=edge < end, other=0.0) * scale
                    total += tl.where((column == j) & inside, value, 0.0)
    else:
        total = tl.load(W + i * tl.load(info + SIZE) + j, mask=inside, other=0.0)
    return total


@triton.jit
def pack(
    g0, g1, g2, leak, g, own, most, ENTRY, NODE, nodes, edges, per_axis, channels,
    AXES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy conductances by edge and leaks by position; `most`: the bits of the largest."""
    m = tl.program_id(0).to(tl.int64)
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    entry = tl.load(ENTRY + e, mask=e < edges, other=0)
    value = _conductance(g0, g1, g2, m, entry, e < edges, per_axis, channels, AXES)
    tl.store(g + m * edges + e, value, mask=e < edges)
    node = tl.load(NODE + e, mask=e < nodes, other=0)
    at = (m // channels * nodes + node) * channels + m % channels
    ground = tl.load(leak + at, mask=e < nodes, other=0.0)
    tl.store(own + m * nodes + e, ground, mask=e < nodes)
    tl.atomic_max(most + m, tl.max(tl.maximum(_bits(value), _bits(ground)), 0))


@triton.jit
def _leaks(
    own, scale, grounds, LW, info, KID, entries, first, r, inside, KIDS: tl.constexpr,
    BEGIN: tl.constexpr,
):  # fmt: skip
    """The leaks of pivots r of a front when their panel begins."""
    if BEGIN:
        leak = tl.load(own + first + r, mask=inside, other=0.0) * scale
        if KIDS:
            leak += _handed(grounds, info, KID, entries, r, inside)
    else:
        leak = tl.load(LW + r, mask=inside, other=0.0)
    return leak


@triton.jit
def _hand_on(
    X, B, inv, handed, own, scale, shares, grounds, LW, info, KID, entries, first, k0, n, rest,
    column, KIDS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Edges E from the pivots of a panel to columns of the rest when their turns come, and their
    shares S, which are stored; leaks that these columns get."""
    f = tl.load(info + SIZE)
    width = f - rest
    i = tl.arange(0, X.shape[0])[:, None]
    E = _product(X, B, PRECISION)
    S = E * inv[:, None]
    inside = (i < n) & (column[None, :] < width)
    tl.store(shares + (k0 + i) * f + rest + column[None, :], S, mask=inside)
    given = tl.sum(S * handed[:, None], 0)
    if BEGIN:
        if KIDS:
            given += _handed(grounds, info, KID, entries, rest + column, column < width)
        if not END:
            later = rest + column < tl.load(info + PIVOTS)
            given += tl.load(own + first + rest + column, mask=later, other=0.0) * scale
    else:
        given += tl.load(LW + rest + column, mask=column < width, other=0.0)
    if END:
        tl.store(grounds + tl.load(info + BOUNDARY) + column, given, mask=column < width)
    else:
        tl.store(LW + rest + column, given, mask=column < width)
    return E, S


@triton.jit(do_not_specialize=PLAIN)
def pivots(
    g, own, most, judged, shares, inverse, grounded, updates, grounds, W, LW, INFO, KID,
    EDGE_AT, COLUMN, BEFORE_AT, BEFORE, start, k0, nodes, edges, num_shares, num_updates,
    num_grounds, num_work, entries, KE: tl.constexpr, KIDS: tl.constexpr,
    P: tl.constexpr, C: tl.constexpr, REST: tl.constexpr, WHOLE: tl.constexpr,
    FUSED: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Eliminate a panel of each front of a level: pivots k0 ... k0 + P - 1.

    BEGIN, END: the front's first panel, its last. REST: there is one. WHOLE: C columns hold it, so
    that its shares are found, too; if not, `beyond` follows, which finds B in the place of shares.
    FUSED: the rest is updated, too. KE: edges of a pivot at most. W, LW: edges and leaks of fronts
    between panels. A pivot that has neither edge nor leak left, but had an edge BEFORE, is the last
    of a part without ground: `judged` becomes infinite, or NaN where an input is not finite.
    """
    m = tl.program_id(0).to(tl.int64)
    info, first, front, f, n, rest = _panel(INFO, start, k0, P)
    width = f - rest
    bits = tl.load(most + m)
    scale = _scale(bits)
    g, own, grounds = g + m * edges, own + m * nodes, grounds + m * num_grounds
    updates += m * num_updates
    W, LW = W + m * num_work + tl.load(info + WORK), LW + m * entries + front
    KID, EDGE_AT = KID + front, EDGE_AT + first
    shares += m * num_shares + tl.load(info + SHARES)

    r = tl.arange(0, P)
    i, j = r[:, None], r[None, :]
    c = tl.arange(0, C)
    leak = _leaks(own, scale, grounds, LW, info, KID, entries, first, k0 + r, r < n, KIDS, BEGIN)
    D = _entries(
        g, scale, updates, W, info, KID, EDGE_AT, COLUMN, entries,
        k0 + i, k0 + j, (i < j) & (j < n), KE, KIDS, BEGIN,
    )  # fmt: skip
    outward = tl.zeros([P], D.dtype)  # of each pivot the edges to the rest
    if REST:
        if WHOLE:
            B = _entries(
                g, scale, updates, W, info, KID, EDGE_AT, COLUMN, entries,
                k0 + i, rest + c[None, :], (i < n) & (c[None, :] < width), KE, KIDS, BEGIN,
            )  # fmt: skip
            outward += tl.sum(B, 1)
        else:
            for q in range(tl.cdiv(width, C)):
                column = q * C + c[None, :]
                inside = (i < n) & (column < width)
                B = _entries(
                    g, scale, updates, W, info, KID, EDGE_AT, COLUMN, entries,
                    k0 + i, rest + column, inside, KE, KIDS, BEGIN,
                )  # fmt: skip
                outward += tl.sum(B, 1)
                tl.store(shares + (k0 + i) * f + rest + column, B, mask=inside)

    X = tl.where(i == j, 1.0, 0.0).to(D.dtype) + 0.0 * D
    total = 0.0 * outward
    for k in range(n):
        row = tl.sum(tl.where((i == k) & (j > k), D, 0.0), 0)
        reached = tl.sum(tl.where(i == k, X, 0.0), 0)
        all_of = tl.sum(row + reached * (outward + leak), 0)
        share = (row * _inverse(all_of))[:, None]
        D += share * row[None, :]
        X += share * reached[None, :]
        total = tl.where(r == k, all_of, total)
    inv = _inverse(total)
    handed = tl.sum(X * leak[None, :], 1)  # to ground, when their turns come
    onward = tl.sum(tl.where(j > i, D, 0.0), 1) + tl.sum(X * outward[None, :], 1)
    at = m * nodes + first + k0 + r
    both = tl.where(j > i, D * inv[:, None], X)  # H and X
    tl.store(shares + (k0 + i) * f + k0 + j, both, mask=(i < n) & (j < n))
    tl.store(inverse + at, inv, mask=r < n)
    # Just 1 where a pivot without edges hands all to ground, which no other does.
    below = 0.99999994 if D.dtype == tl.float32 else 0.9999999999999999
    part = tl.minimum(handed * inv, below)
    part = tl.where((onward == 0) & (inv > 0), 1.0, part).to(D.dtype)
    tl.store(grounded + at, part, mask=r < n)
    over = (r < n) & (inv == 0)
    tied = (tl.load(own + first + k0 + r, mask=r < n, other=0.0) != 0) | (total > 0)
    before = tl.load(BEFORE_AT + first + k0 + r, mask=over, other=0)
    end = tl.load(BEFORE_AT + first + k0 + r + 1, mask=over, other=0)
    for d in range(tl.max(end - before, 0)):
        edge = tl.load(BEFORE + before + d, mask=before + d < end, other=0)
        tied = tied | (tl.load(g + edge, mask=before + d < end, other=0.0) != 0)
    floats = tl.max((over & tied).to(tl.int32), 0)
    if tl.where(_finite(bits), floats, 1) > 0:
        judgement = tl.where(_finite(bits), float("inf"), float("nan"))
        tl.store(judged + m, judgement.to(D.dtype))
    if REST & WHOLE:
        E, S = _hand_on(
            X, B, inv, handed, own, scale, shares, grounds, LW, info, KID, entries, first, k0, n,
            rest, c, KIDS, BEGIN, END, PRECISION,
        )  # fmt: skip
        if FUSED:
            row = c[:, None]
            inside = (row < c[None, :]) & (c[None, :] < width)
            U = _product(tl.trans(S), E, PRECISION)
            if KIDS:
                i, j = rest + row, rest + c[None, :]
                U += _kids(updates, info, KID, entries, i, j, inside)
            at = tl.load(info + UPDATE) + row * width + c[None, :]
            tl.store(updates + at, U, mask=inside)


@triton.jit(do_not_specialize=PLAIN)
def beyond(
    own, most, shares, inverse, grounds, LW, INFO, KID, start, k0, nodes, num_shares,
    num_grounds, entries, KIDS: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
    BEGIN: tl.constexpr, END: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The shares of C columns of the rest after `pivots`."""
    m, chunk = tl.program_id(0).to(tl.int64), tl.program_id(2)
    info, first, front, f, n, rest = _panel(INFO, start, k0, P)
    r = tl.arange(0, P)
    i, j, column = r[:, None], r[None, :], chunk * C + tl.arange(0, C)
    scale = _scale(tl.load(most + m))
    own += m * nodes
    grounds, LW, KID = grounds + m * num_grounds, LW + m * entries + front, KID + front
    shares += m * num_shares + tl.load(info + SHARES)
    leak = _leaks(own, scale, grounds, LW, info, KID, entries, first, k0 + r, r < n, KIDS, BEGIN)
    X = tl.load(shares + (k0 + i) * f + k0 + j, mask=(j <= i) & (i < n), other=0.0)
    inside = (i < n) & (column[None, :] < f - rest)
    B = tl.load(shares + (k0 + i) * f + rest + column[None, :], mask=inside, other=0.0)
    inv = tl.load(inverse + m * nodes + first + k0 + r, mask=r < n, other=0.0)
    handed = tl.sum(X * leak[None, :], 1)
    _hand_on(
        X, B, inv, handed, own, scale, shares, grounds, LW, info, KID, entries, first, k0, n, rest,
        column, KIDS, BEGIN, END, PRECISION,
    )  # fmt: skip


@triton.jit(do_not_specialize=PLAIN)
def update(
    g, most, shares, inverse, updates, W, INFO, KID, EDGE_AT, COLUMN, start, k0, nodes,
    edges, num_shares, num_updates, num_work, entries, tiles,
    KE: tl.constexpr, KIDS: tl.constexpr, P: tl.constexpr, T: tl.constexpr, BEGIN: tl.constexpr,
    END: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Update a T x T tile, one of tiles x tiles, of the rest of each front: S^T (total S)."""
    m, tile = tl.program_id(0).to(tl.int64), tl.program_id(2)
    info, first, front, f, n, rest = _panel(INFO, start, k0, P)
    width = f - rest
    a, e = tile // tiles * T, tile % tiles * T
    least = 0 if END else 1  # the last panel hands on what earlier ones left
    if (a <= e) & (e < width) & (n >= least):
        scale = _scale(tl.load(most + m))
        W += m * num_work + tl.load(info + WORK)
        updates += m * num_updates
        shares += m * num_shares + tl.load(info + SHARES)
        r = tl.arange(0, P)
        t = tl.arange(0, T)
        i, row, column = r[:, None], a + t, e + t
        at = shares + (k0 + i) * f + rest
        inv = tl.load(inverse + m * nodes + first + k0 + r, mask=r < n, other=0.0)
        total = tl.where(inv > 0, 1.0 / tl.where(inv > 0, inv, 1.0), 0.0)
        near = tl.load(at + row[None, :], mask=(i < n) & (row[None, :] < width), other=0.0)
        far = tl.load(at + column[None, :], mask=(i < n) & (column[None, :] < width), other=0.0)
        far *= total[:, None]
        inside = (row[:, None] < column[None, :]) & (column[None, :] < width)
        U = _product(tl.trans(near), far, PRECISION)
        U += _entries(
            g + m * edges, scale, updates, W, info, KID + front, EDGE_AT + first, COLUMN,
            entries, rest + row[:, None], rest + column[None, :], inside, 0 if END else KE, KIDS,
            BEGIN,
        )  # fmt: skip
        if END:
            to = tl.load(info + UPDATE) + row[:, None] * width + column[None, :]
            tl.store(updates + to, U, mask=inside)
        else:
            to = (rest + row[:, None]) * f + rest + column[None, :]
            tl.store(W + to, U, mask=inside)


@triton.jit(do_not_specialize=PLAIN)
def add(
    shares, inverse, grounded, whole, INFO, regions, nodes, num_shares,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of the shares of each pivot of a region, ground's included; 1 for pivots of 0."""
    m = (tl.program_id(0) // regions).to(tl.int64)
    info = INFO + tl.program_id(0) % regions * _WORDS
    n, f = tl.load(info + PIVOTS), tl.load(info + SIZE)
    shares += m * num_shares + tl.load(info + SHARES)
    for k in range(0, n, ROWS):
        r = k + tl.arange(0, ROWS)
        at = m * nodes + tl.load(info + FIRST) + r
        some = tl.load(inverse + at, mask=r < n, other=0.0) > 0
        total = tl.load(grounded + at, mask=r < n, other=0.0).to(tl.float64)
        for q in range(k, f, BLOCK):
            i, j = r[:, None], q + tl.arange(0, BLOCK)[None, :]
            S = tl.load(shares + i * f + j, mask=(i < n) & (i < j) & (j < f), other=0.0)
            total += tl.sum(S.to(tl.float64), 1)
        tl.store(whole + at, tl.where(some, total, 1.0), mask=r < n)


@triton.jit(do_not_specialize=PLAIN)
def levels(
    source, own, inverse, most, level, NODE, nodes, channels, sources, BLOCK: tl.constexpr
):  # fmt: skip
    """The potential that a network would have, were it one node: the sum of a source over that of
    leaks, in float64."""
    row = tl.program_id(0).to(tl.int64)
    m = row // sources
    at = (m // channels * sources + row % sources) * nodes * channels + m % channels
    current = tl.zeros([BLOCK], tl.float64)
    ground = tl.zeros([BLOCK], tl.float64)
    for q in range(tl.cdiv(nodes, BLOCK)):
        p = q * BLOCK + tl.arange(0, BLOCK)
        some = tl.load(inverse + m * nodes + p, mask=p < nodes, other=0.0) > 0
        node = tl.load(NODE + p, mask=p < nodes, other=0)
        current += tl.load(source + at + node * channels, mask=some, other=0.0).to(tl.float64)
        ground += tl.load(own + m * nodes + p, mask=some, other=0.0).to(tl.float64)
    total = tl.sum(ground, 0) * _scale(tl.load(most + m)).to(tl.float64)
    value = tl.sum(current, 0) / tl.where(total > 0, total, 1.0)
    tl.store(level + row, tl.where(total > 0, value, 0.0))


@triton.jit
def _source(source, own, most, level, NODE, row, m, at, nodes, channels, p, inside, second):
    """Sources at positions p; the `second` ones are less the leaks times the level."""
    node = tl.load(NODE + p, mask=inside, other=0)
    given = tl.load(source + at + node * channels, mask=inside, other=0.0).to(tl.float64)
    if second:
        leak = tl.load(own + m * nodes + p, mask=inside, other=0.0)
        ground = leak.to(tl.float64) * _scale(tl.load(most + m)).to(tl.float64)
        given -= ground * tl.load(level + row)
    return given


@triton.jit(do_not_specialize=PLAIN)
def up(
    source, own, most, level, x, handed, V, shares, inverse, whole, INFO, KID, NODE, start,
    k0, nodes, num_shares, num_grounds, entries, channels, sources, P: tl.constexpr,
    C: tl.constexpr, KIDS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    """Currents that a panel receives over its totals, and what it hands to C columns of the rest.
    V: a front's currents between panels. DROPS: for `_source`'s second sources, too."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(2)
    m = row // sources
    info, first, front, f, n, rest = _panel(INFO, start, k0, P)
    width = f - rest
    at = (m // channels * sources + row % sources) * nodes * channels + m % channels
    shares += m * num_shares + tl.load(info + SHARES)
    r = tl.arange(0, P)
    i, j = r[:, None], r[None, :]
    column = chunk * C + tl.arange(0, C)
    outside = column[None, :]
    block = tl.load(shares + (k0 + i) * f + k0 + j, mask=(i < n) & (j < n), other=0.0)
    X, H = tl.where(j <= i, block, 0.0), tl.where(j > i, block, 0.0)
    S = tl.load(shares + (k0 + i) * f + rest + outside, mask=(i < n) & (outside < width), other=0.0)
    here = m * nodes + first + k0 + r
    inv = tl.load(inverse + here, mask=r < n, other=0.0)
    sums = tl.load(whole + here, mask=r < n, other=1.0)
    for second in tl.static_range(1 + DROPS):
        lane = second * tl.num_programs(0) + row
        mine = handed + lane * num_grounds
        values = V + lane * entries + front
        if BEGIN:
            here = first + k0 + r
            given = _source(
                source, own, most, level, NODE, row, m, at, nodes, channels, here, r < n, second
            )
            if KIDS:
                given += _handed(mine, info, KID + front, entries, k0 + r, r < n)
        else:
            given = tl.load(values + k0 + r, mask=r < n, other=0.0)
        w = tl.sum(X * given[None, :], 1)
        for _ in tl.static_range(2):  # each takes the error times that of float32
            left = given + tl.sum(H * w[:, None], 0) - sums * w
            w += tl.sum(X * left[None, :], 1)
        on = tl.sum(S * w[:, None], 0)
        if BEGIN:
            if KIDS:
                on += _handed(mine, info, KID + front, entries, rest + column, column < width)
            if not END:
                later = rest + column < tl.load(info + PIVOTS)
                here = first + rest + column
                on += _source(
                    source, own, most, level, NODE, row, m, at, nodes, channels, here, later, second
                )
        else:
            on += tl.load(values + rest + column, mask=column < width, other=0.0)
        if END:
            tl.store(mine + tl.load(info + BOUNDARY) + column, on, mask=column < width)
        else:
            tl.store(values + rest + column, on, mask=column < width)
        if chunk == 0:
            tl.store(x + lane * nodes + first + k0 + r, w * inv, mask=r < n)


@triton.jit(do_not_specialize=PLAIN)
def down(
    x, potential, relative, base, most, shares, grounded, INFO, POSITION, PLACE, NODE,
    start, k0, nodes, num_shares, entries, channels, sources, P: tl.constexpr, C: tl.constexpr,
    END: tl.constexpr, DROPS: tl.constexpr, SAMPLE: tl.constexpr,
):  # fmt: skip
    """Potentials of a panel, from those of the rest, into x and, in the caller's units, the field
    `potential`. The last panel of a front comes first, and a parent before its children.

    DROPS: also potentials u of the second sources as a sum of a base b and of what is `relative` to
    it, for all nodes of each front. Nodes of one connected part of the network have the same base
    in a front, so that a pivot p, which hands h_p0 to ground and h_pq to later nodes, has
        u_p - b = z_p - h_p0 b + sum over q of h_pq (u_q - b),
    z_p being its received current over its total. A child's base is its first boundary node; parts
    that this node does not belong to keep the parent's. So differences between neighbours are found
    with errors relative to what potentials differ by around them. The base of a part begins with
    its last node, which hands all to ground.
    """
    row = tl.program_id(0).to(tl.int64)
    m = row // sources
    info, first, front, f, n, rest = _panel(INFO, start, k0, P)
    width = f - rest
    shares += m * num_shares + tl.load(info + SHARES)
    r = tl.arange(0, P)
    i, j = r[:, None], r[None, :]
    X = tl.load(shares + (k0 + i) * f + k0 + j, mask=(j <= i) & (i < n), other=0.0)
    here = first + k0 + r
    x += row * nodes
    own = tl.load(x + here, mask=r < n, other=0.0)
    received = tl.zeros([P, C], own.dtype)
    none = float("-inf")
    if DROPS:
        relative, base = relative + row * entries, base + row * entries
        z = tl.load(x + tl.num_programs(0) * nodes + here, mask=r < n, other=0.0)
        from_beside = tl.zeros([P, C], own.dtype)
        bases = tl.full([P, C], none, own.dtype)
        if END:  # the rest is the boundary, which the parent has done
            above = tl.load(info + PARENT_FRONT)
            place = PLACE + tl.load(info + BOUNDARY)
            one = above + tl.load(place, mask=width > 0, other=0)
            change = tl.load(relative + one, mask=width > 0, other=0.0)
            changed = tl.load(base + one, mask=width > 0, other=0.0)
    for q in range(tl.cdiv(width, C)):
        column = q * C + tl.arange(0, C)
        inside = column < width
        at = shares + (k0 + i) * f + rest + column[None, :]
        S = tl.load(at, mask=(i < n) & inside[None, :], other=0.0)
        position = tl.load(POSITION + front + rest + column, mask=inside, other=0)
        received += S * tl.load(x + position, mask=inside, other=0.0)[None, :]
        if DROPS:
            to = front + rest + column
            if END:
                at = above + tl.load(place + column, mask=inside, other=0)
                beside = tl.load(relative + at, mask=inside, other=0.0)
                of_beside = tl.load(base + at, mask=inside, other=0.0)
                shift = tl.where(inside & (of_beside == changed), change, 0.0)
                beside -= shift
                of_beside += shift
                tl.store(relative + to, beside, mask=inside)
                tl.store(base + to, of_beside, mask=inside)
            else:
                beside = tl.load(relative + to, mask=inside, other=0.0)
                of_beside = tl.load(base + to, mask=inside, other=0.0)
            from_beside += S * beside[None, :]
            bases = tl.maximum(bases, tl.where(S > 0, of_beside[None, :], none))
    own += tl.sum(received, 1)
    own = tl.sum(X * own[:, None], 0)
    tl.store(x + here, own, mask=r < n)
    bits = tl.load(most + m)
    factor = tl.where(_finite(bits), _scale(bits), float("nan"))
    if SAMPLE:
        factor = tl.sqrt(factor)
    at = (m // channels * sources + row % sources) * nodes * channels + m % channels
    node = tl.load(NODE + here, mask=r < n, other=0)
    tl.store(potential + at + node * channels, own * factor, mask=r < n)
    if DROPS:
        ground = tl.load(grounded + m * nodes + here, mask=r < n, other=0.0)
        mine = tl.where(ground == 1, z, tl.max(bases, 1))
        mine = tl.max(tl.where(X > 0, mine[:, None], none), 0)
        mine = tl.where(mine == none, 0.0, mine)  # no part of the network
        z += tl.sum(from_beside, 1) - ground * mine
        z = tl.sum(X * z[:, None], 0)
        tl.store(relative + front + k0 + r, z, mask=r < n)
        tl.store(base + front + k0 + r, mine, mask=r < n)


@triton.jit(do_not_specialize=PLAIN)
def drops(
    x, relative, base, most, drop, EDGE_OF, NEAR, FAR, POSITION, nodes, per_axis, entries, size,
    channels, sources, OFF: tl.constexpr, AXES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Differences of potentials for each entry of the conductances, in fields of `size` numbers an
    axis; 0 where no edge is.

    NEAR, FAR: where the ends of an edge are in the tables of fronts. OFF: see `judge_drops` of the
    C kernel.
    """
    row = tl.program_id(0).to(tl.int64)
    m = row // sources
    entry = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    edge = tl.load(EDGE_OF + entry, mask=entry < AXES * per_axis, other=-1)
    some = edge >= 0
    near = tl.load(NEAR + edge, mask=some, other=0)
    far = tl.load(FAR + edge, mask=some, other=0)
    relative, base = relative + row * entries, base + row * entries
    found = tl.load(relative + near, mask=some, other=0.0)
    found -= tl.load(relative + far, mask=some, other=0.0)
    found += tl.load(base + near, mask=some, other=0.0) - tl.load(base + far, mask=some, other=0.0)
    a = tl.load(x + row * nodes + tl.load(POSITION + near, mask=some, other=0))
    b = tl.load(x + row * nodes + tl.load(POSITION + far, mask=some, other=0))
    right = tl.abs(found - (a - b)) <= OFF * (tl.abs(a) + tl.abs(b))
    bits = tl.load(most + m)
    factor = tl.where(_finite(bits), _scale(bits), float("nan"))
    value = tl.where(right, found, a - b) * factor
    at = (m // channels * sources + row % sources) * per_axis + entry % per_axis
    to = (entry // per_axis).to(tl.int64) * size + at * channels + m % channels
    tl.store(drop + to, tl.where(some, value, 0.0), mask=entry < AXES * per_axis)
