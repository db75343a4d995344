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
                        `setting` is the fastest of three orderings, simplicial and supernodal, and
                        for pairs of blocks of 1 to 64 sources. Its BLAS is OpenBLAS where the
                        loader finds that, else PyTorch's
    splu                SciPy's sparse LU, at its best for symmetric matrices

Columns
    forward, both   _ms a circuit: of forward and backward for source, leak and conductances. Peers
                    without gradients solve once more with their factor
    plan_ms         ours: order and plan of the graph; CHOLMOD: its analysis
    error           as `network` has it; of resistances the largest relative one
    peak_bytes      of the forward call
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import Call, Row, Run, fresh_peak, main_of, milliseconds
from chonn_lab.benchmarks.network import (
    Array,
    Networks,
    Solver,
    cholmod,
    fastest_cholmod,
    measure,
    ours,
    sparse,
    spsolve,
)
from chonn_ops import Graph, raster
from chonn_ops.network.direct.plan import plan_of_dissection

CONTRAST = 100.0
BLOCKS = (1, 4, 16, 64)


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
        plan_of_dissection(graph.dissection(1), *graph.edge_ends(), graph)

    return call


def on_graph(shape: Shape, nodes: int, count: int) -> Networks:
    """Random circuits on one graph, in float64."""
    edges, positions = shape(nodes)
    rng = np.random.default_rng(1)
    g = CONTRAST ** rng.random((count, len(edges)))
    source = torch.from_numpy(rng.standard_normal((count, nodes)))
    leak = torch.full_like(source, 1e-3)
    graph = Graph(edges, nodes, positions)
    return Networks(source, (torch.from_numpy(g),), leak, graph=graph)


def forward(shape: Shape, nodes: int, count: int, dtype: torch.dtype) -> Call:
    """Our forward pass, for `fresh_peak`."""
    return ours(on_graph(shape, nodes, count).map(lambda x: x.to(dtype))).forward


def circuits(run: Run, nodes: int, count: int) -> dict[str, Any]:
    """Rows of all contenders for `count` circuits on one Delaunay graph."""
    planning = milliseconds(plan(delaunay, nodes), 3)

    def build(dtype: torch.dtype) -> Callable[[Networks], Solver]:
        peak = fresh_peak(forward, delaunay, nodes, count, dtype)
        about = {"plan_ms": planning, "peak_bytes": peak}
        return lambda few: ours(few.map(lambda x: x.to(dtype)))._replace(about=about)

    builds = {"chonn-ops": build(torch.float32), "chonn-ops, float64": build(torch.float64)}
    builds |= {"CHOLMOD": cholmod, "splu": spsolve}
    label = {"nodes": nodes, "networks": count}
    return measure(run, on_graph(delaunay, nodes, count), builds, label, 1)


def pairs(run: Run) -> dict[str, Any]:
    """Effective resistances; the circuit is there beforehand."""
    side, count = (8, 20) if run.smoke else (300, 1000)
    rng = np.random.default_rng(0)
    circuit = raster(torch.from_numpy(CONTRAST ** rng.random((1, side, side, 1))))
    chosen = rng.integers(0, side * side, (count, 2))
    call = functools.partial(circuit.resistance, torch.from_numpy(chosen))

    def peer() -> Row:
        assert isinstance(circuit.layout, Graph)
        (p, q), g = circuit.layout.ends.numpy(), circuit.conductance[0][0, :, 0].numpy()
        # Any ground: dipoles send no current there.
        system = sparse(p, q, g, np.eye(1, side * side)[0])
        few = count // 4  # at once: all would take gigabytes
        p, q = chosen[:few].T
        source = np.zeros((side * side, few), order="F")
        np.add.at(source, (p, np.arange(few)), 1)
        np.add.at(source, (q, np.arange(few)), -1)
        factor, about = fastest_cholmod(system, source[:, :16])

        def solved(block: int) -> Array:
            differences = []
            for i in range(0, few, block):
                v = factor(source[:, i : i + block])
                j = np.arange(i, min(i + block, few))
                differences.append(v[p[j], j - i] - v[q[j], j - i])
            return np.concatenate(differences)

        factor.cholesky_inplace(system)
        block = min(BLOCKS, key=lambda block: milliseconds(lambda: solved(block)))

        def all_pairs() -> None:
            """One factor, and as many solves as all pairs take."""
            factor.cholesky_inplace(system)
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
        wide = on_graph(shape, nodes, 1)
        solver, truth = ours(wide.map(Tensor.float)), ours(wide).forward()
        assert wide.graph is not None
        return {
            "nodes": nodes,
            "edges": wide.graph.num_edges,
            "error": float((solver.forward() - truth).abs().amax() / truth.abs().amax()),
            "plan_peak_bytes": fresh_peak(plan, shape, nodes),
            "peak_bytes": fresh_peak(forward, shape, nodes, 1, torch.float32),
            "calls": {"plan": plan(shape, nodes), "forward": solver.forward, "both": solver.both},
        }

    shapes = {"path": path, "Delaunay": delaunay, "grid": lattice}
    few = dataclasses.replace(run, rounds=1, visit_ms=0.0)
    makes = {name: functools.partial(make, shape) for name, shape in shapes.items()}
    return few.section(makes)["rows"]


SECTIONS: dict[str, Callable[[Run], Any]] = {
    "circuits": lambda run: circuits(run, *((64, 5) if run.smoke else (4096, 400))),
    "single": lambda run: circuits(run, 200 if run.smoke else 100_000, 1),
    "pairs": pairs,
    "large": large,
}
main = main_of(__doc__, "graphs", SECTIONS, ["scipy", "scikit-sparse"])

if __name__ == "__main__":
    main()
