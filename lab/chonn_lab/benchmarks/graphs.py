"""Circuits on graphs beside CHOLMOD and SciPy's sparse LU, one run.

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
                        loader finds that, else PyTorch's
    splu                SciPy's sparse LU, at its best for symmetric matrices

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
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks import harness
from chonn_lab.benchmarks.harness import Call, Row, Run, fresh_peak, inference, milliseconds
from chonn_lab.benchmarks.network_solvers import Array, sparse
from chonn_ops import Circuit, Graph, raster
from chonn_ops.network.direct.plan import plan_of

CONTRAST = 100.0
ORDERINGS = ("amd", "metis", "nesdis")
BLOCKS = (1, 4, 16, 64)
CHECKED = 4  # circuits that peers are timed with, and that are compared


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


Shape = Callable[[int], tuple[Array, Array | None]]


def plan(shape: Shape, nodes: int) -> Call:
    """Makes the plan of a graph, anew in each call."""
    edges, positions = shape(nodes)

    def call() -> None:
        graph = Graph(edges, nodes, positions)
        at, ends = np.arange(len(edges)), graph.ends_array()
        plan_of(graph.dissection, at, ends, grid=(nodes,), periodic=(graph,))

    return call


class Case(NamedTuple):
    """Circuits on one graph: conductances (B, E, 1), leaks and sources (B, N, 1)."""

    graph: Graph
    conductance: Tensor
    leak: Tensor
    source: Tensor

    @classmethod
    def of(cls, shape: Shape, nodes: int, count: int) -> Case:
        edges, positions = shape(nodes)
        rng = np.random.default_rng(1)
        g = CONTRAST ** rng.random((count, len(edges), 1))
        source = torch.from_numpy(rng.standard_normal((count, nodes, 1)))
        leak = torch.full_like(source, 1e-3)
        return cls(Graph(edges, nodes, positions), torch.from_numpy(g), leak, source)

    def matrices(self, count: int) -> list[Any]:
        p, q = self.graph.ends_array()
        fields = zip(self.conductance[:count, :, 0], self.leak[:count, :, 0], strict=True)
        return [sparse(p, q, g.numpy(), leak.numpy()) for g, leak in fields]

    def calls(self, dtype: torch.dtype) -> dict[str, Callable[[], Any]]:
        """Both of ours."""

        def solve(g: Tensor, leak: Tensor, source: Tensor) -> Tensor:
            return Circuit(g, leak, self.graph).solve(source)

        given = [x.to(dtype) for x in self[1:]]
        return {"forward": inference(solve, given), "both": harness.gradients(solve, given)}


def forward(shape: Shape, nodes: int, count: int, dtype: torch.dtype) -> Call:
    """Our forward pass, for `fresh_peak`."""
    return Case.of(shape, nodes, count).calls(dtype)["forward"]


def load_blas() -> None:
    """The BLAS that CHOLMOD shall use: SuiteSparse's may be the slow reference."""
    torchs = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
    try:
        library = ctypes.CDLL("libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)
        library.openblas_set_num_threads(torch.get_num_threads())
    except OSError:
        with contextlib.suppress(OSError):
            ctypes.CDLL(torchs, mode=ctypes.RTLD_GLOBAL)


def cholmod(system: Any, source: Array) -> tuple[Any, dict[str, Any]]:
    """The fastest of CHOLMOD's settings, for one elimination and a solve: an analysis, its name
    and its milliseconds."""
    from sksparse.cholmod import analyze

    load_blas()
    found = []
    for ordering, mode in itertools.product(ORDERINGS, ("simplicial", "supernodal")):
        begin = functools.partial(analyze, system, mode=mode, ordering_method=ordering)
        made = begin()

        def solve(made: Any = made) -> None:
            made.cholesky_inplace(system)
            made(source)

        solve()
        about = {"setting": f"{ordering}, {mode}", "plan_ms": milliseconds(begin)}
        found.append((milliseconds(solve, 3), made, about))
    _, made, about = min(found, key=lambda x: x[0])
    return made, about


Factor = Callable[[Any], Callable[[Array], Array]]


def direct_peer(case: Case, factor: Factor, **about: Any) -> Row:
    """The first circuits of a case, one after the other."""
    few = case.matrices(CHECKED)
    sources = list(case.source[:CHECKED, :, 0].numpy())
    p, q = case.graph.ends_array()

    def run(backward: bool) -> Array:
        found = []
        for system, s in zip(few, sources, strict=True):
            solve = factor(system)
            found.append(v := solve(s))
            if backward:
                w = solve(np.ones_like(v))
                _ = -w * v, -(w[p] - w[q]) * (v[p] - v[q])
        return np.stack(found)

    calls = {"forward": lambda: run(False), "both": lambda: run(True)}
    return {**about, "calls": calls, "scale": 1 / len(few)}


def cholmod_peer(case: Case) -> Row:
    made, about = cholmod(case.matrices(1)[0], case.source[0, :, 0].numpy())

    def factor(system: Any) -> Any:
        made.cholesky_inplace(system)
        return made

    return direct_peer(case, factor, **about)


def splu_peer(case: Case) -> Row:
    from scipy.sparse.linalg import splu

    options: Any = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
    return direct_peer(case, lambda system: splu(system, **options).solve)


def difference(v: Any, truth: Tensor) -> float:
    v = torch.as_tensor(v).to(truth.dtype)
    return float((v - truth).abs().amax() / truth.abs().amax())


def circuits(run: Run, nodes: int, count: int) -> dict[str, Any]:
    """Rows of all contenders for `count` circuits on one Delaunay graph."""
    case = Case.of(delaunay, nodes, count)
    planning = milliseconds(plan(delaunay, nodes), 3)
    truth = case.calls(torch.float64)["forward"]()[:CHECKED, :, 0]

    def ours(dtype: torch.dtype) -> Row:
        peak = fresh_peak(forward, delaunay, nodes, count, dtype)
        found = {"plan_ms": planning, "peak_bytes": peak, "scale": 1 / count}
        return {**found, "calls": case.calls(dtype)}

    def checked(make: Callable[[], Row]) -> Row:
        row = make()
        found = torch.as_tensor(row["calls"]["forward"]())
        found = found[:CHECKED, :, 0] if found.dim() == 3 else found
        return {"error": difference(found, truth), **row}

    makes: dict[str, Callable[[], Row]] = {
        "chonn-ops": lambda: ours(torch.float32),
        "chonn-ops, float64": lambda: ours(torch.float64),
        "CHOLMOD": lambda: cholmod_peer(case),
        "splu": lambda: splu_peer(case),
    }
    makes = {name: functools.partial(checked, make) for name, make in makes.items()}
    return run.section(makes, nodes=nodes, networks=count)


def pairs(run: Run) -> dict[str, Any]:
    """Effective resistances; the circuit is there beforehand."""
    side, count = (8, 20) if run.smoke else (300, 1000)
    rng = np.random.default_rng(0)
    circuit = raster(torch.from_numpy(CONTRAST ** rng.random((1, side, side, 1))))
    chosen = rng.integers(0, side * side, (count, 2))
    call = functools.partial(circuit.resistance, torch.from_numpy(chosen))

    def peer() -> Row:
        assert circuit.graph is not None
        (p, q), g = circuit.graph.ends_array(), circuit.conductance[0][0, :, 0].numpy()
        # Any ground: dipoles send no current there.
        system = sparse(p, q, g, np.eye(1, side * side)[0])
        few = count // 4  # at once: all would take gigabytes
        p, q = chosen[:few].T
        source = np.zeros((side * side, few), order="F")
        np.add.at(source, (p, np.arange(few)), 1)
        np.add.at(source, (q, np.arange(few)), -1)
        made, about = cholmod(system, source[:, :16])

        def solved(block: int) -> Array:
            found = []
            for i in range(0, few, block):
                v = made(source[:, i : i + block])
                j = np.arange(i, min(i + block, few))
                found.append(v[p[j], j - i] - v[q[j], j - i])
            return np.concatenate(found)

        made.cholesky_inplace(system)
        block = min(BLOCKS, key=lambda block: milliseconds(lambda: solved(block)))

        def all_pairs() -> None:
            """One factor, and as many solves as all pairs take."""
            made.cholesky_inplace(system)
            for _ in range(4):
                solved(block)

        about["setting"] += f", {block} sources at a time"
        wrong = np.abs(solved(block) / call()[0, :few, 0].numpy() - 1).max()
        return {**about, "error": float(wrong), "calls": {"forward": all_pairs}}

    makes: dict[str, Callable[[], Row]] = {
        "chonn-ops": lambda: {"calls": {"forward": call}},
        "CHOLMOD, one factor": peer,
    }
    return run.section(makes, grid=[side, side], pairs=count)


def large(run: Run) -> list[Row]:
    """Plan, solve and their peaks, of one circuit in float32."""
    nodes = 400 if run.smoke else 10**6

    def make(shape: Shape) -> Row:
        case = Case.of(shape, nodes, 1)
        calls = case.calls(torch.float32)
        truth = case.calls(torch.float64)["forward"]()
        return {
            "nodes": nodes,
            "edges": case.graph.num_edges,
            "error": difference(calls["forward"](), truth),
            "plan_peak_bytes": fresh_peak(plan, shape, nodes),
            "peak_bytes": fresh_peak(forward, shape, nodes, 1, torch.float32),
            "calls": {"plan": plan(shape, nodes), **calls},
        }

    shapes = {"path": path, "Delaunay": delaunay, "grid": lattice}
    few = Run(min(run.rounds, 1), 0.0, run.smoke, run.notes)
    return few.compare({name: functools.partial(make, shape) for name, shape in shapes.items()})


SECTIONS: dict[str, Callable[[Run], Any]] = {
    "circuits": lambda run: circuits(run, *((64, 5) if run.smoke else (4096, 400))),
    "single": lambda run: circuits(run, 200 if run.smoke else 100_000, 1),
    "pairs": pairs,
    "large": large,
}
main = harness.main_of(__doc__, "graphs", SECTIONS, ["scipy", "scikit-sparse"])

if __name__ == "__main__":
    main()
