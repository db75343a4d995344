"""The Navier-Stokes experiment: splits, losses, scores, every variant, the paper's settings."""

import dataclasses

import pytest
import torch
from forecasting import Persistence, check_learning, check_paper_step, check_sources

pytest.importorskip("h5py")
pytest.importorskip("scipy")

from chonn_lab.experiments.navier_stokes import EXPERIMENT, GIVEN, HISTORIES
from chonn_lab.problems import navier_stokes

SMOKE = EXPERIMENT.scales["smoke"]


def test_every_setting_has_a_source():
    check_sources(EXPERIMENT)


def test_splits_are_consecutive(folder):
    data = EXPERIMENT.load(SMOKE, folder)
    frames = torch.from_numpy(navier_stokes.read(*folder.iterdir()))
    torch.testing.assert_close(data.validation.tensors[0], frames[4:6])
    torch.testing.assert_close(data.tests["test"].tensors[0], frames[6:8])
    assert len(data.train) == 4 * SMOKE.horizon
    torch.testing.assert_close(data.train[0][0], frames[0, : GIVEN + 1])


def test_every_history_learns_the_same_frames(folder):
    targets = []
    for history in HISTORIES:
        config = dataclasses.replace(SMOKE, history=history)
        train = EXPERIMENT.load(config, folder).train
        (window,) = train[range(len(train))]
        assert window.shape[1] == history + 1
        targets.append(window[:, -1])
    torch.testing.assert_close(targets[0], targets[1])
    torch.testing.assert_close(targets[0], targets[2])


def test_scores_of_persistence(folder):
    data = EXPERIMENT.load(SMOKE, folder)
    scores = EXPERIMENT.evaluate(SMOKE, Persistence(), data)
    (frames,) = data.tests["test"].tensors
    last, target = frames[:, GIVEN - 1, None], frames[:, GIVEN:]
    norms = target.norm(dim=(2, 3))
    expected = ((last - target).norm(dim=(2, 3)) / norms).mean(dim=0)
    curve = torch.tensor(scores.curves["rollout_relative_l2"])
    torch.testing.assert_close(curve, expected)
    metrics = scores.metrics["test"]
    assert metrics["rollout_relative_l2"] == pytest.approx(float(expected.mean()))
    assert metrics["rollout_relative_l2_last"] == pytest.approx(float(expected[-1]))
    single = (frames[:, GIVEN - 1 : -1] - target).norm(dim=(2, 3)) / norms
    assert metrics["one_step_relative_l2"] == pytest.approx(float(single.mean()))
    errors = EXPERIMENT.errors(SMOKE, Persistence(), (frames,))
    assert errors.mean().item() == pytest.approx(metrics["rollout_relative_l2"])
    torch.testing.assert_close(scores.fields["target"], target[:, [0, -1]])


def test_loss_is_the_mean_relative_error_of_the_steps(folder):
    config = dataclasses.replace(SMOKE, unroll=2)
    batch = EXPERIMENT.load(config, folder).train[[0, 5]]
    last, target = batch[0][:, -3, None], batch[0][:, -2:]
    expected = ((last - target).norm(dim=(2, 3)) / target.norm(dim=(2, 3))).mean()
    torch.testing.assert_close(EXPERIMENT.loss(config, Persistence(), batch), expected)


def test_every_history_has_the_same_models():
    names = {variant.name for variant in EXPERIMENT.variants(SMOKE)}
    for model in ("fno", "chonn"):
        names -= {f"{model}-{history}" for history in HISTORIES}
    assert not names


@pytest.mark.parametrize("name", ["fno-10", "chonn-5"])
def test_models_learn(name, folder):
    variant = next(v for v in EXPERIMENT.variants(SMOKE) if v.name == name)
    check_learning(EXPERIMENT, variant, folder, steps=20, share=0.9)


def test_one_step_at_paper_scale():
    config = EXPERIMENT.scales["paper"]
    size = (2, config.history + config.unroll, config.resolution, config.resolution)
    check_paper_step(EXPERIMENT, torch.rand(size))


def test_damaged_and_foreign_files(folder, tmp_path):
    (file,) = folder.iterdir()
    with pytest.raises(FileNotFoundError, match="no such file"):
        EXPERIMENT.load(SMOKE, tmp_path)
    (tmp_path / file.name).write_bytes(file.read_bytes()[:-400])
    with pytest.raises(ValueError, match="damaged"):
        EXPERIMENT.load(SMOKE, tmp_path)
    navier_stokes.generate(tmp_path / "other.mat", 8, 14, 8, 8, 0.1, progress=False)
    (tmp_path / "other.mat").replace(tmp_path / file.name)
    message = r"expected samples \(8, 14, 16, 16\), got \(8, 14, 8, 8\)"
    with pytest.raises(ValueError, match=message):
        EXPERIMENT.load(SMOKE, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"history": 11}, "history: expected at most 10, got 11"),
        ({"history": 0}, "history: expected at least 1, got 0"),
        ({"unroll": 5}, "horizon: expected at least the unroll of 5, got 4"),
        ({"resolution": 0}, "resolution: expected at least 1, got 0"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_bad_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMOKE, **changes)
