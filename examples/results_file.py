"""Results files of the comparisons: what was run, on what, and one entry a finished run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any


def commit() -> str | None:
    """Commit of the checkout that holds the examples, if it is one."""
    folder = Path(__file__).parent
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True)
    return git.stdout.strip() or None


def read_record(
    path: Path, experiment: str, config: dict[str, Any], packages: Sequence[str], threads: int
) -> dict[str, Any]:
    """The results file to go on with, or a fresh record; other settings are not mixed in."""
    if path.exists():
        record = json.loads(path.read_text())
        if record["config"] != config:
            raise SystemExit(f"{path}: holds runs with {record['config']}, asked: {config}")
        return record
    return {
        "experiment": experiment,
        "config": config,
        "versions": {package: metadata.version(package) for package in packages},
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count(), "threads": threads},
        "commit": commit(),
        "results": [],
    }


def write_whole(path: Path, text: str) -> None:
    """All of the file or none of it, whenever the run stops."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def write_record(path: Path, record: dict[str, Any]) -> None:
    write_whole(path, json.dumps(record, indent=1) + "\n")
