"""The paper's cells: the current law, zero-order hold, the end-to-end operator, scans of fixed
coefficients, and ladders of resistors."""

import itertools
import math

import numpy as np
import pytest
import sympy
import torch
from scipy import integrate, signal
from sympy.polys.matrices import DomainMatrix

from chonn_lab.theory import aggregate, cascade, rc_cell, transfer_function, zero_order_hold
from chonn_ops import Circuit, Direct, Grid, kirchhoff_scan

NAMES = ("C", "G_leak", "G_p", "B_p", "c_o", "d_o")


def random_values(stages, seed=0):
    """Component values of some cells, one row each."""
    rng = np.random.default_rng(seed)
    return [(*rng.uniform(0.3, 3, 3), *rng.uniform(-2, 2, 3)) for _ in range(stages)]


def random_cells(stages, seed=0):
    return [rc_cell(*row) for row in random_values(stages, seed)]


def of_rates(decay, injection, c=1.0, d=0.0):
    return rc_cell(1.0, decay, 0.0, injection, c, d)


def slope(cell, v, u):
    return (cell.A * v + cell.B * u).item()


def at(system, s):
    """A transfer function at complex s."""
    return np.polyval(system.num, s) / np.polyval(system.den, s)


@pytest.mark.parametrize("z", [0.0, 1e-8, 0.3, 5.0, 100.0])
def test_zero_order_hold_is_the_integral(z):
    """Eq. 20's first line by quadrature, in units in which the step is 0.5."""
    step, beta, v, u = 0.5, 1.7, 0.9, -0.6
    alpha = z / step
    held = zero_order_hold(rc_cell(2.0, 2 * alpha - 0.1, 0.1, 2 * beta), step)
    integral, _ = integrate.quad(lambda x: math.exp(-alpha * (step - x)) * beta * u, 0, step)
    expected = math.exp(-alpha * step) * v + integral
    assert slope(held, v, u) == pytest.approx(expected, rel=1e-9)
    assert held.A.item() == pytest.approx(math.exp(-z), rel=1e-12)


@pytest.mark.parametrize("values", random_values(3))
def test_uneven_steps_follow_the_ode(values):
    C, leak, coupling, B, c, d = values
    cell, rng = rc_cell(*values), np.random.default_rng(1)
    v = state = 0.5
    for u, step in zip(rng.standard_normal(6), rng.uniform(0.1, 2, 6), strict=True):
        held = zero_order_hold(cell, step)
        y, v = (held.C * v + held.D * u).item(), slope(held, v, u)
        rate = lambda _, w, u=u: -(leak + coupling) / C * w + B / C * u  # noqa: E731
        exact = integrate.solve_ivp(rate, (0, step), [state], rtol=1e-10, atol=1e-12)
        state = exact.y[0, -1]
        assert v == pytest.approx(state, abs=1e-8)
        assert y == pytest.approx(c * state + d * u, abs=1e-8)


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
    # Rounded to rationals, for which sympy's polynomials are exact.
    values = [[sympy.Rational(round(1000 * x), 1000) for x in row]
              for row in random_values(stages, seed=stages)]  # fmt: skip
    cells = [rc_cell(*map(float, row)) for row in values]
    known = dict(zip(itertools.chain(*symbols), itertools.chain(*values), strict=True))
    # Cramer's rule for the last output.
    replaced = matrix.copy()
    replaced[:, -1] = drive
    top, bottom = (
        DomainMatrix.from_Matrix(m.subs(known)).convert_to(sympy.QQ[s]).det()
        for m in (replaced, matrix)
    )
    operator = transfer_function(*cells)
    capacitances = math.prod(float(row[0]) for row in values)
    for polynomial, ours in ((bottom, operator.den), (top, operator.num)):
        exact = [float(x) for x in sympy.Poly(sympy.QQ[s].to_sympy(polynomial), s).all_coeffs()]
        np.testing.assert_allclose(capacitances * ours, exact, rtol=1e-10)
    assert len(operator.den) == stages + 1  # n-th order: nothing cancels in random cells

    # The numeric response of ours and of SciPy, at frequencies around all poles.
    omega = np.geomspace(1e-2, 1e2, 25)
    response = matrix.LUsolve(drive)[-1]
    compute = sympy.lambdify([s, *(symbol for row in symbols for symbol in row)], response)
    exact = compute(1j * omega, *(float(x) for row in values for x in row))
    np.testing.assert_allclose(at(operator, 1j * omega), exact, rtol=1e-9)
    scipys = signal.freqresp(cascade(*cells), omega)[1]
    np.testing.assert_allclose(scipys, exact, rtol=1e-6, atol=1e-9)


def test_states_and_readouts_feed_the_next_stage():
    cells = random_cells(3)
    system, v, u = cascade(*cells), np.array([0.3, -0.8, 0.5]), 1.7
    y, outputs, slopes = u, [], []
    for cell, state in zip(cells, v, strict=True):
        slopes.append(slope(cell, state, y))
        y = (cell.C * state + cell.D * y).item()
        outputs.append(y)
    np.testing.assert_allclose(system.A @ v + system.B[:, 0] * u, slopes)
    np.testing.assert_allclose(system.C @ v + system.D[:, 0] * u, [y])
    total = aggregate(*cells)
    np.testing.assert_allclose(total.A, system.A)
    np.testing.assert_allclose(total.C @ v + total.D[:, 0] * u, [sum(outputs)])


@pytest.mark.parametrize("discrete", [False, True])
def test_sum_of_the_stages(discrete):
    cells = random_cells(4)
    cells = [zero_order_hold(cell, 0.3) for cell in cells] if discrete else cells
    s = np.array([0.2 + 1j, 3j, 1.5])
    product, total = 1, 0
    for cell in cells:
        product = product * at(transfer_function(cell), s)
        total = total + product
    np.testing.assert_allclose(at(aggregate(*cells).to_tf(), s), total, rtol=1e-9)


def step_and_chirp(count):
    t = np.arange(count)
    return {"step": np.ones(count), "chirp": signal.chirp(t, 0.0, count, 0.4)}


def scanned(u, delta, decay, b, c, d):
    """A scan with the same coefficients at every position, float64."""
    decay, b, c, d = (torch.tensor(x, dtype=torch.float64) for x in ([decay], b, c, [d]))
    constant = torch.ones(1, len(u), 1, dtype=torch.float64)
    inputs = torch.as_tensor(u)[None, :, None], delta * constant, decay, constant * b, constant * c
    return kirchhoff_scan(*inputs, d)[0, :, 0].numpy()


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
    held = zero_order_hold(system, delta)
    np.testing.assert_allclose(signal.dlsim(held, u)[1][:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["step", "chirp"])
@pytest.mark.parametrize("stages", range(1, 7))
def test_cascaded_scans_are_scipys_discrete_system(stages, kind):
    u, delta = step_and_chirp(200)[kind], 0.3
    rng = np.random.default_rng(stages)
    y, cells = u, []
    for _ in range(stages):
        decay, (b, c, d) = rng.uniform(0.1, 3), rng.uniform(-1, 1, 3)
        y = scanned(y, delta, [decay], [b], [c], d)
        cells.append(zero_order_hold(of_rates(decay, b, c, d), delta))
    np.testing.assert_allclose(y, signal.dlsim(cascade(*cells), u)[1][:, 0], atol=1e-10)
    h = transfer_function(*cells)
    np.testing.assert_allclose(y, signal.lfilter(h.num, h.den, u), atol=1e-6)


@pytest.mark.parametrize("skips", [(0.3, -0.4, 0.0), (0.0, 0.0, 0.0)])
def test_products_over_discrete_stages(skips):
    """prod (d + c b / (1 - a / z)): prod c b / prod (1 - a / z) without skips."""
    stages = [(0.9, 0.5, 1.2), (0.2, -1.0, 0.7), (0.5, 2.0, 0.1)]
    z, held, expected = 1.2 * np.exp(1j * np.linspace(0, 3, 9)), [], 1.0
    for (a, b, c), d in zip(stages, skips, strict=True):
        held.append(zero_order_hold(of_rates(-math.log(a), -b * math.log(a) / (1 - a), c, d), 1.0))
        expected = expected * (d + c * b / (1 - a / z))
    np.testing.assert_allclose(at(transfer_function(*held), z), expected)


def test_hold_of_every_stage_is_of_first_order_in_the_step():
    """Against the exact hold of the whole cascade."""
    cells, errors = [of_rates(1.0, 1.0), of_rates(2.0, 2.0)], []
    for step in (0.1, 0.05, 0.025):
        u = np.ones(round(2 / step))
        held = cascade(*(zero_order_hold(cell, step) for cell in cells))
        exact = zero_order_hold(cascade(*cells), step)
        y, expected = (signal.dlsim(system, u)[1][-1, 0] for system in (held, exact))
        errors.append(abs(y - expected))
    assert np.divide(errors[:-1], errors[1:]) == pytest.approx([2, 2], rel=0.1)
    u = np.append(np.ones(20), 1)
    _, y, _ = signal.dlsim(zero_order_hold(cells[0], 0.1), u)
    _, late, _ = signal.dlsim(cells[0].to_discrete(0.1), u)
    np.testing.assert_allclose(y[:-1], late[1:], atol=1e-12)  # SciPy's samples are one step late


def test_bad_values():
    with pytest.raises(ValueError, match=r"expected finite numbers and C > 0, got \(0, 1.0"):
        rc_cell(0, 1.0)
    with pytest.raises(ValueError, match=r"expected finite numbers and C > 0, got .*nan"):
        rc_cell(1.0, 1.0, math.nan)
    cell = rc_cell(1.0, 1.0)
    with pytest.raises(ValueError, match=r"step: expected a finite number > 0, got -1"):
        zero_order_hold(cell, -1)
    for stages in ((), (cell, zero_order_hold(cell, 1.0))):
        for function in (cascade, aggregate, transfer_function):
            with pytest.raises(ValueError, match=r"stages: expected at least one, all with one"):
                function(*stages)


def ladder(source, conductance, leak, periodic=False):
    """Potentials of a line of equal nodes, float64."""
    source = torch.as_tensor(source, dtype=torch.float64)[None, :, None]
    g, leaks = (torch.full_like(source, value) for value in (conductance, leak))
    v = Circuit((g,), leaks, Grid(leaks.shape[1:-1], periodic)).solve(source, Direct())
    return v[0, :, 0].numpy()


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_ladders_in_series_are_the_order_benchmark(order):
    """(I - tau^2 d_ss)^n y = x: n ladders of conductance tau^2 / h^2 and leak 1, each fed with the
    potentials of the one before. Second order in h, against the Fourier form."""
    errors, tau = [], 0.08
    for nodes in (128, 256):
        k = 2 * np.pi * np.arange(nodes // 2 + 1)
        s = np.arange(nodes) / nodes
        x = np.cos(2 * np.pi * s) + 0.5 * np.sin(2 * np.pi * 3 * s)
        y = x
        for _ in range(order):
            y = ladder(y, (tau * nodes) ** 2, 1.0, periodic=True)
        target = np.fft.irfft(np.fft.rfft(x) / (1 + (tau * k) ** 2) ** order, nodes)
        errors.append(np.linalg.norm(y - target) / np.linalg.norm(target))
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.02)


def test_transfer_of_a_ring_is_the_papers_in_every_mode():
    """A ring of second differences divides mode m by 1 + tau^2 (2 sin(pi m h) / h)^2."""
    nodes, tau = 32, 0.08
    m = np.arange(nodes // 2 + 1)
    symbol = 1 / (1 + (tau * 2 * nodes * np.sin(np.pi * m / nodes)) ** 2)
    pulse = np.eye(nodes)[0]
    response = np.fft.rfft(ladder(pulse, (tau * nodes) ** 2, 1.0, periodic=True))
    np.testing.assert_allclose(response, symbol, atol=1e-12)


def test_two_scans_are_a_ladder():
    """Far from its ends the voltages of a ladder are forward + backward - input of a scan whose
    retention r is the ratio of the voltages of neighbours: r + 1 / r = 2 + l / g."""
    g, leak = 2.0, 0.3
    s = np.zeros(400)
    s[150:250] = np.random.default_rng(0).standard_normal(100)
    r = 1 + leak / (2 * g) - math.sqrt(leak / g + (leak / (2 * g)) ** 2)
    own = 1 / (leak + 2 * g * (1 - r))  # the voltage where 1 A enters
    rates = (1.0, [-math.log(r)], [-own * math.log(r) / (1 - r)], [1.0], 0.0)
    forth, back = scanned(s, *rates), scanned(s[::-1].copy(), *rates)[::-1]
    np.testing.assert_allclose(forth + back - own * s, ladder(s, g, leak), atol=1e-10)
