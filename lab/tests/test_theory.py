"""The paper's cells: scans of fixed coefficients beside their ordinary differential equation and
SciPy's systems, and ladders of resistors."""

import functools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, signal

from chonn_ops import Circuit, Direct, Grid, kirchhoff_scan


def scanned(u, delta, decay, b, c, d):
    """A scan of steps `delta` with the same coefficients at every position, float64."""
    decay, b, c, d = (torch.tensor(x, dtype=torch.float64) for x in ([decay], b, c, [d]))
    constant = torch.ones(1, len(u), 1, dtype=torch.float64)
    steps = torch.as_tensor(delta).view(-1, 1) * constant
    inputs = torch.as_tensor(u)[None, :, None], steps, decay, constant * b, constant * c
    return kirchhoff_scan(*inputs, d)[0, :, 0].numpy()


@pytest.mark.parametrize("seed", range(3))
def test_uneven_steps_follow_the_ode(seed):
    """C v' = -(G_leak + G_p) v + B_p u and y = c_o v + d_o u of random cells from rest, with inputs
    that are held over steps of 1e-8 to 100 time constants."""
    rng = np.random.default_rng(seed)
    C, leak, coupling, B = rng.uniform(0.3, 3, 4)
    c, d = rng.uniform(-2, 2, 2)
    rate, u = (leak + coupling) / C, rng.standard_normal(7)
    steps = np.array([0.3, 1e-8, 1.7, 0.1, 5.0, 1e-3, 100]) / rate
    v, expected = 0.0, []
    for held, step in zip(u, steps, strict=True):
        slope = lambda _, w, u=held: (B * u - (leak + coupling) * w) / C  # noqa: E731
        v = integrate.solve_ivp(slope, (0, step), [v], "LSODA", rtol=1e-10, atol=1e-12).y[0, -1]
        expected.append(c * v + d * held)
    np.testing.assert_allclose(scanned(u, steps, [rate], [B / C], [c], d), expected, atol=1e-8)


@pytest.mark.parametrize("z", [1e-8, 0.3, 5.0, 100.0])
def test_zero_order_hold_is_the_integral(z):
    """Eq. 20's first line by quadrature, of the second of two steps of 0.5."""
    step, beta, u = 0.5, 1.7, (0.9, -0.6)
    alpha = z / step
    kernel, _ = integrate.quad(lambda x: math.exp(-alpha * (step - x)) * beta, 0, step)
    first = kernel * u[0]
    found = scanned(np.array(u), step, [alpha], [beta], [1.0], 0.0)
    np.testing.assert_allclose(found, [first, math.exp(-z) * first + kernel * u[1]], rtol=1e-9)


def step_and_chirp(count):
    t = np.arange(count)
    return {"step": np.ones(count), "chirp": signal.chirp(t, 0.0, count, 0.4)}


@pytest.mark.parametrize("kind", ["step", "chirp"])
def test_a_scan_is_scipys_continuous_system_under_a_hold(kind):
    """Three states beside each other; SciPy's sample begins the interval that ours ends."""
    u, delta, d = step_and_chirp(300)[kind], 0.07, 0.4
    decay, b, c = [0.2, 1.0, 9.0], [0.5, -1.5, 2.0], [1.2, 0.7, -3.0]
    A = np.diag(np.negative(decay))
    system = signal.StateSpace(A, np.array(b)[:, None], np.array(c)[None], [[d]])
    t = delta * np.arange(len(u) + 1)
    _, _, states = signal.lsim(system, np.append(u, u[-1]), t, interp=False)
    expected = states[1:] @ c + d * u
    np.testing.assert_allclose(scanned(u, delta, decay, b, c, d), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["step", "chirp"])
@pytest.mark.parametrize("stages", range(1, 7))
def test_cascaded_scans_are_the_product_over_discrete_stages(stages, kind):
    """prod (d + c b / (1 - a / z)), each stage fed with the output of the one before."""
    u, delta = step_and_chirp(200)[kind], 0.3
    rng = np.random.default_rng(stages)
    y, tops, bottoms = u, [], []
    for _ in range(stages):
        decay, (b, c, d) = rng.uniform(0.1, 3), rng.uniform(-1, 1, 3)
        y = scanned(y, delta, [decay], [b], [c], d)
        a = math.exp(-delta * decay)
        bottoms.append([1, -a])
        tops.append([d + c * (1 - a) / decay * b, -a * d])
    h = functools.reduce(np.polymul, tops), functools.reduce(np.polymul, bottoms)
    np.testing.assert_allclose(y, signal.lfilter(*h, u), atol=1e-6)


def test_cascaded_scans_tend_to_the_end_to_end_operator():
    """den(d/dt) y = num(d/dt) u of three cells, of first order in the step since every stage's
    output is held, too."""
    rng, errors = np.random.default_rng(0), []
    cells = [(*rng.uniform(0.3, 3, 2), *rng.uniform(-2, 2, 3)) for _ in range(3)]
    for steps in (800, 1600, 3200):
        t = np.linspace(0, 4, steps + 1)
        y, tops, bottoms = np.cos(t[1:]), [], []
        for C, G, B, c, d in cells:
            y = scanned(y, t[1], [G / C], [B / C], [c], d)
            bottoms.append([C, G])
            tops.append([d * C, d * G + c * B])
        operator = functools.reduce(np.polymul, tops), functools.reduce(np.polymul, bottoms)
        expected = signal.lsim(operator, np.cos(t), t)[1][1:]
        errors.append(np.abs(y - expected).max())
    assert np.divide(errors[:-1], errors[1:]) == pytest.approx([2, 2], rel=0.1)


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
