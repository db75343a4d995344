"""Coordinates tell where the nodes lie, and the models of hosts listen."""

from __future__ import annotations

import pytest
import torch

from chonn_ops import (
    CKB,
    CHONNFNO2d,
    CHONNNetwork2d,
    CHONNRollout2d,
    CHONNUNet2d,
    CHONNWaves2d,
    CKBOptions,
    Network,
    NetworkCell,
)
from chonn_ops.models.geometry import grid_geometry, node_positions

LINES = {
    "centres": lambda n: (torch.arange(n) + 0.5) / n,
    "left": lambda n: torch.arange(n) / n,
    "corners": lambda n: torch.arange(n) / (n - 1),
}


def nodes_of(grid):
    return grid_geometry(grid)[0]["nodes"]


def grid_of(*lines):
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1)[None]


@pytest.mark.parametrize("nodes", LINES)
@pytest.mark.parametrize("sizes", [(9,), (16, 12), (4, 5, 6)])
def test_coordinates_tell_the_nodes(nodes, sizes):
    assert nodes_of(grid_of(*(LINES[nodes](n) for n in sizes))) == nodes


@pytest.mark.parametrize("nodes", LINES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_are_rounded_once(nodes, dtype):
    """float16 ends at 65,504."""
    for n in (600, 70_000):
        (line,) = node_positions(torch.zeros(1, n, 1, dtype=dtype), nodes)
        assert torch.equal(line, LINES[nodes](n).to(dtype))


def test_what_cannot_be_told_is_none():
    line = LINES["left"](8)
    assert nodes_of(grid_of(line, LINES["centres"](8))) is None
    assert nodes_of(grid_of(2 * line - 1)) is None
    assert nodes_of(torch.zeros(1, 8, 8, 2)) is None


def test_an_fno_takes_the_nodes_from_its_coordinates():
    model = CHONNFNO2d(1, 3, 3, 4, initial_step=1).eval()
    x, seen = torch.randn(1, 8, 8, 1), []
    (cell,) = [module for module in model.modules() if isinstance(module, NetworkCell)]
    cell.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[3]))
    for line in (*LINES.values(), lambda n: torch.arange(n) * 5.0):
        model(x, grid_of(line(8), line(8)))
    assert seen == [*LINES, None]


def test_a_network_model_takes_nodes_and_keeps_none():
    model, x = CHONNNetwork2d().eval(), torch.randn(1, 1, 6, 6)
    placed = CHONNNetwork2d(ckb=CKBOptions(Network(nodes="corners")))
    placed.load_state_dict(model.state_dict())
    before = model(x)
    torch.testing.assert_close(model(x, nodes="corners"), placed(x), rtol=0, atol=0)
    assert not torch.allclose(placed(x), before)
    torch.testing.assert_close(model(x), before, rtol=0, atol=0)
    with pytest.raises(ValueError, match="nodes: expected one of"):
        model(x, nodes="middle")
    with pytest.raises(ValueError, match="nodes: expected 'centres' with patch=2"):
        CHONNNetwork2d(patch=2)(x, nodes="left")
    with pytest.raises(ValueError, match="nodes: expected 'centres' with patch=2"):
        CHONNNetwork2d(patch=2, ckb=CKBOptions(Network(nodes="left")))


MODELS = {
    "block": lambda nodes: CKB(2, 2, cell=Network(nodes=nodes)),
    "network": lambda nodes: CHONNNetwork2d(2, ckb=CKBOptions(Network(nodes=nodes))),
    "rollout": lambda nodes: CHONNRollout2d(1, 2, nodes=nodes),
    "waves": lambda nodes: CHONNWaves2d(1, 2, nodes=nodes),
    "unet": lambda nodes: CHONNUNet2d(2, 1, 2, ckb=CKBOptions(Network(nodes=nodes))),
}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_models_take_other_grids_with_the_nodes_that_they_were_built_with(build):
    x, finer = torch.randn(2, 2, 16, 16), torch.randn(2, 2, 32, 32)
    model, fresh = build("corners"), build("corners")
    fresh.load_state_dict(model.state_dict())
    model.train()(x)
    torch.testing.assert_close(model.eval()(finer), fresh.eval()(finer), rtol=0, atol=0)


def test_patches_have_their_nodes_at_the_centres():
    model = CHONNNetwork2d(patch=2)
    for n in (4, 8):
        model(torch.randn(1, 1, n, n))


@pytest.mark.parametrize("kind", [CHONNRollout2d, CHONNWaves2d])
def test_a_forecast_takes_nodes_in_its_call(kind):
    options = {"boundary": "robin", "coordinates": True}
    model, x = kind(1, 2, **options).eval(), torch.randn(1, 2, 8, 8)
    placed = kind(1, 2, nodes="left", **options).eval()
    placed.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(x, nodes="left"), placed(x), rtol=0, atol=0)
    assert not torch.allclose(model(x), placed(x))
    with pytest.raises(ValueError, match="nodes: expected one of"):
        model(x, nodes="middle")
