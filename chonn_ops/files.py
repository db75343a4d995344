"""Write output files completely or not at all, and replace existing files only on request."""

import contextlib
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def refuse_existing(path: Path, force: bool) -> None:
    """Fail early, before any work, if ``path`` cannot be written: a FileExistsError if it exists,
    without ``force``, a FileNotFoundError without its folder, an IsADirectoryError for a folder."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder of the output file does not exist: {path.parent}")
    if path.is_dir():
        raise IsADirectoryError(f"output must be a file, but this is a folder: {path}")
    if path.exists() and not force:
        raise FileExistsError(f"output file exists: {path} (replace it with --force / force=True)")


@contextlib.contextmanager
def whole_file(path: Path, force: bool) -> Iterator[Path]:
    """An empty temporary file beside ``path`` that becomes ``path`` if the block succeeds.

    Any exception, KeyboardInterrupt and SystemExit included, removes it. When two
    processes write the same file at once, the last one wins, with a whole file. Errors are those of
    `refuse_existing`; the OSError of a file that cannot be written names ``path``.
    """
    refuse_existing(path, force)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        staged.touch(exist_ok=False)
        yield staged
        with open(staged, "rb+") as file:
            os.fsync(file.fileno())
        refuse_existing(path, force)
        os.replace(staged, path)
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


def finite(value: Any) -> Any:
    """The value with None in the place of infinities and NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
