"""The generated file: PDEBench's layout, reproducible, whole or absent."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import os
from concurrent.futures import BrokenExecutor

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("pooch")

from chonn_lab.problems import darcy
from chonn_lab.problems.darcy_solver import solve_steady
from chonn_lab.problems.random_fields import draw_batch
from chonn_ops import files


def generate(path, n_samples=3, resolution=12, **options):
    darcy.generate(path, n_samples, resolution, progress=False, **options)
    with h5py.File(path) as file:
        return {name: file[name][...] for name in file}, dict(file.attrs)


def test_layout(tmp_path):
    data, attributes = generate(tmp_path / "darcy.hdf5", n_samples=3, resolution=10, beta=2.0)
    shapes = {name: (value.shape, value.dtype) for name, value in data.items()}
    assert shapes == {
        "tensor": ((3, 1, 10, 10), np.float32),
        "nu": ((3, 10, 10), np.float32),
        "x-coordinate": ((10,), np.float32),
        "y-coordinate": ((10,), np.float32),
    }
    np.testing.assert_allclose(data["x-coordinate"], np.arange(0.05, 1, 0.1), rtol=1e-6)
    np.testing.assert_array_equal(data["y-coordinate"], data["x-coordinate"])
    assert attributes["beta"] == 2.0
    assert "seed 0" in attributes["source"]
    assert set(np.unique(data["nu"])) == {np.float32(0.1), np.float32(1)}
    solution = solve_steady(np.where(data["nu"][1] > 0.5, 1.0, 0.1), 2.0)
    np.testing.assert_allclose(data["tensor"][1, 0], solution, rtol=1e-6)


@pytest.mark.parametrize(
    ("module", "name"), [("unet", "UNetDatasetSingle"), ("fno", "FNODatasetSingle")]
)
def test_pdebench_reads_it(tmp_path, module, name):
    utils = pytest.importorskip(f"pdebench.models.{module}.utils")
    data, _ = generate(tmp_path / "2D_DarcyFlow_beta1.0_Train.hdf5", n_samples=10, resolution=8)
    dataset = getattr(utils, name)(
        "2D_DarcyFlow_beta1.0_Train.hdf5", saved_folder=f"{tmp_path}/", initial_step=1
    )
    # The first tenth is PDEBench's test split.
    assert len(dataset) == 9
    given, frames, *grid = dataset[0]
    np.testing.assert_array_equal(given[..., 0, 0], data["nu"][1])
    np.testing.assert_array_equal(frames[..., 1, 0], data["tensor"][1, 0])
    if grid:
        np.testing.assert_allclose(grid[0][3, 5], [3.5 / 8, 5.5 / 8], rtol=1e-6)


def test_fields_have_pdebenchs_distribution():
    batch = draw_batch(np.random.SeedSequence(0), 32)
    assert (batch.shape, batch.dtype) == ((200, 32, 32), bool)
    per_sample = batch.mean(axis=(1, 2))
    # The threshold is the batch's: samples of nearly one phase occur beside balanced ones.
    assert per_sample.min() < 0.05
    assert per_sample.max() > 0.85
    assert 0.4 < batch.mean() < 0.6
    # Gaussian centres are inside the square, so high nu is likelier there than in the corners.
    assert batch[:, 16, 16].mean() > batch[:, [0, 0, -1, -1], [0, -1, 0, -1]].mean() + 0.3


def test_same_seed_same_medium_on_another_grid():
    seed = np.random.SeedSequence(7)
    fine, coarse = draw_batch(seed, 96), draw_batch(seed, 32)
    # The centres of the coarse cells are those of every third fine cell.
    assert (fine[:, 1::3, 1::3] == coarse).mean() > 0.995


@pytest.mark.slow
def test_data_do_not_depend_on_the_number_of_workers(tmp_path):
    files = [tmp_path / f"{workers}.hdf5" for workers in (1, 3)]
    for workers, path in zip((1, 3), files, strict=True):
        generate(path, n_samples=40, resolution=16, seed=4, workers=workers)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_prefix_property_across_a_batch(tmp_path):
    few, _ = generate(tmp_path / "few.hdf5", n_samples=203, resolution=6)
    more, _ = generate(tmp_path / "more.hdf5", n_samples=210, resolution=6)
    one, _ = generate(tmp_path / "one.hdf5", n_samples=1, resolution=6)
    for name in ("nu", "tensor"):
        np.testing.assert_array_equal(few[name], more[name][:203])
        np.testing.assert_array_equal(one[name], more[name][:1])


def test_seeds_and_batches_differ(tmp_path):
    first, _ = generate(tmp_path / "0.hdf5", n_samples=202, resolution=16)
    other, _ = generate(tmp_path / "1.hdf5", n_samples=2, resolution=16, seed=1)
    assert not np.array_equal(first["nu"][:2], other["nu"])
    assert not np.array_equal(first["nu"][:2], first["nu"][200:])


def test_existing_file_is_kept_without_force(tmp_path):
    path = tmp_path / "darcy.hdf5"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"darcy\.hdf5 \(replace it with --force"):
        generate(path)
    assert path.read_text() == "mine"
    data, _ = generate(path, force=True)
    assert len(data["nu"]) == 3


@pytest.mark.parametrize("hard_links", [True, False], ids=["hard-links", "no-hard-links"])
def test_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch, hard_links):
    if not hard_links:

        def link(*_):
            raise PermissionError("no hard links here")

        monkeypatch.setattr(os, "link", link)
    path = tmp_path / "out"

    def write():
        with files.whole_file(path, force=False) as staged:
            staged.write_text("ours")
            path.write_text("theirs")

    with pytest.raises(FileExistsError, match="output file exists"):
        write()
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"out": "theirs"}


@pytest.mark.parametrize("hard_links", [True, False], ids=["hard-links", "no-hard-links"])
def test_finished_file_has_its_name_only(tmp_path, monkeypatch, hard_links):
    if not hard_links:

        def link(*_):
            raise PermissionError("no hard links here")

        monkeypatch.setattr(os, "link", link)
    with files.whole_file(tmp_path / "out", force=False) as staged:
        staged.write_text("ours")
        assert not (tmp_path / "out").exists()
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"out": "ours"}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, OSError, BrokenExecutor])
def test_stopped_run_leaves_nothing(tmp_path, monkeypatch, stop):
    calls = []

    def solve(nu, *_):
        calls.append(len(nu))
        if len(calls) == 2:
            raise stop
        return np.zeros(nu.shape)

    monkeypatch.setattr(darcy, "solve_steady", solve)
    with pytest.raises(stop):
        generate(tmp_path / "darcy.hdf5", n_samples=20)
    assert len(calls) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"n_samples": 0}, "n_samples: expected at least 1, got 0"),
        ({"resolution": 1}, "resolution: expected at least 2, got 1"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
        ({"beta": 0.0}, "beta: expected positive and finite, got 0.0"),
        ({"beta": float("nan")}, "beta: expected positive and finite, got nan"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_arguments(tmp_path, argument, message):
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / "darcy.hdf5", **argument)
    assert list(tmp_path.iterdir()) == []


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder of the output file.*nowhere"):
        generate(tmp_path / "nowhere" / "darcy.hdf5")
    with pytest.raises(IsADirectoryError, match="this is a folder"):
        generate(tmp_path, force=True)


@pytest.mark.parametrize(("beta", "text"), [(1, "1.0"), (0.01, "0.01"), (100.0, "100.0")])
def test_default_name_is_pdebenchs(beta, text):
    assert darcy.default_name(beta) == f"2D_DarcyFlow_beta{text}_Train.hdf5"


def test_reading(tmp_path):
    path = tmp_path / "darcy.hdf5"
    data, _ = generate(path, 3, 16, domain="holes")
    nu, u = darcy.read(path, 1, 3, 16, "holes")
    np.testing.assert_array_equal(nu, data["nu"][1:])
    np.testing.assert_array_equal(u, data["tensor"][1:, 0])
    assert (nu.dtype, u.dtype) == (np.float32, np.float32)
    with pytest.raises(ValueError, match="expected data of the domain square, got holes"):
        darcy.read(path)
    with pytest.raises(ValueError, match=r"expected nu \(N, 8, 8\) .* got \(3, 16, 16\)"):
        darcy.read(path, resolution=8, domain="holes")
    with pytest.raises(ValueError, match="expected samples 2 to 4, got a file of 3"):
        darcy.read(path, 2, 4, domain="holes")
