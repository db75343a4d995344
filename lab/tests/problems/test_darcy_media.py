"""Darcy flow in media other than PDEBench's: higher contrast, log-normal, log-uniform."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("pooch")

from chonn_lab.problems import darcy, origin
from chonn_lab.problems.darcy_solver import darcy_matrix, solve_steady
from chonn_lab.problems.random_fields import COEFFICIENTS


def generate(path, n_samples=3, resolution=12, **options):
    darcy.generate(path, n_samples, resolution, progress=False, **options)
    with h5py.File(path) as file:
        return file["nu"][...], file["tensor"][:, 0]


def test_contrast_changes_the_low_phase_only(tmp_path):
    usual, _ = generate(tmp_path / "10")
    nu, u = generate(tmp_path / "1000", contrast=1000.0)
    assert set(np.unique(usual)) == {np.float32(0.1), 1}
    np.testing.assert_array_equal(nu, np.where(usual == 1, np.float32(1), np.float32(1e-3)))
    np.testing.assert_allclose(u[1], solve_steady(np.where(usual[1] == 1, 1, 1e-3), 1.0), rtol=1e-6)
    found = origin.read(tmp_path / "1000")
    assert found.settings is not None
    assert found.settings.items() >= {"coefficient": "two-phase", "contrast": 1000.0}.items()


@pytest.mark.parametrize("contrast", [1e3, 1e6])
@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_every_cell_balances_at_high_contrast(tmp_path, coefficient, contrast):
    nu = generate(tmp_path / "out", coefficient=coefficient, contrast=contrast)[0].astype(float)
    for sample in nu:
        u = solve_steady(sample, 1.0)
        matrix = darcy_matrix(sample)
        flows = abs(matrix) @ u.ravel()
        assert (np.abs(matrix @ u.ravel() - 1) <= 1e-11 * flows).all()
        assert (u > 0).all()


def test_log_normal_samples(tmp_path):
    low, _ = generate(tmp_path / "low", coefficient="log-normal")
    high, u = generate(tmp_path / "high", coefficient="log-normal", contrast=1000.0)
    np.testing.assert_allclose(high, low.astype(float) ** 3, rtol=1e-5)
    assert len(np.unique(high)) > 400
    np.testing.assert_allclose(u[2], solve_steady(high[2].astype(float), 1.0), rtol=1e-4)
    fine, _ = generate(tmp_path / "fine", 1, 36, coefficient="log-normal")
    np.testing.assert_allclose(fine[0, 1::3, 1::3], low[0], rtol=1e-5)
    late, _ = generate(tmp_path / "late", 1, coefficient="log-normal", first=2)
    np.testing.assert_array_equal(late[0], low[2])


def test_log_normal_on_a_domain(tmp_path):
    nu, u = generate(tmp_path / "out", 1, 16, coefficient="log-normal", domain="l-shape")
    assert not nu[0, 8:, 8:].any()
    assert not u[0, 8:, 8:].any()
    assert (nu[0, :8] > 0).all()


def test_bad_media(tmp_path):
    with pytest.raises(ValueError, match="coefficient: expected one of two-phase, log-normal"):
        generate(tmp_path / "out", coefficient="x")
    with pytest.raises(ValueError, match=r"contrast: expected 1 to 1e\+06, got 0"):
        generate(tmp_path / "out", contrast=0)
    assert list(tmp_path.iterdir()) == []


def test_names_tell_media_apart():
    assert darcy.default_name(1) == darcy.OFFICIAL_NAME
    names = {
        darcy.default_name(1, "square", coefficient, contrast)
        for coefficient in COEFFICIENTS
        for contrast in (10.0, 1000.0)
    }
    assert len(names) == 6
    assert "2D_DarcyFlow_beta1.0_Train_log-normal_contrast1000.hdf5" in names
