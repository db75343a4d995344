"""Solvers and networks as values, and which method `Auto` takes: elimination ("direct") or
iterations ("multigrid")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from chonn_ops._dtypes import widened
from chonn_ops.checks import any_complex, check_integer, check_open_unit_interval, error
from chonn_ops.network.direct.elimination import TOL, predicted_bytes, too_large
from chonn_ops.network.layout import Grid, Layout, read_signs
from chonn_ops.network.layout.graph import Graph

_MOST_ITERATIONS = 2**31 - 1  # the kernels count in int32


@dataclass(frozen=True)
class Auto:
    """Elimination or iterations, whichever is faster: the default.

    It eliminates complex networks, those with negative numbers, several sources, lines and graphs;
    and, on the compiled and the Triton kernels, planes of at most 512 x 512 nodes and volumes of at
    most 12 x 12 x 12, in groups of networks whose factors are predicted to take at most 2 GiB. It
    iterates all others, and eliminates those that stay above `tol` after 40 iterations, up to 512 x
    512 or 32 x 32 x 32 nodes and 2 GiB a network. It eliminates networks of these sizes at once if
    the leaks of one, all or those of a part, are below the rounding of its largest conductance.

    Parameters
    ----------
    tol : float
        Where iterations stop, as in `Iterative`; 300 of them at most.
    """

    tol: float = TOL
    max_iterations: ClassVar[int] = 300
    method: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        check_open_unit_interval(tol=self.tol)


@dataclass(frozen=True)
class Direct:
    """Elimination of all that memory holds, right to rounding. No contrast costs potentials a
    digit."""

    tol: ClassVar[float] = TOL
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
        `chonn_ops.network.solve.torch.Progress`. So potentials below `tol` of the largest, and what
        they make of gradients, may have no digits.
    max_iterations : int
        A network that is above `tol` after so many is a `RuntimeError`.
    """

    tol: float = TOL
    max_iterations: int = 300
    method: ClassVar[str] = "multigrid"

    def __post_init__(self) -> None:
        check_open_unit_interval(tol=self.tol)
        check_integer(1, max_iterations=self.max_iterations)


Solver = Auto | Direct | Iterative
AUTO = Auto()


def options_of(solver: Solver) -> tuple[float, int, str]:
    """Tolerance, most iterations and method of a solver, as operators take them."""
    if not isinstance(solver, (Auto, Direct, Iterative)):
        kind = type(solver).__name__
        raise TypeError(f"solver: expected Auto(), Direct() or Iterative(), got {kind}")
    return float(solver.tol), min(int(solver.max_iterations), _MOST_ITERATIONS), solver.method


class Networks(NamedTuple):
    """Networks on a layout, and how they are solved."""

    conductance: Sequence[Tensor]  # one an axis
    leak: Tensor
    layout: Layout
    tol: float = TOL
    max_iterations: int = 1
    backend: str = ""
    method: str = "auto"

    @classmethod
    def of(
        cls,
        g0: Tensor,
        g1: Tensor | None,
        g2: Tensor | None,
        leak: Tensor,
        periodic: Sequence[bool],
        tol: float = TOL,
        max_iterations: int = 1,
        backend: str = "",
        method: str = "auto",
        graph: Tensor | None = None,
    ) -> Networks:
        """The networks of `arguments`."""
        if graph is None:
            layout: Layout = Grid(leak.shape[1:-1], tuple(map(bool, periodic)))
        else:
            layout = Graph.unpacked(graph)
        g = tuple(x for x in (g0, g1, g2) if x is not None)
        return cls(g, leak, layout, tol, max_iterations, backend, method)

    @property
    def fields(self) -> tuple[Tensor | None, ...]:
        """g0, g1, g2 and leak; None for axes that there are not."""
        return (*(*self.conductance, None, None)[:3], self.leak)

    def arguments(self) -> tuple[Any, ...]:
        """What operators take behind a source: PyTorch's know tensors and numbers alone."""
        periodic, graph = self.layout.arguments()
        options = self.tol, self.max_iterations, self.backend, self.method
        return (*self.fields, periodic, *options, graph)

    @property
    def detached(self) -> tuple[list[Tensor], Tensor, Layout]:
        """Conductances and leak without a gradient, and the layout."""
        return [g.detach() for g in self.conductance], self.leak.detach(), self.layout

    @property
    def num_networks(self) -> int:
        """Batch times channels."""
        return self.leak.shape[0] * self.leak.shape[-1]


# The method of real networks with negative conductances or leaks.
SIGNED = "signed"


def with_signs(network: Networks, source: Tensor | None = None) -> tuple[Networks, float | None]:
    """The networks as they are solved for a source, and the smallest leak, None where it is not
    read.

    Where values may be read, real networks with negative numbers are eliminated in the widest
    dtype: there the elimination subtracts, so that its error grows with the condition number.
    """
    g, leak, layout = network[:3]
    if any_complex(source, leak, *g):
        return network, None
    least, signed = read_signs(g, leak, layout)
    if not signed:
        return network, least
    if network.method == "multigrid":
        raise error("solver", "Auto() or Direct() for negative numbers", "Iterative()")
    wide = {"conductance": [widened(x) for x in g], "leak": widened(leak)}
    return network._replace(**wide, method=SIGNED), least


# Bytes that the factors of one call may take.
MEMORY = 2 * 2**30
# Bytes up to which a call keeps the factors of its networks for the backward pass.
KEPT = 2**30
# The measured thresholds of "auto", by the number of axes of more than one node.
# Most nodes of grids that the compiled kernel eliminates about as fast as iterations solve smooth
# networks on them: 512 x 512, 12 x 12 x 12. The kernel of iterations eliminates lines itself.
AT_ONCE = (0, 0, 512**2, 12**3)
# Most nodes of grids that are eliminated where iterations fail: 512 x 512, 32 x 32 x 32.
FALLBACK_NODES = (1, 512**2, 512**2, 32**3)
# Iterations after which they have failed: about what an elimination costs. Smooth networks take 3
# to 8.
PATIENCE = 40
# Below this `tol` iterations go further than asked, and the forward finds differences, too.
TIGHT = 1e-4
# The rounding of the largest potential may be this times `tol` of the largest difference along an
# axis. Where it is more, differences have too few digits for gradients of conductances, which are
# products of two differences.
LIFTING = 0.4
# The `tol` of lines, in units of rounding: they are eliminated, whatever the call's is.
ROUNDED = 80
# How far below a tight `tol` iterations go where elimination is the alternative: at a residual of
# `tol` itself, errors of potentials were up to 3.4 times as large.
SAFETY = 4


def networks_at_once(layout: Layout, count: int, dtype: torch.dtype) -> int:
    """How many of `count` networks the direct method takes at once within `MEMORY`; 0 if none."""
    axes = sum(n > 1 for n in layout.shape)
    if layout.regular and math.prod(layout.shape) > FALLBACK_NODES[axes]:
        return 0
    while count and predicted_bytes(layout, count, dtype) > MEMORY:
        count //= 2
    return count


def keeps(layout: Layout, count: int, dtype: torch.dtype) -> bool:
    """Whether a call keeps the factors of its networks for the backward pass, which otherwise
    eliminates them once more."""
    return predicted_bytes(layout, count, dtype) <= KEPT


class Choice(NamedTuple):
    """How networks are solved: the method, "direct" (fronts), "multigrid" or "line" (what the
    solver that iterates eliminates at once); the reason, "elimination" or "multigrid", which is
    what the solver does, and why, to be printed; and whether networks that multigrid has not solved
    after `PATIENCE` iterations are eliminated."""

    method: Literal["direct", "line", "multigrid"]
    reason: str
    fallback: bool = False


def choose(
    layout: Layout,
    num_networks: int,
    dtype: torch.dtype,
    backend: str,
    method: str = "auto",
    *,
    several: bool = False,
) -> Choice:
    """How `num_networks` networks on a layout are solved by `backend`; `several`: for sources
    (B, S, \\*grid, C).

    `chonn_ops.Auto` says what "auto" does, and the constants above say where. The fronts of the
    PyTorch backend are slower than its iterations. With grids that are eliminated where iterations
    fail, all networks of a call are eliminated at once if values show that iterations cannot judge
    themselves (`exceed_digits`), and a `tol` below `TIGHT` is iterated further (`SAFETY`).

    Factors that would take more than all memory are refused where they are made, whoever asks.
    """
    num_networks = max(num_networks, 1)  # an empty batch is no batch that is too large
    if method == SIGNED and backend != "reference":
        return Choice("direct", "elimination: negative conductances or leaks")
    if backend == "reference" or method == "direct":
        asked = "Direct()" if method == "direct" else "the backend 'reference'"
        return Choice("direct", f"elimination: asked for by {asked}")
    grid = layout.shape
    if not layout.regular:
        if method == "multigrid":
            raise error("solver", "Auto() or Direct() for a graph", "Iterative()")
        if networks_at_once(layout, num_networks, dtype):
            return Choice("direct", "elimination: a graph")
        bound = "or with solver=Direct() all the memory that there is"
        raise too_large(layout, 1, dtype, MEMORY, bound)
    if several:
        return Choice("direct", "elimination: several sources share it")
    if dtype.is_complex:
        return Choice("direct", "elimination: complex numbers have no other method")
    axes, nodes = sum(n > 1 for n in grid), math.prod(grid)
    # Solvers that iterate eliminate lines, whatever is asked for.
    line = axes < 2
    if method == "multigrid":
        return _iterated("asked for by Iterative()", line)
    at_once = networks_at_once(layout, num_networks, dtype)
    if backend in ("cpu", "triton") and at_once and nodes <= AT_ONCE[axes]:
        some = f", {at_once} of {num_networks} at a time" if at_once < num_networks else ""
        return Choice("direct", f"elimination: a {_size(axes, 'at most', AT_ONCE)}{some}")
    if nodes > FALLBACK_NODES[axes]:
        return _iterated(f"a {_size(axes, 'more than', FALLBACK_NODES)}", line)
    if not at_once:
        size = predicted_bytes(layout, 1, dtype) / 2**30
        why = f"factors of one network would take {size:.1f} GiB, more than {MEMORY / 2**30:g} GiB"
        return _iterated(why, line)
    if backend == "torch":
        why = f"the backend {backend!r} iterates faster than it eliminates"
    else:
        why = f"a {_size(axes, 'more than', AT_ONCE)}"
    after = f"elimination of what is above tol after {PATIENCE} iterations"
    return _iterated(f"{why}; {after}", line, fallback=True)


def _iterated(why: str, line: bool, fallback: bool = False) -> Choice:
    if line:
        return Choice("line", "elimination: a line", fallback)
    return Choice("multigrid", f"multigrid: {why}", fallback)


def _size(axes: int, word: str, table: Sequence[int]) -> str:
    """A size of a table as users read it."""
    kind, edge = ("node", "line", "plane", "volume")[axes], round(table[axes] ** (1 / max(axes, 1)))
    return f"{kind} of {word} {' x '.join([str(edge)] * axes)} nodes"


def exceed_digits(
    conductance: Sequence[Tensor], leak: Tensor, layout: Layout, dtype: torch.dtype
) -> bool:
    """Whether in a network rounding the largest conductance changes more than the leaks of the
    network, or of a part of it, are.

    Then a small residual is no small error: iterations of such volumes ended below a `tol` of 1e-5
    with errors of up to 4e-4 (conductances of 1 to 1e12, boundary "matched"), those of planes with
    errors of 5e-3. A part is what edges below that rounding separate; what grounds it, a leak or
    such an edge, is below it, too.
    """
    eps = torch.finfo(dtype).eps
    largest = torch.stack([g.amax() for g in conductance]).amax()
    if bool(eps * largest <= leak.amin()):  # the usual case, and the faster question
        return False
    edges = [x.flatten(1, -2) for x in layout.entries(conductance) if x.numel()]
    if not edges:
        return False
    leaks = leak.flatten(1, -2)
    rounding = eps * torch.stack([edge.amax(1) for edge in edges]).amax(0)
    # An infinity makes the potentials of its own network NaN, and tells nothing of the others.
    rounding = torch.where(rounding.isfinite(), rounding, 0)
    if bool((rounding > leaks.amax(1)).any()):
        return True
    separate = torch.stack([edge.amin(1) < rounding for edge in edges]).any(0)
    if not bool(separate.any()):
        return False
    small = [((x > 0) & (x < rounding[:, None])).any(1) for x in (leaks, *edges)]
    return bool((separate & torch.stack(small).any(0)).any())


def lifted(v: Tensor, drops: Sequence[Tensor], tol: float) -> Tensor:
    """(B, C): whether leaks of a network lift its potentials so far that differences lose digits.

    Above `tol` = 1 / `LIFTING` rounding is larger than all differences along an axis.
    """
    if not v.numel():  # an empty batch has no largest potential
        return torch.zeros_like(v.flatten(1, -2).sum(1), dtype=torch.bool)
    size, *most = (x.abs().flatten(1, -2).amax(1) for x in (v, *drops))
    rounding, lost = torch.finfo(v.dtype).eps * size, torch.zeros_like(size, dtype=torch.bool)
    # An axis of one node has no differences. A NaN tells nothing.
    for n, x in zip(v.shape[1:-1], most, strict=False):
        if n > 1:
            lost = lost | (rounding > LIFTING * tol * x)
    return lost
