"""Which files this package wrote: it marks them, and replaces no others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from chonn_ops.problems._files import whole_file

MARK = "chonn-ops"
# Within the first bytes of a file; JSON and archives have theirs elsewhere.
HEAD = 4096
MARKS = {
    ".html": f'<meta name="generator" content="{MARK}">'.encode(),
    ".md": f"<!-- generator: {MARK} -->".encode(),
    ".svg": f"<dc:title>{MARK}</dc:title>".encode(),
    ".png": f"Software\0{MARK}".encode(),
}
# What tells a file written before there were marks: all of these bytes, and none of those.
OLDER = {
    ".html": ((b"<title>The paper&#x27;s experiments</title>", b"--panel: #f5f6f8"), ()),
    ".md": ((b"# Results\n\nWhat the paper claims and what its experiments give here.",), ()),
    ".svg": ((b"<dc:title>Matplotlib v", b'width="518.4pt"'), (b"<dc:date>",)),
    ".png": (
        (b"IHDR" + (1080).to_bytes(4, "big"), b"pHYs" + 2 * (5906).to_bytes(4, "big")),
        (b"tEXt",),
    ),
}
_STAGED = re.compile(r"\.(?P<name>.+)\.\d+-[0-9a-f]{8}\.tmp")


def is_ours(path: Path) -> bool:
    """Whether this package wrote an existing file, by its suffix and content.

    Of a checkpoint: unless it is surely another program's. What is merely damaged counts as ours,
    since reading it says so.
    """
    if not path.is_file():
        return False
    kind = path.suffix
    if kind == ".json":
        return _is_our_json(path)
    if kind == ".npz":
        with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            return archive.comment == MARK.encode()
        return False
    with open(path, "rb") as file:
        head = file.read(HEAD)
    if kind == ".ckpt":
        return _may_be_our_checkpoint(path, head)
    if MARKS[kind] in head:
        return True
    needed, absent = OLDER[kind]
    return all(part in head for part in needed) and not any(part in head for part in absent)


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


def remove_staged(folder: Path, names: Iterable[str]) -> None:
    """Remove what killed processes were writing under temporary names of `whole_file`."""
    known = set(names)
    for path in folder.glob(".*.tmp"):
        match = _STAGED.fullmatch(path.name)
        if match and match["name"] in known:
            path.unlink(missing_ok=True)


def seal(archive: Path) -> None:
    """Mark a zip archive, such as an npz file, in its comment: the arrays stay the user's."""
    with zipfile.ZipFile(archive, "a") as file:
        file.comment = MARK.encode()


def _is_our_json(path: Path) -> bool:
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    if not isinstance(record, dict):
        return False
    shared = record.get("shared", record)
    versions = shared.get("versions") if isinstance(shared, dict) else None
    # Older ones have no generator, but always the version of this package.
    return record.get("generator") == MARK or (isinstance(versions, dict) and MARK in versions)


def _may_be_our_checkpoint(path: Path, head: bytes) -> bool:
    if not head.strip(b"\0"):
        return True
    if not head.startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            (pickled,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            return b"chonn_ops" in archive.read(pickled)
    except (zipfile.BadZipFile, NotImplementedError, OSError):
        return True
    except ValueError:
        return False
