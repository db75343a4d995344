"""Processes that write the same file: one of them does, and its file is whole."""

import subprocess
import sys


def start(folder):
    size = ["--n-samples", "8", "--resolution", "16", "--workers", "1"]
    command = [sys.executable, "-m", "chonn_lab.cli", "data", "generate", "darcy", *size]
    options = {"cwd": folder, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, "--output", "out.h5"], **options)


def test_generators_of_one_file(tmp_path):
    """The first that is ready wins; the others' work does not replace it."""
    started = [start(tmp_path) for _ in range(3)]
    answers = [process.communicate(timeout=120)[1] for process in started]
    assert sorted(process.returncode for process in started) == [0, 1, 1], answers
    for process, errors in zip(started, answers, strict=True):
        assert (process.returncode == 0) != ("output file exists" in errors)
    assert [path.name for path in tmp_path.iterdir()] == ["out.h5"]
    alone = tmp_path / "alone"
    alone.mkdir()
    assert start(alone).wait() == 0
    assert (alone / "out.h5").read_bytes() == (tmp_path / "out.h5").read_bytes()
