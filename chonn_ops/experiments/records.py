"""The file of a finished run: what is in it, and what its fields may be.

It comes from a disk, and perhaps from somebody else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chonn_ops._files import MARK, finite, own_file
from chonn_ops.experiments.provenance import Provenance

DIRTY = "-dirty"
DIGITS = 16


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
            found = repr(record[name])
            shown = found if len(found) <= 80 else f"{found[:77]}..."
            raise ValueError(f"{prefix}{name}: expected {expected}, got {shown}")
