"""What a training leaves in its folder: a checkpoint to go on from, and scalars of every epoch.

Nothing in a checkpoint that is read is executed, and what is wrong with it is said.
"""

from __future__ import annotations

import csv
import itertools
import os
import pickle
import re
import time
import zipfile
from pathlib import Path
from typing import Any

import torch
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from chonn_ops.experiments import records
from chonn_ops.experiments.jobs import Job
from chonn_ops.experiments.provenance import ANYWAY, Provenance
from chonn_ops.experiments.settings import defaults, differences

STATE = "chonn_ops"
HISTORY = ("train_loss", "validation_error")
_PARTS = {"state_dict", "optimizer_states", "lr_schedulers", STATE}


def refusal(path: Path, reason: str, more: str = "") -> ValueError:
    """What is said of a checkpoint that cannot be used."""
    return ValueError(f"{path}: {reason}; remove {path} to start this run afresh{more}")


def read(job: Job, now: Provenance) -> dict[str, Any]:
    """Content of a job's checkpoint.

    Raises
    ------
    ValueError
        If the file is damaged, refused, of another run or, unless the job takes them, of other data
        or model code than `now`.
    """
    path = job.checkpoint
    found = _load(path)
    if (
        not isinstance(found, dict)
        or not found.keys() >= _PARTS
        or not isinstance(state := found[STATE], dict)
    ):
        raise refusal(path, "no checkpoint of chonn run")
    try:
        _check(state)
    except ValueError as error:
        raise refusal(path, f"damaged checkpoint ({error})") from error
    if differing := differences(defaults(job.config) | state["settings"], job.settings):
        raise refusal(path, f"checkpoint of other settings ({differing})")
    there = Provenance.parse(state.get("origin", {}))
    if not job.mixed and there.known and (differing := there.differences(now)):
        raise refusal(
            path,
            f"checkpoint of other data or model code ({differing})",
            f", or go on from it all the same with {ANYWAY}",
        )
    return found


def _check(state: dict[str, Any]) -> None:
    """ValueError for the first part of a checkpoint's own state that is of another kind."""
    history, settings = state.get("history"), state.get("settings")
    if not isinstance(settings, dict):
        raise ValueError(f"settings: expected a mapping, got {settings!r:.80}")
    if not isinstance(state.get("seconds"), float):
        raise ValueError(f"seconds: expected a number, got {state.get('seconds')!r:.80}")
    columns = [history.get(name) for name in HISTORY] if isinstance(history, dict) else [None]
    for values in columns:
        if not isinstance(values, list) or not all(isinstance(value, float) for value in values):
            raise ValueError(f"history: expected lists of numbers, got {history!r:.80}")
    if len({len(values) for values in columns if values is not None}) != 1:
        raise ValueError("history: expected lists of one length")
    origin = state.get("origin", {})
    if not isinstance(origin, dict):
        raise ValueError(f"origin: expected a mapping, got {origin!r:.80}")
    records.check({**origin, "notes": state.get("notes", [])})


def _load(path: Path) -> Any:
    with open(path, "rb") as file:
        # What zipfile and torch.load raise for a damaged file varies with the damage.
        try:
            with zipfile.ZipFile(file) as archive:
                part = archive.testzip()
        except Exception as error:
            size = os.fstat(file.fileno()).st_size
            reason = f"no whole archive, {size:,} bytes: {_line(error)}"
            raise refusal(path, f"damaged checkpoint ({reason})") from error
    if part is not None:
        raise refusal(path, f"damaged checkpoint (wrong checksum of its part {part})")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    # The checksums are right: someone wrote this. Torch's message ends with the advice to load it
    # all the same, which would run its code.
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL [^\s`]+", str(error))
        detail = f" ({name[0]})" if name else ""
        raise refusal(
            path,
            f"refused checkpoint, it holds other things than numbers and texts{detail} and could "
            "run code",
        ) from error
    except Exception as error:
        raise refusal(path, f"damaged checkpoint ({_line(error)})") from error


def _line(error: Exception) -> str:
    """What an error says, where it says anything but a key."""
    text = str(error).partition("\n")[0]
    return text if " " in text else f"{type(error).__name__} {text}".rstrip()


class Log:
    """Scalars of every epoch, in CSV and for TensorBoard.

    New files in a folder; those of earlier parts of a run stay.

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
