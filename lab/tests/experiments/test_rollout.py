"""Windows of trajectories and recursive prediction."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

from chonn_lab.experiments.base import consecutive
from chonn_lab.experiments.rollout import (
    RolloutConfig,
    Windows,
    checked,
    forecast,
    frame_errors,
    pictures,
    rollout,
)


def counted(n=3, frames=7, resolution=2):
    """Frame t of trajectory i is 10 i + t everywhere."""
    numbers = 10 * torch.arange(n)[:, None] + torch.arange(frames)
    return numbers[..., None, None].expand(-1, -1, resolution, resolution).float()


def test_windows_are_all_stretches_inside_trajectories():
    windows = Windows(counted(), 4, first=1)
    assert len(windows) == 3 * 3
    (frames,) = windows[list(range(9))]
    assert frames.shape == (9, 4, 2, 2)
    firsts = [1, 2, 3, 11, 12, 13, 21, 22, 23]
    expected = torch.tensor(firsts)[:, None] + torch.arange(4)
    torch.testing.assert_close(frames[:, :, 0, 1], expected.float())
    torch.testing.assert_close(windows[4][0], frames[4])


def test_windows_need_room():
    with pytest.raises(ValueError, match="expected at least 8 frames, got 7"):
        Windows(counted(), 6, first=2)


class Recurrence(nn.Module):
    """x_t = x_{t-1} + 2 x_{t-3}."""

    def forward(self, frames):
        return frames[:, -1] + 2 * frames[:, 0]


def test_rollout_feeds_predictions_back():
    frames = torch.tensor([1.0, 2.0, 3.0])[None, :, None, None].expand(2, 3, 4, 4)
    predicted = rollout(Recurrence(), frames, 5)
    assert predicted.shape == (2, 5, 4, 4)
    assert predicted[1, :, 2, 3].tolist() == [5, 9, 15, 25, 43]


def test_rollout_has_gradients_through_all_steps():
    start = torch.ones(1, 3, 2, 2, requires_grad=True)
    rollout(Recurrence(), start, 4)[:, -1].sum().backward()
    # x_7 = 6 x_1 + 2 x_2 + 5 x_3.
    assert start.grad is not None
    assert start.grad[0, :, 0, 0].tolist() == [6, 2, 5]


def test_pushforward_learns_the_last_frame_from_predictions_without_gradients():
    config = RolloutConfig(
        n_train=1,
        n_validation=1,
        n_test=1,
        batch_size=1,
        epochs=1,
        resolution=2,
        history=3,
        unroll=2,
        pushforward=True,
    )
    history = torch.tensor([1.0, 2.0, 3.0])[None, :, None, None].repeat(1, 1, 2, 2)
    history.requires_grad_()
    target = torch.tensor([50.0, 90.0])[None, :, None, None].expand(1, 2, 2, 2)
    prediction, learnt = forecast(config, Recurrence(), history, target)
    assert prediction[0, :, 0, 0].tolist() == [9]
    assert learnt[0, :, 0, 0].tolist() == [90]
    prediction.sum().backward()
    # x_5 = x_4 + 2 x_2, with x_4 predicted before.
    assert history.grad is not None
    assert history.grad[0, :, 0, 0].tolist() == [0, 2, 0]
    plain, both = forecast(
        dataclasses.replace(config, pushforward=False), Recurrence(), history, target
    )
    assert plain[0, :, 0, 0].tolist() == [5, 9]
    assert both is target


def test_relative_l2_of_frames():
    target = torch.full((1, 2, 3, 3), 2.0)
    prediction = target * torch.tensor([1.5, 1.0])[None, :, None, None]
    assert frame_errors(prediction, target).tolist() == [[0.5, 0.0]]


def test_splits_and_pictures():
    sizes = {"n_train": 2, "n_validation": 1, "n_test": 1}
    config = RolloutConfig(resolution=2, batch_size=1, epochs=1, **sizes)
    given = counted(4)
    frames = checked(config, Path("file"), given.numpy(), 7)
    data = consecutive(config, frames)
    (train,), (validation,), (test,) = (
        split.tensors for split in (data.train, data.validation, data.tests["test"])
    )
    assert (len(train), len(validation), len(test)) == (2, 1, 1)
    assert torch.equal(torch.cat((train, validation, test)), given)
    halved = checked(config, Path("file"), given.numpy(), 7, stride=2)
    assert torch.equal(halved, given[:, ::2])
    with pytest.raises(ValueError, match=r"file: expected samples \(4, 8, 2, 2\), got \(4, 7, "):
        checked(config, Path("file"), given.numpy(), 8)
    fields = pictures(train[:, 0], train, train + 1)
    assert fields["target"].shape == (2, 2, 2, 2)
    assert fields["prediction"][1, :, 0, 0].tolist() == [11, 17]
