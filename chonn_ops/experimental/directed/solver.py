"""The solver of directed networks in plain PyTorch.

Networks of one axis are eliminated. Other networks are solved by conjugate residuals, with a
multigrid cycle as preconditioner. Fields are (n_1, ..., n_d, M) for M networks, so that every
operation runs on whole vectors of networks. All axes are treated as periodic: the last edges of an
axis that is not have conductance 0.

A coarse node is an aggregate of two fine nodes along every axis. The conductance between two
aggregates is the sum over the edges that join them, with the symmetric part halved because the
distance doubles. An upwind scheme therefore stays upwind on every level, and every level is a
directed network whose columns sum to leaks, so that charge is conserved. The smoother solves all
lines along one axis at once, damped, for each axis in turn; it works for any direction of flow.

Source: U. Trottenberg, C. Oosterlee, A. Schueller, "Multigrid" (2001), sections 5.1 and 7.1; S.
Eisenstat, H. Elman, M. Schultz, SIAM J. Numer. Anal. 20 (1983) 345 (conjugate residuals).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.experimental.directed.lines import DirectedLines
from chonn_ops.network.elimination import reciprocal
from chonn_ops.network.torch import networks_at_once, unit

_DAMPING = 0.8
_KEPT = 20  # search directions; after as many iterations the residual is computed anew


class DirectedNetwork:
    """M networks: conductances from each node to the next one of every axis, back, and leaks."""

    def __init__(self, forward: Sequence[Tensor], backward: Sequence[Tensor], leak: Tensor):
        self.forward, self.backward, self.leak = tuple(forward), tuple(backward), leak

    @property
    def axes(self) -> int:
        return len(self.forward)

    def totals(self) -> Tensor:
        """The diagonal of A: the sum of the conductances that lead away from each node."""
        total = self.leak.clone()
        for axis in range(self.axes):
            total += self.forward[axis]
            total += self.backward[axis].roll(1, axis)
        return total

    def subtract_currents(self, source: Tensor, v: Tensor, transposed: bool) -> Tensor:
        """``source -= A v``, or A^T v, in place."""
        source.addcmul_(self.leak, v, value=-1)
        for axis, (f, b) in enumerate(zip(self.forward, self.backward, strict=True)):
            if transposed:
                drop = v - v.roll(-1, axis)
                source.addcmul_(f, drop, value=-1)
                source.add_(drop.mul_(b).roll(1, axis))
            else:
                flow = (f * v).addcmul_(b, v.roll(-1, axis), value=-1)
                source.sub_(flow).add_(flow.roll(1, axis))
        return source

    def coarser(self) -> DirectedNetwork:
        """The network of aggregates of two nodes along every axis."""
        forward, backward = [], []
        for axis in range(self.axes):
            f, b = self.forward[axis], self.backward[axis]
            halved = torch.minimum(f, b) / (2 if f.shape[axis] > 1 else 1)
            forward.append(self._crossing(f - halved, axis))
            backward.append(self._crossing(b - halved, axis))
        return DirectedNetwork(forward, backward, restrict(self.leak))

    def _crossing(self, edges: Tensor, axis: int) -> Tensor:
        """The conductances between aggregates along an axis, summed over the face they share."""
        n = edges.shape[axis]
        if n <= 2:  # a single aggregate has no edge
            return restrict(torch.zeros_like(edges))
        crossing = edges.movedim(axis, 0)[1::2]
        if n % 2:
            crossing = torch.cat((crossing, edges.movedim(axis, 0)[-1:]))
        return restrict(crossing.movedim(0, axis), but=axis)


def restrict(field: Tensor, but: int | None = None) -> Tensor:
    """Sums over aggregates of two nodes along every axis, or along every axis but one.

    On an axis of odd length the last aggregate is a single node.
    """
    for axis in range(field.ndim - 1):
        n = field.shape[axis]
        if axis == but or n == 1:
            continue
        moved = field.movedim(axis, 0)
        sums = moved[0::2].clone()
        sums[: n // 2] += moved[1::2]
        field = sums.movedim(0, axis)
    return field


def prolong(coarse: Tensor, sizes: Sequence[int]) -> Tensor:
    """The value of its aggregate at each node; the transpose of `restrict`."""
    for axis, n in enumerate(sizes):
        if n > 1:
            coarse = coarse.repeat_interleave(2, axis).narrow(axis, 0, n)
    return coarse


class Cycle:
    """A multigrid cycle, which is linear in the source."""

    def __init__(self, network: DirectedNetwork, transposed: bool):
        self.transposed = transposed
        self.levels: list[tuple[DirectedNetwork, list[tuple[int, DirectedLines]]]] = []
        while network.leak[..., 0].numel() > 1:
            self.levels.append((network, self._lines(network)))
            network = network.coarser()
        self.last = reciprocal(network.leak)

    @staticmethod
    def _lines(network: DirectedNetwork) -> list[tuple[int, DirectedLines]]:
        totals, found = network.totals(), []
        for axis, (f, b) in enumerate(zip(network.forward, network.backward, strict=True)):
            if f.shape[axis] == 1:
                continue
            own = f + b.roll(1, axis)
            moved = (x.movedim(axis, 0) for x in (f, b, totals - own))
            found.append((axis, DirectedLines(*moved)))
        return found

    def solve(self, source: Tensor, level: int = 0) -> Tensor:
        """Approximate potentials of `source` by one cycle from `level` downwards."""
        if level == len(self.levels):
            return source * self.last
        network, lines = self.levels[level]
        v, residual = torch.zeros_like(source), source.clone()
        for axis, factors in lines:
            step = self._smooth(axis, factors, v, residual)
            network.subtract_currents(residual, step, self.transposed)
        step = prolong(self.solve(restrict(residual), level + 1), v.shape[:-1])
        v += step
        for axis, factors in reversed(lines):
            network.subtract_currents(residual, step, self.transposed)
            step = self._smooth(axis, factors, v, residual)
        return v

    def _smooth(self, axis: int, lines: DirectedLines, v: Tensor, residual: Tensor) -> Tensor:
        """Solve all lines along an axis, add the damped solution to `v`, and return it."""
        step = lines.solve(residual.movedim(axis, 0), self.transposed).movedim(0, axis)
        v.add_(step.mul_(_DAMPING))
        return step


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(0, -2).sum(0)


def _norm(field: Tensor) -> Tensor:
    return _dot(field, field).sqrt()


def conjugate_residuals(
    network: DirectedNetwork, source: Tensor, transposed: bool, tol: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials, iterations and relative residuals of networks of two axes or more.

    The norm of the residual does not increase from one iteration to the next. Each network has
    step sizes of its own, so its result does not depend on the other networks.
    """
    cycle = Cycle(network, transposed)
    norm = _norm(source)
    size, running = norm.clone(), norm > 0
    iterations = torch.zeros_like(norm, dtype=torch.int32)
    v, r = torch.zeros_like(source), source.clone()
    kept: list[tuple[Tensor, Tensor]] = []  # search directions p and A p
    for k in range(max_iterations):
        if not running.any():
            break
        if k and k % _KEPT == 0:
            kept.clear()
            r = network.subtract_currents(source.clone(), v, transposed)
        p = cycle.solve(r)
        Ap = network.subtract_currents(torch.zeros_like(p), p, transposed).neg_()
        for p_before, Ap_before in kept:  # make A p orthogonal to all that are kept
            beta = _dot(Ap_before, Ap)
            p.addcmul_(p_before, beta, value=-1)
            Ap.addcmul_(Ap_before, beta, value=-1)
        scale = torch.where(running, reciprocal(_norm(Ap)), 0)
        p.mul_(scale)
        Ap.mul_(scale)
        alpha = _dot(Ap, r)
        v.addcmul_(p, alpha)
        r.addcmul_(Ap, alpha, value=-1)
        kept.append((p, Ap))
        size = torch.where(running, _norm(r), size)
        iterations += running
        running = running & (size > tol * norm)
    return v, iterations, size * reciprocal(norm)


def _solve_lines(
    network: DirectedNetwork, source: Tensor, transposed: bool
) -> tuple[Tensor, Tensor, Tensor]:
    lines = DirectedLines(network.forward[0], network.backward[0], network.leak)
    v = lines.solve(source, transposed)
    left = _norm(network.subtract_currents(source.clone(), v, transposed))
    norm = _norm(source)
    return v, torch.zeros_like(norm, dtype=torch.int32), left * reciprocal(norm)


def _solve_networks(
    source: Tensor,
    forward: Sequence[Tensor],
    backward: Sequence[Tensor],
    leak: Tensor,
    transposed: bool,
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials, iterations and residuals of networks (*grid, M); overwrites its arguments."""
    # Scaled, so that the squares of tiny currents and conductances do not underflow; by powers of
    # two, so that scaling does not round.
    current, sound = unit([source], -1)
    siemens, finite = unit([leak, *forward, *backward], -1)
    sound = sound & finite
    for field, scale in (
        (source, current),
        *((g, siemens) for g in (leak, *forward, *backward)),
    ):
        field.div_(scale).masked_fill_(~sound, 0)
    network = DirectedNetwork(forward, backward, leak)
    # A node without edges and leak has the potential zero, whatever its source.
    connected = network.totals() > 0
    source.mul_(connected)
    if len(forward) == 1:
        v, iterations, residual = _solve_lines(network, source, transposed)
    else:
        v, iterations, residual = conjugate_residuals(
            network, source, transposed, tol, max_iterations
        )
    v.mul_(connected).mul_(current / siemens).masked_fill_(~sound, math.nan)
    return v, iterations, residual.masked_fill_(~sound, math.nan)


@torch.no_grad()
def solve(
    source: Tensor,
    forward: Sequence[Tensor],
    backward: Sequence[Tensor],
    leak: Tensor,
    transposed: bool,
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials of directed networks.

    Parameters
    ----------
    source, leak : Tensor, shape (B, \\*grid, C)
    forward, backward : sequence of Tensor, shape (B, \\*grid, C)
        One tensor an axis: the conductance from node p to the next one, and back. The last entry
        along the axis joins the last node and the first; it is 0 on axes that are not periodic.
    transposed : bool
        Whether to solve with the transposed matrix.
    tol : float
        Each network stops at its own recurrence residual ``|s - A v| <= tol |s|``.
    max_iterations : int
        The most iterations. Lines are eliminated, in 0 iterations.

    Returns
    -------
    potential : Tensor, shape (B, \\*grid, C)
        float64 if any input is, else float32. All NaN where a network has a NaN or an infinity.
    iterations : Tensor, shape (B, C)
        int32.
    residual : Tensor, shape (B, C)
        Relative residual in the 2-norm.
    """
    fields = [source, leak, *forward, *backward]
    dtype = compute_dtype(*fields)
    B, *sizes, C = source.shape
    # An axis of one node has no edges.
    long = [axis for axis, n in enumerate(sizes) if n > 1] or [0]
    axes, grid = len(long), [sizes[axis] for axis in long]
    used = [source, leak, *(forward[axis] for axis in long), *(backward[axis] for axis in long)]
    rows = [x.to(dtype).movedim(0, -2).reshape(*grid, B * C) for x in used]
    if grid == [1]:
        rows[2:] = [torch.zeros_like(rows[1]), torch.zeros_like(rows[1])]
    at_once = networks_at_once(grid, source.device)
    parts = []
    for some in zip(*(x.split(at_once, -1) for x in rows), strict=True):
        s, leaks, *g = (x.clone() for x in some)
        parts.append(_solve_networks(s, g[:axes], g[axes:], leaks, transposed, tol, max_iterations))
    v, iterations, residual = (torch.cat(part, -1) for part in zip(*parts, strict=True))
    v = v.reshape(*sizes, B, C).movedim(-2, 0).contiguous()
    return v, iterations.reshape(B, C), residual.reshape(B, C)
