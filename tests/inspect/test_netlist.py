"""Cells as netlists, run by ngspice against the cells themselves."""

import numpy as np
import pytest
import torch
from ngspice import alternating, measured, needs_ngspice, operating_point, run

from chonn_ops import (
    CHONNNetwork2d,
    Circuit,
    Dirichlet,
    FiniteVolumes,
    Graph,
    Grid,
    KirchhoffCell,
    Network,
    NetworkCell,
    NonlinearCircuit,
    Scan,
    laws,
    to_netlist,
)
from chonn_ops.nn import CircuitHead


def scan_cell(seed=0, boundary="matched", directions="raster", **options):
    """A cell whose projections and decays are off their initial values."""
    torch.manual_seed(seed)
    scan = Scan(d_state=4, directions=directions, **options)
    cell = KirchhoffCell(3, scan, boundary=boundary)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return cell.double()


def network_cell(axes=2, walls="robin", **options):
    torch.manual_seed(0)
    network = Network(num_networks=2, tol=1e-9, **options)
    return NetworkCell(3, axes, network, boundary=walls).double()


def features(*grid):
    return torch.randn(1, *grid, 3, dtype=torch.float64)


def relative(found, expected):
    return np.abs(np.subtract(found, expected)).max() / np.abs(expected).max()


def hurried(cell, u):
    """Some positions take hardly any time."""
    u.mul_(4)
    cell.dt_proj.weight.mul_(20)
    steps = cell.coefficients(u)[0][0, :, 0]
    assert steps.min() < 1e-12 * steps.mean()


def active(cell, _):
    """Decays of either sign: resistors of negative resistance."""
    cell.decay_param[1, 0] = -0.2


TRANSIENTS = [
    *(({"boundary": x}, 40, c, None) for x in ("matched", "periodic") for c in (0, 2)),
    *(
        ({"seed": 1, "boundary": x, "directions": "axial"}, 25, 1, None)
        for x in ("matched", "neumann", "dirichlet")
    ),
    ({"seed": 3}, 30, 0, hurried),
    ({"seed": 2, "constrained": False}, 20, 1, active),
]


@needs_ngspice
@pytest.mark.parametrize(("options", "length", "channel", "change"), TRANSIENTS)
def test_transient_is_the_cells_output(options, length, channel, change, tmp_path):
    """Both ways average to it."""
    cell, u = scan_cell(**options), features(length)
    with torch.no_grad():
        if change:
            change(cell, u)
        y = cell(u)[0, :, channel].numpy()
    ways = (False, True) if "directions" in options else (False,)
    netlists = (to_netlist(cell, u, channel=channel, reverse=way) for way in ways)
    found = [measured(run(netlist, tmp_path), "y") for netlist in netlists]
    assert {len(x) for x in found} == {length}
    assert relative(np.add(found[0], found[-1][:: 1 if len(found) == 1 else -1]) / 2, y) < 1e-4


def head(**options):
    torch.manual_seed(0)
    made = CircuitHead(3, 2, 2, **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        made.cell.zero_()  # else the output is not the potential alone
    return made


HOLE = torch.ones(5, 6, dtype=torch.bool)
HOLE[1:3, 2:4] = False
MESH = FiniteVolumes.from_cells(
    [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.5, 0.5)],
    [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)],
)
SPACED, RINGS = {"spacing": [0.1, 0.3]}, {"walls": ("periodic", "matched")}
WALLS = {"walls": ("neumann", "dirichlet"), "nodes": "left"}
# What is made of which options, the grid, options of the call; ngspice prints six digits.
OPERATING_POINTS = {
    "a line": (network_cell, {"axes": 1}, (7,), {}, 1e-6),
    "a volume": (network_cell, {"axes": 3}, (3, 4, 2), {}, 1e-6),
    "rings": (network_cell, RINGS, (5, 6), SPACED, 1e-6),
    "walls": (network_cell, WALLS, (5, 6), SPACED, 1e-6),
    "fixed": (network_cell, {"selective": False}, (5, 6), SPACED, 1e-6),
    "a hole": (network_cell, {}, (5, 6), {"mask": HOLE}, 1e-6),
    "a mesh": (network_cell, {}, (5,), {"volumes": MESH}, 5e-6),
    "a head": (head, {"inner": Dirichlet(7.0)}, (5, 6), {"mask": HOLE}, 1e-5),
}


@needs_ngspice
@pytest.mark.parametrize("case", OPERATING_POINTS)
def test_operating_point_is_the_cells_output(case, tmp_path):
    build, made, grid, options, close = OPERATING_POINTS[case]
    cell, u, mask = build(**made), features(*grid), options.get("mask", torch.ones(grid))
    with torch.no_grad():
        v = cell(u, **options)[0, mask.bool()].numpy()
    found = operating_point(run(to_netlist(cell, u, **options), tmp_path))
    nodes = ["_".join(map(str, p)) for p in mask.nonzero().tolist()]
    there = {name for name in found if name.startswith("n0_") and name != "n0_ground"}
    assert there == {f"n0_{node}" for node in nodes}
    ours = [[found[f"n{c}_{node}"] for c in range(2)] for node in nodes]
    assert relative(ours, v) < close


@needs_ngspice
def test_operating_point_is_a_trained_models_output(tmp_path):
    """16 x 16 nodes of a model trained on Darcy flow, to 1e-5."""
    model, calls = CHONNNetwork2d.from_pretrained("darcy-small"), []
    model.head.register_forward_pre_hook(lambda _, inputs: calls.append(inputs[0]))
    with torch.no_grad():
        model.head.cell.zero_()  # else the output is not the potential alone
        torch.manual_seed(0)
        permeability = torch.where(torch.rand(1, 1, 16, 16) > 0.5, 1.0, 0.1)
        pressure = model(permeability)[0, 0].numpy()
    found = operating_point(run(to_netlist(model.head, *calls), tmp_path))
    ours = [[found[f"n0_{i}_{j}"] for j in range(16)] for i in range(16)]
    assert relative(ours, pressure) < 1e-5


def test_one_spacing_stands_for_all_axes():
    cell, u = network_cell(), features(5, 6)
    assert to_netlist(cell, u, spacing=0.1) == to_netlist(cell, u, spacing=[0.1, 0.1])


def ac_head(boundary="robin", seed=0):
    """A head at a frequency whose leaks have both signs."""
    torch.manual_seed(seed)
    head = CircuitHead(3, 2, 4, ac=True, boundary=boundary).double()
    with torch.no_grad():
        for layer in (head.conductivity, head.leak, head.source):
            layer.weight.normal_()
        head.absorption.copy_(torch.tensor([300.0, 300, 300, 300, 9, 9]))
    return head


@needs_ngspice
@pytest.mark.parametrize("boundary", ["robin", "matched", "periodic"])
def test_a_head_at_a_frequency(boundary, tmp_path):
    cell, u = ac_head(boundary), features(6, 5)
    with torch.no_grad():
        real, imaginary = cell(u)[0].unflatten(-1, (2, 2)).unbind(-1)
        leak = cell.coefficients(u)[1]
    assert leak.real.min() < 0 < leak.real.max()
    for omega in (None, 3.0):
        found = alternating(run(to_netlist(cell, u, omega=omega), tmp_path))
        assert len(found) == 60
        for (i, j, c), value in np.ndenumerate(torch.complex(real, -imaginary).numpy()):
            # Conductances are unitless: a circuit at another frequency has other elements, and the
            # same potentials.
            assert abs(found[f"n{c}_{i}_{j}"] - value) < 1e-4 * real.abs().max()


def uniform(*shape, dtype=torch.float64):
    parts = torch.rand(2, *shape, dtype=torch.float64) + 0.1
    return torch.complex(*(2 * parts - 1)) if dtype.is_complex else parts[0]


def circuit_of(kind, dtype):
    torch.manual_seed(0)
    if kind == "graph":
        graph = Graph([(0, 1), (1, 2), (3, 2), (3, 0), (0, 2), (3, 4)], 5)
        return Circuit(uniform(1, 6, 2, dtype=dtype), uniform(1, 5, 2, dtype=dtype), graph)
    g = [uniform(1, 2, 4, 2, dtype=dtype) for _ in range(2)]
    return Circuit(g, uniform(1, 2, 4, 2, dtype=dtype), Grid((2, 4), True), volume=0.3)


def graph():
    return circuit_of("graph", torch.float64)


LINE, FIELD = torch.zeros(1, 5, 3), torch.zeros(1, 4, 4, 3)
NODES = torch.ones(1, 5, 2)


@pytest.mark.parametrize(
    ("cell", "u", "options", "message"),
    [
        (scan_cell, FIELD, {}, r"u: expected shape \(1, L, 3\), got"),
        (scan_cell, LINE, {"channel": 3}, "channel: expected 0 to 2, got 3"),
        (scan_cell, LINE, {"reverse": True}, "scans forward only"),
        (scan_cell, LINE, {"spacing": [1.0]}, "spacing, mask, volumes, omega: expected None"),
        (scan_cell, LINE, {"omega": 1.0}, "spacing, mask, volumes, omega: expected None"),
        (network_cell, LINE, {}, r"u: expected shape \(1, H, W, 3\), got"),
        (network_cell, FIELD.expand(2, -1, -1, -1), {}, r"\(2, 4, 4, 3\)"),
        (network_cell, FIELD, {"channel": 0}, "channel, reverse: expected None and False"),
        (network_cell, FIELD, {"spacing": [1.0]}, "spacing: expected a number > 0, or 2 of them"),
        (network_cell, FIELD, {"omega": 1.0}, "omega: expected None without ac=True"),
        (ac_head, FIELD, {"omega": 0.0}, "omega: expected a finite number > 0, got 0"),
        (graph, torch.ones(1, 5, 1), {}, r"u: .* a channel, and one source, \(1, 5, 2\)"),
        (graph, torch.ones(1, 3, 5, 2), {}, "u: expected one network a channel, and one source"),
        (graph, NODES, {"omega": 1.0}, "omega: expected None without complex numbers, got"),
        (graph, NODES, {"channel": 0}, "expected None and False for a Circuit"),
        (graph, NODES, {"spacing": 1.0}, "expected None and False for a Circuit"),
    ],
)
def test_bad_arguments(cell, u, options, message):
    with pytest.raises(ValueError, match=message):
        to_netlist(cell(), u.double(), **options)


def test_other_modules_are_refused():
    with pytest.raises(TypeError, match="KirchhoffCell, NetworkCell, CircuitHead or Circuit"):
        to_netlist(torch.nn.Linear(3, 3), LINE)


@needs_ngspice
@pytest.mark.parametrize("kind", ["torus", "graph"])
@pytest.mark.parametrize("history", ["plain", "held", "merged"])
@pytest.mark.parametrize("numbers", ["real", "complex", "complex source"])
def test_circuits(kind, history, numbers, tmp_path):
    """Potentials of both networks, and the currents into what holds nodes."""
    dtype = torch.complex128 if numbers == "complex" else torch.float64
    circuit = circuit_of(kind, dtype)
    nodes = torch.zeros(circuit.leak.shape, dtype=torch.bool)
    if history == "held":
        nodes[0, 1], nodes[0, 0, ..., 1] = True, True
        circuit = circuit.hold(nodes, uniform(*nodes.shape, dtype=dtype))
    elif history == "merged":
        labels = (torch.arange(nodes[0, ..., 0].numel()) < 3).long().reshape(nodes.shape[1:-1])
        circuit, _ = circuit.merge(labels)
    shape = circuit.leak.shape
    source = uniform(*shape, dtype=torch.complex128 if numbers == "complex source" else dtype)
    v = circuit.solve(source)
    walls = circuit.currents(v).walls
    for omega in (None, 3.0) if v.is_complex() else (None,):
        printed = run(to_netlist(circuit, source, omega=omega), tmp_path)
        found = alternating(printed) if v.is_complex() else operating_point(printed)
        for (_, *place, c), value in np.ndenumerate(v.conj().resolve_conj().numpy()):
            name = f"n{c}_" + "_".join(map(str, place))
            assert abs(found[name] - value) < 1e-5 * v.abs().max()
            if history == "held" and not v.is_complex() and nodes[(0, *place, c)]:
                current = walls[(0, *place, c)].item()
                assert found[f"v{name}#branch"] == pytest.approx(current, rel=1e-4)


@needs_ngspice
def test_a_ladder_of_diodes_has_the_voltages_of_ngspice(tmp_path):
    """1 kilohm in series and a diode to ground, five times, fed by 10 mA."""
    thermal = 1.380649e-23 * 300.15 / 1.602176634e-19  # at 27 degrees
    lines = ["* ladder", ".model d d(is=1e-12 n=1.5)", ".options gmin=1e-20 reltol=1e-9"]
    lines += [f"r{i} n{i} n{i + 1} 1k" for i in range(4)] + [f"d{i} n{i} 0 d" for i in range(5)]
    lines += ["i0 0 n0 10m", ".op", ".print op v(n0)", ".end"]
    found = operating_point(run("\n".join(lines) + "\n", tmp_path))
    one, s = torch.ones(1, 5, 1, dtype=torch.float64), torch.zeros(1, 5, 1, dtype=torch.float64)
    s[0, 0] = 1e-2
    circuit = Circuit((1e-3 * one,), 1e-12 * one)
    v = NonlinearCircuit(circuit, leaks=laws.Diode(1.5 * thermal)).solve(s)
    for i, voltage in enumerate(v.flatten().tolist()):
        assert found[f"n{i}"] == pytest.approx(voltage, rel=1e-5)
