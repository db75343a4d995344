"""All Triton kernels compile by the oldest release that they are written for, and are right in its
interpreter."""

import os
import sys
from pathlib import Path

import pytest
from commands import python, run

from chonn_ops._backends import _TRITON

FOLDER = Path(sys.prefix) / "triton-oldest"
TESTS = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.exists(), reason="needs the oldest Triton: make setup-triton")
@pytest.mark.parametrize("chosen", ["compile", "not compile and (test_grids or test_gradients)"])
def test_kernels(chosen):
    env = {"PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])}
    version = python("import triton; print(triton.__version__)", env=env)
    assert version.stdout.startswith("{}.{}.".format(*_TRITON))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:hydra_pytest", "-k", chosen]
    command += ["-m", "slow or not slow", "network/test_direct_triton.py"]
    run(*command, cwd=TESTS, env=env)
