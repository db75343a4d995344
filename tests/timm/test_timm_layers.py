"""The layers of the vision backbones."""

import pytest
import torch
from torch import nn

pytest.importorskip("timm.models")

from chonn_ops.models.chonn import Block, Downsample, Head, Stage, Stem, ckb_options


def block(dim=16, **ckb):
    torch.manual_seed(0)
    return Block(dim, 2 * dim, ckb_options(ckb))


def test_block_is_two_residual_branches():
    layer = block()
    x = torch.randn(2, 5, 6, 16)
    middle = x + layer.mixer(x)
    expected = middle + layer.mlp(layer.norm(middle))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("pool", ["avg", "max", ""])
def test_every_layer_of_a_backbone_learns(pool, assert_learns):
    torch.manual_seed(0)
    stages = [Stage(nn.Identity(), [block(8)]), Stage(Downsample(8, 16), [block(16)])]
    model = nn.Sequential(Stem(3, 8), *stages, Head(16, nn.Linear(16, 5), pool))
    y = model(torch.randn(2, 3, 33, 20))
    assert y.shape == ((2, 5, 3, 5) if pool == "" else (2, 5))
    y.square().sum().backward()
    assert_learns(model)
