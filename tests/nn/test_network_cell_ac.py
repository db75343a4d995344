"""Network cells at a frequency: equations, passivity, gradients, hosts, reading."""

from __future__ import annotations

import json
import math

import pytest
import torch

from chonn_ops import (
    CKB,
    CKBOptions,
    CNOUNet,
    Network,
    NetworkCell,
    kirchhoff_network,
    read_circuits,
)
from chonn_ops.boundary import conditions
from chonn_ops.inspect.reading import SolvedNetworks, read_fields
from chonn_ops.network.grids import blended_edges, walls_of

UNIT, GAIN = 16.0, 0.1


def _cell(dim=3, m=2, axes=2, *, boundary="robin", scale=1.0, **options):
    torch.manual_seed(0)
    cell = NetworkCell(dim, axes, Network(num_networks=m, ac=True, **options), boundary=boundary)
    with torch.no_grad():
        if cell.leak_proj is not None:
            cell.leak_proj.weight.mul_(scale)
    return cell.double()


def _features(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("grid", [(9,), (5, 7)])
@pytest.mark.parametrize("boundary", ["neumann", "periodic", "matched"])
def test_the_cell_is_its_equations(grid, boundary):
    cell, u = _cell(axes=len(grid), boundary=boundary, scale=4), _features(2, *grid, 3)
    k, leak, source = cell.coefficients(u)
    spacing = [1 / n for n in grid]
    volume = math.prod(UNIT * step for step in spacing)
    steps = [UNIT * step for step in spacing]
    mean = torch.sigmoid(8 * cell.mean_param)
    edges = blended_edges(k, steps, mean)
    faces = conditions(boundary, len(grid))
    wall = walls_of(k, steps, faces, volume * leak).conductance
    leak = volume * leak if wall is None else volume * leak + wall
    periodic = boundary == "periodic"
    v = kirchhoff_network(
        GAIN * volume * source, edges, leak, periodic=periodic, backend="reference"
    )
    torch.testing.assert_close(cell(u), torch.cat((v.real, v.imag), -1), rtol=1e-6, atol=1e-8)


def test_coefficients():
    cell, u = _cell(scale=4), _features(2, 6, 5, 3)
    k, leak, source = cell.coefficients(u)
    assert k.min() > 0
    assert leak.real.min() < 0 < leak.real.max()
    assert leak.imag.max() < 0
    assert k.shape == leak.shape == source.shape == (2, 6, 5, 2)
    assert cell(u).shape == (2, 6, 5, 4)
    with torch.no_grad():
        cell.source_proj.bias.zero_()
    torch.testing.assert_close(cell.coefficients(-2 * u)[2], -2 * cell.coefficients(u)[2])


@pytest.mark.parametrize("boundary", ["robin", "matched"])
def test_no_weights_make_a_network_that_feeds_power(boundary):
    """Sources, which the features set, put power in: it is dissipated, whatever the weights."""
    for seed in range(4):
        cell, u = _cell(boundary=boundary), _features(2, 6, 5, 3, seed=seed)
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.copy_(3 * torch.randn_like(parameter))
        solved = SolvedNetworks.of_call(cell, cell(u), u)
        leak = solved.circuit.leak
        assert leak.imag.max() < 0
        v, s = solved.potentials, solved.circuit.source(solved.density)
        fed = 0.5 * (v.conj() * 1j * s).real.sum((1, 2))
        lost = -0.5 * (leak.imag * v.abs().square()).sum((1, 2))
        assert (lost >= 0).all()
        assert ((fed - lost).abs() < 1e-7 * (v.abs() * s.abs()).sum((1, 2))).all()
    for sign in (-1, 1):
        leak = cell.coefficients(sign * 1e6 * u)[1]
        assert leak.isfinite().all()
        assert leak.imag.max() < 0


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda ckb: CKB(2, 2, **vars(ckb)), (2, 2, 8, 8)),
        (lambda ckb: CNOUNet(1, 2, 1, 1, 1, 4, 4, ckb=ckb), (2, 1, 16, 16)),
    ],
)
def test_models_and_their_reading(build, shape):
    options = CKBOptions.from_mapping({"cell": "network", "num_networks": 2, "ac": True})
    assert CKBOptions.from_mapping(options.to_mapping()) == options
    model, x = build(options), torch.randn(shape)
    assert model(x).shape == (2, 2, *shape[2:])
    found = json.loads(json.dumps(read_circuits(model, x)))
    for entry in found["networks"]:
        assert 1 <= entry["effective_rank"] <= 4
        for network in entry["networks"]:
            assert network["loss"][0] > 0
            assert network["dissipated_power"] > 0
    fields = read_fields(model, x)[0]
    assert (fields.maps["power"] >= 0).all()


def test_power_flows_along_a_wave():
    """From a source at the low end, out of the matched high end."""
    cell = _cell(1, 1, 1, boundary="matched", selective=False)
    with torch.no_grad():
        cell.conductivity_bias.zero_()
        cell.leak_param.copy_(torch.tensor([-1.0, -20.0]))
        cell.source_proj.bias.zero_()
        cell.source_proj.weight.copy_(torch.tensor([[1.0], [0.0]]))
    u = torch.zeros(1, 64, 1, dtype=torch.float64)
    u[:, 32] = 1.0
    flow = read_fields(cell, u)[0].currents[0][:, 0]
    assert (flow[:31] < 0).all()
    assert (flow[34:] > 0).all()
    assert flow[40:60].std() < 1e-2 * flow[40:60].mean()


def test_unfit_options_are_refused():
    with pytest.raises(ValueError, match="ac: expected a bool, got 1"):
        Network(ac=1)
