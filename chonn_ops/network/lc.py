r"""`lc_step`: one implicit time step of networks of coils and capacitors, which conserve energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.boundary import BOUNDED, Words, is_periodic, per_face
from chonn_ops.checks import check_tensor, error
from chonn_ops.network.api import NetworkInfo, solve_checked
from chonn_ops.network.checks import (
    answer,
    check_arguments,
    check_field,
    check_like,
    check_not_negative,
    check_positive,
)
from chonn_ops.network.diffusion import Spacing, edge_conductance, face_area, spacings
from chonn_ops.network.edges import at_both_ends, drops, outflow, pad, used_edges
from chonn_ops.network.rc import check_step, like
from chonn_ops.network.residual import backward_error, widened

# Longest step in units of 1 / (omega eps), omega the highest frequency: the rounding of potentials
# changes the current of a coil by dt / L of it. Measured on lines, planes and volumes at this
# bound: up to 5e-4 of a state, in the energy's norm, and 1e-4 of its energy.
LONGEST = 0.01


class LCState(NamedTuple):
    """The state of an LC network.

    Attributes
    ----------
    voltage : Tensor, shape (B, \\*grid, C)
        Potential of each node.
    current : tuple of Tensor, one an axis
        Current of each edge towards the next node. The shape is (B, \\*grid, C), but with one entry
        an edge along the tensor's own axis: n - 1 with the boundary "neumann"; n with "periodic",
        where the last edge leads from the last node to the first; n + 1 with "dirichlet", where
        the first edge leads from ground to the first node and the last one to ground.
    """

    voltage: Tensor
    current: tuple[Tensor, ...]


def _edge_shape(field: Tensor, axis: int, faces: tuple[str, str]) -> tuple[int, ...]:
    """Shape of the edges along an axis, for nodes of the field's shape (B, \\*grid, C)."""
    shape = list(field.shape)
    if faces[0] != "periodic":
        shape[axis + 1] += faces.count("dirichlet") - 1
    return tuple(shape)


def _as_network(g: Tensor, axis: int, faces: tuple[str, str]) -> tuple[Tensor, list[Tensor]]:
    """Conductances in the layout of `kirchhoff_network`, and those of edges to ground."""
    if faces[0] == "periodic":
        return g, []
    dim, edges = axis + 1, g.shape[axis + 1]
    low, high = (word == "dirichlet" for word in faces)
    nodes, ground = edges + 1 - low - high, []
    if low:
        ground.append(pad(g.narrow(dim, 0, 1), axis, 0, nodes - 1))
    if high:
        ground.append(pad(g.narrow(dim, edges - 1, 1), axis, nodes - 1, 0))
    # The last entry of the layout is not an edge, so the edge to ground may stay in its place.
    g = g.narrow(dim, int(low), edges - low)
    return (g if high else pad(g, axis, 0, 1)), ground


def inductance_of(g: Tensor) -> Tensor:
    """1 / g, or infinity with finite gradients where g is 0."""
    some = g > 0
    return torch.where(some, torch.where(some, g, 1).reciprocal(), torch.inf)


def zero_current(voltage: Tensor, boundary: Words = "neumann") -> LCState:
    """A state without currents.

    Parameters
    ----------
    voltage : Tensor, shape (B, \\*grid, C)
    boundary : {"neumann", "dirichlet", "periodic"} or a sequence
        As in `kirchhoff_network`.

    Raises
    ------
    TypeError, ValueError
        For another voltage than `lc_step` takes, or an unknown boundary.
    """
    check_field("voltage", voltage)
    faces = per_face(boundary, voltage.dim() - 2, BOUNDED)
    shapes = [_edge_shape(voltage, axis, pair) for axis, pair in enumerate(faces)]
    return LCState(voltage, tuple(voltage.new_zeros(shape) for shape in shapes))


def edge_inductance(
    conductivity: Tensor, spacing: Spacing = 1.0, *, boundary: Words = "neumann"
) -> tuple[Tensor, ...]:
    r"""Inductances of the edges of a grid of cells, for `lc_step`: 1 over `edge_conductance`.

    Parameters
    ----------
    conductivity : Tensor, shape (B, \*grid, C)
        k > 0 of each cell, 1 to 3 grid axes: c times the square of the waves' speed. 0 isolates.
    spacing : float or sequence of float, one an axis
        Distance of the nodes > 0.
    boundary : {"neumann", "dirichlet", "periodic"} or a sequence
        As in `kirchhoff_network`. With "dirichlet" an edge of half a cell joins each node at the
        face and ground.

    Returns
    -------
    tuple of Tensor, one an axis
        One entry an edge, see `LCState`.

    Raises
    ------
    TypeError, ValueError
        As `edge_conductance`; also for other boundaries.
    """
    check_field("conductivity", conductivity)
    faces = per_face(boundary, conductivity.dim() - 2, BOUNDED)
    steps = spacings(spacing, len(faces))
    found = []
    for axis, (g, (low, high)) in enumerate(
        zip(edge_conductance(conductivity, spacing, boundary=faces), faces, strict=True)
    ):
        if low != "periodic":
            dim, n = axis + 1, g.shape[axis + 1]
            scale = 2 * face_area(steps, axis) / steps[axis]
            parts = [g.narrow(dim, 0, n - 1)]
            if low == "dirichlet":
                parts.insert(0, scale * conductivity.narrow(dim, 0, 1))
            if high == "dirichlet":
                parts.append(scale * conductivity.narrow(dim, n - 1, 1))
            g = torch.cat(parts, dim)
        found.append(inductance_of(g))
    return tuple(found)


def _count(values: Any) -> str:
    return f"{len(values)}" if isinstance(values, (tuple, list)) else type(values).__name__


def _check_state(state: Any, faces: Sequence[tuple[str, str]]) -> tuple[Tensor, tuple[Tensor, ...]]:
    voltage, current = state
    if not isinstance(current, (tuple, list)) or len(current) != len(faces):
        raise error("state", f"currents of {len(faces)} axes", f"{len(current)}")
    for axis, (i, pair) in enumerate(zip(current, faces, strict=True)):
        check_tensor(f"current[{axis}]", i)
        shape = _edge_shape(voltage, axis, pair)
        if i.shape != shape:
            expected = f"shape {shape} with boundary {pair!r}"
            raise error(f"current[{axis}]", expected, tuple(i.shape))
    return voltage, tuple(current)


def _check_length(
    dt: float,
    storage: Tensor,
    edges: Sequence[Tensor],
    grounds: Sequence[Tensor],
    periodic: Sequence[bool],
    dtype: torch.dtype,
) -> None:
    """Refuse a step in which rounding grows to a part of the state, where values may be read."""

    def largest() -> float:
        coils = sum((ground.detach() for ground in grounds), torch.zeros_like(storage))
        for axis, (g, closed) in enumerate(zip(edges, periodic, strict=True)):
            closed = closed and g.shape[axis + 1] > 1
            coils = coils + at_both_ends(used_edges(g, axis, closed), axis, closed)
        # Gershgorin: (omega dt)^2 <= 2 dt^2 sum(1 / L) / C.
        return float((8 * coils / storage).amax().sqrt())

    angle = answer(largest, storage) if storage.numel() else None
    most = LONGEST / torch.finfo(dtype).eps
    if (
        angle is not None and angle > most
    ):  # a NaN passes, and makes the potentials of its own network NaN
        wider = "" if dtype == torch.float64 else ", or float64"
        raise error(
            "dt",
            f"at most {dt * most / angle:.3g} = {LONGEST} / (omega eps), with omega = "
            f"max sqrt(2 sum(1 / L) / C) = {angle / dt:.3g} and the eps of {dtype} (beyond it "
            f"rounding adds energy; to go on: shorter steps{wider})",
            f"{dt:g}",
        )


@overload
def lc_step(
    state: LCState,
    inductance: Sequence[Tensor | float],
    capacitance: Tensor | float,
    dt: float,
    source: Tensor | None = None,
    *,
    leak: Tensor | None = None,
    boundary: Words = "neumann",
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
    boundary: Words = "neumann",
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
    boundary: Words = "neumann",
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: bool = False,
    backend: str | None = None,
) -> LCState | tuple[LCState, NetworkInfo]:
    r"""Advance the voltages and currents of LC networks, waves on a grid, by `dt`.

    .. math::

        C_p \dot v_p + l_p v_p = s_p - \sum_q i_{pq}, \qquad
        L_{pq} \dot i_{pq} = v_p - v_q

    The implicit midpoint rule is one solve of a resistor network. With m the voltages at the
    midpoint of the step and D m their drops along the edges, it is

    .. math::

        \Bigl(\frac{2C}{dt} + l + D^T \frac{dt}{2L} D\Bigr) m = \frac{2C}{dt} v + s - D^T i,
        \qquad v' = 2m - v, \quad i' = i + \frac{dt}{L} D m

    In this network a coil is a conductance :math:`dt / 2L` and a source of its current. The rule is
    of second order and stable for any `dt`. Without source and leak it conserves the energy
    :math:`\tfrac12 \sum C v^2 + \tfrac12 \sum L i^2` (`lc_energy`) up to rounding, for any
    tolerance, because the residual of conjugate gradients is orthogonal to m. A leak lowers it.
    A step changes the energy by about :math:`10^{-2} \epsilon\, \omega\, dt` of it, with
    :math:`\omega^2 = \max_p 2 C_p^{-1} \sum_q L_{pq}^{-1}` above the highest frequency squared and
    :math:`\epsilon` the rounding unit. Longer steps than :math:`0.01 / (\epsilon\, \omega)`
    (:math:`8 \cdot 10^4 / \omega` in float32, :math:`4 \cdot 10^{13} / \omega` in float64) are
    refused.

    With C = c V and the inductances of `edge_inductance` the network discretises
    :math:`c \ddot v = \nabla\cdot(k \nabla v)`, waves of the speed :math:`\sqrt{k / c}`. For linear
    shallow water of depth H, v is the height of the surface, i the flow through the faces, c = 1
    and k = g H.

    Parameters
    ----------
    state : LCState, or a tuple (voltage, currents)
        Before the step. See `zero_current` for one without currents.
    inductance : sequence of float or Tensor, one an axis
        L > 0 of every edge: a number, or a tensor that expands to the shape of the axis' currents,
        see `LCState`. An infinite L is no edge.
    capacitance : float or Tensor that expands to the shape of the voltage
        C > 0 of every node; the unit of C times that of L is the unit of `dt` squared.
    dt : float
        Length of the step > 0.
    source : Tensor, shape (B, \*grid, C), optional
        Current into each node at the midpoint of the step; none by default.
    leak : Tensor, shape (B, \*grid, C), optional
        Conductance from each node to ground >= 0, which damps; none by default.
    boundary : {"neumann", "dirichlet", "periodic"} or a sequence
        As in `kirchhoff_network`. "dirichlet" has coils to ground at the face.
    tol, max_iterations, backend
        As in `kirchhoff_network`.
    return_info : bool
        Also return iterations and backward error of the solves, the latter from the potentials
        that are returned.

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
        Wrong shape, dtype or device, an unknown boundary, `dt`, `tol` or `max_iterations` out
        of range; on the CPU also for an inductance or capacitance not above 0, a negative leak, and
        a step longer than its rounding allows.

    References
    ----------
    E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration" (2006), section IV.2: the
    midpoint rule keeps quadratic invariants.

    Examples
    --------
    A coil between two capacitors oscillates; after half a period the second one has the charge:

    >>> import math, torch
    >>> from chonn_ops import lc_step, zero_current
    >>> state = zero_current(torch.tensor([1.0, 0.0]).reshape(1, 2, 1))
    >>> steps = 100
    >>> for _ in range(steps):
    ...     state = lc_step(state, (2.0,), 1.0, math.pi / steps)
    >>> [round(abs(v), 3) for v in state.voltage.flatten().tolist()]
    [0.0, 1.0]
    """
    check_step(dt)
    if not isinstance(state, tuple) or len(state) != 2:
        raise error("state", "an LCState (voltage, currents)", type(state).__name__)
    check_field("voltage", state[0])
    faces = per_face(boundary, state[0].dim() - 2, BOUNDED)
    v, current = _check_state(state, faces)
    if not isinstance(inductance, (tuple, list)) or len(inductance) != len(faces):
        raise error("inductance", f"a tuple of {len(faces)}, one an axis", _count(inductance))
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
    half, edges, grounds = [], [], []
    for axis, (L, i, pair) in enumerate(zip(inductance, current, faces, strict=True)):
        L = like(f"inductance[{axis}]", L, i)
        check_positive(f"inductance[{axis}]", L)
        g = (dt / 2) / L
        edge, ground = _as_network(g, axis, pair)
        total = total + sum(ground) if ground else total
        fed = fed - outflow(i.to(fed.dtype), axis, pair)
        half.append(g)
        edges.append(edge)
        grounds += ground
    closed = check_arguments(fed, edges, total, is_periodic(faces), tol, max_iterations)
    _check_length(dt, storage, edges, grounds, closed, compute_dtype(fed, total, *edges))
    network = (fed, edges, total, closed)
    m, iterations, _ = solve_checked(*network, tol, max_iterations, backend)
    after = LCState(
        (2 * m - v).to(v.dtype),
        tuple(
            (i + 2 * g * drops(m, axis, pair)).to(i.dtype)
            for axis, (i, g, pair) in enumerate(zip(current, half, faces, strict=True))
        ),
    )
    if not return_info:
        return after
    solved = (widened(after.voltage) + widened(v)) / 2
    return after, NetworkInfo(iterations, backward_error(solved, *network))


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
