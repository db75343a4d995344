"""The shallow-water experiment, mostly on a file in PDEBench's layout made without PyClaw."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import dataclasses
import importlib.util
import sys

import numpy as np
import pytest
import torch
from forecasting import Persistence, check_learning, check_paper_step, check_sources

h5py = pytest.importorskip("h5py")
pytest.importorskip("filelock")
pytest.importorskip("pooch")

from chonn_lab.experiments.base import PDEBENCH_METRICS
from chonn_lab.experiments.shallow_water import EXPERIMENT
from chonn_ops import metrics

SMOKE = EXPERIMENT.scales["smoke"]
NAME = "2D_rdb_NA_NA_16x16_8.h5"

needs_pyclaw = pytest.mark.skipif(
    importlib.util.find_spec("clawpack") is None, reason="PyClaw missing: make setup-pyclaw"
)


def rings(n=8, resolution=16):
    """Rings that widen at unit speed, (n, 101, R, R)."""
    x = (np.arange(resolution) + 0.5) * 5 / resolution - 2.5
    r = np.hypot(x[:, None], x)
    t = np.linspace(0, 1, 101)[:, None, None]
    starts = np.linspace(0.3, 0.7, n)[:, None, None, None]
    return (1 + np.exp(-(((r - starts - t) / 0.4) ** 2))).astype("f4")


def write(path, fields):
    with h5py.File(path, "w") as file:
        for i, field in enumerate(fields):
            file[f"{i:04d}/data"] = field[..., None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write(path / NAME, rings())
    return path


def test_every_setting_has_a_source():
    check_sources(EXPERIMENT)


def test_paper_scale_reads_the_official_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"2D_rdb_NA_NA\.h5"):
        EXPERIMENT.load(EXPERIMENT.scales["paper"], tmp_path)


def test_splits_and_stride(folder):
    EXPERIMENT.prepare(SMOKE, folder, progress=False)  # Nothing to do.
    data = EXPERIMENT.load(SMOKE, folder)
    frames = torch.from_numpy(rings())[:, ::20]
    torch.testing.assert_close(data.train.tensors[0], frames[:4])
    torch.testing.assert_close(data.validation.tensors[0], frames[4:6])
    torch.testing.assert_close(data.tests["test"].tensors[0], frames[6:])


def test_scores_of_persistence(folder):
    data = EXPERIMENT.load(SMOKE, folder)
    scores = EXPERIMENT.evaluate(SMOKE, Persistence(), data)
    (frames,) = data.tests["test"].tensors
    target = frames[:, SMOKE.history :]
    prediction = frames[:, SMOKE.history - 1, None].expand_as(target)
    theirs, ours = ((f.movedim(1, -1)[..., None]) for f in (target, prediction))
    found = scores.metrics["test"]
    assert found["csv"] == pytest.approx(metrics.conserved_rmse(ours, theirs))
    for name in ("rmse", "nrmse", "max_error", "boundary_rmse"):
        assert found[name] == pytest.approx(getattr(metrics, name)(ours, theirs))
    assert found["fourier_rmse_low"] == pytest.approx(metrics.fourier_rmse(ours, theirs).low)
    # 16 points carry no mode of the high band.
    assert set(found) == set(PDEBENCH_METRICS) - {"fourier_rmse_high"}
    errors = EXPERIMENT.errors(SMOKE, Persistence(), (frames,))
    curve = scores.curves["rollout_relative_l2"]
    assert errors.mean().item() == pytest.approx(np.mean(curve))
    torch.testing.assert_close(scores.fields["prediction"], prediction[:, [0, -1]])


def test_loss_takes_stretches_from_the_whole_trajectory():
    times = torch.arange(SMOKE.n_frames).float()[None, :, None, None].expand(64, -1, 4, 4)
    seen = []

    class Recorder(Persistence):
        def forward(self, frames):
            seen.append(frames[:, :, 0, 0])
            return super().forward(frames)

    torch.manual_seed(0)
    loss = EXPERIMENT.loss(SMOKE, Recorder(), (times,))
    # Persistence is 1 off after a step and 2 after two.
    torch.testing.assert_close(loss, torch.tensor((1 + 4) / 2))
    torch.testing.assert_close(seen[0].diff(dim=1), torch.ones(64, SMOKE.history - 1))
    last_start = SMOKE.n_frames - SMOKE.history - SMOKE.unroll
    assert set(seen[0][:, 0].tolist()) == set(range(last_start + 1))


@pytest.mark.parametrize("variant", EXPERIMENT.variants(SMOKE), ids=lambda variant: variant.name)
def test_every_variant_learns(variant, folder):
    check_learning(EXPERIMENT, variant, folder, steps=15, share=0.8)


def test_one_step_at_paper_scale():
    frames = torch.from_numpy(rings(1, EXPERIMENT.scales["paper"].resolution))
    # Two of the 20 predictions keep the test short.
    check_paper_step(EXPERIMENT, frames, unroll=2)


def test_damaged_and_foreign_files(tmp_path):
    write(tmp_path / NAME, rings(8, 8))
    with pytest.raises(ValueError, match=r"expected samples \(8, 101, 16, 16\), got \(8, 101, 8"):
        EXPERIMENT.load(SMOKE, tmp_path)
    write(tmp_path / NAME, rings(7))
    with pytest.raises(ValueError, match="expected samples 0 to 8, got a file of 7"):
        EXPERIMENT.load(SMOKE, tmp_path)
    file = tmp_path / NAME
    file.write_bytes(file.read_bytes()[:-400])
    with pytest.raises(ValueError, match="damaged"):
        EXPERIMENT.load(SMOKE, tmp_path)


def test_missing_pyclaw_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "clawpack", None)
    with pytest.raises(ImportError, match="make setup-pyclaw"):
        EXPERIMENT.prepare(SMOKE, tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == []


@needs_pyclaw
def test_prepare_generates_what_load_reads(tmp_path):
    EXPERIMENT.prepare(SMOKE, tmp_path, progress=False)
    data = EXPERIMENT.load(SMOKE, tmp_path)
    assert data.train.tensors[0].shape == (4, SMOKE.n_frames, 16, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stride": 0}, "stride: expected at least 1, got 0"),
        ({"unroll": 5}, r"history \+ unroll: expected at most the 6 frames .* got 2 \+ 5"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_bad_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMOKE, **changes)
