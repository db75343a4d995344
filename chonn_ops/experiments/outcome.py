"""What became of many runs, said as it happens."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from chonn_ops.experiments import provenance
from chonn_ops.experiments.jobs import Job
from chonn_ops.experiments.results import Run
from chonn_ops.experiments.statistic import Statistic

Record = dict[str, Any]


@dataclasses.dataclass
class Outcome:
    """Results of jobs that have run, and reasons of those that failed."""

    records: list[Record] = dataclasses.field(default_factory=list)
    failures: dict[Job, str] = dataclasses.field(default_factory=dict)

    def add(self, job: Job, record: Record, note: str = "") -> None:
        self.records.append(record)
        say(f"{job.title}: {note}{_scores(record)}")

    def fail(self, job: Job, reason: str) -> None:
        self.failures[job] = reason
        say(f"{job.title}: failed")


def say(text: str) -> None:
    """A line on standard output, above any progress bar, from the first process only."""
    if os.environ.get("RANK", "0") == "0":
        tqdm.write(text)


def explain(job: Job, error: Exception) -> str:
    """One line; the traceback of an error that is not the user's goes into a file."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (ValueError, OSError)):
        return text
    folder = job.resolve().folder
    folder.mkdir(parents=True, exist_ok=True)
    # A new file each time: nothing of the user's has this name.
    descriptor, name = tempfile.mkstemp(".txt", "error-", folder)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    path = folder / Path(name).name
    return f"{type(error).__name__}: {text[:300]} (traceback in {path})"


def _scores(record: Record) -> str:
    if record["diverged"]:
        return f"diverged: {record['diverged']}"
    scores = record["metrics"].get("test", {})
    texts = (f"{name} {'-' if v is None else format(v, '.4g')}" for name, v in scores.items())
    return f"{', '.join(texts)}; {record['seconds']:.0f} s of training"


def table(records: Sequence[Record], mixed: bool = False) -> str:
    """Parameters and scores of every variant, mean and standard deviation over the seeds.

    Below it, what has to be said of where they come from.

    Raises
    ------
    ValueError
        For results of different data, settings or model code, unless `mixed`.
    """
    found = [Run.parse(record) for record in records]
    differing = provenance.mixture("this table", found, mixed)
    variants: dict[str, list[Record]] = {}
    for record in records:
        variants.setdefault(record["variant"], []).append(record)
    scores = [(s, n) for r in records for s, found in r["metrics"].items() for n in found]
    splits = dict.fromkeys(split for split, _ in scores) or ["test"]
    names = dict.fromkeys(name for _, name in scores)
    rows = [["variant", "split", "runs", "parameters", *names]]
    for variant, runs in variants.items():
        for split in splits:
            values = ([run["metrics"].get(split, {}).get(name) for run in runs] for name in names)
            cells = [str(Statistic.of(value)) for value in values]
            rows.append([variant, split, str(len(runs)), f"{runs[0]['parameters']:,}", *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += [f"mixed: {text}" for text in differing]
    lines += [f"{', '.join(names)}: {text}" for text, names in provenance.flags(found).items()]
    return "\n".join(lines)
