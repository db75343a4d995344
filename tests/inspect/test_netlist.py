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
    Scan,
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


def network_cell(axes=2, **options):
    torch.manual_seed(0)
    return NetworkCell(3, axes, Network(**{"num_networks": 2, "tol": 1e-9, **options})).double()


def features(*grid):
    return torch.randn(1, *grid, 3, dtype=torch.float64)


def relative(found, expected):
    return np.abs(np.subtract(found, expected)).max() / np.abs(expected).max()


@needs_ngspice
@pytest.mark.parametrize("boundary", ["matched", "periodic"])
def test_transient_is_the_cells_output(boundary, tmp_path):
    cell = scan_cell(boundary=boundary)
    u = features(40)
    with torch.no_grad():
        y = cell(u)[0].numpy()
    for channel in (0, 2):
        found = measured(run(to_netlist(cell, u, channel=channel), tmp_path), "y")
        assert len(found) == 40
        assert relative(found, y[:, channel]) < 1e-4


@needs_ngspice
def test_positions_that_take_hardly_any_time(tmp_path):
    cell = scan_cell(3)
    u = 4 * features(30)
    with torch.no_grad():
        cell.dt_proj.weight.mul_(20)
        y = cell(u)[0, :, 0].numpy()
        steps = cell.coefficients(u)[0][0, :, 0]
    assert steps.min() < 1e-12 * steps.mean()
    assert relative(measured(run(to_netlist(cell, u), tmp_path), "y"), y) < 1e-4


@needs_ngspice
@pytest.mark.parametrize("boundary", ["matched", "neumann", "dirichlet"])
def test_both_ways_average_to_the_cells_output(boundary, tmp_path):
    cell = scan_cell(1, boundary, "axial")
    u = features(25)
    with torch.no_grad():
        y = cell(u)[0, :, 1].numpy()
    forth, back = (
        measured(run(to_netlist(cell, u, channel=1, reverse=way), tmp_path), "y")
        for way in (False, True)
    )
    assert relative(np.add(forth, back[::-1]) / 2, y) < 1e-4


@needs_ngspice
def test_active_cell(tmp_path):
    """Decays of either sign: resistors of negative resistance."""
    cell = scan_cell(2, constrained=False)
    with torch.no_grad():
        cell.decay_param[1, 0] = -0.2
        u = features(20)
        y = cell(u)[0, :, 1].numpy()
    assert relative(measured(run(to_netlist(cell, u, channel=1), tmp_path), "y"), y) < 1e-4


def grid_of(found, networks, *grid):
    values = [found[f"n{c}_" + "_".join(map(str, p))] for p in np.ndindex(*grid)
              for c in range(networks)]  # fmt: skip
    return np.reshape(values, (*grid, networks))


@needs_ngspice
def test_operating_point_is_a_trained_models_output(tmp_path):
    """16 x 16 nodes of a model trained on Darcy flow, to 1e-5."""
    model = CHONNNetwork2d.from_pretrained("darcy-small")
    with torch.no_grad():
        model.head.cell.zero_()  # else the output is not the potential alone
        torch.manual_seed(0)
        permeability = torch.where(torch.rand(1, 1, 16, 16) > 0.5, 1.0, 0.1)
        calls = []
        model.head.register_forward_pre_hook(lambda _, inputs: calls.append(inputs[0]))
        pressure = model(permeability)[0, 0, ..., None].numpy()
    (u,) = calls
    found = operating_point(run(to_netlist(model.head, u), tmp_path))
    assert relative(grid_of(found, 1, 16, 16), pressure) < 1e-5


@needs_ngspice
@pytest.mark.parametrize(
    ("boundary", "options"),
    [
        (("periodic", "matched"), {}),
        (("neumann", "dirichlet"), {"nodes": "left"}),
        ("robin", {"selective": False}),
    ],
)
def test_boundaries_of_a_layer(boundary, options, tmp_path):
    torch.manual_seed(0)
    network = Network(num_networks=2, tol=1e-9, **options)
    cell = NetworkCell(3, 2, network, boundary=boundary).double()
    u = features(5, 6)
    with torch.no_grad():
        v = cell(u, [0.1, 0.3])[0].numpy()
    found = operating_point(run(to_netlist(cell, u, spacing=[0.1, 0.3]), tmp_path))
    assert relative(grid_of(found, 2, 5, 6), v) < 1e-6


def test_one_spacing_stands_for_all_axes():
    cell, u = network_cell(), features(5, 6)
    assert to_netlist(cell, u, spacing=0.1) == to_netlist(cell, u, spacing=[0.1, 0.1])


@needs_ngspice
def test_a_layer_on_a_domain_with_a_hole(tmp_path):
    cell = network_cell()
    u = features(5, 6)
    mask = torch.ones(5, 6, dtype=torch.bool)
    mask[1:3, 2:4] = False
    with torch.no_grad():
        v = cell(u, mask=mask)[0].numpy()
    found = operating_point(run(to_netlist(cell, u, mask=mask), tmp_path))
    there = {name for name in found if name.startswith("n0_") and name != "n0_ground"}
    assert len(there) == 26
    assert "n0_1_2" not in found
    full = {f"n{c}_{i}_{j}": 0.0 for c in range(2) for i, j in np.ndindex(5, 6)} | found
    assert relative(grid_of(full, 2, 5, 6), v) < 1e-6


@needs_ngspice
def test_a_head_in_the_unit_of_its_output(tmp_path):
    torch.manual_seed(0)
    head = CircuitHead(3, 2, 2, inner=Dirichlet(7.0)).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        head.cell.zero_()  # else the output is not the potential alone
    u, mask = features(5, 6), torch.ones(5, 6, dtype=torch.bool)
    mask[1:3, 2:4] = False
    with torch.no_grad():
        y = head(u, mask=mask)[0, mask].numpy()
    found = operating_point(run(to_netlist(head, u, mask=mask), tmp_path))
    ours = [[found[f"n{c}_{i}_{j}"] for c in range(2)] for i, j in mask.nonzero().tolist()]
    assert relative(ours, y) < 1e-5


@needs_ngspice
def test_a_layer_on_a_mesh(tmp_path):
    points = torch.tensor([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.5, 0.5)])
    cells = [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)]
    volumes = FiniteVolumes.from_cells(points, cells)
    cell, u = network_cell(), features(5)
    with torch.no_grad():
        v = cell(u, volumes=volumes)[0].numpy()
    found = operating_point(run(to_netlist(cell, u, volumes=volumes), tmp_path))
    assert relative(grid_of(found, 2, 5), v) < 5e-6  # ngspice prints six digits


@needs_ngspice
def test_a_line_and_a_volume(tmp_path):
    for grid in ((7,), (3, 4, 2)):
        cell, u = network_cell(len(grid), num_networks=1), features(*grid)
        with torch.no_grad():
            v = cell(u)[0].numpy()
        found = operating_point(run(to_netlist(cell, u), tmp_path))
        assert relative(grid_of(found, 1, *grid), v) < 1e-6


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


LINE, FIELD = torch.zeros(1, 5, 3), torch.zeros(1, 4, 4, 3)


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
    ],
)
def test_bad_arguments(cell, u, options, message):
    with pytest.raises(ValueError, match=message):
        to_netlist(cell(), u.double(), **options)


def test_other_modules_are_refused():
    with pytest.raises(TypeError, match="KirchhoffCell, NetworkCell, CircuitHead or Circuit"):
        to_netlist(torch.nn.Linear(3, 3), LINE)


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


@pytest.mark.parametrize(
    ("u", "options", "message"),
    [
        (
            torch.ones(1, 5, 1),
            {},
            r"u: expected one network a channel, and one source, \(1, 5, 2\)",
        ),
        (torch.ones(1, 3, 5, 2), {}, r"u: expected one network a channel, and one source"),
        (torch.ones(1, 5, 2), {"omega": 1.0}, "omega: expected None without complex numbers, got"),
        (torch.ones(1, 5, 2), {"channel": 0}, "expected None and False for a Circuit"),
        (torch.ones(1, 5, 2), {"spacing": 1.0}, "expected None and False for a Circuit"),
    ],
)
def test_bad_arguments_of_circuits(u, options, message):
    with pytest.raises(ValueError, match=message):
        to_netlist(circuit_of("graph", torch.float64), u, **options)
