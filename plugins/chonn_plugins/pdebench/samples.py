"""Check before a job starts that all its data can be read and are finite.

Otherwise a damaged chunk ends the job with an HDF5 error that names no file, and one NaN in one
sample makes every weight NaN within an epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.data import AXES, Layout, data_file, flow_fields, readable, reductions
from chonn_plugins.pdebench.job import Job

BLOCK_BYTES = 2**26
# Files of at least this size take long enough to read that a message is printed.
LARGE_BYTES = 2**30
NAMED = 5


def check(job: Job, layout: Layout) -> None:
    """Read what a job will use of its data: training uses both splits and the frames up to
    ``args.t_train``, evaluation all frames of the validation split. A JobError, which names file,
    key and samples, if something cannot be read, or is not finite in float32."""
    first, last = 0, layout.train + layout.validation
    if not job.training:
        # PDEBench takes the first tenth of an array for validation, but the last tenth of groups.
        single = job.args["single_file"]
        first, last = (0, layout.validation) if single else (layout.train, last)
    frames = min(job.args["t_train"], layout.frames) if job.training else layout.frames
    every, every_t, every_x = reductions(job)
    samples = range(first * every, last * every, every)
    space = (slice(None, None, every_x),) * len(layout.space)
    path = data_file(job)
    if (size := path.stat().st_size) > LARGE_BYTES:
        print(
            f"chonn-ops: checking that all of {path} ({size / 2**30:.1f} GiB) can be read and is "
            f"finite",
            file=sys.stderr,
            flush=True,
        )
    with readable(path), h5py.File(path, "r") as file:
        if not job.args["single_file"]:
            window = (slice(0, (frames - 1) * every_t + 1, every_t), *space)
            bad = list(_groups(job, file, samples, window))
        else:
            bad = list(_arrays(job, file, samples, frames, every_t, space))
    if bad:
        more = f", and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        raise JobError(
            f"{path}: expected finite values (float32) only; not finite: "
            f"{'; '.join(bad[:NAMED])}{more}. They make the loss of any model nan: repair them or "
            f"leave them out."
        )


def _arrays(
    job: Job, file: Any, samples: range, frames: int, every_t: int, space: tuple[slice, ...]
) -> Iterator[str]:
    window: slice = slice(0, (frames - 1) * every_t + 1, every_t)
    keys = ["tensor"]
    if "tensor" not in file:
        keys = flow_fields(len(space))
    elif len(space) == 2:
        # nu is the first frame of Darcy flow; PDEBench keeps all frames of the solution.
        keys, window = ["tensor", "nu"], slice(0, frames - 1)
    for key in keys:
        array = file[key]
        rows = max(1, BLOCK_BYTES * len(array) // max(1, array.nbytes))
        if array.chunks:
            rows = -(-rows // array.chunks[0]) * array.chunks[0]
        for start in range(0, len(array), rows):
            stop = min(start + rows, len(array))
            block = _read(array, f"{key}, samples {start} to {stop - 1}", start, stop)
            for index in filter(samples.__contains__, range(start, stop)):
                used = space if key == "nu" else (window, *space)
                yield from _not_finite(block[index - start][used], f"{key}, sample {index}")
    for axis in AXES[: len(space)] if job.family == "fno" else "":
        key = f"{axis}-coordinate"
        yield from _not_finite(_read(file[key], key), key)


def _groups(job: Job, file: Any, samples: range, window: tuple[slice, ...]) -> Iterator[str]:
    first: dict[str, np.ndarray] = {}
    for index, name in enumerate(sorted(file)):
        if index not in samples:
            continue
        data = _read(file[name]["data"], where := f"group {name}, data")
        yield from _not_finite(data[window], where)
        for axis in AXES[: data.ndim - 2] if job.family == "fno" else "":
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
