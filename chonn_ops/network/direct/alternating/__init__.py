"""The backend "cpu" of the direct method for complex numbers: the compiled kernel through ctypes,
which releases the GIL.

Networks fill the lanes of the vectors, and groups of them are shared out to threads. Refinement is
part of every solve.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops._dtypes import real_dtype
from chonn_ops.network.direct import spare
from chonn_ops.network.direct.alternating.binding import (
    DETERMINED,
    FACTORIZE,
    NOT_FINITE,
    ONCE,
    SOLVE,
    Arguments,
    arguments_of,
    available_isas,
    kernel,
)
from chonn_ops.network.direct.cpu import Solution
from chonn_ops.network.direct.plan import Plan

__all__ = ["Factors", "available_isas", "bytes_of"]

_ALIGNMENT = 64
_WORTH = 100_000  # multiply-adds for which a thread is woken


def _isa_of(double: bool, networks: int, threads: int) -> int:
    """The instruction set whose vectors are no wider than leave every thread a group."""
    found = kernel()
    assert found is not None
    return found.isa_for("CHONN_NETWORK_ISA", -(-networks // threads), double)


class Factors:
    """Complex networks eliminated by the kernel.

    Parameters
    ----------
    plan : Plan
    conductance : sequence of Tensor, shape (B, \\*grid, C)
        One an axis, of one complex dtype and on the CPU like all tensors here.
    leak : Tensor, shape (B, \\*grid, C)
    source : Tensor, shape (B, S, \\*grid, C), optional
        Solved for while the factors are in the cache; `solution` has what `refined` would
        return.
    drops : bool
        Whether `solution` has them.
    keep : bool
        False: the factors of one group take the place of those of the one before it. There is a
        `source` then, and no other solve.
    tol : float
        See `refined`.
    refinements : int
        Most steps after the first solve.

    Attributes
    ----------
    solution : Solution, optional
    """

    solution: Solution | None = None

    def __init__(
        self,
        plan: Plan,
        conductance: Sequence[Tensor],
        leak: Tensor,
        source: Tensor | None = None,
        *,
        drops: bool = False,
        keep: bool = True,
        tol: float,
        refinements: int,
    ) -> None:
        threads = max(1, torch.get_num_threads())
        isa = _isa_of(leak.dtype == torch.complex128, leak.shape[0] * leak.shape[-1], threads)
        items = self._prepare(plan, conductance, leak, tol, refinements, isa)
        counts = self._counts(items if keep else self._arguments.threads)
        self._factors = spare.empty(leak, sum(counts))
        self._shares, self._inverse = self._factors.split(counts)
        networks = leak.shape[0] * leak.shape[-1]
        self._scale = leak.new_ones(networks, dtype=real_dtype(leak.dtype))
        self._status = torch.full((networks,), DETERMINED, dtype=torch.int64)
        self.solution = self._call(FACTORIZE if keep else ONCE, source, drops)

    def _prepare(
        self,
        plan: Plan,
        conductance: Sequence[Tensor],
        leak: Tensor,
        tol: float,
        refinements: int,
        isa: int,
    ) -> int:
        """Arguments of the kernel's calls. Returns the number of groups of networks."""
        found = kernel()
        assert found is not None
        self._kernel, self._shape, self._isa = found, leak.shape, isa
        self._double = leak.dtype == torch.complex128
        self._lanes = found.lanes(isa, self._double)
        networks = leak.shape[0] * leak.shape[-1]
        items = -(-networks // self._lanes)
        threads, worth = max(1, torch.get_num_threads()), int(plan.total_work * networks / _WORTH)
        threads = max(1, min(threads, items, worth))
        self._arguments = arguments_of(plan, leak.shape[0], leak.shape[-1], threads)
        self._arguments.tol, self._arguments.refinements = tol, refinements
        self._fields = [x.resolve_conj().contiguous() for x in (leak, *conductance)]
        return items

    def _counts(self, items: int) -> list[int]:
        """Numbers of the shares and of the inverse pivots of so many groups of networks."""
        arguments = self._arguments
        return [items * n * self._lanes for n in (arguments.item_shares, arguments.nodes)]

    def state(self) -> list[Tensor]:
        """The elimination as tensors; the first is the number of the instruction set."""
        return [torch.tensor(self._isa), self._factors, self._scale, self._status]

    @classmethod
    def restored(
        cls,
        plan: Plan,
        state: Sequence[Tensor],
        conductance: Sequence[Tensor],
        leak: Tensor,
        *,
        tol: float,
        refinements: int,
    ) -> Factors:
        """The factors with this `state`."""
        self = cls.__new__(cls)
        isa, self._factors, self._scale, self._status = state
        items = self._prepare(plan, conductance, leak, tol, refinements, int(isa))
        self._shares, self._inverse = self._factors.split(self._counts(items))
        return self

    def _run(self, arguments: Arguments, call: int) -> None:
        if not self._shape.numel():
            return
        arguments.leak = self._fields[0].data_ptr()
        for axis, field in enumerate(self._fields[1:]):
            arguments.conductance[axis] = field.data_ptr()
        arguments.shares, arguments.inverse = self._shares.data_ptr(), self._inverse.data_ptr()
        arguments.scale, arguments.status = self._scale.data_ptr(), self._status.data_ptr()
        arguments.call = call
        size = self._kernel.workspace(self._isa, self._double, arguments)
        workspace = torch.empty(size + _ALIGNMENT, dtype=torch.uint8)
        arguments.workspace = -(-workspace.data_ptr() // _ALIGNMENT) * _ALIGNMENT
        self._kernel.call["run"](self._isa, self._double, arguments)

    def _call(self, call: int, source: Tensor | None, drops: bool) -> Solution | None:
        """Run `call`; the solution for `source`, if any."""
        # Threads share the factors, but no arguments.
        arguments = Arguments.from_buffer_copy(self._arguments)
        found: list[Tensor] = []
        solution = None
        if source is not None:
            source = source.resolve_conj().contiguous()
            potential = torch.empty_like(source)
            if drops:
                found = [torch.empty_like(source) for _ in self._shape[1:-1]]
            of = (*source.shape[:2], source.shape[-1])
            residual = torch.zeros(of, dtype=torch.float64)
            arguments.single = source.dtype == torch.complex64
            arguments.sources, arguments.source = source.shape[1], source.data_ptr()
            arguments.potential, arguments.residual = potential.data_ptr(), residual.data_ptr()
            solution = Solution(potential, found, residual)
        for axis, field in enumerate(found):
            arguments.drop[axis] = field.data_ptr()
        self._run(arguments, call)
        return solution

    def refined(self, source: Tensor, *, drops: bool = False) -> Solution:
        """The solution for sources (B, S, \\*grid, C), complex64 or complex128, in their dtype.
        Residuals are those of potentials in complex128: at most `tol`, or as small as refinement
        makes them; NaN where an input is not finite."""
        solution = self._call(SOLVE, source, drops)
        assert solution is not None
        return solution

    @property
    def finite(self) -> Tensor:
        """(B, C): whether conductances and leaks are finite."""
        return (self._status != NOT_FINITE).reshape(self._shape[0], self._shape[-1])

    @property
    def nbytes(self) -> int:
        """Bytes that the factors hold."""
        return self._shares.nbytes + self._inverse.nbytes

    @property
    def undetermined(self) -> list[tuple[int, int]]:
        """Networks with a part without leak, and a node of that part."""
        networks = (self._status >= 0).nonzero()[:, 0]
        return [(int(network), int(self._status[network])) for network in networks]


def bytes_of(plan: Plan, networks: int, dtype: torch.dtype) -> int:
    """Bytes of factors and of what elimination and refinement take beside them."""
    double = dtype == torch.complex128
    size, threads, lanes = 16 if double else 8, max(1, torch.get_num_threads()), 1
    found = kernel()
    if found is not None:
        lanes = found.lanes(_isa_of(double, networks, threads), double)
    groups = -(-networks // lanes)
    front = plan.largest_front
    eliminates = ((front + 16) * (front + 3) + plan.stack) * size
    refines = (2 * plan.nodes + front) * size + 2 * plan.nodes * 16
    scratch = max(eliminates, refines) + (1 + len(plan.grid)) * plan.nodes * size
    factors = groups * lanes * (plan.num_shares + plan.nodes) * size
    return factors + min(threads, groups) * lanes * scratch
