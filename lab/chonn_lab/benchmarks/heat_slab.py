"""A conduction problem of a benchmark of differentiable solvers, beside finite-element packages.

The problem is `peers.slab`. Each contender solves it on one core in a process of its own: ours,
torch-fem with its defaults (a direct solve below 10,000 unknowns, above conjugate gradients with
algebraic multigrid), and JAX-FEM with PETSc's to a tolerance of 1e-10. CHONN_TORCH_FEM and
CHONN_JAX_FEM name interpreters that have the packages.

Columns
    first, forward, both    _ms: from arrays to the first value and gradient, with plans and
                    compilation; the value; the value and its gradient
    _ratio, _error  over ours in float64; the largest difference from ours, over the largest entry
    timed           calls that the medians are taken of
"""

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from chonn_lab.benchmarks import peers
from chonn_lab.benchmarks.harness import Row, Run, main_of

# Contenders, with the variables of the environment that name their interpreters.
SLAB = {"chonn-ops": "", "chonn-ops, float32": ""}
SLAB |= {"torch-fem": "CHONN_TORCH_FEM", "JAX-FEM": "CHONN_JAX_FEM"}
SIZES = (64, 256, 1024)
TIMEOUT = 1200.0  # seconds of a contender
ALONE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CHONN_AUTOLOAD": "0"}


def measured(name: str, variable: str, size: int) -> dict[str, Any]:
    """What `peers.measure` writes. ModuleNotFoundError if the package of a contender is missing;
    RuntimeError if it fails, subprocess.TimeoutExpired if it takes longer than `TIMEOUT`."""
    python = os.environ.get(variable, sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(peers.__file__), name, str(size), path := f"{folder}/found.npz"]
        told: Any = {"env": os.environ | ALONE, "capture_output": True, "text": True}
        done = subprocess.run(command, timeout=TIMEOUT, check=False, **told)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise (ModuleNotFoundError if "ModuleNotFound" in last else RuntimeError)(last)
        return dict(np.load(path))


def rows(run: Run, contenders: Mapping[str, str], size: int, **case: Any) -> Row:
    """A case with a row for each contender; the first is what others are compared with."""
    own: dict[str, Any] = {}

    def make(name: str) -> Row:
        found = measured(name, contenders[name], size)
        own.update(own or found)
        row: Row = {"calls": {}, "timed": len(found["both"])}
        row["first_ms"] = 1e3 * float(found["first"])
        for key in ("forward", "both"):
            seconds = float(np.median(found[key]))
            row |= {
                f"{key}_ms": 1e3 * seconds,
                f"{key}_ratio": seconds / float(np.median(own[key])),
            }
        for key in ("value", "gradient"):
            wrong = abs(found[key] - own[key]).max() / abs(own[key]).max()
            row[f"{key}_error"] = float(wrong)
        return row

    return run.section({name: functools.partial(make, name) for name in contenders}, **case)


def slab(run: Run) -> Iterator[Row]:
    for n in (8,) if run.smoke else SIZES:
        yield rows(run, SLAB, n, unknowns=2 * n * (n // 2 + 1))


main = main_of(__doc__, "heat_slab", {"slab": slab}, threads=1)

if __name__ == "__main__":
    main()
