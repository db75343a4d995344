"""Coordinates tell where the nodes lie, and the models of hosts listen."""

from __future__ import annotations

import pytest
import torch

from chonn_ops import CHONNFNO2d, CHONNNetwork2d, CKBOptions, NetworkCell, grid_nodes

LINES = {
    "centres": lambda n: (torch.arange(n) + 0.5) / n,
    "left": lambda n: torch.arange(n) / n,
    "corners": lambda n: torch.arange(n) / (n - 1),
}


def grid_of(*lines):
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1)[None]


@pytest.mark.parametrize("nodes", LINES)
@pytest.mark.parametrize("sizes", [(9,), (16, 12), (4, 5, 6)])
def test_coordinates_tell_the_nodes(nodes, sizes):
    assert grid_nodes(grid_of(*(LINES[nodes](n) for n in sizes))) == nodes


def test_what_cannot_be_told_is_none():
    line = LINES["left"](8)
    assert grid_nodes(grid_of(line, LINES["centres"](8))) is None
    assert grid_nodes(grid_of(2 * line - 1)) is None
    assert grid_nodes(torch.zeros(1, 8, 8, 2)) is None


def test_an_fno_places_its_networks():
    model = CHONNFNO2d(
        1, 3, 3, 4, initial_step=1, ckb=CKBOptions(cell="network"), mode="lift"
    ).eval()
    x = torch.randn(1, 8, 8, 1)
    cells = [module for module in model.modules() if isinstance(module, NetworkCell)]
    for nodes, line in LINES.items():
        model(x, grid_of(line(8), line(8)))
        assert {cell.nodes for cell in cells} == {nodes}


def test_models_are_placed_and_refuse_other_words():
    model, x = CHONNNetwork2d(), torch.randn(1, 1, 6, 6)
    placed = CHONNNetwork2d(ckb=CKBOptions(cell="network", nodes="corners"))
    placed.load_state_dict(model.state_dict())
    before = model(x)
    model.place("corners")
    torch.testing.assert_close(model(x), placed(x), rtol=0, atol=0)
    assert not torch.allclose(model(x), before)
    with pytest.raises(ValueError, match="nodes: expected one of"):
        model.place("middle")
    with pytest.raises(ValueError, match="nodes: expected 'centres' with patch=2"):
        CHONNNetwork2d(patch=2).place("left")
