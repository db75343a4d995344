"""Section of the network benchmark: growth of time, memory and iterations with nodes; memory.

Memory is resident memory above that before, in a process of its own: buffers inside compiled code
count. Exponents of its growth are fitted where it is at least `LEAST_BYTES`: below, a page is a
good part of it.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from _harness import fresh_peak, slope
from _networks import Case, channels_last, make
from _peers import Bench
from _solvers import prepare_both

LEAST_BYTES = 1 << 20
# Name and cases; sixteen networks, a vector of channels.
SERIES = (
    ("1-D", tuple(Case((n,), 16) for n in (1_000, 10_000, 100_000, 1_000_000))),
    ("2-D", tuple(Case((n, n), 16) for n in (16, 32, 64, 128, 256, 512))),
    ("3-D", tuple(Case((n, n, n), 16) for n in (8, 16, 32, 64))),
)
SMOKE_SERIES = (("2-D", tuple(Case((n, n), 2) for n in (8, 16))),)
MEMORY = tuple(Case((128, 128), count) for count in (16, 64))
SMOKE_MEMORY = (Case((16, 16), 2),)
GROWN = ("forward_ms", "both_ms", "both_peak_bytes", "iterations")
MEMORY_NAMES = ("chonn-ops", "torch")  # torch-sla takes minutes a call here


def prepare_peak(name: str, case: Case) -> Any:
    """In another process: what the call leaves behind on the way is none of its own."""
    warnings.simplefilter("ignore")
    return prepare_both(name, make(case))


def measure_growth(bench: Bench, series: tuple[Any, ...], name: str) -> list[dict[str, Any]]:
    """A series of points each of one contender, with the exponents of growth."""
    results = []
    for label, cases in series:
        points = [point for case in cases for point in _points(bench, case, name)]
        results.append({"name": label, "points": points, "slopes": _slopes(points)})
    return results


def _points(bench: Bench, case: Case, name: str) -> list[dict[str, Any]]:
    """One, or none where the contender fails."""
    rows = bench.measure(case, names=(name,))["rows"]
    return [
        {**case.label(), **row, "both_peak_bytes": fresh_peak(prepare_peak, name, case)}
        for row in rows
    ]


def _slopes(points: list[dict[str, Any]]) -> dict[str, float]:
    found = {}
    for key in GROWN:
        kept = [p for p in points if (p.get(key) or 0) >= (LEAST_BYTES if "bytes" in key else 1e-9)]
        if len(kept) > 1:
            nodes = [torch.Size(p["grid"]).numel() for p in kept]
            found[key] = slope(nodes, [p[key] for p in kept])
    return found


def measure_memory(cases: tuple[Case, ...], names: list[str], notes: list[str]) -> list[Any]:
    """Peaks of forward and backward, beside the size of the source and of all inputs."""
    rows = []
    for case in cases:
        inputs = channels_last(make(case))
        for name in names:
            row: dict[str, Any] = {**case.label(), "name": name}
            row["source_bytes"] = inputs[0].nbytes
            try:
                row["peak_bytes"] = fresh_peak(prepare_peak, name, case)
            except Exception as failure:
                notes.append(f"{name} left out of memory: {type(failure).__name__}: {failure}")
                continue
            if row["peak_bytes"] is not None:
                row["peak_fields"] = row["peak_bytes"] / row["source_bytes"]
            rows.append(row)
    return rows
