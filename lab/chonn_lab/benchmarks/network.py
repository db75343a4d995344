"""Time, memory and iterations of the network operator on the CPU, beside its peers, in one run.

Sections: peers (every solver at each size), contrast (iterations and residuals), growth with the
number of nodes. Networks are random, the same for all.

Contenders
    chonn-ops      `kirchhoff_network`, backend "cpu", as a user calls it
    torch          `kirchhoff_network`, backend "torch" (the fallback without a compiler)
    Jacobi-CG      ``jacobi_cg.c``: conjugate gradients with Jacobi's preconditioner in C
    torch-sla      its conjugate gradients for a batch of matrices
    pyamg          Ruge-Stueben multigrid with conjugate gradients, one network after another; its
                   hierarchies set up in the call, or "cached": set up before it
    spsolve        SciPy's direct solve in float64, one network after another
    solve_banded   the same for lines
    linalg.solve   `torch.linalg.solve` of dense matrices, up to 256 nodes

Columns
    timed_networks  how many the times were taken of and scaled from
    forward, both   _ms: without autograd; of forward and backward for all inputs
    _ratio          that time over the time of the first row
    _ns             of a node of a network
    _floors         that time over the time in which the inputs can be read and the outputs written
    residual        of the worst network, relative, in float64; it holds up to the tolerance with
                    four times what rounding the potentials to float32 leaves
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from chonn_lab.benchmarks.floors import moving_calls, moving_floor
from chonn_lab.benchmarks.harness import (
    Call,
    Turns,
    add_ratios,
    arguments,
    environment,
    fill,
    fresh_peak,
    milliseconds,
    show,
    show_growth,
    slope,
    start,
    write_result,
)
from chonn_lab.benchmarks.network_solvers import (
    CHANNELS,
    JACOBI,
    OURS,
    ROUNDINGS,
    TOLERANCE,
    Build,
    Case,
    Networks,
    NotFitting,
    Solver,
    contenders,
    make,
    prepare_both,
    quality,
    unavoidable_bytes,
)
from chonn_ops.files import write_json

# A contender is timed on as many networks as take so long in one call.
CALL_MS = 300.0
# A contender that takes longer for one network is left out.
TOO_LONG_MS = 10_000.0


class Bench:
    """Contenders, turns and limits of a run; notes of what was left out."""

    def __init__(self, found: Mapping[str, Build], turns: Turns, notes: list[str]) -> None:
        self.found, self.turns, self.notes = dict(found), turns, notes
        tiny = make(Case((4, 4), 2))
        for build in self.found.values():  # loads what contenders import at their first call
            with contextlib.suppress(Exception):
                build(tiny).both()

    def measure(
        self,
        case: Case,
        columns: tuple[str, ...] = ("forward", "both"),
        names: tuple[str, ...] | None = None,
    ) -> dict[str, Any]:
        """A row for each contender, all by default, and the floors.

        Times are scaled to all networks from as many as take `CALL_MS`.
        """
        networks = make(case)
        rows: dict[str, dict[str, Any]] = {}
        calls: dict[tuple[str, str], Call] = {}
        for name in self.found if names is None else [n for n in names if n in self.found]:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what did not converge shows in its residual
                    count, solver = fitting(self.found[name], networks)
                    v = solver.forward()
                    if "both" in columns:
                        solver.both()
            except NotFitting:
                continue
            except Exception as failure:
                text = str(failure).partition("\n")[0]
                where = "x".join(map(str, case.grid))
                kind = type(failure).__name__
                self.notes.append(f"{name} left out at {where}: {kind}: {text}")
                continue
            rows[name] = {
                "name": name,
                "timed_networks": dict.fromkeys(columns, count),
                **judged(networks.first(count), v, solver),
            }
            calls[name, "forward"] = solver.forward
            if "both" in columns:
                calls[name, "both"] = solver.both
        counts = {c: n for c, n in unavoidable_bytes(case).items() if c in columns}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times = self.turns.times({**calls, **moving_calls(counts)})
        limits = {column: moving_floor(column, n, times) for column, n in counts.items()}
        for (name, column), values in times.items():
            if name in rows:
                scale = case.networks / rows[name]["timed_networks"][column]
                fill(rows, {(name, column): [value * scale for value in values]})
        if rows:
            add_ratios(rows, next(iter(rows)), columns)
        for row in rows.values():
            for column in columns:
                ms = row[f"{column}_ms"]
                row[f"{column}_floors"] = ms / limits[column]["bytes_ms"]
                row[f"{column}_ns"] = ms * 1e6 / (case.networks * case.nodes)
        return {**case.label(), "floors": limits, "rows": list(rows.values())}


def fitting(build: Build, networks: Networks) -> tuple[int, Solver]:
    """As many of the networks as a contender solves in `CALL_MS`, and its solver for them.

    Raises
    ------
    TimeoutError
        If one network takes longer than `TOO_LONG_MS`.
    """
    count = min(CHANNELS, len(networks))
    solver = build(networks.first(1))
    if (first := milliseconds(solver.forward)) > TOO_LONG_MS:
        raise TimeoutError(f"{first / 1e3:.0f} s for one network")
    if first * count < CALL_MS:
        # Many at once take less each.
        first = milliseconds(build(networks.first(count)).forward) / count
    count = max(1, min(len(networks), int(CALL_MS / first)))
    count -= count % CHANNELS if count > CHANNELS else 0
    return count, build(networks.first(count))


def judged(networks: Networks, v: torch.Tensor, solver: Solver) -> dict[str, Any]:
    """Residual of the worst network, whether it holds, and iterations."""
    found: dict[str, Any] = quality(networks, v)
    found["holds"] = found["residual"] <= TOLERANCE + ROUNDINGS * found["rounding"]
    if solver.iterations:
        counts = solver.iterations()
        found |= {"iterations": max(counts), "mean_iterations": sum(counts) / len(counts)}
    return found


LEAST_BYTES = 1 << 20
# Name and cases; sixteen networks, a vector of channels.
SERIES = (
    ("1-D", tuple(Case((n,), 16) for n in (1_000, 10_000, 100_000, 1_000_000))),
    ("2-D", tuple(Case((n, n), 16) for n in (16, 32, 64, 128, 256, 512))),
    ("3-D", tuple(Case((n, n, n), 16) for n in (8, 16, 32, 64))),
)
SMOKE_SERIES = (("2-D", tuple(Case((n, n), 2) for n in (8, 16))),)
GROWN = ("forward_ms", "both_ms", "both_peak_bytes", "iterations")


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


SECTIONS = ("peers", "contrast", "growth")
PEER_CASES = (
    Case((16, 16), 400),
    Case((64, 64), 400),
    Case((256, 256), 32),
    Case((32, 32, 32), 32),
    Case((1_000,), 400),
    Case((100_000,), 16),
)
SMOKE_PEER_CASES = (Case((8, 8), 4), Case((4, 5, 3), 2), Case((20,), 2))
CONTRASTS = (1.0, 100.0, 10_000.0)
REGIONS = ("inclusions", "field")
CONTRAST_GRIDS = (*((n, n) for n in (64, 256, 512)), (32, 32, 32))
CONTRAST_NETWORKS = 16
CONTRAST_ROUNDS = 3  # of many cases, which are there for their iterations
LARGE_NODES = 128**2  # above, Jacobi-CG takes too long at high contrast
COLUMNS = (
    *("name", "timed_networks", "forward_ms", "forward_ratio", "forward_ns", "forward_floors"),
    *("both_ms", "both_ratio", "both_ns", "both_floors", "iterations", "residual", "holds"),
)


def contrast_cases(smoke: bool) -> list[Case]:
    if smoke:
        return [Case((8, 8), 2, contrast, r) for contrast in (1.0, 100.0) for r in REGIONS]
    return [
        Case(grid, CONTRAST_NETWORKS, contrast, regions)
        for grid in CONTRAST_GRIDS
        for regions in REGIONS
        for contrast in CONTRASTS
    ]


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "network", SECTIONS), given)
    turns = Turns(options.rounds, options.visit_ms, least=1)
    notes: list[str] = []
    found = contenders(notes)
    bench = Bench(found, turns, notes)
    name = next(name for name in OURS.values() if name in found)
    packages = ["scipy", "pyamg", "torch-sla"]
    result: dict[str, Any] = {"environment": environment(options, packages), "notes": notes}
    result["tolerance"] = TOLERANCE
    # What is there when a run stops lies beside the results of the last whole one.
    unfinished = options.output.with_suffix(".unfinished.json")
    sections = options.only or SECTIONS

    def measured(key: str, section: dict[str, Any]) -> None:
        result[key].append(section)
        show([section], "networks", "grid", "contrast", "regions")
        show(section["rows"], *COLUMNS)
        write_json(unfinished, result)

    if "peers" in sections:
        result["peers"] = []
        for case in SMOKE_PEER_CASES if options.smoke else PEER_CASES:
            measured("peers", bench.measure(case))
    if "contrast" in sections:
        result["contrast"] = []
        bench.turns = Turns(min(CONTRAST_ROUNDS, options.rounds), options.visit_ms, least=1)
        for case in contrast_cases(options.smoke):
            names = (name, JACOBI) if case.nodes <= LARGE_NODES else (name,)
            measured("contrast", bench.measure(case, ("forward",), names))
        bench.turns = turns
    if "growth" in sections:
        result["growth"] = measure_growth(bench, SMOKE_SERIES if options.smoke else SERIES, name)
        show_growth(result["growth"], "grid", *GROWN)
        write_json(unfinished, result)
    for note in notes:
        print(f"note: {note}")
    write_result(options.output, result)
    unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
