"""The Poisson experiment: data, scores in the published convention, models, errors."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import dataclasses
import shutil

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")
pytest.importorskip("tqdm")

from steady import (
    One,
    check_equal_budget,
    check_paper_step,
    check_smoke,
    check_sources,
    check_units,
)

from chonn_lab.experiments.poisson import EXPERIMENT, PoissonConfig
from chonn_lab.problems import poisson

SMOKE = EXPERIMENT.scales["smoke"]


@pytest.mark.slow
def test_every_smoke_run_writes_its_scores(tmp_path):
    run = check_smoke(EXPERIMENT, tmp_path)
    assert set(run.metrics) == {"test", "out_of_distribution"}
    assert set(run.metrics["test"]) == set(EXPERIMENT.metrics)


def test_splits_are_those_of_the_files(folder):
    data = EXPERIMENT.load(SMOKE, folder)
    assert [len(split) for split in (data.train, data.validation, *data.tests.values())] == [
        SMOKE.n_train,
        SMOKE.n_validation,
        SMOKE.n_test,
        SMOKE.n_out_of_distribution,
    ]
    ranges = dataclasses.asdict(poisson.read_normalization(folder))
    for split, kind, index in (
        (data.train, "IN", 0),
        (data.validation, "IN", 1024),
        (data.tests["test"], "IN", 1152),
        (data.tests["out_of_distribution"], "OUT", 0),
    ):
        with h5py.File(folder / poisson.file_name(kind)) as file:
            f, u = (file[f"Sample_{index}/{name}"][...] for name in ("input", "output"))
        f = (f - ranges["min_inp"]) / (ranges["max_inp"] - ranges["min_inp"])
        u = (u - ranges["min_out"]) / (ranges["max_out"] - ranges["min_out"])
        source, target = split[0]
        assert source.shape == (1, 64, 64)
        np.testing.assert_allclose(source[0], f, atol=1e-6)
        np.testing.assert_allclose(target[0], u, atol=1e-6)


def test_silence_scores_what_the_module_says(folder):
    """The error of u = 0 everywhere puts all others into proportion."""
    config = dataclasses.replace(SMOKE, n_test=256, n_out_of_distribution=256)
    data = EXPERIMENT.load(config, folder)
    ranges = poisson.read_normalization(folder)
    zero = -ranges.min_out / (ranges.max_out - ranges.min_out)
    scores = EXPERIMENT.evaluate(config, One(lambda x: torch.full_like(x, zero)), data).metrics
    assert scores["test"]["relative_l1_median"] == pytest.approx(0.147, abs=5e-4)
    assert scores["out_of_distribution"]["relative_l1_median"] == pytest.approx(0.100, abs=5e-4)


def test_scores_of_a_known_error(folder):
    data = EXPERIMENT.load(SMOKE, folder)
    tests = {
        name: torch.utils.data.TensorDataset(test.tensors[1], test.tensors[1])
        for name, test in data.tests.items()
    }
    data = dataclasses.replace(data, tests=tests)
    evaluation = EXPERIMENT.evaluate(SMOKE, One(lambda x: 1.1 * x), data)
    target = tests["test"].tensors[1].double()
    scores = evaluation.metrics["test"]
    assert scores["relative_l1"] == pytest.approx(0.1, rel=1e-5)
    assert scores["relative_l1_median"] == pytest.approx(0.1, rel=1e-5)
    extent = target.amax((1, 2, 3)) - target.amin((1, 2, 3))
    nrmse = (0.1 * target.square().mean((1, 2, 3)).sqrt() / extent).mean()
    assert scores["range_nrmse"] == pytest.approx(float(nrmse), rel=1e-5)
    peak = (0.1 * target.abs().amax((1, 2, 3))).square().mean()
    assert scores["max_mse"] == pytest.approx(float(peak), rel=1e-5)
    torch.testing.assert_close(evaluation.fields["prediction"], 1.1 * evaluation.fields["target"])
    assert evaluation.fields["input"].shape == (2, 64, 64)


def test_loss_is_the_mean_of_the_samples_errors(folder):
    data = EXPERIMENT.load(SMOKE, folder)
    batch = tuple(tensor[:3] for tensor in data.train.tensors)
    model = One(lambda x: x)
    errors = EXPERIMENT.errors(SMOKE, model, batch)
    assert errors.shape == (3,)
    expected = [float((x - y).abs().sum() / y.abs().sum()) for x, y in zip(*batch, strict=True)]
    np.testing.assert_allclose(errors, expected, rtol=1e-5)
    assert float(EXPERIMENT.loss(SMOKE, model, batch)) == pytest.approx(np.mean(expected), rel=1e-5)


def test_units_fit_the_fields(folder):
    check_units(EXPERIMENT, EXPERIMENT.load(dataclasses.replace(SMOKE, n_train=128), folder))


def test_paper_settings():
    config = EXPERIMENT.scales["paper"]
    assert (config.n_train, config.n_validation, config.n_test) == (1024, 128, 256)
    assert (config.optimizer, config.learning_rate, config.weight_decay) == ("adam", 1e-3, 1e-6)
    assert (config.schedule, config.step_size, config.gamma) == ("step", 10, 0.98)
    assert (config.epochs, config.batch_size, config.seed) == (1000, 16, 0)
    assert not config.standardize
    variants = {variant.name: variant for variant in EXPERIMENT.variants(config)}
    assert [variants[f"chonn{n}"].tags["order"] for n in range(5)] == [0, 1, 2, 3, 4]
    for name in ("unet", "fno", "cno"):
        assert variants[name].changes["batch_size"] == 32
    check_sources(EXPERIMENT)


def test_equal_budget_at_the_small_scale():
    check_equal_budget(EXPERIMENT)


@pytest.mark.parametrize("name", ["unet", "fno", "cno", "chonn4"])
def test_a_training_step_at_paper_scale(name):
    check_paper_step(EXPERIMENT, name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_train": 1025}, "n_train: expected 1 to 1024, got 1025"),
        ({"n_out_of_distribution": 0}, "n_out_of_distribution: expected 1 to 256, got 0"),
        ({"resolution": 2}, "resolution: expected at least 3, got 2"),
        ({"baseline_batch_size": 0}, "baseline_batch_size: expected at least 1, got 0"),
        ({"fno_learning_rate": -1.0}, "fno_learning_rate: expected at least 0, got -1.0"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        PoissonConfig(**changes)


@pytest.mark.parametrize("kind", ["IN", "OUT"])
def test_missing_one_of_our_files_is_made(folder, tmp_path, kind):
    other = {"IN": "OUT", "OUT": "IN"}[kind]
    for name in map(poisson.file_name, ("IN", "OUT")):
        shutil.copy(folder / name, tmp_path / name)
    (tmp_path / poisson.file_name(kind)).unlink()
    kept = tmp_path / poisson.file_name(other)
    there = (kept.stat().st_ino, kept.stat().st_mtime_ns)
    EXPERIMENT.prepare(SMOKE, tmp_path, progress=False)
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == there
    name = poisson.file_name(kind)
    assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        EXPERIMENT.load(SMOKE, tmp_path)
    (tmp_path / poisson.file_name("IN")).write_bytes(b"half of it")
    with pytest.raises(ValueError, match=r"expected both .* got PoissonData_64x64_IN.h5 alone"):
        EXPERIMENT.prepare(SMOKE, tmp_path)
    with pytest.raises(ValueError, match=r"IN\.h5: damaged") as error:
        EXPERIMENT.load(SMOKE, tmp_path)
    assert "\n" not in str(error.value)
