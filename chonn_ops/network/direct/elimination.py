"""`Elimination`: networks eliminated once, in numbers. `chonn_ops.network.factorization` adds
checks and derivatives.

With A v = s the nodal equations, A = U^T D U from the elimination, U unit upper triangular with
minus the shares above its diagonal and D the pivots, a solve is forward and back substitution, the
log-determinant the sum of the pivots' logarithms, and U^-1 D^(-1/2) noise has the covariance A^-1.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import Backends
from chonn_ops._dtypes import compute_dtype, widest_dtype
from chonn_ops._library import CONSTANTS
from chonn_ops.checks import error, resonance
from chonn_ops.network.direct import cpu
from chonn_ops.network.direct.plan import Plan, make_plan
from chonn_ops.network.direct.solution import Solution
from chonn_ops.network.layout import Grid, Layout, sizes_of


@torch.no_grad()
def small_results(module: Any, device: torch.device) -> tuple[Tensor, ...]:
    """Potentials and differences of a small network by the `Factors` of a module."""
    ones = torch.ones(1, 9, 7, 1, dtype=torch.float32, device=device)
    conductance, leak = (ones.cumsum(1), 1e3 / ones.cumsum(2)), 1e-3 * ones
    # Differences along each axis: where there are none, the rounding of each module would be all.
    source = (ones.cumsum(1) * ones.cumsum(2))[:, None]
    plan = make_plan(Grid((9, 7), (False, True)))
    solution = module.Factors(plan, conductance, leak, source, drops=True).solution
    return solution.potential, *solution.drops


# The relative residual that solvers allow; a complex network above it is at a resonance.
TOL = 1e-5
# The residual at which refinement of networks in complex128 stops, whatever `tol`.
ROUNDED = 4 * torch.finfo(torch.float64).eps
# A residual above this is not put down to rounding: the solution has lost six digits or more.
RESONANT = 1e-6
# No variable of the environment selects one of these.
BACKENDS = Backends(
    "chonn_ops.network.direct", "", names=("torch", "cpu", "triton"), results_on=small_results
)


def _plan_for(
    leak: Tensor, layout: Layout, dtype: torch.dtype, backend: str, at_once: float = math.inf
) -> Plan:
    """The plan that suits these networks and the backend; a RuntimeError where the factors that are
    held, of all or of `at_once` networks, would take more than all memory."""
    count = leak.shape[0] * leak.shape[-1]
    most, held = memory_of(leak.device), int(min(count, at_once))
    if predicted_bytes(layout, held, dtype) > most:
        raise too_large(layout, held, dtype, most, "the memory that there is")
    if backend == "cpu":
        return cpu.plan_of(layout, count, dtype)
    if backend == "triton":
        return BACKENDS["triton"].plan_of(layout)
    return make_plan(layout)


def _backend_of(leak: Tensor, backend: str | None, dtype: torch.dtype) -> str:
    """The backend; by default the fastest for the tensors' device. "triton" takes real networks."""
    name = BACKENDS.name_for(backend or "", leak.device)
    return "torch" if name == "triton" and dtype.is_complex else name


class Elimination:
    """The elimination of networks, without checks; the backend "torch" has derivatives by PyTorch.

    Conductances are one tensor an axis, (B, \\*grid, C), whose last entry along an axis counts for
    periodic axes only; of a graph one, (B, E, C). The leak (B, \\*grid, C) includes the boundary's.
    By default the dtype is float64 or complex128 where any input is, else float32 or complex64, and
    the backend ("cpu", "torch" or "triton") the fastest for the tensors' device.

    With a `source` (B, \\*grid, C) or (B, S, \\*grid, C), `solution` holds what `solve_all`
    returns, and residuals. With ``keep=False`` that is all: on the backend "cpu" batches take less
    memory and time then, because the factors of a group of networks stay in the cache until the
    next group's take their place. The `state` of the same networks takes the place of an
    elimination.

    Complex factors are of the dtype of the networks on the backend "cpu", complex128 on "torch".
    `tol` is the relative residual at which refinement of complex64 factors stops; others are
    refined to rounding. Networks that complex64 factors leave above it are eliminated again in
    complex128. What is above `tol` then is at a resonance, a RuntimeError. Results that no source
    determines are complex128.

    Errors name networks by (batch, channel). Where these networks are some of the caller's, one
    channel each, `before` says how many of them come before these, and `channels` how many channels
    the caller has.
    """

    def __init__(
        self,
        conductance: Sequence[Tensor],
        leak: Tensor,
        layout: Layout,
        *,
        dtype: torch.dtype | None = None,
        backend: str | None = None,
        source: Tensor | None = None,
        drops: bool = False,
        state: Sequence[Tensor] | None = None,
        keep: bool = True,
        tol: float = TOL,
        before: int = 0,
        channels: int | None = None,
    ) -> None:
        narrow = dtype or compute_dtype(leak, *conductance)
        self.backend, self.shape = _backend_of(leak, backend, narrow), leak.shape
        self._complex = narrow.is_complex
        self.dtype = widest_dtype(narrow, leak.device) if self._complex else narrow
        self._before, self._channels = before, channels or leak.shape[-1]
        self._wide: Any = None  # the networks, or some of them, eliminated in a wider dtype
        # The compiled kernel makes its own plan from a state.
        general = self._complex or (state is not None and self.backend == "cpu")
        # Then the compiled kernel holds the factors of one network, or group of lanes, a thread.
        once = self.backend == "cpu" and not keep
        at_once = torch.get_num_threads() if once else math.inf
        plan = _plan_for(leak, layout, narrow, "torch" if general else self.backend, at_once)
        network = [x.to(narrow).resolve_conj() for x in (leak, *conductance)]
        self._plan, self._tol, self._dense = plan, tol, None
        self._network = network if self._complex else []
        self._kind = BACKENDS[self.backend].Factors
        # Callers with complex128 numbers want all of their digits.
        self._options = {}
        if self._complex:
            self._options["tol"] = min(tol, ROUNDED) if narrow == self.dtype else tol
        self.factors: Any = None
        if state is not None:
            self.factors = self._kind.restored(plan, state, network[0], **self._options)
            return
        s = None if source is None else self._sources(source)
        options = {"drops": drops, **self._options, **({"keep": False} if once else {})}
        factors = self._kind(plan, network[1:], network[0], s, **options)
        solution, factors.solution = factors.solution, None
        self.factors = None if once else factors
        if source is not None and s is not None:
            self.solution = self._finished(source, s, solution)

    def state(self) -> list[Tensor]:
        """The elimination as tensors, for the argument `state`."""
        return self.factors.state()

    def wide(self, conductance: Sequence[Tensor], leak: Tensor) -> Elimination:
        """The same networks eliminated in the widest dtype, once."""
        wide = widest_dtype(self.dtype, leak.device)
        if self.dtype == wide:
            return self
        if self._wide is None:
            g, leak = [x.detach() for x in conductance], leak.detach()
            layout = self._plan.layout
            self._wide = Elimination(g, leak, layout, dtype=wide, backend=self.backend)
        return self._wide

    def solve(self, source: Tensor) -> Tensor:
        """Potentials for sources (B, \\*grid, C) or (B, S, \\*grid, C), in the factors' dtype;
        of complex networks complex64 where a source is no wider."""
        return self.solve_all(source, drops=False).potential

    def solve_all(self, source: Tensor, *, drops: bool) -> Solution:
        """Potentials and, where wanted, drops: for each axis each node's potential less the next
        one's, 0 where no edge is. A drop is right to the rounding of the smaller of two: both
        potentials, and the largest drop that the currents of its connected part make. So drops have
        digits where potentials decay, and where small leaks lift all of them alike. Those of
        complex networks are differences of their potentials."""
        s = self._sources(source)
        network: Any = {"network": self._network} if self._complex else {}
        return self._finished(source, s, self.factors.solve(s, drops=drops, **network))

    def _sources(self, source: Tensor) -> Tensor:
        """(B, S, \\*grid, C), in the dtype of potentials."""
        several = source if source.dim() > len(self.shape) else source[:, None]
        dtype = self.dtype
        if self._complex:
            dtype = torch.promote_types(source.dtype, torch.complex64)
        return several.to(dtype).resolve_conj()

    def _finished(self, source: Tensor, s: Tensor, solution: Solution) -> Solution:
        """The solution, without S where `source` has none; a complex one is mended where it is not
        one, and a RuntimeError where that fails."""
        if self._complex and (residual := solution.residual) is not None:
            late = residual > self._tol  # a residual of NaN is that of a NaN in an input
            if self.backend == "cpu" and self._network[0].dtype != self.dtype and bool(late.any()):
                self._solve_wide(s, solution, late.any(1))
                late = residual > self._tol
            if bool(late.any()):
                self._refuse(s, solution.potential, residual, late)
        if source.dim() > len(self.shape):
            return solution
        v, drops, residual = solution
        residual = None if residual is None else residual[:, 0]
        return Solution(v[:, 0], [x[:, 0] for x in drops], residual)

    def _solve_wide(self, s: Tensor, solution: Solution, late: Tensor) -> None:
        """Replace the solutions of at least the networks `late` (B, C) by those of complex128."""
        eliminated = self._wide  # which another thread may replace
        if eliminated is not None:
            late = late | eliminated[0]
        fields = (x.movedim(-1, 1)[late][..., None] for x in (s, *self._network))
        part, leak, *g = (x.to(self.dtype) for x in fields)
        options: Any = {"drops": len(solution.drops) > 0}
        if self.factors is None:
            options |= {"tol": self._tol, "keep": False}
            wide = self._kind(self._plan, g, leak, part, **options).solution
        else:
            if eliminated is None or not torch.equal(late, eliminated[0]):
                factors = self._kind(self._plan, g, leak, tol=self._tol)
                self._wide = eliminated = late, factors
            wide = eliminated[1].solve(part, network=(leak, *g), **options)
        every: Any = ((x.potential, *x.drops, x.residual) for x in (solution, wide))
        for narrow, ahead in zip(*every, strict=True):
            narrow.movedim(-1, 1)[late] = ahead[..., 0].to(narrow.dtype)

    def _refuse(self, s: Tensor, v: Tensor, residual: Tensor, late: Tensor) -> None:
        """Refuse networks that are `late` (B, S, C) by more than rounding."""
        leak, *g = (x.to(self.dtype).abs() for x in self._network)
        fields = (sizes_of(v.to(self.dtype).abs(), g, leak, self._plan.layout), s.to(self.dtype))
        terms, norm = (torch.linalg.vector_norm(x.flatten(2, -2), dim=2) for x in fields)
        rounding = CONSTANTS["NETWORK_ROUNDING"] * torch.finfo(torch.float64).eps * terms / norm
        late = late & (residual > rounding.clamp_max(RESONANT))
        if bool(late.any()):
            b, source, c = late.nonzero()[0].tolist()
            where = divmod(self._before + b * late.shape[-1] + c, self._channels)
            raise resonance(float(residual[b, source, c]), self._tol, where)

    def require_definite(self, conductance: Sequence[Tensor], leak: Tensor) -> None:
        """Refuse real networks with negative numbers, given once more, whose matrix is not positive
        definite: a pivot is not positive, or so small that rounding decides. Then s v and the power
        v A v differ, which are equal for the potentials v of a source s."""
        layout = self._plan.layout
        noise = torch.randn(self.shape[1:-1], generator=torch.Generator().manual_seed(0))
        s = noise[..., None].to(leak).expand(self.shape)
        v, rows = self.solve(s), (1, -2)
        edges = zip(layout.edges(conductance), layout.drops(v), strict=True)
        pairs = [*edges, (leak, v)]
        # Squares of v alone would overflow where conductances are below 1e-155.
        power = sum((g * drop * drop).flatten(*rows).sum(1) for g, drop in pairs)
        work = (s * v).flatten(*rows).sum(1)
        # The elimination leaves out nodes without an edge whose leak is no pivot.
        wrong = (self.logdet() == -math.inf) | ((v == 0) & (leak < 0)).flatten(*rows).any(1)
        lost = (work - power).abs() > RESONANT * work.abs()
        some = (leak, *layout.entries(conductance))
        signed = torch.stack([(x < 0).flatten(*rows).any(1) for x in some]).any(0)
        refused = (wrong | lost) & signed
        if not bool(refused.any()):
            return
        b, c = refused.nonzero()[0].tolist()
        diagonal = leak + layout.sums_at_nodes(layout.edges(conductance))
        node = (diagonal[b, ..., c] < 0).nonzero().tolist()
        why = "a pivot that is not positive" if wrong[b, c] else "one that is singular to rounding"
        if node:
            why = f"a diagonal entry below 0 at node {tuple(node[0])}"
        where = divmod(self._before + b * self.shape[-1] + c, self._channels)
        expected = "numbers >= 0, or a matrix that is positive definite"
        raise error("conductance", expected, f"{why} in network {where} (batch, channel)")

    def sample(self, noise: Tensor) -> Tensor:
        """U^-1 D^(-1/2) noise, shapes as in `solve`."""
        several = noise.dim() > len(self.shape)
        out = self.factors.sample((noise if several else noise[:, None]).to(self.dtype))
        return out if several else out[:, 0]

    def _for_results(self) -> Any:
        """Factors that have determinants and inverses: of complex networks those of PyTorch."""
        if not self._complex or self.backend == "torch":
            return self.factors
        if self._dense is None:
            leak, *g = self._network
            self._dense = BACKENDS["torch"].Factors(self._plan, g, leak)
        return self._dense

    def logdet(self) -> Tensor:
        """Logarithms of the determinants, (B, C), float64 or complex128; the imaginary part up to
        multiples of 2 pi. A network at a resonance is a RuntimeError."""
        return self._for_results().logdet()

    def inverse_entries(self) -> tuple[Tensor, list[Tensor]]:
        """The diagonal of the inverse and its entries at each axis's edges, (B, \\*grid, C)."""
        return self._for_results().inverse_entries()


def predicted_bytes(layout: Layout, count: int, dtype: torch.dtype = torch.float32) -> int:
    """Predict the bytes of the factors of `count` networks (batch times channels) on the CPU and of
    the elimination's workspace; a group of lanes that is not full counts as a full one."""
    # The kernel lays its memory out by these.
    laid_out_by = torch.get_num_threads(), os.environ.get("CHONN_NETWORK_ISA")
    return _predicted_bytes(layout, count, dtype, *laid_out_by)


@lru_cache(maxsize=256)
def _predicted_bytes(layout: Layout, count: int, dtype: torch.dtype, *_: Any) -> int:
    return cpu.bytes_of(cpu.plan_of(layout, count, dtype), count, dtype)


def flops(layout: Layout) -> float:
    """Multiply-adds, counted as two, of one network's elimination."""
    return 2 * make_plan(layout).total_work


@cache
def memory_of(device: torch.device) -> int:
    """Bytes of the memory of a device; what is not known is without bound."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return sys.maxsize


def too_large(
    layout: Layout, count: int, dtype: torch.dtype, most: int, bound: str
) -> RuntimeError:
    """The error for networks whose factors would take more than `most` bytes; `bound` says what
    these are, and what to do."""
    size = predicted_bytes(layout, count, dtype)
    return RuntimeError(
        f"Circuit.solve: expected circuits whose factors take at most {most / 2**30:.3g} GiB, "
        f"{bound}, got {count} on {layout}, whose separators are so large that they would take "
        f"{size / 2**30:.1f} GiB ({size} bytes) and {count * flops(layout):.0e} operations"
    )
