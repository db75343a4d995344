"""Section of the GPU benchmark: networks checked against the reference, then timed.

Checks
    Float32: the residual of every network against the tolerance, in float64. Float64: potentials
    and every gradient against backend "reference" on the same inputs, RMS of the error over RMS
    of the truth.

Contenders
    chonn-ops   backend "triton"
    torch       backend "torch"
    torch-sla   its conjugate gradients for a batch of matrices
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _gpu_rates import milliseconds
from _network_sections import expected
from _networks import (
    TOLERANCE,
    Case,
    channels_last,
    make,
    networks_first,
    quality,
    unavoidable_bytes,
)
from _peers import ROUNDINGS
from _solvers import Build, ours, torch_sla_cg
from torch import Tensor

from chonn_ops.network import available_backends, kirchhoff_network

CASES = (
    Case((16, 16), 400),
    Case((64, 64), 400),
    Case((256, 256), 32),
    Case((512, 512), 8),
    Case((32, 32, 32), 32),
    Case((1_000_000,), 4),
)
CHECKS = (
    Case((16, 16), 32),
    Case((63, 64), 16),
    Case((5, 7, 9), 4),
    Case((1000,), 4),
    Case((64, 64), 4, 10_000.0, "field"),
)
TINY_CHECKS = (Case((5, 4), 2), Case((7,), 2))
NAMES = {"triton": "chonn-ops", "torch": "torch"}
EXACT = 1e-12  # tolerance of the solves in float64
EQUAL = 1e-8  # to the reference, in float64


def backends() -> list[str]:
    return [name for name in NAMES if name in available_backends()]


def solved(backend: str, inputs: list[Tensor], tol: float) -> list[Tensor]:
    """Potentials, and gradients of their sum with random signs."""
    source, leak, *conductance = inputs
    v = kirchhoff_network(source, tuple(conductance), leak, tol=tol, backend=backend)
    generator = torch.Generator().manual_seed(1)
    signs = torch.randint(0, 2, v.shape, generator=generator) * 2.0 - 1.0
    return [v, *torch.autograd.grad(v, inputs, signs.to(v))]


def check_networks(device: str, cases: tuple[Case, ...]) -> Iterator[dict[str, Any]]:
    for case in cases:
        networks = make(case, device)
        single = channels_last(networks)
        double = [t.detach().double().requires_grad_() for t in single]
        host = [t.detach().cpu().requires_grad_() for t in double]
        truth = solved("reference", host, EXACT)
        for backend in backends():
            source, leak, *conductance = single
            with torch.no_grad():
                v = kirchhoff_network(
                    source, tuple(conductance), leak, tol=TOLERANCE, backend=backend
                )
            found = quality(networks, networks_first(v))
            actual = solved(backend, double, EXACT)
            pairs = zip(actual, truth, strict=True)
            ratio = max(((a.cpu() - t).norm() / t.norm()).item() for a, t in pairs)
            within = found["residual"] <= TOLERANCE + ROUNDINGS * found["rounding"]
            passed = within and ratio <= EQUAL
            yield {**case.label(), "backend": backend, **found, "rms_ratio": ratio,
                   "passed": passed}  # fmt: skip


def contenders() -> dict[str, Build]:
    return {NAMES[name]: ours(name) for name in backends()} | {"torch-sla": torch_sla_cg}


def measure_networks(rates: dict[str, float], rounds: int) -> Iterator[dict[str, Any]]:
    """Times, peaks, the floor in bytes and what was expected of our kernels, a case at a time."""
    for case in CASES:
        networks = make(case, "cuda")
        rows: dict[str, dict[str, Any]] = {}
        calls: dict[tuple[str, str], Callable[[], object]] = {}
        for name, build in contenders().items():
            row = rows[name] = {"name": name}
            try:
                solver = build(networks)
                row |= quality(networks, solver.forward())
                row |= {"iterations": max(solver.iterations())} if solver.iterations else {}
                solver.both()
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                solver.both()
                row["peak_bytes"] = torch.cuda.max_memory_allocated() - before
            except Exception as error:  # a contender may be missing or not take this case
                row["error"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
                torch.cuda.empty_cache()
                continue
            calls |= {(name, "forward"): solver.forward, (name, "both"): solver.both}
        for (name, column), times in milliseconds(calls, rounds).items():
            rows[name][f"{column}_ms"] = statistics.median(times)
        floors = {
            f"{column}_bytes_ms": count / rates["bytes_per_s"] * 1e3
            for column, count in unavoidable_bytes(case).items()
        }
        for row in rows.values():
            for column in ("forward", "both"):
                if f"{column}_ms" in row:
                    floor = floors[f"{column}_bytes_ms"]
                    row[f"{column}_x_floor"] = row[f"{column}_ms"] / floor
        first = next(iter(rows.values()))
        guess = expected(case, first.get("iterations") or 1)
        label = {**case.label(), "expected_ms": round(guess["forward_ms"], 4)}
        yield {**label, "floors": floors, "rows": list(rows.values())}
