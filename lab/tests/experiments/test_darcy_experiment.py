"""The Darcy experiment: data, scores, models, errors."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import dataclasses

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")
pytest.importorskip("scipy")
pytest.importorskip("tqdm")

from steady import (
    One,
    check_equal_budget,
    check_paper_step,
    check_smoke,
    check_sources,
    check_units,
)

from chonn_lab.experiments.darcy import EXPERIMENT
from chonn_lab.experiments.steady import SteadyConfig
from chonn_lab.problems import darcy
from chonn_ops.metrics import MetricAccumulator

SMOKE = EXPERIMENT.scales["smoke"]


@pytest.mark.slow
def test_every_smoke_run_writes_its_scores(tmp_path):
    run = check_smoke(EXPERIMENT, tmp_path)
    assert list(run.metrics) == ["test"]
    assert set(run.metrics["test"]) == set(EXPERIMENT.metrics)


def test_splits_follow_each_other_in_the_file(folder):
    data = EXPERIMENT.load(SMOKE, folder)
    (path,) = folder.iterdir()
    with h5py.File(path) as file:
        nu, u = file["nu"][...], file["tensor"][...]
    starts = 0, SMOKE.n_train, SMOKE.n_train + SMOKE.n_validation
    splits = data.train, data.validation, data.tests["test"]
    for split, start, size in zip(
        splits, starts, (SMOKE.n_train, SMOKE.n_validation, SMOKE.n_test), strict=True
    ):
        source, target = split.tensors
        np.testing.assert_array_equal(source[:, 0], nu[start : start + size])
        np.testing.assert_array_equal(target, u[start : start + size])


def test_the_published_file_is_read_and_never_replaced(tmp_path):
    config = SteadyConfig(n_train=3, n_validation=1, n_test=1, batch_size=1)
    path = tmp_path / darcy.OFFICIAL_NAME
    nu = np.random.default_rng(0).random((6, 128, 128)).astype("f4")
    with h5py.File(path, "w") as file:
        file["nu"], file["tensor"] = nu, nu[:, None]
    EXPERIMENT.prepare(config, tmp_path)
    data = EXPERIMENT.load(config, tmp_path)
    np.testing.assert_array_equal(data.tests["test"].tensors[0][:, 0], nu[4:5])


def test_scores_of_a_known_error(folder):
    data = EXPERIMENT.load(SMOKE, folder)
    evaluation = EXPERIMENT.evaluate(SMOKE, One(lambda x: 0.2 * x), data)
    source, target = data.tests["test"].tensors
    accumulator = MetricAccumulator()
    accumulator.update(*(f[:, 0, :, :, None, None] for f in (0.2 * source, target)))
    expected = accumulator.compute()
    scores = evaluation.metrics["test"]
    each = (0.2 * source - target).abs().sum((1, 2, 3)) / target.sum((1, 2, 3))
    assert scores.pop("relative_l1_median") == pytest.approx(float(each.quantile(0.5)), rel=1e-5)
    assert scores == pytest.approx({name: expected[name] for name in scores}, rel=1e-5)
    torch.testing.assert_close(evaluation.fields["target"], target[:2, 0])


def test_units_fit_the_fields(folder):
    check_units(EXPERIMENT, EXPERIMENT.load(SMOKE, folder))


def test_paper_settings():
    config = EXPERIMENT.scales["paper"]
    assert (config.n_train, config.n_validation, config.n_test) == (800, 100, 100)
    assert (config.optimizer, config.learning_rate, config.weight_decay) == ("adamw", 1e-3, 1e-3)
    assert (config.epochs, config.batch_size, config.resolution) == (1000, 4, 128)
    variants = {variant.name: variant for variant in EXPERIMENT.variants(config)}
    assert variants["unet"].changes == {"batch_size": 50, "learning_rate": 1e-3}
    assert variants["chonn2"].changes == {"learning_rate": 1e-3}
    check_sources(EXPERIMENT)


def test_equal_budget_at_the_small_scale():
    check_equal_budget(EXPERIMENT)


@pytest.mark.parametrize("name", ["unet", "fno", "chonn2"])
def test_a_training_step_at_paper_scale(name):
    check_paper_step(EXPERIMENT, name)


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        EXPERIMENT.load(SMOKE, tmp_path)
    EXPERIMENT.prepare(SMOKE, tmp_path, progress=False)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"hdf5: damaged") as error:
        EXPERIMENT.load(SMOKE, tmp_path)
    assert "\n" not in str(error.value)
    with h5py.File(path, "w") as file:
        file["nu"], file["tensor"] = np.ones((3, 32, 32), "f4"), np.ones((3, 1, 32, 32), "f4")
    with pytest.raises(ValueError, match="expected samples 0 to 16, got a file of 3"):
        EXPERIMENT.load(SMOKE, tmp_path)
    with h5py.File(path, "w") as file:
        file["nu"], file["tensor"] = np.ones((16, 8, 8), "f4"), np.ones((16, 1, 8, 8), "f4")
    with pytest.raises(ValueError, match=r"expected nu \(N, 32, 32\).*got \(16, 8, 8\)"):
        EXPERIMENT.load(SMOKE, tmp_path)


def test_other_sizes_have_files_of_their_own(folder):
    more = dataclasses.replace(SMOKE, n_train=9)
    with pytest.raises(FileNotFoundError):
        EXPERIMENT.load(more, folder)
