"""Darcy flow in PDEBench's layout.

HDF5: ``tensor`` (N, 1, R, R), ``nu`` (N, R, R), ``x-coordinate`` and ``y-coordinate`` (R,), all
float32; attribute ``beta``. Files of a domain other than the square also have ``mask`` (R, R) bool
and the attribute ``domain``, see `chonn_ops.problems.domains`.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from chonn_ops.problems.domains import SQUARE, cell_centres, domain_mask
from chonn_ops.problems.hdf5 import (
    HDF5Output,
    check_mask,
    check_range,
    create_hdf5,
    dataset,
    open_hdf5,
)


@contextlib.contextmanager
def create_darcy_file(
    path: Path, n_samples: int, coordinates: np.ndarray, beta: float, source: str, force: bool
) -> Iterator[HDF5Output]:
    """A new file, to be filled in the ``with`` block.

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
        none); for programs, see `chonn_ops.problems.origin`.
    force : bool
        Replace an existing file.

    Yields
    ------
    HDF5Output
        With ``nu`` and ``tensor``, (N, R, R) and (N, 1, R, R) float32, to be filled.
    """
    n = len(coordinates)
    with create_hdf5(path, force) as output:
        with output.writing() as file:
            file.create_dataset("tensor", shape=(n_samples, 1, n, n), dtype="f4")
            file.create_dataset("nu", shape=(n_samples, n, n), dtype="f4")
            for axis in ("x", "y"):
                file.create_dataset(f"{axis}-coordinate", data=coordinates.astype("f4"))
            file.attrs["beta"] = float(beta)
            file.attrs["source"] = source
        yield output


def read(
    path: "str | os.PathLike[str]",
    start: int = 0,
    stop: "int | None" = None,
    resolution: "int | None" = None,
    domain: str = SQUARE,
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and solutions of some samples of a generated or published file.

    Parameters
    ----------
    path : path
    start, stop : int
        First sample and the one after the last, by default the number of samples.
    resolution : int, optional
        R that the file must have; by default any.
    domain : str
        That of the file.

    Returns
    -------
    nu, u : ndarray
        (N, R, R), float32.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or damaged, of another resolution or domain, or lacks the samples.
    """
    with open_hdf5(path) as file:
        nu, u = dataset(file, "nu"), dataset(file, "tensor")
        n = nu.shape[-1] if resolution is None else resolution
        if nu.shape[1:] != (n, n) or u.shape != (len(nu), 1, n, n):
            raise ValueError(
                f"{path}: expected nu (N, {n}, {n}) and tensor (N, 1, {n}, {n}), "
                f"got {nu.shape} and {u.shape}"
            )
        check_range(path, len(nu), start, stop)
        check_mask(file, domain, domain_mask(domain, cell_centres(n)))
        return nu[start:stop].astype(np.float32), u[start:stop, 0].astype(np.float32)
