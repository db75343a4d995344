"""Marks of the files that this package wrote: a command replaces only those.

Files of runs and reports carry a mark, by their kind in a comment, in metadata or in a field.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from chonn_ops.files import whole_file

MARK = "chonn-ops"
# A mark is within the first bytes of a file; JSON files have a field.
HEAD = 4096
MARKS = {
    ".md": f"<!-- generator: {MARK} -->".encode(),
    ".svg": f"<dc:title>{MARK}</dc:title>".encode(),
    ".png": f"Software\0{MARK}".encode(),
}


def is_ours(path: Path) -> bool:
    """Whether this package wrote an existing file, by its suffix and content."""
    if not path.is_file():
        return False
    kind = path.suffix
    if kind == ".json":
        return _is_our_json(path)
    with open(path, "rb") as file:
        head = file.read(HEAD)
    return MARKS[kind] in head


def refuse_foreign(paths: Iterable[Path]) -> None:
    """Fail early, before any work, if files that would be replaced are not of this package.

    Raises
    ------
    FileExistsError
        For the first such file; says what to do.
    """
    for path in paths:
        if os.path.lexists(path) and not is_ours(path):
            raise FileExistsError(
                f"{path}: not written by {MARK}, and would be replaced; "
                "move it away, or choose another output folder"
            )


@contextlib.contextmanager
def own_file(path: Path) -> Iterator[Path]:
    """`whole_file` that replaces a file of this package and refuses any other."""
    refuse_foreign([path])
    with whole_file(path, force=True) as staged:
        yield staged


def _is_our_json(path: Path) -> bool:
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    if not isinstance(record, dict):
        return False
    shared = record.get("shared", record)
    versions = shared.get("versions") if isinstance(shared, dict) else None
    # Results from before the field record the version of this package.
    return record.get("generator") == MARK or (isinstance(versions, dict) and MARK in versions)
