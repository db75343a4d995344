"""Write output files completely or not at all, and replace existing files only on request."""

import contextlib
import json
import math
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# A part of the names of temporary files, because the numbers of processes on other machines and in
# other containers that share the folder say nothing here.
HOST = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:16]


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
    """Rename the finished file ``staged`` to ``path`` in one step, after syncing it to disk.

    Of two processes that write the same file at once, the last one wins, with a whole file.

    Raises
    ------
    FileExistsError
        If ``path`` has been created in the meantime and ``force`` is not set.
    """
    with open(staged, "rb+") as file:
        os.fsync(file.fileno())
    refuse_existing(path, force)
    os.replace(staged, path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def whole_file(path: Path, force: bool) -> Iterator[Path]:
    """An empty temporary file beside ``path`` that becomes ``path`` if the block succeeds.

    Any exception, KeyboardInterrupt and SystemExit included, removes it. Temporary files of the
    same name that killed processes have left behind are removed first.

    Raises
    ------
    OSError
        As `refuse_existing`; if the file cannot be written, the error names ``path``.
    """
    clear_remains(path)
    refuse_existing(path, force)
    staged = path.with_name(f".{path.name}.{HOST}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        staged.touch(exist_ok=False)
        yield staged
        publish(staged, path, force)
    except OSError as error:
        # The error of a full disk names no file, or the temporary one.
        if error.errno is None or error.filename not in (None, str(staged), staged):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        staged.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text file, replacing an existing one; creates its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, force=True) as staged:
        staged.write_text(text, encoding="utf-8")


def write_json(path: Path, record: Any) -> None:
    """Write a JSON file, replacing an existing one; creates its folder if needed."""
    write_whole(path, json.dumps(record, indent=1) + "\n")


def finite(value: Any) -> Any:
    """The value with None in the place of infinities and NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def clear_remains(path: Path) -> None:
    """Remove the temporary files of ``path`` that ended processes of this machine have left."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{HOST}-([1-9]\d*)-[0-9a-f]{{8}}\.tmp")
    for found in list(path.parent.iterdir()) if path.parent.is_dir() else ():
        match = pattern.fullmatch(found.name)
        if match and not _is_running(int(match[1])):
            # A remainder that cannot be removed does no harm.
            with contextlib.suppress(OSError):
                found.unlink()


def _is_running(process: int) -> bool:
    """Whether the process runs on this machine; True if that cannot be determined."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
