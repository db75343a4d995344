"""All Triton kernels compile by the oldest release that they are written for, and are right in its
interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chonn_ops._backends import _TRITON

FOLDER = Path(sys.prefix) / "triton-oldest"
TESTS = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.exists(), reason="needs the oldest Triton: make setup-triton")
@pytest.mark.parametrize("chosen", ["compile", "not compile and (test_grids or test_gradients)"])
def test_kernels(chosen):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    }
    asked = [sys.executable, "-c", "import triton; print(triton.__version__)"]
    version = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    assert version.stdout.startswith("{}.{}.".format(*_TRITON))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:hydra_pytest", "-k", chosen]
    command += ["-m", "slow or not slow", "network/test_direct_triton.py"]
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
