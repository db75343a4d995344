"""ConDiff: the published equations, the law of the media."""

import h5py
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import linalg

from chonn_lab.problems import condiff

CUBIC = np.polynomial.Polynomial([1, 0, -7, 8.75, 0, -3.5, 0, 0.75])
LAWS = {
    "cubic": lambda h: CUBIC(h) if h < 1 else 0.0,
    "exponential": lambda h: np.exp(-h),
    "gaussian": lambda h: np.exp(-h * h),
}


def matrix(k):
    """Equation by equation, with the corner (i, j) at i + j R."""
    n = len(k) - 1
    entries = sparse.lil_matrix((n * n, n * n))
    for i in range(n):
        for j in range(n):
            # The corner (i, j) lies between the cells i and i + 1, and j and j + 1.
            for di, dj, one, other in (
                (-1, 0, k[i, j], k[i, j + 1]),
                (1, 0, k[i + 1, j], k[i + 1, j + 1]),
                (0, -1, k[i, j], k[i + 1, j]),
                (0, 1, k[i, j + 1], k[i + 1, j + 1]),
            ):
                g = (one + other) / 2 * (n + 1) ** 2
                entries[i + j * n, i + j * n] += g
                if 0 <= i + di < n and 0 <= j + dj < n:
                    entries[i + j * n, i + di + (j + dj) * n] -= g
    return entries.tocsc()


@pytest.mark.parametrize("covariance", LAWS)
def test_the_file_solves_the_published_equations(tmp_path, covariance):
    """As it is stored: `rhs` and `x` with x for the fastest index."""
    path = condiff.generate(tmp_path / "data", 2, 13, covariance, 1.0, progress=False)
    _, f, u = condiff.read(path)
    with h5py.File(path) as file:
        # The reader has the axes of k.
        np.testing.assert_array_equal(f.swapaxes(1, 2).reshape(2, -1), file["rhs"])
        np.testing.assert_array_equal(u.swapaxes(1, 2).reshape(2, -1), file["x"])
        for k, rhs, x in zip(*(file[name][...] for name in ("k", "rhs", "x")), strict=True):
            expected = linalg.spsolve(matrix(k.astype(float)), rhs.astype(float))
            np.testing.assert_allclose(x, expected, atol=1e-5 * np.abs(expected).max())
            wrong = linalg.spsolve(matrix(k.T.astype(float)), rhs.astype(float))
            assert np.abs(x - wrong).max() > 0.05 * np.abs(wrong).max()


@pytest.mark.parametrize("covariance", LAWS)
def test_fields_have_the_covariance(covariance):
    n, rng = 33, np.random.default_rng(0)
    pairs = np.array([condiff._two_fields(rng, covariance, n) for _ in range(400)])
    fields = pairs.reshape(-1, n, n)
    for i, j in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (0, 3), (n - 1, 0), (n - 1, n - 1)):
        ours = (fields[:, : n - i, : n - j] * fields[:, i:, j:]).mean()
        expected = LAWS[covariance](np.hypot(i, j) / n / 0.05)
        # The mean of 800 products, or of many more where they are many.
        assert ours == pytest.approx(expected, abs=0.02 if i + j < n - 1 else 0.12), (i, j)
    assert abs(fields.mean()) < 0.02
    assert abs((pairs[:, 0] * pairs[:, 1]).mean()) < 0.02
    # As rough at the walls as in the middle.
    assert fields[:, 0, 0].var() == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("variance", condiff.CONTRASTS)
def test_contrast_lies_in_the_published_limits(variance):
    low, high = {0.1: (5, 15), 0.4: (50, 250), 1.0: (600, 1000), 2.0: (8e4, 1e5)}[variance]
    k, f = condiff.draw(0, 1, 64, "exponential", variance)
    assert low <= k.max() / k.min() <= high
    assert f.std() == pytest.approx(1, abs=0.05)
    # Of nearly independent cells: the median of a log-normal number is 1.
    assert np.log(k).std() == pytest.approx(np.sqrt(variance), rel=0.25)
