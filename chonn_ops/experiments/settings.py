"""Settings from texts, as texts and names of folders, and how two differ."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from chonn_ops.experiments.base import Config


def parse_settings(config: Config, assignments: Iterable[str]) -> dict[str, Any]:
    """Values by field from texts ``field=value``; tuples as ``10,5,3``.

    Raises
    ------
    ValueError
        For an unknown field, a value of another type, or one that the config refuses.
    """
    types = typing.get_type_hints(type(config))
    known = [field.name for field in dataclasses.fields(config)]
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"expected field=value, got {assignment!r}")
        if name not in known:
            raise ValueError(f"{name}: no such field, expected one of {', '.join(known)}")
        values[name] = _value(name, types[name], text)
    dataclasses.replace(config, **values)
    return values


def settings_texts(values: Mapping[str, Any]) -> list[str]:
    """What `parse_settings` reads as these values of numbers, texts and switches."""
    plain = {name: str(v).lower() if isinstance(v, bool) else v for name, v in values.items()}
    return [f"{name}={value}" for name, value in plain.items()]


def _value(name: str, kind: Any, text: str) -> Any:
    if typing.get_origin(kind) is tuple:
        item, *rest = typing.get_args(kind)
        if rest == [...] and item in _PARSERS:
            return tuple(_value(name, item, part) for part in text.split(","))
    if kind not in _PARSERS:
        raise ValueError(f"{name}: cannot be set from text")
    expected, parser = _PARSERS[kind]
    try:
        return parser(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name}: expected {expected}, got {text!r}") from None


def _finite(text: str) -> float:
    # NaN passes every comparison with a bound, and is not equal to itself in a result file.
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_PARSERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("an integer", int),
    float: ("a finite number", _finite),
    str: ("text", str),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
}


def folder_name(scale: str, config: Config, values: Mapping[str, Any], precision: str) -> str:
    """Name such as ``small+epochs=1,n_train=4``: results of different settings stay apart.

    Values that the scale has anyway leave no mark, nor does the seed, which names the runs.
    """
    marks = {
        name: value
        for name, value in values.items()
        if value != getattr(config, name) and name != "seed"
    }
    if precision != "32-true":
        marks["precision"] = precision
    text = ",".join(f"{name}={_plain(value)}" for name, value in sorted(marks.items()))
    return f"{scale}+{text}" if text else scale


def _plain(value: Any) -> str:
    items = value if isinstance(value, tuple) else (value,)
    return "-".join(re.sub(r"[^\w.+-]", "_", str(item)) for item in items)


def defaults(config: Config) -> dict[str, Any]:
    """JSON values of the fields that have a default; for records from before they were there."""
    values = {
        field.name: field.default
        for field in dataclasses.fields(config)
        if field.default is not dataclasses.MISSING and field.name != "seed"
    }
    return json.loads(json.dumps(values))


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Which JSON values differ, such as ``epochs: 2 there, 3 here``; empty if none."""
    missing = object()
    return ", ".join(
        f"{name}: {earlier.get(name, 'none')} there, {now.get(name, 'none')} here"
        for name in sorted(earlier.keys() | now.keys())
        if earlier.get(name, missing) != now.get(name, missing)
    )
