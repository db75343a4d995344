"""One thread a process of `pytest -n`; helpers of many tests."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

# Before anything imports torch; programs that the tests start inherit it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def quick_compiler(tmp_path_factory):
    """A C compiler that optimises nothing: for what does not depend on the kernel's speed."""
    wrapper = tmp_path_factory.mktemp("compiler") / "cc"
    wrapper.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    wrapper.chmod(0o755)
    return str(wrapper)


@pytest.fixture(scope="module")
def interpreted():
    """Runs a function in a process whose Triton interprets."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with mock.patch.dict(os.environ, TRITON_INTERPRET="1"):
            pool.submit(math.sqrt, 1.0).result()  # starts it
        yield lambda check, *args, **options: pool.submit(check, *args, **options).result()


@pytest.fixture(scope="session")
def look(tmp_path_factory):
    """Looks at a page at 1,200 and 385 pixels: no error, no broken picture, nothing wider."""
    sys.path.append(str(Path(__file__).parent / "tests"))
    from browser import Browser, program

    if program() is None and "CHONN_ALL_TOOLS" not in os.environ:
        pytest.skip("needs Chromium: make setup-chromium")
    browser = Browser(program() or "chromium", tmp_path_factory.mktemp("chromium"))

    def check(page):
        for width in (1200, 385):
            seen = browser.look(page, width)
            faults = [*seen.errors, *seen.broken, *seen.wide]
            if seen.width > width:
                faults.append(f"{seen.width} pixels wide")
            assert not faults, f"{page.name} at {width} pixels: " + "; ".join(faults)

    yield check
    browser.close()


@pytest.fixture
def wait_for_end():
    """Waits for all processes of a group, the resource tracker of multiprocessing included."""

    def wait(group, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)
        pytest.fail("a worker goes on")

    return wait


@pytest.fixture(scope="session")
def assert_learns():
    """Asserts that every parameter of a model has a gradient that is finite and not 0."""

    def check(model):
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.any(), name

    return check
