"""Ctrl-C and SIGTERM held back while something must not be left half-way."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Raise what Ctrl-C and SIGTERM raise only after the block.

    Blocking the signals is not enough: they reach Python through any other thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _frame: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number in received:
        signal.raise_signal(number)
