"""Fields that a model is asked at, from the files of its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
_FLOW = ("density", "pressure", "Vx", "Vy", "Vz")
_SPLIT = "test"


@dataclass(frozen=True)
class Samples:
    """Some samples of a file.

    Parameters
    ----------
    fields : Tensor, shape (N, T, C, \\*grid)
        Frames in time, the first one first; steady problems have one.
    first : int
        Number of the first one in the file.
    truth : Tensor, shape (N, \\*grid), optional
        The coefficient of the equation.
    truth_name : str
        What it is; of the first channel of the first frame where there is no coefficient.
    coordinates : sequence of Tensor, shape (n,), optional
        One an axis.
    mask : Tensor of bool, shape (\\*grid), optional
        Which nodes exist.
    """

    fields: Tensor
    first: int = 0
    truth: Tensor | None = None
    truth_name: str = "input"
    coordinates: Sequence[Tensor] | None = None
    mask: Tensor | None = None

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.fields.shape[3:])

    @property
    def reference(self) -> Tensor:
        """What learned maps are compared with, (N, \\*grid): the coefficient, or the input."""
        return self.fields[:, 0, 0] if self.truth is None else self.truth

    def inputs(self, channels: int | None) -> Tensor:
        """(N, channels, \\*grid), earlier frames first.

        Raises
        ------
        ValueError
            If there are too few frames, or no number of frames has these channels.
        """
        n, frames, each = self.fields.shape[:3]
        wanted = 1 if channels is None else channels // each
        if not 1 <= wanted <= frames or (channels is not None and channels % each):
            raise ValueError(
                f"data: expected {channels} channels, the model's, got {frames} frames of {each} "
                f"on a grid of {self.grid}"
            )
        return self.fields[:, :wanted].reshape(n, wanted * each, *self.grid)

    def grid_coordinates(self) -> Tensor:
        """(1, \\*grid, axes); the centres of the cells of the unit box where the file has none."""
        axes = self.coordinates
        if axes is None:
            axes = [(torch.arange(n) + 0.5) / n for n in self.grid]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).float()[None]


def is_pictures(path: Path) -> bool:
    """Whether this is a picture, or a folder, of pictures."""
    return path.is_dir() or path.suffix.lower() in _PICTURES


def read_pictures(
    path: Path, make: Callable[[Any], Tensor] | None, first: int = 0, count: int | None = None
) -> Samples:
    """A picture, or those below a folder in the order of their names.

    Parameters
    ----------
    path : path
    make : callable or None
        Makes a model's input of an image, (C, H, W).
    first, count : int
        Which of them.

    Raises
    ------
    ValueError
        For a model that takes no images, a folder without, or a damaged one.
    """
    from PIL import Image

    if make is None:
        raise ValueError(f"{path}: expected a file of fields for this model, got pictures")
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _PICTURES)
    files = files[first : None if count is None else first + count]
    if not files:
        raise ValueError(f"{path}: expected pictures from number {first} on, got none")
    images = []
    for file in files:
        try:
            with Image.open(file) as image:
                images.append(make(image.convert("RGB")))
        except OSError as error:
            raise ValueError(f"{file}: expected a picture, got a damaged file ({error})") from error
    return Samples(torch.stack(images)[:, None], first, truth_name="input, first channel")


def read(path: str | Path, first: int = 0, count: int | None = None) -> Samples:
    """Some samples of a data file.

    Parameters
    ----------
    path : path
        HDF5 in the layouts of PDEBench (arrays or groups), CNO's Poisson data and ``chonn data
        generate``; FNO's ``.mat``; ``.pt`` of neuraloperator (``x`` of x and y) or of one tensor;
        ``.npy``. Tensors are (N, \\*grid) with one or two axes, or (N, C, \\*grid).
    first, count : int
        Which of them; of CNO's and order1d's files all splits, and the test split.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, it is damaged or in another layout, or has no such samples.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    part = slice(first, None if count is None else first + count)
    if path.suffix == ".npy":
        found = Samples(_frames(path, _array(path)[part]), first)
    elif path.suffix in (".pt", ".pth"):
        found = _tensors(path, part)
    elif path.suffix == ".mat":
        from chonn_ops.problems import fno_darcy

        a, _ = fno_darcy.read(path, start=first, stop=part.stop)
        axes = [torch.linspace(0, 1, n) for n in a.shape[1:]]
        found = Samples(a[:, None, None], first, a, "coefficient a", axes)
    else:
        found = _hdf5(path, part)
    if not len(found):
        raise ValueError(f"{path}: expected samples from number {first} on, got none")
    if not found.fields.isfinite().all():
        raise ValueError(f"{path}: expected finite fields, got infinite ones or NaN")
    return found


def _array(path: Path) -> Tensor:
    import numpy as np

    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (ValueError, OSError, EOFError, TypeError) as error:
        raise ValueError(f"{path}: expected an array of numbers ({error})") from error


def _tensors(path: Path, part: slice) -> Samples:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds on other bytes
        line = str(error).partition("\n")[0]
        raise ValueError(
            f"{path}: expected tensors, got a damaged or another file ({line})"
        ) from error
    x = content.get("x") if isinstance(content, dict) else content
    if not isinstance(x, Tensor) or x.is_complex():
        raise ValueError(f"{path}: expected a real tensor, or a dictionary with one as x")
    fields = _frames(path, x[part])
    steady = isinstance(content, dict) and fields.shape[2] == 1 and fields.dim() == 5
    return Samples(
        fields,
        part.start,
        fields[:, 0, 0] if steady else None,
        "input x" if steady else "input",
    )


def _frames(path: Path, x: Tensor) -> Tensor:
    """(N, 1, C, \\*grid) of (N, \\*grid) or (N, C, \\*grid)."""
    if not 2 <= x.dim() <= 5:
        raise ValueError(f"{path}: expected (N, *grid) or (N, C, *grid), got {tuple(x.shape)}")
    x = x.float()
    return x[:, None, None] if x.dim() < 4 else x[:, None]


def _hdf5(path: Path, part: slice) -> Samples:
    from chonn_ops.problems.hdf5 import dataset, open_hdf5

    def tensor(file: Any, name: str) -> Tensor:
        return torch.from_numpy(dataset(file, name)[part]).float()

    with open_hdf5(path) as opened:
        file: Any = opened
        axes = [file.get(f"{axis}-coordinate") for axis in "xyz"]
        coordinates = [torch.from_numpy(axis[...]).float() for axis in axes if axis is not None]
        mask = torch.from_numpy(file["mask"][...]).bool() if "mask" in file else None
        where = {"coordinates": coordinates or None, "mask": mask}
        if "nu" in file:
            nu = tensor(file, "nu")
            where["coordinates"] = coordinates if len(coordinates) == nu.dim() - 1 else None
            return Samples(nu[:, None, None], part.start, nu, "permeability nu", **where)
        if "k" in file:
            k = tensor(file, "k")
            return Samples(k[:, None, None], part.start, k, "wave number k", mask=mask)
        if "tensor" in file:
            fields = tensor(file, "tensor")[:, :, None]
            where["coordinates"] = coordinates[: fields.dim() - 3] or None
            return Samples(fields, part.start, **where)
        if "density" in file:
            fields = torch.stack([tensor(file, name) for name in _FLOW if name in file], 2)
            where["coordinates"] = coordinates[: fields.dim() - 3] or None
            return Samples(fields, part.start, **where)
        if "Sample_0" in file:
            return _cno(path, file, part, mask)
        if _SPLIT in file:
            return Samples(tensor(file, f"{_SPLIT}/x")[:, None, None], part.start)
        names = [name for name in sorted(file) if "data" in file[name]][part]
        if not names:
            raise ValueError(
                f"{path}: expected a layout of PDEBench or of chonn data generate, got the keys "
                f"{', '.join(list(file)[:8]) or 'none'}"
            )
        # (T, *space, V) each
        fields = torch.stack([torch.from_numpy(dataset(file, f"{n}/data")[...]) for n in names])
        grid = file[names[0]].get("grid", {})
        coordinates = [torch.from_numpy(grid[axis][...]).float() for axis in "xyz" if axis in grid]
        return Samples(fields.movedim(-1, 2).float(), part.start, coordinates=coordinates or None)


def _cno(path: Path, file: Any, part: slice, mask: Tensor | None) -> Samples:
    """CNO's Poisson data, normalised with the ranges of the training samples as for training."""
    import numpy as np

    from chonn_ops.problems._poisson_fields import read_ranges
    from chonn_ops.problems.hdf5 import dataset

    count = sum(name.startswith("Sample_") for name in file)
    fields = [dataset(file, f"Sample_{i}/input")[...] for i in range(count)[part]]
    if not fields:
        raise ValueError(
            f"{path}: expected samples from number {part.start} on, got {count} in all"
        )
    ranges = read_ranges(path.with_name(path.name.replace("_OUT", "_IN")))
    f = torch.from_numpy(ranges.input(np.stack(fields))).float()
    axes = [torch.linspace(0, 1, n) for n in f.shape[1:]]
    return Samples(f[:, None, None], part.start, None, "source f", axes, mask)
