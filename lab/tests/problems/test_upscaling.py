"""Upscaling: the equation, media, and the order of the coarse conductivities."""

import numpy as np
import pytest

from chonn_lab.problems import upscaling
from chonn_lab.problems.darcy_solver import solve_steady


def test_the_equation_in_one_medium():
    """Means at faces are those of `chonn_ops.diffusion`; spacing, source and walls are checked."""
    expected = solve_steady(np.ones((24, 24)), 1.0, margin=0.0)
    np.testing.assert_allclose(upscaling.solve(np.ones((1, 24, 24)))[0], expected, rtol=1e-9)


@pytest.mark.parametrize("kind", upscaling.KINDS)
def test_media_are_those_of_the_card(kind):
    k = upscaling.medium(np.random.default_rng(0), kind, 256).astype(float)
    assert np.log(k).mean() == pytest.approx(0, abs=1e-6)
    if kind == "log-normal":
        assert np.log(k).std() == pytest.approx(2, rel=0.2)
    else:
        assert len(np.unique(k)) == 2
        assert k.max() / k.min() == pytest.approx(1000, rel=1e-5)
        assert {"two-phase": 0.4, "channels": 0.05}[kind] < (k > 1).mean() < 0.6
    # The same field on a coarser grid, but for the cells that it cuts.
    coarse = upscaling.medium(np.random.default_rng(0), kind, 128).astype(float)
    near = np.log(k.reshape(128, 2, 128, 2)).mean((1, 3))
    assert np.corrcoef(near.ravel(), np.log(coarse).ravel())[0, 1] > 0.8


def test_pressures_are_means_over_blocks_and_splits_differ(tmp_path):
    sizes = dict.fromkeys(("n_train", "n_validation", "n_test"), 3)
    path = upscaling.generate(tmp_path / "data.h5", resolution=32, **sizes)
    splits = [upscaling.read(path, split) for split in upscaling.SPLITS]
    assert len({u.mean() for samples in splits for u in samples.u}) == 9
    for samples in splits:
        np.testing.assert_array_equal(samples.kind, [0, 1, 2])
        fine = upscaling.solve(samples.k).reshape(3, 8, 4, 8, 4).mean((2, 4))
        np.testing.assert_allclose(samples.u, fine, rtol=1e-12)
