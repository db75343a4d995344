"""One thread for each of several processes that test at the same time (`pytest -n`)."""

from __future__ import annotations

import os

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
