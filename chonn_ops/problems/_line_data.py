"""Trajectories on a periodic line in PDEBench's layout.

HDF5: ``tensor`` (N, T, R), ``x-coordinate`` (R,) cell centres of [0, 1], ``t-coordinate`` (T + 1,),
one more than there are frames, as in PDEBench's files; all float32.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from chonn_ops import __version__
from chonn_ops.problems._box_data import cell_centres
from chonn_ops.problems._checks import check_least, check_range
from chonn_ops.problems._parts import Arrays, solved_parts
from chonn_ops.problems.hdf5 import create_hdf5, dataset, open_hdf5
from chonn_ops.problems.origin import stamp

N_SAMPLES, N_FRAMES, RESOLUTION = 10_000, 201, 1024
END_TIME = 2.0
SAMPLES_PER_PART = 16


def frame_times(n_frames: int) -> np.ndarray:
    """(n_frames,) from 0 to the end."""
    return np.linspace(0, END_TIME, n_frames)


def write_line_data(
    path: Path,
    generator: str,
    version: int,
    seed: int,
    parameter: tuple[str, float],
    solve: Callable[[range], Arrays],
    n_samples: int,
    n_frames: int,
    resolution: int,
    workers: int,
    force: bool,
    progress: bool,
) -> None:
    """Solve and write all samples; what was interrupted or killed goes on with the next call.

    Parameters
    ----------
    path : Path
        HDF5 file; it appears when it is complete.
    generator, version, seed
        See `chonn_ops.problems.origin`.
    parameter : tuple of str and float
        Of the equation: PDEBench's attribute of the file.
    solve : callable
        Array ``tensor`` of some samples, (M, T, R).
    n_samples, n_frames, resolution : int
        N, T and R.
    workers, force, progress
        As for `solved_parts`.

    Raises
    ------
    ValueError
        If an argument is out of range.
    FileExistsError
        As `solved_parts`.
    """
    check_least(
        ("n_samples", n_samples, 1),
        ("n_frames", n_frames, 2),
        ("resolution", resolution, 16),
        ("seed", seed, 0),
        ("workers", workers, 1),
    )
    name, value = parameter
    settings: dict[str, Any] = {"resolution": resolution, "n_frames": n_frames, name: value}
    record = {"generator": generator, "generator_version": version, "seed": seed, **settings}
    times = frame_times(n_frames)
    with (
        solved_parts(
            path, record, solve, n_samples, SAMPLES_PER_PART, workers, force, progress
        ) as solved,
        create_hdf5(path, force) as output,
    ):
        with output.writing() as file:
            file.attrs["source"] = f"chonn-ops {__version__} {generator} generator, seed {seed}"
            stamp(file, generator, version, seed, n_samples=n_samples, **settings)
            file.attrs[name] = value
            file.create_dataset("tensor", (n_samples, n_frames, resolution), "f4")
            file["x-coordinate"] = cell_centres(resolution).astype("f4")
            file["t-coordinate"] = np.append(times, 2 * times[-1] - times[-2]).astype("f4")
        for rows, part in solved:
            with output.writing() as file:
                dataset(file, "tensor")[rows] = part["tensor"]


def read_line_data(
    path: "str | os.PathLike[str]", start: int = 0, stop: "int | None" = None
) -> np.ndarray:
    """Some samples of a generated or published file.

    Parameters
    ----------
    path : path
        HDF5 file.
    start, stop : int
        First sample and the one after the last, by default the number of samples.

    Returns
    -------
    ndarray
        (N, T, R), float32.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or damaged, or lacks the samples.
    """
    with open_hdf5(path) as file:
        tensor = dataset(file, "tensor")
        if tensor.ndim != 3:
            raise ValueError(f"{path}: expected a tensor (N, T, R), got shape {tensor.shape}")
        check_range(path, len(tensor), start, stop)
        return tensor[start:stop].astype(np.float32)


def check_parameter(name: str, value: float, least: float = 0.0) -> None:
    """ValueError unless finite and above 0, or at least `least`."""
    if not (math.isfinite(value) and value > 0 and value >= least):
        expected = f"at least {least:g}" if least else "positive"
        raise ValueError(f"{name} must be {expected} and finite, got {value}")
