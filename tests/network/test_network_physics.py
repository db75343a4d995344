"""The laws of Kirchhoff and Ohm at every node, from which superposition, power and resistors in
series and in parallel follow; ladders and matched ends: on every backend, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from network_cases import BACKENDS, make_network, net_current, network_with_walls

from chonn_ops import Auto

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture
def solve(backend):
    def solve(source, conductance, leak, **options):
        options = {"solver": Auto(1e-13), "backend": backend} | options
        return network_with_walls(source, conductance, leak, **options)

    return solve


@pytest.mark.parametrize("grid", [(1,), (2,), (50,), (11, 14), (4, 5, 6)], ids=str)
@pytest.mark.parametrize("periodic", [False, True], ids=["neumann", "periodic"])
def test_kirchhoffs_current_law_at_every_node(solve, grid, periodic):
    source, conductance, leak = make_network(grid, contrast=1e4)
    v = solve(source, conductance, leak, boundary="periodic" if periodic else "neumann")
    current = net_current(v, conductance, leak, (periodic,) * len(grid))
    torch.testing.assert_close(current, source, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 9, 64])
def test_a_resistor_ladder_equals_its_closed_form(solve, n):
    """Equal edges g and leaks l, a current into the first node: v_k is a hyperbolic cosine."""
    g, leak = 2.0, 0.3
    fields = [torch.full((1, n, 1), x, dtype=torch.float64) for x in (g, leak)]
    source = torch.zeros(1, n, 1, dtype=torch.float64)
    source[0, 0] = 1
    v = solve(source, (fields[0],), fields[1]).flatten()
    # v_k = a cosh(t (n - 1/2 - k)) has no current out of the last node, g (v_n - v_{n-1}) = 0.
    t = math.acosh(1 + leak / (2 * g))
    k = torch.arange(n, dtype=torch.float64)
    shape = torch.cosh(t * (n - 0.5 - k))
    torch.testing.assert_close(v, shape / (leak * shape.sum()), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 12])
def test_matched_equals_a_line_ten_times_as_long(solve, n):
    source, (g,), leak = make_network((n,), contrast=4.0)
    v = solve(source, (g,), leak, boundary="matched")
    # The same edge and leak go on at either end: 10 n and more nodes, at rest far out.
    pad = max(5 * n, 100)
    edge, more = g[:, : max(n - 1, 1)], [(leak[:, :1], g[:, :1])]
    more.append((leak[:, -1:], edge[:, -1:]))
    (low_leak, low_g), (high_leak, high_g) = (
        (a.expand(2, pad, 3), b.expand(2, pad, 3)) for a, b in more
    )
    long_g = torch.cat([low_g, edge[:, : n - 1], high_g, high_g[:, :1]], 1)
    long_leak = torch.cat([low_leak, leak, high_leak], 1)
    silent = torch.zeros_like(low_leak)
    long = solve(torch.cat([silent, source, silent], 1), (long_g,), long_leak)
    torch.testing.assert_close(v, long[:, pad : pad + n], rtol=1e-9, atol=1e-10)


def test_matched_without_leak_is_open(solve):
    source, g, leak = make_network((6, 7))
    leak = leak.clone()
    leak[:, 0] = leak[:, -1] = leak[:, :, 0] = leak[:, :, -1] = 0
    matched, opened = (
        solve(source, g, leak, boundary=boundary) for boundary in ("matched", "neumann")
    )
    torch.testing.assert_close(matched, opened, rtol=1e-10, atol=1e-12)
