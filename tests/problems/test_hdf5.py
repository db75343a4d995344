"""Attributes of damaged HDF5 files."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import struct

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")

from chonn_ops.problems import origin
from chonn_ops.problems.hdf5 import _Source, attributes

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


@pytest.mark.parametrize(
    "header", [(0, 0), (0, 2**63), (1, 2**64 - 16), (1, 2**64 - 24), (7, 5000)]
)
def test_heaps_that_hdf5_would_not_leave_are_refused(path, header):
    content = bytearray(path.read_bytes())
    at = content.index(b"GCOL") + 16
    struct.pack_into("<H6xQ", content, at, *header)
    path.write_bytes(content)
    # First without HDF5, which may never return.
    with _Source(path) as source, pytest.raises(OSError, match="bytes in the heap"):
        source.readinto(bytearray(len(content)))
    for read in (attributes, origin.read):
        with pytest.raises(ValueError, match=r"data\.hdf5: damaged.*object \d+ of \d+ bytes"):
            read(path)


def test_a_heap_is_found_wherever_a_read_begins(path):
    content = bytearray(path.read_bytes())
    at = content.index(b"GCOL")
    struct.pack_into("<H6xQ", content, at + 16, 0, 0)
    path.write_bytes(content)
    with _Source(path) as source:
        for first in (at, at + 1, at + 7):
            source.seek(first)
            with pytest.raises(OSError, match="object 0 of 0 bytes"):
                source.readinto(bytearray(1))
        source.seek(at + 9)
        assert source.readinto(bytearray(1)) == 1


def test_data_that_look_like_a_heap_are_none(path):
    with h5py.File(path, "r+") as file:
        file["y"] = np.frombuffer(b"GCOL" * 64, "u1")
    assert attributes(path)["source"] == "somebody"


@pytest.mark.parametrize("size", [0, 100, 1000])
def test_truncated_files(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"data\.hdf5: damaged"):
        attributes(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        attributes(path.with_name("nowhere"))
