"""HDF5 files: writing that survives a full disk, reading with clear errors, masks of domains."""

import contextlib
import io
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from chonn_ops._files import whole_file
from chonn_ops.problems._workers import deferred_signals
from chonn_ops.problems.domains import SQUARE

# The smallest that HDF5 allows before its own bytes.
USER_BLOCK = 512


class HDF5Output:
    """An HDF5 file that is being written, see `create_hdf5`."""

    def __init__(self, sink: "_Sink", user_block: bytes) -> None:
        self._sink = sink
        self._user_block = user_block
        self._file = h5py.File(sink, "w", userblock_size=USER_BLOCK if user_block else 0)

    @contextlib.contextmanager
    def writing(self) -> Iterator[h5py.File]:
        """The file, for as long as it takes to write something into it.

        Ctrl-C and SIGTERM wait for the end of the block: HDF5 calls Python to write, and would take
        what a signal raises there for a failed write.

        Raises
        ------
        OSError
            At the end of the block, if something could not be written.
        """
        with deferred_signals():
            try:
                yield self._file
            finally:
                self._sink.check()

    def close(self) -> None:
        """Write what is left; OSError if that was not possible."""
        with self.writing():
            self._file.close()
            if self._user_block:
                self._sink.seek(0)
                self._sink.write(self._user_block.ljust(USER_BLOCK, b"\0"))


@contextlib.contextmanager
def create_hdf5(path: Path, force: bool, user_block: bytes = b"") -> Iterator[HDF5Output]:
    """A new HDF5 file, to be filled in the ``with`` block.

    Parameters
    ----------
    path : Path
        Appears only when the block has ended without an exception.
    force : bool
        Replace an existing file.
    user_block : bytes
        At most 512 bytes that come before HDF5's own.

    Raises
    ------
    FileExistsError
        If ``path`` exists and `force` is not set.
    OSError
        If it cannot be written, such as on a full disk; then nothing is left of it.
    """
    with whole_file(path, force) as staged, _Sink(staged, "wb+") as sink:
        output = None
        try:
            with deferred_signals():
                output = HDF5Output(sink, user_block)
            yield output
        except BaseException:
            if output is not None:
                with contextlib.suppress(OSError):
                    output.close()
            raise
        output.close()


class _Sink(io.FileIO):
    """A file that keeps its first error to itself, and takes everything from then on.

    Where a write of HDF5's fails, it fails again whenever an object is closed, and crashes the
    process in the end.
    """

    _error: "OSError | None" = None

    def check(self) -> None:
        """Raise the first error."""
        if self._error is not None:
            raise self._error

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, with zeros beyond the end and where nothing could be written."""
        view = memoryview(buffer).cast("B")
        count = super().readinto(view) or 0
        view[count:] = bytes(len(view) - count)
        return len(view)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        try:
            while view and self._error is None:
                view = view[super().write(view) or 0 :]
        except OSError as error:
            self._error = error
        return size

    def truncate(self, size: "int | None" = None) -> int:
        try:
            if self._error is None:
                return super().truncate(size)
        except OSError as error:
            self._error = error
        return size or 0


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
    with _clear_errors(path), h5py.File(path, "r") as file:
        yield file


@contextlib.contextmanager
def _clear_errors(path: "str | os.PathLike[str]") -> Iterator[None]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        # h5py and NumPy raise anything for a truncated file, a wrong name, a damaged block, or
        # another shape or type; what names the file has been said by the block.
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        raise ValueError(f"{path}: damaged, or not the expected HDF5 file ({error})") from error


def dataset(file: "h5py.File | h5py.Group", name: str, ndim: "int | None" = None) -> h5py.Dataset:
    """The data set ``name``, of so many axes.

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


def check_range(
    path: "str | os.PathLike[str]", n_samples: int, start: int, stop: "int | None"
) -> None:
    """ValueError unless a file of `n_samples` samples has those from `start` up to `stop`."""
    if not 0 <= start < (n_samples if stop is None else stop) <= n_samples:
        raise ValueError(f"{path}: samples {start} to {stop} asked for, it has {n_samples} samples")


def attributes(path: "str | os.PathLike[str]") -> dict[str, Any]:
    """The attributes of a file's root, as h5py has them.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no HDF5 file or damaged, such as where its texts are.
    """
    with _clear_errors(path), _Source(path) as source, deferred_signals():
        try:
            with h5py.File(source, "r") as file:
                return dict(file.attrs)
        except Exception:
            if source.damage is not None:
                raise OSError(source.damage) from None
            raise


class _Source(io.FileIO):
    """A file to read, of which HDF5 gets no damaged heap of texts.

    HDF5 2.0 goes through the objects of a global heap by sizes that it does not check, and never
    returns where one is 0. Its own message would say nothing of this, either: see `damage`.
    """

    # Not the error: its frames would keep the file open until the process ends.
    damage: "str | None" = None

    def readinto(self, buffer: Any) -> int:
        start = self.tell()
        count = super().readinto(buffer) or 0
        # A signature may begin before what is read.
        first = max(0, start - len(_HEAP))
        content = self._read(first, start + count + len(_HEAP) - first)
        at = content.find(_HEAP)
        while at >= 0:
            self._check(first + at)
            at = content.find(_HEAP, at + 1)
        return count

    def _read(self, start: int, count: int) -> bytes:
        place = self.tell()
        try:
            self.seek(start)
            return self.read(count) or b""
        finally:
            self.seek(place)

    def _check(self, start: int) -> None:
        """Raise an OSError if an object of the collection that starts here does not end in it."""
        size = int.from_bytes(self._read(start + 8, 8), "little")
        heap = self._read(start, min(size, os.fstat(self.fileno()).st_size))
        at = _HEADER
        while at <= len(heap) - _HEADER:
            index, length = struct.unpack_from("<H6xQ", heap, at)
            # Index 0 is what is free, header included; data fill up eight bytes.
            step = length if index == 0 else _HEADER + length + -length % 8
            if not 0 < step <= len(heap) - at:
                self.damage = f"object {index} of {length} bytes in the heap at {start}"
                raise OSError(self.damage)
            at += step


# Of a global heap's collection, version 1; its header and those of its objects have 16 bytes where
# sizes have eight, as in every file that the usual libraries write.
_HEAP = b"GCOL\x01\0\0\0"
_HEADER = 16


def write_mask(file: h5py.File, domain: str, mask: np.ndarray) -> None:
    """Put a domain, other than the square, and its mask into a file."""
    file.create_dataset("mask", data=mask)
    file.attrs["domain"] = domain


def check_mask(file: h5py.File, domain: str, mask: np.ndarray) -> None:
    """Compare a file's domain with the one expected.

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


def read_mask(path: "str | os.PathLike[str]") -> "np.ndarray | None":
    """Which nodes exist in a data file, (R, R) bool; None for the square, where all do.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or damaged, or names a domain without its mask.
    """
    if attributes(path).get("domain", SQUARE) == SQUARE:
        return None
    with open_hdf5(path) as file:
        return dataset(file, "mask", 2)[...].astype(bool)
