"""What the fields of a result file may be: it comes from a disk, and perhaps from somebody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    # NaN and infinity are what diverged; an integer beyond the floats cannot be averaged.
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1e308)


def _count(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 2**63


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _mapping(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


_NUMBERS = _mapping(_optional(_number))
_CURVES = _mapping(_list(_optional(_number)))
_FIELDS: Mapping[str, tuple[Check, str]] = {
    **dict.fromkeys(
        ("experiment", "scale", "variant", "label", "date", "precision", "title", "model"),
        (_text, "text"),
    ),
    **dict.fromkeys(("seed", "parameters", "multiply_adds"), (_count, "an integer")),
    "seconds": (_number, "a number"),
    "peak_memory_mib": (_optional(_number), "a number or null"),
    **dict.fromkeys(("commit", "diverged"), (_optional(_text), "text or null")),
    "dirty": (_optional(lambda value: isinstance(value, bool)), "true, false or null"),
    **dict.fromkeys(("config", "hardware"), (_mapping(lambda _: True), "an object")),
    "tags": (_mapping(_scalar), "an object of texts and numbers"),
    **dict.fromkeys(("versions", "sources"), (_mapping(_text), "an object of texts")),
    "data": (_mapping(_mapping(lambda _: True)), "an object for each file"),
    "metrics": (_mapping(_NUMBERS), "an object of numbers for each split"),
    **dict.fromkeys(("curve", "curves"), (_CURVES, "an object of lists of numbers")),
    "changes": (_optional(_list(_text)), "a list of texts or null"),
    "notes": (_list(_text), "a list of texts"),
}
# Of the tags that tables and figures sort and compare by.
_TAGS: Mapping[str, tuple[Check, str]] = {
    **dict.fromkeys(("target", "history", "order", "depth"), (_count, "an integer")),
    **dict.fromkeys(("family", "role", "termination", "recipe"), (_text, "text")),
}
# What tells the models of the order-defined benchmark apart.
_OF_TARGETS = {"family", "order", "depth", "termination"}


def check(record: Mapping[str, Any]) -> None:
    """Raise a ValueError for the first field that is of another kind; those missing are not."""
    _check(record, _FIELDS, "")
    tags = record.get("tags", {})
    _check(tags, _TAGS, "tags.")
    if "target" in tags and not tags.keys() >= _OF_TARGETS:
        missing = ", ".join(sorted(_OF_TARGETS - tags.keys()))
        raise ValueError(f"tags: expected {missing} beside target, got {sorted(tags)}")


def _check(record: Mapping[str, Any], fields: Mapping[str, Any], prefix: str) -> None:
    for name, (fits, expected) in fields.items():
        if name in record and not fits(record[name]):
            found = repr(record[name])
            shown = found if len(found) <= 80 else f"{found[:77]}..."
            raise ValueError(f"{prefix}{name}: expected {expected}, got {shown}")
