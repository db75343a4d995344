"""Resistor networks in plain PyTorch, on any device: elimination or conjugate gradients.

A line is eliminated. Grids of more axes take conjugate gradients, preconditioned by one cycle of
`Multigrid`; every network of a batch has its own step lengths and stops by the rule of `Progress`.

The cycle is the compiled kernel's (`cpu/multigrid.h`), with another smoother: coarse nodes are
pairs of nodes, or squares or cubes of them, with one potential.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype, widest_dtype
from chonn_ops._library import CONSTANTS
from chonn_ops.checks import recording
from chonn_ops.network.layout import Grid

LEAST, MOST = CONSTANTS["NETWORK_RATIO_LEAST"], CONSTANTS["NETWORK_RATIO_MOST"]
ALLOWED = CONSTANTS["NETWORK_ERROR_ALLOWED"]
# Most often that an axis is halved alone.
_MOST_LEAD = 20
# The smoother damps the interval 1.25 +- 0.75 of the scaled matrix' spectrum, which ends at 2.
_CENTRE, _RADIUS = 1.25, 0.75


class Progress:
    r"""When iterations of M networks stop: one rule for the kernels in C and in PyTorch.

    Conjugate gradients from zero add one term an iteration, :math:`v = \sum_j \alpha_j p_j`, so the
    error after iteration k is the sum of the terms to come [1]_. Its norm is estimated from terms
    in [2]_, in the energy norm. Here the terms are read in the maximum norm: in the energy norm, as
    in the residual, one node with a large leak or source outweighs all others. With :math:`d_k =
    \max |\alpha_k p_k|` and q the larger of the last two ratios :math:`d_k / d_{k-1}`, between
    `LEAST` and `MOST`, the terms to come are taken for a geometric series:

    .. math:: e_k = d_k \, q / (1 - q)

    A network has converged where

    .. math:: |r|_2 \le tol \, |s|_2 \quad\text{and}\quad e_k \le \text{ALLOWED} \, tol \, \max |v|

    A solver returns the larger of :math:`|r|_2 / |s|_2` and :math:`e_k / (\text{ALLOWED} \, \max
    |v|)`, its `deviation`, which is at most `tol` in exactly these networks. It is 0 where r is 0.

    The estimate is no bound. On networks of two and three axes (smooth, two-phase, noise of
    contrasts up to 10,000, nodes held by leaks of 1e6 and 1e9, layers of metal, capacitors over
    twelve decades) and `tol` of 1e-3 to 1e-8, errors of potentials and of all gradients were at
    most 10 `tol` of the largest, where the residual alone stopped at up to 5e6 `tol`. With four
    times as large an `ALLOWED` gradients of edges were up to 18 `tol` off. Smooth networks take one
    iteration more than by the residual alone: 3 or 4 at a `tol` of 1e-3 and 5 or 6 at 1e-5. Noise
    of contrast 10,000 takes 13 to 15 for 10 to 14, and 19 to 22 for 17 to 22.

    References
    ----------
    .. [1] M. R. Hestenes, E. Stiefel, "Methods of conjugate gradients for solving linear systems",
       J. Res. Nat. Bur. Standards 49 (1952) 409, section 6.
    .. [2] Z. Strakos, P. Tichy, "On error estimation in the conjugate gradient method and why it
       works in finite precision computations", Electronic Transactions on Numerical Analysis 13
       (2002) 56.
    """

    def __init__(self, norm: Tensor) -> None:
        """Begin with the norms :math:`|s|_2` of the sources, (M,)."""
        self._norm = torch.where(norm > 0, norm, 1)
        self._term, self._ratio = torch.full_like(norm, torch.inf), torch.zeros_like(norm)

    def deviation(self, residual: Tensor, term: Tensor, largest: Tensor) -> Tensor:
        """Judge an iteration by its :math:`|r|_2`, :math:`\\max |\\alpha p|` and
        :math:`\\max |v|`, (M,) each."""
        ratio = torch.where(self._term > 0, term / self._term, 0)
        q = torch.maximum(ratio, self._ratio).clamp(LEAST, MOST)
        self._term, self._ratio = term, ratio
        error = term * q / ((1 - q) * ALLOWED * largest)
        return torch.where(residual == 0, 0, torch.maximum(residual / self._norm, error))


def networks_at_once(grid: Sequence[int], device: torch.device) -> int:
    """Few enough for a CPU's cache, many enough for a GPU."""
    nodes = 2**18 if device.type == "cpu" else 2**24
    return max(1, nodes // max(1, math.prod(grid)))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a.flatten(1), b.flatten(1))


def _largest(field: Tensor) -> Tensor:
    return torch.linalg.vector_norm(field.flatten(1), math.inf, dim=1)


def _each(factor: Tensor, field: Tensor) -> Tensor:
    """A number for every network, to go with a field."""
    return factor.view(-1, *(1,) * (field.ndim - 1))


def reciprocal(total: Tensor) -> Tensor:
    """1 / t, or 0 where t is 0: a node without edges and leak has the potential 0."""
    return torch.where(total > 0, total.reciprocal(), 0)


class Level:
    """M networks on a grid: `edges` (M, \\*grid), one an axis, with 0 at entries that belong to no
    edge, and `leak` (M, \\*grid); `inverse` is that of the diagonal of the matrix."""

    def __init__(self, edges: Sequence[Tensor], leak: Tensor) -> None:
        self.edges, self.leak = list(edges), leak
        total = leak.clone()
        for axis, g in enumerate(edges, 1):
            total += g
            total += g.roll(1, axis)
        self.inverse = reciprocal(total)

    def subtract_currents(self, source: Tensor, v: Tensor) -> Tensor:
        """``source -= A v``, in place. Currents follow from differences of potentials, because the
        rounding of the matrix' diagonal would lose small leaks."""
        source.addcmul_(self.leak, v, value=-1)
        for axis, g in enumerate(self.edges, 1):
            current = torch.sub(v.roll(-1, axis), v).mul_(g)
            source.add_(current).sub_(current.roll(1, axis))
        return source

    def smooth(self, r: Tensor, *, update: bool) -> Tensor:
        """Potentials after two steps of Chebyshev iteration from zero, which finds all nodes'
        residuals at once. With `update`, `r` becomes the residual of the result; otherwise it lacks
        the last step."""
        step = (r * self.inverse).div_(_CENTRE)
        v, rate = step.clone(), _RADIUS / _CENTRE
        self.subtract_currents(r, step)
        faster = 1 / (2 * _CENTRE / _RADIUS - rate)
        step.mul_(rate * faster).addcmul_(r, self.inverse, value=2 * faster / _RADIUS)
        if update:
            self.subtract_currents(r, step)
        return v.add_(step)

    def coarsen(self, halved: Sequence[bool]) -> Level:
        """The networks of coarse nodes. Along halved axes one edge is left of two, but potentials
        that are equal in pairs make currents twice as large as smooth ones do: half of the edge
        counts (D. Braess, Computing 55 (1995) 379)."""
        edges = []
        for axis, g in enumerate(self.edges, 1):
            n = g.shape[axis]
            if halved[axis - 1]:  # the edges between pairs, and the last entry
                some = torch.arange(1, n + n % 2, 2, device=g.device).clamp_max_(n - 1)
                g = g.index_select(axis, some) * (0.5 if len(some) > 1 else 0)
            across = [chosen and i != axis for i, chosen in enumerate(halved, 1)]
            edges.append(_restrict(g, across))
        return Level(edges, _restrict(self.leak, halved))


def _restrict(field: Tensor, halved: Sequence[bool]) -> Tensor:
    """Sums over the nodes of each coarse node."""
    for axis in (i for i, chosen in enumerate(halved, 1) if chosen):
        first, second = (field[(slice(None),) * axis + (slice(i, None, 2),)] for i in (0, 1))
        field = first.clone()
        field.narrow(axis, 0, second.shape[axis]).add_(second)
    return field


def _prolong(field: Tensor, halved: Sequence[bool], shape: Sequence[int]) -> Tensor:
    """The potentials of coarse nodes at the nodes of a field of this shape."""
    for axis in (i for i, chosen in enumerate(halved, 1) if chosen):
        pairs = torch.stack([field, field], axis + 1).flatten(axis, axis + 1)
        field = pairs.narrow(axis, 0, shape[axis])
    return field


def _inverse_factors(level: Level, periodic: bool) -> Tensor:
    """W (M, N, N) with ``W^T W = A^-1``, for small networks of N nodes in row-major order, by
    elimination without a subtraction, see `chonn_ops.network.direct.torch`.

    Multiplying by W and then by its transpose keeps the digits of sources that sum to zero. A
    product with A^-1 would lose them, because a small leak adds a large constant to all entries of
    A^-1.
    """
    M, *grid = level.leak.shape
    nodes = math.prod(grid)
    leak, every = level.leak.flatten(1).clone(), torch.arange(nodes, device=level.leak.device)
    g = leak.new_zeros(M, nodes, nodes)
    for axis, edge in enumerate(level.edges):
        g[:, every, every.reshape(grid).roll(-1, axis).flatten()] += edge.flatten(1)
    g += g.mT.clone()
    # The bandwidth of the matrix, which elimination does not increase.
    reach = nodes if periodic else nodes // grid[0]
    factor, totals = torch.zeros_like(g), leak.clone()
    for k in range(nodes):
        ahead = slice(k + 1, k + 1 + reach)
        edges = g[:, k, ahead]
        total = leak[:, k] + edges.sum(1)
        # A total of rounding size: the node is the last one of a part without leak.
        total = torch.where(total > torch.finfo(g.dtype).eps * edges.sum(1), total, 0)
        totals[:, k] = total
        share = edges * reciprocal(total)[:, None]
        g[:, ahead, ahead].addcmul_(edges[:, :, None], share[:, None, :])
        leak[:, ahead].addcmul_(share, leak[:, k, None])
        factor[:, ahead, k] = share.neg_()
    one = torch.eye(nodes, dtype=g.dtype, device=g.device)
    lower = torch.linalg.solve_triangular(factor, one, upper=False, unitriangular=True)
    return lower.mul_(reciprocal(totals).sqrt()[:, :, None])


class Multigrid:
    """Cycles of aggregation over M networks, `level`.

    `lead` says for each axis how often it is halved before the axes with a smaller lead, see
    `lead_of_axes`; `periodic` whether edges join both ends of an axis. The cycle is a W-cycle,
    because a V-cycle converges slowly where inclusions are smaller than the spacing of a coarse
    grid. For the same reason the coarsest network, which is eliminated, has as many as 2 sqrt(N)
    nodes, so that its factors take the memory of a few fields of the finest grid.
    """

    def __init__(self, level: Level, lead: Sequence[int], periodic: bool) -> None:
        self._levels: list[tuple[Level, list[bool]]] = []
        ahead, bottom = list(lead), max(128, 2 * math.isqrt(level.leak[0].numel()))
        while level.leak[0].numel() > bottom:
            pairs = list(zip(ahead, level.leak.shape[1:], strict=True))
            most = max(x for x, n in pairs if n > 1)
            halved = [n > 1 and x == most for x, n in pairs]
            if any(n > 1 and x < most for x, n in pairs):
                ahead = [x - chosen for x, chosen in zip(ahead, halved, strict=True)]
            self._levels.append((level, halved))
            level = level.coarsen(halved)
        self._factors = _inverse_factors(level, periodic)

    def solve(self, source: Tensor) -> Tensor:
        """Approximate potentials of `source`: linear, symmetric and positive definite in it."""
        return self._cycle(source.clone(), 0)

    def _cycle(self, r: Tensor, index: int) -> Tensor:
        """Approximate potentials by one cycle from a level downwards; overwrites r."""
        if index == len(self._levels):
            v = self._factors.mT @ (self._factors @ r.flatten(1)[:, :, None])
            return v.view(r.shape)
        level, halved = self._levels[index]
        v, last = level.smooth(r, update=True), index + 1 == len(self._levels)
        coarse = _restrict(r, halved)
        more = self._cycle(coarse if last else coarse.clone(), index + 1)
        if not last:
            residual = self._levels[index + 1][0].subtract_currents(coarse, more)
            more = more + self._cycle(residual, index + 1)
        step = torch.where(level.inverse > 0, _prolong(more, halved, r.shape), 0)
        level.subtract_currents(r, step)
        return v.add_(step).add_(level.smooth(r, update=False))


def lead_of_axes(level: Level) -> Tensor:
    """How often to halve an axis alone before all axes conduct alike, shape (M, axes).

    Halving an axis halves its conductances and doubles those of the other axes, a factor of 4. The
    smoother is effective only along axes that conduct about as well as the best one.
    """
    strengths = []
    for g in (g.flatten(1) for g in level.edges):
        edges = (g > 0).sum(1)
        mean = torch.where(g > 0, g.log2(), 0).sum(1) / edges
        strengths.append(torch.where(edges > 0, mean, -math.inf))
    strength = torch.stack(strengths, 1)
    lead = (strength - strength.amin(1, keepdim=True)).nan_to_num(nan=0) / 2
    return lead.clamp(max=_MOST_LEAD).round().int()


def conjugate_gradients(
    level: Level, cycle: Multigrid, source: Tensor, tol: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve for potentials, iterations and deviations (`Progress`); overwrites `source`."""
    r, norm = source, _dot(source, source).sqrt()
    progress = Progress(norm)
    deviation = (norm > 0).to(norm.dtype)
    running = norm > 0
    iterations = torch.zeros_like(norm, dtype=torch.int32)
    p, Ap = torch.zeros_like(source), torch.zeros_like(source)
    # v is rounded once, at the end: rounding at every step adds up to residuals well above `tol`.
    wide = widest_dtype(source.dtype, source.device)
    v = torch.zeros_like(source, dtype=wide)
    pAp = torch.ones_like(norm)
    # Reading a flag stalls a GPU: look now and then, as networks that have stopped stay put.
    every = 1 if source.device.type == "cpu" else 4
    for k in range(max_iterations):
        if k % every == 0 and not running.any():
            break
        z = cycle.solve(r)
        # The flexible form (Polak-Ribiere): rounding makes a cycle less than exactly linear.
        beta = torch.where(running, -_dot(Ap, z) / pAp, 0)
        p = z.addcmul_(_each(beta, p), p)
        Ap = level.subtract_currents(Ap.zero_(), p).neg_()
        pAp = _dot(p, Ap)
        running = running & (pAp > 0)
        alpha = torch.where(running, _dot(p, r) / pAp, 0)
        v += p * _each(alpha.to(wide), v)
        r.addcmul_(_each(alpha, v), Ap, value=-1)
        sizes = (_dot(r, r).sqrt(), alpha * _largest(p), _largest(v).to(norm.dtype))
        deviation = torch.where(running, progress.deviation(*sizes), deviation)
        iterations += running
        running = running & (deviation > tol)
    return v.to(source.dtype), iterations, deviation


def _groups(level: Level) -> list[tuple[list[int], Tensor | None]]:
    """The leads that occur and the networks that have them, None for all of them.

    Networks of the same anisotropy form a group, so that no result depends on the other networks
    of a call. Anisotropies cannot be read while a CUDA graph is recorded: all axes are then halved
    together.
    """
    if recording(level.leak):
        return [([0] * len(level.edges), None)]
    leads, group = lead_of_axes(level).unique(dim=0, return_inverse=True)
    if len(leads) == 1:
        return [(leads[0].tolist(), None)]
    rows = [(group == index).nonzero().squeeze(1) for index in range(len(leads))]
    return list(zip(leads.tolist(), rows, strict=True))


def _solve_grids(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Networks (M, *grid) of two axes or more, without NaN or infinity."""
    level = Level(conductance, leak)
    # A node that nothing is tied to has potential zero, whatever its source.
    s = source.mul_(level.inverse > 0)
    v, iterations = torch.empty_like(s), s.new_zeros(len(s), dtype=torch.int32)
    deviation = s.new_zeros(len(s))
    for lead, rows in _groups(level):
        every, part = slice(None), level
        if rows is not None:
            every, part = rows, Level([g[rows] for g in level.edges], leak[rows])
        v[every], iterations[every], deviation[every] = conjugate_gradients(
            part, Multigrid(part, lead, any(periodic)), s[every], tol, max_iterations
        )
    return v.mul_(level.inverse > 0), iterations, deviation


def _eliminate_lines(source: Tensor, conductance: Tensor, leak: Tensor) -> Tensor:
    """Potentials of lines (M, N) by cyclic reduction [1]_, in log2 N steps and O(M N) memory.

    Entry p of `conductance` (M, N) joins nodes p and p + 1. The last entry joins the last node and
    the first of a periodic line; it is 0 on other lines.

    References
    ----------
    .. [1] R. W. Hockney, "A fast direct solution of Poisson's equation using Fourier analysis",
       J. ACM 12 (1965) 95.
    """
    nodes = source.shape[1]
    if nodes == 1:
        return source * reciprocal(leak)
    down, up = conductance[:, 0 : nodes - 1 : 2], conductance[:, 1::2]
    share = reciprocal(leak[:, 1::2] + down + up)
    to_lower, to_upper = down * share, up * share
    # With an even number of nodes the last node is eliminated; its upper neighbour is the first.
    seam = nodes % 2 == 0
    uppers = nodes // 2 - seam

    def eliminate(field: Tensor) -> Tensor:
        kept, gone = field[:, 0::2].clone(), field[:, 1::2]
        kept[:, : nodes // 2].addcmul_(to_lower, gone)
        kept[:, 1:].addcmul_(to_upper[:, :uppers], gone[:, :uppers])
        if seam:
            kept[:, 0].addcmul_(to_upper[:, -1], gone[:, -1])
        return kept

    edges = to_lower * up
    if not seam:
        edges = torch.cat([edges, conductance[:, -1:]], 1)
    even = _eliminate_lines(eliminate(source), edges, eliminate(leak))
    above = torch.cat([even[:, 1:], even[:, :1]], 1) if seam else even[:, 1:]
    odd = source[:, 1::2] * share
    odd.addcmul_(to_lower, even[:, : nodes // 2]).addcmul_(to_upper, above)
    potential = torch.empty_like(source)
    potential[:, 0::2], potential[:, 1::2] = even, odd
    return potential


def _solve_lines(
    source: Tensor, conductance: Tensor, leak: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Lines (M, N), without NaN or infinity."""
    before = conductance.roll(1, 1)
    s = source * (leak + conductance + before > 0)
    v = _eliminate_lines(s, conductance, leak)
    current = conductance * (v.roll(-1, 1) - v)
    residual = torch.linalg.vector_norm(s - leak * v + current - current.roll(1, 1), dim=1)
    norm = torch.linalg.vector_norm(s, dim=1)
    return v, torch.zeros_like(norm, dtype=torch.int32), residual / torch.where(norm > 0, norm, 1)


def _unit(values: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Find units for M networks: powers of two near the largest magnitude of their fields, and
    whether all numbers are finite, (M,) each."""
    magnitudes = (field.abs().flatten(1) for field in values)
    largest = torch.stack([magnitude.amax(1) for magnitude in magnitudes]).amax(0)
    finite = largest.isfinite()
    exponent = torch.frexp(torch.where(finite, largest, 0)).exponent
    return torch.ldexp(torch.ones_like(largest), exponent), finite


def _solve_networks(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Networks (M, *grid); overwrites its tensors."""
    for axis, g in enumerate(conductance):
        if not periodic[axis]:
            g.select(axis + 1, -1).zero_()
    # Powers of two: tiny currents and conductances must not underflow when they are squared.
    current, sound = _unit([source])
    siemens, finite = _unit([leak, *conductance])
    sound = sound & finite
    for field, scale in ((source, current), *((g, siemens) for g in (leak, *conductance))):
        field.div_(_each(scale, field)).masked_fill_(_each(~sound, field), 0)
    if len(periodic) == 1:
        v, iterations, deviation = _solve_lines(source, conductance[0], leak)
    else:
        arguments = (source, conductance, leak, periodic, tol, max_iterations)
        v, iterations, deviation = _solve_grids(*arguments)
    v.mul_(_each(current / siemens, v)).masked_fill_(_each(~sound, v), math.nan)
    return v, iterations, deviation.masked_fill_(~sound, math.nan)


@torch.no_grad()
def solve(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    layout: Grid,
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials of resistor networks, as `chonn_ops.network.solve.operator` wants them: float64
    if any input is, else float32; all NaN where a network has a NaN or an infinity. Networks stop
    by the rule of `Progress`. Lines are eliminated, in no iterations, and have relative residuals
    in the 2-norm for deviations."""
    fields = [source, leak, *conductance]
    dtype = compute_dtype(*fields)
    batch, *sizes, channels = source.shape
    # An axis of one node has no edges.
    long = [axis for axis, n in enumerate(sizes) if n > 1] or [0]
    wide = [conductance[axis] for axis in long]
    wrapped = [layout.periodic[axis] and sizes[axis] > 1 for axis in long]
    v = source.new_empty((batch, channels, *sizes), dtype=dtype)
    iterations = source.new_empty((batch, channels), dtype=torch.int32)
    deviation = source.new_empty((batch, channels), dtype=dtype)
    rows = torch.arange(batch * channels, device=source.device)
    for row in rows.split(networks_at_once(sizes, source.device)):
        b, c = row // channels, row % channels
        shape = (len(row), *(sizes[axis] for axis in long))
        s, leaks, *g = (
            f.movedim(-1, 1)[b, c].to(dtype).reshape(shape) for f in (source, leak, *wide)
        )
        x, iterations[b, c], deviation[b, c] = _solve_networks(
            s, g, leaks, wrapped, tol, max_iterations
        )
        v[b, c] = x.reshape(len(row), *sizes)
    return v.movedim(1, -1), iterations, deviation
