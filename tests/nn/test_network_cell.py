"""The network cell and the block with it: equations, geometry, boundary, masks, refusals."""

import json
import math

import numpy as np
import pytest
import torch
from meshes import curved

from chonn_ops import CKB, CKBOptions, Direct, FiniteVolumes, Network, NetworkCell, diffusion

UNIT = 16.0  # units of length of the networks in the unit box
GAIN = 0.1  # of sources


def _cell(dim, m=8, axes=2, *, boundary="robin", dtype=torch.float64, **options):
    torch.manual_seed(0)
    options = Network(num_networks=m, **options)
    return NetworkCell(dim, axes, options, boundary=boundary).to(dtype)


def _features(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("grid", [(7,), (5, 9), (3, 4, 6)])
@pytest.mark.parametrize("boundary", ["neumann", "dirichlet", "periodic", "matched"])
def test_the_cell_is_its_equation(grid, boundary):
    cell, means = _cell(6, 3, len(grid), boundary=boundary, tol=1e-12), [-9.0, 0.05, 9.0]
    cell.requires_grad_(False).mean_param.copy_(torch.tensor(means))
    u, steps = _features(2, *grid, 6), UNIT * len(grid) / sum(grid)
    fields = (x.split(1, -1) for x in cell.coefficients(u))
    for c, (k, leak, source) in enumerate(zip(*fields, strict=True)):
        options = {"absorption": leak, "arithmetic": 1 / (1 + math.exp(-8 * means[c]))}
        circuit = diffusion(k, steps, boundary=boundary, **options)
        v = circuit.solve(GAIN * source, Direct())
        torch.testing.assert_close(cell(u)[..., c : c + 1], v, rtol=1e-8, atol=1e-8)


def test_sources_are_linear_in_the_features_and_coefficients_positive():
    cell, u = _cell(6, 3), _features(2, 5, 4, 6)
    with torch.no_grad():
        cell.source_proj.bias.zero_()
    k, leak, source = cell.coefficients(-2 * u)
    torch.testing.assert_close(source, -2 * cell.coefficients(u)[2])
    assert min(cell.coefficients(-1e6 * u)[n].min() for n in (0, 1)) > 0
    assert (k.shape, leak.shape) == ((2, 5, 4, 3), (2, 5, 4, 3))


@pytest.mark.parametrize("on", ["grid", "mesh"])
def test_gradients_are_those_of_finite_differences(on):
    cell = _cell(3, 2, tol=1e-13)
    volumes = FiniteVolumes.from_cells(*curved(3)) if on == "mesh" else None
    u = _features(1, *((3, 4) if volumes is None else (volumes.num_nodes,)), 3).requires_grad_()
    parameters = dict(cell.named_parameters())

    def call(u, *values):
        own = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(cell, own, (u,), {"volumes": volumes})

    given = (u, *parameters.values())
    assert torch.autograd.gradcheck(call, given, fast_mode=on == "mesh")


@pytest.mark.parametrize("boundary", ["robin", "neumann", "dirichlet"])
def test_a_masked_grid_is_the_smaller_grid(boundary):
    cell = _cell(4, boundary=boundary, tol=1e-12, nodes="centres")
    u = _features(2, 6, 5, 4)
    mask = torch.zeros(6, 5, dtype=torch.bool)
    mask[1:5, 2:] = True
    spacing = [1 / 6, 1 / 5]
    inside = cell(u[:, 1:5, 2:], spacing=spacing)
    whole = cell(u, spacing=spacing, mask=mask)
    torch.testing.assert_close(whole[:, 1:5, 2:], inside, rtol=1e-9, atol=1e-9)
    assert (cell(u, spacing, mask)[:, ~mask] == 0).all()
    one_each = mask.expand(2, 6, 5)
    torch.testing.assert_close(cell(u, spacing=spacing, mask=one_each), whole)


def test_the_block_knows_nothing_outside_its_mask():
    torch.manual_seed(0)
    block = CKB(4, 2, cell="network", order=2).double()
    mask = torch.ones(7, 6, dtype=torch.bool)
    mask[3:, 3:] = False
    x = _features(1, 4, 7, 6)
    other = torch.where(mask, x, 7.0)
    torch.testing.assert_close(block(x, mask=mask)[..., mask], block(other, mask=mask)[..., mask])


def test_fixed_networks_are_linear():
    cell, u = _cell(4, selective=False, tol=1e-12), _features(3, 6, 5, 4)
    with torch.no_grad():
        cell.source_proj.bias.zero_()
    torch.testing.assert_close(cell(2 * u[:1] - u[1:2]), 2 * cell(u[:1]) - cell(u[1:2]))
    selective = _cell(4, tol=1e-12)
    assert not torch.allclose(selective(2 * u), 2 * selective(u), rtol=1e-2)


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor([0.25, 0.75]),
        torch.tensor([0.25, 0.75], requires_grad=True),
        np.array([0.25, 0.75]),
        [np.float32(0.25), torch.tensor(0.75)],
    ],
    ids=str,
)
def test_distances_of_any_numbers_are_one_option(given):
    """A pair as a tensor was taken for a list of one pair, which fits one axis only."""
    options = Network(nodes=given)
    assert options == Network(nodes=(0.25, 0.75))
    assert hash(options) == hash(Network(nodes=(0.25, 0.75)))
    assert json.loads(json.dumps(options.nodes)) == [0.25, 0.75]
    assert _cell(4, nodes=given)(_features(1, 6, 5, 4)).shape == (1, 6, 5, 8)


def test_the_defaults_are_the_cells():
    network, scan = CKBOptions(), CKBOptions("scan")
    assert network == CKBOptions(cell="network") == CKBOptions(cell=Network())
    assert (network.order, network.norm, network.boundary) == (1, "none", "robin")
    assert (scan.order, scan.norm, scan.boundary) == (2, "group", "matched")
    options = CKBOptions(cell="network", boundary=["periodic", "neumann"])
    assert options.boundary == ("periodic", "neumann")
