"""Checkpoints of runs, and files of tensors to convert: damaged, hostile, of another structure."""

from __future__ import annotations

import copy
import io
import os
import pickle
import random
import shutil
import zipfile
from pathlib import Path

import running
import torch
from fuzz import Finding, clear, damaged, watched

from chonn_ops.experiments import provenance, runs
from chonn_ops.experiments.runs import seed_everything
from chonn_ops.experiments.training import Training
from chonn_ops.problems.convert import convert

VALUES = (
    *(None, True, "x", 0, -1, 1.5, float("nan"), [], {}, [1], {"x": 1}, torch.zeros(3)),
    *(torch.full((2, 2), float("nan")), [[1.0]], {"train_loss": 1}, 2**70, (1,)),
)


class _Hostile:
    """Runs what it is given when a pickle of it is loaded as pickles are."""

    def __init__(self, *call):
        self._call = call

    def __reduce__(self):
        return self._call[0], self._call[1:]


def prepare(folder: Path):
    work = running.job(folder / "own")
    runs.execute(work)
    seed_everything(0)
    data = work.experiment.load(work.config, work.data_folder)
    model = work.variant.build(work.config)
    training = Training(work, model, provenance.of(work, model, data))
    fields = {"x": torch.rand(3, 8, 8) > 0.5, "y": torch.rand(3, 8, 8)}
    torch.save(fields, folder / "fields.pt")
    return work.checkpoint.read_bytes(), training, (folder / "fields.pt").read_bytes()


def _repacked(content: bytes, draw: random.Random, folder: Path) -> bytes:
    """The archive with another pickle in it, that would leave a file or end the process."""
    trace = str(folder / "executed")
    calls = (
        _Hostile(os.system, f"touch {trace}"),
        _Hostile(os.mkdir, trace),
        _Hostile(eval, f"open({trace!r}, 'w')"),
        _Hostile(os._exit, 3),
        _Hostile(__import__, "antigravity"),
        _Hostile(exec, f"open({trace!r}, 'w')"),
    )
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith("data.pkl"):
                call = draw.choice(calls)
                data = draw.choice(
                    (
                        pickle.dumps(call, protocol=2),
                        pickle.dumps({"chonn_ops": call, "x": call, "y": 1}, protocol=2),
                        data[:-1] + pickle.dumps(call, protocol=2)[2:],
                        damaged(data, draw),
                    )
                )
            new.writestr(entry, data)
    return out.getvalue()


def _changed(content: bytes, draw: random.Random) -> bytes:
    record = torch.load(io.BytesIO(content), weights_only=True)
    node = record
    while True:
        places = list(node) if isinstance(node, dict) else range(len(node))
        place = draw.choice(list(places))
        if isinstance(node[place], (dict, list)) and node[place] and draw.random() < 0.7:
            node = node[place]
            continue
        if draw.random() < 0.3:
            del node[place]
        else:
            node[place] = copy.deepcopy(draw.choice(VALUES))
        break
    out = io.BytesIO()
    torch.save(record, out)
    return out.getvalue()


def attempt(state, draw: random.Random, folder: Path) -> str:
    checkpoint, training, fields = state
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    converted = draw.random() < 0.25
    content = fields if converted else checkpoint
    kind = draw.random()
    if kind < 0.4:
        content = damaged(content, draw)
    elif kind < 0.65:
        content = _repacked(content, draw, folder)
    elif kind < 0.7:
        content = pickle.dumps(_Hostile(os.mkdir, str(folder / "executed")))
    else:
        content = _changed(content, draw)
    path = place / "fields.pt" if converted else training.job.checkpoint
    path.write_bytes(content)
    try:
        return _convert(path) if converted else _restore(training)
    finally:
        if path.read_bytes() != content:
            raise Finding("the file has changed")
        if (folder / "executed").exists():
            raise Finding("code of the file was executed")


def _convert(path: Path) -> str:
    output = path.with_suffix(".hdf5")
    try:
        n = convert(path, output)
    except ValueError as error:
        if output.exists() or len(list(path.parent.iterdir())) > 1:
            raise Finding("something is left") from error
        return clear(error, path.name)
    if n < 1 or not output.is_file():
        raise Finding("nothing was written")
    return "right"


def _restore(training: Training) -> str:
    path = training.job.checkpoint
    before = copy.deepcopy((training.model.state_dict(), training.history, training.seconds))
    try:
        with watched(path.parent):
            training.restore()
    except ValueError as error:
        _reset(training, before)
        return clear(error, path.name)
    for values in training.history.values():
        if not all(isinstance(value, float) for value in values):
            raise Finding(f"no numbers: {values}")
    if not isinstance(training.seconds, float) or not all(
        isinstance(note, str) for note in training.notes
    ):
        raise Finding(f"{training.seconds} s, notes {training.notes}")
    _reset(training, before)
    return "right"


def _reset(training: Training, before) -> None:
    training.model.load_state_dict(before[0])
    training.history, training.seconds, training.notes = before[1], before[2], []
