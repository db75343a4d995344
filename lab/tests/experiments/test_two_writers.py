"""Two processes that write the same files: one of them does, and its files are whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
}


def start(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "chonn_lab.cli", *map(str, arguments)],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


RUN = ("run", "tiny:EXPERIMENT", "--scale", "smoke", "--jobs", "1", "--variants", "order2")


def test_two_runs_in_one_folder(tmp_path):
    """One trains, or both in turn; none spoils what the other writes."""
    both = [start(tmp_path, *RUN) for _ in range(2)]
    answers = [process.communicate(timeout=180)[1] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 1]), answers
    for process, errors in zip(both, answers, strict=True):
        assert "Traceback" not in errors
        if process.returncode:
            assert "another process trains this run" in errors
    (result,) = (tmp_path / "runs").rglob("order2-seed0.json")
    assert json.loads(result.read_text())["metrics"]["test"]["relative_l2"] > 0
    assert not list(tmp_path.rglob("*.tmp"))
    assert len(list((tmp_path / "data").rglob("*.hdf5"))) == 1


@pytest.mark.parametrize("problem", ["darcy", "order1d"])
def test_two_generators_of_one_file(tmp_path, problem):
    """The first that is ready wins; the other's work does not replace it."""
    size = {
        "darcy": ("--n-samples", "8", "--resolution", "16", "--workers", "1"),
        "order1d": ("--n-train", "40", "--n-validation", "2", "--n-test", "2"),
    }[problem]
    command = ("data", "generate", problem, *size, "--output", "out.h5")
    both = [start(tmp_path, *command) for _ in range(3)]
    answers = [process.communicate(timeout=120)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1, 1], answers
    for process, errors in zip(both, answers, strict=True):
        assert (process.returncode == 0) != ("output file exists" in errors)
    assert [path.name for path in tmp_path.iterdir()] == ["out.h5"]
    alone = tmp_path / "alone"
    alone.mkdir()
    assert start(alone, *command).wait() == 0
    assert (alone / "out.h5").read_bytes() == (tmp_path / "out.h5").read_bytes()
