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
    timed_networks  how many the times were taken of and scaled from
    forward, both   _ms: without autograd; of forward and backward for all inputs
    _ratio          that time over the time of the first row
    _ns             of a node of a network
    _floors         that time over the time in which the inputs can be read and the outputs written
    residual        of the worst network, relative, in float64; it holds up to the tolerance with
                    four times what rounding the potentials to float32 leaves
"""

from __future__ import annotations

from typing import Any

from _harness import (
    Turns,
    arguments,
    environment,
    show,
    show_growth,
    start,
    write_result,
)
from _network_sections import (
    GROWN,
    MEMORY,
    MEMORY_NAMES,
    SERIES,
    SMOKE_MEMORY,
    SMOKE_SERIES,
    expected,
    measure_growth,
    measure_memory,
)
from _networks import TOLERANCE, Case
from _peers import Bench
from _solvers import JACOBI, OURS, contenders

from chonn_ops._files import write_json

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
COLUMNS = (
    *("name", "timed_networks", "forward_ms", "forward_ratio", "forward_ns", "forward_floors"),
    *("both_ms", "both_ratio", "both_ns", "both_floors", "iterations", "residual", "holds"),
)
EXPECTED = ("bytes_ms", "forward_ms", "both_ms")


def contrast_cases(smoke: bool) -> list[Case]:
    if smoke:
        return [Case((8, 8), 2, contrast, r) for contrast in (1.0, 100.0) for r in REGIONS]
    return [
        Case(grid, CONTRAST_NETWORKS, contrast, regions)
        for grid in CONTRAST_GRIDS
        for regions in REGIONS
        for contrast in CONTRASTS
    ]


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


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "network", SECTIONS), given)
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
        bench.turns = Turns(min(CONTRAST_ROUNDS, options.rounds), options.visit_ms)
        for case in contrast_cases(options.smoke):
            names = (name, JACOBI) if case.nodes <= LARGE_NODES else (name,)
            measured("contrast", bench.measure(case, ("forward",), names, CONTRAST_LIMIT))
        bench.turns = turns
    if "growth" in sections:
        result["growth"] = measure_growth(bench, SMOKE_SERIES if options.smoke else SERIES, name)
        show_growth(result["growth"], "grid", *GROWN)
        write_json(unfinished, result)
    if "memory" in sections:
        cases = SMOKE_MEMORY if options.smoke else MEMORY
        chosen = [name for name in MEMORY_NAMES if name in found]
        result["memory"] = measure_memory(cases, chosen, notes)
        show(result["memory"], "networks", "grid", "name", "peak_bytes", "peak_fields")
        write_json(unfinished, result)
    if "gpu" in sections:
        result["gpu"] = measure_gpu(result.get("peers", []), options.smoke)
        print("expected of an H200, not measured")
        show(result["gpu"], "networks", "grid", "way", "iterations", "launches", *EXPECTED)
    for note in notes:
        print(f"note: {note}")
    write_result(options.output, result)
    unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
