"""Scalars of every epoch, in CSV and for TensorBoard."""

from __future__ import annotations

import csv
import itertools
import os
import time
from pathlib import Path

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


class Log:
    """New files in a folder; those of earlier parts of a run stay.

    TensorBoard's own writer has a thread and a queue, which Ctrl-C could leave locked.
    """

    def __init__(self, folder: Path) -> None:
        names = (folder / "csv" / f"version_{number}" for number in itertools.count())
        place = next(name for name in names if not name.exists())
        place.mkdir(parents=True)
        self._csv = open(place / "metrics.csv", "w", newline="", encoding="utf-8")  # noqa: SIM115
        events = folder / "tensorboard"
        events.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
        self._events = open(events / name, "xb")  # noqa: SIM115
        self._records = RecordWriter(self._events)
        self._record(file_version="brain.Event:2")

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self._csv.close()
        self._events.close()

    def write(self, epoch: int, step: int, scalars: dict[str, float]) -> None:
        """A line of the epoch, which ended with the global step."""
        rows = csv.writer(self._csv)
        if not self._csv.tell():
            rows.writerow(["epoch", *scalars])
        rows.writerow([epoch, *scalars.values()])
        self._csv.flush()
        kind = summary_pb2.Summary  # pyright: ignore[reportAttributeAccessIssue]
        values = [kind.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._record(step=step, summary=kind(value=values))

    def _record(self, **content: object) -> None:
        kind = event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]
        self._records.write(kind(wall_time=time.time(), **content).SerializeToString())
        self._records.flush()
