"""The GPU benchmark without a GPU: by stand-ins on the CPU, and what it says."""

import importlib.util
import json
import subprocess
import sys

import pytest
import torch

from chonn_lab.benchmarks import gpu


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_everything_without_a_gpu(tmp_path):
    """A mistake in the script must not be found on a machine that is lent for minutes."""
    path = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "chonn_lab.cli", "bench", "gpu", "--interpret", "--rounds=1"]
    command.append(f"--output={path}")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("'passed': True") == 8  # four scans, four networks
    steps, scan, *networks = json.loads(path.read_text())["sections"]
    for row in steps["rows"]:
        assert row["step_ms"] > 0
    for section in (scan, *networks):
        ours = section["rows"][0]
        assert ours["name"] == "chonn-ops"
        assert min(ours["forward_ms"], ours["both_ms"]) > 0


def test_numbers_that_are_not_finite_pass_no_check(monkeypatch):
    monkeypatch.setattr(gpu, "errors", lambda *_: [0.0] * 6 + [float("nan")])
    assert [row["passed"] for row in gpu.check_scans("cpu", tiny=True)] == [False] * 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_it_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--interpret"])
    with pytest.raises(SystemExit, match="2"):
        gpu.main()
    assert "expected another --output" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert gpu.main() == 1
    needed = "expected a CUDA GPU, found none (--interpret runs without)\n"
    assert capsys.readouterr().err == needed
