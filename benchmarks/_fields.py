"""Section of the scan benchmark: what directions and terminations cost on a two-dimensional field.

Ratios against the same work done by single scans, and terminations against "matched".
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from _harness import Call, Turns, fill, fresh_peak, show
from _scans import make_inputs, prepare

from chonn_ops.nn import DIRECTIONS, scan_field

FIELD = (4, 64, 64, 64, 16)  # B, height, width, D, N
SMOKE_FIELD = (2, 8, 8, 16, 4)
TERMINATIONS = ("matched", "ring", "open", "short")
# Scans that a mode makes of a field with two axes.
SCANS = {"raster": 1, "bidirectional": 2, "cross": 4, "axial": 4}
BOUNDS = {"cross": 1.15, "ring": 1.6, "open": 1.1, "short": 1.1}


def _prepare(column: str, directions: str, termination: str, field: tuple[int, ...]) -> Call:
    B, height, width, D, N = field
    inputs = make_inputs((B, height * width, D, N), grid=(height, width))
    scan = functools.partial(scan_field, directions=directions, termination=termination)
    return prepare(column, scan, inputs)


def measure_fields(turns: Turns, field: tuple[int, ...]) -> dict[str, Any]:
    """Times and peak memory of each mode with each termination that it has."""
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    for directions in DIRECTIONS:
        for termination in TERMINATIONS:
            name = f"{directions} {termination}"
            row: dict[str, Any] = {"name": name, "directions": directions}
            row["termination"] = termination
            own = {c: _prepare(c, directions, termination, field) for c in ("forward", "both")}
            try:
                own["both"]()
            except ValueError as refusal:
                row["refused"] = str(refusal)
            else:
                calls |= {(name, column): call for column, call in own.items()}
                for column in own:
                    peak = fresh_peak(_prepare, column, directions, termination, field)
                    row[f"{column}_peak_bytes"] = peak
            rows[name] = row
    fill(rows, turns.times(calls))
    return {"field": list(field), "rows": list(rows.values()), "ratios": list(_ratios(rows))}


def _ratios(rows: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    pairs = [(f"{mode} matched", "raster matched", SCANS[mode]) for mode in DIRECTIONS[1:]]
    pairs += [
        (f"{mode} {end}", f"{mode} matched", 1) for mode in DIRECTIONS for end in TERMINATIONS[1:]
    ]
    for name, base, times in pairs:
        if not {"forward_ms", "both_ms"} <= rows[name].keys() & rows[base].keys():
            continue
        row, of = rows[name], rows[base]
        ratio: dict[str, Any] = {"name": name, "over": f"{times} x {base}"}
        for column in ("forward_ms", "both_ms"):
            ratio[column.removesuffix("_ms")] = row[column] / (times * of[column])
        key = row["directions"] if row["termination"] == "matched" else row["termination"]
        yield ratio | {"bound": BOUNDS.get(key)}


def show_fields(section: dict[str, Any]) -> None:
    rows = [row for row in section["rows"] if "refused" not in row]
    show(rows, "name", "forward_ms", "both_ms", "forward_peak_bytes", "both_peak_bytes")
    show(section["ratios"], "name", "over", "forward", "both", "bound")
