"""Samples of fields and pictures, read from the data files of the hosts and of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_ops._optional import import_optional
from chonn_ops.checks import check_each, error

_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
_FLOW = ("density", "pressure", "Vx", "Vy", "Vz")
# Nodes along an axis in the FNO paper's tables of Darcy flow: every fifth of 421.
_FNO_NODES = 85


@dataclass(frozen=True)
class Samples:
    """Some samples of a file.

    Parameters
    ----------
    fields : Tensor, shape (N, T, C, \\*grid)
        T frames in order of time; steady problems have one.
    first : int
        Number of the first sample in the file.
    reference_name : str
        Name of the first channel of the first frame: the coefficient of the equation where the file
        has one.
    coordinates : sequence of Tensor, shape (n,), optional
        One per axis.
    mask : Tensor of bool, shape (\\*grid), optional
        Nodes that exist.
    targets : Tensor, shape (N, \\*grid), optional
        First channel of the outputs that the file has beside its inputs.
    """

    fields: Tensor
    first: int = 0
    reference_name: str = "input"
    coordinates: Sequence[Tensor] | None = None
    mask: Tensor | None = None
    targets: Tensor | None = None

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def grid(self) -> tuple[int, ...]:
        """Shape of the grid."""
        return tuple(self.fields.shape[3:])

    @property
    def reference(self) -> Tensor:
        """Field that learned conductivities are compared with, (N, \\*grid): the first channel of
        the first frame."""
        return self.fields[:, 0, 0]

    def every(self, frame: int, point: int) -> Samples:
        """Every n-th frame, and every m-th point along each axis."""
        axes = (slice(None, None, point),) * len(self.grid)
        frames = slice(None, None, frame)
        lines = self.coordinates
        return replace(
            self,
            fields=self.fields[(slice(None), frames, slice(None), *axes)],
            coordinates=None if lines is None else [line[::point] for line in lines],
            mask=None if self.mask is None else self.mask[axes],
            targets=None if self.targets is None else self.targets[(slice(None), *axes)],
        )

    def inputs(self, channels: int | None) -> Tensor:
        """Inputs of a model with so many channels, (N, channels, \\*grid), earlier frames first.

        Raises
        ------
        ValueError
            If no number of frames has these channels, or there are too few frames.
        """
        n, frames, each = self.fields.shape[:3]
        wanted = 1 if channels is None else channels // each
        if not 1 <= wanted <= frames or (channels is not None and channels % each):
            stored = f"{frames} frames of {each} on a grid of {self.grid}"
            raise error("data", f"{channels} channels, as the model takes", stored)
        return self.fields[:, :wanted].reshape(n, wanted * each, *self.grid)

    def grid_coordinates(self) -> Tensor:
        """Coordinates of the nodes, (1, \\*grid, axes). Default where the file has none: the
        centres of square cells, of a domain whose lengths have the mean 1."""
        axes = self.coordinates
        if axes is None:
            axes = [(torch.arange(n) + 0.5) * len(self.grid) / sum(self.grid) for n in self.grid]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).float()[None]


def read_samples(
    path: str | Path,
    first: int = 0,
    count: int | None = None,
    image_transform: Callable[[Any], Tensor] | None = None,
) -> Samples:
    """Read some samples of a data file.

    Parameters
    ----------
    path : path
        HDF5 file in a layout of PDEBench (arrays or groups) or of CNO's Poisson data; FNO's
        ``.mat``; neuraloperator's ``.pt`` (``x`` in a dictionary) or one tensor; ``.npy``; a
        picture, or a folder of pictures. Arrays and tensors are (N, n), (N, H, W), (N, C, H, W) or
        (N, C, X, Y, Z).
    first, count : int
        Number of the first sample, and how many to read at most. Default: all.
    image_transform : callable, optional
        Makes the input (C, H, W) of a model from a PIL image; needed for pictures.

    Returns
    -------
    Samples

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, has another layout, or has no such samples.
    ImportError
        If h5py is not installed, for HDF5 files.
    """
    path = Path(path)
    part = slice(first, None if count is None else first + count)
    if path.is_dir() or path.suffix.lower() in _PICTURES:
        return _pictures(path, image_transform, part)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    if path.suffix == ".npy":
        samples = Samples(_frames(path, _numpy(path)[part]), first)
    elif path.suffix in (".pt", ".pth"):
        samples = _tensors(path, part)
    elif path.suffix == ".mat":
        samples = _matlab(path, part)
    else:
        with _opened(path) as file:
            samples = _hdf5(path, file, part)
    if not len(samples):
        raise error(path, f"samples from number {first} on", "none")
    check_each(str(path), samples.fields, samples.fields.isfinite(), "finite fields")
    return samples


def _pictures(path: Path, transform: Callable[[Any], Tensor] | None, part: slice) -> Samples:
    if transform is None:
        raise error(path, "a file of fields for this model", "pictures")
    image = import_optional("PIL.Image", "timm")
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _PICTURES)
    files = files[part]
    if not files:
        raise error(path, f"pictures from number {part.start} on", "none")
    inputs = []
    for file in files:
        try:
            with image.open(file) as opened:
                inputs.append(transform(opened.convert("RGB")))
        except OSError as failure:
            raise error(file, "a picture", f"a damaged file ({failure})") from failure
    return Samples(torch.stack(inputs)[:, None], part.start, "input, first channel")


def _numpy(path: Path) -> Tensor:
    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (ValueError, OSError, EOFError, TypeError) as failure:
        raise ValueError(f"{path}: expected an array of numbers ({failure})") from failure


def _tensors(path: Path, part: slice) -> Samples:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as failure:  # PyTorch raises errors of many classes for other bytes.
        line = str(failure).partition("\n")[0]
        raise error(path, "tensors", f"a damaged or different file ({line})") from failure
    x = content.get("x") if isinstance(content, dict) else content
    if not isinstance(x, Tensor):
        raise ValueError(f"{path}: expected a tensor, or a dictionary with one as x")
    fields = _frames(path, x[part])
    steady = isinstance(content, dict) and fields.shape[2] == 1 and fields.dim() == 5
    y = content.get("y") if isinstance(content, dict) else None
    targets = _target(path, y[part], fields) if isinstance(y, Tensor) and y.dim() else None
    return Samples(fields, part.start, "input x" if steady else "input", targets=targets)


def _target(path: Path, y: Tensor, fields: Tensor) -> Tensor | None:
    """The first channel of outputs, None unless they are fields on the grid of the inputs."""
    if not 2 <= y.dim() <= 5 or y.is_complex():
        return None
    y = _frames(path, y)[:, 0, 0]
    return y if y.shape == fields[:, 0, 0].shape else None


def _frames(path: Path, x: Tensor) -> Tensor:
    """(N, \\*grid) or (N, C, \\*grid) as (N, 1, C, \\*grid)."""
    if not 2 <= x.dim() <= 5:
        raise error(path, "(N, *grid) or (N, C, *grid)", tuple(x.shape))
    if x.is_complex():
        raise error(path, "real numbers", x.dtype)
    x = x.float()
    return x[:, None, None] if x.dim() < 4 else x[:, None]


def _matlab(path: Path, part: slice) -> Samples:
    """FNO's Darcy flow: ``coeff`` (N, R, R), at the nodes of the paper's tables."""
    if import_optional("h5py", "circuit").is_hdf5(path):
        with _opened(path) as file:  # MATLAB 7.3 stores the axes in reverse.
            names = ("coeff", "sol") if "sol" in file else ("coeff",)
            fields = {name: _real(file, name)[..., part].T for name in names}
    else:
        loadmat = import_optional("scipy.io", "circuit").loadmat
        try:
            content = loadmat(path, variable_names=["coeff", "sol"])
            names = ("coeff", "sol") if "sol" in content else ("coeff",)
            fields = {name: content[name][part] for name in names}
        except Exception as failure:  # SciPy's parser raises many classes for other bytes.
            raise ValueError(f"{path}: expected a MATLAB file with coeff ({failure})") from failure
    a = fields["coeff"]
    if a.ndim != 3:
        raise error(path, "coeff of shape (N, R, R)", a.shape)
    every, rest = divmod(a.shape[1] - 1, _FNO_NODES - 1)
    step = every if every and not rest else 1
    field, *targets = (
        torch.from_numpy(np.ascontiguousarray(x[:, ::step, ::step], np.float32))
        for x in fields.values()
        if x.shape == a.shape
    )
    axes = [torch.linspace(0, 1, n) for n in field.shape[1:]]
    return Samples(field[:, None, None], part.start, "coefficient a", axes, None, *targets)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An HDF5 file, with one clear error if it is damaged or lacks what the block reads."""
    h5py = import_optional("h5py", "circuit")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, TypeError, RuntimeError) as failure:
        raise ValueError(f"{path}: damaged, or not the expected HDF5 file ({failure})") from failure


def _real(file: Any, name: str) -> Any:
    """The data set `name` of real numbers."""
    array = file[name]
    if getattr(array, "dtype", np.dtype(object)).kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers")
    return array


def _tensor(file: Any, name: str, part: Any = ...) -> Tensor:
    return torch.from_numpy(_real(file, name)[part]).float()


def _hdf5(path: Path, file: Any, part: slice) -> Samples:
    coordinates = [
        _tensor(file, f"{axis}-coordinate") for axis in "xyz" if f"{axis}-coordinate" in file
    ]
    mask = _tensor(file, "mask").bool() if "mask" in file else None

    def samples(fields: Tensor, name: str = "input", targets: Tensor | None = None) -> Samples:
        axes = coordinates[: fields.dim() - 3]
        known = axes if len(axes) == fields.dim() - 3 else None
        return Samples(fields, part.start, name, known, mask, targets)

    for key, name in (("nu", "permeability nu"), ("k", "wave number k")):
        if key in file:
            fields = _tensor(file, key, part)[:, None, None]
            y = _tensor(file, "tensor", part) if "tensor" in file else None
            return samples(fields, name, None if y is None else _target(path, y, fields))
    if "tensor" in file:
        return samples(_tensor(file, "tensor", part)[:, :, None])
    if "density" in file:
        names = [name for name in _FLOW if name in file]
        return samples(torch.stack([_tensor(file, name, part) for name in names], 2))
    if "Sample_0" in file:
        return _cno(path, file, part, mask)
    if "test" in file:
        return samples(_tensor(file, "test/x", part)[:, None, None])
    names = [name for name in sorted(file) if "data" in file[name]][part]
    if not names:
        keys = ", ".join(list(file)[:8]) or "none"
        raise error(path, "a layout of PDEBench or CNO", f"the keys {keys}")
    # (T, *space, V) each
    fields = torch.stack([_tensor(file, f"{name}/data") for name in names])
    axes = file[names[0]].get("grid", {})
    coordinates = [_tensor(axes, axis) for axis in "xyz" if axis in axes]
    return samples(fields.movedim(-1, 2))


def _cno(path: Path, file: Any, part: slice, mask: Tensor | None) -> Samples:
    """CNO's Poisson data, scaled to [0, 1] by the range of the training samples as for training.

    The file IN holds the training samples and the range; the file OUT lies beside it.
    """
    count = sum(name.startswith("Sample_") for name in file)
    if part.start >= count:
        raise error(path, f"samples from number {part.start} on", f"{count} in all")
    fields = np.stack([_real(file, f"Sample_{i}/input")[...] for i in range(count)[part]])
    with _opened(path.with_name(path.name.replace("_OUT", "_IN"))) as training:
        low, high = (float(_real(training, name)[()]) for name in ("min_inp", "max_inp"))
    f = torch.from_numpy((fields - low) / (high - low)).float()
    axes = [torch.linspace(0, 1, n) for n in f.shape[1:]]
    return Samples(f[:, None, None], part.start, "source f", axes, mask)
