"""The `torch.library` operator behind the networks: one solve, on any backend.

A backend is anything with this, `periodic` being one bool an axis::

    solve(source, conductance, leak, periodic, tol, max_iterations) -> (v, iterations, residual)

Inputs come in the caller's dtypes and strides; `v` goes out as (B, \\*grid, C), `iterations` (0 for
an elimination) and `residual` as (B, C), in any dtype and strides. `residual` is what is compared
with `tol`: after iterations the deviation of `chonn_ops.network.stopping`, after an elimination
|s - A v| / |s|. Values have been checked; whether a network converged is judged here, and what did
not is eliminated by the direct method or refused. A source at a node without edge and leak counts
for nothing. Derivatives are `chonn_ops.network.autograd`'s.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import Backends
from chonn_ops._dtypes import compute_dtype, real_dtype, without_autocast
from chonn_ops.checks import error
from chonn_ops.network import direct, methods
from chonn_ops.network.checks import (
    any_complex,
    check_grounded,
    node_index,
    refuse_negative,
    resonance,
    ungrounded,
)
from chonn_ops.network.direct import Factor, factor_of
from chonn_ops.network.direct.cpu import Solution
from chonn_ops.network.edges import differences, used_edges
from chonn_ops.network.residual import excess, norm_of, relative_residual

BACKENDS = Backends(
    "chonn_ops.network",
    "CHONN_NETWORK_BACKEND",
    needs={"reference": "scipy"},
    names=("reference", "torch", "cpu"),
)


def available_backends() -> tuple[str, ...]:
    """Names that `chonn_ops.kirchhoff_network` takes as `backend` here.

    "reference" needs SciPy; "cpu" needs the compiled kernel.
    """
    return BACKENDS.available()


_NAME = "chonn_ops::kirchhoff_network"
torch.library.define(
    _NAME,
    "(Tensor source, Tensor g0, Tensor? g1, Tensor? g2, Tensor leak, bool[] periodic, float tol, "
    "int max_iterations, str backend, str method='auto', bool check=True) "
    "-> (Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


def _network(
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
    check: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials (B, \\*grid, C), iterations (B, C), and (B, C) what was compared with `tol`.

    All in the dtype of the solve.
    """
    conductance = tuple(g for g in (g0, g1, g2) if g is not None)
    for name, tensor in zip(("leak", "g0", "g1", "g2"), (leak, *conductance), strict=False):
        if tensor.shape != source.shape:  # backends trust it with addresses
            raise error(name, f"shape {tuple(source.shape)}", tuple(tensor.shape))
    grid = source.shape[1:-1]
    if not len(grid) == len(conductance) == len(periodic):
        raise error(
            "periodic", f"{len(grid)} axes, as source has", f"{len(conductance)}, {len(periodic)}"
        )
    if check and leak.device.type == "cpu":  # reading values stalls a GPU
        if not any_complex(source, leak, *conductance):
            refuse_negative(conductance, leak, periodic)
        check_grounded(conductance, leak, periodic)
    dtype = compute_dtype(source, leak, *conductance)
    B, C = source.shape[0], source.shape[-1]
    if B == 0:
        nothing = source.new_empty(0, C, dtype=real_dtype(dtype))
        return source.new_empty(source.shape, dtype=dtype), nothing.to(torch.int32), nothing
    with without_autocast(source):
        solver = BACKENDS.choose(backend, source.device)
        v, iterations, residual = _solve(
            solver,
            source,
            conductance,
            leak,
            tuple(map(bool, periodic)),
            tol,
            max_iterations,
            method,
        )
    outputs = (v.to(dtype), iterations.to(torch.int32), residual.to(real_dtype(dtype)))
    return outputs[0].contiguous(), outputs[1].contiguous(), outputs[2].contiguous()


class Kept(threading.local):
    """Where a derivative asks the operator to leave more than potentials."""

    wanted = False  # the factors of a direct solve
    drops = False  # differences of potentials, for gradients of edges
    factor: Factor | None = None
    found: Sequence[Tensor] = ()  # the differences, one field an axis, if any

    @contextmanager
    def requesting(self, *, factor: bool, drops: bool) -> Iterator[None]:
        """What the operator leaves is here until the end of the context."""
        self.wanted, self.drops, self.factor, self.found = factor, drops, None, ()
        try:
            yield
        finally:
            self.wanted, self.drops, self.factor, self.found = False, False, None, ()


KEPT = Kept()
# Factors that wait for a backward: together they take at most `methods.MEMORY`.
_waiting: weakref.WeakSet[Factor] = weakref.WeakSet()


def _fits(grid: tuple[int, ...], periodic: tuple[bool, ...], count: int, dtype: Any) -> bool:
    """Whether the memory bound allows to keep these factors, too."""
    taken = sum(factor.nbytes for factor in tuple(_waiting))
    return taken + methods.predicted_bytes(grid, periodic, count, dtype) <= methods.MEMORY


def _solve(
    solver: Any,
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    periodic: tuple[bool, ...],
    tol: float,
    max_iterations: int,
    method: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials, iterations and residuals; raises where a network is not solved."""
    B, *grid, C = source.shape
    dtype = compute_dtype(source, leak, *conductance)
    compiled = solver.__name__.endswith(".cpu")
    network = (source, conductance, leak, periodic)
    if solver.__name__.endswith(".reference"):  # direct itself
        v, iterations, residual = solver.solve(*network, tol, max_iterations)
        if dtype.is_complex and bool((residual > tol).any()):
            where = tuple((residual > tol).nonzero()[0].tolist())
            raise resonance(float(residual[where]), tol, where)
        found = _drops(v, periodic) if KEPT.drops else ()
        if dtype.is_complex or not bool(methods.lifted(v, found, tol).any()):
            KEPT.found = [x.to(dtype) for x in found]
        return v, iterations, residual
    if dtype.is_complex:
        return _eliminate_complex(*network, dtype, tol, compiled, keep=KEPT.wanted)
    shape = (tuple(grid), periodic)
    recording = leak.is_cuda and torch.cuda.is_current_stream_capturing()  # nothing may be read
    fast = compiled or (leak.is_cuda and not recording)
    if method == "direct" or (method == "auto" and methods.eliminates(*shape, B * C, dtype, fast)):
        return _eliminate(*network, tol, compiled, keep=KEPT.wanted)
    rest = methods.networks_at_once(*shape, 1, dtype) if method == "auto" else 0
    axes = sum(n > 1 for n in grid)  # the kernel of iterations eliminates lines itself
    # The kernel's potentials of lines are right, but their differences have fewer digits.
    for_edges = KEPT.drops and tol < methods.TIGHT and not recording
    readable = rest and (axes > 1 or for_edges) and not recording
    if readable and methods.exceed_digits(conductance, leak, periodic, dtype):
        return _eliminate(*network, tol, compiled, keep=KEPT.wanted)
    patience = methods.PATIENCE[axes]
    most = min(max_iterations, patience) if rest else max_iterations
    # What can be eliminated is to be as right as if it were.
    enough = tol / methods.SAFETY if rest and tol < methods.TIGHT else tol
    v, iterations, residual = solver.solve(*network, enough, most)
    if recording:
        return v, iterations, residual
    residual = _without_rounding(*network, v, iterations, residual, tol)
    if bool(residual.isnan().any()):  # of an input, or where numbers of the iterations overflowed
        pairs = enumerate(zip(conductance, periodic, strict=True))
        edges = [used_edges(g, axis, closed) for axis, (g, closed) in pairs]
        finite = [x.isfinite().flatten(1, -2).all(1) for x in (source, leak, *edges)]
        unsolved = residual.isnan() & torch.stack(finite).all(0)
        residual = torch.where(unsolved, math.inf, residual)
    late = residual > tol  # not NaN: an input of that network is not finite
    if for_edges:
        KEPT.found = _drops(v, periodic)
        digits = methods.ROUNDED * torch.finfo(v.dtype).eps if axes < 2 else tol
        if bool(methods.lifted(v, KEPT.found, digits).any()):
            digits = min(enough, digits)
            KEPT.found, short = _drops_with_digits(solver, *network, v, late, digits, most)
            if rest:
                late = late | short
            elif bool(short.any()):
                KEPT.found = ()  # the backward finds them
    if not rest:
        _require(residual, iterations, tol, grid, v.dtype)
    elif bool(late.any()):
        v, residual = _solve_rest(*network, v, residual, late, tol, compiled)
    return v, iterations, residual


def _without_rounding(
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    periodic: tuple[bool, ...],
    v: Tensor,
    iterations: Tensor,
    residual: Tensor,
    tol: float,
) -> Tensor:
    """Residuals (B, C), 0 where the kernel eliminated, lines and narrow grids, and rounding leaves
    more than `tol`."""
    rounded = (residual > tol) & (iterations == 0)
    if not bool(rounded.any()):
        return residual
    b, c = rounded.nonzero(as_tuple=True)
    picked = (x.movedim(-1, 1)[b, c][..., None] for x in (v, source, leak, *conductance))
    x, s, l, *g = (field.to(v.dtype) for field in picked)  # noqa: E741
    residual = residual.clone()
    residual[b, c] = relative_residual(x, s, g, l, periodic)[:, 0].to(residual.dtype)
    return residual


def _drops(v: Tensor, periodic: Sequence[bool]) -> list[Tensor]:
    """For each axis each node's potential less the next one's, 0 where no edge is."""
    axes = len(periodic)
    return [differences(v, axis - axes - 1, closed) for axis, closed in enumerate(periodic)]


def _drops_with_digits(
    solver: Any,
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    periodic: tuple[bool, ...],
    v: Tensor,
    late: Tensor,
    tol: float,
    most: int,
) -> tuple[list[Tensor], Tensor]:
    """`_drops` of potentials within `tol`, and which other networks (B, C) have them not so right.

    Small leaks lift all potentials alike, so that rounding them takes the digits of their
    differences. What it took solves the same network for the current that they leave over.
    """
    s, l, *g = (x.detach().to(v.dtype) for x in (source, leak, *conductance))  # noqa: E741
    left = excess(v, s, g, l, periodic)
    outside = (v == 0) & (left == s)  # of the network: nodes with neither edge nor leak
    late = late[(slice(None), *[None] * len(g))]
    left = torch.where(outside | late, 0, left)
    enough = tol * norm_of(torch.where(outside, 0, s)) / norm_of(left)
    least = float(enough.nan_to_num(1).amin())
    found = _drops(v, periodic)
    if least >= 1:
        return found, torch.zeros_like(enough, dtype=torch.bool)
    short = methods.lifted(v, found, 1 / methods.LIFTING)  # iterations for the rest lose it, too
    if bool(short.any()):
        return found, short
    rest, _, residual = solver.solve(left, conductance, leak, periodic, least, most)
    found = [a + b for a, b in zip(found, _drops(rest.to(v.dtype), periodic), strict=True)]
    return found, residual > methods.SAFETY * enough


def _solve_rest(
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    periodic: tuple[bool, ...],
    v: Tensor,
    residual: Tensor,
    late: Tensor,
    tol: float,
    compiled: bool,
) -> tuple[Tensor, Tensor]:
    """Eliminate the `late` networks (B, C): `v` and `residual` with theirs."""
    b, c = late.nonzero(as_tuple=True)
    s, l, *g = (x.movedim(-1, 1)[b, c][..., None] for x in (source, leak, *conductance))  # noqa: E741
    found, KEPT.found = KEPT.found, ()
    names = torch.stack([b, c], 1).tolist()
    x, _, left = _eliminate(s, tuple(g), l, periodic, tol, compiled, keep=False, names=names)
    v, residual = v.to(x.dtype), residual.to(x.dtype)
    v.movedim(-1, 1)[b, c] = x[..., 0]
    residual[b, c] = left[:, 0]
    for whole, drop in zip(found, KEPT.found, strict=False):
        whole.movedim(-1, 1)[b, c] = drop[..., 0]
    KEPT.found = found
    return v, residual


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
        worst = int(torch.where(late, residual, 0).argmax())
        where = tuple(names[worst]) if names else divmod(worst, residual.shape[1])
        wider = "" if dtype == torch.float64 else "float64 inputs, "
        raise RuntimeError(
            f"kirchhoff_network: expected residuals and errors of at most tol={tol:g}, got "
            f"{float(residual[late].max()):.2e} in the worst, {where} (batch, channel), of "
            f"{int(late.sum())} of {late.numel()} networks after {int(iterations[late].max())} "
            f"iterations (grid {size}). To solve them: method='direct', {wider}a smaller contrast, "
            "a larger tol or more max_iterations"
        )


def _eliminate(
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    periodic: tuple[bool, ...],
    tol: float,
    compiled: bool,
    *,
    keep: bool,
    names: Sequence[Sequence[int]] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The direct method, on as many networks at a time as `chonn_ops.network.methods` allows.
    `names` as in `_require`."""
    B, *grid, C = source.shape
    dtype = compute_dtype(source, leak, *conductance)
    backend = "cpu" if compiled else "torch"
    source, leak, *g = (x.detach().to(dtype) for x in (source, leak, *conductance))
    with torch.no_grad():
        most = methods.networks_at_once(tuple(grid), periodic, B * C, dtype)
        if keep and most == B * C and _fits(tuple(grid), periodic, B * C, dtype):
            factor = Factor(
                g, leak, periodic, dtype=dtype, backend=backend, source=source, drops=KEPT.drops
            )
            (v, KEPT.found, residual), undetermined = factor.solution, factor.undetermined
            del factor.solution
            KEPT.factor = factor
            _waiting.add(factor)
        else:
            every = most or B * C
            solved = _in_groups(source, g, leak, periodic, every, backend, drops=KEPT.drops)
            (v, KEPT.found, residual), undetermined = solved
        if undetermined:
            network, node = undetermined[0]
            where = tuple(names[network]) if names else divmod(network, C)
            raise ungrounded(where, node_index(node, grid))
    assert residual is not None  # the networks were given
    residual = residual.to(dtype)
    iterations = torch.zeros(B, C, dtype=torch.int32, device=source.device)
    _require(residual, iterations, tol, grid, dtype, names)
    return v, iterations, residual


def _eliminate_complex(
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    periodic: tuple[bool, ...],
    dtype: torch.dtype,
    tol: float,
    compiled: bool,
    *,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The direct method for complex networks, see `chonn_ops.network.direct.refined`."""
    B, *grid, C = source.shape
    keep = keep and _fits(tuple(grid), periodic, B * C, dtype)
    options: Any = {"dtype": dtype, "backend": "cpu" if compiled else "torch"}
    options.update(tol=tol, keep=keep)
    most = B * C if keep else methods.networks_at_once(tuple(grid), periodic, B * C, dtype)
    most = most or 1
    fields = (x.detach() for x in (source, leak, *conductance))
    if most < B * C:
        fields = (x.movedim(-1, 1).flatten(0, 1)[..., None] for x in fields)
    solutions: list[Solution] = []
    with torch.no_grad():
        for s, l, *g in zip(*(x.split(most) for x in fields), strict=True):  # noqa: E741
            given: Any = {"source": s.to(dtype), "drops": KEPT.drops}
            given |= {"before": len(solutions) * most, "channels": C}
            factor: Any = factor_of(g, l, periodic, **options, **given)
            solutions.append(factor.solution)
            if keep:
                KEPT.factor = factor
                _waiting.add(factor)
            del factor.solution
    potential, KEPT.found, residual = _joined(solutions, source)
    assert residual is not None  # the networks were given
    iterations = torch.zeros(B, C, dtype=torch.int32, device=source.device)
    return potential, iterations, residual


def _in_groups(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: tuple[bool, ...],
    most: int,
    backend: str,
    *,
    drops: bool,
) -> tuple[Solution, list[tuple[int, int]]]:
    """`direct.solve` of at most so many networks at a time."""
    options: Any = {"backend": backend, "drops": drops}
    if most == source.shape[0] * source.shape[-1]:
        return direct.solve(source, conductance, leak, periodic, **options)
    rows = [x.movedim(-1, 1).flatten(0, 1)[..., None] for x in (source, leak, *conductance)]
    solutions, undetermined = [], []
    for start in range(0, len(rows[0]), most):
        s, l, *g = (x[start : start + most] for x in rows)  # noqa: E741
        solution, without = direct.solve(s, g, l, periodic, **options)
        solutions.append(solution)
        undetermined += [(start + network, node) for network, node in without]
    return _joined(solutions, source), undetermined


def _joined(solutions: Sequence[Solution], source: Tensor) -> Solution:
    """The solution for `source` of those of groups of its networks, (M, \\*grid, 1), or of one
    of all."""
    if len(solutions) == 1:
        return solutions[0]
    B, C = source.shape[0], source.shape[-1]

    def whole(parts: Sequence[Tensor | None]) -> Tensor:
        field = torch.cat([part for part in parts if part is not None])
        return field.reshape(B, C, *field.shape[1:-1]).movedim(1, -1)

    fields = zip(*(solution.drops for solution in solutions), strict=True)
    potential, _, residual = zip(*solutions, strict=True)
    return Solution(whole(potential), [whole(x) for x in fields], whole(residual))


torch.library.impl(_NAME, "default", _network)


@torch.library.register_fake(_NAME)
def _(source: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(source, *arguments[:4])
    networks = (source.shape[0], source.shape[-1])
    return (
        source.new_empty(source.shape, dtype=dtype),
        source.new_empty(networks, dtype=torch.int32),
        source.new_empty(networks, dtype=real_dtype(dtype)),
    )


def fold(operator: Callable[..., Any], info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
    """A vmap rule: networks are independent, so the mapped axis joins the batch of all tensors."""
    count = info.batch_size

    def folded(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        return (x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)

    outputs = operator(*map(folded, args, in_dims))
    kind = type(outputs)
    return kind(output.unflatten(0, (count, -1)) for output in outputs), kind([0] * len(outputs))


torch.library.register_vmap(_NAME, partial(fold, torch.ops.chonn_ops.kirchhoff_network))
