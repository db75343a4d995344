"""PDEBench's HDF5 layout for Darcy flow.

``tensor`` (N, 1, R, R), ``nu`` (N, R, R), ``x-coordinate`` and ``y-coordinate`` (R,), all float32;
attribute ``beta``.
"""

import contextlib
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
