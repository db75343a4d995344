"""Optimisers that clip spikes of gradients."""

import copy

import pytest
import torch
from torch import nn

from chonn_plugins.clipping import clip_gradients


def clipping(model, rate=0.0):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    clip_gradients(optimizer)
    return optimizer


def stepped(model, optimizer, *scales):
    """Gradients after a step, which sums those of several backward passes."""
    optimizer.zero_grad()
    for scale in scales:
        (scale * model(torch.ones(2, 3, dtype=model.weight.dtype))).sum().backward()
    optimizer.step()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_gradients_are_clipped_to_twice_their_usual_norm(dtype):
    model = nn.Linear(3, 1, dtype=dtype)
    optimizer = clipping(model)
    for x in stepped(model, optimizer, 1):
        assert (x == 2).all()
        assert x.dtype == dtype
    for scale in (1.5, 0.01):  # no spikes
        for x in stepped(model, optimizer, scale):
            torch.testing.assert_close(x, torch.full_like(x, 2 * scale))
    for x in stepped(model, optimizer, -1000):  # usual: 0.9 (0.9 1 + 0.1 1.5) + 0.1 0.01
        torch.testing.assert_close(x, torch.full_like(x, -2 * 2 * 0.946), rtol=1e-2, atol=0)


def test_sums_of_micro_batches_are_clipped_once():
    model = nn.Linear(3, 1)
    optimizer = clipping(model)
    assert all((x == 2).all() for x in stepped(model, optimizer, 0.25, 0.75))
    assert all((x == 4).all() for x in stepped(model, optimizer, 1000, -998))


def test_gradients_of_zero_and_those_that_are_not_finite_are_not_usual():
    model = nn.Linear(3, 1)
    optimizer = clipping(model)
    assert not any(x.any() for x in stepped(model, optimizer, 0))
    assert all((x == 2000).all() for x in stepped(model, optimizer, 1000))
    for value in (float("nan"), float("inf")):
        assert not any(x.isfinite().any() for x in stepped(model, optimizer, value))
    assert all((x == 2).all() for x in stepped(model, optimizer, 1))
    assert all((x < 10_000).all() for x in stepped(model, optimizer, 1e6))


def test_a_scaler_whose_first_gradients_are_infinite():
    """It skips those steps; the optimiser then sees gradients without the scale."""
    model = nn.Linear(3, 1)
    optimizer = clipping(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    found = []
    for scale in (1e30, 1e30, 1, 1, 1000):
        optimizer.zero_grad()
        scaler.scale((scale * model(torch.ones(2, 3))).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append(model.weight.grad.clone())
    assert not any(x.isfinite().any() for x in found[:2])
    for x, expected in zip(found[2:], (2, 2, 4), strict=True):
        torch.testing.assert_close(x, torch.full_like(x, expected))


def test_gradients_that_a_step_computes_or_unscales_itself_are_refused():
    """Each would be clipped wrongly, or not at all."""
    model = nn.Linear(3, 1)
    optimizer = clipping(model)
    with pytest.raises(ValueError, match="expected gradients before the step, got a closure"):
        optimizer.step(lambda: model(torch.ones(2, 3)).sum())

    for unscaled in (False, True):
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        clip_gradients(optimizer)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(model(torch.ones(2, 3)).sum()).backward()
        if unscaled:
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            assert (model.weight.grad == 2).all()
        else:
            with pytest.raises(ValueError, match=r"call the scaler's unscale_\(optimizer\)"):
                scaler.step(optimizer)
        model.zero_grad()


def train(model, optimizer, scales):
    """Steps on a batch, whose loss is scaled; the last loss."""
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    for scale in scales:
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        (scale * loss).backward()
        optimizer.step()
    return loss.item()


def test_a_resumed_training_ends_as_an_uninterrupted_one():
    whole = nn.Linear(3, 1)
    part, resumed = copy.deepcopy(whole), nn.Linear(3, 1)
    train(whole, clipping(whole, 1e-2), (1, 2, 1, 1000, 1))
    first = clipping(part, 1e-2)
    train(part, first, (1, 2, 1))
    resumed.load_state_dict(part.state_dict())
    second = clipping(resumed, 1e-2)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(resumed, second, (1000, 1))
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_adam_forgets_a_spike_where_gradients_are_clipped():
    """One batch of a thousand times the size, and ninety as they are."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    plain, scales = copy.deepcopy(model), [1] * 9 + [1000] + [1] * 90
    spiked = train(plain, torch.optim.Adam(plain.parameters(), lr=1e-2), scales)
    assert train(model, clipping(model, 1e-2), scales) < 0.3 * spiked
