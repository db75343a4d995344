"""Section of the scan benchmark: how time and memory grow with length and with channels.

Memory is the most bytes of tensors alive at once above the inputs, as PyTorch's allocator counts
them (exact at any size); at the largest size resident memory is measured beside it.
"""

from __future__ import annotations

from typing import Any

import torch
from _harness import Call, Turns, allocated_peak, fill, fresh_peak, slope
from _scans import make_inputs, prepare, prepare_ours

from chonn_ops.scan import kirchhoff_scan

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
