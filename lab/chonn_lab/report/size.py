"""The size of the code against the budgets of ``pyproject.toml``: ``make size``.

It prints the lines of Python, C and CUDA of each folder, the number of files of `chonn_ops` that a
block's call enters, and how long solves of 8 x 8 nodes take. It fails where a count is above its
present limit. Times never fail, because machines are noisy.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csc_array
from scipy.sparse.linalg import spsolve

import chonn_ops
from chonn_lab.paths import ROOT

try:
    import tomllib  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError:  # Python 3.10, where pytest requires this package
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

SOURCES = {".py", ".c", ".h", ".cpp", ".cu"}


class Size(NamedTuple):
    """A measured size. `limit` is the most that passes, None where nothing fails; `budget` is the
    goal."""

    name: str
    value: float
    limit: int | None
    budget: int

    @property
    def fails(self) -> bool:
        """Whether the size is above the present limit."""
        return self.limit is not None and self.value > self.limit

    def row(self) -> str:
        """A row of the table."""
        limit = "-" if self.limit is None else f"{self.limit:,}"
        value = f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:.1f}"
        above = max(0, self.value - self.budget)
        distance = f"{above:,}" if isinstance(above, int) else f"{above:.1f}"
        verdict = "above the limit" if self.fails else ""
        return f"{self.name:<44}{value:>9}{limit:>9}{self.budget:>9,}{distance:>9}  {verdict}"


def lines(root: Path, folder: str) -> int:
    """Number of lines of the folder's sources that git tracks."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--", folder], cwd=root, capture_output=True, check=True
    ).stdout.split(b"\0")
    paths = (root / name.decode() for name in names if name)
    present = (path for path in paths if path.suffix in SOURCES and path.exists())
    return sum(path.read_bytes().count(b"\n") for path in present)


def files_entered(call: Callable[[], Any]) -> set[str]:
    """The files of `chonn_ops` whose functions a second call of `call` enters."""
    folder = str(Path(chonn_ops.__file__).parent)
    entered: set[str] = set()

    def note(frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            entered.add(frame.f_code.co_filename)

    call()
    earlier = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(earlier)
    return entered


def seconds(call: Callable[[], Any], calls: int = 300) -> float:
    """Median time of a call."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def times_of_spsolve() -> dict[str, float]:
    """Times of two calls for 8 x 8 nodes over that of SciPy's solver for 64 unknowns."""
    n = 8
    k, source = torch.ones(1, n, n, 1, dtype=torch.float64), torch.rand(1, n, n, 1).double()
    circuit = chonn_ops.diffusion(k, boundary="dirichlet")
    line = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    matrix = csc_array(np.kron(line, np.eye(n)) + np.kron(np.eye(n), line))
    right = source.flatten().numpy()
    unit = seconds(lambda: spsolve(matrix, right))
    return {
        "solve": seconds(lambda: circuit.solve(source)) / unit,
        "diffusion": seconds(lambda: chonn_ops.diffusion(k, boundary="dirichlet")) / unit,
    }


def sizes(root: Path) -> Iterator[Size]:
    """All sizes of a checkout, with the limits of its ``pyproject.toml``."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["chonn"]["size"]
    for folder, limit in settings["lines"].items():
        yield Size(f"lines of {folder}", lines(root, folder), limit["at_most"], limit["budget"])
    block, x = chonn_ops.CKB(8, 2), torch.rand(1, 8, 8, 8)
    entered, limit = files_entered(lambda: block(x)), settings["files"]
    yield Size("files that CKB(8, 2)(x) enters", len(entered), limit["at_most"], limit["budget"])
    budgets = settings["times_of_spsolve"]
    for name, ratio in times_of_spsolve().items():
        yield Size(f"{name} of 8 x 8 nodes over spsolve", ratio, None, budgets[name])


def main(root: Path = ROOT) -> None:
    """Print the table; exit with 1 where a size is above its limit."""
    torch.set_num_threads(1)
    print(f"{'':<44}{'now':>9}{'limit':>9}{'budget':>9}{'above':>9}")
    measured = []
    for size in sizes(root):
        print(size.row())
        measured.append(size)
    if any(size.fails for size in measured):
        sys.exit("above `at_most` in pyproject.toml: take something away")


if __name__ == "__main__":
    main()
