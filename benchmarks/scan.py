"""Time and memory of the selective Kirchhoff scan on the CPU, beside its peers, in one run.

Every round visits each contender in turn, so that a slow spell of the machine hits all of them:
one call to warm caches and allocator, as inside a training loop, then timed calls for at least
`VISIT_MS` (and at least three). The table shows medians over all timed calls. Inputs are float32,
random, the same for all.

Contenders
    chonn-ops   `kirchhoff_scan`, backend "cpu", as a user calls it
    torch       `kirchhoff_scan`, backend "torch" (the fallback without a compiler)
    mambapy     `mambapy.pscan.pscan` on materialised (B, L, D, N) coefficients; their making and
                the readout are included
    loop        one PyTorch step after another; forward only
    exp alone   only `torch.exp(delta[..., None] * decay)`: a floor for whatever materialises it

Columns
    forward, both   milliseconds without autograd; of forward and backward for all inputs
    x               that time over the time of chonn-ops in the same run
    peak MB         highest resident memory during forward and backward, above the memory before,
                    in units of 2**20 bytes; Linux only
    BLD             the same in units of one (B, L, D) float32 tensor
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from chonn_ops.scan import available_backends, kirchhoff_scan

SHAPES = ((8, 1024, 64, 16), (2, 3136, 192, 1), (4, 4096, 20, 16), (32, 256, 256, 8))
SMOKE_SHAPES = ((2, 64, 16, 4),)
VISIT_MS = 100
RESULTS = Path(__file__).parent / "results" / "scan.json"

HEADER = "| B, L, D, N | scan | forward | x | both | x | peak MB | BLD |\n" + "|---" * 8 + "|"

Scan = Callable[..., Tensor]


def loop(u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    v, out = u.new_zeros(u.shape[0], *decay.shape), []
    for k in range(u.shape[1]):
        retention = torch.exp(-delta[:, k, :, None] * decay)
        inflow = b[:, k, None, :] * u[:, k, :, None]
        v = retention * v + (1 - retention) / decay * inflow
        out.append((c[:, k, None, :] * v).sum(-1))
    return torch.stack(out, dim=1) + d * u


def mambapy_scan(
    u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor
) -> Tensor:
    from mambapy.pscan import pscan

    retention = torch.exp(-delta[..., None] * decay)
    inflow = (1 - retention) / decay * b[:, :, None, :] * u[..., None]
    states = pscan(retention, inflow)
    return (states @ c[..., None])[..., 0] + d * u


def contenders() -> dict[str, Scan]:
    found: dict[str, Scan] = {}
    for name, backend in (("chonn-ops", "cpu"), ("torch", "torch")):
        if backend in available_backends():
            found[name] = lambda *inputs, backend=backend: kirchhoff_scan(*inputs, backend=backend)
    if _version("mambapy"):
        found["mambapy"] = mambapy_scan
    return found | {"loop": loop}


def make_inputs(B: int, L: int, D: int, N: int) -> list[Tensor]:
    torch.manual_seed(0)
    u, step = torch.randn(B, L, D), torch.nn.functional.softplus(torch.randn(B, L, D))
    decay = torch.rand(D, N) * 4 + 0.1
    inputs = [u, step, decay, torch.randn(B, L, N), torch.randn(B, L, N), torch.randn(D)]
    return [tensor.requires_grad_() for tensor in inputs]


def milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def peak_bytes(call: Callable[[], object]) -> int | None:
    """Highest resident memory during the call, above the memory before it."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not clear.exists():
        return None
    ctypes.CDLL(None).malloc_trim(0)
    clear.write_text("5")  # restart the high-water mark
    before = _status_bytes(status, "VmRSS")
    call()
    return _status_bytes(status, "VmHWM") - before


def _status_bytes(status: Path, field: str) -> int:
    (line,) = (line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def measure(shape: tuple[int, ...], rounds: int) -> list[dict[str, object]]:
    inputs = make_inputs(*shape)
    grad = torch.randn(shape[:3])

    def forward(scan: Scan) -> None:
        with torch.no_grad():
            scan(*inputs)

    def both(scan: Scan) -> None:
        torch.autograd.grad(scan(*inputs), inputs, grad)

    calls: dict[tuple[str, str], Callable[[], object]] = {}
    rows = {name: {"shape": list(shape), "name": name} for name in (*contenders(), "exp alone")}
    for name, scan in contenders().items():
        calls[name, "forward_ms"] = lambda scan=scan: forward(scan)
        forward(scan)
        if scan is loop:  # its backward would take most of the run
            continue
        calls[name, "both_ms"] = lambda scan=scan: both(scan)
        both(scan)
        rows[name]["peak_bytes"] = peak_bytes(lambda scan=scan: both(scan))
    step, decay = (tensor.detach() for tensor in inputs[1:3])
    calls["exp alone", "forward_ms"] = lambda: torch.exp(step[..., None] * decay)

    times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            call()
            visit = [milliseconds(call) for _ in range(3)]
            while sum(visit) < VISIT_MS:
                visit.append(milliseconds(call))
            times[key] += visit
    for (name, column), values in times.items():
        rows[name][column] = statistics.median(values)
    ours = rows.get("chonn-ops", {})
    for row in rows.values():
        for column in ("forward_ms", "both_ms"):
            if column in row and column in ours:
                row[column.replace("_ms", "_ratio")] = row[column] / ours[column]
    return list(rows.values())


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = info.read_text().splitlines() if info.exists() else []
    return next((x.split(":")[1].strip() for x in names if x.startswith("model name")),
                platform.processor())  # fmt: skip


def environment(rounds: int) -> dict[str, object]:
    from chonn_ops.scan._cpu import available_isas

    isas = available_isas()
    return {
        "rounds": rounds,
        "visit_ms": VISIT_MS,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "kernel": os.environ.get("CHONN_SCAN_ISA") or (isas[-1] if isas else None),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "numpy", "mambapy")},
    }


def table(rows: list[dict[str, object]], first: bool) -> str:
    def cell(row: dict[str, object], key: str, form: str) -> str:
        value = row.get(key)
        return "-" if value is None else form.format(value)

    lines = [HEADER] if first else []
    for row in rows:
        B, L, D, _ = row["shape"]
        peak = row.get("peak_bytes")
        columns = (
            ", ".join(map(str, row["shape"])),
            str(row["name"]),
            cell(row, "forward_ms", "{:.2f}"),
            cell(row, "forward_ratio", "{:.1f}"),
            cell(row, "both_ms", "{:.2f}"),
            cell(row, "both_ratio", "{:.1f}"),
            "-" if peak is None else f"{peak / 2**20:.1f}",
            "-" if peak is None else f"{peak / (4 * B * L * D):.1f}",
        )
        lines.append("| " + " | ".join(columns) + " |")
    return "\n".join(lines)


def write_whole(path: Path, text: str) -> None:
    """All of the file or none of it, whenever the run stops."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def _shape(text: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.split(","))
    if len(sizes) != 4:
        raise argparse.ArgumentTypeError(f"expected B,L,D,N, got {text!r}")
    return sizes


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=_shape, action="append", help="B,L,D,N; repeatable")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--smoke", action="store_true", help="one tiny shape")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    shapes = options.shape or (SMOKE_SHAPES if options.smoke else SHAPES)
    rows = []
    for shape in shapes:
        measured = measure(shape, options.rounds)
        print(table(measured, first=not rows), flush=True)
        rows += measured
    result = {"environment": environment(options.rounds), "rows": rows}
    write_whole(options.output, json.dumps(result, indent=2) + "\n")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
