"""One RC cell: the current law, zero-order hold, rates and values, stability and passivity."""

import math

import numpy as np
import pytest
from circuit_cases import random_cell
from scipy import integrate

from chonn_ops.circuit import DiscreteCell, RCCell

CELLS = [random_cell(np.random.default_rng(seed)) for seed in range(3)]


@pytest.mark.parametrize("cell", CELLS)
def test_currents_are_the_branches_and_balance_on_the_ode(cell):
    v, u = 0.7, -1.3
    i = cell.currents(v, 0.4, u)
    branches = (cell.C * 0.4, cell.G_leak * v, cell.G_p * v, cell.B_p * u)
    assert (i.capacitor, i.leak, i.coupling, i.injected) == branches
    assert cell.currents(v, cell.slope(v, u), u).excess == pytest.approx(0, abs=1e-12)
    off = cell.currents(v, cell.slope(v, u) + 0.1, u).excess
    assert off == pytest.approx(-0.1 * cell.C)


@pytest.mark.parametrize("cell", CELLS)
def test_slope_is_relaxation_and_injection(cell):
    alpha, beta = (cell.G_leak + cell.G_p) / cell.C, cell.B_p / cell.C
    assert (cell.decay, cell.injection) == pytest.approx((alpha, beta))
    assert cell.slope(0.7, -1.3) == pytest.approx(-alpha * 0.7 - beta * 1.3)
    assert cell.time_constant == pytest.approx(1 / alpha)


@pytest.mark.parametrize("z", [0.0, 1e-8, 0.3, 5.0, 100.0])
def test_zero_order_hold_is_the_integral(z):
    """Eq. 20's first line by quadrature, in units in which the step is 0.5."""
    step, beta, v, u = 0.5, 1.7, 0.9, -0.6
    alpha = z / step
    cell = RCCell.from_rates(alpha, beta, C=2.0, G_p=0.1).zoh(step)
    integral, _ = integrate.quad(lambda x: math.exp(-alpha * (step - x)) * beta * u, 0, step)
    expected = math.exp(-alpha * step) * v + integral
    assert cell.run([u], v)[0][0] == pytest.approx(expected, rel=1e-9)
    assert cell.retention == pytest.approx(math.exp(-z), rel=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_uneven_steps_follow_the_ode(cell):
    rng = np.random.default_rng(1)
    u, steps = rng.standard_normal(6), rng.uniform(0.1, 2, 6)
    v, y = cell.run(u, steps, v=0.5)
    state = 0.5
    for k in range(6):
        solved = integrate.solve_ivp(
            lambda _, w, u_k=u[k]: -(cell.G_leak + cell.G_p) / cell.C * w + cell.B_p / cell.C * u_k,
            (0, steps[k]),
            [state],
            rtol=1e-10,
            atol=1e-12,
        )
        state = solved.y[0, -1]
        assert v[k] == pytest.approx(state, abs=1e-8)
        assert y[k] == pytest.approx(cell.c_o * state + cell.d_o * u[k], abs=1e-8)


@pytest.mark.parametrize("cell", CELLS)
def test_discrete_update_and_readout(cell):
    discrete = cell.zoh(0.3)
    v, y = discrete.run([1.0, -2.0], 0.5)
    first = discrete.retention * 0.5 + discrete.injection
    second = discrete.retention * first - 2 * discrete.injection
    np.testing.assert_allclose(v, [first, second])
    np.testing.assert_allclose(y, [cell.readout(first, 1.0), cell.readout(second, -2.0)])
    assert cell.readout(3.0, 5.0) == pytest.approx(cell.c_o * 3 + cell.d_o * 5)


@pytest.mark.parametrize("cell", CELLS)
def test_values_to_rates_to_samples_and_back(cell):
    rates = RCCell.from_rates(
        cell.decay, cell.injection, cell.c_o, cell.d_o, C=cell.C, G_p=cell.G_p
    )
    back = cell.zoh(0.37).to_rc(C=cell.C, G_p=cell.G_p)
    for name in ("C", "G_leak", "G_p", "B_p", "c_o", "d_o"):
        assert getattr(rates, name) == pytest.approx(getattr(cell, name))
        assert getattr(back, name) == pytest.approx(getattr(cell, name))


def test_transfer_function_of_one_cell():
    """d + c b / (1 - a / z) at any z, and d_o + c_o B_p / (C s + a)."""
    cell = DiscreteCell(0.8, 0.5, -1.2, 0.3)
    z = np.exp(1j * np.linspace(0, 3, 7)) * 1.1
    np.testing.assert_allclose(cell.transfer()(z), 0.3 - 0.6 / (1 - 0.8 / z), rtol=1e-12)
    rc = CELLS[0]
    s = 1j * np.linspace(0, 3, 7)
    expected = rc.d_o + rc.c_o * rc.B_p / (rc.C * s + rc.G_leak + rc.G_p)
    np.testing.assert_allclose(rc.transfer()(s), expected, rtol=1e-12)


def test_stored_energy_falls_by_what_the_resistors_take():
    cell = RCCell(2.0, 0.4, 0.3, 1.1)
    v, u, dt = 0.8, 0.5, 1e-6
    after = cell.run([u], [dt], v)[0][0]
    rate = (cell.energy(after) - cell.energy(v)) / dt
    assert rate == pytest.approx(v * cell.B_p * u - cell.dissipated_power(v), rel=1e-4)


@pytest.mark.parametrize(
    ("values", "stable", "dissipative", "passive"),
    [
        ({"G_leak": 1.0}, True, True, True),
        ({"G_leak": 1.0, "d_o": 0.5}, True, True, True),
        # An active coupling that the leak outweighs.
        ({"G_leak": 1.0, "G_p": -0.5}, True, False, True),
        ({"G_leak": 1.0, "G_p": -2.0}, False, False, False),
        ({"G_leak": 0.0}, False, False, False),
        # Positive at high frequencies, negative at low ones; and the other way round.
        ({"G_leak": 1.0, "c_o": -1.0, "d_o": 0.5}, True, True, False),
        ({"G_leak": 1.0, "d_o": -0.1}, True, True, False),
        ({"G_leak": 1.0, "c_o": -1.0, "d_o": 1.0}, True, True, True),
    ],
)
def test_stability_dissipation_passivity(values, stable, dissipative, passive):
    cell = RCCell(2.0, **values)
    assert (cell.is_stable, cell.is_dissipative, cell.is_passive) == (stable, dissipative, passive)
    if values["G_leak"]:
        discrete = cell.zoh(0.1)
        assert discrete.is_stable == stable


def test_bad_cells():
    with pytest.raises(ValueError, match=r"C: expected a finite number > 0, got 0"):
        RCCell(0, 1.0)
    with pytest.raises(ValueError, match=r"G_p: expected a finite number, got nan"):
        RCCell(1.0, 1.0, float("nan"))
    with pytest.raises(ValueError, match=r"step: expected a finite number > 0, got -1"):
        RCCell(1.0, 1.0).zoh(-1)
    with pytest.raises(ValueError, match=r"retention: expected a number > 0.*got 0"):
        DiscreteCell(0, 1).to_rc()
    with pytest.raises(ValueError, match=r"steps: expected shape \(2,\), as u, got \(3,\)"):
        RCCell(1.0, 1.0).run([1, 2], [1, 2, 3])
    with pytest.raises(AttributeError):
        RCCell(1.0, 1.0).C = 2.0
