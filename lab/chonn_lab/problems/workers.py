"""Worker processes: a function over many tasks, one thread each, ended with their parent."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import resource_tracker
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ordered_map(
    function: Callable[[Task], Result], tasks: Iterator[Task], workers: int
) -> Generator[Result]:
    """Results of ``function`` over ``tasks``, in their order.

    Parameters
    ----------
    function : callable
        With more than one worker it must be importable by name, or a partial of such a function.
    tasks : iterator
        Taken only a few ahead of the results.
    workers : int
        Processes; 1 runs everything in this one.

    Yields
    ------
    Result
        Whatever `function` returns. Its exceptions are raised here, and no process outlives the
        generator, nor this process if that is killed.
    """
    if workers == 1:
        yield from map(function, tasks)
        return
    # Spawned, not forked: torch's threads are running in the parent.
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent
    )
    try:
        # Enough to keep every worker busy, few enough to hold in memory.
        first = list(itertools.islice(tasks, 4 * workers))
        with worker_environment():
            pending: deque[Future[Result]] = deque(pool.submit(function, task) for task in first)
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(function, task) for task in itertools.islice(tasks, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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
