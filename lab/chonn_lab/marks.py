"""The mark of the files that this package wrote: a command replaces only those.

It is in the first bytes of a file: a comment, metadata or the first field.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from chonn_ops.files import whole_file

MARK = "chonn-ops"
HEAD = 4096


def is_ours(path: Path) -> bool:
    """Whether a file has the mark."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return MARK.encode() in file.read(HEAD)


def refuse_foreign(paths: Iterable[Path]) -> None:
    """Fail early, before any work, if files that would be replaced are not of this package.

    Raises
    ------
    FileExistsError
        For the first such file; says what to do.
    """
    for path in paths:
        if (path.exists() or path.is_symlink()) and not is_ours(path):
            raise FileExistsError(
                f"{path}: not written by {MARK}, and would be replaced; "
                "move it away, or choose another output folder"
            )


@contextlib.contextmanager
def own_file(path: Path) -> Iterator[Path]:
    """`whole_file` that replaces a file of this package and refuses any other."""
    refuse_foreign([path])
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, force=True) as staged:
        yield staged
