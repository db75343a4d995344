"""`rc_step`: one implicit time step of networks with a capacitor at every node."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from chonn_ops.checks import (
    check_above,
    check_choice,
    check_field,
    check_like,
    check_not_negative,
    error,
    expanded,
)
from chonn_ops.network.circuit import Circuit, solve_checked
from chonn_ops.network.methods import AUTO, Solver

# The factor of C / dt in the network that a step solves. Its potentials are those at the end of the
# step for Euler's method, and those at its midpoint for the midpoint rule.
METHODS = {"euler": 1.0, "midpoint": 2.0}


def check_step(dt: float) -> None:
    """Require a finite number > 0, and no Tensor, because reading its value may stall a GPU."""
    check_above(0, dt=dt)


def check_circuit(circuit: Any, name: str, v: Tensor) -> None:
    """Require a circuit whose current is one real number a node, and its potentials `name`."""
    if not isinstance(circuit, Circuit):
        raise TypeError(f"circuit: expected a Circuit, got {type(circuit).__name__}")
    current, leak = circuit.current, circuit.leak
    if current is not None and (current.is_complex() or current.dim() > leak.dim()):
        expected = f"one real current or held potential for each node, {tuple(leak.shape)}"
        raise error("circuit", expected, f"{current.dtype}, {tuple(current.shape)}")
    check_like(name, v, leak, "the circuit")


def like(name: str, value: Tensor | float, field: Tensor) -> Tensor:
    """A number or a tensor as a tensor of the field's shape, in float32 at least."""
    wide = torch.promote_types(field.dtype, torch.float32)
    return expanded(name, value, field, "the potentials", wide)


def midpoint_end(m: Tensor, v: Tensor, storage: Tensor) -> Tensor:
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
    check_choice("method", method, METHODS)
    check_step(dt)
    check_field("v", v)
    check_circuit(circuit, "v", v)
    storage = like("capacitance", capacitance, v)
    check_not_negative("leak", circuit.leak)
    check_not_negative("capacitance", storage)
    storage = storage * (circuit.volume * METHODS[method] / dt)
    current = storage * v
    if source is not None:
        check_like("source", source, v)
        current = current + circuit.source(source)
    elif circuit.current is not None:
        current = current + circuit.current
    total = circuit.leak + storage
    network = (current, circuit.conductance, total, circuit.layout)
    after = solve_checked(*network, solver)[0]
    return (midpoint_end(after, v, storage) if method == "midpoint" else after).to(v.dtype)
