r"""`lc_step`: networks of coils and capacitors, which carry waves and keep their energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from chonn_ops import _ends
from chonn_ops.network._checks import (
    BOUNDED_ENDS,
    check_arguments,
    check_field,
    check_like,
    check_not_negative,
    check_tensor,
    error,
    readable,
)
from chonn_ops.network._edges import drops, outflow
from chonn_ops.network.api import NetworkInfo
from chonn_ops.network.in_time.coils import (
    LCState,
    as_network,
    edge_shape,
)
from chonn_ops.network.in_time.rc import check_step, like, solve_passively


def _check_state(state: Any, words: Sequence[str]) -> tuple[Tensor, tuple[Tensor, ...]]:
    voltage, current = state
    if not isinstance(current, (tuple, list)) or len(current) != len(words):
        raise error("state", f"currents of {len(words)} axes", f"{len(current)}")
    for axis, (i, word) in enumerate(zip(current, words, strict=True)):
        check_tensor(f"current[{axis}]", i)
        shape = edge_shape(voltage, axis, word)
        if i.shape != shape:
            raise error(f"current[{axis}]", f"shape {shape} with ends {word!r}", tuple(i.shape))
    return voltage, tuple(current)


@overload
def lc_step(
    state: LCState,
    inductance: Sequence[Tensor | float],
    capacitance: Tensor | float,
    dt: float,
    source: Tensor | None = None,
    *,
    leak: Tensor | None = None,
    ends: str | Sequence[str] = "open",
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: Literal[False] = False,
    backend: str | None = None,
) -> LCState: ...


@overload
def lc_step(
    state: LCState,
    inductance: Sequence[Tensor | float],
    capacitance: Tensor | float,
    dt: float,
    source: Tensor | None = None,
    *,
    leak: Tensor | None = None,
    ends: str | Sequence[str] = "open",
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: Literal[True],
    backend: str | None = None,
) -> tuple[LCState, NetworkInfo]: ...


def lc_step(
    state: LCState,
    inductance: Sequence[Tensor | float],
    capacitance: Tensor | float,
    dt: float,
    source: Tensor | None = None,
    *,
    leak: Tensor | None = None,
    ends: str | Sequence[str] = "open",
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: bool = False,
    backend: str | None = None,
) -> LCState | tuple[LCState, NetworkInfo]:
    r"""Voltages and currents of LC networks a time `dt` later: waves on a grid.

    .. math::

        C_p \dot v_p + l_p v_p = s_p - \sum_q i_{pq}, \qquad
        L_{pq} \dot i_{pq} = v_p - v_q

    by the implicit midpoint rule, which is one solve of a resistor network: with m the voltages in
    the middle of the step and D m their drops along the edges,

    .. math::

        \Bigl(\frac{2C}{dt} + l + D^T \frac{dt}{2L} D\Bigr) m = \frac{2C}{dt} v + s - D^T i,
        \qquad v' = 2m - v, \quad i' = i + \frac{dt}{L} D m

    so that a coil over a step is a conductance :math:`dt / 2L` beside its current. Of second order
    and stable for any `dt`. Without source and leak the energy
    :math:`\tfrac12 \sum C v^2 + \tfrac12 \sum L i^2` (`lc_energy`) stays, whatever the step and the
    tolerance, up to rounding: the residual at which conjugate gradients stop is orthogonal to m. A
    leak only takes from it.

    In the continuum this is :math:`c \ddot v = \nabla\cdot(k \nabla v)` with C = c V and L those of
    `edge_inductance`; waves of the speed :math:`\sqrt{k / c}`. Linear shallow water of depth H is
    v the surface's height, i the flow through the faces, c = 1 and k = g H.

    Parameters
    ----------
    state : LCState, or a tuple (voltage, currents)
        Before the step. See `zero_current` for one without currents.
    inductance : sequence of float or Tensor, one an axis
        L > 0 of every edge: each a number or expands to the shape of the axis' currents, see
        `LCState`. Infinite: no edge.
    capacitance : float or Tensor that expands to the shape of the voltage
        C > 0 of every node, with L in the unit of time squared.
    dt : float
        Length of the step > 0.
    source : Tensor, shape (B, \*grid, C), optional
        Current into each node in the middle of the step; none by default.
    leak : Tensor, shape (B, \*grid, C), optional
        Conductance from each node to ground >= 0, which damps; none by default.
    ends : {"open", "short", "ring"} or a sequence of them, one an axis
        "open": no current through the ends (a wall: :math:`\partial v = 0`); "short": coils to
        ground (v = 0 there); "ring": periodic.
    tol, max_iterations, backend
        As in `kirchhoff_network`.
    return_info : bool
        Also return iterations and residual of each network.

    Returns
    -------
    state : LCState
        After the step, in the dtypes of the state before.
    info : NetworkInfo
        Only with `return_info`.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype or device, unknown ends, `dt`, `tol` or `max_iterations` out of range; on
        the CPU also for an inductance or capacitance not above 0 and a negative leak.

    References
    ----------
    E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration" (2006), section IV.2: the
    midpoint rule keeps quadratic invariants.

    Examples
    --------
    A coil between two capacitors swings; after half a period the charge is at the other one:

    >>> import math, torch
    >>> from chonn_ops import lc_step
    >>> from chonn_ops.network import zero_current
    >>> state = zero_current(torch.tensor([1.0, 0.0]).reshape(1, 2, 1))
    >>> steps = 100
    >>> for _ in range(steps):
    ...     state = lc_step(state, (2.0,), 1.0, math.pi / steps)
    >>> [round(abs(v), 3) for v in state.voltage.flatten().tolist()]
    [0.0, 1.0]
    """
    check_step(dt)
    check_field("voltage", state[0])
    words = _ends.of_axes(ends, state[0].dim() - 2, BOUNDED_ENDS)
    v, current = _check_state(state, words)
    if len(inductance) != len(words):
        raise error("inductance", f"{len(words)} of them, one an axis", len(inductance))
    storage = like("capacitance", capacitance, v)
    check_positive("capacitance", storage)
    storage = storage * (2 / dt)
    total, fed = storage, storage * v
    if source is not None:
        check_like("source", source, v)
        fed = fed + source
    if leak is not None:
        check_like("leak", leak, v)
        check_not_negative("leak", leak)
        total = total + leak
    half, edges = [], []
    for axis, (L, i, word) in enumerate(zip(inductance, current, words, strict=True)):
        L = like(f"inductance[{axis}]", L, i)
        check_positive(f"inductance[{axis}]", L)
        g = (dt / 2) / L
        edge, ground = as_network(g, axis, word)
        total = total if ground is None else total + ground
        fed = fed - outflow(i.to(fed.dtype), axis, word)
        half.append(g)
        edges.append(edge)
    rest = ["ring" if word == "ring" else "open" for word in words]
    check_arguments(fed, edges, total, rest, None, tol, max_iterations)
    m, iterations, residual = solve_passively(
        fed, edges, total, rest, None, tol, max_iterations, backend
    )
    after = LCState(
        (2 * m - v).to(v.dtype),
        tuple(
            (i + 2 * g * drops(m, axis, word)).to(i.dtype)
            for axis, (i, g, word) in enumerate(zip(current, half, words, strict=True))
        ),
    )
    return (after, NetworkInfo(iterations, residual)) if return_info else after


def check_positive(name: str, tensor: Tensor) -> None:
    """Where it can be read; a NaN is no refusal."""
    if readable(tensor) and tensor.numel() and tensor.amin() <= 0:
        raise error(name, "> 0 everywhere", f"minimum {tensor.amin().item():g}")


def lc_energy(
    state: LCState, inductance: Sequence[Tensor | float], capacitance: Tensor | float
) -> Tensor:
    r"""Energy of LC networks, :math:`\tfrac12 \sum C v^2 + \tfrac12 \sum L i^2`.

    Parameters
    ----------
    state, inductance, capacitance
        As in `lc_step`.

    Returns
    -------
    Tensor, shape (B, C)
        In the unit of capacitance times voltage squared, in float32 at least.
    """
    v, current = state
    energy = (like("capacitance", capacitance, v) * v.square()).flatten(1, -2).sum(1)
    for axis, (L, i) in enumerate(zip(inductance, current, strict=True)):
        L = like(f"inductance[{axis}]", L, i)
        energy = energy + torch.where(torch.isinf(L), 0, L * i.square()).flatten(1, -2).sum(1)
    return energy / 2
