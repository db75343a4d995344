"""Cells and cascades: the current law, zero-order hold, rates, stability, passivity, the end-to-end
operator, SciPy's systems, and scans of fixed coefficients."""

import math
import sys

import numpy as np
import pytest
import sympy
import torch
from circuit_cases import random_cascade, random_cell
from scipy import integrate, signal
from sympy.polys.matrices import DomainMatrix

from chonn_ops import kirchhoff_scan
from chonn_ops.inspect import Cascade, DiscreteCascade, DiscreteCell, RCCell

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


ORDERS = range(1, 7)
NAMES = ("C", "G_leak", "G_p", "B_p", "c_o", "d_o")


def symbolic_system(stages):
    """The Laplace transforms of all state and readout equations (24 and 25) as one linear system
    with symbols for all coefficients: s, the coefficients, the matrix, what u = 1 drives."""
    s = sympy.Symbol("s")
    coefficients = [sympy.symbols([f"{name}_{i}" for name in NAMES]) for i in range(stages)]
    matrix, drive = sympy.zeros(2 * stages), sympy.zeros(2 * stages, 1)
    for i, (C, leak, coupling, B, c, d) in enumerate(coefficients):
        state, out = 2 * i, 2 * i + 1
        matrix[state, state] = C * s + leak + coupling
        matrix[out, out], matrix[out, state] = 1, -c
        if i:
            matrix[state, out - 2], matrix[out, out - 2] = -B, -d
        else:
            drive[state], drive[out] = B, d
    return s, coefficients, matrix, drive


@pytest.mark.parametrize(
    "stages", [1, 2, 3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (4, 5, 6))]
)
def test_end_to_end_operator_is_the_symbolic_one(stages):
    s, symbols, matrix, drive = symbolic_system(stages)
    cascade = random_cascade(stages, seed=stages)
    # Rounded to rationals, for which sympy's polynomials are exact.
    values = [[sympy.Rational(round(1000 * getattr(cell, name)), 1000) for name in NAMES]
              for cell in cascade.cells]  # fmt: skip
    cascade = Cascade(RCCell(*map(float, row)) for row in values)
    known = {
        symbol: value
        for row, numbers in zip(symbols, values, strict=True)
        for symbol, value in zip(row, numbers, strict=True)
    }
    # Cramer's rule for the last output.
    replaced = matrix.copy()
    replaced[:, -1] = drive
    top, bottom = (
        DomainMatrix.from_Matrix(m.subs(known)).convert_to(sympy.QQ[s]).det()
        for m in (replaced, matrix)
    )
    left, right = cascade.end_to_end()
    for polynomial, ours in ((bottom, left), (top, right)):
        exact = [float(x) for x in sympy.Poly(sympy.QQ[s].to_sympy(polynomial), s).all_coeffs()]
        np.testing.assert_allclose(ours, exact, rtol=1e-10)
    assert len(left) == stages + 1  # n-th order: nothing cancels in a random cascade

    # The numeric response of ours and of SciPy, at frequencies around all poles.
    omega = np.geomspace(1e-2, 1e2, 25)
    response = matrix.LUsolve(drive)[-1]
    compute = sympy.lambdify([s, *(symbol for row in symbols for symbol in row)], response)
    exact = compute(1j * omega, *(float(x) for row in values for x in row))
    np.testing.assert_allclose(cascade.transfer().frequency_response(omega), exact, rtol=1e-9)
    np.testing.assert_allclose(
        np.polyval(right, 1j * omega) / np.polyval(left, 1j * omega), exact, rtol=1e-9
    )
    np.testing.assert_allclose(
        signal.freqresp(cascade.to_scipy(), omega)[1], exact, rtol=1e-6, atol=1e-9
    )


def test_one_stage_operator_holds_on_outputs():
    """(C d/dt + a) y = (d_o C d/dt + d_o a + c_o b) u along a solution, by finite differences."""
    cell = random_cell(np.random.default_rng(7))
    left, right = cell.operator()
    t = np.linspace(0, 3, 30001)
    u = np.sin(2 * t)
    _, y, _ = signal.lsim(Cascade([cell]).to_scipy(), u, t)
    slopes = [np.gradient(w, t, edge_order=2) for w in (y, u)]
    np.testing.assert_allclose(
        left[0] * slopes[0] + left[1] * y, right[0] * slopes[1] + right[1] * u, atol=1e-6
    )


def test_states_and_readouts_feed_the_next_stage():
    cascade = random_cascade(3)
    A, B, C, D = cascade.state_space()
    v, u = np.array([0.3, -0.8, 0.5]), 1.7
    y, slopes = u, []
    for cell, state in zip(cascade.cells, v, strict=True):
        slopes.append(cell.slope(state, y))
        y = cell.readout(state, y)
    np.testing.assert_allclose(A @ v + B[:, 0] * u, slopes)
    np.testing.assert_allclose(C @ v + D[:, 0] * u, [y])


def test_recursion_between_stages_multiplies_up():
    cascade = random_cascade(4)
    left, right = np.ones(1), np.ones(1)
    for a, b in cascade.operators():
        left, right = np.polymul(a, left), np.polymul(b, right)
    np.testing.assert_allclose(cascade.end_to_end()[0], left)
    np.testing.assert_allclose(cascade.end_to_end()[1], right)


@pytest.mark.parametrize("discrete", [False, True])
def test_sum_of_the_stages(discrete):
    cascade = random_cascade(4)
    cascade = cascade.zoh(0.3) if discrete else cascade
    s = np.array([0.2 + 1j, 3j, 1.5])
    product, total = 1, 0
    for cell in cascade.cells:
        product = product * cell.transfer()(s)
        total = total + product
    np.testing.assert_allclose(cascade.aggregate()(s), total, rtol=1e-9)
    assert len(cascade.aggregate().poles) == 4


def step_and_chirp(count):
    t = np.arange(count)
    return {"step": np.ones(count), "chirp": signal.chirp(t, 0.0, count, 0.4)}


def scanned(u, delta, decay, b, c, d):
    """A scan with the same coefficients at every position, float64."""
    constant = torch.ones(1, len(u), 1, dtype=torch.float64)
    row = torch.tensor(decay, dtype=torch.float64)[None]
    y = kirchhoff_scan(
        torch.as_tensor(u)[None, :, None],
        delta * constant,
        row,
        constant * torch.tensor(b, dtype=torch.float64),
        constant * torch.tensor(c, dtype=torch.float64),
        torch.tensor([d], dtype=torch.float64),
    )
    return y[0, :, 0].numpy()


@pytest.mark.parametrize("kind", ["step", "chirp"])
def test_a_scan_is_scipys_continuous_system_under_a_hold(kind):
    """Three states beside each other; SciPy's sample begins the interval that ours ends."""
    u, delta, d = step_and_chirp(300)[kind], 0.07, 0.4
    decay, b, c = [0.2, 1.0, 9.0], [0.5, -1.5, 2.0], [1.2, 0.7, -3.0]
    system = signal.StateSpace(
        np.diag(np.negative(decay)), np.array(b)[:, None], np.array(c)[None], [[d]]
    )
    t = delta * np.arange(len(u) + 1)
    _, _, states = signal.lsim(system, np.append(u, u[-1]), t, interp=False)
    expected = states[1:] @ c + d * u
    np.testing.assert_allclose(scanned(u, delta, decay, b, c, d), expected, atol=1e-6)
    cells = [RCCell.from_rates(*row).zoh(delta) for row in zip(decay, b, c, strict=True)]
    bank = sum((cell.transfer() for cell in cells[1:]), cells[0].transfer())
    through = signal.dlsim(bank.to_scipy(), u)[1][:, 0] + d * u
    np.testing.assert_allclose(through, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["step", "chirp"])
@pytest.mark.parametrize("stages", ORDERS)
def test_cascaded_scans_are_scipys_discrete_system(stages, kind):
    u, delta = step_and_chirp(200)[kind], 0.3
    rng = np.random.default_rng(stages)
    y, cells = u, []
    for _ in range(stages):
        decay, (b, c, d) = rng.uniform(0.1, 3), rng.uniform(-1, 1, 3)
        y = scanned(y, delta, [decay], [b], [c], d)
        cells.append(RCCell.from_rates(decay, b, c, d))
    cascade = Cascade(cells).zoh(delta)
    np.testing.assert_allclose(y, signal.dlsim(cascade.to_scipy(), u)[1][:, 0], atol=1e-6)
    np.testing.assert_allclose(y, cascade.run(u)[-1], atol=1e-10)
    impulse = cascade.transfer().impulse_response(len(u))
    np.testing.assert_allclose(y, np.convolve(impulse, u)[: len(u)], atol=1e-6)


def test_products_over_discrete_stages():
    """prod (d + c b / (1 - a / z)), and prod c b / prod (1 - a / z) without skips."""
    stages = [(0.9, 0.5, 1.2, 0.3), (0.2, -1.0, 0.7, -0.4), (0.5, 2.0, 0.1, 0.0)]
    z = 1.2 * np.exp(1j * np.linspace(0, 3, 9))
    h = DiscreteCascade(DiscreteCell(*stage) for stage in stages).transfer()
    expected = np.prod([d + c * b / (1 - a / z) for a, b, c, d in stages], axis=0)
    np.testing.assert_allclose(h(z), expected)
    strict = DiscreteCascade(DiscreteCell(*stage[:3]) for stage in stages).transfer()
    gain = np.prod([c * b for _, b, c, _ in stages])
    bottom = np.prod([1 - a / z for a, *_ in stages], axis=0)
    np.testing.assert_allclose(strict(z), gain / bottom)


def test_hold_of_every_stage_is_of_first_order_in_the_step():
    """Against the exact hold of the whole cascade, whose samples are one step late."""
    cascade = Cascade([RCCell.from_rates(1.0, 1.0), RCCell.from_rates(2.0, 2.0)])
    errors = []
    for step in (0.1, 0.05, 0.025):
        u = np.ones(round(2 / step))
        _, exact, states = signal.dlsim(cascade.to_scipy().to_discrete(step), np.append(u, 1))
        assert exact[0] == states[0, 0] == 0
        errors.append(abs(states[-1, 1] - cascade.zoh(step).run(u)[1, -1]))
    assert np.divide(errors[:-1], errors[1:]) == pytest.approx([2, 2], rel=0.1)
    one = Cascade(cascade.cells[:1])
    _, _, states = signal.dlsim(one.to_scipy().to_discrete(0.1), np.ones(21))
    np.testing.assert_allclose(one.zoh(0.1).run(np.ones(20))[0], states[1:, 0], atol=1e-12)


@pytest.mark.parametrize("stages", ORDERS)
def test_to_scipy_and_back(stages):
    cascade = random_cascade(stages)
    s = 1j * np.geomspace(0.01, 100, 9)
    for system in (cascade.to_scipy(), cascade.transfer().to_scipy()):
        again = Cascade.from_scipy(system)
        assert len(again.cells) == stages
        np.testing.assert_allclose(again.transfer()(s), cascade.transfer()(s), rtol=1e-6)
    discrete = cascade.zoh(0.2)
    z = np.exp(1j * np.linspace(0.1, 3, 9))
    again = DiscreteCascade.from_scipy(discrete.to_scipy())
    np.testing.assert_allclose(again.transfer()(z), discrete.transfer()(z), rtol=1e-6)
    back = discrete.to_rc()
    np.testing.assert_allclose(back.transfer()(s), cascade.transfer()(s), rtol=1e-9)


def test_from_scipy_with_fewer_zeros():
    butterworth = signal.lti([1.0], [1.0, 3.0, 2.0])
    cascade = Cascade.from_scipy(butterworth)
    np.testing.assert_allclose(cascade.end_to_end()[0], [1, 3, 2])
    np.testing.assert_allclose(cascade.end_to_end()[1], [1])
    held = butterworth.to_discrete(0.1)
    again = DiscreteCascade.from_scipy(held)
    u = step_and_chirp(40)["chirp"]
    np.testing.assert_allclose(again.run(u)[-1], signal.dlsim(held, u)[1][:, 0], atol=1e-9)


def test_bad_systems():
    with pytest.raises(ValueError, match=r"poles: expected real poles"):
        Cascade.from_scipy(signal.lti([1.0], [1.0, 0.1, 1.0]))
    with pytest.raises(ValueError, match=r"system: expected continuous time, got a step of 0.1"):
        Cascade.from_scipy(signal.dlti([1.0], [1.0, 0.1], dt=0.1))
    with pytest.raises(ValueError, match=r"system: expected discrete time, got"):
        DiscreteCascade.from_scipy(signal.lti([1.0], [1.0, 0.1]))
    with pytest.raises(ValueError, match=r"got a delay"):
        DiscreteCascade.from_scipy(signal.dlti([1.0], [1.0, 0.0], dt=1.0))
    with pytest.raises(ValueError, match=r"cells: expected at least one RCCell, got \(\)"):
        Cascade([])
    with pytest.raises(ValueError, match=r"step: expected the same of all cells, got \[1.0, 2.0\]"):
        DiscreteCascade([DiscreteCell(0.5, 1.0), DiscreteCell(0.5, 1.0, step=2.0)])


def test_without_scipy_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    with pytest.raises(ImportError, match=r"needs scipy: pip install '\.\[circuit\]' in a clone"):
        random_cascade(2).to_scipy()
