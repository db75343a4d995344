"""Networks of coils, capacitors and resistors, against closed forms and ngspice."""

import math

import numpy as np
import pytest
from ngspice import alternating, needs_ngspice, run

from chonn_ops.inspect import RLCNetwork, draw_bode
from chonn_ops.inspect.networks import edges_of_grid


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


def test_what_rounding_decides_is_an_error():
    """At a resonance that is no floating-point number, and for parts without leak, potentials were
    of order 1e15."""
    tank = RLCNetwork([], leak_capacitance=[0.3], leak_inductance=0.7)
    n = 30
    edges = [(i, i + 1) for i in range(n - 1)]
    ladder = RLCNetwork(edges, inductance=1.3, leak_capacitance=np.full(n, 0.7))
    mode = 2 * math.sin(math.pi * 7 / (2 * n)) / math.sqrt(1.3 * 0.7)
    floating = RLCNetwork([(0, 1), (1, 2)], 0.3, 0.7, leak=[0.0, 0.0, 0.0])
    for network, omega in ((tank, 1 / math.sqrt(0.21)), (ladder, mode), (floating, 1.3)):
        with pytest.raises(ValueError, match="in resonance or has a part without leak"):
            network.potentials(np.eye(network.nodes)[0], omega)
        with pytest.raises(ValueError, match="in resonance or has a part without leak"):
            network.potentials(np.eye(network.nodes)[:, :1], omega)
    near = ladder.transfer([mode * (1 + 1e-9)], 0, 0)[0]
    assert near == pytest.approx(10 * ladder.transfer([mode * (1 + 1e-8)], 0, 0)[0], rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": [0, 1, 2]}, r"edges: expected integers of shape \(E, 2\), got int64, \(3,\)"),
        ({"edges": [(0.5, 1)]}, r"edges: expected integers of shape \(E, 2\), got float64"),
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.transfer([1.0], 3, 0), "p: expected a node, 0 to 2, got 3"),
        (lambda x: x.impedance([1.0], 0, -1), "q: expected a node, 0 to 2, got -1"),
        (lambda x: x.transfer("a", 0, 1), r"omega: expected numbers > 0 of shape \(k,\)"),
        (lambda x: x.transfer([[1.0]], 0, 1), r"omega: expected numbers > 0 of shape \(k,\)"),
        (lambda x: x.potentials([1, 0, 0], "1"), "omega: expected a finite number > 0, got 1"),
        (lambda x: x.power([1.0], 1.0), r"v: expected shape \(3,\), got \(1,\)"),
        (lambda x: x.to_netlist([math.nan, 0, 0], 1.0), "source: expected finite numbers"),
        (lambda _: draw_bode([1.0], [math.nan]), "response: expected finite numbers"),
    ],
)
def test_errors_of_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call(RLCNetwork([(0, 1), (1, 2)], 1.0, leak=[1.0, 0.0, 1.0]))


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
