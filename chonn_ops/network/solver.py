"""Solvers as values: how a circuit is solved, and how well."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from chonn_ops.checks import error

_MOST_ITERATIONS = 2**31 - 1  # the kernels count in int32


def _number(value: Any) -> float:
    """NaN for what is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _check_tol(tol: float) -> None:
    if not 0 < _number(tol) < 1:
        raise error("tol", "above 0 and below 1", tol)


@dataclass(frozen=True)
class Auto:
    """Elimination or iterations, whichever is faster: the default.

    It eliminates complex networks, several sources, lines and graphs; and, on the compiled and the
    Triton kernels, planes of at most 512 x 512 nodes and volumes of at most 12 x 12 x 12, in groups
    of networks whose factors are predicted to take at most 2 GiB. It iterates all others, and
    eliminates those that stay above `tol` after 12 iterations (40 in volumes), up to 512 x 512 or
    32 x 32 x 32 nodes and 2 GiB a network. It eliminates networks of these sizes at once if the
    leaks of one, all or those of a part, are below the rounding of its largest conductance.

    Parameters
    ----------
    tol : float
        Where iterations stop, as in `Iterative`; 300 of them at most.
    """

    tol: float = 1e-5
    max_iterations: ClassVar[int] = 300
    method: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        _check_tol(self.tol)


@dataclass(frozen=True)
class Direct:
    """Elimination of all that memory holds, right to rounding. No contrast costs potentials a
    digit."""

    tol: ClassVar[float] = 1e-5  # a larger residual of complex networks is a resonance
    max_iterations: ClassVar[int] = 1
    method: ClassVar[str] = "direct"


@dataclass(frozen=True)
class Iterative:
    r"""Conjugate gradients with multigrid, of real networks on grids. Lines are eliminated.

    Parameters
    ----------
    tol : float
        Where iterations stop: at :math:`|s - A v|_2 \le tol \, |s|_2` and an estimated error of
        potentials of at most :math:`tol \max |v| / 2` of the network, see
        `chonn_ops.network.torch.Progress`. So potentials below `tol` of the largest, and what they
        make of gradients, may have no digits.
    max_iterations : int
        A network that is above `tol` after so many is a `RuntimeError`.
    """

    tol: float = 1e-5
    max_iterations: int = 300
    method: ClassVar[str] = "multigrid"

    def __post_init__(self) -> None:
        _check_tol(self.tol)
        count = _number(self.max_iterations)
        if not 1 <= count < math.inf or count % 1:
            raise error("max_iterations", "a whole number of at least 1", self.max_iterations)


Solver = Auto | Direct | Iterative
AUTO = Auto()


def options_of(solver: Solver) -> tuple[float, int, str]:
    """Tolerance, most iterations and method of a solver, as operators take them."""
    if not isinstance(solver, (Auto, Direct, Iterative)):
        kind = type(solver).__name__
        raise TypeError(f"solver: expected Auto(), Direct() or Iterative(), got {kind}")
    return float(solver.tol), min(int(solver.max_iterations), _MOST_ITERATIONS), solver.method
