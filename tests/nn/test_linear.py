"""The block's linear maps against `torch.nn.Linear`: values, gradients, parameters."""

from typing import Any

import pytest
import torch
from torch.nn.utils import prune

from chonn_ops.nn.layers import Pointwise, PositionLinear, bounded
from chonn_ops.nn.network_cell import NetworkCell


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
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("positions", [5, 400_000])
def test_layers_of_a_pair_are_pruned(positions):
    """Pruning makes the weight in a hook of the layer, for large fields, too."""
    torch.manual_seed(0)
    pair, field = Pointwise(3, 4), torch.randn(1, positions, 3)
    for layer in (pair.expand, pair.contract):
        prune.identity(layer, "weight")
        with torch.no_grad():
            layer.weight_orig.mul_(0.5)
    hidden = torch.nn.functional.linear(field, pair.expand.weight_orig, pair.expand.bias)
    hidden = torch.nn.functional.silu(hidden)
    expected = torch.nn.functional.linear(hidden, pair.contract.weight_orig, pair.contract.bias)
    expected = field + bounded(expected, 2.0)
    for _ in range(2):  # a second backward has a graph of its own
        found = pair(field, 2.0)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
    assert pair.expand.weight_orig.grad is not None


@pytest.mark.parametrize(
    "hook",
    [
        "register_forward_pre_hook",
        "register_forward_hook",
        "register_full_backward_pre_hook",
        "register_full_backward_hook",
        "forward",
    ],
)
def test_hooks_of_layers_run_where_several_layers_are_one_call(hook):
    """And so does a `forward` of one layer alone, by which Accelerate fetches its weights."""
    torch.manual_seed(0)
    pair, cell = Pointwise(3, 4), NetworkCell(3)
    field = torch.randn(1, 4, 5, 3, requires_grad=True)
    expected = cell(pair(field, 2.0))
    layers: Any = (pair.expand, pair.contract, cell.source_proj, cell.conductivity_proj)
    called = []
    for layer in layers:

        def note(*call, layer=layer, forward=layer.forward):
            called.append(layer)
            return forward(*call) if hook == "forward" else None

        if hook == "forward":
            layer.forward = note
        else:
            getattr(layer, hook)(note)
    found = cell(pair(field, 2.0))
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert all(called.count(layer) == 1 for layer in layers)
