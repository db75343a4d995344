"""Models of waves: the LC network that they step, its boundary, what is kept, gradients.

Shapes, and that all parameters learn, are in test_rollout_models.py."""

import dataclasses
import math

import pytest
import torch

from chonn_ops.models import CHONNWaves1d, CHONNWaves2d
from chonn_ops.models.waves import RATE_GAIN, UNIT

MODELS = {1: CHONNWaves1d, 2: CHONNWaves2d}


def build(axes=2, **options):
    torch.manual_seed(0)
    small = {"width": 8, "depth": 1, "num_networks": 4}
    return MODELS[axes](**{**small, **options})


def plain(model, travel=None):
    """The network alone, its coils the same everywhere and without resistance."""
    with torch.no_grad():
        model.head.weight.zero_()
        model.rates["kept"].fill_(100.0)
        if travel is not None:
            model.rates["conductivity"].fill_(
                math.log(math.expm1((travel * UNIT) ** 2)) / RATE_GAIN
            )
    return model


def roll_out(model, frames, steps):
    """(T, \\*grid) of one sample and channel."""
    found = []
    with torch.no_grad():
        for _ in range(steps):
            found.append(model(frames)[0, 0])
            frames = torch.cat((frames[:, 1:], found[-1][None, None]), 1)
    return torch.stack(found)


@pytest.mark.parametrize("more", [{}, {"substeps": 2, "media": 1}], ids=["", "in a medium"])
def test_gradients_against_finite_differences(more):
    model = build(dtype=torch.float64, boundary=("periodic", "robin"), **more)
    # A solve to 1e-4 is no function that differences can be taken of.
    for layer in model.layers:
        layer.cell.options = dataclasses.replace(layer.cell.options, tol=1e-12)
    x = torch.randn(1, model.in_channels, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model, (x,), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize(("k", "travel"), [((2, 3), 1 / 64), ((5, 0), 1 / 32)])
def test_plane_waves_travel_as_leapfrog_has_it(k, travel):
    """For 50 steps: cos(omega) = 1 - lambda / 2, with lambda the eigenvalue of the step."""
    n = 16
    model = plain(build(boundary="periodic"), travel)
    eigenvalue = sum(4 * (n * travel) ** 2 * math.sin(math.pi * each / n) ** 2 for each in k)
    omega = math.acos(1 - eigenvalue / 2)
    line = 2 * math.pi * torch.arange(n) / n
    phase = k[0] * line[:, None] + k[1] * line

    def wave(t):
        return torch.cos(phase - omega * t)

    found = roll_out(model, torch.stack((wave(-1), wave(0)))[None], 50)
    expected = torch.stack([wave(t) for t in range(1, 51)])
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-4)


def assert_one_step(found, frames, k, source, keeps):
    """That `found` is one explicit step of the LC network on 5 x 4 nodes, node by node."""
    before, now = frames
    units = (UNIT / 5, UNIT / 4)
    for p in range(5):
        for q in range(4):
            change = keeps * (now[p, q] - before[p, q]) + source[p, q] / 96
            for step, a, b in ((0, 1, 0), (0, -1, 0), (1, 0, 1), (1, 0, -1)):
                i, j = p + a, q + b
                if 0 <= i < 5 and 0 <= j < 4:
                    g = 2 / (1 / k[p, q] + 1 / k[i, j]) / units[step] ** 2
                    change = change - g * (now[p, q] - now[i, j])
            torch.testing.assert_close(found[p, q], now[p, q] + change)


def test_a_step_is_kirchhoffs_current_law_at_every_node():
    """In float64, with conductances of every edge and a loop over the nodes."""
    model = build(dtype=torch.float64, nodes="centres", conservative=False)
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64)
    kept = {}
    model.head.register_forward_hook(lambda *args: kept.update(readout=args[-1]))
    with torch.no_grad():
        found = model(x)[0, 0]
        raw, source = kept["readout"][0].unbind(-1)
        k = model.conductivity(kept["readout"][..., :1])[0, ..., 0]
        keeps = torch.sigmoid(RATE_GAIN * model.rates["kept"]).item()
    assert_one_step(found, x[0], k, source, keeps)
    assert raw.std() > 0.01


def test_between_walls_the_sum_stays():
    model = build()
    depth = 1 + torch.rand(3, 1, 9, 11)
    still = torch.cat((depth, depth), 1)
    with torch.no_grad():
        model.head.weight.mul_(10)
        change = model(still) - depth
        assert change.std() > 1e-3
        assert change.mean((1, 2, 3)).abs().max() < 2e-6
        free = build(conservative=False)
        free.head.weight.mul_(10)
        assert (free(still) - depth).mean((1, 2, 3)).abs().max() > 1e-4


def test_substeps_skip_frames():
    """Every third frame of a network, from two such frames alone."""
    torch.manual_seed(1)
    frames = plain(build(), 0.04)
    start = torch.randn(1, 2, 14, 11)
    truth = torch.cat((start[0], roll_out(frames, start, 13)))[::3]
    model = plain(build(substeps=3), 0.04)
    found = roll_out(model, truth[None, :2], 3)
    torch.testing.assert_close(found, truth[2:], rtol=0, atol=2e-3 * truth.std().item())
    assert (found[0] - plain(build(), 0.04)(truth[None, :2])[0, 0]).std() > 0.1


def test_resistance_damps_every_wave():
    """Among random waves is one that changes sign from frame to frame."""
    model = plain(build(substeps=5), 0.04)
    with torch.no_grad():
        model.rates["kept"].fill_(math.log(9) / RATE_GAIN)  # a = 0.9
    still = torch.randn(1, 1, 14, 11).expand(1, 2, 14, 11)
    found = roll_out(model, still - still.mean(), 120)
    assert found[-1].std() < 0.2 * still.std()


def test_a_constant_source_is_felt_for_as_long():
    """A push without coils moves the voltage as far in any number of substeps."""
    still = torch.rand(1, 1, 6, 6).expand(1, 2, 6, 6)
    moved = []
    for substeps in (1, 5):
        model = plain(build(substeps=substeps, conservative=False), 1e-5)
        with torch.no_grad():
            model.head.bias[1] = 0.5
            moved.append(model(still) - still[:, :1])
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-3, atol=1e-6)
    assert moved[0].min() > 1e-3


@pytest.mark.parametrize("depth", [0, 1])
def test_coils_follow_the_medium_alone(depth):
    """In float64, with conductances of every edge and a loop over the nodes."""
    options = {"nodes": "centres", "conservative": False, "media": 2, "depth": depth}
    model = build(dtype=torch.float64, **options)
    frames, medium = torch.randn(1, 4, 5, 4, dtype=torch.float64).split(2, 1)
    kept = {}
    model.head.register_forward_hook(lambda *args: kept.update(readout=args[-1]))
    with torch.no_grad():
        model.medium[-1].weight.mul_(50)
        found = model(torch.cat((frames, medium), 1))[0, 0]
        source = kept["readout"][0, ..., 0]
        k = model.conductivity(model.medium(medium.movedim(1, -1)))[0, ..., 0]
        keeps = torch.sigmoid(RATE_GAIN * model.rates["kept"]).item()
    assert_one_step(found, frames[0], k, source, keeps)
    assert k.max() > 1.5 * k.min()


def test_the_medium_is_asked_for():
    with pytest.raises(ValueError, match="substeps: expected an integer of at least 1, got 0"):
        build(substeps=0)
    with pytest.raises(ValueError, match="media: expected an integer of at least 0, got -1"):
        build(media=-1)
    with pytest.raises(ValueError, match="depth: expected an integer of at least 1, got 0"):
        build(depth=0)
    with pytest.raises(ValueError, match=r"expected shape \(B, 3, H, W\)"):
        build(media=1)(torch.randn(1, 2, 8, 8))


def test_a_single_frame_is_no_state():
    with pytest.raises(ValueError, match="history: expected an integer of at least 2"):
        build(history=1)
    with pytest.raises(ValueError, match=r"expected shape \(B, 2, H, W\)"):
        build()(torch.randn(1, 1, 8, 8))
