"""Gaussian fields by cosine series, and the two kinds of medium made of them."""

import numpy as np
import pytest

from chonn_lab.problems.random_fields import check_medium, cosine_series, medium


def centres(resolution):
    return (np.arange(resolution) + 0.5) / resolution


@pytest.mark.parametrize("mode", [(3,), (1, 2), (0, 2), (2, 0, 1)])
def test_one_mode_is_its_cosine(mode):
    noise = np.zeros((4,) * len(mode))
    noise[mode] = -1.5
    points = np.array([0.0, 0.2, 0.7, 1.0, 0.4])
    squares = sum(k**2 for k in mode)
    exact = np.array(-1.5 / (np.pi**2 * squares + 9))
    for k in mode:
        exact = np.multiply.outer(exact, (np.sqrt(2) if k else 1) * np.cos(np.pi * k * points))
    np.testing.assert_allclose(cosine_series(noise, points), exact, rtol=1e-12, atol=1e-15)


def test_field_has_no_mean():
    noise = np.random.default_rng(0).standard_normal((6, 6))
    other = noise.copy()
    other[0, 0] += 100
    np.testing.assert_array_equal(
        cosine_series(noise, centres(8)), cosine_series(other, centres(8))
    )
    # Midpoint sums of these cosines are exact.
    assert abs(cosine_series(noise, centres(8)).mean()) < 1e-15


@pytest.mark.parametrize("contrast", [7.0, 1000.0])
def test_log_normal_spread_is_the_contrast(contrast):
    """Two standard deviations up and down: the ratio is the contrast."""
    noise = np.random.default_rng(1).standard_normal((3000, 6, 6))
    logs = np.log([medium(sample, centres(6), "log-normal", contrast) for sample in noise])
    assert np.exp(4 * np.sqrt((logs**2).mean())) == pytest.approx(contrast, rel=0.15)
    assert abs(np.median(logs)) < 0.1


def test_logarithms_of_log_uniform_media_are_uniform():
    noise = np.random.default_rng(1).standard_normal((3000, 6, 6))
    k = np.array([medium(sample, centres(6), "log-uniform", 1e4) for sample in noise])
    assert 1e-2 < k.min() < 1.2e-2
    assert 80 < k.max() < 1e2
    tenths = np.quantile(np.log10(k), np.linspace(0, 1, 11))
    np.testing.assert_allclose(tenths, np.linspace(-2, 2, 11), atol=0.15)


def test_media_of_one_field():
    noise = np.random.default_rng(2).standard_normal((8, 8))
    field = cosine_series(noise, centres(10))
    two = medium(noise, centres(10), "two-phase", 1000.0)
    np.testing.assert_array_equal(two, np.where(field >= 0, 1.0, 1e-3))
    low, high = (medium(noise, centres(10), "log-normal", c) for c in (10.0, 1000.0))
    np.testing.assert_allclose(high, low**3, rtol=1e-12)
    np.testing.assert_array_equal(medium(noise, centres(10), "log-normal", 1.0), np.ones((10, 10)))


@pytest.mark.parametrize(
    ("coefficient", "contrast", "message"),
    [
        ("binary", 10.0, "coefficient: expected one of two-phase, log-normal, log-uniform, got"),
        ("two-phase", 0.5, "contrast: expected 1 to 1e.06, got 0.5"),
        ("two-phase", 1e7, "contrast: expected 1 to 1e.06, got 10000000.0"),
        ("log-normal", float("nan"), "contrast: expected 1 to 1e.06, got nan"),
    ],
)
def test_refusals(coefficient, contrast, message):
    with pytest.raises(ValueError, match=message):
        check_medium(coefficient, contrast)
