"""Generation of data files: samples solved in parallel and kept in parts, so that it resumes."""

import contextlib
import dataclasses
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import h5py
import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from chonn_lab.problems import origin
from chonn_lab.problems.hdf5 import create_hdf5, dataset
from chonn_lab.problems.workers import ordered_map
from chonn_ops import __version__, files
from chonn_ops.checks import check_least

# Arrays of M samples by name, (M, ...) each.
Arrays = dict[str, Any]
RECORD = "settings.json"

Task = TypeVar("Task")
Result = TypeVar("Result")


def check_sizes(n_samples: int, resolution: int, least: int, seed: int, workers: int) -> None:
    """Check the arguments that generators share; `least` is that of the resolution."""
    check_least(1, n_samples=n_samples, workers=workers)
    check_least(least, resolution=resolution)
    check_least(0, seed=seed)


class ProgressBar(tqdm):
    """tqdm's bar, which disappears if the work fails: the reason is then all there is to read."""

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.leave = False
        super().__exit__(kind, error, traceback)


@contextlib.contextmanager
def solving(
    function: Callable[[Task], Result],
    tasks: Iterator[Task],
    workers: int,
    n_samples: int,
    progress: bool,
    there: int = 0,
) -> Iterator[tuple[Iterator[Result], ProgressBar]]:
    """`ordered_map`, whose processes end with the block, and a bar of samples to be updated."""
    with (
        ProgressBar(total=n_samples, initial=there, unit="sample", disable=not progress) as bar,
        contextlib.closing(ordered_map(function, tasks, workers)) as results,
    ):
        yield results, bar


@contextlib.contextmanager
def solved_parts(
    path: Path,
    record: dict[str, Any],
    solve: Callable[[range], Arrays],
    n_samples: int,
    size: int,
    workers: int,
    force: bool,
    progress: bool,
) -> Iterator[Iterator[tuple[slice, Arrays]]]:
    """Solve all samples of a file, and keep them until the ``with`` block has written them.

    Parameters
    ----------
    path : Path
        The file. The parts lie beside it in the folder ``.<name>.parts``, which is removed when
        the block has ended without an exception. After an interruption the next call uses them.
    record : dict
        Everything but the number of samples that the samples depend on, as JSON values.
    solve : callable
        Arrays of some samples, (M, ...) each; with more than one worker as for `ordered_map`.
    n_samples, size : int
        Samples, and how many of them make a part.
    workers : int
        Processes.
    force : bool
        Replace an existing file, and parts of other settings.
    progress : bool
        Show a progress bar.

    Yields
    ------
    iterator
        Rows and arrays of one part after the other.

    Raises
    ------
    FileExistsError
        If `path` exists, or parts of other settings do, and `force` is not set; if another process
        makes this file.
    ValueError
        If a part is damaged.
    """
    files.refuse_existing(path, force)
    folder = path.with_name(f".{path.name}.parts")
    ranges = [range(i, min(i + size, n_samples)) for i in range(0, n_samples, size)]
    parts = {samples: folder / f"{samples.start}-{samples.stop}.npz" for samples in ranges}
    with _claimed(folder, record, force):
        missing = [samples for samples in ranges if not parts[samples].exists()]
        there = n_samples - sum(map(len, missing))
        processes = max(1, min(workers, len(missing)))
        with solving(solve, iter(missing), processes, n_samples, progress, there) as (solved, bar):
            for samples, arrays in zip(missing, solved, strict=True):
                with (
                    files.whole_file(parts[samples], force=False) as staged,
                    open(staged, "wb") as file,
                ):
                    np.savez(file, **arrays)
                bar.update(len(samples))
        yield ((slice(samples.start, samples.stop), _load(file)) for samples, file in parts.items())
        for part in folder.glob("*.npz"):
            part.unlink()


@contextlib.contextmanager
def _claimed(folder: Path, record: dict[str, Any], force: bool) -> Iterator[None]:
    """Reserve a folder of parts for these settings and this process; remove it if it is empty."""
    folder.mkdir(exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise FileExistsError(f"another process computes the samples in {folder}") from None
    try:
        mark, text = folder / RECORD, json.dumps(record, sort_keys=True)
        earlier = mark.read_text() if mark.exists() else text
        if earlier != text:
            if not force:
                raise FileExistsError(
                    f"{folder} has samples of an interrupted call with other settings: "
                    f"{earlier} (drop them with --force / force=True)"
                )
            for part in folder.glob("*.npz"):
                part.unlink()
        files.write_whole(mark, text)
        yield
    finally:
        if not any(folder.glob("*.npz")):
            shutil.rmtree(folder)
        lock.release()


def _load(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: damaged ({error}); remove it and go on") from error


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Settings that the data of a file depend on, see `chonn_lab.problems.origin`.

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
        """Solve and write all samples; an interrupted call is resumed by the next one.

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
            create_hdf5(path, force, user_block) as file,
        ):
            self.stamp(file)
            create(file)
            for rows, part in solved:
                (store or _store)(file, rows, part)
        return path


def _store(file: h5py.File, rows: slice, part: Arrays) -> None:
    for name, values in part.items():
        target = dataset(file, name)
        target[rows] = values.reshape(len(values), *target.shape[1:])
