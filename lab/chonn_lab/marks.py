"""The mark of the files that this package wrote: a report replaces only those.

It is in the first bytes of a file: a comment, metadata or the first field.
"""

from collections.abc import Iterable
from pathlib import Path

MARK = "chonn-ops"
HEAD = 4096


def refuse_foreign(paths: Iterable[Path]) -> None:
    """Fail early, before any work, if files that would be replaced are not of this package.

    Raises
    ------
    FileExistsError
        For the first such file; says what to do.
    """
    for path in filter(Path.exists, paths):
        if not path.is_file() or MARK.encode() not in path.read_bytes()[:HEAD]:
            raise FileExistsError(
                f"{path}: not written by {MARK}, and would be replaced; "
                "move it away, or choose another output folder"
            )
