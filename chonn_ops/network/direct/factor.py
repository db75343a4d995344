"""`Factor`: networks eliminated once, in numbers. `chonn_ops.network.factorization` adds checks and
derivatives.

With A v = s the nodal equations, A = U^T D U from the elimination, U unit upper triangular with
minus the shares above its diagonal and D the pivots, a solve is forward and back substitution, the
log-determinant the sum of the pivots' logarithms, and U^-1 D^(-1/2) noise has the covariance A^-1.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import Backends
from chonn_ops._dtypes import compute_dtype, widest_dtype
from chonn_ops.network.direct import cpu
from chonn_ops.network.direct.cpu import Solution
from chonn_ops.network.direct.plan import Plan, make_plan
from chonn_ops.network.direct.refined import ComplexFactor
from chonn_ops.network.graph import Graph, Joined


@torch.no_grad()
def small_results(module: Any, device: torch.device) -> tuple[Tensor, ...]:
    """Potentials and differences of a small network by the `Factors` of a module."""
    ones = torch.ones(1, 9, 7, 1, dtype=torch.float32, device=device)
    conductance, leak = (ones.cumsum(1), 1e3 / ones.cumsum(2)), 1e-3 * ones
    # Differences along each axis: where there are none, the rounding of each module would be all.
    source = (ones.cumsum(1) * ones.cumsum(2))[:, None]
    plan = _plan_of((9, 7), (False, True))
    solution = module.Factors(plan, conductance, leak, source, drops=True).solution
    return solution.potential, *solution.drops


# No variable of the environment selects one of these.
BACKENDS = Backends(
    "chonn_ops.network.direct", "", names=("torch", "cpu", "triton"), results_on=small_results
)


def _plan_of(grid: Sequence[int], periodic: Sequence[Joined]) -> Plan:
    return make_plan(tuple(grid), tuple(periodic))


def _plan_for(
    leak: Tensor,
    periodic: Sequence[Joined],
    dtype: torch.dtype,
    backend: str,
    at_once: float = math.inf,
) -> Plan:
    """The plan that suits these networks and the backend; a RuntimeError where the factors that are
    held, of all or of `at_once` networks, would take more than all memory."""
    B, *grid, C = leak.shape
    most, held = memory_of(leak.device), int(min(B * C, at_once))
    if predicted_bytes(grid, periodic, held, dtype) > most:
        raise too_large(grid, periodic, held, dtype, most, "the memory that there is")
    if backend == "cpu":
        return cpu.plan_of(grid, periodic, B * C, dtype)
    if backend == "triton":
        return BACKENDS["triton"].plan_of(grid, periodic)
    return _plan_of(grid, periodic)


def _backend_of(leak: Tensor, backend: str | None, dtype: torch.dtype) -> str:
    """The backend; by default the fastest for the tensors' device. "triton" takes real networks."""
    name = BACKENDS.name_for(backend or "", leak.device)
    return "torch" if name == "triton" and dtype.is_complex else name


def solve(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[Joined],
    *,
    backend: str | None = None,
    drops: bool = False,
) -> Solution:
    """Solve networks once, without keeping their factors.

    Arguments are those of `Factor`. Returns the solution, S left out where `source` has none: at
    the last node of a connected part without any leak the potential is 0. For batches on the CPU
    this takes less memory and time than a `Factor`, because the factors of a group of networks stay
    in the cache.
    """
    dtype = compute_dtype(source, leak, *conductance)
    several = source.dim() == leak.dim() + 1
    backend = _backend_of(leak, backend, dtype)
    # The compiled kernel holds the factors of one network a thread, or of one group of lanes.
    at_once = torch.get_num_threads() if backend == "cpu" else math.inf
    plan = _plan_for(leak, periodic, dtype, backend, at_once)
    leak, *g = (x.to(dtype) for x in (leak, *conductance))
    s = (source if several else source[:, None]).to(dtype)
    kind = BACKENDS[backend].Factors
    solution = kind.solved(plan, g, leak, s, drops=drops)
    return solution if several else solution.single()


class Factor:
    """The elimination of networks, without checks and without derivatives.

    Parameters
    ----------
    conductance : sequence of Tensor, shape (B, \\*grid, C)
        One an axis; the last entry along an axis counts for periodic axes only. Of a graph one,
        (B, E, C).
    leak : Tensor, shape (B, \\*grid, C)
        Conductances to ground, those of the boundary included.
    periodic : sequence of bool or Graph
        One an axis; of a graph the graph alone.
    dtype : torch.dtype, optional
        Default: float64 where any input is, else float32.
    backend : {"cpu", "torch", "triton"}, optional
        Default: the fastest for the tensors' device.
    source : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C), optional
        Solved for at once; `solution` holds what `solve_all` returns, and residuals.
    drops : bool
        Whether `solution` has the drops.
    state : sequence of Tensor, optional
        The `state` of a factor of the same networks, which takes the place of an elimination.
    """

    def __init__(
        self,
        conductance: Sequence[Tensor],
        leak: Tensor,
        periodic: Sequence[Joined],
        *,
        dtype: torch.dtype | None = None,
        backend: str | None = None,
        source: Tensor | None = None,
        drops: bool = False,
        state: Sequence[Tensor] | None = None,
    ) -> None:
        self.dtype = dtype or compute_dtype(leak, *conductance)
        self.shape = leak.shape
        self._wide: Factor | None = None
        self.backend = _backend_of(leak, backend, self.dtype)
        kind, leak = BACKENDS[self.backend].Factors, leak.to(self.dtype)
        if state is not None:
            # The compiled kernel makes its own plan from the state.
            own = self.backend if self.backend == "triton" else "torch"
            plan = _plan_for(leak, periodic, self.dtype, own)
            self.factors = kind.restored(plan, state, leak)
            return
        plan = _plan_for(leak, periodic, self.dtype, self.backend)
        g = [x.to(self.dtype) for x in conductance]
        if source is None:
            self.factors = kind(plan, g, leak)
            return
        several = source.dim() == leak.dim() + 1
        s = (source if several else source[:, None]).to(self.dtype)
        self.factors = kind(plan, g, leak, s, drops=drops)
        solution, self.factors.solution = self.factors.solution, None
        self.solution = solution if several else solution.single()

    def state(self) -> list[Tensor]:
        """The elimination as tensors, for the argument `state`."""
        return self.factors.state()

    def wide(
        self, conductance: Sequence[Tensor], leak: Tensor, periodic: Sequence[Joined]
    ) -> Factor:
        """The factor of the same networks in the widest dtype, eliminated once and kept."""
        wide = widest_dtype(self.dtype, leak.device)
        if self.dtype == wide:
            return self
        if self._wide is None:
            g, l = [x.detach() for x in conductance], leak.detach()  # noqa: E741
            self._wide = Factor(g, l, periodic, dtype=wide, backend=self.backend)
        return self._wide

    def solve(self, source: Tensor) -> Tensor:
        """Potentials for sources (B, \\*grid, C) or (B, S, \\*grid, C), in the factor's dtype."""
        return self.solve_all(source, drops=False).potential

    def solve_all(self, source: Tensor, *, drops: bool) -> Solution:
        """Potentials and, where wanted, drops: for each axis each node's potential less the next
        one's, 0 where no edge is. A drop is right to the rounding of the smaller of two: both
        potentials, and the largest drop that the currents of its connected part make. So drops have
        digits where potentials decay, and where small leaks lift all of them alike."""
        several = source.dim() == len(self.shape) + 1
        s = (source if several else source[:, None]).to(self.dtype)
        solution = self.factors.solve(s, drops=drops)
        return solution if several else solution.single()

    def sample(self, noise: Tensor) -> Tensor:
        """U^-1 D^(-1/2) noise, shapes as in `solve`."""
        several = noise.dim() == len(self.shape) + 1
        out = self.factors.sample((noise if several else noise[:, None]).to(self.dtype))
        return out if several else out[:, 0]

    def logdet(self) -> Tensor:
        """Logarithms of the determinants, (B, C), float64."""
        return self.factors.logdet()

    def inverse_entries(self) -> tuple[Tensor, list[Tensor]]:
        """The diagonal of the inverse and its entries at each axis's edges, (B, \\*grid, C)."""
        return self.factors.inverse_entries()


def factor_of(
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[Joined],
    *,
    dtype: torch.dtype | None = None,
    backend: str | None = None,
    tol: float | None = None,
    **options: Any,
) -> Factor | ComplexFactor:
    """Eliminate networks: complex ones make a `ComplexFactor`, others a `Factor`.

    `options` are as these take them. `tol` is that of a `ComplexFactor`.
    """
    dtype = dtype or compute_dtype(leak, *conductance)
    if not dtype.is_complex:
        return Factor(conductance, leak, periodic, dtype=dtype, backend=backend, **options)
    if tol is not None:
        options["tol"] = tol
    backend = _backend_of(leak, backend, dtype)
    plan = _plan_for(leak, periodic, dtype, "torch")
    return ComplexFactor(plan, conductance, leak, dtype=dtype, backend=backend, **options)


def predicted_bytes(
    grid: Sequence[int], periodic: Sequence[Joined], count: int, dtype: torch.dtype = torch.float32
) -> int:
    """Predict the bytes of the factors of `count` networks (batch times channels) on the CPU and of
    the elimination's workspace; a group of lanes that is not full counts as a full one."""
    # The kernel lays its memory out by these.
    layout = torch.get_num_threads(), os.environ.get("CHONN_NETWORK_ISA")
    return _predicted_bytes(tuple(grid), tuple(periodic), count, dtype, *layout)


@lru_cache(maxsize=256)
def _predicted_bytes(
    grid: tuple[int, ...], periodic: tuple[Joined, ...], count: int, dtype: torch.dtype, *_: Any
) -> int:
    return cpu.bytes_of(cpu.plan_of(grid, periodic, count, dtype), count, dtype)


def flops(grid: Sequence[int], periodic: Sequence[Joined]) -> float:
    """Multiply-adds, counted as two, of one network's elimination."""
    return 2 * _plan_of(grid, periodic).total_work


def memory_of(device: torch.device) -> int:
    """Bytes of the memory of a device; what is not known is without bound."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return sys.maxsize


def too_large(
    grid: Sequence[int],
    periodic: Sequence[Joined],
    count: int,
    dtype: torch.dtype,
    most: int,
    bound: str,
) -> RuntimeError:
    """The error for networks whose factors would take more than `most` bytes; `bound` says what
    these are, and what to do."""
    size, where = predicted_bytes(grid, periodic, count, dtype), periodic[0]
    if not isinstance(where, Graph):
        where = f"a grid of {' x '.join(map(str, grid))}"
    return RuntimeError(
        f"kirchhoff_network: expected circuits whose factors take at most {most / 2**30:.3g} GiB, "
        f"{bound}, got {count} on {where}, whose separators are so large that they would take "
        f"{size / 2**30:.1f} GiB ({size} bytes) and {count * flops(grid, periodic):.0e} operations"
    )
