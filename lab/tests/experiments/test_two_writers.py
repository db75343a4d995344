"""Two processes that write the same files: one of them does, and its files are whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
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
