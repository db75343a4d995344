r"""The paper's cell with fixed coefficients, and cells in series, as systems of `scipy.signal`.

A cell is a capacitor C with a leak to ground and a coupling, which the input drives:
:math:`C \dot v = -(G_{leak} + G_p) v + B_p u`, :math:`y = c_o v + d_o u`. `rc_cell` returns it,
`zero_order_hold` samples it as the scans do, `cascade` and `aggregate` put cells in series, and
`transfer_function` returns the end-to-end operator. SciPy does the rest: ``system.to_tf()``,
`scipy.signal.freqresp`, `scipy.signal.dlsim`. docs/lab/method.md lists the equations of the paper's
Methods with their functions and tests.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from scipy.signal import StateSpace, TransferFunction


def rc_cell(
    C: float,
    G_leak: float,
    G_p: float = 0.0,
    B_p: float = 1.0,
    c_o: float = 1.0,
    d_o: float = 0.0,
) -> StateSpace:
    """The ODE of one cell (eqs. 15 to 18 and 23); its state is the potential v.

    C > 0 is the capacitance, farad; G_leak and G_p are the conductances of leak and coupling,
    siemens, where negative ones are active elements; B_p is the current that a unit of input
    injects, siemens; c_o and d_o read out the potential and the input. A = -(G_leak + G_p) / C and
    B = B_p / C are the paper's -alpha and beta, in 1 / s. A ValueError for numbers that are not
    finite, or C <= 0.

    >>> cell = rc_cell(C=2.0, G_leak=0.5, G_p=0.5)
    >>> float(cell.A[0, 0]), float(cell.B[0, 0])
    (-0.5, 0.5)
    """
    numbers = (C, G_leak, G_p, B_p, c_o, d_o)
    if not all(map(math.isfinite, numbers)) or C <= 0:
        raise ValueError(f"expected finite numbers and C > 0, got {numbers}")
    return StateSpace(-(G_leak + G_p) / C, B_p / C, c_o, d_o)


def zero_order_hold(system: Any, step: float) -> StateSpace:
    """A continuous system sampled at the end of each interval, over which its input is held
    (eqs. 19 to 22).

    This is what `kirchhoff_scan` computes: v_k = a v_{k-1} + b u_k and y_k = c v_k + d u_k, where
    the potential acts on the output of the same sample. SciPy's ``to_discrete`` samples at the
    beginning of the interval, so the part of y through the potential comes one sample later there.
    The hold of a whole `cascade` is exact; the cascade of held cells, which scans compute, also
    holds the output of every cell, an error of first order in the step. The state x_k is the
    potential v_{k-1} before the interval. A ValueError for a step, in the system's unit of time,
    not above 0.
    """
    if not 0 < step < math.inf:
        raise ValueError(f"step: expected a finite number > 0, got {step}")
    held = system.to_discrete(step)
    A, B, C = held.A, held.B, system.C
    return StateSpace(A, B, C @ A, C @ B + system.D, dt=step)


def cascade(*stages: Any) -> StateSpace:
    """Systems in series, each driven by the output of the one before (eqs. 24, 25 and 35).

    Each has one input and one output; all are continuous, or all discrete with the same step, or it
    is a ValueError. The states are those of the stages, in their order, the output is the last's.
    """
    return _in_series(stages, slice(-1, None))


def aggregate(*stages: Any) -> StateSpace:
    """`cascade` whose output is the sum of the outputs of all stages (eq. 36)."""
    return _in_series(stages, slice(None))


def transfer_function(*stages: Any) -> TransferFunction:
    """The transfer function of systems in series, the product over the stages (eqs. 45 to 47).

    The polynomials of a continuous one are the end-to-end operator (eqs. 26 to 28), divided by the
    product of the capacitances: den(d/dt) y_n = num(d/dt) u, highest powers first. Zeros and poles
    that cancel stay in it. The stages are those that `cascade` takes.

    >>> h = transfer_function(rc_cell(1.0, 1.0), rc_cell(1.0, 3.0))  # y'' + 4 y' + 3 y = u
    >>> h.den.tolist(), h.num.tolist()
    ([1.0, 4.0, 3.0], [1.0])
    """
    step = _step(stages)
    systems = [stage.to_tf() for stage in stages]
    # SciPy's numerators have a leading 0 where nothing passes at once.
    tops = [np.trim_zeros(np.atleast_1d(system.num), "f") for system in systems]
    top = functools.reduce(np.polymul, tops)
    bottom = functools.reduce(np.polymul, [system.den for system in systems])
    return TransferFunction(top if top.size else [0.0], bottom, **step)


def _in_series(stages: Any, summed: slice) -> StateSpace:
    """The stages in series, with the sum of the outputs of the stages in `summed` as output."""
    step = _step(stages)
    count = sum(len(stage.A) for stage in stages)
    A, B = np.zeros((count, count)), np.zeros((count, 1))
    # Output l is rows[l] times the states plus direct[l] times the input; output 0 is the input.
    rows, direct, first = [np.zeros(count)], [1.0], 0
    for stage in stages:
        states = slice(first, first + len(stage.A))
        A[states], B[states] = stage.B @ rows[-1][None], stage.B * direct[-1]
        A[states, states] += stage.A
        row = stage.D[0, 0] * rows[-1]
        row[states] += stage.C[0]
        rows.append(row)
        direct.append(stage.D[0, 0] * direct[-1])
        first = states.stop
    C, D = sum(rows[1:][summed]), sum(direct[1:][summed])
    return StateSpace(A, B, C, D, **step)


def _step(stages: Any) -> dict[str, Any]:
    """The sampling interval that all stages share, as the argument of a discrete system."""
    steps = {stage.dt for stage in stages}
    if len(steps) != 1:
        raise ValueError(f"stages: expected at least one, all with one step, got steps {steps}")
    (step,) = steps
    return {} if step is None else {"dt": step}
