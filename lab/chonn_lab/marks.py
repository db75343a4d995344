"""The mark of the files that this package wrote: a report replaces only those."""

from collections.abc import Iterable
from pathlib import Path

MARK = "chonn-ops"
# Within the first bytes: a comment of a page, the title of a figure. The name alone does not mark a
# file, as people write about this package.
MARKS = tuple(f"{a}{MARK}{b}".encode() for a, b in (("generator: ", " -->"), ("<dc:title>", "<")))
HEAD = 4096


def refuse_foreign(paths: Iterable[Path]) -> None:
    """Fail early, before any work: a FileExistsError for the first file that would be replaced and
    is not of this package."""
    for path in filter(Path.exists, paths):
        head = path.read_bytes()[:HEAD] if path.is_file() else b""
        if not any(mark in head for mark in MARKS):
            raise FileExistsError(
                f"{path}: not written by {MARK}, and would be replaced; "
                "move it away, or choose another output folder"
            )
