"""Output files that are whole or absent, and never replace another file unasked."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def refuse_existing(path: Path, force: bool) -> None:
    """Fail early, before any work, if ``path`` cannot be written.

    Raises
    ------
    FileExistsError
        If ``path`` exists and ``force`` is not set.
    FileNotFoundError
        If its folder does not exist.
    IsADirectoryError
        If ``path`` is a folder.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder of the output file does not exist: {path.parent}")
    if path.is_dir():
        raise IsADirectoryError(f"output must be a file, but this is a folder: {path}")
    if path.exists() and not force:
        raise FileExistsError(f"output file exists: {path} (replace it with --force / force=True)")


def publish(staged: Path, path: Path, force: bool) -> None:
    """Give the finished file ``staged`` its name ``path``, in one step and safely on disk.

    Raises
    ------
    FileExistsError
        If ``path`` has come into being meanwhile and ``force`` is not set.
    """
    with open(staged, "rb+") as file:
        os.fsync(file.fileno())
    if force:
        os.replace(staged, path)
    else:
        try:
            # Unlike a rename, a hard link fails if the name is taken.
            os.link(staged, path)
        except FileExistsError:
            refuse_existing(path, force)
            raise
        except OSError:
            # A file system without hard links: check and rename, with a short gap between the two.
            refuse_existing(path, force)
            os.replace(staged, path)
        else:
            staged.unlink()
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def whole_file(path: Path, force: bool) -> Iterator[Path]:
    """Name of a temporary file beside ``path`` that becomes ``path`` if the block succeeds.

    Any exception, KeyboardInterrupt and SystemExit included, removes it.
    """
    refuse_existing(path, force)
    staged = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield staged
        publish(staged, path, force)
    finally:
        staged.unlink(missing_ok=True)
