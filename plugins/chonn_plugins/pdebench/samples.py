"""Check before a job starts that all its data can be read and are finite.

Otherwise a damaged chunk ends the job with an HDF5 error that names no file, and one NaN in one
sample makes every weight NaN within an epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.data import (
    AXES,
    GRID_GROUP,
    Layout,
    data_file,
    flow_fields,
    readable,
    reductions,
)
from chonn_plugins.pdebench.job import Job

BLOCK_BYTES = 2**26
# Files of at least this size take long enough to read that a message is printed.
LARGE_BYTES = 2**30
NAMED = 5


@dataclass(frozen=True)
class Use:
    """The part of a data file that a job uses.

    Parameters
    ----------
    samples, frames : range
        Indices of the file's samples and frames.
    every_x : int
        Step between the points that PDEBench's reader keeps.
    grouped, at_once : bool
        Whether the file has one group per sample, and whether the reader reads all samples at once.
    grid : bool
        Whether the model gets the coordinates.
    """

    samples: range
    frames: range
    every_x: int
    grouped: bool
    at_once: bool
    grid: bool

    def window(self, dims: int) -> tuple[slice, ...]:
        """The used frames and points of a sample (T, \\*space)."""
        frames = slice(0, self.frames.stop, self.frames.step)
        return (frames, *(slice(None, None, self.every_x),) * dims)


def check(job: Job, layout: Layout, *, grouped: bool) -> None:
    """Read what a job will use of its data: training uses both splits and the frames up to
    ``args.t_train``, evaluation all frames of the validation split. A JobError, which names file,
    key and samples, if something cannot be read, or is not finite in float32."""
    first, last = 0, layout.train + layout.validation
    single = bool(job.args["single_file"])
    if not job.training:
        # PDEBench takes the first tenth of an array for validation, but the last tenth of groups.
        first, last = (0, layout.validation) if single else (layout.train, last)
    frames = min(job.args["t_train"], layout.frames) if job.training else layout.frames
    every, every_t, every_x = reductions(job)
    used = range(first * every, last * every, every), range(0, (frames - 1) * every_t + 1, every_t)
    use = Use(*used, every_x, grouped, single, job.family == "fno")
    path = data_file(job)
    state = path.stat()
    _check(path, state.st_mtime_ns, state.st_size, use)


@lru_cache(maxsize=64)
def _check(path: Path, modified: int, size: int, use: Use) -> None:  # noqa: ARG001 - keys
    """Once for all the jobs of a sweep, unless the file changes; errors are not cached."""
    if size > LARGE_BYTES:
        print(
            f"chonn-ops: checking that all of {path} ({size / 2**30:.1f} GiB) can be read and is "
            f"finite",
            file=sys.stderr,
            flush=True,
        )
    with readable(path), h5py.File(path, "r") as file:
        bad = list(_groups(file, use) if use.grouped else _arrays(file, use))
    if bad:
        more = f", and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        raise JobError(
            f"{path}: expected finite values (float32) only; not finite: "
            f"{'; '.join(bad[:NAMED])}{more}. They make the loss of any model nan: repair them or "
            f"leave them out."
        )


def _arrays(file: Any, use: Use) -> Iterator[str]:
    scalar = "tensor" in file
    dims = file["tensor" if scalar else "density"].ndim - 2
    darcy = scalar and dims == 2
    scalars = ["tensor", "nu"] if darcy else ["tensor"]
    for key in scalars if scalar else flow_fields(dims):
        array = file[key]
        frames, *space = use.window(dims)
        # nu is the first frame of Darcy flow; PDEBench keeps all frames of the solution.
        window = (
            *((slice(0, len(use.frames) - 1) if darcy else frames,) if key != "nu" else ()),
            *space,
        )
        rows = max(1, BLOCK_BYTES * len(array) // max(1, array.nbytes))
        if array.chunks:
            rows = -(-rows // array.chunks[0]) * array.chunks[0]
        for start in range(0, len(array), rows):
            stop = min(start + rows, len(array))
            block = _read(array, f"{key}, samples {start} to {stop - 1}", start, stop)
            for index in filter(use.samples.__contains__, range(start, stop)):
                yield from _not_finite(block[index - start][window], f"{key}, sample {index}")
    for axis in AXES[:dims] if use.grid else "":
        key = f"{axis}-coordinate"
        yield from _not_finite(_read(file[key], key), key)


def _groups(file: Any, use: Use) -> Iterator[str]:
    first: dict[str, np.ndarray] = {}
    for index, name in enumerate(sorted(file)):
        if not (use.at_once or index in use.samples):
            continue
        data = _read(file[name]["data"], where := f"group {name}, data")
        dims = data.ndim - 2
        if index in use.samples:
            yield from _not_finite(data[use.window(dims)], where)
        if use.grid and (name == GRID_GROUP or not use.at_once):
            for axis in AXES[:dims]:
                line = _read(file[name]["grid"][axis], where := f"group {name}, grid/{axis}")
                yield from _not_finite(line, where)
                known = first.setdefault(axis, line)
                finite = np.isfinite(line).all() and np.isfinite(known).all()
                if finite and not np.array_equal(line, known):
                    raise JobError(
                        f"{file.filename}: {where}: expected the coordinates of the first group; "
                        f"models take those of a batch's first sample for all"
                    )


def _read(array: Any, where: str, start: int = 0, stop: int | None = None) -> np.ndarray:
    try:
        return np.asarray(array[start:stop])
    except (OSError, RuntimeError) as error:
        raise JobError(
            f"{array.file.filename}: {where}: cannot be read, the file is damaged (or compressed "
            f"by a filter that is not installed here): {error}"
        ) from error


def _not_finite(values: np.ndarray, where: str) -> Iterator[str]:
    with np.errstate(over="ignore"):
        values = values.astype(np.float32, copy=False)
    finite = np.isfinite(values)
    if not finite.all():
        first = values[~finite][0]
        yield f"{where} ({values.size - int(finite.sum())} of {values.size} values, first {first})"
