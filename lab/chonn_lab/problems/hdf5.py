"""HDF5 files: whole or absent when written, clear errors when read.

MATLAB's layout is here, too: files of version 5, and those of 7.3, which are HDF5 with the axes
reversed.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io

from chonn_ops.files import whole_file

# What makes an HDF5 file a MATLAB 7.3 file, in the smallest user block that HDF5 allows.
MATLAB = b"MATLAB 7.3 MAT-file, written by chonn-ops".ljust(116) + bytes(8) + b"\x00\x02IM"
MATLAB = MATLAB.ljust(512, b"\0")


@contextlib.contextmanager
def create_hdf5(path: Path, force: bool, matlab: bool = False) -> Iterator[h5py.File]:
    """A new HDF5 file, which appears when the ``with`` block has ended without an exception.

    OSError if ``path`` cannot be written, such as on a full disk, or exists and `force` is not set.
    """
    header = MATLAB if matlab else b""
    with whole_file(path, force) as staged:
        # `whole_file` holds the lock of the file already.
        with h5py.File(staged, "w", userblock_size=len(header), locking=False) as file:
            yield file
        with open(staged, "rb+") as start:
            start.write(header)


@contextlib.contextmanager
def open_hdf5(path: Path | str) -> Iterator[h5py.File]:
    """An HDF5 file to read: FileNotFoundError if there is none, and one clear ValueError if it is
    damaged, holds something else, or lacks what the block reads from it."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except MemoryError:
        raise
    except Exception as error:
        # h5py and NumPy raise errors of many types for a truncated file, a wrong name, a damaged
        # block, or another shape or type. An error that names the file is clear already.
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        raise ValueError(f"{path}: damaged, or not the expected HDF5 file ({error})") from error


def dataset(file: h5py.File | h5py.Group, name: str, ndim: int | None = None) -> h5py.Dataset:
    """The data set ``name``; KeyError or ValueError unless it holds numbers on `ndim` axes."""
    item = file.get(name)
    if not isinstance(item, h5py.Dataset):
        # h5py's own message does not name what is missing.
        raise KeyError(f"no data set {name}")
    if item.dtype.kind not in "fiub" or ndim not in (None, item.ndim):
        axes = "" if ndim is None else f" on {ndim} axes"
        raise ValueError(f"{name}: expected numbers{axes}, got {item.dtype}{item.shape}")
    return item


def check_range(path: Path | str, n_samples: int, start: int, stop: int | None) -> None:
    """ValueError unless a file of `n_samples` samples has those from `start` up to `stop`."""
    if not 0 <= start < (n_samples if stop is None else stop) <= n_samples:
        raise ValueError(
            f"{path}: expected samples {start} to {stop}, got a file of {n_samples} samples"
        )


def read_rows(
    path: Path | str, start: int = 0, stop: int | None = None, **axes: int | None
) -> list[np.ndarray]:
    """Samples from `start` up to `stop`, by default all, of the data sets of these names and
    numbers of axes, or of any number with None, float32.

    FileNotFoundError or ValueError if the file is missing, damaged or of another problem, or lacks
    the samples.
    """
    with open_hdf5(path) as file:
        datasets = [dataset(file, name, ndim) for name, ndim in axes.items()]
        # Fields of several axes end with the grid's; others hold a sample a row.
        grids = {data.shape[-2:] for data in datasets if data.ndim > 2}
        if len({len(data) for data in datasets}) > 1 or len(grids) > 1:
            shapes = [data.shape for data in datasets]
            raise ValueError(f"{path}: expected samples on one grid, got {shapes}")
        check_range(path, len(datasets[0]), start, stop)
        return [data[start:stop].astype(np.float32) for data in datasets]


def read_group(path: Path | str, split: str, kind: Any) -> Any:
    """All arrays of a split, by the names of a NamedTuple; errors as `read_rows`."""
    with open_hdf5(path) as file:
        return kind(*(dataset(file, f"{split}/{name}")[...] for name in kind._fields))


@contextlib.contextmanager
def matlab_arrays(path: Path | str, *names: str) -> Iterator[list[Any]]:
    """Arrays of a MATLAB file as MATLAB shows them, to be sliced; errors as `open_hdf5`."""
    if not h5py.is_hdf5(path) and Path(path).is_file():
        try:
            content = scipy.io.loadmat(path, variable_names=names)
            arrays = [content[name] for name in names]
        # SciPy's parser raises errors of many types for other bytes.
        except Exception as error:
            raise ValueError(f"{path}: damaged, or not the expected MATLAB file") from error
        yield arrays
        return
    with open_hdf5(path) as file:
        yield [_Reversed(dataset(file, name)) for name in names]


class _Reversed:
    """An array of a 7.3 file with the axes that MATLAB shows."""

    def __init__(self, stored: h5py.Dataset) -> None:
        self.shape, self._stored = stored.shape[::-1], stored

    def __getitem__(self, place: tuple[slice, ...]) -> np.ndarray:
        return self._stored[(..., *place[::-1])].T


def create_array(file: h5py.File, name: str, data: np.ndarray | None, **options: Any) -> None:
    """A float32 array of a 7.3 file, its axes in reverse."""
    created = file.create_dataset(name, dtype="f4", data=data, **options)
    created.attrs["MATLAB_class"] = np.bytes_("single")
