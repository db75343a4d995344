"""Results files of the comparisons: what was run, on what, and one entry a finished run."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm import tqdm

from chonn_lab.experiments.provenance import code, commit
from chonn_ops.files import write_json

Data = dict[str, dict[str, Any]]
Record = dict[str, Any]


def has_origin(record: Mapping[str, Any]) -> bool:
    """Whether a results file records the data and code behind each of its numbers.

    Timings have no data; published numbers of other people have neither.
    """
    if "values" in record:
        return True
    if "runs" in record:  # of `chonn-lab run`, kept
        runs = [{**record["shared"], **run} for run in record["runs"]]
        return all(run.get("code") or run.get("commit") for run in runs)
    if "results" not in record:
        return "code" in record.get("environment", {})
    return all(
        "sha256" in str(run.get("data", record.get("data"))) and "code" in run
        for run in record["results"]
    )


def read_record(
    path: Path,
    experiment: str,
    config: dict[str, Any],
    packages: Sequence[str],
    threads: int,
    data: Data,
) -> Record:
    """The results file to continue, or a fresh record.

    Raises
    ------
    SystemExit
        If the file holds runs of other settings, data or code.
    """
    if path.exists():
        record = json.loads(path.read_text())
        own = code()["code"]
        others = {run.get("code") for run in record["results"]} - {own}
        for what, got, expected in (
            ("with", record["config"], config),
            ("of the data", _checksums(record.get("data", {})), _checksums(data)),
            ("of the code", ", ".join(map(str, others)) or own, own),
        ):
            if got != expected:
                raise SystemExit(f"{path}: expected runs {what} {expected}, got {got}")
        return record
    return {
        "data": data,
        "experiment": experiment,
        "config": config,
        "versions": {package: metadata.version(package) for package in packages},
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count(), "threads": threads},
        "commit": commit()[0],
        "results": [],
    }


def run_missing(
    path: Path,
    record: Record,
    wanted: Iterable[tuple[Any, ...]],
    run: Callable[..., dict[str, Any]],
    names: Sequence[str] = ("model", "seed"),
) -> None:
    """Run what the record lacks, and write the file after each result.

    `wanted` are arguments of `run`, which are the `names` of its results; to the numbers that it
    returns commit and code are added.
    """
    done = {tuple(result[name] for name in names) for result in record["results"]}
    for given in tqdm([given for given in wanted if given not in done], unit="run"):
        found = run(*given)
        record["results"].append({**dict(zip(names, given, strict=True)), **found, **code()})
        write_json(path, record)


def _checksums(data: Data) -> dict[str, Any]:
    return {name: file.get("sha256") for name, file in data.items()}
