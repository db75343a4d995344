"""Helmholtz's equation, closed and open: resonance, what no M-matrix can do."""

import numpy as np
import pytest
from scipy import special

from chonn_lab.problems import helmholtz, helmholtz_open


def generate(path, n_samples=2, resolution=29, **options):
    return helmholtz.generate(path, n_samples, resolution, progress=False, **options)


@pytest.mark.parametrize("wavenumber", [5.0, 12.0, 13.7])
def test_distance_is_that_of_the_nearest_eigenvalue(wavenumber):
    resolution = 16
    one = 4 * resolution**2 * np.sin(np.pi * np.arange(1, resolution + 1) / (2 * resolution)) ** 2
    exact = np.abs(np.add.outer(one, one) - wavenumber**2).min()
    _, distance = helmholtz.solve(np.full((resolution, resolution), wavenumber))
    assert distance == pytest.approx(exact, rel=1e-4)


def test_no_m_matrix_has_these_solutions(tmp_path):
    """The card's claim: indefinite, and a positive source makes u negative somewhere."""
    k, u = helmholtz.read(generate(tmp_path / "out", 3))
    for sample, solution in zip(k.double().numpy(), u.numpy(), strict=True):
        lowest = np.linalg.eigvalsh(helmholtz.helmholtz_matrix(sample).toarray())
        assert lowest[0] < 0 < lowest[-1]
        assert np.abs(lowest).min() >= helmholtz.LEAST_DISTANCE * (1 - 1e-6)
        assert solution.min() < -0.1 * np.abs(solution).max()
    below, _ = helmholtz.solve(np.full((16, 16), 4.0))
    assert (below > 0).all()


def test_samples_near_a_resonance_are_drawn_again(tmp_path, monkeypatch):
    monkeypatch.setattr(helmholtz, "LEAST_DISTANCE", 0.0)
    first = helmholtz.read(generate(tmp_path / "any", 6))[0]
    distances = [helmholtz.solve(sample)[1] for sample in first.double().numpy()]
    limit = sorted(distances)[3]
    monkeypatch.setattr(helmholtz, "LEAST_DISTANCE", limit)
    again = helmholtz.read(generate(tmp_path / "far", 6))[0]
    kept = [bool((one == other).all()) for one, other in zip(first, again, strict=True)]
    assert kept == [distance >= limit for distance in distances]
    assert all(helmholtz.solve(sample)[1] >= limit for sample in again.double().numpy())
    monkeypatch.setattr(helmholtz, "LEAST_DISTANCE", 1e9)
    monkeypatch.setattr(helmholtz, "MOST_ATTEMPTS", 2)
    with pytest.raises(ValueError, match=r"2 attempts at sample 0 were all closer than 1e\+09"):
        generate(tmp_path / "none")


def test_samples_of_a_grid_on_a_finer_one(tmp_path):
    """The same media, whatever the eigenvalues of the finer grid say."""
    coarse, _ = helmholtz.read(generate(tmp_path / "coarse", 4))
    fine, u = helmholtz.read(generate(tmp_path / "fine", 2, 87, first=2, drawn_at=29))
    # The centres of the coarse cells are those of every third fine one.
    np.testing.assert_array_equal(fine[:, 1::3, 1::3], coarse[2:])
    exact = helmholtz.solve(fine[0].double().numpy())[0]
    np.testing.assert_allclose(u[0], exact, rtol=1e-5, atol=1e-8)


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


def test_open_media_have_the_cards_law(tmp_path):
    inputs, u = helmholtz_open.read(helmholtz_open.generate(tmp_path / "a", 2, 16, 5.0))
    k, f = inputs.double().unbind(1)
    assert 5 / 1.5 * 0.999 <= k.min() < k.max() <= 5 * 1.5 * 1.001
    np.testing.assert_allclose(f.mean((1, 2)), 1, rtol=1e-2)
    for medium, source, wave in zip(k, f, u, strict=True):
        exact = helmholtz_open.solve(medium.numpy(), source.numpy())
        np.testing.assert_allclose(wave, [exact.real, exact.imag], atol=1e-5)
