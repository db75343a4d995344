"""Circuits on graphs beside CHOLMOD, SciPy's sparse LU and torch-sla, one run.

Sections
    circuits  many circuits on the Delaunay graph of random points
    single    one circuit on a larger one
    pairs     effective resistances of random pairs of cells of a raster with eight neighbours
    large     graphs of a million nodes, ours alone

Conductances are log-uniform in 1 to `CONTRAST`, and so are the resistances of the raster's cells.
Leaks are 1e-3; the raster has none.

Contenders
    chonn-ops           in float32, and in float64 as all others are
    CHOLMOD             of scikit-sparse. Nodes are ordered and the pattern is analysed beforehand.
                        Of three orderings, simplicial and supernodal, and for pairs of blocks of 1
                        to 64 sources, the fastest one: `setting`. Its BLAS is OpenBLAS where the
                        loader finds that, else PyTorch's; `environment` says which
    spsolve             SciPy's, as it is called without options
    splu                the sparse LU that `spsolve` calls, at its best for symmetric matrices
    torch-sla           the fastest of its backends that solves to 1e-4: `setting`

Columns
    forward, both   _ms a circuit: of forward and backward for source, leak and conductances. Peers
                    without gradients solve once more with their factor
    plan_ms         ours: order and plan of the graph; CHOLMOD: its analysis
    error           of potentials, over the largest one, the truth being ours in float64; of
                    resistances the largest relative one
    peak_bytes      of the forward call
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

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
    start,
    write_result,
)
from chonn_ops import Circuit, Graph, raster
from chonn_ops.network.direct.plan import plan_of

CONTRAST = 100.0
ENOUGH = 1e-4  # the error up to which a backend of torch-sla takes part
ORDERINGS = ("amd", "metis", "nesdis")
BLOCKS = (1, 4, 16, 64)
BACKENDS = (("scipy", "lu"), ("scipy", "cg"), ("pytorch", "cg"), ("pyamg", "ruge_stuben"))
CHECKED = 4  # circuits that peers are timed with, and that are compared
SECTIONS = ("circuits", "single", "pairs", "large")

Array = np.ndarray[Any, Any]


def delaunay(nodes: int) -> tuple[Array, Array]:
    """Edges (E, 2) and positions of random points."""
    from scipy.spatial import Delaunay

    points = np.random.default_rng(0).random((nodes, 2))
    corners = Delaunay(points).simplices.astype(np.int64)
    pairs = np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]]), 1)
    both = np.unique(pairs[:, 0] * nodes + pairs[:, 1])
    return np.stack(np.divmod(both, nodes), 1), points


def path(nodes: int) -> tuple[Array, None]:
    """A path through nodes in random order, without positions."""
    order = np.random.default_rng(0).permutation(nodes)
    return np.stack([order[:-1], order[1:]], 1), None


def lattice(nodes: int) -> tuple[Array, Array]:
    """The edges and positions of a square grid."""
    side = round(nodes**0.5)
    cell = np.arange(side * side).reshape(side, side)
    pairs = [(cell[:-1], cell[1:]), (cell[:, :-1], cell[:, 1:])]
    edges = np.concatenate([np.stack([p.ravel(), q.ravel()], 1) for p, q in pairs])
    return edges, np.stack(np.divmod(cell.ravel(), side), 1)


def planned(edges: Array, positions: Array | None, nodes: int) -> Graph:
    """The graph, and beside it a plan, made anew: a `Circuit` keeps its own."""
    graph = Graph(edges, nodes, positions)
    ends = graph.ends_array()
    plan_of(graph.dissection, np.arange(len(edges)), ends, grid=(nodes,), periodic=(graph,))
    return graph


class Case(NamedTuple):
    """Circuits on one graph: conductances (B, E, 1), leaks (B, N, 1), sources (B, N, 1)."""

    graph: Graph
    conductance: Tensor
    leak: Tensor
    source: Tensor

    def to(self, dtype: torch.dtype) -> Case:
        return Case(self.graph, *(x.to(dtype) for x in self[1:]))


def case_of(graph: Graph, count: int) -> Case:
    rng = np.random.default_rng(1)
    g = CONTRAST ** rng.random((count, graph.num_edges, 1))
    source = rng.standard_normal((count, graph.num_nodes, 1))
    leak = torch.full(source.shape, 1e-3, dtype=torch.float64)
    return Case(graph, torch.from_numpy(g), leak, torch.from_numpy(source))


def matrix(graph: Graph, g: Array, leak: Array) -> Any:
    """The matrix of one circuit in SciPy's CSC."""
    from scipy.sparse import coo_matrix, diags

    p, q = graph.ends_array()
    pairs = (np.concatenate([p, q]), np.concatenate([q, p]))
    joined = coo_matrix((np.concatenate([g, g]), pairs), (len(leak), len(leak))).tocsc()
    return (diags(leak + np.asarray(joined.sum(0)).ravel()) - joined).tocsc()


def matrices(case: Case, count: int) -> list[Any]:
    fields = zip(case.conductance[:count, :, 0], case.leak[:count, :, 0], strict=True)
    return [matrix(case.graph, g.numpy(), leak.numpy()) for g, leak in fields]


def ours(case: Case) -> tuple[Call, Call]:
    weight = torch.ones_like(case.source)
    leaves = [x.clone().requires_grad_() for x in case[1:]]

    def solve(g: Tensor, leak: Tensor, source: Tensor) -> Tensor:
        return Circuit(g, leak, case.graph).solve(source)

    def forward() -> Tensor:
        with torch.no_grad():
            return solve(*case[1:])

    return forward, lambda: torch.autograd.grad(solve(*leaves), leaves, weight)


def prepared(make: Callable[[int], Any], nodes: int, count: int, dtype: torch.dtype) -> Call:
    """The forward pass, for `fresh_peak`."""
    edges, positions = make(nodes)
    return ours(case_of(Graph(edges, nodes, positions), count).to(dtype))[0]


def prepared_plan(make: Callable[[int], Any], nodes: int) -> Call:
    edges, positions = make(nodes)
    return lambda: planned(edges, positions, nodes)


def blas() -> str | None:
    """The BLAS that CHOLMOD uses: SuiteSparse's may be the slow reference."""
    torchs = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    for name in ("libopenblas.so.0", str(torchs)):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            if name != str(torchs):
                library.openblas_set_num_threads(torch.get_num_threads())
            return Path(name).name
    return None


def cholmod(system: Any, source: Array) -> tuple[Any, str, float]:
    """The fastest of CHOLMOD's settings, for one elimination and a solve: an analysis, its name,
    and its milliseconds."""
    from sksparse.cholmod import analyze

    found = []
    for ordering, mode in itertools.product(ORDERINGS, ("simplicial", "supernodal")):
        begin = analyze(system, mode=mode, ordering_method=ordering)
        taken = milliseconds(lambda o=ordering, m=mode: analyze(system, mode=m, ordering_method=o))

        def solve(begin: Any = begin) -> Any:
            begin.cholesky_inplace(system)
            return begin(source)

        solve()
        best = min(milliseconds(solve) for _ in range(3))
        found.append((best, taken, f"{ordering}, {mode}", begin))
    _, taken, name, begin = min(found, key=lambda x: x[0])
    return begin, name, taken


def gradients(graph: Graph, solve: Callable[[Array], Array], v: Array) -> None:
    """One more solve, and its products with the potentials."""
    w, (p, q) = solve(np.ones_like(v)), graph.ends_array()
    _ = -w * v, -(w[p] - w[q]) * (v[p] - v[q])


def direct_peers(case: Case, rows: dict[str, dict[str, Any]]) -> dict[tuple[str, str], Call]:
    """CHOLMOD and SciPy for the first circuits of a case, one after the other."""
    few = matrices(case, CHECKED)
    sources = list(case.source[:CHECKED, :, 0].numpy())
    calls: dict[tuple[str, str], Call] = {}

    def add(name: str, factor: Callable[[Any], Callable[[Array], Array]], **about: Any) -> None:
        def run(backward: bool) -> Array:
            found = []
            for system, s in zip(few, sources, strict=True):
                solve = factor(system)
                found.append(solve(s))
                if backward:
                    gradients(case.graph, solve, found[-1])
            return np.stack(found)

        rows[name] = {"name": name, "circuits": len(few), "found": run(False)} | about
        calls[name, "forward"], calls[name, "both"] = lambda: run(False), lambda: run(True)

    with contextlib.suppress(ImportError):
        begin, setting, taken = cholmod(few[0], sources[0])

        def refactor(system: Any) -> Any:
            begin.cholesky_inplace(system)
            return begin

        add("CHOLMOD", refactor, setting=setting, plan_ms=taken)
    from scipy.sparse.linalg import splu, spsolve

    add("spsolve", lambda system: lambda s: np.asarray(spsolve(system, s)))
    add("splu", lambda system: splu(system, "MMD_AT_PLUS_A", options={"SymmetricMode": True}).solve)
    return calls


def torch_sla(case: Case, truth: Tensor, rows: dict[str, Any]) -> dict[tuple[str, str], Call]:
    """torch-sla by its fastest backend, and by its one solver for batches."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its optional parts
            from torch_sla import spsolve, spsolve_batch_same_layout
    except ImportError:
        return {}
    few = [system.tocoo() for system in matrices(case, CHECKED)]
    row, column = (torch.from_numpy(x.astype(np.int64)) for x in (few[0].row, few[0].col))
    values = torch.from_numpy(np.stack([system.data for system in few])).requires_grad_()
    source = case.source[:CHECKED, :, 0].clone().requires_grad_()
    shape, atol = few[0].shape, 1e-7 * float(case.source[0].norm())

    def alone(backend: str, method: str) -> Tensor:
        options = {"backend": backend, "method": method, "atol": atol, "tol": 1e-7, "is_spd": True}
        every = zip(values, source, strict=True)
        return torch.stack([spsolve(x, row, column, shape, s, **options) for x, s in every])

    def batch() -> Tensor:
        return spsolve_batch_same_layout(
            values, row, column, shape, source, method="cg", atol=atol, maxiter=10_000
        )

    solvers: dict[str, Callable[[], Tensor]] = {
        f"{a}, {b}": lambda a=a, b=b: alone(a, b) for a, b in BACKENDS
    }
    solvers["batch, cg"] = batch
    tried: dict[str, tuple[float, Callable[[], Tensor]]] = {}
    for name, solve in solvers.items():
        with warnings.catch_warnings(), contextlib.suppress(Exception):  # what is not installed
            warnings.simplefilter("ignore")
            with torch.no_grad():
                wrong = difference(solve(), truth)
                if wrong < ENOUGH:
                    tried[name] = milliseconds(solve), solve
    if not tried:
        return {}
    setting = min(tried, key=lambda name: tried[name][0])
    solve = tried[setting][1]

    def forward() -> Any:
        with torch.no_grad():
            return solve()

    found = forward().numpy()
    about = {"circuits": len(few), "setting": setting, "found": found}
    rows["torch-sla"] = {"name": "torch-sla"} | about
    return {
        ("torch-sla", "forward"): forward,
        ("torch-sla", "both"): lambda: torch.autograd.grad(solve().sum(), [values, source]),
    }


def difference(v: Any, truth: Tensor) -> float:
    v = torch.as_tensor(v).to(truth.dtype)
    return float((v - truth).abs().amax() / truth.abs().amax())


def circuits(turns: Turns, nodes: int, count: int) -> dict[str, Any]:
    """Rows of all contenders for `count` circuits on one Delaunay graph."""
    edges, points = delaunay(nodes)
    plan = statistics.median(milliseconds(lambda: planned(edges, points, nodes)) for _ in range(3))
    case = case_of(Graph(edges, nodes, points), count)
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    for name, dtype in (("chonn-ops", torch.float32), ("chonn-ops, float64", torch.float64)):
        calls[name, "forward"], calls[name, "both"] = ours(case.to(dtype))
        found: Any = calls[name, "forward"]()
        rows[name] = {
            "name": name,
            "circuits": count,
            "plan_ms": plan,
            "found": found[:CHECKED, :, 0],
            "peak_bytes": fresh_peak(prepared, delaunay, nodes, count, dtype),
        }
    truth = rows["chonn-ops, float64"]["found"]
    calls |= direct_peers(case, rows)
    calls |= torch_sla(case, truth, rows)
    times = turns.times(calls)
    for (name, _), values in times.items():
        values[:] = [x / min(rows[name]["circuits"], count) for x in values]
    for row in rows.values():
        row["error"] = difference(row.pop("found"), truth)
    fill(rows, times)
    add_ratios(rows, "chonn-ops", ("forward", "both"))
    print(f"{count} circuits on a Delaunay graph of {nodes} nodes")
    show(
        list(rows.values()),
        *("name", "forward_ms", "forward_ratio", "both_ms", "both_ratio", "plan_ms", "error"),
        *("peak_bytes", "setting"),
    )
    return {"nodes": nodes, "networks": count, "rows": list(rows.values())}


def pairs(turns: Turns, side: int, count: int) -> dict[str, Any]:
    """Rows of all contenders for `count` effective resistances; the circuit is there beforehand."""
    rng = np.random.default_rng(0)
    r = torch.from_numpy(CONTRAST ** rng.random((1, side, side, 1)))
    chosen = rng.integers(0, side * side, (count, 2))
    circuit = raster(r)
    assert circuit.graph is not None
    at = torch.from_numpy(chosen)
    rows: dict[str, dict[str, Any]] = {"chonn-ops": {"name": "chonn-ops"}}
    calls: dict[tuple[str, str], Call] = {("chonn-ops", "forward"): lambda: circuit.resistance(at)}
    truth: Any = calls["chonn-ops", "forward"]()
    truth = truth[0, :, 0].numpy()
    times: dict[tuple[str, str], list[float]] = {}
    with contextlib.suppress(ImportError):
        leak = np.zeros(side * side)
        leak[0] = 1  # any ground: dipoles send no current there
        system = matrix(circuit.graph, circuit.conductance[0][0, :, 0].numpy(), leak)
        few = min(count, max(BLOCKS))
        p, q = chosen[:few].T
        source = np.zeros((side * side, few), order="F")
        np.add.at(source, (p, np.arange(few)), 1)
        np.add.at(source, (q, np.arange(few)), -1)
        begin, setting, taken = cholmod(system, source[:, :16])

        def solved(block: int) -> Array:
            found = []
            for i in range(0, few, block):
                v = begin(source[:, i : i + block])
                j = np.arange(i, min(i + block, few))
                found.append(v[p[j], j - i] - v[q[j], j - i])
            return np.concatenate(found)

        begin.cholesky_inplace(system)
        block = min(BLOCKS, key=lambda block: milliseconds(lambda: solved(block)))
        wrong = float(np.abs(solved(block) / truth[:few] - 1).max())
        calls["factor", "forward"] = lambda: begin.cholesky_inplace(system)
        calls["solve", "forward"] = lambda: solved(block)
        calls["one", "forward"] = lambda: begin(source[:, 0])
        times = turns.times(calls)
        factor, some, one = (
            statistics.median(times.pop((name, "forward"))) for name in ("factor", "solve", "one")
        )
        found = {
            "CHOLMOD, one factor": factor + some * count / few,
            "CHOLMOD, pair by pair": count * (factor + one),
        }
        for name, value in found.items():
            rows[name] = {"name": name, "setting": setting, "error": wrong, "plan_ms": taken}
            times[name, "forward"] = [value]
        rows["CHOLMOD, one factor"]["setting"] += f", {block} sources at a time"
    fill(rows, times or turns.times(calls))
    add_ratios(rows, "chonn-ops", ("forward",))
    print(f"{count} pairs on a raster of {side} x {side} with eight neighbours")
    show(list(rows.values()), "name", "forward_ms", "forward_ratio", "error", "plan_ms", "setting")
    return {"grid": [side, side], "pairs": count, "rows": list(rows.values())}


def large(nodes: int) -> list[dict[str, Any]]:
    """Plan, solve and their peaks, of one circuit in float32."""
    rows = []
    for name, make in (("path", path), ("Delaunay", delaunay), ("grid", lattice)):
        edges, positions = make(nodes)
        plan = milliseconds(lambda e=edges, x=positions: planned(e, x, nodes))
        case = case_of(Graph(edges, nodes, positions), 1)
        forward, both = ours(case.to(torch.float32))
        found: Any = forward()
        row = {
            "name": name,
            "nodes": nodes,
            "edges": len(edges),
            "plan_ms": plan,
            "forward_ms": statistics.median(milliseconds(forward) for _ in range(3)),
            "both_ms": milliseconds(both),
            "error": difference(found, torch.as_tensor(ours(case)[0]())),
            "plan_peak_bytes": fresh_peak(prepared_plan, make, nodes),
            "peak_bytes": fresh_peak(prepared, make, nodes, 1, torch.float32),
        }
        rows.append(row)
    keys = ("name", "nodes", "edges", "plan_ms", "forward_ms", "both_ms", "error")
    show(rows, *keys, "plan_peak_bytes", "peak_bytes")
    return rows


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "graphs", SECTIONS), given)
    small = options.smoke
    turns = Turns(1, 0.0, 1) if small else Turns(options.rounds, options.visit_ms, 1)
    about = environment(options, ("scipy", "scikit-sparse", "torch-sla")) | {"blas": blas()}
    for name, found in about["versions"].items():
        if found is None:
            print(f"{name} is not installed and left out")
    result: dict[str, Any] = {"environment": about}
    for section in options.only or SECTIONS:
        if section == "circuits":
            result[section] = circuits(turns, *((64, 5) if small else (4096, 400)))
        elif section == "single":
            result[section] = circuits(turns, 200 if small else 100_000, 1)
        elif section == "pairs":
            result[section] = pairs(turns, 8 if small else 300, 20 if small else 1000)
        else:
            result[section] = large(400 if small else 10**6)
    write_result(options.output, result)


if __name__ == "__main__":
    main()
