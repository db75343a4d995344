"""HDF5 files that are damaged, or fail while they are written."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")

from chonn_lab.problems.hdf5 import attributes, create_hdf5

TEXTS = {"source": "somebody", "note": "ä" * 100, "long": "x" * 9000}


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        file.attrs.update(TEXTS, count=3, list=[1.5, 2.5])
        file["x"] = np.zeros((4, 4))
    return tmp_path / "data.hdf5"


def test_attributes_are_those_of_h5py(path):
    found = attributes(path)
    assert {name: found[name] for name in TEXTS} == TEXTS
    assert found["count"] == 3
    assert found["list"].tolist() == [1.5, 2.5]


def test_failed_block_leaves_no_file(path):
    with pytest.raises(ZeroDivisionError), create_hdf5(path.with_name("new"), False) as file:
        file["x"] = np.ones(3) * (1 / 0)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("size", [0, 100, 1000])
def test_truncated_files(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"data\.hdf5: damaged"):
        attributes(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        attributes(path.with_name("nowhere"))
