"""The direct method of `kirchhoff_network` beside multigrid, SciPy's sparse LU and pyamg, one run.

Sections: batches, single (one network), sources (many on one network), volumes. Media are random
two-phase ones at the scale of the grid, conductances 1 and the contrast; at a contrast of 100 they
are smooth. The leak is 0.003 (64 / n)^2 at every node, sources are white noise.

Contenders
    direct     `kirchhoff_network` with method="direct"
    auto       the same with the automatic rule
    multigrid  the same with method="multigrid": a row without times is one that it did not solve
    spsolve    SciPy's sparse LU in float64, one network
    pyamg      Ruge-Stueben multigrid with conjugate gradients in float64, set up in the call, one
               network

Columns
    forward, both   _ms a network: without autograd; of forward and backward for all inputs
    _ratio          that time over the time of the first row
    error           of potentials, over the largest one of the elimination in float64
    held_bytes      of the factors, for the row "direct"; predicted_bytes: what the rule expects
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks.accuracy import matrices
from chonn_lab.benchmarks.harness import (
    Call,
    Turns,
    add_ratios,
    arguments,
    environment,
    fill,
    show,
    start,
    write_result,
)
from chonn_ops import kirchhoff_network
from chonn_ops.network.direct import Factor, predicted_bytes

METHODS = ("direct", "auto", "multigrid")
TOLERANCE = 1e-5
# Networks whose potentials are compared with the elimination in float64.
CHECKED = 4
# Nodes above which the peers that take one network at a time are left out of volumes.
LARGEST_PEER = 40_000

Networks = tuple[Tensor, list[Tensor], Tensor]


def networks(count: int, grid: tuple[int, ...], contrast: float) -> Networks:
    """Source, conductances and leak: binary noise; smooth at a contrast of 100."""
    rng = np.random.default_rng(0)
    if contrast > 100:
        k = np.where(rng.random((count, *grid)) < 0.5, 1.0, contrast)
    else:
        waves = sum(
            np.sin(x * rng.uniform(2, 9, (count, *[1] * len(grid))) + rng.uniform(0, 6))
            for x in np.meshgrid(*[np.linspace(0, 1, n) for n in grid], indexing="ij")
        )
        k = contrast ** (0.5 + 0.5 * waves / len(grid))
    g = [
        torch.from_numpy(2 / (1 / k + 1 / np.roll(k, -1, axis + 1))).float()[..., None]
        for axis in range(len(grid))
    ]
    leak = torch.full_like(g[0], 0.003 * (64 / grid[0]) ** 2)
    source = torch.from_numpy(rng.standard_normal(k.shape)).float()[..., None]
    return source, g, leak


def difference(v: Tensor, truth: Tensor) -> float:
    """Relative to the largest potential."""
    return float((v.to(truth.dtype) - truth).abs().amax() / truth.abs().amax())


def peers(case: Networks) -> dict[str, Callable[[], Any]]:
    """Solves of the first network by SciPy and pyamg, where they are installed."""
    source, g, leak = case
    edges = [x[:1, ..., 0].double().numpy() for x in g]
    (columns,) = matrices(edges, leak[:1, ..., 0].double().numpy(), (False,) * len(g))
    s = source[0, ..., 0].double().numpy().ravel()
    found: dict[str, Callable[[], Any]] = {}
    with contextlib.suppress(ImportError):
        from scipy.sparse.linalg import spsolve

        found["spsolve"] = lambda: spsolve(columns, s, permc_spec="MMD_AT_PLUS_A")
    with contextlib.suppress(ImportError):
        import pyamg  # pyright: ignore[reportMissingImports]

        rows = columns.tocsr()
        found["pyamg"] = lambda: pyamg.ruge_stuben_solver(rows).solve(s, tol=TOLERANCE, accel="cg")
    return found


def ours(case: Networks, weight: Tensor, **options: Any) -> tuple[Call, Call]:
    """Forward without autograd, and both passes: gradients of source, leak and conductances."""
    source, g, leak = case
    leaves = [x.clone().requires_grad_() for x in (source, leak, *g)]

    def forward() -> Tensor:
        with torch.no_grad():
            return kirchhoff_network(source, g, leak, backend="cpu", **options)

    def both() -> Any:
        s, l, *edges = leaves  # noqa: E741
        v = kirchhoff_network(s, edges, l, backend="cpu", **options)
        return torch.autograd.grad(v, leaves, weight)

    return forward, both


def measure(turns: Turns, count: int, grid: tuple[int, ...], contrast: float) -> dict[str, Any]:
    """Rows of all contenders for one case."""
    case = source, g, leak = networks(count, grid, contrast)
    few, bounded = min(count, CHECKED), (False,) * len(grid)
    wide = [x[:few].double() for x in (source, leak, *g)]
    truth = Factor(wide[2:], wide[1], bounded).solve(wide[0])
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    weight = torch.randn(source.shape, generator=torch.Generator().manual_seed(1))
    for method in METHODS:
        forward, both = ours(case, weight, method=method, tol=TOLERANCE)
        rows[method] = {"name": method}
        try:
            v: Any = forward()
        except RuntimeError as failure:  # what multigrid alone does not solve
            rows[method]["failure"] = str(failure)
            continue
        rows[method]["error"] = difference(v[:few], truth)
        calls[method, "forward"], calls[method, "both"] = forward, both
    if len(grid) == 2 or np.prod(grid) <= LARGEST_PEER:
        for name, solve in peers(case).items():
            v = torch.from_numpy(np.ascontiguousarray(solve())).reshape(grid)
            rows[name] = {"name": name, "error": difference(v, truth[0, ..., 0])}
            calls[name, "forward"] = solve
    times = turns.times(calls)
    for (name, _), values in times.items():
        values[:] = [x / (count if name in METHODS else 1) for x in values]
    fill(rows, times)
    add_ratios(rows, "direct", ("forward", "both"))
    rows["direct"]["held_bytes"] = Factor(g, leak, bounded).nbytes
    rows["direct"]["predicted_bytes"] = predicted_bytes(grid, bounded, count)
    found = {"networks": count, "grid": list(grid), "contrast": contrast}
    print(f"{count} networks of {grid}, contrast {contrast:g}")
    show(
        list(rows.values()),
        *("name", "forward_ms", "forward_ratio", "both_ms", "both_ratio", "error"),
        *("held_bytes", "predicted_bytes"),
    )
    return found | {"rows": list(rows.values())}


def many_sources(turns: Turns, count: int, n: int) -> dict[str, Any]:
    """Sources on one network, in one elimination and one solve after another."""
    _, g, leak = networks(1, (n, n), 100)
    s = torch.randn(1, count, n, n, 1, generator=torch.Generator().manual_seed(0))

    def together() -> Tensor:
        return kirchhoff_network(s, g, leak)

    def multigrid() -> Tensor:  # one of them
        return kirchhoff_network(s[:, 0], g, leak, method="multigrid", backend="cpu")

    rows: dict[str, dict[str, Any]] = {
        "together": {"name": "together"},
        "multigrid": {"name": "multigrid", "scaled_from": 1},
    }
    calls = {("together", "forward"): together, ("multigrid", "forward"): multigrid}
    times = turns.times(calls)
    times["multigrid", "forward"][:] = [count * x for x in times["multigrid", "forward"]]
    fill(rows, times)
    add_ratios(rows, "together", ("forward",))
    rows["multigrid"]["error"] = difference(multigrid(), together()[:, 0].double())
    show(list(rows.values()), "name", "forward_ms", "forward_ratio", "error")
    return {"sources": count, "grid": [n, n], "rows": list(rows.values())}


SECTIONS = ("batches", "single", "sources", "volumes")


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "direct", SECTIONS), given)
    turns = Turns(1, 0.0, 1) if options.smoke else Turns(options.rounds, options.visit_ms, 1)
    chosen = options.only or SECTIONS
    small = options.smoke
    result: dict[str, Any] = {"environment": environment(options, ("scipy", "pyamg"))}
    result["tolerance"] = TOLERANCE
    cases: dict[str, list[tuple[int, tuple[int, ...], float]]] = {
        "batches": [
            (4 if small else 400, (16, 16) if small else (64, 64), 1e2),
            (4 if small else 400, (16, 16) if small else (64, 64), 1e4),
            (2 if small else 8, (24, 24) if small else (256, 256), 1e4),
        ],
        "single": [
            (1, (n, n), contrast)
            for n in ((16,) if small else (64, 256, 512))
            for contrast in (1e2, 1e4)
        ],
        "volumes": [(1, (n, n, n), 1e4) for n in ((6,) if small else (12, 16, 32))],
    }
    for section in chosen:
        if section == "sources":
            result[section] = many_sources(turns, 3 if small else 30, 24 if small else 500)
        else:
            result[section] = [measure(turns, *case) for case in cases[section]]
    write_result(options.output, result)


if __name__ == "__main__":
    main()
