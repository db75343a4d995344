"""Time and memory of the selective Kirchhoff scan on the CPU, beside its peers, in one run.

Sections: shapes (peers and floors), bfloat16 beside float32, directions and terminations of a
field, growth with length and channels. Inputs are random, the same for all.

Contenders
    chonn-ops       `kirchhoff_scan`, backend "cpu", as a user calls it
    torch           `kirchhoff_scan`, backend "torch" (the fallback without a compiler)
    mambapy         `mambapy.pscan.pscan` on materialised (B, L, D, N) coefficients; their making
                    and the readout are included
    compiled loop   `torch.compile` of sixteen steps of the loop
    loop            one PyTorch step after another; forward only
    exp alone       only `torch.exp(delta[..., None] * decay)`, as whatever materialises it needs

Columns
    forward, both   _ms: without autograd; of forward and backward for all inputs
    _ratio          that time over the time of chonn-ops in the same run
    _floors         that time over the larger of the two floors of the shape, see `_floors.py`
    peak_MiB        highest resident memory during forward and backward, above the memory before,
                    in a fresh process; Linux only
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from _floors import floor_calls, floors
from _harness import (
    Call,
    Turns,
    add_ratios,
    arguments,
    environment,
    fill,
    fresh_peak,
    show,
    show_growth,
    start,
    write_result,
)
from _scan_sections import (
    FIELD,
    GROWN,
    SERIES,
    SMOKE_FIELD,
    SMOKE_SERIES,
    measure_fields,
    measure_growth,
    show_fields,
)
from _scans import (
    both_call,
    contenders,
    forward_call,
    loop,
    make_inputs,
    prepare,
    prepare_contender,
    prepare_ours,
)

from chonn_ops.scan import kirchhoff_scan

SHAPES = ((8, 1024, 64, 16), (2, 3136, 192, 1), (4, 4096, 20, 16), (32, 256, 256, 8))
SMOKE_SHAPES = ((2, 64, 16, 4),)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SECTIONS = ("shapes", "precision", "fields", "growth")
PASSES = ("forward", "both")
COLUMNS = (
    *("shape", "name", "forward_ms", "forward_ratio", "forward_floors"),
    *("both_ms", "both_ratio", "both_floors", "peak_bytes"),
)


def measure_shape(
    shape: tuple[int, ...], turns: Turns, with_compiled: bool, notes: list[str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each contender, and the floors."""
    inputs = make_inputs(shape)
    calls: dict[tuple[str, str], Call] = {}
    found = contenders(with_compiled)
    rows: dict[str, dict[str, Any]] = {}
    for name, scan in found.items():
        own = {"forward": forward_call(scan, inputs), "both": both_call(scan, inputs)}
        if scan is loop:  # its backward would take most of the run
            del own["both"]
        row: dict[str, Any] = {"shape": list(shape), "name": name}
        try:
            for call in own.values():
                call()
            if "both" in own:
                row["peak_bytes"] = fresh_peak(prepare_contender, name, shape)
        except Exception as failure:
            if name != "compiled loop":
                raise
            notes.append(f"{name} left out at {shape}: {type(failure).__name__}: {failure}")
            continue
        rows[name] = row
        calls |= {(name, column): call for column, call in own.items()}
    rows["exp alone"] = {"shape": list(shape), "name": "exp alone"}
    step, decay = (tensor.detach() for tensor in inputs[1:3])
    calls["exp alone", "forward"] = lambda: torch.exp(step[..., None] * decay)

    lower = floor_calls(shape)
    times = turns.times(calls | lower)
    limits = floors(shape, times)
    fill(rows, {key: times[key] for key in calls})
    add_ratios(rows, "chonn-ops", PASSES)
    for row in rows.values():
        for column in PASSES:
            if f"{column}_ms" in row:
                row[f"{column}_floors"] = row[f"{column}_ms"] / limits[column]["floor_ms"]
    return list(rows.values()), limits


def measure_precision(shape: tuple[int, ...], turns: Turns) -> list[dict[str, Any]]:
    """Streams in bfloat16 beside float32; state and sums are float32 in both."""
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    for name, dtype in DTYPES.items():
        peak = fresh_peak(prepare_ours, "both", shape, dtype)
        rows[name] = {"shape": list(shape), "name": name, "peak_bytes": peak}
        inputs = make_inputs(shape, dtype)
        for column in PASSES:
            calls[name, column] = prepare(column, kirchhoff_scan, inputs)
    fill(rows, turns.times(calls))
    add_ratios(rows, "float32", PASSES)
    return list(rows.values())


def _shape(text: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.split(","))
    if len(sizes) != 4:
        raise argparse.ArgumentTypeError(f"expected B,L,D,N, got {text!r}")
    return sizes


def main(given: list[str] | None = None) -> None:
    parser = arguments(__doc__, "scan", SECTIONS)
    parser.add_argument("--shape", type=_shape, action="append", help="B,L,D,N; repeatable")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="whether the compiled loop takes part; default: not with --smoke",
    )
    options = start(parser, given, ("shape",))
    if options.compile is None:
        options.compile = not options.smoke
    shapes = options.shape or (SMOKE_SHAPES if options.smoke else SHAPES)
    turns = Turns(options.rounds, options.visit_ms)
    notes = [] if options.compile else ["compiled loop left out: --no-compile or --smoke"]
    result: dict[str, Any] = {"environment": environment(options, ["mambapy"]), "notes": notes}
    sections = options.only or SECTIONS
    if "shapes" in sections:
        result |= {"rows": [], "floors": []}
        for shape in shapes:
            rows, limits = measure_shape(shape, turns, options.compile, notes)
            show(rows, *COLUMNS)
            show([limits[column] for column in PASSES], "floor_ms", "larger")
            result["rows"] += rows
            result["floors"].append(limits)
    if "precision" in sections:
        result["precision"] = [r for shape in shapes for r in measure_precision(shape, turns)]
        show(result["precision"], *COLUMNS)
    if "fields" in sections:
        field = SMOKE_FIELD if options.smoke else FIELD
        result["fields"] = measure_fields(turns, field)
        show_fields(result["fields"])
    if "growth" in sections:
        series = SMOKE_SERIES if options.smoke else SERIES
        result["growth"] = measure_growth(turns, series)
        show_growth(result["growth"], "shape", *GROWN)
    for note in notes:
        print(f"note: {note}")
    write_result(options.output, result)


if __name__ == "__main__":
    main()
