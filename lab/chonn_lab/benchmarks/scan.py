"""Time and memory of the selective Kirchhoff scan on the CPU, beside its peers, in one run.

Sections: shapes (peers and floors), bfloat16 beside float32, directions and boundaries of a
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

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from chonn_lab.benchmarks.floors import floor_calls, floors
from chonn_lab.benchmarks.harness import (
    Call,
    Turns,
    add_ratios,
    allocated_peak,
    arguments,
    environment,
    fill,
    fresh_peak,
    show,
    show_growth,
    slope,
    start,
    version,
    write_result,
)
from chonn_lab.benchmarks.training import inference
from chonn_ops.scan import BOUNDARIES, DIRECTIONS, available_backends, kirchhoff_scan, scan_field

COMPILED_STEPS = 16

Scan = Callable[..., Tensor]


def loop(u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return _steps(u.new_zeros(u.shape[0], *decay.shape), u, delta, decay, b, c)[1] + d * u


def _steps(
    v: Tensor, u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """One step after another: the last state and the readouts."""
    out = []
    for k in range(u.shape[1]):
        retention = torch.exp(-delta[:, k, :, None] * decay)
        inflow = b[:, k, None, :] * u[:, k, :, None]
        v = retention * v + (1 - retention) / decay * inflow
        out.append((c[:, k, None, :] * v).sum(-1))
    return v, torch.stack(out, dim=1)


def compiled_loop() -> Scan:
    """The loop with `torch.compile` of a body of `COMPILED_STEPS` steps, shapes static.

    More steps a body are little faster and take far longer to compile; one step at a time pays
    the call of a compiled function L times.
    """
    body = torch.compile(_steps, dynamic=False)

    def scan(u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        v, out = u.new_zeros(u.shape[0], *decay.shape), []
        for part in zip(*(t.split(COMPILED_STEPS, 1) for t in (u, delta, b, c)), strict=True):
            v, y = body(v, part[0], part[1], decay, part[2], part[3])
            out.append(y)
        return torch.cat(out, dim=1) + d * u

    return scan


def mambapy_scan(
    u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor
) -> Tensor:
    from mambapy.pscan import pscan

    retention = torch.exp(-delta[..., None] * decay)
    inflow = (1 - retention) / decay * b[:, :, None, :] * u[..., None]
    states = pscan(retention, inflow)
    return (states @ c[..., None])[..., 0] + d * u


def contenders(with_compiled: bool) -> dict[str, Scan]:
    """Name and function of all that can run here."""
    found: dict[str, Scan] = {}
    for name, backend in (("chonn-ops", "cpu"), ("torch", "torch")):
        if backend in available_backends():
            found[name] = lambda *inputs, backend=backend: kirchhoff_scan(*inputs, backend=backend)
    if version("mambapy"):
        found["mambapy"] = mambapy_scan
    if with_compiled:
        torch.compiler.reset()
        found["compiled loop"] = compiled_loop()
    return found | {"loop": loop}


def make_inputs(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, grid: tuple[int, ...] = ()
) -> list[Tensor]:
    """u, delta, decay, b, c, d; streams in `dtype`, of shape (B, L, .) or (B, \\*grid, .)."""
    B, L, D, N = shape
    torch.manual_seed(0)
    u, step = torch.randn(B, L, D), torch.nn.functional.softplus(torch.randn(B, L, D))
    b, c = torch.randn(B, L, N), torch.randn(B, L, N)
    decay, d = torch.rand(D, N) * 4 + 0.1, torch.randn(D)
    if grid:
        u, step, b, c = (t.unflatten(1, grid) for t in (u, step, b, c))
    streams = [t.to(dtype) for t in (u, step, b, c)]
    inputs = [*streams[:2], decay, *streams[2:], d]
    return [tensor.requires_grad_() for tensor in inputs]


def both_call(scan: Scan, inputs: list[Tensor]) -> Call:
    grad = torch.randn_like(inputs[0])

    def call() -> None:
        torch.autograd.grad(scan(*inputs), inputs, grad)

    return call


def prepare(column: str, scan: Scan, inputs: list[Tensor]) -> Call:
    return (inference if column == "forward" else both_call)(scan, inputs)


def prepare_contender(name: str, shape: tuple[int, ...]) -> Call:
    """A forward and backward, to be made in another process."""
    return both_call(contenders(name == "compiled loop")[name], make_inputs(shape))


def prepare_ours(shape: tuple[int, ...], dtype: torch.dtype) -> Call:
    """Both passes of a scan as a user calls it, to be made in another process."""
    return both_call(kirchhoff_scan, make_inputs(shape, dtype))


FIELD = (4, 64, 64, 64, 16)  # B, height, width, D, N
SMOKE_FIELD = (2, 8, 8, 16, 4)
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


def _prepare(column: str, directions: str, boundary: str, field: tuple[int, ...]) -> Call:
    B, height, width, D, N = field
    inputs = make_inputs((B, height * width, D, N), grid=(height, width))
    scan = functools.partial(scan_field, directions=directions, boundary=boundary)
    return prepare(column, scan, inputs)


def measure_fields(turns: Turns, field: tuple[int, ...]) -> dict[str, Any]:
    """Times and peak memory of each mode with each boundary that it has."""
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    for directions in DIRECTIONS:
        for boundary in BOUNDARIES:
            name = f"{directions} {boundary}"
            row: dict[str, Any] = {"name": name, "directions": directions}
            row["boundary"] = boundary
            own = {c: _prepare(c, directions, boundary, field) for c in ("forward", "both")}
            try:
                own["both"]()
            except ValueError as refusal:
                row["refused"] = str(refusal)
            else:
                calls |= {(name, column): call for column, call in own.items()}
                for column in own:
                    peak = fresh_peak(_prepare, column, directions, boundary, field)
                    row[f"{column}_peak_bytes"] = peak
            rows[name] = row
    fill(rows, turns.times(calls))
    return {"field": list(field), "rows": list(rows.values())}


def measure_growth(turns: Turns, series: tuple[Any, ...]) -> list[dict[str, Any]]:
    """A series of rows each, with the exponents of growth of all columns."""
    results = []
    for name, axis, shapes in series:
        points = [_point(shape, turns) for shape in shapes]
        points[-1]["both_peak_bytes"] = fresh_peak(prepare_ours, shapes[-1], torch.float32)
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
        own = {"forward": inference(scan, inputs), "both": both_call(scan, inputs)}
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
        peak = fresh_peak(prepare_ours, shape, dtype)
        rows[name] = {"shape": list(shape), "name": name, "peak_bytes": peak}
        inputs = make_inputs(shape, dtype)
        for column in PASSES:
            calls[name, column] = prepare(column, kirchhoff_scan, inputs)
    fill(rows, turns.times(calls))
    add_ratios(rows, "float32", PASSES)
    return list(rows.values())


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "scan", SECTIONS), given)
    shapes = SMOKE_SHAPES if options.smoke else SHAPES
    turns = Turns(options.rounds, options.visit_ms)
    notes = ["compiled loop left out: --smoke"] if options.smoke else []
    result: dict[str, Any] = {"environment": environment(options, ["mambapy"]), "notes": notes}
    sections = options.only or SECTIONS
    if "shapes" in sections:
        result |= {"rows": [], "floors": []}
        for shape in shapes:
            rows, limits = measure_shape(shape, turns, not options.smoke, notes)
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
        rows = [row for row in result["fields"]["rows"] if "refused" not in row]
        show(rows, "name", "forward_ms", "both_ms", "forward_peak_bytes", "both_peak_bytes")
    if "growth" in sections:
        series = SMOKE_SERIES if options.smoke else SERIES
        result["growth"] = measure_growth(turns, series)
        show_growth(result["growth"], "shape", *GROWN)
    for note in notes:
        print(f"note: {note}")
    write_result(options.output, result)


if __name__ == "__main__":
    main()
