"""The result file of a run: one JSON object, checked when it is read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chonn_lab.experiments.provenance import Provenance
from chonn_ops.files import finite, whole_file

# Tells the files of this package from those of other programs.
MARK = "chonn-ops"
DIGITS = 16
HISTORY = ("train_loss", "validation_error")
# Scores and curves; the checksum of a file covers them.
MEASURED = ("metrics", "curve", "curves", "diverged")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(Provenance):
    """One trained model, with the fields of its file.

    `changes` names the settings that differ between models by design, `notes` has remarks for a
    reader of the numbers. `milliseconds` is that of `chonn_lab.experiments.base.Evaluation`.
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
    multiply_adds: int
    curve: Mapping[str, Sequence[float | None]]
    metrics: Mapping[str, Mapping[str, float | None]]
    curves: Mapping[str, Sequence[float | None]]
    seconds: float
    peak_memory_mib: float | None
    diverged: str | None = None
    title: str = ""
    changes: Sequence[str] | None = None
    notes: Sequence[str] = ()
    milliseconds: float | None = None

    @classmethod
    def parse(cls, record: Any) -> Run:
        """From the content of a file; other entries of it are ignored. A ValueError for a missing
        field, a field of another type, or scores that do not match the checksum."""
        if not isinstance(record, dict):
            raise ValueError(f"expected an object, got {type(record).__name__}")
        fields = dataclasses.fields(cls)
        missing = [f.name for f in fields if f.default is f.default_factory]
        if missing := [name for name in missing if name not in record]:
            raise ValueError(f"missing {', '.join(missing)}")
        for field in (field for field in fields if field.name in record):
            value, annotation = record[field.name], str(field.type)
            words, types = _KINDS[annotation.partition("[")[0].partition(" ")[0]]
            optional = value is None and annotation.endswith("| None")
            if not isinstance(value, types) and not optional:
                raise ValueError(f"{field.name}: expected {words}, got {value!r:.80}")
        if "checksum" in record and record["checksum"] != (found := _checksum(record)):
            raise ValueError(
                f"{', '.join(MEASURED)}: expected those of checksum "
                f"{record['checksum']!r:.80}, got those of {found}"
            )
        return cls(**{f.name: record[f.name] for f in fields if f.name in record})

    def write(self, path: Path) -> Run:
        """Write a new file, whole or not at all; returns the run as the file has it."""
        record = finite(dataclasses.asdict(self))
        marks = {"generator": MARK, "checksum": _checksum(record)}
        with whole_file(path, force=False) as staged:
            content = json.dumps({**marks, **record}, indent=1, allow_nan=False)
            staged.write_text(content + "\n", encoding="utf-8")
        return Run(**record)


def _checksum(record: Mapping[str, Any]) -> str:
    measured = {name: record.get(name) for name in MEASURED}
    return hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()[:DIGITS]


# Types of a JSON value for an annotation of `Run`, and what messages call them.
_KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "Mapping": ("an object", (dict,)),
    "Sequence": ("a list", (list, tuple)),
    "str": ("text", (str,)),
    "int": ("an integer", (int,)),
    "float": ("a number", (int, float)),
    "bool": ("true or false", (bool,)),
}
