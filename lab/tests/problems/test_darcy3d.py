"""Darcy flow in three dimensions: scheme, files, reader."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import itertools

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")
pytest.importorskip("scipy")
pytest.importorskip("tqdm")

from kirchhoff import cell_residual

from chonn_lab.problems import darcy3d, origin
from chonn_lab.problems.darcy_solver import (
    cell_faces,
    conductance_matrix,
    darcy_matrix,
)


def generate(path, n_samples=5, resolution=5, **options):
    return darcy3d.generate(path, n_samples, resolution, progress=False, **options)


def media(resolution, coefficient="two-phase", contrast=10.0):
    part = darcy3d._solve_part(range(2), 0, resolution, coefficient, contrast, 1.0)
    return part["nu"].astype(float)


def test_second_order_convergence():
    errors = []
    for resolution in (8, 16):
        x, y, z = np.meshgrid(*[(np.arange(resolution) + 0.5) / resolution] * 3, indexing="ij")
        nu = 1 + x + y * z
        sines = [np.sin(np.pi * x), np.sin(2 * np.pi * y), np.sin(np.pi * z)]
        cosines = [np.pi * np.cos(np.pi * x), 2 * np.pi * np.cos(2 * np.pi * y)]
        cosines.append(np.pi * np.cos(np.pi * z))
        u = sines[0] * sines[1] * sines[2]
        slope = cosines[0] * sines[1] * sines[2]
        slope += z * sines[0] * cosines[1] * sines[2] + y * sines[0] * sines[1] * cosines[2]
        errors.append(np.abs(darcy3d.solve(nu, 6 * np.pi**2 * nu * u - slope) - u).max())
    assert np.log2(errors[0] / errors[1]) > 1.9
    assert errors[1] < 0.02


@pytest.mark.parametrize(
    ("coefficient", "contrast"), [("two-phase", 10.0), ("two-phase", 1000.0), ("log-normal", 100.0)]
)
def test_kirchhoffs_law_in_every_cell(coefficient, contrast):
    nu = media(6, coefficient, contrast)[0]
    u = darcy3d.solve(nu)
    assert np.abs(cell_residual(nu, u)).max() < 1e-9
    # An M-matrix.
    assert (u > 0).all()


def test_axes_and_directions_are_alike():
    nu = media(6)[1]
    u = darcy3d.solve(nu)
    for axes in itertools.permutations(range(3)):
        turned = darcy3d.solve(nu.transpose(axes).copy())
        np.testing.assert_allclose(turned, u.transpose(axes), rtol=1e-10)
    np.testing.assert_allclose(darcy3d.solve(np.flip(nu, 2).copy()), np.flip(u, 2), rtol=1e-10)
    assert not np.allclose(u, u.transpose(1, 0, 2))


def test_matrix_in_two_dimensions_is_the_other_solvers():
    nu = media(6)[0][0]
    found = conductance_matrix(cell_faces(nu)).toarray()
    np.testing.assert_allclose(found, darcy_matrix(nu, margin=0.0).toarray(), rtol=1e-12)


def test_layout_and_reader(tmp_path):
    path = generate(tmp_path / "out", contrast=1000.0, beta=2.0, seed=4)
    with h5py.File(path) as file:
        shapes = {name: (file[name].shape, file[name].dtype) for name in file}
        nu, u = file["nu"][...].astype(float), file["tensor"][:, 0]
    centres = {f"{axis}-coordinate": ((5,), np.float32) for axis in "xyz"}
    expected = {"nu": ((5, 5, 5, 5), np.float32), "tensor": ((5, 1, 5, 5, 5), np.float32)}
    assert shapes == expected | centres
    assert set(np.unique(nu)) == {np.float32(1e-3), 1.0}
    for sample in range(5):
        np.testing.assert_allclose(darcy3d.solve(nu[sample], 2.0), u[sample], rtol=1e-4)
    found = origin.read(path)
    assert (found.generator, found.official, found.seed) == ("darcy3d", False, 4)
    assert found.settings == {
        "n_samples": 5,
        "resolution": 5,
        "coefficient": "two-phase",
        "contrast": 1000.0,
        "beta": 2.0,
    }
    read_nu, read_u = darcy3d.read(path, 1, 3)
    assert (read_nu.dtype, read_nu.shape) == (torch.float32, (2, 5, 5, 5))
    np.testing.assert_array_equal(read_nu, nu[1:3])
    np.testing.assert_array_equal(read_u, u[1:3])
    with pytest.raises(ValueError, match="expected samples 1 to 9, got a file of 5"):
        darcy3d.read(path, 1, 9)


def test_same_field_on_every_grid_and_for_every_number_of_samples(tmp_path):
    few = darcy3d.read(generate(tmp_path / "few", 2, 4, coefficient="log-normal"))
    more = darcy3d.read(generate(tmp_path / "more", 6, 4, coefficient="log-normal"))
    fine = darcy3d.read(generate(tmp_path / "fine", 1, 12, coefficient="log-normal"))
    for one, other in zip(few, more, strict=True):
        assert torch.equal(one, other[:2])
    # The centres of the coarse cells are those of every third fine cell.
    torch.testing.assert_close(fine[0][0, 1::3, 1::3, 1::3], few[0][0], rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"n_samples": 0}, "n_samples: expected at least 1, got 0"),
        ({"resolution": 1}, "resolution: expected at least 2, got 1"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
        ({"beta": 0.0}, "beta: expected positive and finite, got 0.0"),
        ({"coefficient": "x"}, "coefficient: expected one of two-phase, log-normal, got 'x'"),
        ({"contrast": 0.1}, "contrast: expected 1 to 1e.06, got 0.1"),
    ],
)
def test_bad_arguments(tmp_path, argument, message):
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / "out", **argument)
    assert list(tmp_path.iterdir()) == []


def test_file_of_another_problem(tmp_path):
    with h5py.File(tmp_path / "out", "w") as file:
        file["nu"] = np.zeros((2, 3, 3, 3))
    with pytest.raises(ValueError, match="no data set tensor"):
        darcy3d.read(tmp_path / "out")
