"""The numbers and fields of a model's circuits."""

import json
import math

import numpy as np
import pytest
import torch

from chonn_ops import (
    CKB,
    CHONNNetwork2d,
    CHONNUNet1d,
    CKBOptions,
    Dirichlet,
    FiniteVolumes,
    KirchhoffCell,
    Network,
    NetworkCell,
    Neumann,
    Robin,
    Scan,
    diffusion,
)
from chonn_ops import read_circuits as read
from chonn_ops.inspect import conductivity_law
from chonn_ops.inspect.reading import SolvedNetworks, compare_conductivity, read_fields
from chonn_ops.nn import CircuitHead


def test_a_trained_network_model():
    """Its medium is the input, at a contrast of ten, and its walls hold one potential."""
    model = CHONNNetwork2d.from_pretrained("darcy-small")
    torch.manual_seed(0)
    x = torch.where(torch.rand(2, 1, 16, 16) > 0.5, 1.0, 0.1)
    found = json.loads(json.dumps(read(model, x)))
    (head,) = found["networks"]
    (circuit,) = head["networks"]
    assert (head["name"], head["grid"]) == ("head", [16, 16])
    assert circuit["conductivity"][4] / circuit["conductivity"][0] == pytest.approx(10, rel=0.02)
    assert all(abs(wall["value"]) < 1e-3 for wall in circuit["walls"])
    assert found["scans"] == []
    assert not any(module._forward_hooks for module in model.modules())


def test_uniform_network_in_closed_form():
    """Constant source and no flux at the boundary: v = s / l everywhere, all power leaks."""
    options = Network(num_networks=1, selective=False, tol=1e-9)
    cell = NetworkCell(2, 2, options, boundary="neumann").double()
    with torch.no_grad():
        cell.source_proj.weight.zero_()
        cell.source_proj.bias.fill_(3.0)
        k, leak, _ = cell.coefficients(torch.zeros(1, 4, 4, 2, dtype=torch.float64))
    entry = read(cell, torch.randn(2, 4, 4, 2, dtype=torch.float64))["networks"][0]
    network = entry["networks"][0]
    leak, k = leak.flatten()[0].item(), k.flatten()[0].item()
    assert network["source"] == [3.0] * 5
    assert network["potential"] == pytest.approx([0.3 / leak] * 5)
    assert network["length_scale"] == pytest.approx([math.sqrt(k / leak) / 16] * 5)
    assert network["leak_share"] == pytest.approx(1)
    # The area is 16 x 16.
    assert network["dissipated_power"] == pytest.approx(256 * leak * (0.3 / leak) ** 2)
    assert entry["effective_rank"] == pytest.approx(1)


@pytest.mark.parametrize("nodes", ["centres", "corners"])
@pytest.mark.parametrize("boundary", [("periodic", "robin"), "dirichlet"])
def test_power_is_what_the_sources_put_in(boundary, nodes):
    """Models pass `nodes` by name: the circuits that are read are those that were solved."""
    torch.manual_seed(0)
    options = Network(num_networks=2, tol=1e-10)
    cell = NetworkCell(3, 2, options, boundary=boundary).double()

    class Model(torch.nn.Sequential):
        def forward(self, x, nodes):
            return self[0](x, nodes=nodes)

    u = torch.randn(1, 6, 5, 3, dtype=torch.float64)
    with torch.no_grad():
        v = cell(u, nodes=nodes)
        circuit, density = cell.assemble(u, nodes=nodes)
        expected = (v * circuit.source(density)).sum((0, 1, 2)).tolist()
    (found,) = read(Model(cell), u, nodes)["networks"]
    assert [n["dissipated_power"] for n in found["networks"]] == pytest.approx(expected)


def test_a_diverged_network_is_null():
    cell = NetworkCell(2, 2, Network(num_networks=1))
    with torch.no_grad():
        cell.source_proj.bias.fill_(float("nan"))
    entry = read(cell, torch.randn(1, 4, 4, 2))["networks"][0]
    json.dumps(entry, allow_nan=False)
    assert entry["effective_rank"] is entry["networks"][0]["dissipated_power"] is None


def test_scan_of_known_rates():
    cell = KirchhoffCell(2, Scan(d_state=3, directions="raster")).double()
    with torch.no_grad():
        cell.dt_proj.weight.zero_()
        cell.dt_proj.bias.fill_(math.log(math.expm1(0.1)))
        cell.decay_param.copy_(torch.log(torch.tensor([0.5, 1.0, 2.0])))
    entry = read(cell, torch.randn(1, 20, 2, dtype=torch.float64))["scans"][0]
    assert entry["positions"] == [20]
    assert [entry["time_constant"][i] for i in (0, 2, 4)] == pytest.approx([5, 10, 20])
    assert [entry["pole"][i] for i in (0, 4)] == pytest.approx([math.exp(-0.2), math.exp(-0.05)])
    assert 2 < entry["effective_order"][0] <= 3
    with torch.no_grad():
        cell.decay_param.zero_()  # three equal states are one
    assert read(cell, torch.randn(1, 20, 2).double())["scans"][0]["effective_order"] == [1.0] * 5


def test_unstable_scan_has_no_order():
    cell = KirchhoffCell(2, Scan(d_state=3, directions="raster", constrained=False))
    with torch.no_grad():
        cell.decay_param[0, 0] = -0.1
    entry = read(cell, torch.randn(1, 5, 2))["scans"][0]
    assert entry["effective_order"] is None
    assert entry["time_constant"][-1] is None
    assert entry["pole"][-1] > 1


def test_stages_and_gates_of_a_block():
    torch.manual_seed(0)
    block = CKB(8, 2, cell="scan", order=3)
    outputs = []
    for cell in block.cells:
        cell.register_forward_hook(lambda _m, _i, out: outputs.append(out.square().mean().item()))
    found = read(block, torch.randn(2, 8, 6, 6))
    share = found["blocks"][0]["stage_share"]
    assert share == pytest.approx([value / sum(outputs) for value in outputs])
    assert len(found["scans"]) == 3
    assert 0 <= found["blocks"][0]["gate_closed"] < 1
    with torch.no_grad():
        block.in_proj.weight[8:] = 0
    assert read(block, torch.randn(2, 8, 6, 6))["blocks"][0]["gate_rms"] == 0


def test_a_host_model_and_one_without_cells():
    model = CHONNUNet1d(1, 1, init_features=4, ckb=CKBOptions("scan", order=2)).eval()
    found = read(model, torch.randn(1, 1, 32))
    assert len(found["scans"]) == 2 * len(found["blocks"]) > 0
    json.dumps(found)
    with pytest.raises(ValueError, match=r"model: expected KirchhoffCells, .* got Linear"):
        read(torch.nn.Linear(2, 2), torch.zeros(1, 2))


def test_correlation_and_variation():
    """A cell whose conductivity is known: that of its first feature."""
    cell = NetworkCell(1, 2, Network(num_networks=2)).double().eval()
    with torch.no_grad():
        cell.conductivity_proj.weight.zero_()
        cell.conductivity_proj.weight[0, 0] = 1.0
        cell.conductivity_bias.fill_(0.5)
    torch.manual_seed(0)
    u = torch.rand(3, 8, 8, 1, dtype=torch.float64)
    k = cell.coefficients(u)[0][..., 0].detach()
    truth = torch.exp(-2 * torch.log(k)).float()
    batches = [((u[:2],), truth[:2]), ((u[2:],), truth[2:])]
    (found,) = compare_conductivity(cell, batches)
    first, second = found["networks"]
    assert first["correlation"] == pytest.approx(-1)
    assert first["samples"] == 3
    inner = k[:, 1:-1, 1:-1].flatten(1)
    variation = (inner.std(1, correction=0) / inner.mean(1)).mean()
    assert first["variation"] == pytest.approx(variation.item())
    assert second["correlation"] is None
    assert second["variation"] < 1e-12
    # Patches: the mean over each of them is what a node can know.
    coarse = NetworkCell(1, 2, Network(num_networks=1))
    u = torch.rand(1, 4, 4, 1)
    truth = torch.rand(1, 8, 8)
    (found,) = compare_conductivity(coarse, [((u,), truth)])
    k = coarse.coefficients(u)[0].detach().flatten().log()
    means = truth.reshape(4, 2, 4, 2).mean((1, 3)).flatten().log()
    r = torch.corrcoef(torch.stack((k, means)))[0, 1].item()
    assert found["networks"][0]["correlation"] == pytest.approx(r, abs=1e-5)
    (found,) = compare_conductivity(coarse, [((u,), torch.rand(1, 9, 8))])
    assert found["networks"][0]["correlation"] is None


def test_only_nodes_that_exist_are_compared():
    cell = NetworkCell(1, 2, Network(num_networks=1))
    u, mask = torch.rand(2, 6, 5, 1), torch.ones(6, 5, dtype=torch.bool)
    mask[2:4, 1:3] = False
    reference = cell.coefficients(u)[0][..., 0].detach().square() * mask
    (found,) = compare_conductivity(cell, [((u,), reference)], mask=mask)
    assert found["networks"][0]["correlation"] == pytest.approx(1)


def test_a_sample_is_compared_alike_in_any_batch():
    """Logarithms are taken of positive references, whatever the other samples are."""
    torch.manual_seed(0)
    cell = NetworkCell(1, 2, Network(num_networks=1))
    u, reference = torch.rand(3, 6, 5, 1), torch.rand(3, 6, 5)
    reference[2, 0, 0] = -1.0
    each = [((u[i : i + 1],), reference[i : i + 1]) for i in range(3)]
    alone, together = (compare_conductivity(cell, x) for x in (each, [((u,), reference)]))
    pairs = zip(alone[0]["networks"], together[0]["networks"], strict=True)
    assert all(a["correlation"] == pytest.approx(b["correlation"]) for a, b in pairs)


def test_currents_run_down_the_potential():
    """A ladder with a source at its start and ground behind its end, no leak to speak of."""
    options = Network(num_networks=1, selective=False, tol=1e-10)
    cell = NetworkCell(1, 1, options, boundary="neumann").double()
    with torch.no_grad():
        cell.source_proj.weight.fill_(10.0)
        cell.leak_param.zero_()
    u = torch.zeros(1, 9, 1, dtype=torch.float64)
    u[0, 0] = 1
    (fields,) = read_fields(cell, u)
    assert (fields.currents[0] > 0).all()
    v = fields.maps["potential"][:, 0]
    slope = -np.gradient(v)[1:-1]
    ratio = fields.currents[0][1:-1, 0] / slope
    assert ratio == pytest.approx(np.full(7, ratio[0]))
    # All that goes in is turned into heat.
    source = 10.0 * 0.1 * 16 / 9
    assert fields.maps["power"].sum() == pytest.approx(source * v[0])


def any_head(**options):
    """A head away from its start, whose output is the potential alone and whose faces have the
    harmonic mean."""
    torch.manual_seed(0)
    head = CircuitHead(3, 2, 2, **options).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        head.cell.zero_()
        head.faces.output.weight.zero_()
        head.mean.fill_(-1 / 4)
        head.absorption.add_(1)
    return head


def test_a_head_at_a_frequency_is_read():
    head, h = any_head(ac=True), torch.randn(2, 7, 6, 3, dtype=torch.float64)
    with torch.no_grad():
        y = head(h)
        solved = SolvedNetworks.of_call(head, y, h)
        v = solved.circuit.solve(solved.density)
    assert torch.allclose(torch.view_as_real(v).flatten(-2), y)
    assert torch.allclose(v, solved.potentials)
    (network,) = json.loads(json.dumps(read(head, h)))["networks"][0]["networks"]
    assert len(network["walls"]) == 4
    assert network["loss"][0] > 0


POINTS = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.5, 0.5), (0.5, 0.0)]
CELLS = [(0, 5, 4), (5, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)]
MESH = FiniteVolumes.from_cells(POINTS, CELLS)


@pytest.mark.parametrize(
    ("boundary", "on"),
    [
        *((((Neumann(flux), "robin"), "robin"), None) for flux in (0.0, 0.3)),
        # Walls that hold nodes.
        *((x, MESH) for x in ("robin", Dirichlet(3.0))),
    ],
)
def test_the_circuit_of_a_head_has_its_output_as_solution(boundary, on):
    head, options = any_head(boundary=boundary), {} if on is None else {"volumes": on}
    h = torch.randn(1, *((5, 4) if on is None else (6,)), 3, dtype=torch.float64)
    with torch.no_grad():
        y = head(h, **options)
        solved = SolvedNetworks.of_call(head, y, h, **options)
        logs, _, _ = head.coefficients(h)
    assert torch.allclose(solved.circuit.solve(solved.density), y, rtol=1e-9)
    if on is None:  # a given flux sets the unit of the conductivity
        ratio = logs[0].exp() / solved.conductivity[0]
        assert torch.allclose(ratio, ratio[:, :1, :1])
        assert torch.allclose(ratio, torch.ones_like(ratio)) == (boundary[0][0].flux != 0)
    else:
        (wall,) = read(head, h, **options)["networks"][0]["networks"][0]["walls"]
        assert wall["wall"] == "boundary"
        assert boundary == "robin" or wall["value"] == 3


@pytest.mark.parametrize("hole", [False, True])
def test_the_equation_of_a_head_has_its_output_as_solution(hole):
    """The equation has the numbers that are read, in the unit of the output."""
    head, h = any_head(), torch.randn(2, 7, 6, 3, dtype=torch.float64)
    mask = torch.ones(7, 6, dtype=torch.bool)
    mask[2:4, 3] = not hole
    options = {"mask": mask} if hole else {}
    with torch.no_grad():
        y = head(h, **options)
        solved = SolvedNetworks.of_call(head, y, h, **options)
    read_off = json.loads(json.dumps(read(head, h, **options)))["networks"][0]["networks"]
    for c, numbers in enumerate(read_off):
        assert numbers["face_mean"] == pytest.approx(-1)
        assert [wall["wall"] for wall in numbers["walls"]][int(hole) :] == [
            f"axis {axis}, {end} face" for axis in (0, 1) for end in ("low", "high")
        ]
        *inner, left, right, low, high = (
            Robin(wall["coefficient"], wall["value"], wall["distance"]) for wall in numbers["walls"]
        )
        k = [x[..., c : c + 1] for x in solved.conductivity]
        leak, f = solved.leak[..., c : c + 1], solved.source[..., c : c + 1]
        options = {"mask": mask, "inner": inner[0]} if hole else {}
        options["boundary"] = (left, right), (low, high)
        circuit = diffusion(k, 2 / 13, absorption=leak, **options)
        v = circuit.solve(torch.where(mask[..., None], f + leak * numbers["ground"], 0))
        assert torch.allclose(v, y[..., c : c + 1], rtol=1e-9)
        median = torch.stack(k)[..., 0][:, :, mask].median().item()
        assert median == pytest.approx(1)
        assert numbers["potential"][0] == pytest.approx(y[..., c][:, mask].min().item())
        assert [x[4] for x in numbers["by_axis"]] == [
            pytest.approx(x[..., 0][:, mask].max().item()) for x in k
        ]


def test_walls_that_drive_a_model_are_those_of_the_data():
    """Plates at 25 and 20 volts, insulated sides, a medium that follows the input."""
    k = torch.exp(torch.randn(12, 4, 4, 1, generator=torch.Generator().manual_seed(0)))
    k = k.repeat_interleave(4, 1).repeat_interleave(4, 2)
    plates = ((Dirichlet(25.0), Dirichlet(20.0)), "neumann")
    u = diffusion(k, 1 / 16, boundary=plates).solve(torch.zeros_like(k))
    x, y = k.movedim(-1, 1), u.movedim(-1, 1)
    torch.manual_seed(0)
    model = CHONNNetwork2d(1, 1)
    model.calibrate(x, y)
    (circuit,) = read(model, x)["networks"][0]["networks"]
    low, high, *sides = circuit["walls"]
    assert low["value"] == pytest.approx(25, abs=0.3)
    assert high["value"] == pytest.approx(20, abs=0.3)
    assert max(low["distance"], high["distance"]) < 0.1 < 100 < min(w["distance"] for w in sides)
    assert abs(circuit["source"][2]) < 0.5  # 5 V over unit length
    assert circuit["conductivity"][2] == pytest.approx(1, abs=0.2)
    law = conductivity_law(model, torch.tensor([[0.1], [1.0], [10.0]]))
    assert torch.allclose(law[:, 0, 0] / law[1, 0, 0], torch.tensor([0.1, 1.0, 10.0]), rtol=0.15)


LAWS = {
    "the medium itself": (torch.exp, lambda x: x),
    "an exponential": (torch.sigmoid, lambda p: torch.exp(3 * p)),
    "Kozeny and Carman's": (lambda x: 0.2 + 0.3 * x.sigmoid(), lambda p: p**3 / (1 - p) ** 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_the_law_of_a_medium_is_read_from_the_weights(name):
    """From media and potentials alone, nothing said of equation, law or walls."""
    medium, law = LAWS[name]
    noise = torch.randn(64, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    x = medium(torch.nn.functional.interpolate(noise, (24, 24), mode="bicubic"))
    k = law(x).movedim(1, -1).double()
    u = diffusion(k, 1 / 24, boundary="dirichlet").solve(torch.ones_like(k))
    y = u.movedim(-1, 1).float()
    torch.manual_seed(0)
    model = CHONNNetwork2d(1, 1)
    model.calibrate(x, y)
    steps, rate = 1000, 0.02
    optimiser = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    for _ in range(steps):
        some = torch.randint(len(x), (8,))
        loss = (model(x[some]) - y[some]).norm() / y[some].norm()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    values = x.flatten().quantile(torch.linspace(0.05, 0.95, 91))[:, None]
    found = conductivity_law(model, values).double()
    ratio = found[..., 0] / law(values).double()
    # One common factor of both axes is free.
    assert ((ratio / ratio.median()).log().abs() < 0.02).all()


def test_a_law_needs_a_trunk_of_each_point():
    model = CHONNNetwork2d(1, 1, trunk=torch.nn.Linear(1, 16))
    with pytest.raises(ValueError, match="model: expected a CHONNNetwork with its own pointwise"):
        conductivity_law(model, torch.ones(5, 1))
    with pytest.raises(ValueError, match=r"values: expected shape \(N, 1\), got"):
        conductivity_law(CHONNNetwork2d(1, 1), torch.ones(5, 2))


def test_fields_of_a_head_end_at_a_hole():
    model = CHONNNetwork2d(1, 1, nodes="corners").eval()
    mask = torch.ones(9, 8, dtype=torch.bool)
    mask[3:5, 2:6] = False
    x = torch.rand(1, 1, 9, 8)
    (fields,) = read_fields(model, torch.where(mask, x, torch.nan), mask=mask)
    assert list(fields.maps) == ["conductivity 0", "conductivity 1", "source", "potential"]
    for field in fields.maps.values():
        assert (np.isnan(field[..., 0]) == ~mask.numpy()).all()
    with torch.no_grad():
        y = model(x, mask=mask)[0, 0].numpy()
    assert np.allclose(fields.maps["potential"][..., 0][mask], y[mask])
