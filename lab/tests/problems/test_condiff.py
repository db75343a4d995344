"""ConDiff: scheme, law of the media, file in the published layout, reader, refusals."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")
sparse = pytest.importorskip("scipy.sparse")
linalg = pytest.importorskip("scipy.sparse.linalg")
pytest.importorskip("tqdm")

from chonn_lab.problems import condiff

CUBIC = np.polynomial.Polynomial([1, 0, -7, 8.75, 0, -3.5, 0, 0.75])
LAWS = {
    "cubic": lambda h: CUBIC(h) if h < 1 else 0.0,
    "exponential": lambda h: np.exp(-h),
    "gaussian": lambda h: np.exp(-h * h),
}


def generate(path, n_samples=3, resolution=24, covariance="cubic", variance=0.4, **options):
    return condiff.generate(
        path, n_samples, resolution, covariance, variance, progress=False, **options
    )


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
    path = generate(tmp_path / "data", 2, 13, covariance, 1.0)
    with h5py.File(path) as file:
        assert set(file) == {"k", "rhs", "x"}
        assert {name: file[name].shape for name in file} == {
            "k": (2, 14, 14),
            "rhs": (2, 169),
            "x": (2, 169),
        }
        assert all(file[name].dtype == "f4" for name in file)
        for k, rhs, x in zip(*(file[name][...] for name in ("k", "rhs", "x")), strict=True):
            expected = linalg.spsolve(matrix(k.astype(float)), rhs.astype(float))
            np.testing.assert_allclose(x, expected, atol=1e-5 * np.abs(expected).max())
            wrong = linalg.spsolve(matrix(k.T.astype(float)), rhs.astype(float))
            assert np.abs(x - wrong).max() > 0.05 * np.abs(wrong).max()


def test_second_order_convergence():
    errors = []
    for resolution in (15, 31, 63):
        cells = (np.arange(resolution + 1) + 0.5) / (resolution + 1)
        k = 1 + cells[:, None] * cells**2
        x, y = np.meshgrid(*[condiff.corners(resolution)] * 2, indexing="ij")
        u = np.sin(np.pi * x) * np.sin(2 * np.pi * y)
        u_x = np.pi * np.cos(np.pi * x) * np.sin(2 * np.pi * y)
        u_y = 2 * np.pi * np.sin(np.pi * x) * np.cos(2 * np.pi * y)
        f = 5 * np.pi**2 * (1 + x * y**2) * u - y**2 * u_x - 2 * x * y * u_y
        errors.append(np.abs(condiff.solve(k, f) - u).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 1.9).all(), (errors, orders)


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


@pytest.mark.parametrize("covariance", LAWS)
@pytest.mark.parametrize("n", [9, 65])
def test_the_embedding_loses_nothing(covariance, n):
    """No eigenvalue of size is negative: those on the torus give back the covariance."""
    on_torus = np.fft.ifft2((2 * n * condiff._deviations(covariance, n)) ** 2).real[:n, :n]
    steps = np.arange(n) / n / 0.05
    exact = np.vectorize(LAWS[covariance])(np.hypot(steps[:, None], steps))
    np.testing.assert_allclose(on_torus, exact, atol=1e-12)


@pytest.mark.parametrize("covariance", LAWS)
@pytest.mark.parametrize(
    ("variance", "low", "high"), [(0.1, 5, 15), (0.4, 50, 250), (1.0, 600, 1000), (2.0, 8e4, 1e5)]
)
def test_contrast_lies_in_the_published_limits(covariance, variance, low, high):
    assert condiff.CONTRASTS[variance] == (low, high)
    for sample in range(2):
        k, f = condiff.draw(0, sample, 64, covariance, variance)
        assert (k.shape, f.shape) == ((65, 65), (64, 64))
        assert low <= k.max() / k.min() <= high
        assert abs(f.mean()) < 0.1
        assert f.std() == pytest.approx(1, abs=0.05)
        # Of nearly independent cells: the median of a log-normal number is 1.
        assert np.log(k).std() == pytest.approx(np.sqrt(variance), rel=0.25)


def test_samples_do_not_depend_on_their_number(tmp_path):
    whole = generate(tmp_path / "whole", 18)
    assert generate(tmp_path / "again", 18).read_bytes() == whole.read_bytes()
    few = condiff.read(generate(tmp_path / "few", 2))
    assert not any(torch.equal(*field) for field in few)
    for one, all_ in zip(few, condiff.read(whole), strict=True):
        assert torch.equal(one, all_[:2])
    other = condiff.read(generate(tmp_path / "other", 2, seed=1))
    assert not any(torch.equal(one, all_) for one, all_ in zip(other, few, strict=True))
    # The same sources in every medium.
    rough = condiff.read(generate(tmp_path / "rough", 2, covariance="exponential", variance=1.0))
    assert torch.equal(rough[1], few[1])
    assert not torch.equal(rough[0], few[0])


def test_reader_aligns_the_axes(tmp_path):
    path = generate(tmp_path / "data")
    k, f, u = condiff.read(path)
    assert (k.shape, f.shape, u.shape) == ((3, 25, 25), (3, 24, 24), (3, 24, 24))
    assert k.dtype == f.dtype == u.dtype == torch.float32
    for sample in range(3):
        medium, source = condiff.draw(0, sample, 24, "cubic", 0.4)
        np.testing.assert_array_equal(k[sample], medium.astype("f4"))
        np.testing.assert_array_equal(f[sample], source.astype("f4"))
        np.testing.assert_allclose(u[sample], condiff.solve(medium, source), rtol=1e-5, atol=1e-9)
    for some, all_ in zip(condiff.read(path, 1, 2), (k, f, u), strict=True):
        assert torch.equal(some, all_[1:2])


def test_reader_takes_published_files_and_refuses_others(tmp_path):
    path = tmp_path / "cubic2.0_grid64_train.h5"
    rng = np.random.default_rng(0)

    def write(n_corners):
        with h5py.File(path, "w") as file:
            file["k"] = rng.random((2, 5, 5))
            file["rhs"], file["x"] = rng.random((2, 2, n_corners))

    write(16)
    k, f, _ = condiff.read(path)
    with h5py.File(path) as file:
        assert float(f[1, 3, 0]) == pytest.approx(file["rhs"][1, 3])
        np.testing.assert_array_equal(k, file["k"][...].astype("f4"))
    with pytest.raises(ValueError, match="expected samples 1 to 3, got a file of 2"):
        condiff.read(path, 1, 3)
    write(25)
    with pytest.raises(ValueError, match=r"expected k \(N, R \+ 1, R \+ 1\), rhs and x"):
        condiff.read(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        condiff.read(tmp_path / "none")


def test_grids_without_the_contrast(monkeypatch):
    monkeypatch.setattr(condiff, "MOST_DRAWS", 20)
    message = "contrasts of 80,000 to 100,000, got 4, on which none of 20 fields has"
    with pytest.raises(ValueError, match=message):
        condiff.draw(0, 0, 4, "cubic", 2.0)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"n_samples": 0}, "n_samples: expected at least 1, got 0"),
        ({"resolution": 1}, "resolution: expected at least 2, got 1"),
        ({"covariance": "matern"}, "covariance: expected one of .*cubic.*, got 'matern'"),
        ({"variance": 3.0}, "variance: expected one of 0.1, 0.4, 1, 2, got 3.0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
    ],
)
def test_bad_arguments(tmp_path, argument, message):
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / "out", **argument)
    assert list(tmp_path.iterdir()) == []
