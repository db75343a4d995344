"""The layout of a PDEBench data file, from HDF5 metadata: counts and shapes, without the fields.

PDEBench knows two layouts. One file with arrays over all samples (``args.single_file=True``):
``tensor`` (N, T, X) for scalar 1-D problems; ``tensor`` (N, T, X, Y) with the coefficient ``nu``
(N, X, Y) for Darcy flow, where ``nu`` becomes the first frame; ``density, pressure, Vx, ...``
(N, T, \\*space) for compressible flow. Or one group per sample with ``data`` (T, \\*space, V) and
``grid/x, ...`` (``single_file=False``; ``filename`` is given without ``.h5``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.job import Job

VALIDATION_SHARE = 0.1
AXES = "xyz"
# PDEBench's single-file reader of grouped data uses the grid of this group for all samples.
GRID_GROUP = "0023"


@dataclass(frozen=True)
class Layout:
    """The samples that PDEBench's readers return: (\\*space, frames, channels).

    Parameters
    ----------
    train, validation : int
        Number of samples in PDEBench's two splits.
    space : tuple of int
        Points along each axis, after ``reduced_resolution``.
    frames, channels : int
    spacing : tuple of float
        Grid spacing along each axis, 1/n where the file has no coordinates.
    """

    train: int
    validation: int
    space: tuple[int, ...]
    frames: int
    channels: int
    spacing: tuple[float, ...]


def data_file(job: Job) -> Path:
    """The absolute path of the job's data file."""
    suffix = "" if job.args["single_file"] else ".h5"
    return Path(str(job.args["data_path"]) + "/" + job.args["filename"] + suffix).resolve()


def read_layout(job: Job, *, grouped: bool) -> Layout:
    """The layout of a job's data.

    Parameters
    ----------
    job : Job
    grouped : bool
        Whether the file has one group per sample.

    Raises
    ------
    JobError
        If the file does not exist or is not a readable HDF5 file, if keys are missing, or if the
        shapes do not match a layout of PDEBench.
    """
    with _opened(job) as file:
        return _read_groups(job, file) if grouped else _read_arrays(job, file)


@contextmanager
def _opened(job: Job) -> Iterator[Any]:
    path = data_file(job)
    if not path.is_file():
        filename = job.args["filename"]
        hint = ""
        if not job.args["single_file"] and filename.endswith((".h5", ".hdf5")):
            hint = " With args.single_file=False the name is given without its suffix."
        elif not job.args["single_file"] and path.with_suffix(".hdf5").is_file():
            hint = " There is a .hdf5 file of this name: set args.single_file=True and its suffix."
        raise JobError(
            f"data file not found: {path} (args.data_path={str(job.args['data_path'])!r}, "
            f"args.filename={filename!r}, working directory {Path.cwd()}).{hint}"
        )
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise JobError(
            f"data file is not a readable HDF5 file, damaged or still being downloaded: {path} "
            f"({path.stat().st_size} bytes; {error})"
        ) from error
    with file, readable(path):
        yield file


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the errors of h5py and NumPy for damaged blocks, dead links, or groups and texts in the
    place of fields into a JobError."""
    try:
        yield
    except JobError:
        raise
    except Exception as error:
        raise JobError(
            f"data file cannot be read, it is damaged or holds something else: {path} "
            f"({type(error).__name__}: {error})"
        ) from error


def _need(node: Any, keys: list[str], where: str) -> None:
    missing = [key for key in keys if key not in node]
    if missing:
        found = ", ".join(list(node)[:12]) + (", ..." if len(node) > 12 else "")
        raise JobError(
            f"{where}: expected the keys {', '.join(keys)}; missing {', '.join(missing)}; "
            f"found {found or 'none'}"
        )


def _read_arrays(job: Job, file: Any) -> Layout:
    path = file.filename
    every, every_t, every_x = (
        int(job.args[f"reduced_{what}"]) for what in ("batch", "resolution_t", "resolution")
    )
    flow = "tensor" not in file
    if flow and "density" not in file:
        kind = ""
        if any(isinstance(node, h5py.Group) for node in file.values()):
            kind = (
                " The file has one group a sample: set args.single_file=False and drop the suffix."
            )
        found = ", ".join(list(file)[:12])
        raise JobError(
            f"{path}: expected the key tensor, or density, pressure, Vx, ... (compressible flow); "
            f"found {found or 'none'}.{kind}"
        )
    shape = file["density" if flow else "tensor"].shape
    dims = len(shape) - 2
    darcy = not flow and dims == 2
    if flow:
        if dims not in (1, 2, 3):
            raise JobError(f"{path}: density: expected (N, T, *space), got shape {shape}")
        fields = ["density", "pressure", *(f"V{axis}" for axis in AXES[:dims])]
        _need(file, fields, path)
        unequal = [f"{name} {file[name].shape}" for name in fields if file[name].shape != shape]
        if unequal:
            raise JobError(f"{path}: expected all fields of shape {shape}, got {unequal}")
    else:
        if dims not in (1, 2):
            raise JobError(
                f"{path}: tensor: expected (N, T, X), or (N, T, X, Y) with nu, got shape {shape}"
            )
        if darcy:
            _need(file, ["tensor", "nu"], path)
            if file["nu"].shape != (shape[0], *shape[2:]):
                expected = (shape[0], *shape[2:])
                raise JobError(f"{path}: nu: expected shape {expected}, got {file['nu'].shape}")
    coordinates = [f"{axis}-coordinate" for axis in AXES[:dims]]
    if job.family == "fno":
        _need(file, coordinates, path)

    if flow and (shape[0] % every or any(n % every_x for n in shape[2:])):
        raise JobError(
            f"{path}: PDEBench's reader of compressible flow needs reduced_batch to divide the "
            f"{shape[0]} samples and reduced_resolution to divide the grid {shape[2:]}; "
            f"got {every} and {every_x}"
        )
    samples = math.ceil(shape[0] / every)
    validation = int(samples * VALIDATION_SHARE)
    space = tuple(math.ceil(n / every_x) for n in shape[2:])
    frames = shape[1] + 1 if darcy else math.ceil(shape[1] / every_t)
    channels = dims + 2 if flow else 1
    axes = [file.get(name) for name in coordinates]
    return Layout(
        samples - validation, validation, space, frames, channels, _spacing(axes, space, every_x)
    )


def _read_groups(job: Job, file: Any) -> Layout:
    path = file.filename
    names = sorted(file)
    arrays = [name for name in names if not isinstance(file[name], h5py.Group)]
    if not names or arrays:
        raise JobError(
            f"{path}: expected one group a sample (args.single_file=False), got "
            + (f"the datasets {', '.join(arrays[:12])}" if arrays else "an empty file")
        )
    first = file[names[0]]
    for name in names:
        _need(file[name], ["data"], f"{path}, group {name}")
    shape = first["data"].shape
    dims = len(shape) - 2
    if dims not in (1, 2, 3):
        raise JobError(
            f"{path}, group {names[0]}: data: expected (T, *space, V), got shape {shape}"
        )
    unequal = [f"{name} {file[name]['data'].shape}" for name in names]
    unequal = [text for text in unequal if not text.endswith(f" {shape}")]
    if unequal:
        raise JobError(f"{path}: expected data of shape {shape} in every group, got {unequal[:5]}")
    grid = first.get("grid")
    if job.family == "fno":
        _need(first, ["data", "grid"], f"{path}, group {names[0]}")
        _need(first["grid"], list(AXES[:dims]), f"{path}, group {names[0]}, grid")

    every = every_x = every_t = 1
    single = bool(job.args["single_file"])
    if single:
        _need(file, [GRID_GROUP], path)
        every, every_t, every_x = (
            int(job.args[f"reduced_{what}"]) for what in ("batch", "resolution_t", "resolution")
        )
    samples = math.ceil(len(names) / every)
    # PDEBench validates on the first tenth of an array, but on the last tenth of groups.
    if single:
        validation = int(samples * VALIDATION_SHARE)
    else:
        validation = samples - int(samples * (1 - VALIDATION_SHARE))
    space = tuple(math.ceil(n / every_x) for n in shape[1:-1])
    axes = [grid.get(axis) if grid is not None else None for axis in AXES[:dims]]
    return Layout(
        samples - validation,
        validation,
        space,
        math.ceil(shape[0] / every_t),
        shape[-1],
        _spacing(axes, space, every_x),
    )


def _spacing(axes: list[Any], space: tuple[int, ...], every: int) -> tuple[float, ...]:
    spacing = []
    for axis, points in zip(axes, space, strict=True):
        shape = getattr(axis, "shape", (0,))
        if len(shape) != 1:
            # `axis[1]` of an array with more axes could take minutes to read.
            raise JobError(f"{axis.file.filename}: {axis.name}: expected one axis, got {shape}")
        step = float(abs(axis[1] - axis[0])) if axis is not None and len(axis) > 1 else 0.0
        spacing.append(step * every if step > 0 else 1 / points)
    return tuple(spacing)
