"""Processes that run experiments: one thread each, ended with their parent."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Any

from joblib import cpu_count as usable_cores

__all__ = ["end_with_parent", "usable_cores", "worker_environment"]


@contextlib.contextmanager
def worker_environment() -> Iterator[None]:
    """Processes started inside use one BLAS thread each and leave Ctrl-C to their parent."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    earlier = {name: os.environ.get(name) for name in names}
    has_masks = hasattr(signal, "pthread_sigmask")  # Not on Windows.
    if has_masks:
        # Started with the first process, it would unblock SIGINT (python/cpython#127586).
        resource_tracker.ensure_running()
    # Python runs handlers in the main thread even if another thread gets the signal: between the
    # start of a process and the data that it waits for, if nothing kept it for later.
    arrived: list[int] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not None:  # else it is not Python's
                handlers[number] = signal.signal(number, lambda which, _: arrived.append(which))
    # A new program inherits the mask of the thread that starts it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if has_masks else set()
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if has_masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if arrived:
            signal.raise_signal(arrived[0])


def end_with_parent() -> None:
    """From now on this process ends at once when the one that started it ends or is killed."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
