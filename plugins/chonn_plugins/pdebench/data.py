"""The layout of a PDEBench data file, from HDF5 metadata: counts and shapes, without the fields.

PDEBench knows two layouts. One file with arrays over all samples (``args.single_file=True``):
``tensor`` (N, T, X) for scalar 1-D problems; ``tensor`` (N, T, X, Y) with the coefficient ``nu``
(N, X, Y) for Darcy flow, where ``nu`` becomes the first frame; ``density, pressure, Vx, ...``
(N, T, \\*space) for compressible flow. Or one group per sample with ``data`` (T, \\*space, V) and
``grid/x, ...`` (``single_file=False``; ``filename`` is given without ``.h5``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from chonn_ops.models.geometry import Distances, Nodes, distances_of, num_steps, read_box
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.job import Job

VALIDATION_SHARE = 0.1
AXES = "xyz"
LAYOUTS = (
    "PDEBench reads arrays of all samples from NAME.hdf5, with ++args.filename=NAME.hdf5 "
    "++args.single_file=True, and one group a sample from NAME.h5, with ++args.filename=NAME "
    "++args.single_file=False."
)
# Largest difference of a step between coordinates from their mean step, as a share of it. Files
# hold coordinates in single precision.
UNEVEN = 0.01


@dataclass(frozen=True)
class Layout:
    """The samples that PDEBench's readers return: (\\*space, frames, channels)."""

    train: int  # number of samples in PDEBench's split of this name
    validation: int
    space: tuple[int, ...]  # points along each axis, after `reduced_resolution`
    frames: int
    channels: int
    spacing: tuple[float, ...]  # along each axis, 1/n where the file has no coordinates that fit
    box: list[tuple[float, float]]  # coordinates of the walls of each axis
    # Steps from the walls to the first and from the last point of each axis that a model gets.
    nodes: Distances
    # What was assumed about the walls, or that the file says something else than the option
    # `nodes`; empty if neither.
    walls_note: str = ""

    @property
    def lengths(self) -> float | list[float]:
        """Sizes of the domain in units of its longest axis; of square cells their mean, so that a
        square has our models' default and they load its checkpoints."""
        sizes = [high - low for low, high in self.box]
        if min(self.spacing) > (1 - 1e-5) * max(self.spacing):
            return round(sum(sizes) / len(sizes) / max(sizes), 5)
        return [size / max(sizes) for size in sizes]


def flow_fields(dims: int) -> list[str]:
    """The keys of compressible flow."""
    return ["density", "pressure", *(f"V{axis}" for axis in AXES[:dims])]


def data_file(job: Job) -> Path:
    """The absolute path of the job's data file."""
    suffix = "" if job.args["single_file"] else ".h5"
    return Path(str(job.args["data_path"]) + "/" + job.args["filename"] + suffix).resolve()


def reductions(job: Job) -> tuple[int, int, int]:
    """Steps between the samples, frames and points that PDEBench's reader keeps; its reader of
    groups keeps all."""
    if not job.args["single_file"]:
        return 1, 1, 1
    batch, frames, points = ("reduced_batch", "reduced_resolution_t", "reduced_resolution")
    return int(job.args[batch]), int(job.args[frames]), int(job.args[points])


def read_layout(job: Job) -> Layout:
    """The layout of a job's data.

    A JobError if the file does not exist or is not a readable HDF5 file, if keys are missing, if
    the shapes do not match a layout of PDEBench, or if a model gets coordinates that are not one
    for each point or not equally spaced.
    """
    path = data_file(job)
    if not path.is_file():
        raise JobError(
            f"data file not found: {path} (args.data_path={str(job.args['data_path'])!r}, "
            f"args.filename={job.args['filename']!r}, working directory {Path.cwd()}). {LAYOUTS}"
        )
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise JobError(
            f"data file is not a readable HDF5 file, damaged or still being downloaded: {path} "
            f"({path.stat().st_size} bytes; {error})"
        ) from error
    with file, readable(path):
        return _read_arrays(job, file) if job.args["single_file"] else _read_groups(job, file)


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


def _need(node: Any, keys: Sequence[str], where: str) -> None:
    missing = [key for key in keys if key not in node]
    if missing:
        raise JobError(
            f"{where}: expected the keys {', '.join(keys)}; missing {', '.join(missing)}; "
            f"found {_names(list(node))}"
        )


def _names(names: Sequence[str]) -> str:
    return (", ".join(names[:12]) or "none") + (", ..." if len(names) > 12 else "")


def _read_arrays(job: Job, file: Any) -> Layout:
    path = file.filename
    flow = "tensor" not in file
    if flow and "density" not in file:
        raise JobError(
            f"{path}: expected the key tensor, or density, pressure, Vx, ... (compressible flow); "
            f"found {_names(list(file))}. {LAYOUTS}"
        )
    shape = file["density" if flow else "tensor"].shape
    dims = len(shape) - 2
    every, every_t, every_x = reductions(job)
    frames, channels = math.ceil(shape[1] / every_t) if dims > 0 else 0, 1
    if flow:
        if dims not in (1, 2, 3):
            raise JobError(f"{path}: density: expected (N, T, *space), got shape {shape}")
        fields = flow_fields(dims)
        channels = len(fields)
        _need(file, fields, path)
        unequal = [f"{name} {file[name].shape}" for name in fields if file[name].shape != shape]
        if unequal:
            raise JobError(f"{path}: expected all fields of shape {shape}, got {unequal}")
        if shape[0] % every or any(n % every_x for n in shape[2:]):
            raise JobError(
                f"{path}: PDEBench's reader of compressible flow needs reduced_batch to divide the "
                f"{shape[0]} samples and reduced_resolution to divide the grid {shape[2:]}; "
                f"got {every} and {every_x}"
            )
    elif dims == 2:
        _need(file, ["tensor", "nu"], path)
        expected, actual = (shape[0], *shape[2:]), file["nu"].shape
        if actual != expected:
            raise JobError(f"{path}: nu: expected shape {expected}, got {actual}")
        frames = shape[1] + 1
    elif dims != 1:
        raise JobError(
            f"{path}: tensor: expected (N, T, X), or (N, T, X, Y) with nu, got shape {shape}"
        )
    coordinates = [f"{axis}-coordinate" for axis in AXES[:dims]]
    if job.family == "fno":
        _need(file, coordinates, path)
    axes = [file.get(name) for name in coordinates]
    return _layout(job, shape[0], shape[2:], frames, channels, axes)


def _read_groups(job: Job, file: Any) -> Layout:
    path = file.filename
    names = sorted(file)
    arrays = [name for name in names if not isinstance(file[name], h5py.Group)]
    if not names or arrays:
        raise JobError(
            f"{path}: expected one group a sample (args.single_file=False), got "
            + (f"the datasets {_names(arrays)}. {LAYOUTS}" if arrays else "an empty file")
        )
    first, where = file[names[0]], f"{path}, group {names[0]}"
    for name in names:
        _need(file[name], ["data"], f"{path}, group {name}")
    shape = first["data"].shape
    dims = len(shape) - 2
    if dims not in (1, 2, 3):
        raise JobError(f"{where}: data: expected (T, *space, V), got shape {shape}")
    shapes = {name: file[name]["data"].shape for name in names}
    unequal = [f"{name} {other}" for name, other in shapes.items() if other != shape]
    if unequal:
        raise JobError(f"{path}: expected data of shape {shape} in every group, got {unequal[:5]}")
    if job.family == "fno":
        _need(first, ["data", "grid"], where)
        _need(first["grid"], AXES[:dims], f"{where}, grid")
    axes = [first["grid"].get(axis) if "grid" in first else None for axis in AXES[:dims]]
    frames = math.ceil(shape[0] / reductions(job)[1])
    return _layout(job, len(names), shape[1:-1], frames, shape[-1], axes)


def _layout(
    job: Job, samples: int, points: Sequence[int], frames: int, channels: int, axes: Sequence[Any]
) -> Layout:
    every, _, every_x = reductions(job)
    samples = math.ceil(samples / every)
    # PDEBench validates on the first tenth of an array, but on the last tenth of groups.
    if job.args["single_file"]:
        validation = int(samples * VALIDATION_SHARE)
    else:
        validation = samples - int(samples * (1 - VALIDATION_SHARE))
    space = tuple(math.ceil(n / every_x) for n in points)
    spacing = tuple(_spacing(job, *a, every_x) for a in zip(axes, points, strict=True))
    geometry = _walls(job, axes, points, every_x)
    return Layout(samples - validation, validation, space, frames, channels, spacing, *geometry)


def _walls(
    job: Job, axes: Sequence[Any], points: Sequence[int], every: int
) -> tuple[list[tuple[float, float]], Distances, str]:
    """`Layout.box`, `nodes` and `walls_note`. All points of the file show where the walls are; the
    ones that the reader keeps end at other distances from them."""
    has_nodes = job.model is not None and "nodes" in job.model.defaults
    wanted: Nodes | None = job.options.get("nodes") if has_nodes else None
    try:
        said = distances_of("centres" if wanted is None else wanted, len(points))
    except ValueError as error:
        raise JobError(str(error)) from error
    box, nodes, is_open, is_ignored = [], [], False, False
    for axis, n, pair in zip(axes, points, said, strict=True):
        line = (np.arange(n) + pair[0]) / num_steps(n, pair)
        low, high, sure = 0.0, 1.0, n == 1
        coordinates = np.full(n, np.nan)
        if axis is not None and axis.shape == (n,):
            coordinates = np.asarray(axis, dtype=float)
        if n == 1 and np.isfinite(coordinates[0]):  # on an axis of length 1
            line, low, high = coordinates, coordinates[0] - line[0], coordinates[0] - line[0] + 1
        elif np.isfinite(coordinates).all() and coordinates[0] != coordinates[-1]:
            line, step = coordinates, _step(coordinates, 1.0)
            [(low, high)], [sure] = read_box([float(line[0])], [float(line[-1])], [n], [pair])
            outer = sorted((line[0] - pair[0] * step, line[-1] + pair[1] * step))
            if wanted is not None and not sure:
                low, high = outer
            off = abs(outer[0] - low), abs(outer[1] - high)
            is_ignored |= wanted is not None and max(off) > 0.1 * abs(step)
        is_open |= not sure and wanted is None
        kept = line[::every]
        step = _step(kept, high - low)
        start, stop = (low, high) if step > 0 else (high, low)
        ends = float((kept[0] - start) / step), float((stop - kept[-1]) / step)
        box.append((float(low), float(high)))
        # Files have coordinates in single precision.
        nodes.append(tuple(max(round(end, 3), 0.0) for end in ends))
    if not (has_nodes and (is_open or is_ignored)):
        return box, nodes, ""
    walls = ", ".join(
        f"{name} from {low:g} to {high:g}" for name, (low, high) in zip(AXES, box, strict=False)
    )
    file, key = job.args["filename"], f"args.{job.model.options_key}.nodes" if job.model else ""
    if is_ignored:
        return box, nodes, f"{key}={wanted} is ignored: by the coordinates of {file}, {walls}"
    note = f"{file} does not say where the walls are: assumed {walls}. ++{key}=left, corners or "
    return box, nodes, note + "centres says where the points of the file lie between them"


def _step(line: np.ndarray, default: float) -> float:
    """The mean step between coordinates, or `default` if there is none."""
    return float(line[-1] - line[0]) / max(len(line) - 1, 1) or default


def _spacing(job: Job, axis: Any, points: int, every: int) -> float:
    """The step between the coordinates of an axis, which must fit the fields if the model gets
    them: cells compute with the spacing."""
    unknown = 1 / math.ceil(points / every)
    if axis is None:
        return unknown
    if axis.shape != (points,):
        if job.family == "fno":
            raise JobError(
                f"{axis.file.filename}: {axis.name[1:]}: expected {points} coordinates, one for "
                f"each point of the fields, got shape {axis.shape}; are axes swapped, or are these "
                f"the edges of cells?"
            )
        return unknown
    line = np.asarray(axis, dtype=float)[::every]
    steps = np.diff(line)
    step = float(steps.mean()) if len(steps) else 0.0
    # `samples` names coordinates that are not finite.
    if job.family == "fno" and np.isfinite(line).all():
        rounding = 4 * np.finfo(np.float32).eps * np.abs(line).max()
        uneven = (np.abs(steps - step) > UNEVEN * abs(step) + rounding).any()
        if uneven or (len(steps) and step == 0):
            raise JobError(
                f"{axis.file.filename}: {axis.name[1:]}: expected equally spaced coordinates, got "
                f"steps from {steps.min():.4g} to {steps.max():.4g}"
            )
    return abs(step) if math.isfinite(step) and step != 0 else unknown
