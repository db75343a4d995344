"""Files that are whole or absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that becomes ``path`` if the block succeeds.

    What killed processes of this machine have left of the same file is removed first.
    """
    _clear_remains(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _clear_remains(path: Path) -> None:
    if os.name != "posix":
        # Elsewhere the signal 0 of `os.kill` ends the process.
        return
    with suppress(OSError):
        for found in path.parent.iterdir():
            process = found.name.removeprefix(f".{path.name}.").removesuffix(".partial")
            if found.name == f".{path.name}.{process}.partial" and process.isdecimal():
                try:
                    os.kill(int(process), 0)
                except ProcessLookupError:
                    found.unlink(missing_ok=True)
                except (OverflowError, PermissionError):
                    pass
