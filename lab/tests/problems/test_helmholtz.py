"""Helmholtz's equation: scheme, distance from resonance, what no M-matrix can do, files."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("scipy")
pytest.importorskip("tqdm")

from kirchhoff import cell_residual

from chonn_lab.problems import helmholtz, origin


def generate(path, n_samples=2, resolution=29, **options):
    return helmholtz.generate(path, n_samples, resolution, progress=False, **options)


def squares(resolution, k):
    centres = (np.arange(resolution) + 0.5) / resolution
    x, y = np.meshgrid(centres, centres, indexing="ij")
    return np.where((x < 0.4) & (y < 0.7), 1.5 * k, k)


def test_second_order_convergence_with_a_variable_wave_number():
    errors = []
    for resolution in (32, 64, 128):
        centres = (np.arange(resolution) + 0.5) / resolution
        x, y = np.meshgrid(centres, centres, indexing="ij")
        k = 12 + 3 * x * y
        u = np.sin(2 * np.pi * x) * np.sin(3 * np.pi * y)
        errors.append(np.abs(helmholtz.solve(k, (13 * np.pi**2 - k**2) * u)[0] - u).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 1.8).all(), (errors, orders)


def test_balance_in_every_cell():
    k = squares(24, 12.0)
    u, _ = helmholtz.solve(k)
    # Kirchhoff's law with the current k^2 u into every cell.
    assert np.abs(cell_residual(np.ones(k.shape), u, 1 + k**2 * u)).max() < 1e-10


@pytest.mark.parametrize("wavenumber", [5.0, 12.0, 13.7])
def test_distance_is_that_of_the_nearest_eigenvalue(wavenumber):
    resolution = 16
    one = 4 * resolution**2 * np.sin(np.pi * np.arange(1, resolution + 1) / (2 * resolution)) ** 2
    exact = np.abs(np.add.outer(one, one) - wavenumber**2).min()
    _, distance = helmholtz.solve(np.full((resolution, resolution), wavenumber))
    assert distance == pytest.approx(exact, rel=1e-4)


def test_symmetries():
    k = squares(20, 12.0)
    u, _ = helmholtz.solve(k)
    assert not np.allclose(u, u.T)
    for change in (np.transpose, np.flipud):
        np.testing.assert_allclose(helmholtz.solve(change(k).copy())[0], change(u), atol=1e-10)
    even, _ = helmholtz.solve(np.full((20, 20), 12.0))
    for change in (np.transpose, np.flipud, np.fliplr):
        np.testing.assert_allclose(change(even), even, atol=1e-12)


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


def test_resonance(monkeypatch):
    # Four cells: the lowest eigenvalue of -laplace is 16.
    assert helmholtz.solve(np.full((2, 2), 4.0))[1] < 1e-9

    def splu(_):
        raise RuntimeError("Factor is exactly singular")

    monkeypatch.setattr(helmholtz.scipy.sparse.linalg, "splu", splu)
    with pytest.raises(ValueError, match="k away from resonance, got a singular matrix: Factor"):
        helmholtz.solve(np.full((2, 2), 4.0))


def test_layout_and_origin(tmp_path):
    path = generate(tmp_path / "out", seed=3)
    with h5py.File(path) as file:
        shapes = {name: (file[name].shape, file[name].dtype) for name in file}
        k, u = file["k"][...], file["tensor"][...]
    assert shapes == {
        "k": ((2, 29, 29), np.float32),
        "tensor": ((2, 1, 29, 29), np.float32),
        "x-coordinate": ((29,), np.float32),
        "y-coordinate": ((29,), np.float32),
    }
    assert set(np.unique(k)) == {12.0, 18.0}
    for sample in range(2):
        exact = helmholtz.solve(k[sample].astype(float))[0]
        np.testing.assert_allclose(u[sample, 0], exact, rtol=1e-5, atol=1e-8)
    found = origin.read(path)
    assert (found.generator, found.official, found.seed) == ("helmholtz", False, 3)
    settings = {"n_samples": 2, "resolution": 29, "wavenumber": 12.0, "ratio": 1.5}
    assert found.settings == {**settings, "first": 0, "drawn_at": 29}
    one = helmholtz.read(generate(tmp_path / "one", 1, seed=3))
    np.testing.assert_array_equal(one[0], k[:1])
    np.testing.assert_array_equal(one[1], u[:1, 0])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"n_samples": 0}, "n_samples: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
        ({"wavenumber": 4.4}, r"above sqrt\(2\) pi = 4.44288, where .* indefinite, .* got 4.4"),
        ({"wavenumber": float("inf")}, "and finite, got inf"),
        ({"ratio": 0.9}, "ratio: expected at least 1 and finite, got 0.9"),
        ({"resolution": 28}, "resolution: expected at least 29 for 10 cells a wavelength at .* 18"),
    ],
)
def test_bad_arguments(tmp_path, argument, message):
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / "out", **argument)
    assert list(tmp_path.iterdir()) == []
