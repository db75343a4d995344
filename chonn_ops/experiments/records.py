"""What a run leaves on the disk: the file of its numbers, its checkpoint, logs of its epochs.

Files come from a disk, and perhaps from somebody else: what is in them is checked and what is wrong
with it said, and nothing in a checkpoint is executed.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import itertools
import json
import os
import pickle
import re
import time
import types
import typing
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from chonn_ops._files import MARK, finite, own_file
from chonn_ops.experiments.provenance import ANYWAY, Provenance

if TYPE_CHECKING:
    from chonn_ops.experiments.jobs import Job

DIRTY = "-dirty"
DIGITS = 16
# Of a checkpoint, beside what torch calls its parts.
STATE = "chonn_ops"
HISTORY = ("train_loss", "validation_error")
_PARTS = {"state_dict", "optimizer_states", "lr_schedulers", STATE}


@dataclasses.dataclass(frozen=True)
class Run:
    """One trained model, the fields of its file.

    What it was made of is as `chonn_ops.experiments.provenance.Provenance` says, empty in old
    files. `changes` names the settings that differ between models by design, `notes` says what a
    reader of its numbers has to know.
    """

    experiment: str
    scale: str
    variant: str
    label: str
    tags: Mapping[str, str | float | None]
    seed: int
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    commit: str | None
    date: str
    parameters: int
    multiply_adds: int
    curve: Mapping[str, Sequence[float | None]]
    metrics: Mapping[str, Mapping[str, float | None]]
    curves: Mapping[str, Sequence[float | None]]
    seconds: float
    peak_memory_mib: float | None
    precision: str = "32-true"
    diverged: str | None = None
    title: str = ""
    data: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    model: str = ""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dirty: bool | None = None
    changes: Sequence[str] | None = None
    notes: Sequence[str] = ()

    @classmethod
    def parse(cls, record: Any) -> Run:
        """From a file's content; ValueError says what is wrong with it."""
        if not isinstance(record, dict):
            raise ValueError(f"expected an object, got {type(record).__name__}")
        fields = dataclasses.fields(cls)
        missing = [
            f.name for f in fields if f.default is f.default_factory and f.name not in record
        ]
        if missing:
            raise ValueError(f"missing {', '.join(missing)}")
        check(record)
        given = {f.name: record[f.name] for f in fields if f.name in record}
        # Old files have both in one.
        if isinstance(commit := given["commit"], str) and commit.endswith(DIRTY):
            given |= {"commit": commit.removesuffix(DIRTY), "dirty": True}
        return cls(**given)

    @property
    def provenance(self) -> Provenance:
        return Provenance(self.data, self.model, self.sources, self.commit, self.dirty)

    def write(self, path: Path) -> Run:
        """Write the file, whole or not at all; the run as the file has it."""
        record = finite(dataclasses.asdict(self))
        marks = {"generator": MARK, "checksum": _checksum(record)}
        with own_file(path) as staged:
            content = json.dumps({**marks, **record}, indent=1, allow_nan=False)
            staged.write_text(content + "\n", encoding="utf-8")
        return Run(**record)


def _checksum(record: Mapping[str, Any]) -> str:
    """Of what was measured, by which a file that has lost or changed a number is known."""
    measured = {name: record.get(name) for name in ("metrics", "curve", "curves", "diverged")}
    return hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()[:DIGITS]


def _expected(value: Any, kind: Any) -> str:
    """What a JSON value is to be if it is not of a type, in words; empty if it is."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        found = [_expected(value, one) for one in inner]
        return " or ".join(found) if all(found) else ""
    if origin is not None:
        container, words = _CONTAINERS[origin]
        values = value.values() if isinstance(value, dict) else value
        if isinstance(value, container) and not any(_expected(v, inner[-1]) for v in values):
            return ""
        return f"{words} {_expected(_NOTHING, inner[-1]) or 'anything'}"
    fits, words = _PLAIN[kind]
    return "" if fits(value) else words


_NOTHING = object()
_CONTAINERS = {Mapping: (dict, "an object, each value"), Sequence: (list, "a list, each entry")}
_PLAIN: Mapping[Any, tuple[Callable[[Any], bool], str]] = {
    Any: (lambda _: True, ""),
    str: (lambda value: isinstance(value, str), "text"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (lambda value: isinstance(value, int) and abs(value) < 2**63, "an integer"),
    # NaN and infinity are what diverged; an integer beyond the floats cannot be averaged.
    float: (
        lambda value: isinstance(value, float) or (isinstance(value, int) and abs(value) < 1e308),
        "a number",
    ),
    type(None): (lambda value: value is None, "null"),
}
_FIELDS = typing.get_type_hints(Run)
# Of the tags that tables and figures sort and compare by.
_TAGS = {
    **dict.fromkeys(("target", "history", "order", "depth"), int),
    **dict.fromkeys(("family", "role", "termination", "recipe"), str),
}
# What tells the models of the order-defined benchmark apart.
_OF_TARGETS = {"family", "order", "depth", "termination"}


def check(record: Mapping[str, Any]) -> None:
    """Raise a ValueError for the first field that is not of its type in `Run`; missing ones pass.

    Likewise for scores that are not those that were written; older files have no checksum.
    """
    _check(record, _FIELDS, "")
    if "checksum" in record and record["checksum"] != (found := _checksum(record)):
        raise ValueError(
            f"metrics, curve, curves or diverged: expected those of checksum "
            f"{record['checksum']!r:.80}, got those of {found}"
        )
    tags = record.get("tags", {})
    _check(tags, _TAGS, "tags.")
    if "target" in tags and not tags.keys() >= _OF_TARGETS:
        missing = ", ".join(sorted(_OF_TARGETS - tags.keys()))
        raise ValueError(f"tags: expected {missing} beside target, got {sorted(tags)}")


def _check(record: Mapping[str, Any], fields: Mapping[str, Any], prefix: str) -> None:
    for name, kind in fields.items():
        if name in record and (expected := _expected(record[name], kind)):
            raise ValueError(f"{prefix}{name}: expected {expected}, got {record[name]!r:.80}")


def read_checkpoint(job: Job, now: Provenance) -> dict[str, Any]:
    """Content of a job's checkpoint.

    Raises
    ------
    ValueError
        If the file is damaged, refused, of another run or, unless the job takes them, of other data
        or model code than `now`; says why and what to remove.
    """
    path = job.checkpoint
    found = _load(path)
    state = found[STATE] if isinstance(found, dict) and found.keys() >= _PARTS else None
    if not isinstance(state, dict):
        raise refusal(path, "no checkpoint of chonn run")
    try:
        _check_state(state)
    except ValueError as error:
        raise refusal(path, f"damaged checkpoint ({error})") from error
    if differing := job.differences(state["settings"]):
        raise refusal(path, f"checkpoint of other settings ({differing})")
    there = Provenance.parse(state.get("origin", {}))
    if not job.mixed and there.known and (differing := there.differences(now)):
        raise refusal(
            path,
            f"checkpoint of other data or model code ({differing})",
            f", or go on from it all the same with {ANYWAY}",
        )
    return found


def refusal(path: Path, reason: str, more: str = "") -> ValueError:
    """What is said of a checkpoint that cannot be used."""
    return ValueError(f"{path}: {reason}; remove {path} to start this run afresh{more}")


def _check_state(state: dict[str, Any]) -> None:
    """ValueError for the first part of a checkpoint's own state that is of another kind."""
    history, settings = state.get("history"), state.get("settings")
    if not isinstance(settings, dict):
        raise ValueError(f"settings: expected a mapping, got {settings!r:.80}")
    # No integers: it was not this package that wrote them.
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
    check({**origin, "notes": state.get("notes", [])})


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


@contextlib.contextmanager
def log(folder: Path) -> Iterator[Callable[[int, int, Mapping[str, float]], None]]:
    """What takes an epoch, its last global step and its scalars, to CSV and for TensorBoard.

    New files in a folder; those of earlier parts of a run stay. TensorBoard's own writer has a
    thread and a queue, which Ctrl-C could leave locked.
    """
    # A reader of results needs none of it.
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    names = (folder / "csv" / f"version_{number}" for number in itertools.count())
    place = next(name for name in names if not name.exists())
    place.mkdir(parents=True)
    events = folder / "tensorboard"
    events.mkdir(exist_ok=True)
    with (
        open(place / "metrics.csv", "w", newline="", encoding="utf-8") as table,
        open(events / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}", "xb") as file,
    ):
        rows, writer = csv.writer(table), RecordWriter(file)

        def record(**content: object) -> None:
            kind = event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]
            writer.write(kind(wall_time=time.time(), **content).SerializeToString())
            writer.flush()

        def write(epoch: int, step: int, scalars: Mapping[str, float]) -> None:
            if not table.tell():
                rows.writerow(["epoch", *scalars])
            rows.writerow([epoch, *scalars.values()])
            table.flush()
            kind = summary_pb2.Summary  # pyright: ignore[reportAttributeAccessIssue]
            values = [kind.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
            record(step=step, summary=kind(value=values))

        record(file_version="brain.Event:2")
        yield write
