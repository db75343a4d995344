"""Waves in open space: a point source in closed form, the card's media."""

import numpy as np
from scipy import special

from chonn_lab.problems import helmholtz


def test_a_point_source_in_free_space():
    """i / 4 H_0(k r), convolved with the source, which takes the factor exp(-(k w)^2 / 2)."""
    n, wave, width = 96, 14.0, helmholtz.SOURCE_WIDTH
    cells = (np.arange(n) + 0.5) / n
    x, y = np.meshgrid(cells, cells, indexing="ij")
    r = np.hypot(x - 0.5, y - 0.4)
    f = np.exp(-(r**2) / (2 * width**2)) / (2 * np.pi * width**2)
    u = helmholtz.solve(np.full((n, n), wave), f)
    exact = 0.25j * special.hankel1(0, wave * r) * np.exp(-((wave * width) ** 2) / 2)
    far = r > 6 * width
    assert np.abs(u - exact)[far].sum() < 0.03 * np.abs(exact)[far].sum()


def test_media_have_the_cards_law(tmp_path):
    inputs, u = helmholtz.read(helmholtz.generate(tmp_path / "a", 2, 48))
    k, f = inputs.astype(float).swapaxes(0, 1)
    assert 20 / 1.5 * 0.999 <= k.min() < k.max() <= 20 * 1.5 * 1.001
    np.testing.assert_allclose(f.mean((1, 2)), 1, rtol=1e-2)
    for medium, source, wave in zip(k, f, u, strict=True):
        exact = helmholtz.solve(medium, source)
        np.testing.assert_allclose(wave, [np.real(exact), np.imag(exact)], atol=1e-5)
