r"""Factors of resistor networks as values: `Factor` in numbers, `Factorization` with derivatives.

With A v = s the nodal equations and A = U^T D U from the elimination, U unit upper triangular with
minus the shares above its diagonal and D the pivots:

- solve: forward and back substitution. The gradient is another one: with A w = grad_v it is w for
  the source, -w v for the leak and -(w_p - w_q) (v_p - v_q) for an edge;
- log-determinant: the sum of the pivots' logarithms. Its gradient is Z_pp for the leak and
  Z_pp + Z_qq - 2 Z_pq for an edge, with Z = A^-1;
- sample: U^-1 D^(-1/2) noise, whose covariance is A^-1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from chonn_ops._backends import Backends
from chonn_ops._dtypes import (
    DTYPES,
    compute_dtype,
    potential_dtype,
    to_dtype_of,
    without_autocast,
)
from chonn_ops.checks import check_kind, check_tensor, error, refuse_trace
from chonn_ops.network.checks import (
    NETWORK_DTYPES,
    Periodic,
    any_complex,
    check_field,
    check_network,
    check_not_empty,
    node_index,
    recording,
    refuse_negative,
    ungrounded,
)
from chonn_ops.network.derivatives import edge_gradients, potentials, tangents
from chonn_ops.network.direct import alternating, cpu
from chonn_ops.network.direct.cpu import Solution
from chonn_ops.network.direct.plan import Plan, make_plan
from chonn_ops.network.direct.refined import ComplexFactor, check_inverse


@torch.no_grad()
def small_results(module: Any, device: torch.device) -> tuple[Tensor, ...]:
    """Potentials and differences of a small network by the `Factors` of a module."""
    ones = torch.ones(1, 9, 7, 1, device=device)
    conductance, leak = (ones.cumsum(1), 1e3 / ones.cumsum(2)), 1e-3 * ones
    plan, source = _plan_of((9, 7), (False, True)), ones.cumsum(1)[:, None]
    solution = module.Factors(plan, conductance, leak, source, drops=True).solution
    return solution.potential, *solution.drops


# No variable of the environment selects one of these.
BACKENDS = Backends(
    "chonn_ops.network.direct", "", names=("torch", "cpu", "triton"), results_on=small_results
)

P = ParamSpec("P")
R = TypeVar("R")


def _uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """A function that breaks the graph of `torch.compile`: factors are no tensors."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # The decorator itself would import PyTorch's compiler with this module.
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)  # pyright: ignore[reportCallIssue]
        return function(*args, **kwargs)

    return call


def check_sources(
    name: str, source: Any, leak: Tensor, dtypes: Sequence[torch.dtype] = DTYPES
) -> None:
    """Require (B, \\*grid, C) or (B, S, \\*grid, C), where the leak is."""
    check_tensor(name, source)
    shape = tuple(leak.shape)
    several = source.dim() == leak.dim() + 1
    if tuple(source.shape[:1] + source.shape[2:] if several else source.shape) != shape:
        raise error(name, f"shape (B, *grid, C) = {shape} or (B, S, *grid, C)", tuple(source.shape))
    check_kind(name, source, leak.device, "the network", dtypes)


def currents_of(density: Tensor, volume: float, current: Tensor | None) -> Tensor:
    """Currents into nodes, (B, \\*grid, C) or (B, S, \\*grid, C): a source per unit volume times
    the volume of a node's cell, and `current` (B, \\*grid, C)."""
    if current is None:
        return density * volume
    wide = torch.promote_types(density.dtype, current.dtype)
    return density.to(wide) * volume + (
        current[:, None] if density.dim() > current.dim() else current
    )


def _plan_of(grid: Sequence[int], periodic: Sequence[bool]) -> Plan:
    return make_plan(tuple(grid), tuple(map(bool, periodic)))


def _plan_for(leak: Tensor, periodic: Sequence[bool], dtype: torch.dtype, backend: str) -> Plan:
    """The plan that suits these networks and the backend."""
    B, *grid, C = leak.shape
    if backend == "cpu":
        return cpu.plan_of(grid, periodic, B * C, dtype)
    if backend == "triton":
        return BACKENDS["triton"].plan_of(grid, periodic)
    return _plan_of(grid, periodic)


def available_backends() -> tuple[str, ...]:
    """Names that `factorize` takes as `backend` here; "cpu" needs the compiled kernel, "triton" a
    CUDA device and Triton."""
    return BACKENDS.available()


def _backend_of(leak: Tensor, backend: str | None, dtype: torch.dtype) -> str:
    """The backend; by default the fastest for the tensors' device. "triton" takes real networks."""
    name = BACKENDS.name_for(backend or "", leak.device)
    return "torch" if name == "triton" and dtype.is_complex else name


def solve(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
    *,
    backend: str | None = None,
    drops: bool = False,
) -> tuple[Solution, list[tuple[int, int]]]:
    """The solution and `Factor.undetermined` of networks whose factors are not kept.

    For batches on the CPU this takes little memory, and less time than `Factor` where one solve is
    all that is wanted: the factors of a group of networks stay in the cache.

    Parameters
    ----------
    source : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
    conductance, leak, periodic, backend, drops
        As in `Factor`.

    Returns
    -------
    solution : Solution
        Potentials in float64 where any input is, else in float32; S left out where `source` has
        none.
    undetermined : list of tuple of int
    """
    dtype = compute_dtype(source, leak, *conductance)
    several = source.dim() == leak.dim() + 1
    backend = _backend_of(leak, backend, dtype)
    fields = [x.to(dtype) for x in (leak, *conductance)]
    s = (source if several else source[:, None]).to(dtype)
    plan = _plan_for(leak, periodic, dtype, backend)
    kind = BACKENDS[backend].Factors
    solution, undetermined = kind.solved(plan, fields[1:], fields[0], s, drops=drops)
    return solution if several else solution.single(), undetermined


class Factor:
    """The elimination of networks, without checks and without derivatives.

    Parameters
    ----------
    conductance : sequence of Tensor, shape (B, \\*grid, C)
        One an axis; the last entry along an axis counts for periodic axes only.
    leak : Tensor, shape (B, \\*grid, C)
        Conductances to ground, those of the boundary included.
    periodic : sequence of bool
        One an axis.
    dtype : torch.dtype, optional
        Default: float64 where any input is, else float32.
    backend : {"cpu", "torch", "triton"}, optional
        Default: the fastest for the tensors' device.
    source : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C), optional
        Solved for at once; `solution` holds what `solve_all` returns, and residuals.
    drops : bool
        Whether `solution` has the drops.
    """

    def __init__(
        self,
        conductance: Sequence[Tensor],
        leak: Tensor,
        periodic: Sequence[bool],
        *,
        dtype: torch.dtype | None = None,
        backend: str | None = None,
        source: Tensor | None = None,
        drops: bool = False,
    ) -> None:
        self.dtype = dtype or compute_dtype(leak, *conductance)
        self.shape = leak.shape
        self._wide: Factor | None = None
        self.backend = _backend_of(leak, backend, self.dtype)
        kind = BACKENDS[self.backend].Factors
        fields = [x.to(self.dtype) for x in conductance]
        plan = _plan_for(leak, periodic, self.dtype, self.backend)
        leak = leak.to(self.dtype)
        if source is None:
            self.factors = kind(plan, fields, leak)
            return
        several = source.dim() == leak.dim() + 1
        s = (source if several else source[:, None]).to(self.dtype)
        self.factors = kind(plan, fields, leak, s, drops=drops)
        solution, self.factors.solution = self.factors.solution, None
        self.solution = solution if several else solution.single()

    def state(self) -> list[Tensor]:
        """The elimination as tensors, of which `restored` makes a factor."""
        return self.factors.state()

    def wide(self, conductance: Sequence[Tensor], leak: Tensor, periodic: Sequence[bool]) -> Factor:
        """The same networks, eliminated in float64 once."""
        if self.dtype == torch.float64:
            return self
        if self._wide is None:
            g, l = [x.detach() for x in conductance], leak.detach()  # noqa: E741
            self._wide = Factor(g, l, periodic, dtype=torch.float64, backend=self.backend)
        return self._wide

    def solve(self, source: Tensor) -> Tensor:
        """Potentials for sources (B, \\*grid, C) or (B, S, \\*grid, C), in the factor's dtype."""
        return self.solve_all(source, drops=False).potential

    def solve_all(self, source: Tensor, *, drops: bool, network: Sequence[Tensor] = ()) -> Solution:
        """Potentials and, where wanted, drops: for each axis each node's potential less the next
        one's, 0 where no edge is. Rounding of drops is relative to what potentials differ by around
        the edge: they keep their digits where small leaks lift all potentials alike. Residuals
        where the `network`, leak and conductances, is given once more."""
        several = source.dim() == len(self.shape) + 1
        s = (source if several else source[:, None]).to(self.dtype)
        solution = self.factors.solve(s, drops=drops, network=network)
        return solution if several else solution.single()

    def sample(self, noise: Tensor) -> Tensor:
        """U^-1 D^(-1/2) noise, shapes as in `solve`."""
        several = noise.dim() == len(self.shape) + 1
        out = self.factors.sample((noise if several else noise[:, None]).to(self.dtype))
        return out if several else out[:, 0]

    def logdet(self) -> Tensor:
        """(B, C), float64."""
        return self.factors.logdet()

    def inverse_entries(self) -> tuple[Tensor, list[Tensor]]:
        """(B, \\*grid, C): the diagonal of the inverse, and its entries at each axis's edges."""
        return self.factors.inverse_entries()

    @property
    def nbytes(self) -> int:
        """Bytes that the factors hold."""
        return self.factors.nbytes

    @property
    def undetermined(self) -> list[tuple[int, int]]:
        """(batch * channels + channel, node in row-major order) of one connected part without any
        leak for each network that has such parts. There all potentials may be shifted by a number
        of their own: those of `solve` are 0 at the part's last node. Other parts are right."""
        return self.factors.undetermined


def factor_of(
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
    *,
    dtype: torch.dtype | None = None,
    backend: str | None = None,
    **options: Any,
) -> Factor | ComplexFactor:
    """A `ComplexFactor` of complex networks, else a `Factor`; `options` as they take them."""
    dtype = dtype or compute_dtype(leak, *conductance)
    if not dtype.is_complex:
        return Factor(conductance, leak, periodic, dtype=dtype, backend=backend, **options)
    plan, backend = _plan_of(leak.shape[1:-1], periodic), _backend_of(leak, backend, dtype)
    return ComplexFactor(plan, conductance, leak, dtype=dtype, backend=backend, **options)


def restored(
    state: Sequence[Tensor],
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
    *,
    dtype: torch.dtype,
    tol: float,
    backend: str,
) -> Factor | ComplexFactor:
    """The factor of networks from its `state`. `tol` is that of complex networks."""
    network = [x.to(dtype) for x in (leak, *conductance)]
    backend = _backend_of(leak, backend, dtype)
    if dtype.is_complex:
        plan = _plan_of(leak.shape[1:-1], periodic)
        g, l = network[1:], network[0]  # noqa: E741
        return ComplexFactor(plan, g, l, dtype=dtype, backend=backend, tol=tol, state=state)
    factor = Factor.__new__(Factor)
    factor.dtype, factor.shape, factor.backend, factor._wide = dtype, leak.shape, backend, None
    # The compiled kernel makes its own plan from the state.
    plan = _plan_for(leak, periodic, dtype, backend if backend == "triton" else "torch")
    factor.factors = BACKENDS[backend].Factors.restored(plan, state, *network)
    return factor


class _Solve(torch.autograd.Function):
    """Sources (B, S, \\*grid, C), in the factor's dtype, to potentials and residuals."""

    @staticmethod
    def forward(ctx: Any, factor: Any, periodic: Any, source: Any, leak: Any, *g: Any) -> Any:
        network = [x.to(factor.dtype) for x in (leak, *g)]
        drops = any(ctx.needs_input_grad[4:])
        with without_autocast(source):
            v, found, residual = factor.solve_all(source, drops=drops, network=network)
        ctx.factor, ctx.periodic = factor, periodic
        ctx.save_for_backward(source, v, leak, *g, *found)
        ctx.save_for_forward(source, leak, *g)
        ctx.mark_non_differentiable(residual)
        return v, residual

    @staticmethod
    def jvp(ctx: Any, *given: Any) -> Any:
        source, leak, *g = ctx.saved_tensors
        _, _, change, leak_change, *changes = given
        network = _network(ctx.factor, ctx.periodic, leak, g)
        changed = (change, None, *(*changes, None, None)[:3], leak_change)
        found = potentials(source, None, network)
        return tangents(*found, changed, network)[0].to(ctx.factor.dtype), None

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        factor, axes = ctx.factor, len(ctx.periodic)
        saved = ctx.saved_tensors  # hooks may let them be read once only
        (source, v, leak, *g), over_v = saved[: 3 + axes], saved[3 + axes :]
        needed, grad = ctx.needs_input_grad[3:], grad_outputs[0]
        edges = any(needed[1:])
        products: Any = ()
        if torch.is_grad_enabled():
            if edges:
                network = _network(factor, ctx.periodic, leak, g)
                v, w, products = edge_gradients(source, grad, network)
            else:
                w: Any = _Solve.apply(factor, ctx.periodic, grad.conj(), leak, *g)[0]  # pyright: ignore[reportOptionalSubscript]
        else:
            with without_autocast(grad):
                w, over_w, _ = factor.solve_all(grad.conj(), drops=edges)
            products = [-(a * b).conj() for a, b in zip(over_w, over_v, strict=True)]
        grads = [to_dtype_of((w * v).conj().sum(1).neg(), leak) if needed[0] else None]
        grads += [None] * axes
        for axis, product in enumerate(products):
            if needed[axis + 1]:
                grads[axis + 1] = to_dtype_of(product.sum(1), g[axis])
        return None, None, w.conj().resolve_conj().to(source.dtype), *grads


def _network(factor: Any, periodic: Sequence[bool], leak: Tensor, g: Sequence[Tensor]) -> Any:
    """As `chonn_ops.network.derivatives` has it; iterations have no part in it."""
    return *(*g, None, None)[:3], leak, periodic, 1e-6, 1, factor.backend, "direct"


class _LogDet(torch.autograd.Function):
    """Leak and conductances to (B, C)."""

    @staticmethod
    def forward(ctx: Any, factor: Any, periodic: Any, leak: Any, *g: Any) -> Tensor:
        ctx.factor, ctx.periodic = factor, periodic
        ctx.save_for_backward(leak, *g)
        return factor.logdet().to(factor.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        leak, *g = ctx.saved_tensors
        factor, axes = ctx.factor, len(g)
        # Across an edge entries of the inverse are nearly equal where leaks are small.
        with without_autocast(leak):
            factor = factor.wide(g, leak, ctx.periodic)
            diagonal, entries = factor.inverse_entries()
        grad = grad_outputs[0].reshape(leak.shape[0], *[1] * axes, leak.shape[-1])
        grads = [to_dtype_of(grad * diagonal.conj(), leak)]
        for i, (x, entry, closed) in enumerate(zip(g, entries, ctx.periodic, strict=True)):
            axis, n = i - axes - 1, x.shape[i + 1]
            joined = torch.ones(n, dtype=torch.bool, device=x.device)
            joined[-1] = closed and n > 1
            joined = joined.reshape(n, *[1] * (axes - i))
            resistance = diagonal + diagonal.roll(-1, axis) - 2 * entry
            grads.append(to_dtype_of(torch.where(joined, grad * resistance.conj(), 0), x))
        return None, None, *grads


class Factorization:
    """Networks eliminated once, for any number of results: what `factorize` returns.

    All results are differentiable with respect to what the networks were made of, and `solve` and
    `sample` with respect to sources and noise. `solve` is differentiable any number of times,
    `logdet` once.

    Attributes
    ----------
    shape : torch.Size
        (B, \\*grid, C).
    dtype : torch.dtype
        What the networks were eliminated in.
    """

    def __init__(
        self,
        conductance: Sequence[Tensor],
        leak: Tensor,
        periodic: tuple[bool, ...],
        backend: str | None = None,
        volume: float = 1.0,
        current: Tensor | None = None,
    ) -> None:
        # Copies: refinement, residuals and derivatives need the networks as they were eliminated.
        self._given = leak, *conductance = tuple(x.clone() for x in (leak, *conductance))
        self._periodic, self._backend = periodic, backend
        self._volume, self._current = volume, current
        self._checked = False  # that no network is empty, by the first result that needs it
        with torch.no_grad(), without_autocast(leak):
            self._factor = factor_of(conductance, leak, periodic, backend=backend)
        self.shape = self._factor.shape
        self.dtype = compute_dtype(leak, *conductance)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what is read from a file, is eliminated anew."""
        # PyTorch copies leaves of a graph only.
        given = [
            None if x is None else x.detach().requires_grad_(x.requires_grad)
            for x in (*self._given, self._current)
        ]
        leak, *conductance, current = given
        options = self._periodic, self._backend, self._volume, current
        return type(self), (tuple(conductance), leak, *options)

    @cached_property
    def undetermined(self) -> list[tuple[int, int]]:
        """(batch * channels + channel, node in row-major order) of one connected part without any
        leak for each network that has such parts. There nothing determines potentials."""
        if not self.dtype.is_complex:
            return list(self._factor.undetermined)
        # Numbers of any sign may cancel. Which are 0 tells.
        leak, *g = ((x != 0).float() for x in self._given)
        if bool(leak.all()):
            return []
        return solve(torch.zeros_like(leak), g, leak, self._periodic, backend=self._backend)[1]

    def _check_ground(self) -> None:
        if recording(self._given[0]):
            return
        if not self._checked:
            leak, *g = self._given
            check_not_empty(g, leak, self._periodic)
            self._checked = True
        if self.undetermined:
            network, node = self.undetermined[0]
            where = divmod(network, self.shape[-1])
            raise ungrounded(where, node_index(node, self.shape[1:-1]))

    @_uncompiled
    def solve(self, source: Tensor) -> Tensor:
        """Potentials.

        Parameters
        ----------
        source : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
            One current into each node, or S of them for the same networks.

        Returns
        -------
        Tensor, shape and dtype of `source`

        Raises
        ------
        ValueError
            Another shape, dtype or device; a network without edges and leaks, or a connected part
            without leak, which is named.
        """
        dtypes = NETWORK_DTYPES if self.dtype.is_complex else DTYPES
        check_sources("source", source, self._given[0], dtypes)
        self._check_ground()
        several = source.dim() == len(self.shape) + 1
        s = currents_of(source, self._volume, self._current)
        s = (s if several else s[:, None]).to(self._factor.dtype)
        v: Any = _Solve.apply(self._factor, self._periodic, s, *self._given)[0]  # pyright: ignore[reportOptionalSubscript]
        return (v if several else v[:, 0]).to(potential_dtype(source, self.dtype))

    @_uncompiled
    def logdet(self) -> Tensor:
        """Logarithm of the determinant of each network's matrix, (B, C), in the factor's dtype.

        Nodes with neither edge nor leak are no part of it; -inf where a part has no leak. The
        gradient is computed in float64.
        """
        out = _LogDet.apply(self._factor, self._periodic, *self._given)
        assert isinstance(out, Tensor)
        return out.to(self.dtype)

    def _differentiable(self) -> Factor:
        """Factors that PyTorch differentiates through."""
        leak, *g = self._given
        dtype = torch.complex128 if self.dtype.is_complex else None
        return Factor(g, leak, self._periodic, dtype=dtype, backend="torch")

    def _wanted(self) -> bool:
        return torch.is_grad_enabled() and any(x.requires_grad for x in self._given)

    @_uncompiled
    def diagonal_of_inverse(self) -> Tensor:
        """Potential of each node for a unit current into that node alone, (B, \\*grid, C).

        For a Gaussian Markov field whose precision is the matrix, these are the variances. If a
        gradient is needed, PyTorch eliminates the networks again and keeps every front. A network
        without edges and leaks and a connected part without leak are a `ValueError` that names
        them, a complex network at a resonance a `RuntimeError`.
        """
        self._check_ground()
        wanted = self._wanted()
        with without_autocast(self._given[0]):
            factor = self._differentiable() if wanted else self._factor
            diagonal, entries = factor.inverse_entries()
        if isinstance(factor, Factor) and self.dtype.is_complex:  # `ComplexFactor` checks its own
            leak, *g = self._given
            check_inverse(diagonal, entries, leak, g, self._periodic, factor.factors.cancelled)
        return diagonal.to(self.dtype)

    @_uncompiled
    def sample(self, noise: Tensor) -> Tensor:
        """A Gaussian Markov field with the networks' matrices as precision.

        Parameters
        ----------
        noise : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
            Independent standard normal numbers.

        Returns
        -------
        Tensor, shape and dtype of `noise`
            With covariance A^-1 exactly. Which of its square roots is applied depends on the order
            of elimination. If a gradient is needed, PyTorch eliminates the networks again and keeps
            every front.

        Raises
        ------
        ValueError
            Another shape, dtype or device; complex networks; a connected part without leak, which
            is named.
        """
        if self.dtype.is_complex:
            raise error("conductance", "real networks to sample from", self.dtype)
        check_sources("noise", noise, self._given[0])
        self._check_ground()
        wanted = self._wanted() or (torch.is_grad_enabled() and noise.requires_grad)
        with without_autocast(noise):
            factor = self._differentiable() if wanted else self._factor
            assert isinstance(factor, Factor)  # of real networks
            return factor.sample(noise).to(noise.dtype)


@_uncompiled
def factorize(
    conductance: Sequence[Tensor],
    leak: Tensor,
    *,
    periodic: Periodic = False,
    backend: str | None = None,
) -> Factorization:
    r"""Eliminate networks on a grid once, to solve for many sources and more.

    The matrix A of sum_q g_pq (v_p - v_q) + l_p v_p = s_p is eliminated by nested dissection in
    star-mesh form: with t = l + sum of conductances of the node that goes, g_qr += g_q g_r / t and
    l_q += g_q l / t. Only positive numbers are added, so no contrast of conductances and no small
    leak costs a digit. `chonn_ops.network.direct.predicted_bytes` says what the factors take.

    Parameters
    ----------
    conductance : sequence of Tensor, shape (B, \*grid, C)
        :math:`g_{pq} \ge 0`, one tensor an axis: entry p joins node p and the next one along that
        axis. The last entry along an axis counts for periodic axes only. Zeros are no edges.
    leak : Tensor, shape (B, \*grid, C)
        Conductance :math:`l_p \ge 0` from each node to ground.
    periodic : bool or sequence of bool
        As in `kirchhoff_network`.
    backend : {"cpu", "torch", "triton"}, optional
        Default: the compiled kernel for tensors on the CPU, the Triton kernels for real ones on a
        CUDA device, else "torch".

    Returns
    -------
    Factorization
        Eliminated in float64 where any input is float64, else in float32.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype or device; a negative conductance or leak (checked on the CPU).

    References
    ----------
    W. K. Grassmann, M. I. Taksar, D. P. Heyman, "Regenerative analysis and steady state
    distributions for Markov chains", Operations Research 33 (1985): elimination without
    subtraction. A. George, "Nested dissection of a regular finite element mesh", SIAM J. Numer.
    Anal. 10 (1973).

    Examples
    --------
    Two nodes, 1 ohm between them, 1 ohm from the second to ground, 1 A into the first:

    >>> import torch
    >>> from chonn_ops import factorize
    >>> field = lambda *values: torch.tensor(values).reshape(1, 2, 1)
    >>> factor = factorize((field(1.0, 0.0),), field(0.0, 1.0))
    >>> factor.solve(field(1.0, 0.0)).flatten().tolist()
    [2.0, 1.0]
    """
    return factorize_for_densities(conductance, leak, periodic, backend)


@_uncompiled
def factorize_for_densities(
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Periodic,
    backend: str | None,
    volume: float = 1.0,
    current: Tensor | None = None,
) -> Factorization:
    """`factorize`, with a `solve` that takes sources per unit volume: see `currents_of`."""
    refuse_trace("factorize")
    check_field("leak", leak, NETWORK_DTYPES)
    closed = check_network(leak, conductance, periodic, "the leak", NETWORK_DTYPES)
    if not any_complex(leak, *conductance):
        refuse_negative(conductance, leak, closed)
    return Factorization(conductance, leak, closed, backend, volume, current)


def predicted_bytes(
    grid: Sequence[int], periodic: Sequence[bool], count: int, dtype: torch.dtype = torch.float32
) -> int:
    """What the factors of `count` networks take on the CPU, and what the elimination takes beside
    them, groups of lanes filled up.

    Parameters
    ----------
    grid : sequence of int
    periodic : sequence of bool
        One an axis.
    count : int
        Networks: batch times channels.
    dtype : torch.dtype
        float32, float64, complex64 or complex128.
    """
    # What the kernel lays its memory out by.
    layout = torch.get_num_threads(), os.environ.get("CHONN_NETWORK_ISA")
    return _predicted_bytes(tuple(grid), tuple(map(bool, periodic)), count, dtype, *layout)


@lru_cache(maxsize=256)
def _predicted_bytes(
    grid: tuple[int, ...], periodic: tuple[bool, ...], count: int, dtype: torch.dtype, *_: Any
) -> int:
    if dtype.is_complex:
        return alternating.bytes_of(_plan_of(grid, periodic), count, dtype)
    return cpu.bytes_of(cpu.plan_of(grid, periodic, count, dtype), count, dtype)


def flops(grid: Sequence[int], periodic: Sequence[bool]) -> float:
    """Multiply-adds, counted as two, of one network's elimination."""
    return 2 * _plan_of(grid, periodic).total_work
