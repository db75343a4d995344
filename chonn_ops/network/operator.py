"""The `torch.library` operator behind the networks: one solve, on any backend, as a value.

A backend is a module with this::

    solve(source, conductance, leak, layout, tol, max_iterations) -> (v, iterations, residual)

Inputs come in the caller's dtypes and strides; `v` goes out as (B, \\*grid, C), `iterations` (0 for
an elimination) and `residual` as (B, C), in any dtype and strides. `residual` is what is compared
with `tol`: after iterations the deviation of `chonn_ops.network.torch.Progress`, after an
elimination |s - A v| / |s|. Values have been checked, and parts without ground have got one, but
for the backend "triton". A source at a node without edge and leak counts for nothing. Whether a
network converged is judged here: the direct method eliminates what did not, or it is refused.
`chonn_ops.network.autograd` adds derivatives.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import Backends
from chonn_ops._dtypes import compute_dtype, real_dtype, without_autocast
from chonn_ops.checks import error, recording, resonance
from chonn_ops.network import direct, methods
from chonn_ops.network.direct import Factor, Solution
from chonn_ops.network.ground import check_sources_have_ground, cut_off, grounded, layout_of
from chonn_ops.network.layout import (
    Layout,
    excess,
    norm_of,
    refuse_negative,
    relative_residual,
)


def _small_results(module: Any, device: torch.device) -> tuple[Tensor, ...]:
    name = module.__name__.rpartition(".")[2]
    return direct.small_results(direct.BACKENDS[name], device)


BACKENDS = Backends(
    "chonn_ops.network",
    "CHONN_NETWORK_BACKEND",
    needs={"reference": "scipy"},
    results_on=_small_results,
)


def forced_backend() -> str:
    """The backend of the environment variable, which the backward pass of a solve takes, too. A
    program that is traced reads the variable when it runs."""
    return "" if torch.compiler.is_compiling() else os.environ.get(BACKENDS.variable, "")


def available_backends() -> tuple[str, ...]:
    """Names that the environment variable ``CHONN_NETWORK_BACKEND`` may have here.

    "reference" needs SciPy; "cpu" the compiled kernel; "triton" Triton and a CUDA device.
    """
    return BACKENDS.available()


def direct_backend(backend: str, device: torch.device) -> str:
    """The backend of the direct method that goes with one of the operator."""
    name = BACKENDS.name_for(backend, device)
    return "torch" if name == "reference" else name


@dataclass(frozen=True)
class _Networks:
    """Networks and a source of each, as a backend takes them."""

    source: Tensor
    conductance: tuple[Tensor, ...]
    leak: Tensor
    layout: Layout

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype of the solve."""
        return compute_dtype(self.source, self.leak, *self.conductance)

    @property
    def count(self) -> int:
        """Networks: batch times channels."""
        return self.leak.shape[0] * self.leak.shape[-1]

    @property
    def fields(self) -> tuple[Tensor, ...]:
        """Source, leak and conductances, without a gradient."""
        return tuple(x.detach() for x in (self.source, self.leak, *self.conductance))

    def pick(self, chosen: Tensor) -> _Networks:
        """The networks `chosen` (B, C), as (M, \\*grid, 1)."""
        b, c = chosen.nonzero(as_tuple=True)
        source, leak, *g = (x.movedim(-1, 1)[b, c][..., None] for x in self.fields)
        return _Networks(source, tuple(g), leak, self.layout)

    def solve_by(self, backend: Any, tol: float, max_iterations: int) -> tuple[Tensor, ...]:
        """Run the backend."""
        network = (self.source, self.conductance, self.leak, self.layout)
        return backend.solve(*network, tol, max_iterations)


@dataclass
class _Solved:
    """One solve of networks (B, \\*grid, C).

    Attributes
    ----------
    v : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
        Potentials.
    iterations, residual : Tensor, shape (B, C) or (B, S, C)
    drops : list of Tensor, shape of `v`
        For each axis the potential of each node less that of the next one, 0 where no edge is.
        Empty where they were not wanted, and where the solve has none with enough digits for
        gradients of conductances: then the backward finds them.
    factor : list of Tensor
        The state of a factor, see `direct.Factor`; empty where none was wanted or kept.
    """

    v: Tensor
    iterations: Tensor
    residual: Tensor
    drops: list[Tensor]
    factor: list[Tensor]


_ARGUMENTS = (
    "Tensor source, Tensor g0, Tensor? g1, Tensor? g2, Tensor leak, bool[] periodic, float tol, "
    "int max_iterations, str backend, str method='auto', Tensor? graph=None, bool check=True"
)
# Two operators, because PyTorch's batched gradients (`is_grads_batched`) take no lists of tensors.
torch.library.define(
    "chonn_ops::kirchhoff_network",
    f"({_ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
torch.library.define(
    "chonn_ops::kirchhoff_network_kept",
    f"({_ARGUMENTS}, *, bool drops) -> (Tensor, Tensor, Tensor, Tensor[], Tensor[])",
    tags=torch.Tag.pt2_compliant_tag,
)


@torch.library.impl("chonn_ops::kirchhoff_network", "default")
def _(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    return run_network(*args)[:3]


def run_network(
    source: Tensor,
    g0: Tensor,
    g1: Tensor | None,
    g2: Tensor | None,
    leak: Tensor,
    periodic: Sequence[bool],
    tol: float,
    max_iterations: int,
    backend: str,
    method: str = "auto",
    graph: Tensor | None = None,
    check: bool = True,
    *,
    drops: bool = False,
    keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Solve networks, in the dtype of the solve: the fields of `_Solved`, in their order.

    ``kirchhoff_network`` returns the first three. ``kirchhoff_network_kept`` keeps a factor for
    gradients, too. `graph` is the attribute `packed` of a `Graph`: then g0 has the conductances of
    its edges, (B, E, C), and `periodic` is empty.
    """
    conductance = tuple(g for g in (g0, g1, g2) if g is not None)
    several = source.dim() == leak.dim() + 1
    one = source.shape[:1] + source.shape[2:] if several else source.shape
    layout = layout_of(leak, periodic, graph)
    B, C = leak.shape[0], leak.shape[-1]
    nodes, edges = ((B, *shape, C) for shape in (layout.shape, layout.edge_shape))
    names = ("leak", "source", "g0", "g1", "g2")
    shapes = (leak.shape, one, *(g.shape for g in conductance))
    expected = (nodes, nodes, *[edges] * len(conductance))
    for name, shape, right in zip(names, shapes, expected, strict=False):
        if tuple(shape) != right:  # backends trust it with addresses
            raise error(name, f"shape {right}", tuple(shape))
    if len(conductance) != len(layout.shape):
        raise error("conductance", f"{len(layout.shape)} tensors", len(conductance))
    networks = _Networks(source, conductance, leak, layout)
    dtype = networks.dtype
    least = None  # the smallest leak
    if check and not dtype.is_complex and leak.device.type == "cpu":  # reading stalls a GPU
        least = refuse_negative(conductance, leak, layout)
    if source.numel() == 0:
        nothing = source.new_empty(_numbers(source, leak), dtype=real_dtype(dtype))
        v = source.new_empty(source.shape, dtype=dtype)
        return v, nothing.to(torch.int32), nothing, [], []
    with without_autocast(source), torch.no_grad():
        name = BACKENDS.name_for(backend, source.device)
        # Real networks on "triton" are solved without reading values.
        reads = name != "triton" or dtype.is_complex
        read = reads and not recording(leak)
        label = cut_off(conductance, leak, layout, least) if read else None
        if label is not None:
            if check:
                check_sources_have_ground(source, label)
            source, leak = grounded(source, conductance, leak, label)
            networks = _Networks(source, conductance, leak, layout)
        solved = _solve(name, networks, tol, max_iterations, method, drops=drops, keep=keep)
        if label is not None:  # iterations leave rounding; a NaN stays one
            off = label >= 0
            off = off[:, None] if several else off
            solved.v = torch.where(off, 0 * solved.v, solved.v)
    outputs = (
        solved.v.to(dtype),
        solved.iterations.to(torch.int32),
        solved.residual.to(real_dtype(dtype)),
    )
    v, iterations, residual = (x.contiguous() for x in outputs)
    return v, iterations, residual, [x.to(dtype) for x in solved.drops], solved.factor


torch.library.impl("chonn_ops::kirchhoff_network_kept", "default")(partial(run_network, keep=True))


def _numbers(source: Tensor, leak: Tensor) -> tuple[int, ...]:
    """The shape of one number for each network and source: (B, C) or (B, S, C)."""
    return (*source.shape[: 1 + source.dim() - leak.dim()], source.shape[-1])


@torch.library.register_fake("chonn_ops::kirchhoff_network")
def _shapes(source: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(source, *arguments[:4])
    numbers = _numbers(source, arguments[3])
    return (
        source.new_empty(source.shape, dtype=dtype),
        source.new_empty(numbers, dtype=torch.int32),
        source.new_empty(numbers, dtype=real_dtype(dtype)),
    )


@torch.library.register_fake("chonn_ops::kirchhoff_network_kept")
def _(*arguments: Any, drops: bool = False) -> tuple[Any, ...]:
    del drops  # what is kept depends on values
    return (*_shapes(*arguments), [], [])


def _solve(
    backend: str,
    networks: _Networks,
    tol: float,
    max_iterations: int,
    method: str,
    *,
    drops: bool,
    keep: bool,
) -> _Solved:
    """Solve networks by the method that suits them; raises where one is not solved."""
    if backend == "reference":  # direct itself
        return _by_reference(networks, tol, max_iterations, drops=drops)
    several = networks.source.dim() > networks.leak.dim()
    dtype, layout = networks.dtype, networks.layout
    asked = "direct" if several and layout.regular else method
    choice = methods.choose(layout, networks.count, dtype, backend, asked)
    if choice.method == "multigrid" and recording(networks.leak):  # nothing may be read
        v, iterations, residual = networks.solve_by(BACKENDS[backend], tol, max_iterations)
        return _Solved(v, iterations, residual, [], [])
    fits = choice.fallback
    at_once = fits and methods.exceed_digits(networks.conductance, networks.leak, layout, dtype)
    if choice.method == "direct" or at_once:
        return _eliminate(networks, tol, backend, drops=drops, keep=keep)
    return _iterate(networks, tol, max_iterations, backend, fits, drops=drops)


def _by_reference(networks: _Networks, tol: float, max_iterations: int, *, drops: bool) -> _Solved:
    if networks.source.dim() > networks.leak.dim():
        sources = networks.source.unbind(1)
        each = [replace(networks, source=source) for source in sources]
        solved = [_by_reference(one, tol, max_iterations, drops=drops) for one in each]
        fields = [(x.v, x.iterations, x.residual, *x.drops) for x in solved]
        counts = {len(x) for x in fields}
        v, iterations, residual, *found = (
            torch.stack(x, 1) for x in zip(*(x[: min(counts)] for x in fields), strict=True)
        )
        return _Solved(v, iterations, residual, found, [])
    v, iterations, residual = networks.solve_by(BACKENDS["reference"], tol, max_iterations)
    dtype = networks.dtype
    if dtype.is_complex and bool((residual > tol).any()):
        where = tuple((residual > tol).nonzero()[0].tolist())
        raise resonance(float(residual[where]), tol, where)
    found = networks.layout.drops(v) if drops else []
    if not dtype.is_complex and bool(methods.lifted(v, found, tol).any()):
        found = []
    return _Solved(v, iterations, residual, [x.to(dtype) for x in found], [])


def _iterate(
    networks: _Networks, tol: float, max_iterations: int, backend: str, fits: bool, *, drops: bool
) -> _Solved:
    """Iterate, and eliminate the networks that stay above `tol`, where they are small enough for
    that (`fits`)."""
    solver = BACKENDS[backend]
    axes = sum(n > 1 for n in networks.layout.shape)
    most = min(max_iterations, methods.PATIENCE[axes]) if fits else max_iterations
    # Networks that could be eliminated are iterated until they are as right as if they were.
    enough = tol / methods.SAFETY if fits and tol < methods.TIGHT else tol
    v, iterations, residual = networks.solve_by(solver, enough, most)
    residual = _without_rounding(networks, v, iterations, residual, tol)
    if bool(residual.isnan().any()):  # of an input, or where numbers of the iterations overflowed
        edges = networks.layout.entries(networks.conductance)
        fields = (networks.source, networks.leak, *edges)
        finite = [x.isfinite().flatten(1, -2).all(1) for x in fields]
        unsolved = residual.isnan() & torch.stack(finite).all(0)
        residual = torch.where(unsolved, math.inf, residual)
    late = residual > tol  # not NaN: an input of that network is not finite
    solved = _Solved(v, iterations, residual, [], [])
    # A coarse `tol` leaves differences with the digits that the backward needs for it.
    short = torch.zeros_like(late)
    if drops and tol < methods.TIGHT:
        solved.drops = networks.layout.drops(v)
        digits = methods.ROUNDED * torch.finfo(v.dtype).eps if axes < 2 else tol
        if bool(methods.lifted(v, solved.drops, digits).any()):
            digits = min(enough, digits)
            solved.drops, short = _drops_with_digits(solver, networks, v, late, digits, most)
            if bool(short.any()) and not fits:
                solved.drops = []
    if not fits:
        _require(residual, iterations, tol, networks.layout.shape, v.dtype)
    elif bool((late | short).any()):
        _solve_rest(networks, solved, late, short, tol, backend)
    return solved


def _without_rounding(
    networks: _Networks, v: Tensor, iterations: Tensor, residual: Tensor, tol: float
) -> Tensor:
    """Residuals (B, C), replaced by 0 where the backend eliminated the network and its rounding
    alone leaves more than `tol`."""
    rounded = (residual > tol) & (iterations == 0)
    if not bool(rounded.any()):
        return residual
    some = networks.pick(rounded)
    x = v.movedim(-1, 1)[rounded][..., None]
    source, leak, *g = (field.to(v.dtype) for field in some.fields)
    residual = residual.clone()
    left = relative_residual(x, source, g, leak, networks.layout)
    residual[rounded] = left[:, 0].to(residual.dtype)
    return residual


def _drops_with_digits(
    solver: Any, networks: _Networks, v: Tensor, late: Tensor, tol: float, most: int
) -> tuple[list[Tensor], Tensor]:
    """Differences of potentials within `tol`, and which other networks (B, C) have less right ones.

    Small leaks lift all potentials alike, so that rounding them takes the digits of their
    differences. The solver solves the same networks once more, for the current that these
    potentials leave over, and the differences of both solutions are added.
    """
    source, leak, *g = (x.to(v.dtype) for x in networks.fields)
    left = excess(v, source, g, leak, networks.layout)
    outside = (v == 0) & (left == source)  # of the network: nodes with neither edge nor leak
    late = late[(slice(None), *[None] * len(g))]
    left = torch.where(outside | late, 0, left)
    enough = tol * norm_of(torch.where(outside, 0, source)) / norm_of(left)
    least = float(enough.nan_to_num(1).amin())
    found = networks.layout.drops(v)
    if least >= 1:
        return found, torch.zeros_like(enough, dtype=torch.bool)
    short = methods.lifted(v, found, 1 / methods.LIFTING)  # iterations for the rest lose it, too
    if bool(short.any()):
        return found, short
    rest, _, residual = replace(networks, source=left).solve_by(solver, least, most)
    more = networks.layout.drops(rest.to(v.dtype))
    return [a + b for a, b in zip(found, more, strict=True)], residual > methods.SAFETY * enough


def _solve_rest(
    networks: _Networks, solved: _Solved, late: Tensor, short: Tensor, tol: float, backend: str
) -> None:
    """Eliminate networks (B, C): the `late` ones get other potentials, all other differences."""
    both = late | short
    names = both.nonzero().tolist()
    drops = len(solved.drops) > 0
    found = _eliminate(networks.pick(both), tol, backend, drops=drops, keep=False, names=names)
    b, c = both.nonzero(as_tuple=True)
    mine = late[b, c]
    solved.v, solved.residual = solved.v.to(found.v.dtype), solved.residual.to(found.v.dtype)
    # Potentials do not depend on whether a gradient is wanted.
    solved.v.movedim(-1, 1)[b[mine], c[mine]] = found.v[mine][..., 0]
    solved.residual[b[mine], c[mine]] = found.residual[mine][:, 0]
    for whole, drop in zip(solved.drops, found.drops, strict=True):
        whole.movedim(-1, 1)[b, c] = drop[..., 0]


def _require(
    residual: Tensor,
    iterations: Tensor,
    tol: float,
    grid: Sequence[int],
    dtype: torch.dtype,
    names: Sequence[Sequence[int]] | None = None,
) -> None:
    """Raise where a network is above `tol`. `names`: the (batch, channel) of each network in the
    caller's batch, where these are picked from it."""
    if residual.amax().item() <= tol:  # the usual case, and the faster question
        return
    late = residual > tol
    if bool(late.any()):
        size = " x ".join(map(str, grid))
        where = tuple(torch.where(late, residual, 0).eq(residual[late].max()).nonzero()[0].tolist())
        where = tuple(names[where[0]]) if names else (where[0], where[-1])
        wider = "" if dtype == torch.float64 else "float64 inputs, "
        raise RuntimeError(
            f"Circuit.solve: expected residuals and errors of at most tol={tol:g}, got "
            f"{float(residual[late].max()):.2e} in the worst, {where} (batch, channel), of "
            f"{int(late.sum())} of {late.numel()} networks after {int(iterations[late].max())} "
            f"iterations (grid {size}). To solve them: solver=Direct(), {wider}a smaller contrast, "
            "a larger tol or more iterations, as in Iterative(tol, max_iterations)"
        )


def _eliminate(
    networks: _Networks,
    tol: float,
    backend: str,
    *,
    drops: bool,
    keep: bool,
    names: Sequence[Sequence[int]] | None = None,
) -> _Solved:
    """Eliminate networks, as many at a time as `chonn_ops.network.methods` allows. `names` as in
    `_require`. The backend "triton" reads no value."""
    layout, count, dtype = networks.layout, networks.count, networks.dtype
    channels, at_frequency = networks.leak.shape[-1], dtype.is_complex
    shape = (layout, count, dtype)
    read = backend != "triton" or at_frequency
    most = methods.networks_at_once(*shape)
    keep = keep and (at_frequency or most == count) and methods.keeps(*shape)
    most = count if keep else most or 1
    groups = [networks.fields]
    if most < count:
        rows = (x.movedim(-1, 1).flatten(0, 1)[..., None] for x in networks.fields)
        groups = zip(*(x.split(most) for x in rows), strict=True)
    options: Any = {"dtype": dtype, "backend": backend, "drops": drops, "keep": keep, "tol": tol}
    solutions: list[Solution] = []
    state: list[Tensor] = []
    for s, l, *g in groups:  # noqa: E741
        before = len(solutions) * most
        where: Any = {"before": before, "channels": channels}
        factor = Factor(g, l, layout, source=s.to(dtype), **where, **options)
        solutions.append(factor.solution)
        state = factor.state() if keep else []
    solution = _joined(solutions, networks.source)
    residual = solution.residual
    assert residual is not None  # the networks were given
    if not at_frequency:  # a complex `Factor` judges its own
        residual = residual.to(dtype)
    iterations = torch.zeros_like(residual, dtype=torch.int32)
    if read and not at_frequency:
        _require(residual, iterations, tol, layout.shape, dtype, names)
    return _Solved(solution.potential, iterations, residual, solution.drops, state)


def _joined(solutions: Sequence[Solution], source: Tensor) -> Solution:
    """The solution for `source`, from those of groups of its networks, (M, \\*grid, 1)."""
    if len(solutions) == 1:
        return solutions[0]
    B, C = source.shape[0], source.shape[-1]

    def whole(parts: Sequence[Tensor | None]) -> Tensor:
        field = torch.cat([part for part in parts if part is not None])
        return field.reshape(B, C, *field.shape[1:-1]).movedim(1, -1)

    fields = zip(*(solution.drops for solution in solutions), strict=True)
    potential, _, residual = zip(*solutions, strict=True)
    return Solution(whole(potential), [whole(x) for x in fields], whole(residual))
