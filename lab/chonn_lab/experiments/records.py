"""The result file of a run: one JSON object, checked when it is read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chonn_lab.experiments.provenance import Provenance
from chonn_ops.files import finite, whole_file

# Tells the files of this package from those of other programs.
MARK = "chonn-ops"
HISTORY = ("train_loss", "validation_error")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(Provenance):
    """One trained model, with the fields of its file.

    `changes` names the settings that differ between models by design, `notes` has remarks for a
    reader of the numbers. What `Problem.evaluate` finds is empty if the training diverged:
    `metrics` are numbers by name for each test split, lower is better; `curves` scores along an
    axis, such as the error of every frame of a rollout; `milliseconds` the processor time of the
    prediction of a test sample by itself, with its error.
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
    date: str
    parameters: int
    curve: Mapping[str, Sequence[float | None]]
    seconds: float
    peak_memory_mib: float | None
    diverged: str | None = None
    title: str = ""
    changes: Sequence[str] | None = None
    notes: Sequence[str] = ()
    metrics: Mapping[str, Mapping[str, float | None]] = dataclasses.field(default_factory=dict)
    curves: Mapping[str, Sequence[float | None]] = dataclasses.field(default_factory=dict)
    milliseconds: float | None = None

    @classmethod
    def parse(cls, record: Any) -> Run:
        """From the content of a file; other entries of it are ignored. A ValueError for a missing
        field."""
        names = [field.name for field in dataclasses.fields(cls)]
        try:
            return cls(**{name: record[name] for name in names if name in record})
        except TypeError as error:  # a field is missing, or there are none
            raise ValueError(str(error)) from error

    def write(self, path: Path) -> Run:
        """Write a new file, whole or not at all; returns the run as the file has it."""
        record = finite(dataclasses.asdict(self))
        with whole_file(path, force=False) as staged:
            content = json.dumps({"generator": MARK, **record}, indent=1, allow_nan=False)
            staged.write_text(content + "\n", encoding="utf-8")
        return Run(**record)
