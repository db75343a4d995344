"""Problems in time: windows, recursive prediction, data, losses, scores, models, errors."""

import h5py
import numpy as np
import pytest
import torch
from running import One, smoke

from chonn_lab.experiments.base import PDEBENCH_METRICS
from chonn_lab.experiments.flows import frame_errors, rollout
from chonn_lab.experiments.models import persistence
from chonn_lab.problems import navier_stokes
from chonn_ops.metrics import MetricAccumulator

GIVEN = 10


def recurrence():
    """x_t = x_{t-1} + 2 x_{t-3}."""
    return One(lambda frames: frames[:, -1] + 2 * frames[:, 0])


def rings(n=8, resolution=16):
    """Rings that widen at unit speed, (n, 101, R, R)."""
    x = (np.arange(resolution) + 0.5) * 5 / resolution - 2.5
    r = np.hypot(x[:, None], x)
    t = np.linspace(0, 1, 101)[:, None, None]
    starts = np.linspace(0.3, 0.7, n)[:, None, None, None]
    return (1 + np.exp(-(((r - starts - t) / 0.4) ** 2))).astype("f4")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    found = {n: tmp_path_factory.mktemp(n) for n in ("shallow_water", "navier_stokes")}
    (path,) = smoke("shallow_water").makers(found["shallow_water"])
    with h5py.File(path, "w") as file:
        for i, field in enumerate(rings()):
            file[f"{i:04d}/data"] = field[..., None]
    smoke("navier_stokes").prepare(found["navier_stokes"])
    return found


def test_rollout_feeds_predictions_back_with_gradients_through_all_steps():
    frames = torch.tensor([1.0, 2.0, 3.0])[None, :, None, None].expand(2, 3, 4, 4)
    assert rollout(recurrence(), frames, 5)[1, :, 2, 3].tolist() == [5, 9, 15, 25, 43]
    start = torch.ones(1, 3, 2, 2, requires_grad=True)
    rollout(recurrence(), start, 4)[:, -1].sum().backward()
    # x_7 = 6 x_1 + 2 x_2 + 5 x_3.
    assert start.grad is not None
    assert start.grad[0, :, 0, 0].tolist() == [6, 2, 5]


def test_pushforward_learns_the_last_frame_from_predictions_without_gradients():
    found = smoke("navier_stokes", "history=3", "unroll=2", "pushforward=true")
    history = torch.tensor([1.0, 2.0, 3.0])[None, :, None, None].repeat(1, 1, 2, 2)
    history.requires_grad_()
    target = torch.tensor([50.0, 90.0])[None, :, None, None].expand(1, 2, 2, 2)
    prediction, learnt = found.forecast(recurrence(), history, target)
    assert prediction[0, :, 0, 0].tolist() == [9]
    assert learnt[0, :, 0, 0].tolist() == [90]
    prediction.sum().backward()
    # x_5 = x_4 + 2 x_2, with x_4 predicted before.
    assert history.grad is not None
    assert history.grad[0, :, 0, 0].tolist() == [0, 2, 0]
    found = smoke("navier_stokes", "history=3", "unroll=2")
    plain, both = found.forecast(recurrence(), history, target)
    assert plain[0, :, 0, 0].tolist() == [5, 9]
    assert both is target


def test_splits_of_navier_stokes_and_every_history_learns_the_same_frames(folders):
    found, folder = smoke("navier_stokes"), folders["navier_stokes"]
    data = found.load(folder)
    (path,) = found.makers(folder)
    frames = torch.from_numpy(navier_stokes.read(path))[:, :, None]
    torch.testing.assert_close(data.validation.tensors[0], frames[4:6])
    torch.testing.assert_close(data.tests["test"].tensors[0], frames[6:8])
    assert len(data.train) == 4 * found.horizon
    torch.testing.assert_close(data.train[0][0], frames[0, : GIVEN + 1])
    for history in (3, 10):
        train = smoke("navier_stokes", f"history={history}").load(folder).train
        (windows,) = train[range(len(train))]
        assert windows.shape[1] == history + 1
        torch.testing.assert_close(windows[:, -1], frames[:4, GIVEN:].flatten(0, 1))
        torch.testing.assert_close(windows[:, -2], frames[:4, GIVEN - 1 : -1].flatten(0, 1))


def test_splits_of_shallow_water(folders):
    frames = torch.from_numpy(rings())[:, ::20, None]
    data = smoke("shallow_water").load(folders["shallow_water"])
    torch.testing.assert_close(data.train.tensors[0], frames[:4])
    torch.testing.assert_close(data.tests["test"].tensors[0], frames[6:])
    torch.testing.assert_close(data.validation.tensors[0], frames[4:6])


def test_scores_of_persistence(folders):
    found = smoke("navier_stokes", "long=7")
    data = found.load(folders["navier_stokes"])
    scores = found.evaluate(persistence(None), data)
    (frames,) = data.tests["test"].tensors
    last, target = frames[:, GIVEN - 1, None], frames[:, GIVEN:]
    curve = frame_errors(last.expand_as(target), target).mean(dim=0)
    single = frame_errors(frames[:, GIVEN - 1 : -1], target).mean(dim=0)
    sizes = frames.square().mean((2, 3, 4)).sqrt()
    torch.testing.assert_close(torch.tensor(scores["curves"]["rollout_relative_l2"]), curve)
    assert scores["metrics"]["test"] == {
        "rollout_relative_l2": pytest.approx(float(curve.mean())),
        "rollout_relative_l2_last": pytest.approx(float(curve[-1])),
        "one_step_relative_l2": pytest.approx(float(single.mean())),
        # The root mean square of a frame that stays as it is, over that of the data.
        "growth_7": pytest.approx(float(sizes[:, [GIVEN - 1, -1]].max() / sizes.max())),
    }
    errors = found.errors(persistence(None), (frames,))
    assert errors.mean().item() == pytest.approx(curve.mean().item())


def test_depth_scores_of_persistence(folders):
    found = smoke("shallow_water")
    data = found.load(folders["shallow_water"])
    scores = found.evaluate(persistence(None), data)
    (frames,) = data.tests["test"].tensors
    target = frames[:, found.history :]
    prediction = frames[:, found.history - 1, None].expand_as(target)
    accumulator = MetricAccumulator()
    accumulator.update(*(f.movedim((1, 2), (-2, -1)) for f in (prediction, target)))
    # 16 points carry no mode of the high band.
    names = set(PDEBENCH_METRICS) - {"fourier_rmse_high"}
    expected = {name: value for name, value in accumulator.compute().items() if name in names}
    assert scores["metrics"]["test"] == pytest.approx(expected)
    errors = found.errors(persistence(None), (frames,))
    assert errors.mean().item() == pytest.approx(np.mean(scores["curves"]["rollout_relative_l2"]))


def test_loss_takes_stretches_from_the_whole_trajectory():
    found = smoke("shallow_water", "history=2", "unroll=2")
    times = torch.arange(6.0)[None, :, None, None, None].expand(64, -1, 1, 4, 4)
    seen = []
    model = persistence(None)
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][:, :, 0, 0, 0]))
    torch.manual_seed(0)
    loss = found.loss(model, (times,))
    # Persistence is 1 off after a step and 2 after two.
    torch.testing.assert_close(loss, torch.tensor((1 + 4) / 2))
    assert {int(start) for start in seen[0][:, 0]} == {0, 1, 2}
