"""The maze's experiment, mostly on a file of its layout made without PyClaw."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import dataclasses
import importlib.util

import numpy as np
import pytest
import torch
from forecasting import Persistence, check_learning, check_sources

h5py = pytest.importorskip("h5py")
pytest.importorskip("filelock")

from chonn_lab.experiments.maze import EXPERIMENT, GIVEN, PRESSURE, vrmse
from chonn_lab.problems import maze

SMOKE = EXPERIMENT.scales["smoke"]
NAME = "maze_grid16_8.hdf5"

needs_pyclaw = pytest.mark.skipif(
    importlib.util.find_spec("clawpack") is None, reason="PyClaw missing: make setup-pyclaw"
)


def waves(n=8, resolution=16):
    """Standing waves between walls, and the medium's density."""
    x = np.pi * (np.arange(resolution) + 0.5) / resolution
    modes = np.arange(1, n + 1)[:, None, None]
    field = np.cos((modes % 3) * x[:, None]) * np.cos((1 + modes // 3) * x)
    t = np.cos(0.3 * np.arange(maze.N_STEPS + 1))
    density = np.full((n, resolution, resolution), maze.PATH_DENSITY)
    density[:, 4:6] = maze.WALL_DENSITY
    return density.astype("f4"), (t[:, None, None] * field[:, None]).astype("f4")


def write(path, density, pressure):
    with h5py.File(path, "w") as file:
        file["density"], file["pressure"] = density, pressure


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write(path / NAME, *waves())
    return path


class InMedium(Persistence):
    def forward(self, frames, medium):
        assert medium.shape[:2] == (len(frames), 1)
        return super().forward(frames)


def test_every_setting_has_a_source():
    check_sources(EXPERIMENT)


def test_splits_and_units(folder):
    EXPERIMENT.prepare(SMOKE, folder, progress=False)  # Nothing to do.
    data = EXPERIMENT.load(SMOKE, folder)
    density, pressure = map(torch.from_numpy, waves())
    frames, medium = data.validation.tensors
    torch.testing.assert_close(frames * PRESSURE, pressure[4:6])
    torch.testing.assert_close(medium[:, 0] == 1, density[4:6] > 10)
    assert [len(d) for d in (data.train, data.validation, data.tests["test"])] == [4, 2, 2]


def test_vrmse_is_one_for_the_mean():
    target = torch.randn(2, 3, 8, 8) + 5
    mean = target.mean((2, 3), keepdim=True).expand_as(target)
    torch.testing.assert_close(vrmse(mean, target), torch.ones(2, 3))
    torch.testing.assert_close(vrmse(target, target), torch.zeros(2, 3))
    half = (mean + target) / 2
    torch.testing.assert_close(vrmse(half, target), torch.full((2, 3), 0.5))


def test_scores_of_persistence(folder):
    data = EXPERIMENT.load(SMOKE, folder)
    scores = EXPERIMENT.evaluate(SMOKE, InMedium(), data)
    frames, _ = batch = data.tests["test"].tensors
    target = frames[:, GIVEN:]
    rolled = vrmse(frames[:, GIVEN - 1, None].expand_as(target), target).mean(0)
    single = vrmse(frames[:, GIVEN - 1 : -1], target).mean(0)
    assert scores.metrics["test"] == {
        "one_step_vrmse": pytest.approx(single.mean().item()),
        "rollout_vrmse": pytest.approx(rolled.mean().item()),
        "rollout_vrmse_last": pytest.approx(rolled[-1].item()),
    }
    assert scores.curves["rollout_vrmse"] == pytest.approx(rolled.tolist())
    found = EXPERIMENT.errors(SMOKE, InMedium(), batch).mean().item()
    assert found == pytest.approx(single[::5].mean().item())


def test_loss_takes_stretches_from_the_whole_trajectory():
    times = torch.arange(maze.N_STEPS + 1.0)[None, :, None, None].expand(64, -1, 4, 4)
    config = dataclasses.replace(SMOKE, unroll=2)
    seen = []

    class Recorder(InMedium):
        def forward(self, frames, medium):
            seen.append(frames[:, :, 0, 0])
            return super().forward(frames, medium)

    torch.manual_seed(0)
    loss = EXPERIMENT.loss(config, Recorder(), (times, torch.zeros(64, 1, 4, 4)))
    # Persistence is 1 off after a step and 2 after two.
    torch.testing.assert_close(loss, torch.tensor((1 + 4) / 2))
    last_start = maze.N_STEPS + 1 - config.history - config.unroll
    assert {int(start) for start in seen[0][:, 0]} == set(range(last_start + 1))


@pytest.mark.parametrize("variant", EXPERIMENT.variants(SMOKE), ids=lambda variant: variant.name)
def test_every_variant_learns(variant, folder):
    check_learning(EXPERIMENT, variant, folder, steps=30, share=0.8)


@pytest.mark.parametrize("variant", EXPERIMENT.variants(SMOKE), ids=lambda variant: variant.name)
def test_every_variant_is_told_the_walls(variant, folder):
    config = dataclasses.replace(SMOKE, **variant.changes)
    frames, medium = EXPERIMENT.load(config, folder).train.tensors
    torch.manual_seed(0)
    model = variant.build(config).eval()
    with torch.no_grad():
        here, there = (model(frames[:, :4], m) for m in (medium, 1 - medium))
    assert (here - there).abs().max() > 1e-4


def test_damaged_and_foreign_files(tmp_path):
    write(tmp_path / NAME, *waves(8, 12))
    with pytest.raises(ValueError, match=r"expected samples \(8, 24, 16, 16\), got \(8, 24, 12"):
        EXPERIMENT.load(SMOKE, tmp_path)
    write(tmp_path / NAME, *waves(7))
    with pytest.raises(ValueError, match="expected samples 0 to 8, got a file of 7"):
        EXPERIMENT.load(SMOKE, tmp_path)


@needs_pyclaw
def test_prepare_generates_what_load_reads(tmp_path):
    EXPERIMENT.prepare(SMOKE, tmp_path, progress=False)
    frames, medium = EXPERIMENT.load(SMOKE, tmp_path).train.tensors
    assert frames.shape == (4, maze.N_STEPS + 1, 16, 16)
    assert 0.2 < medium.mean() < 0.8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"substeps": 0}, "substeps: expected at least 1, got 0"),
        ({"history": 5}, "history: expected at most 4, got 5"),
        ({"unroll": 23}, r"history \+ unroll: expected at most the 24 frames .* got 2 \+ 23"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_bad_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMOKE, **changes)
