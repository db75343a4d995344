"""Files of coefficients and solutions on the cells of the unit box, whatever the equation."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chonn_ops import __version__
from chonn_ops.problems._parts import Arrays, solved_parts
from chonn_ops.problems.domains import cell_centres
from chonn_ops.problems.hdf5 import check_range, create_hdf5, dataset, open_hdf5
from chonn_ops.problems.origin import stamp

AXES = "xyz"


def sample_noise(seed: int, sample: int, n_modes: int, n_axes: int) -> np.ndarray:
    """(K,) * d standard normal numbers of one sample."""
    sequence = np.random.SeedSequence(seed, spawn_key=(sample,))
    return np.random.default_rng(sequence).standard_normal((n_modes,) * n_axes)


def write_box_data(
    path: Path,
    generator: str,
    version: int,
    seed: int,
    settings: dict[str, Any],
    solve: Callable[..., Arrays],
    names: "tuple[str, str]",
    n_samples: int,
    shape: tuple[int, ...],
    workers: int,
    force: bool,
    progress: bool,
    size: int = 8,
) -> Path:
    """Solve and write all samples; what was interrupted or killed goes on with the next call.

    Parameters
    ----------
    path : Path
        HDF5 file; it appears when it is complete.
    generator, version, seed
        See `chonn_ops.problems.origin`.
    settings : dict
        Everything else that a sample depends on.
    solve : callable
        The arrays `names` of some samples, (M, R, ...) each, by their range, with the seed and the
        settings as keywords; importable by name.
    names : tuple of str
        Of the input and the solution; the solution's has a channel behind the samples.
    n_samples, shape
        N, and the cells along every axis.
    workers, force, progress, size
        As for `solved_parts`.
    """
    record = {"generator": generator, "generator_version": version, "seed": seed, **settings}
    given, solution = names
    work = partial(solve, seed=seed, **settings)
    with (
        solved_parts(path, record, work, n_samples, size, workers, force, progress) as solved,
        create_hdf5(path, force) as output,
    ):
        with output.writing() as file:
            file.attrs["source"] = f"chonn-ops {__version__} {generator} generator, seed {seed}"
            stamp(file, generator, version, seed, n_samples=n_samples, **settings)
            file.create_dataset(given, (n_samples, *shape), "f4")
            file.create_dataset(solution, (n_samples, 1, *shape), "f4")
            for axis, length in zip(AXES, shape, strict=False):
                file[f"{axis}-coordinate"] = cell_centres(length).astype("f4")
        for rows, part in solved:
            with output.writing() as file:
                dataset(file, given)[rows] = part[given]
                dataset(file, solution)[rows, 0] = part[solution]
    return path


def read_box_data(
    path: "str | Path", names: "tuple[str, str]", axes: int, start: int, stop: "int | None"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and solutions of some samples, (N, R, ...) float32 each, on a grid of so many axes.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, damaged or of another problem, or lacks the samples.
    """
    with open_hdf5(path) as file:
        given = dataset(file, names[0], axes + 1)
        solution = dataset(file, names[1], axes + 2)
        if solution.shape != (len(given), 1, *given.shape[1:]):
            raise ValueError(
                f"{path}: expected {names[1]} of shape {(len(given), 1, *given.shape[1:])}, "
                f"got {solution.shape}"
            )
        check_range(path, len(given), start, stop)
        x, u = given[start:stop].astype("f4"), solution[start:stop, 0].astype("f4")
    return torch.from_numpy(x), torch.from_numpy(u)
