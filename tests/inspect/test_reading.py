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
    KirchhoffCell,
    Network,
    NetworkCell,
    Scan,
)
from chonn_ops import read_circuits as read
from chonn_ops.inspect.reading import compare_conductivity, read_fields


@pytest.mark.slow
def test_a_trained_network_model():
    model = CHONNNetwork2d.from_pretrained("darcy-small")
    torch.manual_seed(0)
    x = torch.where(torch.rand(2, 1, 16, 16) > 0.5, 1.0, 0.1)
    found = json.loads(json.dumps(read(model, x)))
    assert [entry["grid"] for entry in found["networks"]] == [[16, 16]] * 2
    assert [len(entry["networks"]) for entry in found["networks"]] == [8, 8]
    assert all(1 <= entry["effective_rank"] <= 8 for entry in found["networks"])
    names = [name for name, m in model.named_modules() if isinstance(m, NetworkCell)]
    assert [entry["name"] for entry in found["networks"]] == names
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


def test_power_is_what_the_sources_put_in():
    torch.manual_seed(0)
    options = Network(num_networks=2, tol=1e-10)
    cell = NetworkCell(3, 2, options, boundary=("periodic", "robin")).double()
    u = torch.randn(1, 6, 5, 3, dtype=torch.float64)
    with torch.no_grad():
        v = cell(u)
        source = cell.coefficients(u)[2] * 0.1 * (16 / 6) * (16 / 5)
    powers = [n["dissipated_power"] for n in read(cell, u)["networks"][0]["networks"]]
    assert powers == pytest.approx((v * source).sum((0, 1, 2)).tolist())


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
    with pytest.raises(ValueError, match=r"model: expected KirchhoffCells .* got Linear"):
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
    v = fields.potential[:, 0]
    slope = -np.gradient(v)[1:-1]
    assert fields.currents[0][1:-1, 0] / slope == pytest.approx(
        np.full(7, fields.currents[0][1, 0] / slope[0])
    )
    # All that goes in is turned into heat.
    source = 10.0 * 0.1 * 16 / 9
    assert fields.power.sum() == pytest.approx(source * v[0])


def test_where_the_nodes_lie_reaches_the_numbers():
    """Models pass `nodes` by name: the circuits that are read are those that were solved."""
    cell = NetworkCell(2, 2, Network(num_networks=1), boundary="dirichlet").double()

    class Model(torch.nn.Sequential):
        def forward(self, x, nodes):
            return self[0](x, nodes=nodes)

    u = torch.randn(1, 5, 4, 2, dtype=torch.float64)
    with torch.no_grad():
        v = cell(u, nodes="corners")
        circuit, density = cell.assemble(u, nodes="corners")
        current = circuit.source(density)
    (network,) = read(Model(cell), u, "corners")["networks"][0]["networks"]
    assert network["dissipated_power"] == pytest.approx((v * current).sum().item(), rel=1e-4)
