"""Implicit steps in time: `rc_step` of resistors and capacitors, and `lc_step` of coils and
capacitors, which conserve energy."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.checks import (
    answer,
    check_above,
    check_choice,
    check_field,
    check_like,
    check_not_negative,
    check_positive,
    error,
    expanded,
)
from chonn_ops.network.circuit import Circuit, solve_checked
from chonn_ops.network.layout import Grid, Layout
from chonn_ops.network.solve.methods import AUTO, Solver

# The factor of C / dt in the network that a step solves. Its potentials are those at the end of the
# step for Euler's method, and those at its midpoint for the midpoint rule.
_METHODS = {"euler": 1.0, "midpoint": 2.0}


def _check_circuit(circuit: Any, name: str, v: Tensor) -> None:
    """Require a circuit whose current is one real number a node, and its potentials `name`."""
    if not isinstance(circuit, Circuit):
        raise TypeError(f"circuit: expected a Circuit, got {type(circuit).__name__}")
    current, leak = circuit.current, circuit.leak
    if current is not None and (current.is_complex() or current.dim() > leak.dim()):
        expected = f"one real current or held potential for each node, {tuple(leak.shape)}"
        raise error("circuit", expected, f"{current.dtype}, {tuple(current.shape)}")
    check_like(name, v, leak, "the circuit")


def _like(name: str, value: Tensor | float, field: Tensor) -> Tensor:
    """A number or a tensor as a tensor of the field's shape, in float32 at least."""
    wide = torch.promote_types(field.dtype, torch.float32)
    return expanded(name, value, field, "the potentials", wide)


def _midpoint_end(m: Tensor, v: Tensor, storage: Tensor) -> Tensor:
    """Potentials at the end of a step from v whose midpoint has the potentials m. Those of nodes
    that store nothing do not depend on v: at the end, too, they are m."""
    return torch.where(storage == 0, m, 2 * m - v)


def rc_step(
    v: Tensor,
    circuit: Circuit,
    capacitance: Tensor | float,
    dt: float,
    source: Tensor | None = None,
    *,
    method: str = "euler",
    solver: Solver = AUTO,
) -> Tensor:
    r"""Advance the potentials of RC networks, circuits with a capacitor at every node, by `dt`.

    .. math::

        C_p \dot v_p + \sum_q g_{pq} (v_p - v_q) + l_p v_p = s_p

    with C = c V and s = f V + i, where V is the circuit's volume of a cell and i the current that
    comes in through its walls. With a circuit of `diffusion` this is
    :math:`c \, \dot v = \nabla\cdot(k \nabla v) - a v + f` with the absorption a.

    One implicit step is one solve of a resistor network, in which each capacitor is a conductance
    :math:`C_p / dt` to ground and a current source :math:`C_p v_p / dt`.

    ==========  ============================================================  =======  ============
    method      step                                                          order    stable
    ==========  ============================================================  =======  ============
    euler       :math:`(C/dt + A)\, v' = C/dt\, v + s`                        1        for any dt;
                                                                                       damps all
    midpoint    :math:`(2C/dt + A)\, m = 2C/dt\, v + s,\; v' = 2m - v`        2        for any dt;
                                                                                       long steps
                                                                                       oscillate
    ==========  ============================================================  =======  ============

    Here A is the matrix of the circuit. Without sources the energy
    :math:`\tfrac12 \sum_p C_p v_p^2` does not rise, except by rounding, for any conductances, step
    and tolerance: the residual of converged conjugate gradients is orthogonal to the potentials,
    so it adds no energy. Up to `tol`, "euler" keeps all potentials between 0 and the extremes of
    those before the step, and only leaks and the boundary change the charge
    :math:`\sum_p C_p v_p`. In float32 this needs :math:`g\,dt / C` below :math:`10^7`, except on
    lines.

    Parameters
    ----------
    v : Tensor, shape (B, \*grid, C)
        Potentials before the step, 1 to 3 grid axes.
    circuit : Circuit
        Edges and leaks, in the shape of `v`. The leak may be 0 everywhere, as the capacitors lead
        to ground.
    capacitance : float or Tensor that expands to the shape of `v`
        c >= 0 per unit volume, in the unit of conductance times that of `dt`. A node with c = 0 has
        no state: its potential follows from those of its neighbours, with "midpoint" from those at
        the middle of the step.
    dt : float
        Length of the step > 0.
    source : Tensor, shape (B, \*grid, C), optional
        f per unit volume during the step; none by default.
    method : {"euler", "midpoint"}
        As above.
    solver : Auto, Direct or Iterative
        As in `Circuit.solve`.

    Returns
    -------
    v : Tensor, shape (B, \*grid, C)
        Potentials after the step, in the dtype of `v`.

    Raises
    ------
    TypeError, ValueError
        As `Circuit.solve`; also for a `dt` not above 0, an unknown `method`, and on the CPU for
        a negative capacitance.

    References
    ----------
    L. Nagel, "SPICE2" (1975), companion models of capacitors; E. Hairer, G. Wanner, "Solving
    Ordinary Differential Equations II" (1996), section IV.3.

    Examples
    --------
    A capacitor of 1 F at 1 V discharges through 1 S for 1 s:

    >>> import torch
    >>> from chonn_ops import Circuit, rc_step
    >>> one = torch.ones(1, 1, 1)
    >>> rc_step(one, Circuit((one,), one), 1.0, 1.0).item()
    0.5
    """
    check_choice("method", method, _METHODS)
    check_above(0, dt=dt)  # no Tensor, because reading its value may stall a GPU
    check_field("v", v)
    _check_circuit(circuit, "v", v)
    storage = _like("capacitance", capacitance, v)
    check_not_negative("capacitance", storage)
    storage = storage * (circuit.volume * _METHODS[method] / dt)
    if source is not None:
        check_like("source", source, v)
    after = solve_checked(*companion(v, circuit, storage, source), solver)[0]
    return (_midpoint_end(after, v, storage) if method == "midpoint" else after).to(v.dtype)


def companion(
    v: Tensor, circuit: Circuit, storage: Tensor, source: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...], Tensor, Layout]:
    """The network whose potentials end an implicit step from v: each capacitor is a conductance to
    ground, `storage`, and a current. Source, conductance, leak and layout, as `solve_checked` has
    them; the fields need no checks."""
    current = storage * v
    if source is not None:
        current = current + circuit.source(source)
    elif circuit.current is not None:
        current = current + circuit.current
    return current, circuit.conductance, circuit.leak + storage, circuit.layout


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
    current : tuple of Tensor, shape (B, \\*grid, C), one an axis
        Entry p is the current from node p to the next one along that axis. The last entry along an
        axis counts where it is periodic only. On a graph one, (B, E, C): the current from each
        edge's first node to its second.
    ground : Tensor, shape (B, \\*grid, C)
        Current from each node to ground, through walls and absorption.
    """

    voltage: Tensor
    current: tuple[Tensor, ...]
    ground: Tensor

    @classmethod
    def at_rest(cls, voltage: Tensor, on: Layout | None = None) -> LCState:
        """The state with this voltage (B, \\*grid, C) and without currents, of a circuit on a grid
        or on another layout."""
        check_field("voltage", voltage)
        layout = Grid(voltage.shape[1:-1]) if on is None else on
        shape = (voltage.shape[0], *layout.edge_shape, voltage.shape[-1])
        # Tensors of their own, which callers may write to.
        edges = tuple(voltage.new_zeros(shape) for _ in layout.shape)
        return cls(voltage, edges, torch.zeros_like(voltage))


def _check_state(state: Any, circuit: Any) -> LCState:
    if not isinstance(state, tuple) or len(state) != 3:
        raise error("state", "an LCState (voltage, current, ground)", type(state).__name__)
    voltage, current, ground = state
    check_field("voltage", voltage)
    _check_circuit(circuit, "voltage", voltage)
    axes = len(circuit.conductance)
    if not isinstance(current, (tuple, list)) or len(current) != axes:
        count = len(current) if isinstance(current, (tuple, list)) else type(current).__name__
        raise error("state", f"currents of {axes} axes", count)
    for axis, i in enumerate(current):
        check_like(f"current[{axis}]", i, circuit.conductance[axis], "the voltage")
    check_like("ground", ground, voltage, "the voltage")
    return LCState(voltage, tuple(current), ground)


def _check_length(dt: float, storage: Tensor, circuit: Circuit, dtype: torch.dtype) -> None:
    """Refuse a step in which rounding grows to a part of the state, where values may be read."""

    def largest() -> float:
        edges = circuit.layout.edges([g.detach() for g in circuit.conductance])
        coils = circuit.layout.sums_at_nodes([g.to(storage.dtype) for g in edges])
        # A node that is held has neither edges nor a capacitor, and does not swing.
        swings = (coils != 0) | (storage != 0)
        # Gershgorin: (omega dt)^2 <= 2 dt^2 sum(1 / L) / C.
        squares = 8 * (dt / 2) * (coils + circuit.leak.detach()) / storage
        return float(torch.where(swings, squares, 0).amax().sqrt())

    angle = answer(largest, storage) if storage.numel() else None
    most = LONGEST / torch.finfo(dtype).eps
    # A NaN passes, and makes the potentials of its own network NaN.
    if angle is not None and angle > most:
        wider = "" if dtype == torch.float64 else ", or float64"
        raise error(
            "dt",
            f"at most {dt * most / angle:.3g} = {LONGEST} / (omega eps), with omega = "
            f"max sqrt(2 sum(1 / L) / C) = {angle / dt:.3g} and the eps of {dtype} (beyond it "
            f"rounding adds energy; to go on: shorter steps{wider})",
            f"{dt:g}",
        )


def lc_step(
    state: LCState,
    circuit: Circuit,
    capacitance: Tensor | float,
    dt: float,
    source: Tensor | None = None,
    *,
    damping: Tensor | float = 0.0,
    solver: Solver = AUTO,
) -> LCState:
    r"""Advance the voltages and currents of LC networks, waves on a grid, by `dt`.

    .. math::

        C_p \dot v_p + D_p v_p = s_p - \sum_q i_{pq} - i_p, \qquad
        \dot i_{pq} = g_{pq} (v_p - v_q), \qquad
        \dot i_p = l_p v_p - b_p

    The circuit's edges g and leaks l are coils, of the inductances 1 / g and 1 / l; b is the
    current that comes in through its walls. C, D and s are `capacitance`, `damping` and `source`
    times the circuit's volume of a cell. With a circuit of `diffusion` the network discretises
    :math:`c \ddot v + d \dot v + a v = \nabla\cdot(k \nabla v) + \dot f`, waves of the speed
    :math:`\sqrt{k / c}`. For linear shallow water of depth H, v is the height of the surface, i
    the flow through the faces, c = 1 and k = g H.

    The implicit midpoint rule is one solve of a resistor network. With A the matrix of the circuit,
    I the currents i out of each node, m the voltages at the midpoint of the step, it is

    .. math::

        \Bigl(\frac{2C}{dt} + D + \frac{dt}{2} A\Bigr) m
        = \frac{2C}{dt} v + s - I + \frac{dt}{2} b, \qquad
        v' = 2m - v, \quad i_{pq}' = i_{pq} + dt\, g_{pq} (m_p - m_q), \quad
        i_p' = i_p + dt\, (l_p m_p - b_p)

    The rule is of second order and stable for any `dt`. Without source, damping and b it conserves
    the energy :math:`\tfrac12 \sum C v^2 + \tfrac12 \sum L i^2` (`lc_energy`) up to rounding,
    for any tolerance, because the residual of conjugate gradients is orthogonal to m. Damping
    lowers it. A step changes the energy by about :math:`10^{-2} \epsilon\, \omega\, dt` of it,
    with :math:`\omega^2 = \max_p 2 C_p^{-1} \sum_q L_{pq}^{-1}` above the highest frequency
    squared and :math:`\epsilon` the rounding unit. Longer steps than
    :math:`0.01 / (\epsilon\, \omega)` (:math:`8 \cdot 10^4 / \omega` in float32,
    :math:`4 \cdot 10^{13} / \omega` in float64) are refused.

    Parameters
    ----------
    state : LCState
        Before the step. `LCState.at_rest` makes one without currents.
    circuit : Circuit
        Edges and leaks in the shape of the voltage.
    capacitance : float or Tensor that expands to the shape of the voltage
        c > 0 per unit volume; its unit over that of conductance is the unit of `dt` squared.
    dt : float
        Length of the step > 0.
    source : Tensor, shape (B, \*grid, C), optional
        f per unit volume at the midpoint of the step; none by default.
    damping : float or Tensor that expands to the shape of the voltage
        d >= 0 per unit volume: a resistor from each node to ground.
    solver : Auto, Direct or Iterative
        As in `Circuit.solve`.

    Returns
    -------
    state : LCState
        After the step, in the dtypes of the state before.

    Raises
    ------
    TypeError
        Something else than a Tensor or a Circuit.
    ValueError
        Wrong shape, dtype or device, a `dt` that is not above 0; on the CPU also for a capacitance
        not above 0, a negative damping, and a step longer than its rounding allows.

    References
    ----------
    E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration" (2006), section IV.2: the
    midpoint rule keeps quadratic invariants.

    Examples
    --------
    A coil between two capacitors oscillates; after half a period the second one has the charge:

    >>> import math, torch
    >>> from chonn_ops import Circuit, LCState, lc_step
    >>> field = lambda *values: torch.tensor(values).reshape(1, 2, 1)
    >>> circuit = Circuit((field(0.5, 0.0),), field(0.0, 0.0))  # a coil of 2 H
    >>> state = LCState.at_rest(field(1.0, 0.0))
    >>> steps = 100
    >>> for _ in range(steps):
    ...     state = lc_step(state, circuit, 1.0, math.pi / steps)
    >>> [round(abs(v), 3) for v in state.voltage.flatten().tolist()]
    [0.0, 1.0]
    """
    check_above(0, dt=dt)
    v, current, ground = _check_state(state, circuit)
    layout = circuit.layout
    storage, loss = _like("capacitance", capacitance, v), _like("damping", damping, v)
    check_positive("capacitance", storage)
    check_not_negative("damping", loss)
    storage = storage * (circuit.volume * 2 / dt)
    _check_length(dt, storage, circuit, compute_dtype(v, circuit.leak, *circuit.conductance))
    leak, *conductance = (  # currents and their sums may be beyond half precision
        x.to(torch.promote_types(x.dtype, storage.dtype))
        for x in (circuit.leak, *circuit.conductance)
    )
    total = storage + loss * circuit.volume + (dt / 2) * leak
    fed = storage * v - ground
    if source is not None:
        check_like("source", source, v)
        fed = fed + source.to(fed.dtype) * circuit.volume
    if circuit.current is not None:
        fed = fed + (dt / 2) * circuit.current
    fed = fed - layout.outflow(layout.edges([i.to(fed.dtype) for i in current]))
    edges = [(dt / 2) * g for g in conductance]
    m = solve_checked(fed, edges, total, layout, solver)[0]
    to_ground = leak * m
    if circuit.current is not None:
        to_ground = to_ground - circuit.current
    axes = zip(current, layout.edges(edges), layout.drops(m), strict=True)
    changed = (i + 2 * g * drop for i, g, drop in axes)
    return LCState(
        _midpoint_end(m, v, storage).to(v.dtype),
        tuple(after.to(before.dtype) for after, before in zip(changed, current, strict=True)),
        (ground + dt * to_ground).to(ground.dtype),
    )


def lc_energy(state: LCState, circuit: Circuit, capacitance: Tensor | float) -> Tensor:
    r"""Energy of LC networks, :math:`\tfrac12 \sum C v^2 + \tfrac12 \sum L i^2`.

    Parameters
    ----------
    state, circuit, capacitance
        As in `lc_step`.

    Returns
    -------
    Tensor, shape (B, C)
        In the unit of capacitance times voltage squared, in float32 at least.
    """
    v, current, ground = _check_state(state, circuit)
    storage = _like("capacitance", capacitance, v)
    check_positive("capacitance", storage)
    energy = (storage * circuit.volume * v.to(storage.dtype).square()).flatten(1, -2).sum(1)
    entries = circuit.layout.entries
    coils = zip(entries(circuit.conductance), entries(current), strict=True)
    for g, i in ((circuit.leak, ground), *coils):
        stored = torch.where(g != 0, i.to(storage.dtype).square() / torch.where(g != 0, g, 1), 0)
        energy = energy + stored.flatten(1, -2).sum(1)
    return energy / 2
