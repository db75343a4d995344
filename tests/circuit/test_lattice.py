"""Ladders: closed forms of endless lines, and what they have to do with scans and T1-T4."""

import numpy as np
import pytest

from chonn_ops.circuit import (
    attenuation,
    endless_conductance,
    grid,
    ladder,
    ladder_cell,
    length_scale,
)
from chonn_ops.problems import order1d


def test_a_long_ladder_is_an_endless_one():
    g, leak = 3.0, 0.2
    line = ladder(g, leak, 201)
    v = line.green([100])[:, 0]
    assert v[101:105] / v[100:104] == pytest.approx(np.full(4, attenuation(g, leak)))
    own = 1 / (leak + 2 * endless_conductance(g, leak))
    assert v[100] == pytest.approx(own)
    assert line.effective_resistance(100) == pytest.approx(own)
    # Adding a stage in front of an endless line changes nothing.
    G = endless_conductance(g, leak)
    assert g * (leak + G) / (g + leak + G) == pytest.approx(G)


@pytest.mark.parametrize("leak", [1e-14, 1e-6, 1.0, 1e6])
def test_attenuation_is_that_of_the_characteristic_equation(leak):
    """r + 1 / r = 2 + l / g, without cancellation at small leaks."""
    r = attenuation(1.0, leak)
    assert 0 < r < 1
    assert (1 - r) ** 2 / r == pytest.approx(leak, rel=1e-2 if leak < 1e-12 else 1e-6)
    assert attenuation(2.0, 0) == 1


def test_length_scale_is_where_a_fine_ladder_has_fallen_to_one_over_e():
    h, k, leak = 1e-3, 0.5, 8.0
    falls = -1 / np.log(attenuation(k / h, leak * h))
    assert falls * h == pytest.approx(length_scale(k, leak), rel=1e-4)
    assert length_scale(1.0, 0) == np.inf


def test_two_scans_are_a_ladder():
    g, leak = 2.0, 0.3
    rng = np.random.default_rng(0)
    s = np.zeros(400)
    s[150:250] = rng.standard_normal(100)
    cell = ladder_cell(g, leak)
    forth = cell.run(s)[1]
    back = cell.run(s[::-1])[1][::-1]
    expected = ladder(g, leak, 400).potentials(s)
    np.testing.assert_allclose(forth + back - cell.injection * s, expected, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_ladders_in_series_are_the_order_benchmark(order):
    """(I - tau^2 d_ss)^n y = x: n ladders of conductance tau^2 / h^2 and leak 1, each fed with the
    potentials of the one before. Second order in h, against the Fourier form."""
    errors = []
    for nodes in (128, 256):
        s = np.arange(nodes) / nodes
        x = np.cos(2 * np.pi * s) + 0.5 * np.sin(2 * np.pi * 3 * s)
        ring = ladder((order1d.TAU * nodes) ** 2, 1.0, nodes, ring=True)
        y = x
        for _ in range(order):
            y = ring.potentials(y)
        target = order1d.targets(x)[order - 1]
        errors.append(np.linalg.norm(y - target) / np.linalg.norm(target))
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.02)


def test_transfer_of_a_ring_is_the_papers_in_every_mode():
    """A ring of second differences divides mode m by 1 + tau^2 (2 sin(pi m h) / h)^2."""
    nodes, tau = 32, 0.08
    ring = ladder((tau * nodes) ** 2, 1.0, nodes, ring=True)
    m = np.arange(nodes // 2 + 1)
    symbol = 1 / (1 + (tau * 2 * nodes * np.sin(np.pi * m / nodes)) ** 2)
    response = np.fft.rfft(ring.green([0])[:, 0])
    np.testing.assert_allclose(response, symbol, atol=1e-12)


def test_short_and_closed_lines():
    assert grid([np.ones(1)], np.ones(1), ring=True).edges.shape == (0, 2)
    two = ladder(1.0, 1.0, 2, ring=True)  # both edges join the same nodes
    assert two.matrix().toarray().tolist() == [[3, -2], [-2, 3]]
