"""One thread for each of several processes that test at the same time (`pytest -n`)."""

from __future__ import annotations

import os

# Before anything imports torch; programs that the tests start inherit it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
