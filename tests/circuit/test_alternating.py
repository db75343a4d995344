"""Networks of coils, capacitors and resistors, against closed forms and ngspice."""

import math

import numpy as np
import pytest
from ngspice import alternating, needs_ngspice, run

from chonn_ops.circuit import RLCNetwork, draw_bode
from chonn_ops.circuit.networks import edges_of_grid


def random_network(seed, kind="mixed", n=4):
    """A network of 4 x 4 nodes with every kind of element."""
    rng = np.random.default_rng(seed)
    edges, _ = edges_of_grid([np.ones((n, n))] * 2, [False, True])

    def some(share, low=0.0):
        return np.where(rng.random(len(edges)) < share, rng.random(len(edges)) + low, 0)

    resistance, inductance, elastance = some(0.5), some(0.9, 0.1) + 0.01, some(0.5)
    if kind == "coils":
        resistance, elastance = 0.0, 0 * elastance
    if kind == "capacitors":
        resistance, inductance, elastance = 0.0, 0.0, elastance + 0.5
    with np.errstate(divide="ignore"):
        return RLCNetwork(
            edges,
            resistance,
            inductance,
            1 / elastance,
            leak=0.2 * rng.random(n * n) * (rng.random(n * n) < 0.5),
            leak_capacitance=rng.random(n * n),
            leak_inductance=1 / (rng.random(n * n) * (rng.random(n * n) < 0.5)),
            shape=(n, n),
        )


def sources(network, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(network.nodes) + 1j * rng.standard_normal(network.nodes)


@needs_ngspice
@pytest.mark.parametrize("kind", ["mixed", "coils", "capacitors"])
def test_netlist(kind, tmp_path):
    network = random_network(1, kind)
    s, omega = sources(network), 1.3
    found = alternating(run(network.to_netlist(s, omega), tmp_path))
    v = network.potentials(s, omega).reshape(network.shape)
    assert len(found) == network.nodes
    for (i, j), expected in np.ndenumerate(v.conj()):
        assert abs(found[f"n{i}_{j}"] - expected) < 1e-5 * abs(v).max()


@pytest.mark.parametrize("kind", ["mixed", "coils", "capacitors"])
def test_power_of_the_sources_is_dissipated(kind):
    for seed in range(5):
        network = random_network(seed, kind)
        s = sources(network, seed)
        v = network.potentials(s, 0.7)
        power = network.power(v, 0.7)
        assert power.min() >= 0
        fed = 0.5 * (v.conj() * s).real.sum()
        assert abs(power.sum() - fed) < 1e-12 * (abs(v) * abs(s)).sum()


def test_reciprocity():
    network, omega = random_network(2), np.array([0.3, 1.0, 4.0])
    there, back = network.transfer(omega, 1, 14), network.transfer(omega, 14, 1)
    np.testing.assert_allclose(there, back, rtol=1e-10)
    one, other, both = (network.transfer(omega, *pair) for pair in ((1, 1), (14, 14), (1, 14)))
    between = network.impedance(omega, 1, 14)
    np.testing.assert_allclose(between, one + other - 2 * both, rtol=1e-9)


def test_series_resonance():
    """A branch of R, L and C has the impedance R at 1 / sqrt(L C), and turns from a capacitor into
    a coil there; an engineer's phase rises from -90 to 90 degrees."""
    R, L, C = 0.1, 2.0, 0.5
    branch = RLCNetwork([(0, 1)], R, L, C, leak=[0, 1e3])
    omega = np.array([1e-3, 1.0, 1e3])
    z = branch.impedance(omega, 0, 1)
    expected = R - 1j * omega * L + 1j / (omega * C)
    np.testing.assert_allclose(z, expected, rtol=1e-6)
    modulus, phase = draw_bode(omega, z).axes
    db, degrees = modulus.lines[0].get_ydata(), phase.lines[0].get_ydata()
    assert db[1] == pytest.approx(20 * math.log10(R), abs=1e-4)
    np.testing.assert_allclose(degrees, [-90, 0, 90], atol=0.1)


def test_ladder_cut_off():
    """Beyond 2 / sqrt(L C) a ladder of coils and capacitors passes nothing."""
    n = 40
    edges = [(i, i + 1) for i in range(n - 1)]
    capacitance = np.ones(n)
    leak = np.zeros(n)
    leak[-1] = 1.0  # about the wave impedance
    line = RLCNetwork(edges, inductance=1.0, leak=leak, leak_capacitance=capacitance)
    passed, stopped = abs(line.transfer([0.5, 2.5], 0, n - 1))
    assert passed > 0.3
    assert stopped < 1e-12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": [(0, 3)]}, "edges: expected nodes 0 to 2"),
        ({"edges": [(1, 1)]}, "loop"),
        ({"resistance": -1.0}, "resistance: expected finite numbers >= 0"),
        ({"inductance": [1.0, 2.0]}, r"inductance: expected shape \(1,\)"),
        ({"capacitance": 0.0}, "capacitance: expected numbers > 0"),
        ({"resistance": 0.0}, r"edges: expected an impedance on each, got none on \(0, 1\)"),
        ({"leak": [0.0, -1.0, 0.0]}, "leak: expected finite numbers >= 0"),
    ],
)
def test_errors(change, message):
    good = {"edges": [(0, 1)], "resistance": 1.0, "leak": [1.0, 0.0, 1.0]}
    RLCNetwork(**good)
    with pytest.raises(ValueError, match=message):
        RLCNetwork(**{**good, **change})


def test_resonance_is_an_error():
    branch = RLCNetwork([(0, 1)], inductance=1.0, capacitance=1.0, leak=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"omega: expected no resonance of an edge.*\(0, 1\)"):
        branch.potentials([1, 0], 1.0)
    tank = RLCNetwork([], leak_capacitance=[1.0], leak_inductance=1.0)
    with pytest.raises(ValueError, match="omega: expected a frequency"):
        tank.potentials([1.0], 1.0)
    with pytest.raises(ValueError, match="omega: expected a finite number > 0"):
        tank.potentials([1.0], 0.0)
    with pytest.raises(ValueError, match="source: expected finite numbers"):
        tank.potentials([1.0, 2.0], 2.0)
    with pytest.raises(ValueError, match="omega, response: expected two equal shapes"):
        draw_bode([1.0, 2.0], [1.0])
