"""Samples of data files in all layouts, and files that are damaged."""

import h5py
import numpy as np
import pytest
import torch
from scipy.io import savemat

from chonn_ops.inspect import read_samples


def test_layouts(tmp_path):
    with h5py.File(tmp_path / "groups.h5", "w") as file:
        for name in ("0000", "0001"):
            file[f"{name}/data"] = np.arange(3.0 * 8 * 6 * 2).reshape(3, 8, 6, 2)
            file[f"{name}/grid/x"], file[f"{name}/grid/y"] = np.arange(8.0), np.arange(6.0)
    samples = read_samples(tmp_path / "groups.h5", 1)
    assert samples.fields.shape == (1, 3, 2, 8, 6)
    # As PDEBench flattens (\*grid, frames, channels): frames slowest.
    flat = (
        torch.arange(3.0 * 8 * 6 * 2).reshape(3, 8, 6, 2).permute(1, 2, 0, 3)[:, :, :2].flatten(2)
    )
    assert torch.equal(samples.inputs(4)[0].permute(1, 2, 0), flat)
    assert samples.grid_coordinates()[0, 3, 2].tolist() == [3, 2]
    with h5py.File(tmp_path / "line.hdf5", "w") as file:
        file["tensor"], file["x-coordinate"] = np.zeros((4, 5, 32)), np.arange(32.0)
    assert read_samples(tmp_path / "line.hdf5", 0, 2).fields.shape == (2, 5, 1, 32)
    with h5py.File(tmp_path / "PoissonData_IN.h5", "w") as file:
        file["min_inp"], file["max_inp"], file["min_out"], file["max_out"] = -1.0, 3.0, 0.0, 1.0
        for i in range(2):
            file[f"Sample_{i}/input"] = np.full((4, 4), float(i))
    samples = read_samples(tmp_path / "PoissonData_IN.h5")
    assert samples.fields[:, 0, 0, 0, 0].tolist() == [0.25, 0.5]
    outside = tmp_path / "PoissonData_OUT.h5"  # scaled by the range of the file IN
    with h5py.File(outside, "w") as file:
        file["Sample_0/input"] = np.full((4, 4), 7.0)
    assert read_samples(outside).fields[0, 0, 0, 0, 0] == 2


@pytest.mark.parametrize("suffix", [".npy", ".pt"])
@pytest.mark.parametrize(
    ("shape", "channels"), [((3, 8), 1), ((3, 8, 6), 1), ((3, 2, 8, 6), 2), ((3, 1, 4, 8, 6), 1)]
)
def test_arrays_of_ones_own(shape, channels, suffix, tmp_path):
    """The shapes that the help of `chonn inspect` and its page state."""
    x, path = np.random.default_rng(7).random(shape, np.float32), tmp_path / f"mine{suffix}"
    np.save(path, x) if suffix == ".npy" else torch.save(torch.from_numpy(x), path)
    samples = read_samples(path)
    grid = shape[1:] if len(shape) < 4 else shape[2:]
    expected = torch.from_numpy(x).reshape(3, channels, *grid)
    assert torch.equal(samples.inputs(channels), expected)
    assert samples.grid_coordinates()[0, ..., -1].amin() == pytest.approx(
        0.5 * len(grid) / sum(grid)
    )


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_matlab_files_at_the_nodes_of_the_tables(tmp_path, version):
    a = np.random.default_rng(0).random((3, 169, 169))
    path = tmp_path / "piececonst.mat"
    if version == "5":
        savemat(path, {"coeff": a, "sol": a})
    else:
        with h5py.File(path, "w") as file:
            file["coeff"] = file["sol"] = a.T
    samples = read_samples(path, 1)
    assert torch.equal(samples.targets, samples.reference)
    assert samples.first == 1
    assert samples.fields.shape == (2, 1, 1, 85, 85)
    np.testing.assert_allclose(samples.reference.numpy(), a[1:, ::2, ::2], rtol=1e-6)
    assert samples.grid_coordinates()[0, 84, 42].tolist() == [1, 0.5]


def test_files_of_something_else(tmp_path):
    for name in ("text.hdf5", "text.mat", "text.npy", "text.pt", "text.png"):
        (tmp_path / name).write_text("not data")
        with pytest.raises(ValueError, match=f"{name}: "):
            read_samples(tmp_path / name, image_transform=lambda image: image)
    with h5py.File(tmp_path / "words.hdf5", "w") as file:
        file["nu"] = np.array([b"one", b"two"])
    with pytest.raises(ValueError, match="nu: expected real numbers"):
        read_samples(tmp_path / "words.hdf5")


def test_targets_beside_the_inputs(tmp_path):
    x, y = torch.rand(3, 8, 6), torch.rand(3, 1, 8, 6)
    torch.save({"x": x, "y": y}, tmp_path / "darcy.pt")
    with h5py.File(tmp_path / "darcy.hdf5", "w") as file:
        file["nu"], file["tensor"] = x, y
    for name in ("darcy.pt", "darcy.hdf5"):
        samples = read_samples(tmp_path / name, 1)
        assert torch.equal(samples.targets, y[1:, 0])
        assert torch.equal(samples.every(1, 2).targets, y[1:, 0, ::2, ::2])
    torch.save({"x": x, "y": torch.arange(3)}, tmp_path / "classes.pt")
    assert read_samples(tmp_path / "classes.pt").targets is None
