"""Sections of the scan benchmark on fields, and over length and channels.

Fields: what directions and terminations cost on a grid of two axes, as ratios against the same
work done by single scans, and terminations against "matched".

Growth: memory is the most bytes of tensors alive at once above the inputs, as PyTorch's allocator
counts them (exact at any size); at the largest size resident memory is measured beside it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from _harness import Call, Turns, allocated_peak, fill, fresh_peak, show, slope
from _scans import make_inputs, prepare, prepare_ours

from chonn_ops.scan import DIRECTIONS, kirchhoff_scan, scan_field

FIELD = (4, 64, 64, 64, 16)  # B, height, width, D, N
SMOKE_FIELD = (2, 8, 8, 16, 4)
TERMINATIONS = ("matched", "ring", "open", "short")
# Scans that a mode makes of a field with two axes.
SCANS = {"raster": 1, "bidirectional": 2, "cross": 4, "axial": 4}
BOUNDS = {"cross": 1.15, "ring": 1.6, "open": 1.1, "short": 1.1}
LENGTHS = (1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
WIDTHS = (16, 32, 64, 128, 256, 512, 1024)
# Name, grown axis, shapes (B, L, D, N).
SERIES = (
    ("L at D=16", "L", tuple((1, length, 16, 16) for length in LENGTHS)),
    ("L at D=64", "L", tuple((1, length, 64, 16) for length in LENGTHS)),
    ("D at L=4096", "D", tuple((1, 4096, width, 16) for width in WIDTHS)),
)
SMOKE_SERIES = (("L at D=8", "L", ((1, 128, 8, 4), (1, 512, 8, 4))),)
AXIS = {"L": 1, "D": 2}
GROWN = ("forward_ms", "both_ms", "forward_bytes", "both_bytes")


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


def measure_growth(turns: Turns, series: tuple[Any, ...]) -> list[dict[str, Any]]:
    """A series of rows each, with the exponents of growth of all columns."""
    results = []
    for name, axis, shapes in series:
        points = [_point(shape, turns) for shape in shapes]
        points[-1]["both_peak_bytes"] = fresh_peak(prepare_ours, "both", shapes[-1], torch.float32)
        sizes = [shape[AXIS[axis]] for shape in shapes]
        slopes = {column: slope(sizes, [point[column] for point in points]) for column in GROWN}
        results.append({"name": name, "axis": axis, "points": points, "slopes": slopes})
    return results


def _point(shape: tuple[int, ...], turns: Turns) -> dict[str, Any]:
    """One size at a time, or the inputs of the largest would push the others out of the cache."""
    inputs = make_inputs(shape)
    row: dict[str, Any] = {"shape": list(shape)}
    calls: dict[tuple[str, str], Call] = {}
    for column in ("forward", "both"):
        call = calls["", column] = prepare(column, kirchhoff_scan, inputs)
        row[f"{column}_bytes"] = allocated_peak(call)
    fill({"": row}, turns.times(calls))
    return row
