"""Scan and networks on a CUDA GPU: checked, then timed beside peers and the limits of the card.

    python benchmarks/gpu.py               needs CUDA; writes benchmarks/results/gpu.json
    python benchmarks/gpu.py --interpret   tiny checks alone, by Triton's interpreter on the CPU
    python benchmarks/gpu.py --only network --output runs/gpu.json   one of scan, network

The networks' part is `_gpu_networks.py`; what follows is the scan's.

Checks
    Output and every gradient of backend "triton", float32 and bfloat16, against backend "torch" in
    float64 on the same inputs, by the tolerances of the tests: RMS of the error over RMS of the
    truth. Nothing is timed if one fails.

Contenders
    chonn-ops   backend "triton", as a user calls it
    torch       backend "torch"; not for lines above 20,000 steps, which it takes one by one
    mamba-ssm   `selective_scan_fn`, in its own layout (B, D, L); float32 decay, Euler injection
    mambapy     `pscan` on materialised (B, L, D, N) coefficients
    Fields: the peers have none; "torch" walks copies.

Columns
    forward, both   _ms, medians of CUDA events; without autograd, and with gradients of
                    all inputs
    _x_floor        over the larger of two times, by rates of this run: the tensors that must move
                    over the rate of a copy in the card's memory (no floor for tensors that stay in
                    its cache), and one exponential a state, axis and pass (both ways of a line
                    could share it) over the rate of 2^x
    peak_MiB        on the card during forward and backward, above those before
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _floors import unavoidable_bytes
from _gpu_networks import CHECKS as NETWORK_CHECKS
from _gpu_networks import TINY_CHECKS as TINY_NETWORK_CHECKS
from _gpu_networks import check_networks, measure_networks
from _gpu_rates import measure_rates, milliseconds
from _harness import FOLDER, environment, show, version, write_result
from _scans import both_call, forward_call, make_inputs, mambapy_scan
from torch import Tensor

SHAPES = (
    ((8, 4096, 1536, 16), torch.bfloat16),
    ((8, 1024, 64, 16), torch.float32),
    ((2, 3136, 192, 1), torch.float32),
    ((1, 1_000_000, 16, 16), torch.float32),
)
FIELDS = (("cross", "matched"), ("axial", "matched"), ("axial", "ring"), ("axial", "open"))
FIELD = (4, (128, 128), 64, 16)
CHECKS = (((2, 200, 20, 16), ()), ((1, 1000, 16, 16), ()), ((2, 2700, 20, 16), (9, 300)))
TINY_CHECKS = (((1, 5, 3, 2), ()), ((1, 6, 2, 2), (2, 3)))
FIELD_CHECKS: tuple[dict[str, str], ...] = (
    {"directions": "cross", "termination": "matched"},
    {"directions": "axial", "termination": "ring"},
    {"directions": "bidirectional", "termination": "open"},
)
# As in tests/scan/scan_cases.py.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 6e-3}
LONGEST_FOR_TORCH = 20_000
COLUMNS = ("name", "forward_ms", "forward_x_floor", "both_ms", "both_x_floor", "peak_bytes")

Scan = Callable[..., Tensor]


def ours(backend: str, **modes: str) -> Scan:
    from chonn_ops import kirchhoff_scan
    from chonn_ops.scan import scan_field

    scan: Any = scan_field if modes else kirchhoff_scan
    return lambda *inputs: scan(*inputs, backend=backend, **modes)


def leaves(tensors: list[Tensor], device: str, dtype: torch.dtype | None = None) -> list[Tensor]:
    return [t.detach().to(device, dtype).requires_grad_() for t in tensors]


def results(scan: Scan, inputs: list[Tensor]) -> list[Tensor]:
    """Output and gradients of its sum with random signs."""
    y = scan(*inputs)
    generator = torch.Generator().manual_seed(1)
    signs = torch.randint(0, 2, y.shape, generator=generator) * 2.0 - 1.0
    return [y, *torch.autograd.grad(y, inputs, signs.to(y))]


def check(device: str, cases: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """The largest RMS ratio of each case, and whether it is within the tolerance."""
    for shape, grid in cases:
        for modes in FIELD_CHECKS[: 1 if device == "cpu" else None] if grid else ({},):
            for dtype, tolerance in TOLERANCE.items():
                inputs = leaves(make_inputs(shape, dtype, grid), device)
                actual = results(ours("triton", **modes), inputs)
                exact = leaves(inputs, device, torch.float64)
                truth = results(ours("torch", **modes), exact)
                pairs = zip(actual, truth, strict=True)
                ratio = max((a.double() - t).norm().item() / t.norm().item() for a, t in pairs)
                row = {"shape": [*shape], "grid": [*grid], **modes, "dtype": str(dtype)[6:]}
                yield row | {"rms_ratio": ratio, "passed": ratio <= tolerance}


def mamba_scan(inputs: list[Tensor]) -> tuple[Scan, list[Tensor]] | None:
    """mamba-ssm's scan with inputs in its own layout."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError:
        return None
    u, delta, decay, b, c, d = (t.detach() for t in inputs)
    turned = [t.transpose(1, 2).contiguous() for t in (u, delta, b, c)]
    return selective_scan_fn, leaves([*turned[:2], -decay, *turned[2:], d], "cuda")


def contenders(inputs: list[Tensor], length: int) -> dict[str, tuple[Scan, list[Tensor]]]:
    found = {"chonn-ops": (ours("triton"), inputs)}
    if length <= LONGEST_FOR_TORCH:
        found["torch"] = (ours("torch"), inputs)
    mamba = mamba_scan(inputs)
    if mamba:
        found["mamba-ssm"] = mamba
    if version("mambapy"):
        found["mambapy"] = (mambapy_scan, inputs)
    return found


def measure(
    label: dict[str, Any],
    shape: tuple[int, ...],
    found: dict[str, tuple[Scan, list[Tensor]]],
    rates: dict[str, float],
    axes: int,
    rounds: int,
) -> dict[str, Any]:
    """Times, peaks and ratios of one shape's contenders."""
    rows: dict[str, dict[str, Any]] = {name: {"name": name} for name in found}
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for name, (scan, inputs) in found.items():
        both = both_call(scan, inputs)
        try:
            both()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            both()
            rows[name]["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        except (torch.OutOfMemoryError, RuntimeError) as error:  # a peer may not take this shape
            if name == "chonn-ops":
                raise
            rows[name]["error"] = str(error).splitlines()[0]
            torch.cuda.empty_cache()
            continue
        calls[name, "forward"] = forward_call(scan, inputs)
        calls[name, "both"] = both
    for (name, column), times in milliseconds(calls, rounds).items():
        rows[name][f"{column}_ms"] = statistics.median(times)
    itemsize = found["chonn-ops"][1][0].element_size()
    states = math.prod(shape) * axes
    floors: dict[str, float] = {}
    for column, passes in (("forward", 1), ("both", 2)):
        moved = unavoidable_bytes(shape, itemsize)[column] / rates["bytes_per_s"] * 1e3
        exponentials = passes * states / rates["exp_per_s"] * 1e3
        floors |= {f"{column}_bytes_ms": moved, f"{column}_exp_ms": exponentials}
        for row in rows.values():
            if f"{column}_ms" in row:
                row[f"{column}_x_floor"] = row[f"{column}_ms"] / max(moved, exponentials)
    return {**label, "floors": floors, "rows": list(rows.values())}


def measure_all(rates: dict[str, float], rounds: int) -> Iterator[dict[str, Any]]:
    for shape, dtype in SHAPES:
        inputs = leaves(make_inputs(shape, dtype), "cuda")
        label = {"shape": [*shape], "dtype": str(dtype)[6:]}
        yield measure(label, shape, contenders(inputs, shape[1]), rates, 1, rounds)
    batch, grid, channels, states = FIELD
    shape = (batch, math.prod(grid), channels, states)
    for directions, termination in FIELDS:
        modes = {"directions": directions, "termination": termination}
        inputs = leaves(make_inputs(shape, torch.float32, grid), "cuda")
        found = {
            name: (ours(b, **modes), inputs)
            for name, b in (("chonn-ops", "triton"), ("torch", "torch"))
        }
        if directions == "cross":
            del found["torch"]  # as with long lines
        label = {"shape": [batch, *grid, channels, states], "dtype": "float32", **modes}
        yield measure(label, shape, found, rates, len(grid), rounds)


def show_section(section: dict[str, Any]) -> None:
    title = " ".join(str(v) for k, v in section.items() if k not in ("floors", "rows"))
    floors = "; ".join(f"{name[:-3]} {value:.3f} ms" for name, value in section["floors"].items())
    print(f"\n{title}\nfloors: {floors}")
    show(section["rows"], *COLUMNS)


def hardware() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    query = [
        "nvidia-smi",
        "--query-gpu=driver_version,clocks.max.sm",
        "--format=csv,noheader",
        "-i",
        "0",
    ]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        driver = None
    return {
        "gpu": properties.name,
        "processors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "driver_and_clock": driver,
        "cuda": torch.version.cuda,
    }


def all_checks(device: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    tiny = options.interpret
    if options.only != "network":
        yield from check(device, TINY_CHECKS if tiny else CHECKS)
    if options.only != "scan":
        yield from check_networks(device, TINY_NETWORK_CHECKS if tiny else NETWORK_CHECKS)


def all_sections(rates: dict[str, float], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if options.only != "network":
        yield from measure_all(rates, options.rounds)
    if options.only != "scan":
        yield from measure_networks(rates, options.rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="three timed calls each")
    parser.add_argument("--interpret", action="store_true", help="tiny checks without a GPU")
    parser.add_argument("--only", choices=("scan", "network"), help="needs another --output")
    parser.add_argument("--output", type=Path, default=FOLDER / "results" / "gpu.json")
    options = parser.parse_args()
    if options.only and not options.interpret and options.output == parser.get_default("output"):
        parser.error(f"expected another --output than {options.output} for a part of the run")
    if options.rounds < 3:
        parser.error(f"--rounds: expected at least 3, for medians of 9 calls, got {options.rounds}")
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
    elif not torch.cuda.is_available():
        print(
            "gpu.py: expected a CUDA GPU, found none (--interpret checks without)", file=sys.stderr
        )
        return 1
    device = "cpu" if options.interpret else "cuda"
    checks = []
    for row in all_checks(device, options):
        checks.append(row)
        print("ok  " if row["passed"] else "FAIL", row)
    if not all(row["passed"] for row in checks):
        print("gpu.py: results are outside the tolerance; nothing timed", file=sys.stderr)
        return 1
    if options.interpret:
        return 0
    rates = measure_rates(options.rounds)
    print(f"copy {rates['bytes_per_s'] / 1e12:.2f} TB/s, 2^x {rates['exp_per_s'] / 1e12:.2f} T/s")
    sections = []
    for section in all_sections(rates, options):
        sections.append(section)
        show_section(section)
    options.visit_ms, options.smoke = None, False
    packages = ("triton", "mamba-ssm", "mambapy", "torch-sla")
    about = {**environment(options, packages), **hardware()}
    result = {"environment": about, "rates": rates, "checks": checks, "sections": sections}
    write_result(options.output, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
