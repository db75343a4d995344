"""Result files, collected ones, files of fields: damaged bytes, and JSON of another structure."""

from __future__ import annotations

import copy
import json
import random
import shutil
from pathlib import Path

import numpy as np
import result_files
import running
from fuzz import EXTREMES, Finding, clear, contents, damaged, watched
from keep_results import collect

from chonn_ops.experiments import runs
from chonn_ops.experiments.records import Run
from chonn_ops.report import scoreboard
from chonn_ops.report._document import as_markdown
from chonn_ops.report.figures import _fields
from chonn_ops.report.page import content
from chonn_ops.report.results import read_studies
from chonn_ops.report.tables import notes, settings, tables

STUDIES = ("order1d", "darcy", "shallow_water", "navier_stokes")
VALUES = (
    *(None, True, "", "x", "1", 0, -1, 1.5, float("nan"), float("inf"), 10**400, [], {}, [None]),
    *([1, "x"], {"x": 1}, {"x": {}}, [[]], "\ud800", "x" * 100_000, *EXTREMES),
)


def prepare(folder: Path):
    seeds = 2
    for made in (
        [run for run in result_files.order1d(seeds) if run["tags"]["target"] > 2],
        result_files.steady("darcy", seeds),
        result_files.shallow_water(seeds),
        result_files.navier_stokes(seeds),
    ):
        result_files.write(folder / "whole", list(made), resolution=8)
    for study in STUDIES:
        collect(folder / "whole" / study / "small", folder / "collected")
    work = running.job(folder / "own")
    runs.execute(work)
    return folder / "whole", folder / "collected", work


def _changed(record, draw: random.Random):
    """Another JSON value: one place of it deleted, replaced, or renamed."""
    record = copy.deepcopy(record)
    for _ in range(draw.choice((1, 1, 2))):
        node = record
        while True:
            places = list(node) if isinstance(node, dict) else range(len(node))
            if not places:
                break
            place = draw.choice(list(places))
            if isinstance(node[place], (dict, list)) and node[place] and draw.random() < 0.7:
                node = node[place]
                continue
            change = draw.randrange(4)
            if change == 0:
                del node[place]
            elif change == 1 and isinstance(node, dict):
                node[draw.choice(("x", "", "é", "a b|c<d>"))] = node.pop(place)
            else:
                node[place] = copy.deepcopy(draw.choice(VALUES))
            break
    return record


def _broken(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    if path.suffix == ".npz" or draw.random() < 0.3:
        path.write_bytes(damaged(content, draw))
    elif draw.random() < 0.03:
        path.write_bytes(draw.choice((b"[" * 200_000, b'{"a":' * 200_000, b"\xff\xfe", b"", b"0")))
    else:
        path.write_text(json.dumps(_changed(json.loads(content), draw)))


def _use(place: Path, drawn: bool) -> None:
    """Everything that reads results, but for most of the drawing."""
    studies = read_studies(place, mixed=True)
    entries = scoreboard.entries(studies)
    as_markdown(content(studies))
    for study in studies:
        tables(study)
        notes(study)
        settings(study)
        if drawn:
            _fields.maps(study)
    assert entries


def attempt(state, draw: random.Random, folder: Path) -> str:
    whole, collected, work = state
    if draw.random() < 0.15:
        return _finished(work, draw)
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    study = draw.choice(STUDIES)
    if draw.random() < 0.3:
        place.mkdir()
        shutil.copy(collected / f"{study}-small.json", place)
    else:
        shutil.copytree(whole / study, place / study)
    suffix = ".npz" if draw.random() < 0.1 and study != "order1d" else ".json"
    path = draw.choice(sorted(place.rglob(f"*{suffix}")) or sorted(place.rglob("*.json")))
    _broken(path, draw)
    drawn = path.suffix == ".npz"
    before = contents(place)
    try:
        with watched(place):
            _use(place, drawn)
    except (ValueError, FileNotFoundError) as error:
        # What is wrong with several of them together names their folder.
        return clear(error, path.name if path.name in str(error) else path.parent.name)
    finally:
        if contents(place) != before:
            raise Finding("a result has changed")
    return "right"


def _finished(work, draw: random.Random) -> str:
    """The result of a run that is asked for again."""
    content = work.result.read_bytes()
    try:
        _broken(work.result, draw)
        broken = work.result.read_bytes()
        try:
            with watched(work.folder.parent):
                run = work.finished()
        except ValueError as error:
            return clear(error, work.result.name)
        finally:
            if work.result.read_bytes() != broken:
                raise Finding("the result has changed")
        if run != Run.parse(json.loads(broken)) and "NaN" not in broken.decode():
            raise Finding("another run than the file's")
        if not isinstance(run.metrics["test"]["relative_l2"], (float, int, type(None))):
            raise Finding(f"no number: {run.metrics}")
        return "right"
    finally:
        work.result.write_bytes(content)


np.seterr(all="ignore")
