"""Complex networks eliminated: `ComplexFactor`, and the backend "torch" of its solves.

A network of complex numbers is not definite: a pivot may be small or zero without the network being
singular. No rows are exchanged. Pivots that have lost half of their digits are raised, so that
nothing is divided by them, and iterative refinement makes good what that and rounding cost: with
the residual r = s - A v in complex128, v += A^-1 r until |r| <= tol |s|; networks given in
complex128 are refined to rounding.

Reference: X. S. Li, J. W. Demmel, "Making sparse Gaussian elimination scalable by static pivoting",
SC 1998.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops._library import CONSTANTS
from chonn_ops.network.checks import resonance
from chonn_ops.network.direct import cpu
from chonn_ops.network.direct import torch as dense
from chonn_ops.network.direct.cpu import Solution
from chonn_ops.network.direct.pivoted import LOST
from chonn_ops.network.direct.plan import Plan
from chonn_ops.network.edges import excess, is_tied, sizes_of
from chonn_ops.network.layout import Layout

# Relative residual of solutions by `factorize`, which has no `tol`.
TOL = 1e-6
# The residual at which refinement of networks in complex128 stops, whatever `tol`: raised pivots
# leave half of the digits, and callers with complex128 numbers want the other half, too.
ROUNDED = 4 * torch.finfo(torch.float64).eps
# A residual above this is not put down to rounding: the solution has lost six digits or more.
RESONANT = 1e-6


@torch.no_grad()
def check_inverse(
    diagonal: Tensor,
    entries: Sequence[Tensor],
    leak: Tensor,
    conductance: Sequence[Tensor],
    layout: Layout,
    judged: Tensor,
) -> None:
    """Require of entries of the inverse Z that A Z has the diagonal 1: near a resonance nothing
    else tells that the last pivot has lost its digits. Networks that are `judged` (B, C) have an
    estimate of their own, see `Pivoted`."""
    edges = layout.edges(conductance)
    own = leak + layout.at_both_ends(edges)
    beside = layout.at_both_ends([g * entry for g, entry in zip(edges, entries, strict=True)])
    tied = is_tied(conductance, leak, layout)
    left = torch.where(tied, own * diagonal - beside - 1, 0).abs().flatten(1, -2).amax(1)
    wrong = (left > LOST) & ~judged
    if bool(wrong.any()):
        where = tuple(wrong.nonzero()[0].tolist())
        raise RuntimeError(
            "factorize: expected A Z = 1 of the inverse Z, got an error of "
            f"{float(left[where]):.2e} in network {where} (batch, channel): it or a part of it is "
            "at a resonance. To invert it: loss, or another frequency"
        )


def _norm(field: Tensor) -> Tensor:
    """2-norms (B, S, C) of fields (B, S, \\*grid, C), float64."""
    wide = torch.promote_types(field.dtype, torch.float64)
    return torch.linalg.vector_norm(field.to(wide).flatten(2, -2), dim=2)


class RefinedFactors:
    """Factors of complex networks, like the compiled `Factors`, by PyTorch's batched fronts."""

    solution: Solution | None = None

    def __init__(
        self,
        plan: Plan,
        conductance: Sequence[Tensor],
        leak: Tensor,
        source: Tensor | None = None,
        *,
        drops: bool = False,
        tol: float,
    ) -> None:
        self._plan, self._tol = plan, tol
        self._factors = dense.Factors(plan, conductance, leak)
        if source is not None:
            self.solution = self.solve(source, drops=drops, network=(leak, *conductance))

    @classmethod
    def solved(cls, *network: Any, **options: Any) -> Solution:
        """The solution for sources (B, S, \\*grid, C)."""
        factors = cls(*network, **options)
        assert factors.solution is not None
        return factors.solution

    def state(self) -> list[Tensor]:
        """The elimination as tensors."""
        return self._factors.state()

    @classmethod
    def restored(
        cls, plan: Plan, state: Sequence[Tensor], leak: Tensor, *_: Tensor, tol: float
    ) -> RefinedFactors:
        """The factors with this `state`."""
        self = cls.__new__(cls)
        self._plan, self._tol = plan, tol
        self._factors = dense.Factors.restored(plan, state, leak)
        return self

    def solve(self, source: Tensor, *, drops: bool = False, network: Sequence[Tensor]) -> Solution:
        """The solution for sources (B, S, \\*grid, C) of the `network`, leak and conductances."""
        plan, narrow = self._plan, network[0].dtype
        each = (..., *[None] * len(plan.grid), slice(None))  # numbers beside fields
        tied = is_tied(network[1:], network[0], plan.layout)[:, None]
        leak, *wide = (x.to(torch.complex128) for x in network)
        s = source.to(torch.complex128)
        s = torch.where(tied, s, 0 * s)
        norm = _norm(s)
        v, left, residual = torch.zeros_like(s), s, torch.where(norm > 0, 1.0, 0 * norm)
        norm = torch.where(norm > 0, norm, 1)
        active = residual > 0
        for step in range(CONSTANTS["DIRECT_REFINEMENTS"] + 1):
            size = torch.where(residual > 0, residual * norm, 1)[each]
            ahead = v + self._factors.solve((left / size).to(narrow)).potential.to(v.dtype) * size
            now = excess(ahead, s, wide, leak, plan.layout)
            v, left = (torch.where(active[each], a, b) for a, b in ((ahead, v), (now, left)))
            before, residual = residual, torch.where(active, _norm(left) / norm, residual)
            # In complex64 the residual may be far below the error, so we refine at least once.
            enough = (residual <= self._tol) & (step >= (narrow == torch.complex64))
            active = active & (residual < before / 4) & ~enough
            if not bool(active.any()):
                break
        sound = self._factors.finite[:, None] & norm.isfinite()
        v = torch.where(sound[each], v, math.nan)
        found = plan.layout.drops(v) if drops else []
        found = [x.to(source.dtype) for x in found]
        return Solution(v.to(source.dtype), found, torch.where(sound, residual, math.nan))


_BACKENDS: dict[str, Any] = {"cpu": cpu.Factors, "torch": RefinedFactors}


class ComplexFactor:
    """The elimination of complex networks, without checks and without derivatives.

    Factors are of the dtype of the networks. Networks that complex64 factors leave above `tol` are
    eliminated again in complex128. What is above `tol` then is at a resonance, an error. Results
    that no source determines are complex128.

    Parameters
    ----------
    plan, conductance, leak, dtype, backend, source, drops, state
        As in `Factor`, but of complex networks and one of the backends "cpu" and "torch".
    tol : float
        Relative residual above which a network is not solved, and at which refinement of complex64
        factors stops.
    keep : bool
        False: the factors are those of `source` only, which is faster than to keep them.
    before, channels : int
        Where these networks are some of the caller's, one channel each: how many of them come
        before these, and the caller's channels. Errors name networks by (batch, channel).
    """

    dtype = torch.complex128

    def __init__(
        self,
        plan: Plan,
        conductance: Sequence[Tensor],
        leak: Tensor,
        *,
        dtype: torch.dtype,
        backend: str,
        tol: float = TOL,
        keep: bool = True,
        source: Tensor | None = None,
        drops: bool = False,
        before: int = 0,
        channels: int | None = None,
        state: Sequence[Tensor] | None = None,
    ) -> None:
        self.shape, self.backend = leak.shape, backend
        self._before, self._channels = before, channels or leak.shape[-1]
        self._plan, self._narrow, self._tol = plan, dtype, tol
        network = (x.detach().to(dtype).resolve_conj() for x in (leak, *conductance))
        self._leak, *self._g = network
        self._wide: tuple[Tensor, Any] | None = None  # networks eliminated in complex128
        self._all: dense.Factors | None = None
        self._kind, self._factors = _BACKENDS[backend], None
        own_tol = min(tol, ROUNDED) if dtype == torch.complex128 else tol
        if state is not None:
            self._factors = self._kind.restored(plan, state, self._leak, tol=own_tol)
            return
        s = None if source is None else self._rows(source)
        if keep:
            self._factors = self._kind(plan, self._g, self._leak, s, drops=drops, tol=own_tol)
            solution, self._factors.solution = self._factors.solution, None
        else:
            options = {"drops": drops, "tol": own_tol}
            solution = self._kind.solved(plan, self._g, self._leak, s, **options)
        if source is not None and s is not None:
            self.solution = self._judged(s, solution, source.dim() == len(self.shape))

    def state(self) -> list[Tensor]:
        """The elimination as tensors, for the argument `state`."""
        assert self._factors is not None
        return self._factors.state()

    def wide(self, *_: Any) -> ComplexFactor:
        """These networks with potentials in complex128, which they are."""
        return self

    def solve(self, source: Tensor) -> Tensor:
        """Potentials for sources (B, \\*grid, C) or (B, S, \\*grid, C): complex128 for float64 and
        complex128, else complex64. A network at a resonance is a RuntimeError."""
        return self.solve_all(source, drops=False).potential

    def solve_all(self, source: Tensor, *, drops: bool) -> Solution:
        """Return what `Factor.solve_all` does; drops are differences of potentials, which have the
        digits for it in complex128."""
        s = self._rows(source)
        assert self._factors is not None
        solution = self._factors.solve(s, drops=drops, network=(self._leak, *self._g))
        return self._judged(s, solution, source.dim() == len(self.shape))

    def _rows(self, source: Tensor) -> Tensor:
        """(B, S, \\*grid, C), complex."""
        s = source if source.dim() > len(self.shape) else source[:, None]
        dtype = torch.promote_types(source.dtype, torch.complex64)
        return s.detach().to(dtype).resolve_conj()

    def _judged(self, s: Tensor, solution: Solution, single: bool) -> Solution:
        """The solution, mended where it is not one; raises where that fails."""
        v, _, residual = solution
        assert residual is not None
        late = residual > self._tol  # a residual of NaN is that of a NaN in an input
        if self._narrow == torch.complex64 and bool(late.any()):
            self._solve_wide(s, solution, late.any(1))
            late = residual > self._tol
        if bool(late.any()):
            # Rounding alone leaves this much.
            floor = (
                CONSTANTS["NETWORK_ROUNDING"]
                * torch.finfo(torch.float64).eps
                * self._size(v)
                / _norm(s)
            )
            late &= residual > floor.clamp_max(RESONANT)
            if bool(late.any()):
                b, source, c = late.nonzero()[0].tolist()
                where = divmod(self._before + b * late.shape[-1] + c, self._channels)
                raise resonance(float(residual[b, source, c]), self._tol, where)
        return solution.single() if single else solution

    def _solve_wide(self, s: Tensor, solution: Solution, late: Tensor) -> None:
        """Replaces the solutions of at least the networks `late` (B, C)."""
        eliminated = self._wide  # which another thread may replace
        if eliminated is not None:
            late = late | eliminated[0]
        fields = (x.movedim(-1, 1)[late][..., None] for x in (s, self._leak, *self._g))
        part, leak, *g = (x.to(self.dtype) for x in fields)
        drops = len(solution.drops) > 0
        if self._factors is None:
            wide = self._kind.solved(self._plan, g, leak, part, drops=drops, tol=self._tol)
        else:
            if eliminated is None or not torch.equal(late, eliminated[0]):
                factors = self._kind(self._plan, g, leak, tol=self._tol)
                self._wide = eliminated = late, factors
            wide = eliminated[1].solve(part, drops=drops, network=(leak, *g))
        assert solution.residual is not None
        assert wide.residual is not None
        pairs = zip(
            (solution.potential, *solution.drops, solution.residual),
            (wide.potential, *wide.drops, wide.residual),
            strict=True,
        )
        for narrow, ahead in pairs:
            narrow.movedim(-1, 1)[late] = ahead[..., 0].to(narrow.dtype)

    def _size(self, v: Tensor) -> Tensor:
        """| |A| |v| |, (B, S, C)."""
        magnitudes = [g.abs() for g in self._g], self._leak.abs(), self._plan.layout
        return _norm(sizes_of(v.to(self.dtype).abs(), *magnitudes))

    def _dense(self) -> dense.Factors:
        """Factors in complex128."""
        if self._all is None:
            leak, *g = (x.to(self.dtype) for x in (self._leak, *self._g))
            self._all = dense.Factors(self._plan, g, leak)
        return self._all

    def logdet(self) -> Tensor:
        """(B, C), complex128; the imaginary part up to multiples of 2 pi."""
        return self._dense().logdet()

    def inverse_entries(self) -> tuple[Tensor, list[Tensor]]:
        """Return what `Factor.inverse_entries` does, in complex128."""
        factors = self._dense()
        diagonal, entries = factors.inverse_entries()
        network = (self._leak, self._g, self._plan.layout)
        check_inverse(diagonal, entries, *network, factors.cancelled)
        return diagonal, entries
