"""What problems have in common: checks of arguments, how a file is written, shared layouts.

Two layouts are here. Fields on the cells of the unit box: HDF5 with the input (N, R, ...), the
solution (N, 1, R, ...) and the coordinates (R,) of each axis, float32. MATLAB's: files of version
5, and those of 7.3, which are HDF5 with the axes reversed.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io
import torch

from chonn_ops import __version__
from chonn_ops.problems import origin
from chonn_ops.problems._parts import Arrays, solved_parts
from chonn_ops.problems.domains import cell_centres
from chonn_ops.problems.hdf5 import check_range, create_hdf5, dataset, open_hdf5

# What makes an HDF5 file a MATLAB 7.3 file.
MAT_BLOCK = b"MATLAB 7.3 MAT-file, written by chonn-ops".ljust(116) + bytes(8) + b"\x00\x02IM"


def check_least(*arguments: tuple[str, int, int]) -> None:
    """ValueError for the first (name, value, least) whose value is below its least."""
    for name, value, least in arguments:
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def check_sizes(n_samples: int, resolution: int, least: int, seed: int, workers: int) -> None:
    """`check_least` of what generators have in common; `least` is that of the resolution."""
    check_least(
        ("n_samples", n_samples, 1),
        ("resolution", resolution, least),
        ("seed", seed, 0),
        ("workers", workers, 1),
    )


def check_forcing(beta: float) -> None:
    """ValueError unless positive and finite."""
    if not 0 < beta < float("inf"):
        raise ValueError(f"beta must be positive and finite, got {beta}")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What the data of a file depend on, see `chonn_ops.problems.origin`.

    Parameters
    ----------
    generator, version, seed
        As there.
    settings : dict
        JSON values, ``n_samples`` among them.
    source : str, optional
        The same in short.
    """

    generator: str
    version: int
    seed: int
    settings: dict[str, Any]
    source: str = ""

    def stamp(self, file: h5py.File) -> None:
        """Write it into a new file."""
        source = self.source or f"{self.generator} generator, seed {self.seed}"
        file.attrs["source"] = f"chonn-ops {__version__} {source}"
        origin.stamp(file, self.generator, self.version, self.seed, **self.settings)

    def made(self, path: Path) -> bool:
        """Whether this is a file of it."""
        try:
            return origin.read(path).recipe() == self._record()
        except (FileNotFoundError, ValueError):
            return False

    def _record(self) -> dict[str, Any]:
        made = {"generator": self.generator, "generator_version": self.version}
        return {**made, "seed": self.seed, **self.settings}

    def write(
        self,
        path: Path,
        solve: Callable[..., Arrays],
        create: Callable[[h5py.File], object],
        size: int,
        workers: int,
        force: bool,
        progress: bool,
        store: "Callable[[h5py.File, slice, Arrays], None] | None" = None,
        user_block: bytes = b"",
    ) -> Path:
        """Solve and write all samples; what was interrupted or killed goes on with the next call.

        Parameters
        ----------
        path : Path
            HDF5 file; it appears when it is complete.
        solve : callable
            Arrays of some samples, (M, ...) each, by their range, with the seed and the settings
            but ``n_samples`` as keywords; importable by name, or a partial of such a function.
        create : callable
            Makes the file's data sets.
        size : int
            Samples of a part, see `solved_parts`, as for the next three.
        store : callable, optional
            Puts the arrays of some rows into the file; by default each into the rows of the data
            set of its name.
        user_block : bytes
            See `create_hdf5`.
        """
        record = self._record()
        n_samples = record.pop("n_samples")
        given = {name: value for name, value in self.settings.items() if name != "n_samples"}
        work = partial(solve, seed=self.seed, **given)
        with (
            solved_parts(path, record, work, n_samples, size, workers, force, progress) as solved,
            create_hdf5(path, force, user_block) as output,
        ):
            with output.writing() as file:
                self.stamp(file)
                create(file)
            for rows, part in solved:
                with output.writing() as file:
                    (store or _store)(file, rows, part)
        return path


def _store(file: h5py.File, rows: slice, part: Arrays) -> None:
    for name, values in part.items():
        target = dataset(file, name)
        target[rows] = values.reshape(len(values), *target.shape[1:])


def write_box(
    path: Path,
    recipe: Recipe,
    solve: Callable[..., Arrays],
    names: "tuple[str, str]",
    axes: int,
    size: int,
    workers: int,
    force: bool,
    progress: bool,
) -> Path:
    """`Recipe.write` of inputs and solutions, by their `names`, on a grid of so many axes."""
    n_samples, resolution = recipe.settings["n_samples"], recipe.settings["resolution"]

    def create(file: h5py.File) -> None:
        shape = (resolution,) * axes
        file.create_dataset(names[0], (n_samples, *shape), "f4")
        file.create_dataset(names[1], (n_samples, 1, *shape), "f4")
        for axis in "xyz"[:axes]:
            file[f"{axis}-coordinate"] = cell_centres(resolution).astype("f4")

    return recipe.write(path, solve, create, size, workers, force, progress)


def read_box(
    path: "str | os.PathLike[str]",
    names: "tuple[str, str]",
    axes: int,
    start: int,
    stop: "int | None",
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
