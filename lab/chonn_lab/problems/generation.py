"""Generation of data files: samples solved in parallel, files whole or not at all."""

import contextlib
import dataclasses
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import h5py
import joblib
import numpy as np
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from tqdm import tqdm

from chonn_lab.problems import origin
from chonn_lab.problems.hdf5 import create_hdf5
from chonn_ops.checks import check_integer
from chonn_ops.files import refuse_existing

# Arrays by name.
Arrays = Mapping[str, Any]
TOGETHER = 8  # samples that a process solves at a time


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A data file: the settings that its data depend on, how its samples are made and stored."""

    # Arrays of one sample, by the seed, its number, and the settings but ``n_samples`` and
    # ``first`` as keywords; a function of the module with the card, as other processes import it.
    sample: Callable[..., Arrays]
    # JSON values: ``n_samples``, ``first`` if the first sample has another number than 0, others.
    settings: dict[str, Any]
    # Further data sets and attributes of the file.
    fixed: Arrays = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Puts the arrays (S, ...) of some samples into the file, by their numbers; by default into the
    # rows of float32 data sets of their names.
    store: Callable[[h5py.File, range, Arrays], None] | None = None
    matlab: bool = False  # whether it is one of MATLAB 7.3

    @property
    def generator(self) -> str:
        """Module of `chonn_lab.problems` with the card."""
        return self.sample.__module__.rpartition(".")[2]

    @property
    def samples(self) -> range:
        """Numbers of the samples."""
        first = self.settings.get("first", 0)
        return range(first, first + self.settings["n_samples"])

    def made(self, path: Path, seed: int) -> bool:
        """Whether this is a file of it."""
        try:
            found = origin.read(path)
        except (FileNotFoundError, ValueError):
            return False
        wanted = {"generator": self.generator, "seed": seed, "settings": self.settings}
        return {name: found.get(name) for name in wanted} == wanted


def make_files(
    recipes: Mapping[Path, Recipe],
    seed: int = 0,
    workers: int = 1,
    force: bool = False,
    progress: bool = True,
) -> tuple[Path, ...]:
    """Make the files of a data set that are missing; each appears when it is complete.

    The files are in existing folders; `force` replaces those that are there, `progress` shows a
    bar. The data depend on the seed and the settings, not on the number of processes, `workers`.
    With more than one, a script that calls this needs the usual ``if __name__ == "__main__"``
    guard. A ValueError if a number is out of range; a FileExistsError if all files exist, or one
    that another call or somebody else made, and `force` is not set.
    """
    check_integer(0, seed=seed)
    check_integer(1, workers=workers)
    for recipe in recipes.values():
        check_integer(1, n_samples=recipe.settings["n_samples"])
        check_integer(0, first=recipe.samples.start)
    missing = [path for path, recipe in recipes.items() if force or not recipe.made(path, seed)]
    for path in missing or recipes:
        refuse_existing(path, force)
    for path in missing:
        _write(path, recipes[path], seed, workers, force, progress)
    return tuple(recipes)


def _write(
    path: Path, recipe: Recipe, seed: int, workers: int, force: bool, progress: bool
) -> None:
    numbers = recipe.samples
    parts = [numbers[i : i + TOGETHER] for i in range(0, len(numbers), TOGETHER)]
    settings = {k: v for k, v in recipe.settings.items() if k not in ("n_samples", "first")}
    work = functools.partial(_solved, recipe.sample, seed, settings)
    workers = min(workers, len(parts))
    store = recipe.store or functools.partial(_store, numbers=numbers)
    options: Any = {"initializer": functools.partial(_end_with, os.getpid())}
    with (
        create_hdf5(path, force, recipe.matlab) as file,
        tqdm(total=len(numbers), unit="sample", disable=not progress) as bar,
        joblib.parallel_config("loky", inner_max_num_threads=1, **options),
    ):
        # Processes run ahead of the results by a few parts.
        parallel = joblib.Parallel(workers, return_as="generator", pre_dispatch="4*n_jobs")
        with _signals_held_back() if workers > 1 else contextlib.nullcontext():
            solved: Any = parallel(joblib.delayed(work)(part) for part in parts)
        with contextlib.closing(solved):
            origin.stamp(file, recipe.generator, seed, recipe.settings)
            file.attrs.update(recipe.attributes)
            for name, values in recipe.fixed.items():
                file[name] = values.astype("f4")
            for part, arrays in zip(parts, solved, strict=True):
                store(file, part, arrays)
                bar.update(len(part))


def _solved(
    sample: Callable[..., Arrays], seed: int, settings: dict[str, Any], numbers: range
) -> Arrays:
    """Arrays of some samples."""
    samples = [sample(seed, i, **settings) for i in numbers]
    return {name: np.stack([arrays[name] for arrays in samples]) for name in samples[0]}


def _store(file: h5py.File, part: range, arrays: Arrays, numbers: range) -> None:
    for name, values in arrays.items():
        target = file.require_dataset(name, (len(numbers), *values.shape[1:]), "f4")
        target[part.start - numbers.start : part.stop - numbers.start] = values


def single(**fields: Any) -> Arrays:
    """Fields in float32."""
    return {name: np.asarray(field, "f4") for name, field in fields.items()}


def stream(seed: int, *key: int) -> np.random.Generator:
    """The random numbers of one sample, by its number and what else tells it from others."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def write_groups(
    path: Path | str,
    generator: str,
    settings: Mapping[str, Any],
    groups: Callable[[int, int], Iterable[tuple[str, Arrays]]],
    sizes: Mapping[str, int],
    seed: int,
    force: bool,
) -> Path:
    """Write small data in this process, whole or not at all.

    ``groups(split, count)`` has the arrays of each group of a split, of which `sizes` has the
    numbers of samples. FileExistsError if the file exists and `force` is not set, ValueError for a
    negative seed or a size below 1.
    """
    path = Path(path)
    check_integer(0, seed=seed)
    check_integer(1, **sizes)
    refuse_existing(path, force)
    with create_hdf5(path, force) as file:
        for split, count in enumerate(sizes.values()):
            for group, arrays in groups(split, count):
                for name, values in arrays.items():
                    file.create_dataset(f"{group}/{name}", data=values)
        origin.stamp(file, generator, seed, {**settings, **sizes})
    return path


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """Block Ctrl-C and SIGTERM while workers start, which inherit the block.

    Ctrl-C goes to all processes of a terminal; only the parent has to know what to do.
    """
    main = threading.current_thread() is threading.main_thread()
    if not (main and hasattr(signal, "pthread_sigmask")):
        yield
        return
    # These unblock both when they start, which they would otherwise do with the first worker.
    resource_tracker.ensure_running()
    loky_tracker.ensure_running()
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    # Another thread, which does not block them, may take them.
    came: list[int] = []
    handlers = {kind: signal.signal(kind, lambda number, _: came.append(number)) for kind in held}
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for kind, handler in handlers.items():
            signal.signal(kind, handler or signal.SIG_DFL)
        for number in came:
            signal.raise_signal(number)


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed. loky's would go on.

    `os.getppid()` is not asked for the parent here: one killed before has been replaced by then.
    """

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
