"""The GPU benchmark without a GPU: its checks by Triton's interpreter, and what it says."""

import importlib.util
import subprocess
import sys

import pytest
import torch


def bench(*arguments):
    command = [sys.executable, "-m", "chonn_lab.cli", "bench", "gpu", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_checks_without_a_gpu():
    done = bench("--interpret")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("'passed': True") == 6  # four scans, two networks


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_it_says_what_it_needs():
    done = bench()
    assert done.returncode == 1
    assert done.stderr == "expected a CUDA GPU, found none (--interpret checks without)\n"
