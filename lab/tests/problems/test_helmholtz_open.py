"""Waves in an open medium: against Hankel's function, samples, layout, refusals."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
special = pytest.importorskip("scipy.special")
pytest.importorskip("tqdm")

from chonn_lab.problems import helmholtz_open


def generate(path, n_samples=2, resolution=16, wavenumber=5.0, **options):
    return helmholtz_open.generate(
        path, n_samples, resolution, wavenumber, progress=False, **options
    )


def test_a_point_source_in_free_space():
    """i / 4 H_0(k r), convolved with the source, which takes the factor exp(-(k w)^2 / 2)."""
    n, wave, width = 96, 14.0, helmholtz_open.SOURCE_WIDTH
    cells = (np.arange(n) + 0.5) / n
    x, y = np.meshgrid(cells, cells, indexing="ij")
    r = np.hypot(x - 0.5, y - 0.4)
    f = np.exp(-(r**2) / (2 * width**2)) / (2 * np.pi * width**2)
    u = helmholtz_open.solve(np.full((n, n), wave), f)
    exact = 0.25j * special.hankel1(0, wave * r) * np.exp(-((wave * width) ** 2) / 2)
    far = r > 6 * width
    assert np.abs(u - exact)[far].sum() < 0.03 * np.abs(exact)[far].sum()


def test_samples_do_not_depend_on_their_number(tmp_path):
    inputs, u = helmholtz_open.read(generate(tmp_path / "two"))
    later = helmholtz_open.read(generate(tmp_path / "later", 1, first=1))
    np.testing.assert_array_equal(later[0][0], inputs[1])
    np.testing.assert_array_equal(later[1][0], u[1])
    assert inputs.shape == u.shape == (2, 2, 16, 16)
    k, f = inputs.double().unbind(1)
    assert 5 / 1.5 * 0.999 <= k.min() < k.max() <= 5 * 1.5 * 1.001
    np.testing.assert_allclose(f.mean((1, 2)), 1, rtol=1e-2)
    for medium, source, wave in zip(k, f, u, strict=True):
        exact = helmholtz_open.solve(medium.numpy(), source.numpy())
        np.testing.assert_allclose(wave, [exact.real, exact.imag], atol=1e-5)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"first": -1}, "first: expected at least 0, got -1"),
        ({"wavenumber": 0.0}, "wavenumber: expected above 0 and finite, got 0"),
        ({"contrast": 0.9}, "contrast: expected at least 1 and finite, got 0.9"),
        ({"resolution": 11}, "resolution: expected at least 12 for 10 cells a wavelength at"),
    ],
)
def test_bad_arguments(tmp_path, argument, message):
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / "out", **argument)
    assert list(tmp_path.iterdir()) == []
