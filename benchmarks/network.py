"""Time, memory and iterations of the network operator on the CPU, beside its peers, in one run.

Sections: peers (every solver at each size), contrast (iterations and residuals), growth with the
number of nodes, memory, and what a GPU should take. Networks are random, the same for all.

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
    forward, both   milliseconds without autograd; of forward and backward for all inputs. "~":
                    timed on fewer networks and scaled
    x               that time over the time of the first row
    ns              of a node of a network
    floors          that time over the time in which the inputs can be read and the outputs written
    residual        of the worst network, relative, in float64; "!" above the tolerance with four
                    times what rounding the potentials to float32 leaves
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from _harness import (
    Turns,
    arguments,
    cell,
    environment,
    start,
    table,
    write_result,
    write_whole,
)
from _network_gpu import expected
from _network_growth import (
    MEMORY,
    MEMORY_NAMES,
    SERIES,
    SMOKE_MEMORY,
    SMOKE_SERIES,
    growth_table,
    measure_growth,
    measure_memory,
    memory_table,
)
from _networks import TOLERANCE, Case
from _peers import Bench
from _solvers import JACOBI, OURS, contenders

SECTIONS = ("peers", "contrast", "growth", "memory", "gpu")
PEER_CASES = (
    Case((16, 16), 400),
    Case((32, 32), 400),
    Case((64, 64), 400),
    Case((128, 128), 64),
    Case((256, 256), 32),
    Case((512, 512), 8),
    Case((32, 32, 32), 32),
    Case((1_000,), 400),
    Case((10_000,), 64),
    Case((100_000,), 16),
    Case((1_000_000,), 4),
)
SMOKE_PEER_CASES = (Case((8, 8), 4), Case((4, 5, 3), 2), Case((20,), 2))
CONTRASTS = (1.0, 100.0, 10_000.0)
REGIONS = ("inclusions", "field")
CONTRAST_GRIDS = (*((n, n) for n in (16, 32, 64, 128, 256, 512)), (32, 32, 32))
CONTRAST_NETWORKS = 16
CONTRAST_ROUNDS = 3  # of many cases, which are there for their iterations
LARGE_NODES = 128**2  # above, Jacobi-CG takes too long at high contrast
CONTRAST_LIMIT = 0.1  # share of a peer's time
GPU_CASES = (
    Case((16, 16), 400),
    Case((64, 64), 400),
    Case((256, 256), 32),
    Case((512, 512), 8),
    Case((32, 32, 32), 32),
)
SMOKE_GPU_CASES = (Case((16, 16), 4), Case((256, 256), 2))
ITERATIONS_WITHOUT = 12  # of an expected time whose case has not run: the most allowed
HEADER = [
    *("networks", "solver", "forward", "x", "ns", "floors", "both", "x", "ns", "floors"),
    *("iterations", "residual"),
]


def contrast_cases(smoke: bool) -> list[Case]:
    if smoke:
        return [Case((8, 8), 2, contrast, r) for contrast in (1.0, 100.0) for r in REGIONS]
    return [
        Case(grid, CONTRAST_NETWORKS, contrast, regions)
        for grid in CONTRAST_GRIDS
        for regions in REGIONS
        for contrast in CONTRASTS
    ]


def title(section: dict[str, Any]) -> str:
    return f"{section['networks']} of {'x'.join(map(str, section['grid']))}"


def residual_cell(row: dict[str, Any]) -> str:
    return cell(row, "residual", "{:.1e}") + ("" if row.get("holds", True) else " !")


def section_table(section: dict[str, Any]) -> str:
    cells = []
    for row in section["rows"]:
        line = [title(section), row["name"]]
        for column in ("forward", "both"):
            scaled = row["timed_networks"].get(column, section["networks"]) < section["networks"]
            mark = "~" if scaled else ""
            line += [
                mark + cell(row, f"{column}_ms", "{:.2f}"),
                cell(row, f"{column}_ratio", "{:.1f}"),
                cell(row, f"{column}_ns", "{:.1f}"),
                cell(row, f"{column}_floors", "{:.0f}"),
            ]
        cells.append([*line, cell(row, "iterations", "{:d}"), residual_cell(row)])
    lower = ", ".join(f"{c} {x['bytes_ms']:.3f} ms" for c, x in section["floors"].items())
    kind = f"contrast {section['contrast']:g}, {section['regions']}"
    return f"{table(HEADER, cells)}\n{kind}; floors: {lower}\n"


def measure_gpu(peers: list[dict[str, Any]], smoke: bool) -> list[dict[str, Any]]:
    """Expected times with the iterations that this run counted on the same networks."""
    counted = {
        tuple(section["grid"]): section["rows"][0].get("iterations")
        for section in peers
        if section["rows"]
    }
    return [
        expected(case, counted.get(case.grid) or ITERATIONS_WITHOUT)
        for case in (SMOKE_GPU_CASES if smoke else GPU_CASES)
    ]


def gpu_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        [
            title(row),
            row["way"],
            str(row["iterations"]),
            str(row["launches"]),
            *(f"{row[key]:.3f}" for key in ("bytes_ms", "forward_ms", "both_ms")),
        ]
        for row in rows
    ]
    header = ["networks", "way", "iterations", "launches", "bytes ms", "forward ms", "both ms"]
    return table(header, lines)


def _options(given: list[str] | None) -> argparse.Namespace:
    parser = arguments((__doc__ or "").splitlines()[0], "network")
    parser.add_argument(
        "--only", choices=SECTIONS, action="append", help="sections; needs another --output"
    )
    options = parser.parse_args(given)
    whole: Path = parser.get_default("output")
    if options.output == whole and (options.only or options.smoke):
        parser.error(f"expected another --output than {whole} for a part of the run")
    return options


def main(given: list[str] | None = None) -> None:
    options = _options(given)
    start(options)
    turns = Turns(options.rounds, options.visit_ms)
    notes: list[str] = []
    found = contenders(notes)
    bench = Bench(found, turns, notes)
    name = next(name for name in OURS.values() if name in found)
    packages = ["scipy", "pyamg", "torch-sla"]
    result: dict[str, Any] = {"environment": environment(options, packages), "notes": notes}
    result["tolerance"] = TOLERANCE
    # What is there when a run stops lies beside the results of the last whole one.
    unfinished = options.output.with_suffix(".unfinished.json")

    def section(name: str) -> bool:
        return not options.only or name in options.only

    def show(text: str) -> None:
        print(text, flush=True)
        write_whole(unfinished, result)

    if section("peers"):
        result["peers"] = []
        for case in SMOKE_PEER_CASES if options.smoke else PEER_CASES:
            result["peers"].append(bench.measure(case))
            show(section_table(result["peers"][-1]))
    if section("contrast"):
        result["contrast"] = []
        bench.turns = Turns(min(CONTRAST_ROUNDS, options.rounds), options.visit_ms)
        for case in contrast_cases(options.smoke):
            names = (name, JACOBI) if case.nodes <= LARGE_NODES else (name,)
            measured = bench.measure(case, ("forward",), names, CONTRAST_LIMIT)
            result["contrast"].append(measured)
            show(section_table(measured))
        bench.turns = turns
    if section("growth"):
        series = SMOKE_SERIES if options.smoke else SERIES
        result["growth"] = measure_growth(bench, series, name)
        show(growth_table(result["growth"]) + "\n")
    if section("memory"):
        cases = SMOKE_MEMORY if options.smoke else MEMORY
        chosen = [name for name in MEMORY_NAMES if name in found]
        result["memory"] = measure_memory(cases, chosen, notes)
        show(memory_table(result["memory"]) + "\n")
    if section("gpu"):
        result["gpu"] = measure_gpu(result.get("peers", []), options.smoke)
        show(f"expected of an H200, not measured\n{gpu_table(result['gpu'])}\n")
    for note in notes:
        print(f"note: {note}")
    write_result(options.output, result)
    unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
