"""Processes that work for another one."""

import multiprocessing
import signal
from multiprocessing import resource_tracker

import pytest

from chonn_lab.problems.workers import worker_environment


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs signal masks")
def test_first_worker_leaves_ctrl_c_to_its_parent(monkeypatch):
    """The first process starts the tracker of multiprocessing, which unblocks SIGINT."""
    fresh = resource_tracker.ResourceTracker()
    for name in ("ensure_running", "getfd"):
        monkeypatch.setattr(resource_tracker, name, getattr(fresh, name))
    context = multiprocessing.get_context("spawn")
    worker = context.Process(target=signal.raise_signal, args=(signal.SIGINT,))
    with worker_environment():
        worker.start()
    worker.join()
    assert worker.exitcode == 0
