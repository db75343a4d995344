"""Output files that are whole or absent, and never replace another file unasked."""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


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
        # A second name of it, where a process was killed in `publish`.
        clear_remains(path)
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
    """An empty temporary file beside ``path`` that becomes ``path`` if the block succeeds.

    Any exception, KeyboardInterrupt and SystemExit included, removes it. What killed processes have
    left behind of the same file is removed first.

    Raises
    ------
    OSError
        As `refuse_existing` does; if it cannot be written, with the name ``path``.
    """
    clear_remains(path)
    refuse_existing(path, force)
    staged = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(staged, "xb") as mark:
            _lock(mark.fileno())
            if fcntl is None:
                # Windows does not rename an open file.
                mark.close()
            yield staged
            publish(staged, path, force)
    except OSError as error:
        # Those of a full disk have no file's name, or one that the user has not chosen.
        if error.errno is None or error.filename not in (None, str(staged), staged):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        staged.unlink(missing_ok=True)


def clear_remains(path: Path) -> None:
    """Remove the temporary files of ``path`` whose processes have ended without doing so."""
    _clear(path.parent, re.escape(path.name))


def clear_folder(folder: Path) -> None:
    """The same of all files in a folder."""
    _clear(folder, ".+")


def _clear(folder: Path, name: str) -> None:
    pattern = re.compile(rf"\.{name}\.([1-9]\d*)-[0-9a-f]{{8}}\.tmp")
    # What cannot be read or removed is in nobody's way.
    with contextlib.suppress(OSError):
        for found in folder.iterdir():
            match = pattern.fullmatch(found.name)
            if match and not _is_running(int(match[1])):
                _remove_unlocked(found)


def _lock(descriptor: int) -> bool:
    """Whether this process could take the file's lock; it goes with the process."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_running(process: int) -> bool:
    """Whether there is such a process on this machine; True if that cannot be told."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _remove_unlocked(path: Path) -> None:
    # Its process may run where its number says nothing here: in another container.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor):
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
