"""HDF5 files: reading with clear errors, and PDEBench's layout for Darcy flow.

The layout: ``tensor`` (N, 1, R, R), ``nu`` (N, R, R), ``x-coordinate`` and ``y-coordinate`` (R,),
all float32; attribute ``beta``.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from chonn_ops.problems._files import whole_file


@contextlib.contextmanager
def create_darcy_file(
    path: Path, n_samples: int, coordinates: np.ndarray, beta: float, source: str, force: bool
) -> Iterator[tuple[h5py.Dataset, h5py.Dataset]]:
    """A new file in PDEBench's Darcy layout, to be filled in the ``with`` block.

    Parameters
    ----------
    path : Path
        Appears only when the block has ended without an exception.
    n_samples : int
        N.
    coordinates : ndarray
        (R,), the same along both axes.
    beta : float
        Forcing, stored as the attribute ``beta``.
    source : str
        Where the data come from, stored as the attribute ``source`` (PDEBench has none and reads
        none).
    force : bool
        Replace an existing file.

    Yields
    ------
    nu, tensor : h5py.Dataset
        (N, R, R) and (N, 1, R, R) float32, to be filled.
    """
    n = len(coordinates)
    with whole_file(path, force) as staged, h5py.File(staged, "x") as file:
        tensor = file.create_dataset("tensor", shape=(n_samples, 1, n, n), dtype="f4")
        nu = file.create_dataset("nu", shape=(n_samples, n, n), dtype="f4")
        for axis in ("x", "y"):
            file.create_dataset(f"{axis}-coordinate", data=coordinates.astype("f4"))
        file.attrs["beta"] = float(beta)
        file.attrs["source"] = source
        yield nu, tensor


@contextlib.contextmanager
def open_hdf5(path: "str | os.PathLike[str]") -> Iterator[h5py.File]:
    """An HDF5 file to read, with one clear error if it is damaged or holds something else.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no HDF5 file, is truncated, or lacks what the block reads from it.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, RuntimeError) as error:
        # h5py raises any of these for a truncated file, a wrong name or a damaged block.
        raise ValueError(f"{path}: damaged, or not the expected HDF5 file ({error})") from error


def dataset(file: "h5py.File | h5py.Group", name: str) -> h5py.Dataset:
    """The data set ``name``; KeyError if it is missing or a group."""
    # h5py's own message does not name what is missing.
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise KeyError(f"no data set {name}")
    return found
