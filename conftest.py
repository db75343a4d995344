"""One thread a process of `pytest -n`; helpers of many tests."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

# Before anything imports torch; programs that the tests start inherit it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


# Files that skip as a whole: (path, reason). Workers of `pytest -n` send theirs to the controller.
whole_files: set[tuple[str, str]] = set()


def pytest_collectreport(report):
    """Notes a file that skips as a whole."""
    if report.skipped:
        whole_files.add((report.nodeid, report.longrepr[2].removeprefix("Skipped: ")))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Takes over the notes of a worker."""
    whole_files.update(map(tuple, getattr(node, "workeroutput", {}).get("whole_files", ())))


def skipped(config):
    """What was skipped: the number of tests and the files, by reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", ()) if reporter else ()
    tests = [(x.nodeid, x.longrepr[2]) for x in reports if isinstance(x, pytest.TestReport)]
    found = {}
    for node, reason in [*tests, *sorted(whole_files)]:
        place = node.partition("::")[0]
        found.setdefault(reason.removeprefix("Skipped: "), []).append(place)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def missing_tools(config):
    """Reasons to skip that have no place after `make setup-tools`: tools, and tests of nothing."""
    if "CHONN_ALL_TOOLS" not in os.environ:
        return []
    words = ("make setup-", "got empty parameter set")
    return [reason for reason in skipped(config) if any(word in reason for word in words)]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """Fails a run that should have all tools and has not."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["whole_files"] = sorted(whole_files)
    elif missing_tools(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    """Reasons of skipped tests, with their numbers."""
    found = skipped(config)
    if found:
        terminalreporter.section("skipped, and why")
    for reason, places in found.items():
        files = ", ".join(sorted(set(places)))
        terminalreporter.line(f"{len(places):4}  {reason}: {files}")
    for reason in missing_tools(config):
        terminalreporter.line(f"ERROR: CHONN_ALL_TOOLS is set, but: {reason}", red=True)


@pytest.fixture
def set_threads(monkeypatch):
    """Sets the number of threads that the compiled kernels take. `torch.set_num_threads` would be
    heard by MKL, too, whose batched LU of 256 nodes is wrong from then on, in silence (PyTorch 2.15
    on two cores)."""
    return lambda threads: monkeypatch.setattr("torch.get_num_threads", lambda: threads)


@pytest.fixture
def hydra_here(monkeypatch):
    """For ``chonn-lab run`` in this process: what Hydra changes in it is taken back."""
    core = pytest.importorskip("hydra.core.hydra_config")
    monkeypatch.setattr(core.HydraConfig.instance(), "cfg", None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")


@pytest.fixture(scope="session")
def smoke_data(tmp_path_factory):
    """Folder of the laboratory's data at scale smoke, by problem, which are made once."""
    return tmp_path_factory.mktemp("smoke_data")


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
def compile_triton():
    """Compiles a Triton kernel for a GPU that need not be there: types of arguments by name, those
    of them that are multiples of 16, constants, warps, and the GPU's capability. Returns registers
    of a thread, bytes that it spills, and bytes of shared memory of a program."""
    import triton
    from triton.backends import compiler

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"

    def compile_kernel(kernel, types, aligned, constants, warps, capability):
        at = [kernel.arg_names.index(name) for name in aligned]
        if hasattr(compiler, "AttrsDescriptor"):  # until Triton 3.2
            properties = {"arg_properties": {"tt.divisibility": at}, "cls": "AttrsDescriptor"}
            attributes = compiler.AttrsDescriptor.from_dict(properties)
        else:
            attributes = {(i,): [["tt.divisibility", 16]] for i in at}
        signature = {x: types.get(x, "constexpr") for x in kernel.arg_names}
        source = triton.compiler.ASTSource(kernel, signature, constants, attributes)
        target = compiler.GPUTarget("cuda", capability, 32)
        options = {"num_warps": warps, "enable_fp_fusion": True}
        found = triton.compile(source, target=target, options=options)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(found.asm["cubin"])
            file.flush()
            command = [tool, "-res-usage", file.name]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", text).groups())
        return registers, stack, found.metadata.shared

    return compile_kernel


@pytest.fixture(scope="session")
def look(tmp_path_factory):
    """Looks at a page at 1,200 and 385 pixels: no error, no broken picture, nothing wider."""
    sys.path.append(str(Path(__file__).parent / "tests"))
    import browser

    if browser.program() is None:
        pytest.skip("needs Chromium: make setup-chromium")
    folder = tmp_path_factory.mktemp("chromium")

    def check(page):
        faults = browser.faults_of(page, folder)
        assert not faults, f"{page.name} {'; '.join(faults)}"

    return check


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
