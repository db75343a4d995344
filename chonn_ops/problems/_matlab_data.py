"""MATLAB files: those of version 5, and those of 7.3, which are HDF5 with the axes reversed."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io

from chonn_ops.problems.hdf5 import dataset, open_hdf5


class _Reversed:
    """An array of a 7.3 file with the axes that MATLAB shows; read by its first."""

    def __init__(self, stored: h5py.Dataset) -> None:
        self.shape = stored.shape[::-1]
        self._stored = stored

    def __getitem__(self, first: "int | slice") -> np.ndarray:
        return self._stored[..., first].T


@contextlib.contextmanager
def matlab_arrays(path: "str | os.PathLike[str]", *names: str) -> Iterator[list[Any]]:
    """Arrays of a file, with a shape and to be read by their first axis.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, damaged, or lacks an array.
    """
    if not h5py.is_hdf5(path) and Path(path).is_file():
        try:
            found = scipy.io.loadmat(path, variable_names=names)
            arrays = [found[name] for name in names]
        # SciPy's parser fails in many ways on other bytes.
        except Exception as error:
            raise ValueError(f"{path}: damaged, or not the expected MATLAB file") from error
        yield arrays
        return
    with open_hdf5(path) as file:
        yield [_Reversed(dataset(file, name)) for name in names]


def create_array(file: h5py.File, name: str, shape: tuple[int, ...], **options: Any) -> Any:
    """A float32 array of a 7.3 file, its axes in reverse."""
    created = file.create_dataset(name, shape, "f4", **options)
    created.attrs["MATLAB_class"] = np.bytes_("single")
    return created
