"""Data that cannot be read or are not finite are refused by name before a job starts."""

import shutil

import h5py
import numpy as np
import pytest
import torch

from chonn_plugins.pdebench import JobError, preflight
from conftest import POINTS, PROBLEMS, SAMPLES


@pytest.fixture
def spoiled(data, tmp_path, monkeypatch, make_job):
    """``spoiled("darcy", "nu", 7, np.nan)``: why the job is refused, empty if it is not."""
    monkeypatch.chdir(tmp_path)

    def check(problem, key, index, value, **args):
        filename = PROBLEMS[problem][1]
        name = filename if filename.endswith(".hdf5") else f"{filename}.h5"
        shutil.copy(data / name, tmp_path / name)
        with h5py.File(tmp_path / name, "r+") as file:
            if abs(value) > 1e38:
                array = file[key][:].astype("f8")
                del file[key]
                file[key] = array
            file[key][index] = value
        job = make_job(problem, data_path=tmp_path, **args)
        try:
            preflight.check(job)
        except JobError as error:
            return str(error).removeprefix(f"{tmp_path / name}: ")
        return ""

    return check


@pytest.mark.parametrize(
    ("problem", "key", "index", "named"),
    [
        ("1d", "tensor", (7, 2, 3), "tensor, sample 7 (1 of 96 values, first nan)"),
        ("darcy", "tensor", (1, 0, 3, 4), "tensor, sample 1 (1 of 256 values, first nan)"),
        ("darcy", "nu", (19, 3), "nu, sample 19 (16 of 256 values, first nan)"),
        ("3d", "Vy", (7, 1, 3, 4, 5), "Vy, sample 7 (1 of 8192 values, first nan)"),
        ("groups", "0003/data", (1, 3, 4, 0), "group 0003, data (1 of 768 values, first nan)"),
        ("darcy", "x-coordinate", 3, "x-coordinate (1 of 16 values, first nan)"),
        ("groups", "0003/grid/y", 3, "group 0003, grid/y (1 of 16 values, first nan)"),
    ],
)
def test_a_sample_that_is_not_finite_is_named(spoiled, problem, key, index, named):
    reason = spoiled(problem, key, index, np.nan)
    assert reason.startswith(f"expected finite values (float32) only; not finite: {named}. ")


def test_what_float32_cannot_hold_is_infinite(spoiled):
    assert "tensor, sample 7 (1 of 256 values, first inf)" in spoiled(
        "darcy", "tensor", (7, 0, 3, 4), 1e300
    )


def test_all_bad_samples_are_counted(spoiled):
    reason = spoiled("darcy", "nu", slice(4, 11), np.inf)
    assert "nu, sample 4 (" in reason
    assert "nu, sample 8 (" in reason
    assert "nu, sample 9" not in reason
    assert ", and 2 more. " in reason


@pytest.mark.parametrize(
    ("problem", "key", "index", "args"),
    [
        # PDEBench reads every second sample and point only.
        ("1d", "tensor", 7, {"reduced_batch": 2}),
        ("1d", "tensor", (7, 2, 3), {"reduced_resolution": 2}),
        ("1d", "tensor", (7, 1), {"reduced_resolution_t": 2, "initial_step": 1, "t_train": 2}),
        # Frames 3 and 4 are not trained on.
        ("1d", "tensor", (7, 3), {"t_train": 3}),
        ("groups", "0003/data", 4, {"t_train": 3}),
        # The U-Net sees no coordinates.
        ("darcy", "x-coordinate", 3, {"family": "unet"}),
    ],
)
def test_what_a_job_does_not_use_is_its_own_affair(spoiled, problem, key, index, args):
    assert spoiled(problem, key, index, np.nan, **args) == ""


@pytest.mark.parametrize(
    ("problem", "training", "validation"),
    [("1d", "tensor", "tensor"), ("groups", "0003/data", "0019/data")],
)
def test_evaluation_uses_the_validation_split(spoiled, tmp_path, problem, training, validation):
    for name in ("1D_Advection_FNO.pt", "2D_rdb_NA_NA_FNO.pt"):
        torch.save({"model_state_dict": {}}, tmp_path / name)
    # Of arrays the first tenth, of groups the last, each with all its frames.
    assert spoiled(problem, training, 3, np.nan, if_training=False) == ""
    assert "not finite" in spoiled(
        problem, validation, (1, 4) if problem == "1d" else 4, np.nan, if_training=False
    )


@pytest.mark.parametrize("grouped", [False, True])
def test_a_damaged_chunk_is_named(make_job, tmp_path, monkeypatch, grouped):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    path = tmp_path / ("packed.h5" if grouped else "packed.hdf5")
    with h5py.File(path, "w") as file:
        if grouped:
            for sample in range(SAMPLES):
                group = file.create_group(f"{sample:04d}")
                group.create_dataset("data", data=rng.random((5, 16, 16, 1)), compression="gzip")
                group["grid/x"] = group["grid/y"] = np.arange(16.0)
            chunk = file["0011/data"].id.get_chunk_info(0)
        else:
            tensor = rng.random((SAMPLES, 5, 2 * POINTS), dtype="f4")
            file.create_dataset("tensor", data=tensor, chunks=(4, 5, 32), compression="gzip")
            file["x-coordinate"] = np.arange(2 * POINTS)
            chunk = file["tensor"].id.get_chunk_info(2)
    damaged = bytearray(path.read_bytes())
    damaged[chunk.byte_offset + 20 : chunk.byte_offset + 60] = bytes(40)
    path.write_bytes(damaged)
    name = "packed" if grouped else path.name
    job = make_job("groups" if grouped else "1d", data_path=tmp_path, filename=name)
    with pytest.raises(JobError) as caught:
        preflight.check(job)
    where = "group 0011, data" if grouped else "tensor, samples 0 to 19"
    assert str(caught.value).startswith(f"{path}: {where}: cannot be read, the file is damaged")


def test_coordinates_of_two_axes_are_refused_unread(data, tmp_path, make_job):
    path = tmp_path / "2D_Darcy.hdf5"
    shutil.copy(data / path.name, path)
    with h5py.File(path, "r+") as file:
        del file["y-coordinate"]
        # HDF5 takes minutes to fill a row of this.
        file.create_dataset("y-coordinate", (2**20, 2**20), "f4", chunks=(1, 1))
    with pytest.raises(JobError, match=r"2D_Darcy\.hdf5.*y-coordinate: expected 16 coordinates"):
        preflight.check(make_job("darcy", data_path=tmp_path))
