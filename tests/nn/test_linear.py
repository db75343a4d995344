"""The block's linear maps against `torch.nn.Linear`: values, gradients, parameters."""

import pytest
import torch

from chonn_ops.nn.layers import PositionLinear


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 1, 5), (3, 40, 5), (2, 6, 7, 5), (0, 40, 5)])
def test_equals_linear_in_every_layout(shape, bias):
    torch.manual_seed(0)
    ours, plain = (PositionLinear(5, 8, bias, dtype=torch.float64) for _ in range(2))
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(shape, dtype=torch.float64)
    for field in (x, x.movedim(-1, 0).contiguous().movedim(0, -1)):
        results = []
        for layer, forward in ((ours, ours), (plain, lambda x: torch.nn.Linear.forward(plain, x))):
            leaf = field.detach().requires_grad_()
            y = forward(leaf)
            grads = torch.autograd.grad(y.sin().sum(), [leaf, *layer.parameters()])
            results.append((y, *grads))
        for actual, expected in zip(*results, strict=True):
            torch.testing.assert_close(actual, expected)
