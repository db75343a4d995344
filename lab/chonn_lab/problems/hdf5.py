"""HDF5 files: whole or absent when written, clear errors when read.

MATLAB's layout is here, too: files of version 5, and those of 7.3, which are HDF5 with the axes
reversed.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io

from chonn_lab.problems.domains import SQUARE
from chonn_ops.files import whole_file

# The smallest user block that HDF5 allows.
USER_BLOCK = 512
# What makes an HDF5 file a MATLAB 7.3 file.
MAT_BLOCK = b"MATLAB 7.3 MAT-file, written by chonn-ops".ljust(116) + bytes(8) + b"\x00\x02IM"


@contextlib.contextmanager
def create_hdf5(path: Path, force: bool, user_block: bytes = b"") -> Iterator[h5py.File]:
    """A new HDF5 file, to be filled in the ``with`` block.

    Parameters
    ----------
    path : Path
        Appears only when the block has ended without an exception.
    force : bool
        Replace an existing file.
    user_block : bytes
        At most 512 bytes that precede HDF5's own.

    Raises
    ------
    FileExistsError
        If ``path`` exists and `force` is not set.
    OSError
        If it cannot be written, such as on a full disk; then nothing is left of it.
    """
    with whole_file(path, force) as staged:
        # `whole_file` holds the lock of the file already.
        size = USER_BLOCK if user_block else 0
        with h5py.File(staged, "w", userblock_size=size, locking=False) as file:
            yield file
        if user_block:
            with open(staged, "rb+") as start:
                start.write(user_block.ljust(USER_BLOCK, b"\0"))


@contextlib.contextmanager
def open_hdf5(path: "str | os.PathLike[str]") -> Iterator[h5py.File]:
    """An HDF5 file to read, with one clear error if it is damaged or holds something else.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no HDF5 file, is truncated, or lacks what the block reads from it.
    """
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


def dataset(file: "h5py.File | h5py.Group", name: str, ndim: "int | None" = None) -> h5py.Dataset:
    """The data set ``name``, checked to have `ndim` axes.

    Raises
    ------
    KeyError
        If it is missing or a group: h5py's own message does not name what is missing.
    ValueError
        If it holds no real numbers, or has other axes.
    """
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise KeyError(f"no data set {name}")
    if found.shape is None or found.dtype.kind not in "fiub":
        raise ValueError(f"{name}: expected real numbers, got {found.dtype} of {found.shape}")
    if ndim is not None and found.ndim != ndim:
        raise ValueError(f"{name}: expected {ndim} axes, got shape {found.shape}")
    return found


def read_rows(
    path: "str | os.PathLike[str]", start: int, stop: "int | None", **axes: int
) -> list[np.ndarray]:
    """Samples of the data sets of these names and numbers of axes, float32.

    Parameters
    ----------
    path : path
    start, stop : int
        First sample and the one after the last, by default the number of samples.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, damaged or of another problem, lacks the samples, or the data sets
        have other numbers of samples.
    """
    with open_hdf5(path) as file:
        found = [dataset(file, name, ndim) for name, ndim in axes.items()]
        shapes = {name: data.shape for name, data in zip(axes, found, strict=True)}
        # Grids are the last axes of all.
        if (
            len({shape[0] for shape in shapes.values()}) > 1
            or len({s[-1] for s in shapes.values()}) > 1
        ):
            raise ValueError(f"{path}: expected samples on one grid, got {shapes}")
        check_range(path, len(found[0]), start, stop)
        return [data[start:stop].astype(np.float32) for data in found]


def check_range(
    path: "str | os.PathLike[str]", n_samples: int, start: int, stop: "int | None"
) -> None:
    """ValueError unless a file of `n_samples` samples has those from `start` up to `stop`."""
    if not 0 <= start < (n_samples if stop is None else stop) <= n_samples:
        raise ValueError(
            f"{path}: expected samples {start} to {stop}, got a file of {n_samples} samples"
        )


def attributes(path: "str | os.PathLike[str]") -> dict[str, Any]:
    """The attributes of a file's root, with the errors of `open_hdf5`."""
    with open_hdf5(path) as file:
        return dict(file.attrs)


def write_mask(file: h5py.File, domain: str, mask: np.ndarray) -> None:
    """Put a domain, other than the square, and its mask into a file."""
    file.create_dataset("mask", data=mask)
    file.attrs["domain"] = domain


def check_mask(file: h5py.File, domain: str, mask: np.ndarray) -> None:
    """Check the domain and the mask of a file.

    Raises
    ------
    ValueError
        If it is another one, or its mask another one.
    """
    found = str(attributes(file.filename).get("domain", SQUARE))
    if found != domain:
        raise ValueError(f"{file.filename}: expected data of the domain {domain}, got {found}")
    if domain == SQUARE:
        return
    stored = dataset(file, "mask")
    if stored.shape != mask.shape or not np.array_equal(stored[...], mask):
        raise ValueError(
            f"{file.filename}: expected the mask of the domain {domain} with "
            f"{np.count_nonzero(mask)} of {mask.shape} nodes, got another one of {stored.shape}"
        )


class _Reversed:
    """An array of a 7.3 file with the axes that MATLAB shows; read by its first."""

    def __init__(self, stored: h5py.Dataset) -> None:
        self.shape = stored.shape[::-1]
        self._stored = stored

    def __getitem__(self, first: "int | slice") -> np.ndarray:
        return self._stored[..., first].T


@contextlib.contextmanager
def matlab_arrays(path: "str | os.PathLike[str]", *names: str) -> Iterator[list[Any]]:
    """Arrays of a MATLAB file, each with a shape and indexed by its first axis.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, damaged, or lacks an array.
    """
    if not h5py.is_hdf5(path) and Path(path).is_file():
        try:
            found = scipy.io.loadmat(path, variable_names=names)
            arrays = [found[name] for name in names]
        # SciPy's parser raises errors of many types for other bytes.
        except Exception as error:
            raise ValueError(f"{path}: damaged, or not the expected MATLAB file") from error
        yield arrays
        return
    with open_hdf5(path) as file:
        yield [_Reversed(dataset(file, name)) for name in names]


def create_array(file: h5py.File, name: str, shape: tuple[int, ...], **options: Any) -> Any:
    """A float32 array of a 7.3 file, its axes in reverse."""
    created = file.create_dataset(name, shape, "f4", **options)
    created.attrs["MATLAB_class"] = np.bytes_("single")
    return created
