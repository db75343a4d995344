"""Darcy flow: PDEBench's distribution and readers, other media, samples on other grids."""

import sys

import h5py
import numpy as np
import pytest

from chonn_lab.problems import darcy, darcy_pdebench, origin
from chonn_lab.problems.darcy_solver import solve_steady
from chonn_lab.problems.grids import cell_centres
from chonn_lab.problems.random_fields import cosine_series, draw_batch, medium


def generate(path, n_samples=3, resolution=12, **options):
    darcy.generate(path, n_samples, resolution, progress=False, **options)
    with h5py.File(path) as file:
        return file["nu"][...], file["tensor"][:, 0]


@pytest.mark.parametrize(
    ("module", "name"), [("unet", "UNetDatasetSingle"), ("fno", "FNODatasetSingle")]
)
def test_pdebench_reads_it(tmp_path, module, name):
    utils = pytest.importorskip(f"pdebench.models.{module}.utils")
    nu, u = generate(tmp_path / darcy.OFFICIAL_NAME, 10, 8)
    dataset = getattr(utils, name)(darcy.OFFICIAL_NAME, saved_folder=f"{tmp_path}/", initial_step=1)
    # The first tenth is PDEBench's test split.
    assert len(dataset) == 9
    given, frames, *grid = dataset[0]
    np.testing.assert_array_equal(given[..., 0, 0], nu[1])
    np.testing.assert_array_equal(frames[..., 1, 0], u[1])
    if grid:
        np.testing.assert_allclose(grid[0][3, 5], [3.5 / 8, 5.5 / 8], rtol=1e-6)


def test_fields_have_pdebenchs_distribution():
    batch = draw_batch(np.random.default_rng(0), 32)
    assert (batch.shape, batch.dtype) == ((200, 32, 32), bool)
    per_sample = batch.mean(axis=(1, 2))
    # The threshold is the batch's: samples of nearly one phase occur beside balanced ones.
    assert per_sample.min() < 0.05
    assert per_sample.max() > 0.85
    assert 0.4 < batch.mean() < 0.6
    # Gaussian centres are inside the square, so high nu is likelier there than in the corners.
    assert batch[:, 16, 16].mean() > batch[:, [0, 0, -1, -1], [0, -1, 0, -1]].mean() + 0.3
    # The centres of the coarse cells are those of every third fine cell.
    fine = draw_batch(np.random.default_rng(0), 96)
    assert (fine[:, 1::3, 1::3] == batch).mean() > 0.995


def test_samples_of_a_batch_and_of_the_next_one(tmp_path):
    whole = generate(tmp_path / "all", 206, 4)
    some = generate(tmp_path / "some", 5, 4, first=197)
    for field, few in zip(whole, some, strict=True):
        np.testing.assert_array_equal(field[197:202], few)
    other, _ = generate(tmp_path / "other", 2, 16, seed=1)
    first, _ = generate(tmp_path / "first", 202, 16)
    assert not np.array_equal(first[:2], other)
    assert not np.array_equal(first[:2], first[200:])


def test_log_normal_samples(tmp_path):
    low, _ = generate(tmp_path / "low", coefficient="log-normal")
    high, u = generate(tmp_path / "high", coefficient="log-normal", contrast=1000.0)
    np.testing.assert_allclose(high, low.astype(float) ** 3, rtol=1e-5)
    np.testing.assert_allclose(u[2], solve_steady(high[2].astype(float), 1.0), rtol=1e-4)
    fine, _ = generate(tmp_path / "fine", 1, 36, coefficient="log-normal")
    np.testing.assert_allclose(fine[0, 1::3, 1::3], low[0], rtol=1e-5)


@pytest.mark.parametrize("mode", [(1, 2), (0, 2), (3, 0)])
def test_one_mode_is_its_cosine(mode):
    noise = np.zeros((4, 4))
    noise[mode] = -1.5
    # The mean does not count.
    noise[0, 0] = 100
    points = np.array([0.0, 0.2, 0.7, 1.0, 0.4])
    exact = np.array(-1.5 / (np.pi**2 * sum(k**2 for k in mode) + 9))
    for k in mode:
        exact = np.multiply.outer(exact, (np.sqrt(2) if k else 1) * np.cos(np.pi * k * points))
    np.testing.assert_allclose(cosine_series(noise, points), exact, rtol=1e-12, atol=1e-15)


def media(*law):
    noise = np.random.default_rng(1).standard_normal((3000, 6, 6))
    return np.array([medium(sample, cell_centres(6), *law) for sample in noise])


@pytest.mark.parametrize("contrast", [7.0, 1000.0])
def test_log_normal_spread_is_the_contrast(contrast):
    """Two standard deviations up and down: the ratio is the contrast."""
    logs = np.log(media("log-normal", contrast))
    assert np.exp(4 * np.sqrt((logs**2).mean())) == pytest.approx(contrast, rel=0.15)
    assert abs(np.median(logs)) < 0.1


def test_logarithms_of_log_uniform_media_are_uniform():
    k = media("log-uniform", 1e4)
    assert 1e-2 < k.min() < 1.2e-2
    assert 80 < k.max() < 1e2
    tenths = np.quantile(np.log10(k), np.linspace(0, 1, 11))
    np.testing.assert_allclose(tenths, np.linspace(-2, 2, 11), atol=0.15)


# PDEBench's generator as far as this package sees it: files in the folder where it is called.
STAND_IN = """#!{python}
import json, sys
import numpy as np
settings = json.loads(sys.argv[5])["multi"]
n, key = settings["nx"], settings["init_key"]
np.save("nu_diff_coef_beta1.0_key0", np.full((200, n, n), key + 1.0))
np.save("2D_ReacDiff_Multi_beta1.0_key0", np.arange(9.0)[:, None, None] + np.zeros((200, 1, n, n)))
"""


def test_pdebenchs_generator_is_called_a_batch_a_time(tmp_path, monkeypatch):
    pytest.importorskip("pdebench")
    monkeypatch.delenv("CHONN_JAX", raising=False)
    path = tmp_path / "late.hdf5"
    with pytest.raises(ValueError, match="python: expected an interpreter with jax"):
        darcy_pdebench.generate(path)
    with pytest.raises(ValueError, match="generator failed: ModuleNotFoundError"):
        darcy_pdebench.generate(path, 1, 8, python=sys.executable)
    stand_in = tmp_path / "python"
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(0o755)
    darcy_pdebench.generate(path, 201, 8, seed=3, python=str(stand_in))
    nu, u = darcy.read(path)
    assert nu.shape == u.shape == (201, 8, 8)
    assert (nu[199, 0, 0], nu[200, 0, 0]) == (4, 5)
    assert (u == 7).all()  # the last frame but one
    assert origin.read(path)["settings"] == {"n_samples": 201, "resolution": 8}
