"""The `torch.library` operator behind the networks: one solve, on any backend, as a value.

A backend is a module with this::

    solve(source, conductance, leak, layout, tol, max_iterations) -> (v, iterations, residual)

Inputs come in the caller's dtypes and strides; `v` goes out as (B, \\*grid, C), `iterations` (0 for
an elimination) and `residual` as (B, C), in any dtype and strides. `residual` is what is compared
with `tol`: after iterations the deviation of `chonn_ops.network.solve.torch.Progress`, after an
elimination |s - A v| / |s|. Values have been checked, and parts without ground have got one, but
for the backend "triton". A source at a node without edge and leak counts for nothing. Whether a
network converged is judged here: the direct method eliminates what did not, or it is refused.
`chonn_ops.network.solve.autograd` adds derivatives.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops._backends import Backends
from chonn_ops._dtypes import compute_dtype, real_dtype, without_autocast
from chonn_ops.checks import answer, error, recording, resonance
from chonn_ops.network.direct import elimination
from chonn_ops.network.direct.elimination import Elimination
from chonn_ops.network.direct.solution import Solution
from chonn_ops.network.layout import beside, norm_of, relative_residual, residual_of
from chonn_ops.network.solve import methods
from chonn_ops.network.solve.ground import check_sources_have_ground, cut_off, grounded, labels_of
from chonn_ops.network.solve.methods import Choice, Networks


def _small_results(module: Any, device: torch.device) -> tuple[Tensor, ...]:
    name = module.__name__.rpartition(".")[2]
    return elimination.small_results(elimination.BACKENDS[name], device)


BACKENDS = Backends(
    "chonn_ops.network.solve",
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


class Solved(NamedTuple):
    """One solve of networks (B, \\*grid, C): potentials v, (B, \\*grid, C) or (B, S, \\*grid, C);
    iterations and residuals, (B, C) or (B, S, C); drops; and the state of an `Elimination`.

    The drops are for each axis the potential of each node less that of the next one, 0 where no
    edge is. The list is empty where they were not wanted, and where the solve has none with enough
    digits for gradients of conductances: then the backward finds them. The state is empty where
    none was wanted or kept.
    """

    v: Tensor
    iterations: Tensor
    residual: Tensor
    drops: list[Tensor]
    state: list[Tensor]


def _fields(source: Tensor, network: Networks) -> list[Tensor]:
    """Source, leak and conductances, without a gradient."""
    return [x.detach() for x in (source, network.leak, *network.conductance)]


def _pick(source: Tensor, network: Networks, chosen: Tensor) -> tuple[Tensor, Networks]:
    """The networks `chosen` (B, C), as (M, \\*grid, 1)."""
    source, leak, *g = (x.movedim(-1, 1)[chosen][..., None] for x in _fields(source, network))
    return source, network._replace(conductance=g, leak=leak)


def _solve_by(
    backend: str, source: Tensor, network: Networks, tol: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a backend."""
    solve = BACKENDS[backend].solve
    return solve(source, network.conductance, network.leak, network.layout, tol, max_iterations)


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


def _checked(source: Tensor, *arguments: Any) -> Networks:
    """The networks of an operator's arguments, whose shapes backends trust with addresses."""
    network = Networks.of(*arguments)
    conductance, leak, layout = network[:3]
    several = source.dim() == leak.dim() + 1
    shape_of_one = source.shape[:1] + source.shape[2:] if several else source.shape
    B, C = leak.shape[0], leak.shape[-1]
    nodes, edges = ((B, *shape, C) for shape in (layout.shape, layout.edge_shape))
    names = ("leak", "source", "g0", "g1", "g2")
    shapes = (leak.shape, shape_of_one, *(g.shape for g in conductance))
    expected = (nodes, nodes, *[edges] * len(conductance))
    for name, shape, right in zip(names, shapes, expected, strict=False):
        if tuple(shape) != right:
            raise error(name, f"shape {right}", tuple(shape))
    if len(conductance) != len(layout.shape):
        raise error("conductance", f"{len(layout.shape)} tensors", len(conductance))
    return network


@torch.library.impl("chonn_ops::kirchhoff_network", "default")
def _(source: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    return run_network(source, _checked(source, *arguments[:10]), *arguments[10:])[:3]


@torch.library.impl("chonn_ops::kirchhoff_network_kept", "default")
def _(source: Tensor, *arguments: Any, drops: bool) -> tuple[Any, ...]:
    network = _checked(source, *arguments[:10])
    return tuple(run_network(source, network, *arguments[10:], drops=drops, keep=True))


def run_network(
    source: Tensor,
    network: Networks,
    check: bool = True,
    *,
    drops: bool = False,
    keep: bool = False,
) -> Solved:
    """Solve networks, in the dtype of the solve.

    ``kirchhoff_network`` returns potentials, iterations and residuals. ``kirchhoff_network_kept``
    keeps an elimination for gradients, too.
    """
    conductance, leak, layout = network[:3]
    dtype = compute_dtype(source, *network.fields)
    network, least = methods.with_signs(network, source)
    if source.numel() == 0:
        nothing = source.new_empty(_numbers(source, leak), dtype=real_dtype(dtype))
        v = source.new_empty(source.shape, dtype=dtype)
        return Solved(v, nothing.to(torch.int32), nothing, [], [])
    with without_autocast(source), torch.no_grad():
        name = BACKENDS.name_for(network.backend, source.device)
        # Real networks on "triton" are solved without reading values.
        reads = name != "triton" or dtype.is_complex
        read = reads and not recording(leak)
        whole = least is not None and least > 0  # every node has ground
        label = cut_off(conductance, leak, layout) if read and not whole else None
        if label is not None:
            if check:
                check_sources_have_ground(source, label)
            source, leak = grounded(source, conductance, network.leak, label)
            network = network._replace(leak=leak)
        options: Any = {"drops": drops, "keep": keep, "definite": check}
        v, *numbers, drops_v, state = _solve(name, source, network, **options)
        if label is not None:  # iterations leave rounding; a NaN stays one
            v = torch.where(beside(label >= 0, v), 0 * v, v)
    dtypes = dtype, torch.int32, real_dtype(dtype)
    v, iterations, residual = (
        x.to(d).contiguous() for x, d in zip((v, *numbers), dtypes, strict=True)
    )
    return Solved(v, iterations, residual, [x.to(dtype) for x in drops_v], state)


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
    backend: str, source: Tensor, network: Networks, *, drops: bool, keep: bool, definite: bool
) -> Solved:
    """Solve networks by the method that suits them; raises where one is not solved, and with
    `definite` where a matrix with negative numbers is not positive definite."""
    if backend == "reference":  # direct itself
        return _by_reference(source, network, drops=drops)
    read = not recording(network.leak)
    choice = _choice(backend, source, network, read)
    if choice.method == "direct":
        options: Any = {"drops": drops, "keep": keep, "definite": definite}
        return _eliminate(source, network, backend, **options)
    if not read:
        solved = _solve_by(backend, source, network, network.tol, network.max_iterations)
        return Solved(*solved, [], [])
    return _iterate(source, network, backend, choice.fallback, drops=drops)


def _choice(backend: str, source: Tensor, network: Networks, read: bool) -> Choice:
    """How networks whose parts have ground are solved; `read`: whether values may be read."""
    layout, dtype = network.layout, compute_dtype(source, *network.fields)
    several = source.dim() > network.leak.dim()
    of_sizes = (layout, network.num_networks, dtype, backend, network.method)
    choice = methods.choose(*of_sizes, several=several)
    values = (network.conductance, network.leak, layout, dtype)
    if choice.fallback and read and methods.exceed_digits(*values):
        why = "iterations cannot judge leaks below the rounding of conductances"
        return Choice("direct", f"elimination: {why}")
    return choice


def choice_of(source: Tensor, network: Networks) -> Choice:
    """How `run_network` solves networks; without what only their values say where these may not be
    read."""
    backend = BACKENDS.name_for(network.backend, source.device)

    def with_values() -> Choice:
        label, signed = labels_of(network), methods.with_signs(network, source)[0]
        leak = signed.leak
        if label is not None:
            leak = grounded(source, network.conductance, leak, label)[1]
        return _choice(backend, source, signed._replace(leak=leak), read=True)

    choice = answer(with_values, network.leak, *network.conductance)
    return choice or _choice(backend, source, network, read=False)


def _by_reference(source: Tensor, network: Networks, *, drops: bool) -> Solved:
    if source.dim() > network.leak.dim():
        solved = [_by_reference(s, network, drops=drops) for s in source.unbind(1)]
        fields = [(x.v, x.iterations, x.residual, *x.drops) for x in solved]
        counts = {len(x) for x in fields}
        v, iterations, residual, *drops_v = (
            torch.stack(x, 1) for x in zip(*(x[: min(counts)] for x in fields), strict=True)
        )
        return Solved(v, iterations, residual, drops_v, [])
    tol, dtype = network.tol, compute_dtype(source, *network.fields)
    v, iterations, residual = _solve_by("reference", source, network, tol, 1)
    if dtype.is_complex and bool((residual > tol).any()):
        where = tuple((residual > tol).nonzero()[0].tolist())
        raise resonance(float(residual[where]), tol, where)
    drops_v = network.layout.drops(v) if drops else []
    if not dtype.is_complex and bool(methods.lifted(v, drops_v, tol).any()):
        drops_v = []
    return Solved(v, iterations, residual, [x.to(dtype) for x in drops_v], [])


def _iterate(
    source: Tensor, network: Networks, backend: str, fallback: bool, *, drops: bool
) -> Solved:
    """Iterate and, with `fallback`, eliminate the networks that stay above `tol`."""
    layout, tol, most = network.layout, network.tol, network.max_iterations
    axes = sum(n > 1 for n in layout.shape)
    most = min(most, methods.PATIENCE) if fallback else most
    # Networks that could be eliminated are iterated until they are as right as if they were.
    enough = tol / methods.SAFETY if fallback and tol < methods.TIGHT else tol
    v, iterations, residual = _solve_by(backend, source, network, enough, most)
    residual = _without_rounding(source, network, v, iterations, residual)
    if bool(residual.isnan().any()):  # of an input, or where numbers of the iterations overflowed
        fields = (source, network.leak, *layout.entries(network.conductance))
        finite = [x.isfinite().flatten(1, -2).all(1) for x in fields]
        unsolved = residual.isnan() & torch.stack(finite).all(0)
        residual = torch.where(unsolved, math.inf, residual)
    late = residual > tol  # not NaN: an input of that network is not finite
    drops_v: list[Tensor] = []
    # With a coarse `tol`, drops that are computed from v suffice for the backward.
    short = torch.zeros_like(late)
    if drops and tol < methods.TIGHT:
        drops_v = layout.drops(v)
        digits = methods.ROUNDED * torch.finfo(v.dtype).eps if axes < 2 else tol
        if bool(methods.lifted(v, drops_v, digits).any()):
            digits = min(enough, digits)
            drops_v, short = _drops_with_digits(backend, source, network, v, late, digits, most)
            if bool(short.any()) and not fallback:
                drops_v = []
    solved = Solved(v, iterations, residual, drops_v, [])
    if not fallback:
        _require(residual, iterations, tol, layout.shape, v.dtype)
    elif bool((late | short).any()):
        return _solve_rest(source, network, solved, late, short, backend)
    return solved


def _without_rounding(
    source: Tensor, network: Networks, v: Tensor, iterations: Tensor, residual: Tensor
) -> Tensor:
    """Residuals (B, C), replaced by 0 where the backend eliminated the network and its rounding
    alone leaves more than `tol`."""
    rounded = (residual > network.tol) & (iterations == 0)
    if not bool(rounded.any()):
        return residual
    x = v.movedim(-1, 1)[rounded][..., None]
    source, leak, *g = (f.to(v.dtype) for f in _fields(*_pick(source, network, rounded)))
    residual = residual.clone()
    measured = relative_residual(x, source, g, leak, network.layout)
    residual[rounded] = measured[:, 0].to(residual.dtype)
    return residual


def _drops_with_digits(
    backend: str, source: Tensor, network: Networks, v: Tensor, late: Tensor, tol: float, most: int
) -> tuple[list[Tensor], Tensor]:
    """Differences of potentials within `tol`, and which other networks (B, C) have less right ones.

    Small leaks lift all potentials alike, so that rounding them takes the digits of their
    differences. The solver solves the same networks once more, for the current that these
    potentials leave over, and the differences of both solutions are added.
    """
    layout = network.layout
    source, leak, *g = (x.to(v.dtype) for x in _fields(source, network))
    leftover = residual_of(v, source, g, leak, layout)
    outside = (v == 0) & (leftover == source)  # of the network: nodes with neither edge nor leak
    late = late[(slice(None), *[None] * len(g))]
    leftover = torch.where(outside | late, 0, leftover)
    enough = tol * norm_of(torch.where(outside, 0, source)) / norm_of(leftover)
    least = float(enough.nan_to_num(1).amin())
    drops_v = layout.drops(v)
    if least >= 1:
        return drops_v, torch.zeros_like(enough, dtype=torch.bool)
    short = methods.lifted(
        v, drops_v, 1 / methods.LIFTING
    )  # iterations for the leftover lose it, too
    if bool(short.any()):
        return drops_v, short
    correction, _, residual = _solve_by(backend, leftover, network, least, most)
    drops_of_correction = layout.drops(correction.to(v.dtype))
    return [
        a + b for a, b in zip(drops_v, drops_of_correction, strict=True)
    ], residual > methods.SAFETY * enough


def _solve_rest(
    source: Tensor, network: Networks, solved: Solved, late: Tensor, short: Tensor, backend: str
) -> Solved:
    """Eliminate networks (B, C): the `late` ones get other potentials, all other differences."""
    both, drops_v = late | short, solved.drops
    picked = _pick(source, network, both)
    names = both.nonzero().tolist()
    eliminated = _eliminate(*picked, backend, drops=len(drops_v) > 0, keep=False, names=names)
    b, c = both.nonzero(as_tuple=True)
    of_late = late[b, c]
    v, residual = (x.to(eliminated.v.dtype) for x in (solved.v, solved.residual))
    # Potentials do not depend on whether a gradient is wanted.
    v.movedim(-1, 1)[b[of_late], c[of_late]] = eliminated.v[of_late][..., 0]
    residual[b[of_late], c[of_late]] = eliminated.residual[of_late][:, 0]
    for whole, drop in zip(drops_v, eliminated.drops, strict=True):
        whole.movedim(-1, 1)[b, c] = drop[..., 0]
    return solved._replace(v=v, residual=residual)


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
    source: Tensor,
    network: Networks,
    backend: str,
    *,
    drops: bool,
    keep: bool,
    definite: bool = True,
    names: Sequence[Sequence[int]] | None = None,
) -> Solved:
    """Eliminate networks, as many at a time as `methods.networks_at_once` allows. `definite` as in
    `_solve`, `names` as in `_require`. The backend "triton" reads no value."""
    layout, count, dtype = (
        network.layout,
        network.num_networks,
        compute_dtype(source, *network.fields),
    )
    channels, at_frequency = network.leak.shape[-1], dtype.is_complex
    most = methods.networks_at_once(layout, count, dtype)
    keep = keep and (at_frequency or most == count) and methods.keeps(layout, count, dtype)
    most = count if keep else most or 1
    signed = network.method == methods.SIGNED
    groups = [_fields(source, network)]
    if most < count:
        rows = (x.movedim(-1, 1).flatten(0, 1)[..., None] for x in groups[0])
        groups = zip(*(x.split(most) for x in rows), strict=True)
    definite = definite and signed
    options: Any = {"dtype": dtype, "backend": backend, "drops": drops, "keep": keep or definite}
    options["tol"] = network.tol
    solutions: list[Solution] = []
    state: list[Tensor] = []
    for s, leak, *g in groups:
        where: Any = {"before": len(solutions) * most, "channels": channels}
        group = Elimination(g, leak, layout, source=s.to(dtype), **where, **options)
        solutions.append(group.solution)
        state = group.state() if keep else []
        if definite:
            group.require_definite(g, leak)
    solution = _joined(solutions, source)
    residual = solution.residual
    assert residual is not None  # the networks were given
    if not at_frequency:  # a complex `Elimination` judges its own
        residual = residual.to(dtype)
    iterations = torch.zeros_like(residual, dtype=torch.int32)
    if backend != "triton" and not at_frequency and not signed:
        _require(residual, iterations, network.tol, layout.shape, dtype, names)
    return Solved(solution.potential, iterations, residual, solution.drops, state)


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
