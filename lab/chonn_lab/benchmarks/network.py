"""Time of the network operator on the CPU, beside its peers, in one run.

Sections: peers (all networks of a case), methods (one network), sources (many on one network).
Networks are those of `network_solvers`, the same for all.

Contenders
    chonn-ops      `kirchhoff_network`, backend "cpu", as a user calls it
    torch          `kirchhoff_network`, backend "torch" (the fallback without a compiler)
    direct, auto, multigrid     `kirchhoff_network` with this method
    Jacobi-CG      ``jacobi_cg.c``: conjugate gradients with Jacobi's preconditioner in C
    torch-sla      its conjugate gradients for a batch of matrices
    pyamg          Ruge-Stueben multigrid with conjugate gradients, one network after another; its
                   hierarchies set up in the call, or "cached": set up before it
    spsolve        SciPy's sparse LU in float64, one network after another
    solve_banded   the same for lines

Columns
    timed_networks  how many the times were taken of and scaled from
    forward, both   _ms: without autograd; of forward and backward for all inputs
    _ratio          that time over the time of the first row
    error           of potentials, over the largest one of the elimination in float64
    held_bytes      of the factors
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import Row, Run, main_of, milliseconds
from chonn_lab.benchmarks.network_solvers import (
    CHANNELS,
    CONTENDERS,
    TOLERANCE,
    Case,
    Networks,
    Solver,
    banded,
    make,
    ours,
    pyamg,
    spsolve,
)
from chonn_ops import kirchhoff_network
from chonn_ops.network.direct import Factor

# A contender is timed on as many networks as take so long in one call.
CALL_MS = 300.0
# A contender that takes longer for one network is left out.
TOO_LONG_MS = 10_000.0
CHECKED = 4  # networks whose potentials are compared
PEERS = (
    Case((16, 16), 400),
    Case((64, 64), 400),
    Case((256, 256), 32),
    Case((32, 32, 32), 32),
    Case((1_000,), 400),
    Case((100_000,), 16),
)
SMOKE_PEERS = (Case((8, 8), 4), Case((4, 5, 3), 2), Case((20,), 2))
METHODS: dict[str, Callable[[Networks], Solver]] = {
    **{name: functools.partial(ours, method=name) for name in ("direct", "auto", "multigrid")},
    "spsolve": spsolve,
    "pyamg": pyamg,
}
MEDIA = {1e2: "smooth", 1e4: "binary noise"}  # by contrast

Builds = Mapping[str, Callable[[Networks], Solver]]


def fitting(build: Callable[[Networks], Solver], networks: Networks) -> tuple[int, Solver]:
    """As many of the networks as a contender solves in `CALL_MS`, and its solver for them.

    Raises
    ------
    TimeoutError
        If one network takes longer than `TOO_LONG_MS`.
    """

    def first(count: int) -> Solver:
        return build(networks.map(lambda field: field[:count]))

    count = min(CHANNELS, len(networks))
    each = milliseconds(first(1).forward)
    if each > TOO_LONG_MS:
        raise TimeoutError(f"{each / 1e3:.0f} s for one network")
    if each * count < CALL_MS:  # many at once take less each
        each = milliseconds(first(count).forward) / count
    count = max(1, min(len(networks), int(CALL_MS / each)))
    count -= count % CHANNELS if count > CHANNELS else 0
    return count, first(count)


def measure(
    run: Run, networks: Networks, builds: Builds, label: dict[str, Any], per: int
) -> dict[str, Any]:
    """Rows of contenders for `per` of the networks."""
    checked = networks.map(lambda field: field[:CHECKED].double())
    truth = ours(checked, method="direct").forward()

    def contender(build: Callable[[Networks], Solver]) -> Row:
        count, made = fitting(build, networks)
        made.both()
        found = made.forward()[:CHECKED].reshape(-1, *networks.grid)
        error = (found.double() - truth[: len(found)]).abs().amax() / truth.abs().amax()
        calls = {"forward": made.forward, "both": made.both}
        about = {"timed_networks": count, "error": float(error), **made.about}
        return {**about, "calls": calls, "scale": per / count}

    makes = {name: functools.partial(contender, build) for name, build in builds.items()}
    return run.section(makes, **label)


def peers(run: Run) -> list[dict[str, Any]]:
    found = []
    for case in SMOKE_PEERS if run.smoke else PEERS:
        builds = CONTENDERS | ({"solve_banded": banded} if len(case.grid) == 1 else {})
        found.append(measure(run, make(case), builds, case.label(), case.networks))
    return found


def methods(run: Run) -> list[dict[str, Any]]:
    sizes = [(1, 64), (1, 256), (1, 512), (400, 64), (8, 256)] if not run.smoke else [(1, 16)]
    found = []
    for count, n in sizes:
        for contrast, medium in MEDIA.items():
            networks = make(case := Case((n, n), count, contrast, medium))
            section = measure(run, networks, METHODS, case.label(), 1)
            g = [x[..., None] for x in networks.conductance]
            section["held_bytes"] = Factor(
                g, networks.leak[..., None], (False, False)
            ).factors.nbytes
            found.append(section)
    return found


def sources(run: Run) -> dict[str, Any]:
    """Sources on one network, in one elimination and one solve after another."""
    count, n = (3, 24) if run.smoke else (30, 500)
    networks = make(Case((n, n), 1, 1e2, "smooth"))
    leak, *g = (x[..., None] for x in (networks.leak, *networks.conductance))
    s = torch.randn(1, count, n, n, 1, generator=torch.Generator().manual_seed(0))

    def together() -> Tensor:
        return kirchhoff_network(s, g, leak)

    def multigrid() -> Tensor:  # one of them
        return kirchhoff_network(s[:, 0], g, leak, method="multigrid", tol=TOLERANCE)

    makes: dict[str, Callable[[], Row]] = {
        "together": lambda: {"calls": {"forward": together}},
        "multigrid": lambda: {"calls": {"forward": multigrid}, "scale": count},
    }
    return run.section(makes, sources=count, grid=[n, n])


main = main_of(
    __doc__,
    "network",
    {"peers": peers, "methods": methods, "sources": sources},
    ["scipy", "pyamg", "torch-sla"],
)

if __name__ == "__main__":
    main()
