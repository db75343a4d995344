"""Generation of data files: samples solved in parallel, and kept until the file is written."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

import h5py
import joblib
import numpy as np
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from tqdm import tqdm

from chonn_lab.problems import origin
from chonn_lab.problems.hdf5 import create_hdf5
from chonn_ops import __version__, files
from chonn_ops.checks import check_least

# Arrays of M samples by name, (M, ...) each.
Arrays = dict[str, Any]
Task = TypeVar("Task")
Result = TypeVar("Result")


def check_sizes(n_samples: int, resolution: int, least: int, seed: int, workers: int) -> None:
    """Check the arguments that generators share; `least` is that of the resolution."""
    check_least(1, n_samples=n_samples, workers=workers)
    check_least(least, resolution=resolution)
    check_least(0, seed=seed)


class ProgressBar(tqdm):
    """tqdm's bar, which disappears if the work fails: the reason is then all there is to read."""

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.leave = False
        super().__exit__(kind, *rest)


@contextlib.contextmanager
def _solving(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    workers: int,
    n_samples: int,
    progress: bool,
) -> Iterator[tuple[Iterator[Result], ProgressBar]]:
    """Results of a function over tasks, in their order, and a bar of samples to be updated.

    With more than one worker, the function has to be importable by name, and processes of one
    thread each, which end with this one, run ahead of the results by a few tasks.
    """
    serve = functools.partial(_serve, os.getpid())
    options: Any = {"initializer": serve, "inner_max_num_threads": 1}
    with (
        ProgressBar(total=n_samples, unit="sample", disable=not progress) as bar,
        joblib.parallel_config("loky", **options),
    ):
        parallel = joblib.Parallel(workers, return_as="generator", pre_dispatch="4*n_jobs")
        with _ctrl_c_held_back() if workers > 1 else contextlib.nullcontext():
            results: Any = parallel(joblib.delayed(function)(task) for task in tasks)
        with contextlib.closing(results):
            yield results, bar


@contextlib.contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Block Ctrl-C while workers start, which inherit the block.

    A worker that Ctrl-C reaches before `_serve` does would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # These unblock Ctrl-C when they start, which they would otherwise do with the first worker.
    resource_tracker.ensure_running()
    loky_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(parent: int) -> None:
    # Ctrl-C goes to all processes of a terminal; only the parent has to know what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # `os.getppid()` is not asked here: a parent killed before this line has been replaced by then.
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed. loky's would go on."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


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
            found = origin.read(path).recipe()
        except (FileNotFoundError, ValueError):
            return False
        made = {"generator": self.generator, "generator_version": self.version}
        return found == {**made, "seed": self.seed, **self.settings}

    def write(
        self,
        path: Path,
        solve: Callable[..., Arrays],
        size: int,
        workers: int = 1,
        force: bool = False,
        progress: bool = True,
        *,
        fixed: Mapping[str, np.ndarray] | None = None,
        attributes: Mapping[str, Any] | None = None,
        store: Callable[[h5py.File, slice, Arrays], None] | None = None,
        user_block: bytes = b"",
    ) -> Path:
        """Solve and write all samples; an interrupted call is resumed by the next one.

        Solved samples are kept by joblib in the folder ``.<name>.parts`` beside the file until it
        is complete, with their settings, seed and code: no others are used.

        Parameters
        ----------
        path : Path
            HDF5 file; it appears when it is complete.
        solve : callable
            Arrays of some samples, (M, ...) each, by their range, with the seed and the settings
            but ``n_samples`` as keywords; a function of a module.
        size : int
            Samples that are solved and kept together.
        workers : int
            Processes.
        force, progress : bool
            Replace an existing file; show a progress bar.
        fixed, attributes : mapping, optional
            Further data sets, stored as float32 or bool, and attributes of the file.
        store : callable, optional
            Puts the arrays of some rows into the file; by default each into the rows of the data
            set of its name.
        user_block : bytes
            See `create_hdf5`.

        Raises
        ------
        FileExistsError
            If `path` exists and `force` is not set.
        """
        files.refuse_existing(path, force)
        check_least(1, workers=workers)
        given = {name: value for name, value in self.settings.items() if name != "n_samples"}
        n_samples = self.settings["n_samples"]
        ranges = [range(i, min(i + size, n_samples)) for i in range(0, n_samples, size)]
        folder = path.with_name(f".{path.name}.parts")
        kept: Any = joblib.Memory(folder, verbose=0).cache(solve)
        work = functools.partial(kept, seed=self.seed, **given)
        count = min(workers, len(ranges))
        try:
            with (
                create_hdf5(path, force, user_block) as file,
                _solving(work, ranges, count, n_samples, progress) as (solved, bar),
            ):
                self.stamp(file)
                file.attrs.update(attributes or {})
                for name, values in (fixed or {}).items():
                    file[name] = values if values.dtype == bool else values.astype("f4")
                for samples, arrays in zip(ranges, solved, strict=True):
                    rows = slice(samples.start, samples.stop)
                    if store:
                        store(file, rows, arrays)
                    else:
                        _store(file, n_samples, rows, arrays)
                    bar.update(len(samples))
        except BaseException:
            if not any(folder.rglob("output.pkl")):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder)
        return path


def _store(file: h5py.File, n_samples: int, rows: slice, part: Arrays) -> None:
    for name, values in part.items():
        shape = n_samples, *values.shape[1:]
        target = file.require_dataset(name, shape, values.dtype)
        target[rows] = values
