"""Netlists of cascades and resistor networks, run by ngspice."""

import numpy as np
import pytest
from ngspice import measured, needs_ngspice, operating_point, run
from scipy import signal

from chonn_ops.inspect import Cascade, RCCell, ResistorNetwork, RLCNetwork, grid


def cascade_of(stages):
    rng = np.random.default_rng(stages)
    return Cascade(RCCell(*rng.uniform(0.3, 3, 3), *rng.uniform(-2, 2, 3)) for _ in range(stages))


@needs_ngspice
@pytest.mark.parametrize("stages", [1, 3, 6])
def test_transient_of_a_cascade(stages, tmp_path):
    cascade, step = cascade_of(stages), 0.2
    u = signal.chirp(np.arange(40), 0.01, 40, 0.3)
    printed = run(cascade.to_netlist(u, step), tmp_path)
    t = step * np.arange(len(u) + 1)
    system = cascade.to_scipy()
    _, _, states = signal.lsim(system, np.append(u, u[-1]), t, interp=False)
    expected = states.reshape(len(t), -1)[1:] @ system.C[0] + system.D[0, 0] * u
    error = np.abs(np.subtract(measured(printed, f"y{stages}"), expected)).max()
    assert error < 1e-4 * np.abs(expected).max()
    # The first stage is the discrete cell's, exactly.
    np.testing.assert_allclose(
        measured(printed, "y1"), cascade.zoh(step).run(u)[0], atol=1e-4 * np.abs(u).max()
    )


@needs_ngspice
def test_frequency_sweep_of_a_cascade(tmp_path):
    cascade = cascade_of(2)
    rows = [line.split() for line in run(cascade.to_netlist(), tmp_path).splitlines()]
    table = np.array(
        [[float(x) for x in row] for row in rows if len(row) == 4 and row[0].isdigit()]
    )
    assert len(table) > 50
    expected = cascade.transfer().frequency_response(2 * np.pi * table[:, 1])
    np.testing.assert_allclose(table[:, 2] * np.exp(1j * table[:, 3]), expected, atol=1e-5)


@needs_ngspice
def test_operating_point_of_a_network(tmp_path):
    rng = np.random.default_rng(0)
    conductance = rng.uniform(0.1, 10, (2, 5, 4))
    conductance[0, 2] = 0  # two parts
    network = grid(list(conductance), rng.uniform(0, 1, (5, 4)), periodic=(False, True))
    source = rng.standard_normal(20)
    found = operating_point(run(network.to_netlist(source), tmp_path))
    v = network.potentials(source)
    ours = [found[f"n{i}_{j}"] for i, j in np.ndindex(5, 4)]
    np.testing.assert_allclose(ours, v, atol=1e-6 * np.abs(v).max())
    # All that is fed in returns through the probe.
    assert found["vnground#branch"] == pytest.approx(source.sum(), abs=1e-5)


def test_text_of_a_small_network():
    network = ResistorNetwork([(0, 1)], [0.5], [0, 0.25, 0])
    assert network.to_netlist([1.0, 0.0, 3.0], "two\nnodes").splitlines() == [
        "two nodes",
        "Rn0_n1 n0 n1 2.0",
        "In0 0 n0 1.0",
        "Rn1 n1 nground 4.0",
        "In1 0 n1 0.0",
        "Vnground nground 0 0",
        ".op",
        ".end",
    ]


def test_text_of_a_cell():
    text = Cascade([RCCell(2.0, 0.5, 0.0, 3.0, 4.0, -1.0)]).to_netlist([1.0, 2.0], 1.0, "cell")
    elements = text[: text.index(".options")].replace("\n+ ", " ").splitlines()
    assert elements == [
        "cell",
        "Vu u 0 PWL(0 1.0 1.0 1.0 1.00001 2.0 2.0 2.0)",
        "* stage 1",
        "C1 v1 0 2.0 IC=0",
        "Rleak1 v1 0 2.0",
        "G1 0 v1 u 0 3.0",
        "Ev1 y1 skip1 v1 0 4.0",
        "Eu1 skip1 0 u 0 -1.0",
    ]


def test_bad_arguments():
    cascade = cascade_of(1)
    with pytest.raises(ValueError, match=r"u, step: expected both or neither, got one"):
        cascade.to_netlist([1.0])
    with pytest.raises(ValueError, match=r"u: expected at least one sample"):
        cascade.to_netlist([], 1.0)
    with pytest.raises(ValueError, match=r"u: expected finite numbers"):
        cascade.to_netlist([np.nan], 1.0)
    with pytest.raises(ValueError, match=r"source: expected shape \(2,\), got \(3,\)"):
        ResistorNetwork([(0, 1)], [1.0], [0, 1]).to_netlist(np.ones(3))


def test_parallel_edges_have_names_of_their_own():
    """Two elements of one name are one to SPICE, and two series of parts shared their nodes."""
    edges, leak, source = [(0, 1), (0, 1), (1, 0)], np.ones(2), np.array([1.0, 0.0])
    resistors = ResistorNetwork(edges, np.ones(3), leak)
    coils = RLCNetwork(edges, 1.0, 1.0, leak=leak)
    for text, elements in (
        (resistors.to_netlist(source), 5),
        (coils.to_netlist(source, omega=1.0), 8),
    ):
        names = [line.split()[0] for line in text.splitlines()[1:] if line[0] in "RL"]
        assert len(set(names)) == len(names) == elements
    inner = {line.split()[2] for line in text.splitlines() if line.startswith("Rn") and "_" in line}
    assert len(inner) == 3
