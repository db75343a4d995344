"""The mixer: shapes, what couples its patches, errors."""

import pytest
import torch

from chonn_ops import CKBOptions
from chonn_ops.models.mixer import CHONNMixer2d


@pytest.mark.parametrize("order", [0, 1, 4])
def test_any_grid_that_the_patches_tile(order):
    model = CHONNMixer2d(2, 3, width=8, depth=2, patch=4, ckb=CKBOptions(order, d_state=2))
    assert model(torch.randn(2, 2, 8, 12)).shape == (2, 3, 8, 12)
    assert len(model.layers) == (4 if order else 2)


def test_patches_see_each_other_through_the_blocks_alone():
    """Gradient of one patch's output by another patch's input, whose field norm is frozen."""
    torch.manual_seed(0)

    def reach(order):
        block = CKBOptions(order, d_state=2, norm="rms", kernel_size=1)
        model = CHONNMixer2d(width=8, depth=1, patch=2, ckb=block)
        model.layers[-1].norm = torch.nn.Identity()
        x = torch.randn(1, 1, 12, 12, requires_grad=True)
        model(x)[..., 0:2, 0:2].sum().backward()
        return torch.nn.functional.max_pool2d(x.grad.abs(), 2)[0, 0] > 0

    own = torch.zeros(6, 6, dtype=torch.bool)
    own[0, 0] = True
    cross = own.clone()
    cross[0], cross[:, 0] = True, True
    assert torch.equal(reach(0), own)
    # One stage sees its row and its column, two see the whole field.
    assert torch.equal(reach(1), cross)
    assert reach(2).all()


@pytest.mark.parametrize("shape", [(1, 2, 8, 8), (1, 1, 8, 6), (1, 8, 8)])
def test_wrong_inputs(shape):
    with pytest.raises(ValueError, match=r"x: expected shape \(B, 1, H, W\).*multiples of 4"):
        CHONNMixer2d(width=4, depth=1, patch=4)(torch.zeros(shape))


@pytest.mark.parametrize("name", ["width", "depth", "patch", "mlp_ratio"])
def test_wrong_sizes(name):
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        CHONNMixer2d(**{name: 0})
