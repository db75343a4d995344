"""The Cascaded Kirchhoff Block against its equations, and as a citizen of PyTorch."""

import dataclasses
import json

import pytest
import torch
import torch.nn.functional as F

from chonn_ops import CKB, CKBOptions, Network, Scan
from chonn_ops.nn import CKBBranch
from chonn_ops.scan import BOUNDARIES

SHAPES = {None: (2, 9, 8), 1: (2, 8, 9), 2: (2, 8, 4, 5), 3: (2, 8, 3, 4, 2)}


def scans(**options):
    """Keywords of a CKB of scans, out of a flat mapping."""
    return vars(CKBOptions.from_mapping({"cell": "scan", **options}))


def build(spatial_dims=None, **options):
    torch.manual_seed(0)
    return CKB(8, spatial_dims, **scans(**{"d_state": 4, **options}))


@pytest.mark.parametrize("topology", ["series", "parallel"])
@pytest.mark.parametrize("stage_input", ["chain", "inject"])
def test_block_is_the_papers_equations(topology, stage_input):
    stages = {"topology": topology, "stage_input": stage_input}
    block = build(order=3, directions="raster", norm="layer", **stages)
    x = torch.randn(2, 9, 8)
    normed = F.layer_norm(x, (8,), block.norm.weight, block.norm.bias)
    w_u, w_g = block.in_proj.weight.chunk(2)
    weights, options = (block.depthwise.weight, block.depthwise.bias), {"padding": 1, "groups": 8}
    conv = F.conv1d((normed @ w_u.T).mT, *weights, **options).mT
    u = F.silu(conv @ block.pointwise.weight.T + block.pointwise.bias)
    outputs = []
    for cell in block.cells:
        given = u
        if outputs and topology == "series":
            given = outputs[-1] + (u if stage_input == "inject" else 0)
        outputs.append(cell(given))
    expected = x + sum(outputs) * F.silu(normed @ w_g.T)
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize("spatial_dims", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("directions", "boundary"),
    [
        (directions, boundary)
        for directions in ("raster", "bidirectional", "cross", "axial")
        for boundary in BOUNDARIES
        # One way takes neither.
        if not (directions == "raster" and boundary in ("neumann", "dirichlet"))
    ],
)
def test_shape_in_is_shape_out_and_every_parameter_learns(
    spatial_dims, directions, boundary, assert_learns
):
    block = build(spatial_dims, directions=directions, boundary=boundary, expand=2)
    x = torch.randn(SHAPES[spatial_dims], requires_grad=True)
    y = block(x)
    assert y.shape == x.shape
    y.square().sum().backward()
    assert x.grad.isfinite().all()
    assert_learns(block)


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("topology", ["series", "parallel"])
@pytest.mark.parametrize("stage_input", ["chain", "inject"])
@pytest.mark.parametrize("cell", ["network", "scan"])
def test_every_order_and_topology_learns(order, topology, stage_input, cell, assert_learns):
    options = CKBOptions(cell, order=order, topology=topology, stage_input=stage_input, expand=2)
    block = CKB(8, 2, **vars(options))
    assert block.options == options
    block(torch.randn(SHAPES[2])).square().sum().backward()
    assert_learns(block)


@pytest.mark.parametrize("spatial_dims", SHAPES, ids=str)
@pytest.mark.parametrize("cell", ["network", "scan"])
def test_a_branch_is_what_the_block_adds_channels_last(spatial_dims, cell):
    block = CKB(8, spatial_dims, cell=cell, order=2)
    branch = CKBBranch(8, spatial_dims, cell=cell, order=2)
    branch.load_state_dict(block.state_dict())
    x = torch.randn(SHAPES[spatial_dims])
    added = branch(x if spatial_dims is None else x.movedim(1, -1))
    added = added if spatial_dims is None else added.movedim(-1, 1)
    torch.testing.assert_close(x + added, block(x), rtol=0, atol=0)


@pytest.mark.parametrize("norm", ["layer", "group", "none"])
def test_norms(norm):
    block = build(2, norm=norm)
    x = torch.randn(SHAPES[2])
    scaled = (block(1e3 * x) - 1e3 * x) / (block(x) - x)
    if norm == "none":
        assert not torch.allclose(scaled, torch.ones_like(scaled), rtol=1e-2)
    else:  # the branch sees normalised input, so its size does not follow the input's
        torch.testing.assert_close(block(1e3 * x) - 1e3 * x, block(x) - x, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize(
    ("cell", "boundary"),
    [
        (Scan(directions="axial"), "periodic"),
        (Network(tol=1e-12), "periodic"),
        (Network(tol=1e-12), ("periodic", "robin")),
    ],
)
def test_ring_block_commutes_with_shifts_of_a_periodic_field(cell, boundary):
    torch.manual_seed(0)
    block = CKB(8, 2, cell=cell, order=2, boundary=boundary).double()
    x = torch.randn(1, 8, 6, 5, dtype=torch.float64)
    for axis in (2, 3):
        moved, expected = block(x.roll(2, axis)), block(x).roll(2, axis)
        if boundary == "periodic" or axis == 2:
            torch.testing.assert_close(moved, expected, rtol=1e-8, atol=1e-8)
        else:
            assert not torch.allclose(moved, expected, rtol=1e-3)


@pytest.mark.parametrize("spatial_dims", [1, 2, 3])
def test_convolution_sees_an_even_image_beyond_open_ends(spatial_dims):
    block = build(spatial_dims, boundary="neumann")
    x = torch.randn(SHAPES[spatial_dims])
    axes = range(2, x.dim())
    image = x
    for axis in axes:
        image = torch.cat([image.flip(axis), image, image.flip(axis)], axis)
    whole = block.depthwise(image)
    for axis in axes:
        whole = whole.narrow(axis, x.shape[axis], x.shape[axis])
    torch.testing.assert_close(block.depthwise(x), whole)


@pytest.mark.parametrize("cell", [Network(num_networks=3, tol=1e-2), Scan(d_state=2)])
def test_options_are_one_flat_mapping_and_back(cell):
    options = CKBOptions(cell, order=3, boundary="periodic")
    flat = options.to_mapping()
    assert flat["cell"] in ("network", "scan")
    assert CKBOptions.from_mapping(flat) == options
    assert CKBOptions.from_mapping(json.loads(json.dumps(flat))) == options
    assert CKB(4, 2, cell=cell, order=3, boundary="periodic").options == options
    assert options == dataclasses.replace(CKBOptions(cell), order=3, boundary="periodic")


@pytest.mark.slow
def test_inductor_compiles_a_block():
    block, x = build(2, order=1), torch.randn(SHAPES[2])
    compiled = torch.compile(block, fullgraph=True, backend="inductor")
    results = []
    for function in (compiled, block):
        y = function(x)
        results.append((y, *torch.autograd.grad(y.sum(), list(block.parameters()))))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "steps", "dtype"),
    [
        ({"order": 3}, 8, torch.float16),
        *(
            pytest.param({"order": 2, **options}, 200, torch.bfloat16, marks=pytest.mark.thorough)
            for options in (
                {"boundary": "periodic", "norm": "layer"},
                {"boundary": "dirichlet", "norm": "group"},
            )
        ),
    ],
)
def test_autocast_trains_on_large_inputs(options, steps, dtype):
    block, x = build(2, **options), 1e3 * torch.randn(SHAPES[2])
    optimizer = torch.optim.Adam(block.parameters(), lr=1e-3)
    for _ in range(steps):
        with torch.autocast("cpu", dtype):
            y = block(x)
        loss = (y.float() / 1e3).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert loss.isfinite()
        assert all(p.grad.isfinite().all() for p in block.parameters())
        assert all(p.isfinite().all() for p in block.parameters())


@pytest.mark.parametrize("d_state", [1, 16])
def test_high_orders_start_at_the_size_of_their_input(d_state):
    torch.manual_seed(0)
    x = torch.randn(1, 20, 64, 64)
    for order in (2, 4, 6):
        bounded = None if order > 2 else True
        cell = Scan(d_state=d_state, selective_norm=bounded)
        block = CKB(20, 2, cell=cell, order=order)
        added = block(x) - x
        assert 0.1 * order < added.std() < order
        assert added.abs().max() < 200


def test_coefficients_are_bounded_by_default_above_order_two():
    blocks = [CKB(4, cell="scan", order=order) for order in (1, 2, 3, 4)]
    chosen = [block.cells[0].options.selective_norm for block in blocks]
    assert chosen == [False, False, True, True]
