"""Circuits on graphs: any edges, on every backend, against SciPy in float64 and against grids."""

import copy
import importlib.util
import itertools
import math
import pickle
import re
import warnings

import numpy as np
import pytest
import torch
from network_cases import BACKENDS, factorize, solve_network
from test_plan import check

from chonn_ops import Auto, Circuit, Direct, Graph
from chonn_ops.network.direct import cpu, elimination
from chonn_ops.network.direct.elimination import predicted_bytes
from chonn_ops.network.direct.plan import make_plan
from chonn_ops.network.solve import methods

DIRECT = [name for name in BACKENDS if name != "reference"]
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}
EACH_DTYPE = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
EACH_DIRECT = pytest.mark.parametrize("backend", DIRECT)


@pytest.fixture(params=["lanes", "rows"])
def filling(request, monkeypatch):
    """What fills the vectors of the compiled kernel: networks, or rows of fronts."""
    monkeypatch.setattr(cpu, "_worth_lanes", lambda _: 0 if request.param == "lanes" else math.inf)
    return request.param


def delaunay(num_nodes, seed=0):
    """Edges and positions of a Delaunay graph of random points."""
    spatial = pytest.importorskip("scipy.spatial")
    positions = np.random.default_rng(seed).random((num_nodes, 2))
    triangles = spatial.Delaunay(positions).simplices
    edges = np.concatenate([triangles[:, [i, j]] for i, j in ((0, 1), (1, 2), (0, 2))])
    return np.unique(np.sort(edges, axis=1), axis=0), positions


def random_tree(num_nodes, rng):
    nodes = range(1, num_nodes)
    return np.array([(rng.integers(max(node // 2 - 3, 0), node), node) for node in nodes])


def random_regular(num_nodes, degree, rng):
    """Unions of random rings."""
    pairs = set()
    for _ in range(degree // 2):
        ring = rng.permutation(num_nodes)
        pairs |= {(min(p, q), max(p, q)) for p, q in zip(ring, np.roll(ring, 1), strict=True)}
    return np.array(sorted(pairs))


def graphs():
    """(name, edges, nodes, positions)."""
    rng = np.random.default_rng(1)
    triangles = delaunay(300)
    grid = np.arange(63).reshape(7, 9)
    sides = (grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:])
    square = np.concatenate([np.stack(pair, -1).reshape(-1, 2) for pair in sides])
    parts = np.concatenate([square, square[:20] + 63])
    return [
        ("edge", np.array([(1, 0)]), 2, None),
        ("star", np.array([(5, q) for q in range(200) if q != 5]), 200, None),
        ("path", np.stack([np.arange(299), np.arange(1, 300)], 1), 300, None),
        ("ring", np.stack([np.arange(50), np.roll(np.arange(50), 1)], 1), 50, None),
        ("tree", random_tree(400, rng), 400, None),
        ("complete", np.array(list(itertools.combinations(range(200), 2))), 200, None),
        ("parts", parts, 63 + int(square[:20].max()) + 1, None),
        ("alone", np.array([(0, 3), (3, 4)]), 30, None),
        ("regular", random_regular(200, 6, rng), 200, None),
        ("one place", square, 63, np.zeros((63, 2))),
        ("Delaunay", triangles[0], 300, triangles[1]),
    ]


CASES = graphs()
EACH_GRAPH = pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])


def circuit_on(graph, B=2, C=2, contrast=1e6, dtype=torch.float64, seed=0):
    """Conductance, leak and source: leaks of many sizes, some of them 0."""
    generator = torch.Generator().manual_seed(seed)

    def rand(n):
        return torch.rand(B, n, C, dtype=torch.float64, generator=generator)

    conductance = torch.exp(math.log(contrast) * rand(graph.num_edges))
    leak = torch.where(rand(graph.num_nodes) < 0.7, 0.01 * rand(graph.num_nodes), 0)
    leak[:, _first_of_parts(graph)] = 0.01
    # Sources of both signs whose sum has lost no digits.
    source = rand(graph.num_nodes) - 0.2
    return conductance.to(dtype), leak.to(dtype), source.to(dtype)


def _first_of_parts(graph):
    sparse = pytest.importorskip("scipy.sparse")
    ends = graph.ends.numpy()
    shape = (graph.num_nodes, graph.num_nodes)
    matrix = sparse.coo_array((np.ones(ends.shape[1]), ends), shape=shape)
    part = sparse.csgraph.connected_components(matrix, directed=False)[1]
    return np.unique(part, return_index=True)[1]


def error(found, truth):
    """The largest over networks of the largest error relative to the largest value."""
    off = (found.double() - truth.double()).abs().flatten(1, -2).amax(1)
    return float((off / truth.double().abs().flatten(1, -2).amax(1).clamp_min(1e-300)).max())


@EACH_GRAPH
def test_every_node_and_edge_has_its_place_in_the_plan(case):
    _, edges, nodes, positions = case
    graph = Graph(edges, nodes, positions)
    plan = make_plan(graph)
    check(plan, (nodes,), [(e, *ends) for e, ends in enumerate(edges.tolist())])


@EACH_DTYPE
@EACH_DIRECT
@EACH_GRAPH
def test_potentials_and_gradients_agree_with_scipy(case, backend, dtype, filling):
    if backend == "torch" and filling == "rows":
        pytest.skip("the kernel's")
    graph = Graph(*case[1:])
    inputs = circuit_on(graph, dtype=dtype)
    weights = circuit_on(graph, dtype=dtype, seed=1)[2]  # sources of the adjoint circuit

    def results(dtype, backend, tol):
        g, leak, s = (x.to(dtype).requires_grad_() for x in inputs)
        v = solve_network(s, g, leak, graph=graph, backend=backend, solver=Auto(tol))
        return v, *torch.autograd.grad((v * weights.to(dtype)).sum(), (g, leak, s))

    # The reference finds gradients of conductances to `tol`.
    truth = results(torch.float64, "reference", 1e-14)
    pairs = zip(results(dtype, backend, 1e-5), truth, strict=True)
    off = [error(found, right) for found, right in pairs]
    assert max(off) < TOLERANCE[dtype], off


@EACH_GRAPH
@EACH_DIRECT
def test_sources_that_cancel_have_small_backward_errors(case, backend):
    """Where small leaks meet sources whose sum has few digits, rounding the sources alone changes
    potentials by more than 2e-5. Then they are those of sources and conductances nearby."""
    graph = Graph(*case[1:])
    g, leak, s = circuit_on(graph, dtype=torch.float32)
    total = s.double().sum(1) - s[:, 0].double()
    s[:, 0] = (1e-6 * s[:, 0].double() - total).float()
    _, info = solve_network(s, g, leak, graph=graph, info=True, backend=backend)
    assert float(info.backward_error.max()) < 2e-6


LARGE = "large", delaunay(1000)[0], 1000, delaunay(1000)[1]


@EACH_DTYPE
@EACH_DIRECT
@pytest.mark.parametrize(
    ("case", "contrast"),
    [*((case, 1e12) for case in CASES), (LARGE, 1e6), (LARGE, 1e12)],
    ids=[*(case[0] for case in CASES), "large, 1e6", "large, 1e12"],
)
def test_potentials_of_any_contrast(case, contrast, backend, dtype):
    graph = Graph(*case[1:])
    g, leak, s = circuit_on(graph, B=1, C=1, contrast=contrast, dtype=dtype)
    truth = solve_network(s.double(), g.double(), leak.double(), graph=graph, backend="reference")
    assert error(solve_network(s, g, leak, graph=graph, backend=backend), truth) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    "edges",
    [
        [(0, 1), (2, 1), (1, 0), (1, 2), (0, 2), (2, 0)],  # each in both directions
        [(0, 1), (2, 1), (1, 2), (0, 2), (1, 2)],
    ],
)
def test_the_message_about_parallel_edges_mends_them(edges):
    """Its lines are run, and give the circuit whose edges are added by hand."""
    B, C = 2, 3
    edges = torch.tensor(edges)
    g = torch.rand(B, len(edges), C, dtype=torch.float64) + 0.1
    both_ways = len(edges) == 6
    if both_ways:
        g[:, [2, 3, 5]] = g[:, [0, 1, 4]]
    A = torch.zeros(B, C, 3, 3, dtype=torch.float64) + torch.eye(3)
    for e, (p, q) in enumerate(edges.tolist()):
        if p < q or not both_ways:
            for i, j in ((p, q), (q, p)):
                A[:, :, i, i] += g[:, e]
                A[:, :, i, j] -= g[:, e]
    with pytest.raises(ValueError, match="one edge between two nodes at most") as caught:
        Graph(edges, 3)
    remedy = str(caught.value).partition(": kept" if both_ways else ": edges, part")
    names = {"edges": edges, "g": g, "B": B, "C": C}
    exec((remedy[1] + remedy[2])[2:].rpartition(", got")[0], names)
    s = torch.rand(B, 3, C, dtype=torch.float64)
    v = Circuit(names["g"], torch.ones_like(s), Graph(names["edges"], 3)).solve(s)
    expected = torch.linalg.solve(A, s.movedim(1, -1)[..., None])[..., 0].movedim(-1, 1)
    torch.testing.assert_close(v, expected)


@pytest.mark.parametrize(
    "kind", ["u1", "i4", "u4", ">i8", "reversed", "read-only", "list", "tensor"]
)
def test_edges_are_arrays_of_any_kind(kind):
    edges = np.array([(0, 1), (1, 2), (2, 3)])
    positions = np.array([[0.1], [0.2], [0.3], [0.4]])
    expected = Graph(edges, 4, positions)
    if kind == "reversed":
        edges, positions = edges[::-1].copy()[::-1], positions[::-1].copy()[::-1]
    elif kind == "read-only":
        edges.setflags(write=False)
    elif kind == "list":
        edges, positions = edges.tolist(), positions.tolist()
    elif kind == "tensor":
        edges, positions = torch.tensor(edges).int(), torch.tensor(positions, requires_grad=True)
    else:
        edges, positions = edges.astype(kind), positions.astype(">f8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = Graph(edges, np.int64(4), positions)
    assert graph == expected
    np.testing.assert_array_equal(graph.positions, expected.positions)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def expander():
    """A circuit whose graph has no small separators, and what its factors take."""
    edges = random_regular(300, 6, np.random.default_rng(0))
    graph = Graph(edges, 300)
    operations = 2 * make_plan(graph).total_work
    leak = torch.ones(1, 300, 1)
    return Circuit(torch.ones(1, len(edges), 1), leak, graph), leak, operations


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_a_graph_that_cannot_be_factored_is_refused_with_its_bytes_and_work(
    monkeypatch, expander, dtype
):
    circuit, leak, operations = expander
    circuit.leak = leak = leak.to(dtype)
    monkeypatch.setattr(methods, "MEMORY", 1000)
    size = predicted_bytes(circuit.layout, 1, dtype)
    for source in (leak, leak[:, None]):  # one source, and several
        said = re.escape(f"{size} bytes) and {operations:.0e} oper")
        with pytest.raises(RuntimeError, match=said):
            circuit.solve(source)
        assert torch.allclose(circuit.solve(source, solver=Direct()), torch.ones((), dtype=dtype))


ENTRIES = {
    "direct": lambda circuit, leak: circuit.solve(leak, solver=Direct()),
    "several": lambda circuit, leak: circuit.solve(leak[:, None], solver=Direct()),
    "complex": lambda circuit, leak: circuit.solve(leak + 0j, solver=Direct()),
    "factorize": lambda circuit, _: circuit.factorize(),
    "resistance": lambda circuit, _: circuit.resistance(torch.tensor([[0, 1]])),
    "function": lambda circuit, leak: factorize(circuit.conductance[0], leak, graph=circuit.layout),
    "complex factor": lambda circuit, leak: factorize(
        circuit.conductance[0] + 0j, leak, graph=circuit.layout
    ),
    "grid": lambda _, leak: Circuit((leak[:, :, None],) * 2, leak[:, :, None]).factorize(),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_factors_beyond_all_memory_are_refused_before_they_are_made(monkeypatch, expander, entry):
    circuit, leak, operations = expander
    monkeypatch.setattr(elimination, "memory_of", lambda _: 1000)
    work = "" if entry == "grid" else f"{operations:.0e} operations"
    message = rf"the memory that there is.*\d+ bytes.*{re.escape(work)}"
    with pytest.raises(RuntimeError, match=message):
        ENTRIES[entry](circuit, leak)


def test_a_batch_of_large_circuits_is_eliminated_one_after_the_other(monkeypatch, expander):
    """Factors of all would not fit; `factorize` would hold them."""
    circuit, leak, _ = expander
    count = 8 * torch.get_num_threads()
    scale = torch.arange(1.0, count + 1).reshape(count, 1, 1)
    batch = Circuit(circuit.conductance[0] * scale, leak * scale, circuit.layout)
    monkeypatch.setattr(methods, "MEMORY", 1000)
    most = predicted_bytes(circuit.layout, torch.get_num_threads())
    monkeypatch.setattr(elimination, "memory_of", lambda _: most)
    v = batch.solve(leak * scale, solver=Direct())
    assert torch.allclose(v, torch.ones(()))
    with pytest.raises(RuntimeError, match=f"got {count} on Graph of 300 nodes"):
        batch.factorize()


def test_info_and_equal_graphs():
    graph = Graph([(0, 1), (1, 2)], 3, np.arange(3.0)[:, None])
    copies = copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))
    for other in (Graph([(0, 1), (1, 2)], 3, np.arange(3.0)[:, None]), *copies):
        assert other == graph
        assert hash(other) == hash(graph)
        np.testing.assert_array_equal(other.positions, graph.positions)  # pyright: ignore[reportArgumentType]
        assert make_plan(other) is make_plan(graph)
    assert graph != Graph([(0, 1), (2, 1)], 3)
    g, leak = torch.ones(1, 2, 1), torch.ones(1, 3, 1)
    v, info = Circuit(g, leak, graph).solve_with_info(leak)
    assert info.method == "direct"
    assert info.reason == "elimination: a graph"
    assert float(info.backward_error) < 1e-6
    assert torch.allclose(factorize(g, leak, graph=graph).solve(leak), v)


def test_metis_orders_graphs_without_positions(monkeypatch):
    pytest.importorskip("pymetis")
    edges, positions = delaunay(4000)
    placed, metis = (Graph(edges, 4000, x) for x in (positions, None))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    searched = Graph(edges, 4000)
    work = [make_plan(graph).total_work for graph in (placed, metis, searched)]
    assert work[1] < 1.5 * work[0]
    assert work[2] < 3 * work[0]


def test_one_long_path():
    n = 100_000
    graph = Graph(np.stack([np.arange(n - 1), np.arange(1, n)], 1), n)
    g, leak, s = torch.ones(1, n - 1, 1), torch.zeros(1, n, 1), torch.zeros(1, n, 1)
    leak[:, -1], s[:, 0] = 1, 1
    v = Circuit(g.double(), leak.double(), graph).solve(s.double())
    assert torch.allclose(v[0, :, 0], torch.arange(n, 0, -1, dtype=torch.float64), rtol=1e-10)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_one_graph_is_shared_by_threads(set_threads, threads):
    edges, positions = delaunay(3000)
    graph = Graph(edges, 3000, positions)
    g, leak, s = (x.requires_grad_() for x in circuit_on(graph, B=1, C=1))
    truth = solve_network(s, g, leak, graph=graph, backend="reference")
    set_threads(threads)
    v = Circuit(g, leak, graph).solve(s)
    torch.autograd.grad(v.sum(), (g, leak, s))
    assert error(v, truth) < 1e-11
