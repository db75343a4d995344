"""Resistor networks: Kirchhoff's law, resistance, Green's function, spectrum, lumping; ladders."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from chonn_ops import diffusion, kirchhoff_network
from chonn_ops.circuit import (
    ResistorNetwork,
    attenuation,
    endless_conductance,
    grid,
    ladder,
    ladder_cell,
    length_scale,
)


def random_network(nodes=9, seed=0, leaks=True):
    """A ring with chords."""
    rng = np.random.default_rng(seed)
    edges = [(p, (p + 1) % nodes) for p in range(nodes)] + [(0, 4), (2, 7), (7, 2)]
    leak = rng.uniform(0, 1, nodes) * (rng.random(nodes) < 0.5) if leaks else np.zeros(nodes)
    return ResistorNetwork(edges, rng.uniform(0.1, 2, len(edges)), leak), rng


def test_potentials_obey_kirchhoff_and_power_balances():
    network, rng = random_network()
    s = rng.standard_normal(9)
    v = network.potentials(s)
    np.testing.assert_allclose(network.excess(v, s), 0, atol=1e-12)
    assert np.abs(network.excess(v + 0.1, s)).max() > 1e-3
    assert network.dissipated_power(v) == pytest.approx(s @ v)
    several = network.potentials(np.stack((s, 2 * s), 1))
    np.testing.assert_allclose(several, np.stack((v, 2 * v), 1))


@pytest.mark.parametrize("periodic", [(False, False), (True, False), (True, True)])
def test_grid_is_the_network_of_the_operator(periodic):
    torch.manual_seed(0)
    source, g0, g1 = torch.rand(3, 1, 5, 7, 1, dtype=torch.float64)
    leak = torch.full_like(source, 0.2)
    v = kirchhoff_network(source, (g0, g1), leak, periodic=periodic, backend="reference")
    fields = [field[0, ..., 0].numpy() for field in (g0, g1)]
    network = grid(fields, leak[0, ..., 0].numpy(), periodic=periodic)
    np.testing.assert_allclose(
        network.potentials(source.numpy().ravel()), v.numpy().ravel(), rtol=1e-10
    )


def test_finite_volumes_of_a_square_are_a_grid():
    """Darcy flow: -div(a grad u) = f, u = 0 at the walls; a constant, against the series."""
    k = torch.ones(1, 32, 32, 1, dtype=torch.float64)
    h = 1 / 32
    g = [field[0, ..., 0].numpy() for field in diffusion(k, h).conductance]
    walls = np.zeros((32, 32))
    for axis in range(2):
        for node in (0, -1):
            np.moveaxis(walls, axis, 0)[node] += 2
    v = grid(g, walls).potentials(np.full(1024, h**2)).reshape(32, 32)
    assert v.max() == pytest.approx(0.07367, rel=3e-3)


def test_effective_resistance():
    series = ResistorNetwork([(0, 1), (1, 2)], [0.5, 0.25], [0, 0, 1.0])
    assert series.effective_resistance(0, 2) == pytest.approx(6)
    assert series.effective_resistance(0) == pytest.approx(7)
    parallel = ResistorNetwork([(0, 1), (0, 1)], [1.0, 3.0], [0, 0])
    assert parallel.effective_resistance(0, 1) == pytest.approx(0.25)
    assert parallel.effective_resistance(1, 1) == 0
    assert parallel.effective_resistance(0) == np.inf
    apart = ResistorNetwork([(0, 1)], [1.0], [0, 0, 1.0])
    assert apart.effective_resistance(0, 2) == np.inf
    assert apart.effective_resistance(0, 1) == pytest.approx(1)
    # Through ground, where both parts have a leak.
    grounded = ResistorNetwork([(0, 1)], [1.0], [0, 0.5, 1.0])
    assert grounded.effective_resistance(0, 2) == pytest.approx(1 + 2 + 1)


def test_resistance_is_a_difference_of_greens_functions():
    network, _ = random_network()
    G = network.green()
    np.testing.assert_allclose(G, G.T, atol=1e-12)
    assert (G >= 0).all()
    np.testing.assert_allclose(network.matrix() @ G, np.eye(9), atol=1e-12)
    np.testing.assert_allclose(network.green([3, 5]), G[:, [3, 5]])
    assert network.effective_resistance(2, 6) == pytest.approx(G[2, 2] + G[6, 6] - 2 * G[2, 6])
    assert network.effective_resistance(2) == pytest.approx(G[2, 2])


def test_fosters_theorem():
    """Conductance times effective resistance, summed over the edges of n joined nodes: n - 1."""
    network, _ = random_network(leaks=False)
    total = sum(
        g * network.effective_resistance(p, q)
        for (p, q), g in zip(network.edges, network.conductance, strict=True)
    )
    assert total == pytest.approx(8)


def test_spectrum_of_a_path_and_of_capacitors():
    n = 6
    path = grid([np.ones(n)], np.full(n, 0.3))
    expected = 0.3 + 4 * np.sin(np.pi * np.arange(n) / (2 * n)) ** 2
    np.testing.assert_allclose(path.spectrum(), expected, atol=1e-12)
    network, rng = random_network()
    C = rng.uniform(0.5, 2, 9)
    rates = np.sort(np.linalg.eigvals(network.matrix().toarray() / C[:, None]).real)
    np.testing.assert_allclose(network.spectrum(C), rates, atol=1e-10)


def test_capacitors_relax_to_the_steady_state():
    """C dv/dt = s - A v, the auxiliary equation of the Darcy data, ends at A v = s."""
    network, rng = random_network()
    s, C, start = rng.standard_normal(9), rng.uniform(0.5, 2, 9), rng.standard_normal(9)
    A = network.matrix().toarray()
    t = np.array([0.0, 0.3, 1.0])
    solved = solve_ivp(
        lambda _, v: (s - A @ v) / C, (0, 1), start, t_eval=t, rtol=1e-9, atol=1e-11
    ).y.T
    np.testing.assert_allclose(network.relax(s, t, C, start), solved, atol=1e-7)
    late = 50 / network.spectrum(C)[0]
    np.testing.assert_allclose(network.relax(s, [late], C)[0], network.potentials(s), atol=1e-9)
    charged = random_network(leaks=False)[0].relax(np.full(9, 2.0), [3.0])
    np.testing.assert_allclose(charged[0], 6.0)  # nothing leaks: the charge stays


@pytest.mark.parametrize("leaks", [True, False])
def test_lumping_is_exact_for_what_is_kept(leaks):
    network, rng = random_network(leaks=leaks)
    keep = [7, 0, 3]
    lumped, gather = network.lump(keep)
    assert (gather >= 0).all()
    for p, q in ((0, 1), (1, 2)):
        assert lumped.effective_resistance(p, q) == pytest.approx(
            network.effective_resistance(keep[p], keep[q])
        )
    if leaks:
        s = rng.standard_normal(9)
        np.testing.assert_allclose(lumped.potentials(gather @ s), network.potentials(s)[keep])
    else:
        assert (lumped.leak == 0).all()
    same, gather = network.lump(range(9))
    np.testing.assert_allclose(same.matrix().toarray(), network.matrix().toarray())
    np.testing.assert_array_equal(gather, np.eye(9))


def test_star_becomes_a_triangle():
    """g_pq = g_p g_q / sum g: the star-mesh transform."""
    g = np.array([1.0, 2.0, 4.0])
    star = ResistorNetwork([(0, 3), (1, 3), (2, 3)], g, np.zeros(4))
    mesh, _ = star.lump([0, 1, 2])
    assert mesh.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    np.testing.assert_allclose(mesh.conductance, np.array([2, 4, 8]) / 7)


def test_bad_networks():
    with pytest.raises(ValueError, match=r"conductance: expected 1, got 2"):
        ResistorNetwork([(0, 1)], [1.0, 2.0], [0, 1])
    with pytest.raises(ValueError, match=r"leak: expected numbers >= 0, got -1.0"):
        ResistorNetwork([(0, 1)], [1.0], [0, -1.0])
    with pytest.raises(ValueError, match=r"edges: expected nodes 0 to 1, got 0, 2"):
        ResistorNetwork([(0, 2)], [1.0], [0, 1])
    with pytest.raises(ValueError, match=r"two different nodes per edge, got a loop"):
        ResistorNetwork([(1, 1)], [1.0], [0, 1])
    with pytest.raises(ValueError, match=r"part without one that contains node 1"):
        ResistorNetwork([(1, 2)], [1.0], [1.0, 0, 0]).potentials(np.ones(3))
    with pytest.raises(ValueError, match=r"source: expected shape \(2,\)"):
        ResistorNetwork([(0, 1)], [1.0], [0, 1]).potentials(np.ones(3))
    with pytest.raises(ValueError, match=r"keep: expected different nodes of 0 to 1, got \[0, 0\]"):
        ResistorNetwork([(0, 1)], [1.0], [0, 1]).lump([0, 0])
    with pytest.raises(ValueError, match=r"keep: .*got a part with neither"):
        ResistorNetwork([(1, 2)], [1.0], [1.0, 0, 0]).lump([0])
    with pytest.raises(ValueError, match=r"conductance\[0\]: expected shape \(3,\), got \(2,\)"):
        grid([np.ones(2)], np.ones(3))
    with pytest.raises(ValueError, match=r"read-only"):
        ResistorNetwork([(0, 1)], [1.0], [0, 1]).leak[0] = 1


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
    errors, tau = [], 0.08
    for nodes in (128, 256):
        k = 2 * np.pi * np.arange(nodes // 2 + 1)
        s = np.arange(nodes) / nodes
        x = np.cos(2 * np.pi * s) + 0.5 * np.sin(2 * np.pi * 3 * s)
        ring = ladder((tau * nodes) ** 2, 1.0, nodes, periodic=True)
        y = x
        for _ in range(order):
            y = ring.potentials(y)
        target = np.fft.irfft(np.fft.rfft(x) / (1 + (tau * k) ** 2) ** order, nodes)
        errors.append(np.linalg.norm(y - target) / np.linalg.norm(target))
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.02)


def test_transfer_of_a_ring_is_the_papers_in_every_mode():
    """A ring of second differences divides mode m by 1 + tau^2 (2 sin(pi m h) / h)^2."""
    nodes, tau = 32, 0.08
    ring = ladder((tau * nodes) ** 2, 1.0, nodes, periodic=True)
    m = np.arange(nodes // 2 + 1)
    symbol = 1 / (1 + (tau * 2 * nodes * np.sin(np.pi * m / nodes)) ** 2)
    response = np.fft.rfft(ring.green([0])[:, 0])
    np.testing.assert_allclose(response, symbol, atol=1e-12)


def test_short_and_closed_lines():
    assert grid([np.ones(1)], np.ones(1), periodic=True).edges.shape == (0, 2)
    two = ladder(1.0, 1.0, 2, periodic=True)  # both edges join the same nodes
    assert two.matrix().toarray().tolist() == [[3, -2], [-2, 3]]
