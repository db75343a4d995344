"""Advection and Burgers on a line: PDEBench's law of waves, exact solutions."""

import math

import numpy as np
import pytest
from scipy.special import ive

from chonn_lab.problems import advection, burgers
from chonn_lab.problems.advection import Wave, draw_wave
from chonn_lab.problems.grids import cell_centres


def sine(n=1, phase=0.0, offset=0.0):
    """sin(2 pi n x + phase) + offset."""
    numbers = np.array([n, 0]), np.array([1.0, offset]), np.array([phase, np.pi / 2])
    return Wave(*numbers)


def wave_of(kind):
    """The first plain, absolute or windowed one."""
    return next(
        wave
        for wave in (draw_wave(0, i) for i in range(200))
        if (wave.absolute, bool(wave.window)) == (kind == "absolute", kind == "windowed")
    )


def test_waves_have_pdebenchs_law():
    waves = [draw_wave(3, i) for i in range(2000)]
    assert {wave.sign for wave in waves} == {-1.0, 1.0}
    for share in (np.mean([w.absolute for w in waves]), np.mean([bool(w.window) for w in waves])):
        assert 0.08 < share < 0.12
    counts = [tuple(wave.wavenumbers // [1, 2, 3, 4]) for wave in waves]
    assert all(sum(count) == 2 for count in counts)
    # The same one twice: one in four.
    assert 0.22 < np.mean([2 in count for count in counts]) < 0.28
    amplitudes = np.concatenate([wave.amplitudes for wave in waves])
    phases = np.concatenate([wave.phases for wave in waves]) / (2 * np.pi)
    for uniform in (amplitudes, phases):
        assert 0 <= uniform.min() < 0.01 < 0.99 < uniform.max() < 1
        assert uniform.mean() == pytest.approx(0.5, abs=0.02)
    windows = np.array([wave.window for wave in waves if wave.window])
    assert (windows.min(axis=0) > [0.1, 0.55]).all()
    assert (windows.max(axis=0) < [0.45, 0.9]).all()


@pytest.mark.parametrize("kind", ["plain", "absolute", "windowed"])
def test_waves_are_periodic_and_what_they_say(kind):
    wave, x = wave_of(kind), np.linspace(0, 1, 500, endpoint=False)
    parts = zip(wave.amplitudes, wave.wavenumbers, wave.phases, strict=True)
    expected = sum(a * np.sin(2 * np.pi * n * x + p) for a, n, p in parts)
    expected = wave.sign * (np.abs(expected) if wave.absolute else expected)
    low, high = wave.window or (-1, 2)
    inside = (x > low + 0.1) & (x < high - 0.1)
    np.testing.assert_allclose(wave(x)[inside], expected[inside], atol=1e-8)
    outside = (x < low - 0.05) | (x > high + 0.05)
    assert np.abs(wave(x)[outside]).max(initial=0) < 2e-4
    np.testing.assert_allclose(wave(x + 3), wave(x), atol=1e-12)


def test_advection_between_cells():
    u = advection.solve(sine(2), beta=4.0, resolution=32, n_frames=201)
    t = 0.01 * np.arange(201)[:, None]
    np.testing.assert_allclose(u, np.sin(4 * np.pi * (cell_centres(32) - 4 * t)), atol=1e-12)


@pytest.mark.parametrize("nu", [0.05, 0.4])
def test_burgers_of_a_sine_in_closed_form(nu):
    d, x = nu / math.pi, cell_centres(32)
    u = burgers.solve(sine(), nu, 32, 201)
    for frame in (1, 30, 200):
        t = 0.01 * frame
        # phi at t = 0 is exp(a cos 2 pi x), whose coefficients are Bessel functions.
        n, a = np.arange(1, 40), 1 / (4 * np.pi * d)
        decay = 2 * ive(n, a) * np.exp(-d * (2 * np.pi * n) ** 2 * t)
        angle = 2 * np.pi * np.multiply.outer(x, n)
        phi = ive(0, a) + np.cos(angle) @ decay
        exact = 2 * d * (np.sin(angle) @ (2 * np.pi * n * decay)) / phi
        np.testing.assert_allclose(u[frame], exact, atol=1e-9 * max(1.0, np.abs(exact).max()))


@pytest.mark.parametrize("kind", ["absolute", "windowed"])
def test_burgers_of_the_thinnest_shocks_against_one_long_step(kind):
    """The formula from t = 0 at once, by brute force on a fine grid."""
    wave = wave_of(kind)
    nu, t, n = 1e-3, 0.3, 1 << 15
    d = nu / math.pi
    u = burgers.solve(wave, nu, 32, 201)[30]
    y = (np.arange(-2 * n, 3 * n) + 0.5) / n
    integral = np.cumsum(wave(y)) / n - wave(y) / (2 * n)
    for i in range(0, 32, 3):
        distance = cell_centres(32)[i] - y
        exponent = -(distance**2 / (2 * t) + integral) / (2 * d)
        weight = np.exp(exponent - exponent.max())
        exact = (weight @ distance) / weight.sum() / t
        assert u[i] == pytest.approx(exact, abs=2e-4)


@pytest.mark.parametrize("problem", [advection, burgers])
def test_a_sample_is_the_same_on_any_grid(problem):
    coarse, fine = (problem.solve(draw_wave(1, 0), 0.1, n, 5) for n in (16, 48))
    np.testing.assert_allclose(coarse, fine[:, 1::3], atol=2e-5)
