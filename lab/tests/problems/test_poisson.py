"""Poisson data: the series against an independent solver, CNO's ranges, splits."""

import h5py
import numpy as np
import pytest

from chonn_lab.problems import fno_darcy, poisson


@pytest.mark.parametrize("k", [3, poisson.K_IN])
def test_converges_to_a_sparse_direct_solve(k):
    a = np.random.default_rng(0).uniform(-1, 1, (k, k))
    errors = []
    for n in (65, 129, 257):
        f, u = poisson.fields(a, n)
        errors.append(np.linalg.norm(fno_darcy.solve(np.ones((n, n)), f) - u) / np.linalg.norm(u))
    assert errors[-1] < 2e-3
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2, atol=0.05)


def test_series_as_written_in_the_paper():
    k, n = 4, 9
    a = np.random.default_rng(1).uniform(-1, 1, (k, k))
    x, expected = np.arange(n) / (n - 1), np.zeros((n, n))
    for i, j in np.ndindex(k, k):
        size = np.pi / k**2 * a[i, j] * ((i + 1) ** 2 + (j + 1) ** 2) ** 0.5
        expected += size * np.outer(np.sin(np.pi * (i + 1) * x), np.sin(np.pi * (j + 1) * x))
    f, u = poisson.fields(a, n)
    np.testing.assert_allclose(f, expected, atol=1e-12)
    for field in (f, u):
        assert not field[[0, -1]].any()
        assert not field[:, [0, -1]].any()


def test_normalised_with_the_training_ranges(tmp_path):
    inside, _ = poisson.generate(tmp_path, 1160, 3, progress=False)
    with h5py.File(inside) as file:
        names = "input", "output"
        both = [np.stack([file[f"Sample_{i}/{x}"][...] for i in range(1160)]) for x in names]
    expected = [(x - x[:1024].min()) / np.ptp(x[:1024]) for x in both]
    for split, first in (("train", 0), ("validation", 1024), ("test", 1152)):
        for found, field in zip(poisson.read(tmp_path, split, 8), expected, strict=True):
            np.testing.assert_allclose(found, field[first : first + 8], atol=1e-6)
    with pytest.raises(ValueError, match="split: expected one of"):
        poisson.read(tmp_path, "val")
    with pytest.raises(ValueError, match="n_samples: expected 1 to 256 for test, got 257"):
        poisson.read(tmp_path, "test", 257)


def test_some_samples_on_finer_grids(tmp_path):
    coarse = poisson.generate(tmp_path, 7, 4, 16, seed=3, progress=False)
    for kind, whole in zip(poisson.KINDS, coarse, strict=True):
        path = tmp_path / f"some_{kind}"
        poisson.generate_samples(path, kind, range(2, 4), 31, seed=3, progress=False)
        with h5py.File(path) as few, h5py.File(whole) as file:
            assert sorted(few) == ["Sample_2", "Sample_3"]
            for name in ("input", "output"):
                found, expected = few[f"Sample_3/{name}"][::2, ::2], file[f"Sample_3/{name}"][...]
                np.testing.assert_allclose(found, expected, atol=1e-5)
