"""Bounds of what layers add to features, and what is computed again in the backward pass."""

from __future__ import annotations

import math

import pytest
import torch

from chonn_ops import CHONNWaves2d
from chonn_ops.network.solve import methods
from chonn_ops.nn import layers
from chonn_ops.nn.layers import bounded


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [50.0, -6e4, 1e11, -1e30, math.inf])
@pytest.mark.parametrize("how", [bounded, torch.compile(bounded, backend="aot_eager")])
def test_outliers_are_at_the_bound_in_every_precision(dtype, value, how):
    found = how(torch.tensor([value], dtype=dtype), 2.0)
    assert found.dtype == dtype
    assert found.sign() == (1 if value > 0 else -1)
    assert abs(abs(found.item()) - 2) < 0.02


def test_bounds_have_derivatives_of_every_order_and_mode():
    x = 3 * torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(bounded(x, 2.0), x * (1 + (x / 2) ** 4) ** -0.25)

    def bound(x):
        return bounded(x, 2.0)

    x.requires_grad_()
    assert torch.autograd.gradcheck(bound, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(bound, x)
    slopes = torch.autograd.grad(bound(x).sum(), x)[0]
    torch.testing.assert_close(torch.func.grad(lambda x: bound(x).sum())(x.detach()), slopes)


def test_large_fields_keep_less_and_have_the_same_gradients(monkeypatch):
    model, x = CHONNWaves2d().double(), torch.randn(2, 2, 8, 9).double()
    monkeypatch.setattr(methods, "KEPT", 0)  # the factors of eliminations are kept in both cases
    kept, gradients = [], []
    for least in (0, 10**9):
        monkeypatch.setattr(layers, "RECOMPUTE_FROM", least)
        storages = {}

        def pack(tensor, storages=storages):
            storages[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = model(x).square().sum()
        kept.append(sum(tensor.untyped_storage().nbytes() for tensor in storages.values()))
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert kept[0] < 0.7 * kept[1]
    torch.testing.assert_close(*gradients)


def test_functional_parameters_are_those_of_the_backward(monkeypatch):
    """What is computed again in the backward pass sees what the forward pass saw."""
    monkeypatch.setattr(layers, "RECOMPUTE_FROM", 0)
    model, x = CHONNWaves2d(width=8).double(), torch.randn(2, 2, 6, 7).double()
    other = {name: (2 * p).detach() for name, p in model.named_parameters()}
    for value in other.values():
        value.requires_grad_()
    torch.func.functional_call(model, other, (x,)).square().sum().backward()
    model.load_state_dict({**model.state_dict(), **other})
    model(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(other[name].grad, parameter.grad)
