"""Many samples, solved in parallel and kept in parts: what was interrupted or killed goes on."""

import contextlib
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from chonn_ops import _files
from chonn_ops.problems import origin
from chonn_ops.problems._workers import ordered_map

# By name, (M, ...) for M samples.
Arrays = dict[str, Any]
RECORD, PARTS, REMAINS = "settings.json", "*.npz", ".*.npz.*.tmp"
SUFFIX = ".parts"

Task = TypeVar("Task")
Result = TypeVar("Result")


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


def parts_folder(path: Path) -> Path:
    """Where the parts of a file are kept."""
    return path.with_name(f".{path.name}{SUFFIX}")


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
    """Solve all samples of a file; keep them until the ``with`` block has written them.

    Parameters
    ----------
    path : Path
        Of the file. The parts lie beside it in a folder of their own, `parts_folder`, which goes
        when the block has ended without an exception; of a process that was killed after it had
        written the file, with the next call.
    record : dict
        Everything but the number of samples that they depend on, as JSON has it; the file's own
        record, see `chonn_ops.problems.origin`, has the same and ``n_samples``.
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
    folder = parts_folder(path)
    if not force:
        _clear_finished(path, record)
    _files.refuse_existing(path, force)
    ranges = [range(i, min(i + size, n_samples)) for i in range(0, n_samples, size)]
    with _claimed(folder, record, force):
        files = {samples: folder / f"{samples.start}-{samples.stop}.npz" for samples in ranges}
        missing = [samples for samples in ranges if not files[samples].exists()]
        there = n_samples - sum(map(len, missing))
        processes = max(1, min(workers, len(missing)))
        with solving(solve, iter(missing), processes, n_samples, progress, there) as (solved, bar):
            for samples, arrays in zip(missing, solved, strict=True):
                with (
                    _files.whole_file(files[samples], force=False) as staged,
                    open(staged, "wb") as file,
                ):
                    np.savez(file, **arrays)
                bar.update(len(samples))
        yield ((slice(samples.start, samples.stop), _load(file)) for samples, file in files.items())
        _remove_parts(folder)


def clear_folder(folder: Path) -> None:
    """Remove what killed processes have left beside the whole files in a folder.

    That is, temporary files and parts. Those that a call would go on with stay, and what cannot be
    removed.
    """
    _files.clear_folder(folder)
    for parts in folder.glob(f".*{SUFFIX}"):
        path = parts.with_name(parts.name[1 : -len(SUFFIX)])
        with contextlib.suppress(OSError, ValueError):
            if path.is_file() and not any(parts.iterdir()):
                parts.rmdir()
            _clear_finished(path, json.loads((parts / RECORD).read_text()))


def _clear_finished(path: Path, record: dict[str, Any]) -> None:
    """Remove the parts that a finished file was made of."""
    folder = parts_folder(path)
    if folder.is_dir() and _is_of(path, record, folder):
        # Another process that is just ending removes them itself.
        with contextlib.suppress(FileExistsError), _claimed(folder, record, force=False):
            _remove_parts(folder)


def _is_of(path: Path, record: dict[str, Any], folder: Path) -> bool:
    """Whether a finished file was made of the parts that lie beside it."""
    try:
        known = origin.read(path).recipe()
        parts = {_end(part): part.stat().st_mtime_ns for part in folder.glob(PARTS)}
    except (OSError, ValueError):
        return False
    n_samples = known.pop("n_samples", None)
    # Those of a longer call that was to replace the file are younger than it.
    return known == json.loads(json.dumps(record)) and (
        not parts or (max(parts) == n_samples and parts[n_samples] <= path.stat().st_mtime_ns)
    )


@contextlib.contextmanager
def _claimed(folder: Path, record: dict[str, Any], force: bool) -> Iterator[None]:
    """The folder of these settings, for this process alone; it goes if no part is in it."""
    mark = folder / RECORD
    text = json.dumps(record, sort_keys=True)
    folder.mkdir(exist_ok=True)
    # Also beside the mark: a process can be killed after it has appeared.
    _files.clear_remains(mark)
    if not mark.exists():
        if any(folder.iterdir()):
            raise FileExistsError(f"folder {folder} has files, but none of them is {RECORD}")
        with _files.whole_file(mark, force=False) as staged:
            staged.write_text(text)
    emptied = False
    try:
        with open(mark, "r+") as file:
            _lock(file.fileno(), folder)
            earlier = file.read()
            if earlier != text:
                if any(folder.glob(PARTS)) and not force:
                    raise FileExistsError(
                        f"{folder} has samples of an interrupted call with other settings: "
                        f"{earlier} (drop them with --force / force=True)"
                    )
                _remove_parts(folder)
                file.seek(0)
                file.truncate()
                file.write(text)
                file.flush()
            try:
                yield
            finally:
                emptied = not any(folder.glob(PARTS))
    finally:
        if emptied:
            mark.unlink()
            # What is somebody else's stays.
            with contextlib.suppress(OSError):
                folder.rmdir()


def _lock(descriptor: int, folder: Path) -> None:
    """Keep other processes out of a folder, and clear what killed ones have left in it."""
    if _files.fcntl is None:
        return
    try:
        _files.fcntl.flock(descriptor, _files.fcntl.LOCK_EX | _files.fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileExistsError(f"another process computes the samples in {folder}") from None
    except OSError:
        # A file system without locks.
        return
    for remains in folder.glob(REMAINS):
        remains.unlink()


def _remove_parts(folder: Path) -> None:
    # The last one last: what is left tells what it was for.
    for part in sorted(folder.glob(PARTS), key=_end):
        part.unlink()


def _end(part: Path) -> int:
    """The sample after the last one of a part; ValueError for another file."""
    return int(part.stem.partition("-")[2])


def _load(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: damaged ({error}); remove it and go on") from error
