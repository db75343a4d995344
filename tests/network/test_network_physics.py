"""The laws of circuits, each a test: on every backend, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from network_cases import BACKENDS, make_network, net_current, network_with_walls

from chonn_ops import Auto

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
EACH_BOUNDARY = pytest.mark.parametrize(
    "boundary", ["neumann", "dirichlet", "periodic", "matched", ("periodic", "dirichlet")], ids=str
)


@pytest.fixture
def solve(backend):
    def solve(source, conductance, leak, **options):
        options = {"solver": Auto(1e-13), "backend": backend} | options
        return network_with_walls(source, conductance, leak, **options)

    return solve


def _line(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(1, -1, 1)


@pytest.mark.parametrize("grid", [(50,), (11, 14), (4, 5, 6)], ids=str)
@pytest.mark.parametrize("periodic", [False, True], ids=["neumann", "periodic"])
def test_kirchhoffs_current_law_at_every_node(solve, grid, periodic):
    source, conductance, leak = make_network(grid, contrast=1e4)
    v = solve(source, conductance, leak, boundary="periodic" if periodic else "neumann")
    current = net_current(v, conductance, leak, (periodic,) * len(grid))
    torch.testing.assert_close(current, source, rtol=1e-9, atol=1e-9)


def test_ohms_law_between_two_nodes(solve):
    """A current I through a resistor R drops I R; the second node is held at I / l."""
    v = solve(_line(3.0, 0.0), (_line(0.5, 0.0),), _line(0.0, 4.0)).flatten()
    torch.testing.assert_close(v[0] - v[1], torch.tensor(3.0 / 0.5, dtype=torch.float64))
    torch.testing.assert_close(v[1], torch.tensor(3.0 / 4.0, dtype=torch.float64))


@EACH_BOUNDARY
def test_superposition(solve, boundary):
    (one, g, leak), (two, _, _) = make_network((7, 8)), make_network((7, 8), seed=1)
    both = solve(2 * one - 3 * two, g, leak, boundary=boundary)
    apart = 2 * solve(one, g, leak, boundary=boundary) - 3 * solve(two, g, leak, boundary=boundary)
    torch.testing.assert_close(both, apart, rtol=1e-9, atol=1e-9)


@EACH_BOUNDARY
def test_the_power_fed_in_is_dissipated(solve, boundary):
    """s . v = sum of g (v_p - v_q)^2 + l v^2: nothing else takes power, nothing gives any."""
    source, conductance, leak = make_network((7, 6))
    v = solve(source, conductance, leak, boundary=boundary)
    fed = (source * v).sum((1, 2))
    assert (fed > 0).all()
    if boundary not in ("neumann", "periodic"):
        return  # the ends dissipate, too
    dissipated = (leak * v**2).sum((1, 2))
    for axis, g in enumerate(conductance):
        power = g * (v - v.roll(-1, axis + 1)) ** 2
        n = v.shape[axis + 1]
        used = n if boundary == "periodic" else n - 1
        dissipated += power.narrow(axis + 1, 0, used).sum((1, 2))
    torch.testing.assert_close(fed, dissipated, rtol=1e-10, atol=0)


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


def test_conductances_in_series(solve):
    """A chain of resistors between two nodes is one, of the sum of their resistances."""
    ohms = torch.tensor([1.0, 4.0, 0.5, 10.0], dtype=torch.float64)
    g = torch.cat([1 / ohms, torch.zeros(1)]).reshape(1, 5, 1)
    chain = solve(_line(2.0, 0, 0, 0, 0), (g,), _line(0, 0, 0, 0, 1.0)).flatten()
    one = solve(_line(2.0, 0), (_line(1 / ohms.sum().item(), 0),), _line(0, 1.0)).flatten()
    torch.testing.assert_close(chain[[0, -1]], one, rtol=1e-10, atol=0)


def test_conductances_in_parallel(solve):
    """Rungs between two rails that conduct like wires are one edge of their sum."""
    rungs = torch.tensor([1.0, 0.25, 3.0], dtype=torch.float64)
    along = torch.zeros(1, 2, 3, 1, dtype=torch.float64)
    along[0, 0, :, 0] = rungs
    wire = torch.full((1, 2, 3, 1), 1e9, dtype=torch.float64)
    source, leak = torch.zeros_like(along), torch.zeros_like(along)
    source[0, 0, 0], leak[0, 1, 2] = 2.0, 1.0
    rails = solve(source, (along, wire), leak, solver=Auto(1e-12)).flatten()
    one = solve(_line(2.0, 0), (_line(rungs.sum().item(), 0),), _line(0, 1.0)).flatten()
    torch.testing.assert_close(rails[[0, 5]], one, rtol=1e-6, atol=0)


def test_a_ring_of_two_has_two_edges_in_parallel(solve):
    periodic = solve(_line(1.0, 0), (_line(0.7, 0.4),), _line(0, 1.0), boundary="periodic")
    one = solve(_line(1.0, 0), (_line(1.1, 0),), _line(0, 1.0))
    torch.testing.assert_close(periodic, one)


def test_a_ring_of_one_has_no_edge(solve):
    v = solve(_line(1.0), (_line(0.7),), _line(0.5), boundary="periodic")
    torch.testing.assert_close(v, _line(2.0))


def test_axes_are_alike(solve):
    """The same network turned: a grid has no preferred axis."""
    source, (g0, g1, g2), leak = make_network((3, 4, 5))
    v = solve(source, (g0, g1, g2), leak, boundary=("periodic", "dirichlet", "matched"))
    turned = [x.permute(0, 3, 1, 2, 4) for x in (source, g2, g0, g1, leak)]
    boundary = ("matched", "periodic", "dirichlet")
    again = solve(turned[0], turned[1:4], turned[4], boundary=boundary)
    torch.testing.assert_close(again, v.permute(0, 3, 1, 2, 4), rtol=1e-9, atol=1e-10)
