"""Ctrl-C and SIGTERM during training: stop between two batches, where no lock is held."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from lightning.pytorch.callbacks import Callback


class _Stop(Exception):
    pass


class StopBetweenBatches(Callback):
    """Holds signals back until a batch has ended.

    An exception raised inside the writers' queues leaves them waiting for ever when Lightning
    closes them.
    """

    def __init__(self) -> None:
        self._received: list[int] = []

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self._stop()

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._received:
            raise _Stop

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Do what a signal received in the block does, after it; a second one acts at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            self._received.append(number)
            handler = handlers[number]
            if len(self._received) > 1 and callable(handler):
                handler(number, frame)

        handlers: dict[int, Any] = {
            number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        except (_Stop, SystemExit):
            # SystemExit is how Lightning stops after a SIGTERM.
            if not self._received:
                raise
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self._received:
            signal.raise_signal(self._received[0])
