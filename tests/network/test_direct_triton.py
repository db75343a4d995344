"""The Triton elimination, run by Triton's interpreter on the CPU, against the elimination by
PyTorch in float64; its launches are counted, and its kernels compiled without a GPU.

The interpreter is chosen when Triton is first imported, and other tests may have imported it: so
the checks run in a process of their own. `test_on_cuda` runs them compiled, where CUDA is.
"""

import os
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import combinations
from unittest import mock

import commands
import numpy as np
import pytest
import torch
from network_cases import (
    assert_equal,
    assert_near,
    factorize,
    make_network,
    run,
    solve_network,
    solver_of,
    truth,
)
from test_direct import check_cancelling
from test_graphs import circuit_on
from test_signed import obtuse
from torch.autograd.profiler import profile
from triton_launches import arguments_of, recorded

from chonn_ops import Direct, Graph, Grid
from chonn_ops.network.direct import elimination
from chonn_ops.network.direct import torch as dense
from chonn_ops.network.direct.plan import make_plan
from chonn_ops.network.solve import autograd, methods, operator

if find_spec("triton") is not None:
    from chonn_ops.network.direct import triton as backend

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
compiles = pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="Triton interprets")

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


# Panels and tiles of the smallest blocks, so that small fronts take several.
FEW = dict.fromkeys(("_PANEL", "_ALONE", "_COLUMNS", "_FUSED"), 16)
FEW |= {"_TILE": 32, "_SWEPT": 256}


@contextmanager
def sizes_of(changes):
    """Other sizes of the backend, by name."""
    with mock.patch.dict(vars(backend), changes):
        backend._tables.cache_clear()
        yield
    backend._tables.cache_clear()


def _networks(grid, dtype, *, B=1, S=1, C=1, contrast=1e6, leak=1e-3, seed=0):
    """Conductances, leaks and sources (B, S, \\*grid, C)."""
    rand = torch.Generator().manual_seed(seed)
    spread = (torch.rand(B, *grid, C, generator=rand, dtype=torch.float64) for _ in grid)
    g = [(contrast**x).to(dtype) for x in spread]
    source = torch.rand(B, S, *grid, C, generator=rand, dtype=torch.float64) - 0.3
    return g, torch.full((B, *grid, C), leak, dtype=dtype), source.to(dtype)


def _expected(plan, g, leak, source):
    wide = [x.double() for x in g]
    return dense.Factors(plan, wide, leak.double(), source.double(), drops=True)


def check_plan(plan, g, leak, source):
    """Potentials, differences, log-determinant and a second solve; returns the factors."""
    expected = _expected(plan, g, leak, source)
    factors = backend.Factors(plan, g, leak, source, drops=True)
    tolerance = TOLERANCE[leak.dtype]
    assert_near(factors.solution.potential, expected.solution.potential, tolerance)
    for found, right, edge in zip(factors.solution.drops, expected.solution.drops, g, strict=True):
        # Edges of 0 join parts, whose levels may differ a lot.
        for some in (right != 0, (edge[:, None] > 0) & (right != 0)):
            if some.any():
                assert_near(found[some], right[some], tolerance)
    assert_near(factors.logdet(), expected.logdet(), tolerance)
    assert not factors.solution.residual.any()
    kept = backend.Factors.restored(plan, factors.state(), leak)
    assert torch.equal(kept.solve(source).potential, factors.solution.potential)
    return factors


def check_grid(grid, periodic, dtype=torch.float32, leaf=16, sizes=(), **options):
    with sizes_of(dict(sizes)):
        check_plan(make_plan(Grid(grid, periodic), leaf), *_networks(grid, dtype, **options))


def check_selection():
    """The check that a GPU has to pass before its kernels are selected."""
    for backends in (operator.BACKENDS, elimination.BACKENDS):
        assert not backends._difference(torch.device("cpu"))


def check_mask():
    """A network whose left half, a hole and all, is the network; the rest is no part of it."""
    grid = (9, 11)
    g, leak, source = _networks(grid, torch.float32, leak=1e-6)
    outside = torch.zeros(1, *grid, 1, dtype=torch.bool)
    outside[:, :, 6:] = outside[:, 2:5, 2:4] = True
    for axis, field in enumerate(g, 1):
        field[outside | outside.roll(-1, axis)] = 0
    leak[outside] = 0
    factors = check_plan(backend.plan_of(Grid(grid)), g, leak, source)
    assert not factors.solution.potential[:, 0][outside].any()


def check_parts():
    """Two parts of levels that differ 1e9 times, their differences; and one without ground."""
    grid = (8, 9)
    plan = backend.plan_of(Grid(grid))
    g, leak, source = _networks(grid, torch.float32, B=2, contrast=10.0)
    for field in g[1:]:
        field[:, :, 3] = 0
    leak[:, :, :4] = 1e-9
    check_plan(plan, [x[:1] for x in g], leak[:1], source[:1])
    leak[1, :, 4:] = 0
    factors = backend.Factors(plan, g, leak, source, drops=True)
    assert (factors.logdet() == -np.inf).flatten().tolist() == [False, True]
    residual = factors.solution.residual
    assert residual.shape == (2, 1, 1)
    assert residual.flatten().tolist() == [0, np.inf]
    potential = factors.solution.potential
    assert (potential[1, 0, :, 4:] == 0).any()
    expected = _expected(plan, g, leak, source).solution.potential
    assert_near(potential[1, :, :, :4], expected[1, :, :, :4], 2e-5)


def check_values_that_are_no_numbers():
    grid = (5, 6)
    plan = backend.plan_of(Grid(grid))
    g, leak, source = _networks(grid, torch.float32, B=3, S=2)
    g[0][0, -1], g[1][0, :, -1] = torch.nan, -1.0  # no edges
    g[0][1, 2, 3], source[2, 1, 0, 0] = torch.inf, torch.nan
    solution = backend.Factors(plan, g, leak, source, drops=True).solution
    finite = solution.potential.isfinite().flatten(2).all(2).tolist()
    assert finite == [[True, True], [False, False], [True, False]]
    assert solution.potential[1].isnan().all()
    assert solution.potential[2, 1].isnan().all()
    assert solution.residual.isnan().flatten(1).all(1).tolist() == [False, True, False]
    assert_near(solution.potential[0], _expected(plan, g, leak, source).solution.potential[0], 2e-5)


def check_sizes_of_numbers(scale):
    grid = (5, 6)
    plan = backend.plan_of(Grid(grid))
    g, leak, source = _networks(grid, torch.float32, contrast=100.0, leak=0.1)
    g, leak, source = [x * scale for x in g], leak * scale, source * scale
    check_plan(plan, g, leak, source)


def _graph(name):
    ring = np.random.default_rng(0).permutation(30)
    edges, num_nodes = {
        "star": ([(5, node) for node in range(25) if node != 5], 25),
        "complete": (list(combinations(range(19), 2)), 19),
        "parts": ([(2, 0), (0, 1), (4, 3)], 7),  # and nodes 5 and 6
        "ring and chords": ([*zip(ring, np.roll(ring, 1), strict=True), (0, 9), (17, 2)], 30),
    }[name]
    assert len({frozenset(edge) for edge in edges}) == len(edges)
    return Graph(edges, num_nodes)


def check_graph(name, dtype):
    """At a contrast of 1e12, in panels of 16 pivots. Nodes 5 and 6 of "parts" have no edge, and
    node 6 no leak."""
    graph = _graph(name)
    g, leak, source = circuit_on(graph, contrast=1e12, dtype=dtype)
    if name == "parts":
        leak[:, 6] = 0
    with sizes_of(FEW):
        plan = backend.plan_of(graph)
        factors = check_plan(plan, [g], leak, torch.stack([source, -2 * source.flip(1)], 1))
    if name == "parts":
        assert not factors.solution.potential[:, :, 6].any()
        leak[1, 3:5] = 0
        factors = backend.Factors(plan, [g], leak, source[:, None])
        assert (factors.logdet() == -np.inf).flatten().tolist() == [False, False, True, True]
        assert factors.solution.residual.flatten().tolist() == [0, 0, np.inf, np.inf]


def check_a_hub_of_a_thousand_edges():
    """Tables have a row for each edge, not for each node and each edge of the hub."""
    edges = [(0, node) for node in range(1, 1001)]
    graph = Graph(edges, 1001)
    plan = backend.plan_of(graph)
    tables = filter(torch.is_tensor, backend._tables(plan, torch.device("cpu")))
    assert sum(x.numel() for x in tables) < 30 * 1001


def _assert_gradients_agree(g, leak, source, dtype, **options):
    """Compare "triton" in a dtype with "torch" in float64."""
    found = []
    for backend, kind in (("triton", dtype), ("torch", torch.float64)):
        leaves = [x.to(kind).requires_grad_() for x in (source, leak, *g)]
        fields = leaves[2] if "graph" in options else leaves[2:]
        v = solve_network(leaves[0], fields, leaves[1], backend=backend, **options)
        weight = torch.rand(v.shape, generator=torch.Generator().manual_seed(1)).to(v.dtype) - 0.3
        found.append((v.detach(), *torch.autograd.grad(v, leaves, weight)))
    assert_near(*found, TOLERANCE[dtype])


def check_gradients(grid, dtype, leak, S, method="direct", periodic=False):
    g, leak, source = _networks(grid, dtype, S=S or 1, C=2, leak=leak, contrast=1e3)
    source = source if S else source[:, 0]
    options = {"solver": solver_of(method), "periodic": periodic}
    _assert_gradients_agree(g, leak, source, dtype, **options)


def check_gradients_of_graph(name, dtype):
    graph = _graph(name)
    g, leak, source = circuit_on(graph, B=1, contrast=1e12)
    source = torch.stack([source, 0.5 - source], 1)
    _assert_gradients_agree([g], leak, source, dtype, graph=graph)


def check_against_reference():
    """With walls; `method="auto"` eliminates."""
    case = make_network((6, 5), B=2, C=2, dtype=torch.float32)
    options = {"boundary": "dirichlet", "backend": "triton"}
    actual = run(*case, **options)
    assert_equal(actual, truth(*case, boundary="dirichlet"), 2e-5)


def check_signed():
    """Negative conductances; NaN where the matrix is not positive definite."""
    graph, g, leak = obtuse(2, 1, 16)
    plan, source = backend.plan_of(graph), leak[:, None] - 0.5
    check_plan(plan, [g], leak, source)
    g[1, 3] = -1e4
    v = backend.Factors(plan, [g], leak, source).solution.potential
    assert v.isnan().flatten(1).all(1).tolist() == [False, True]


def check_factorize(name):
    """Checks the factors of a grid, or of a graph by name."""
    graph = _graph(name) if name else None
    if graph is None:
        g, leak, source = _networks((6, 5), torch.float64, B=2, C=2, contrast=100.0)
        source = source[:, 0]
    else:
        g, leak, source = circuit_on(graph, contrast=100.0)
    factors = [factorize(g, leak, graph=graph, backend=x) for x in ("triton", "torch")]
    assert factors[0]._elimination.backend == "triton"
    n, shape = 30, leak.shape[1:-1]
    # Samples depend on the order of elimination, their covariance does not.
    every = torch.eye(n, dtype=torch.float64).reshape(1, n, *shape, 1).expand(2, n, *shape, 2)
    results = []
    for x in factors:
        root = x.sample(every).movedim(-1, 1).flatten(3)
        results.append((x.logdet(), x.diagonal_of_inverse(), x.solve(source), root.mT @ root))
    assert_near(*results, 1e-12)
    assert factors[0].sample(source).shape == source.shape
    if graph is None:
        ac = factorize([x + 0.1j for x in g], torch.zeros_like(leak) + 0j, backend="triton")
        assert ac._elimination.backend == "torch"
        with pytest.raises(ValueError, match=r"node \("):
            ac.solve(source)


F64, HARD = {"dtype": torch.float64}, {"contrast": 1e12}
GRIDS = [
    ((4, 6), (False, False), {"B": 2, "C": 5, "S": 2}),
    ((5, 7), (True, True), F64),
    ((2, 9), (True, False), {"C": 3}),
    ((1, 1), (False, False), {}),
    ((40,), (False,), {}),
    ((12,), (True,), F64),
    ((9, 10), (False, True), {**HARD, "leak": 1e-12}),
    ((3, 4, 5), (False, True, False), HARD),
    ((7, 9), (False, False), {"B": 3, "C": 3}),
    # Fronts of several panels: one of them, and of several sizes.
    *(
        (*x, {"dtype": dtype, "sizes": FEW, "leaf": leaf})
        for *x, leaf in (((7, 8), (False, False), 64), ((10, 13), (False, True), 60))
        for dtype in TOLERANCE
    ),
    *(
        pytest.param(*x, marks=pytest.mark.slow)
        for x in (
            ((33, 20), (False, False), HARD),
            ((16, 16), (False, False), HARD),
            ((34, 40), (False, False), {"sizes": FEW, "leaf": 64}),
            ((17, 18), (True, True), F64),
            ((8, 8, 8), (False, False, False), HARD),
        )
    ),
]


@needs_triton
@pytest.mark.parametrize(("grid", "periodic", "options"), GRIDS)
def test_grids(interpreted, grid, periodic, options):
    interpreted(check_grid, grid, periodic, **options)


GRAPHS = ("star", "complete", "parts", "ring and chords")
CHECKS = [
    (check_selection,),
    (check_mask,),
    (check_signed,),
    (check_parts,),
    (check_values_that_are_no_numbers,),
    *((check_sizes_of_numbers, scale) for scale in (1e-35, 1e35)),
    *((check_graph, name, dtype) for name in GRAPHS for dtype in TOLERANCE),
    *((check_gradients_of_graph, name, torch.float32) for name in GRAPHS),
    (check_a_hub_of_a_thousand_edges,),
    (check_cancelling, "triton", "block", 1e-8),
    # Small leaks lift all potentials alike, so that plain differences would have no digits.
    *(
        (check_gradients, (6, 7), dtype, leak, sources)
        for dtype, leak in ((torch.float64, 1e-3), (torch.float32, 1e-9))
        for sources in (None, 2)
    ),
    (check_gradients, (3, 4, 3), torch.float32, 1e-3, None, "auto", True),
    (check_against_reference,),
    (check_factorize, None),
    (check_factorize, "ring and chords"),
]


@needs_triton
@pytest.mark.parametrize("check", CHECKS, ids=lambda x: " ".join(map(str, (x[0].__name__, *x[1:]))))
def test_by_the_interpreter(interpreted, check):
    pytest.importorskip("scipy")
    interpreted(*check)


# PyTorch's operators that launch nothing.
NOTHING = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "view", "reshape"),
    *("expand", "select", "slice", "detach", "detach_", "as_strided", "unsqueeze", "squeeze"),
    *("permute", "transpose", "t", "alias", "result_type", "resolve_conj", "is_same_size"),
    *("unbind", "split", "narrow", "view_as", "movedim", "contiguous", "lift_fresh", "unflatten"),
    *("_unsafe_view", "_reshape_alias", "flatten", "real", "view_as_real", "to", "resolve_neg"),
    *("conj", "ones_like", "set_", "resize_", "_conj", "_has_compatible_shallow_copy_type"),
}


def count_launches(grid, batch, sources):
    """Launches of the kernels and of PyTorch's operators in a forward with gradients, its backward,
    and a forward without; and operators that would wait for the device."""
    several = (sources,) if sources else ()
    source = torch.ones(batch, *several, *grid, 3)
    leaves = [torch.ones(batch, *grid, 3).requires_grad_() for _ in range(3)]
    source.requires_grad_()
    *conductance, leak = leaves
    network = methods.Networks(conductance, leak, Grid(grid), 1e-5, 100, "triton")
    launched = []

    def forward():
        return autograd.solve_network(source, network, check=False)[0]

    def count(function):
        launched.clear()
        with profile() as profiler:
            result = function()
        events = [x.name for x in profiler.function_events if not x.cpu_children]
        names = [x.removeprefix("aten::") for x in events if x.startswith("aten::")]
        waits = [x for x in names if x in ("_local_scalar_dense", "nonzero", "equal", "is_nonzero")]
        return result, len(launched) + len([x for x in names if x not in NOTHING]), waits

    def launch(*_, **__):
        launched.append(1)

    # On a GPU signs of numbers are not read.
    on_gpu = [x.to("meta") for x in leaves]
    assert methods.read_signs(on_gpu[:2], on_gpu[2], network.layout) == (None, False)
    unread = mock.patch.object(methods, "read_signs", return_value=(None, False))
    with unread, mock.patch.object(backend, "_launch", launch):
        with torch.no_grad():
            _, alone, waits = count(forward)
        v, with_gradients, more = count(forward)
        weight = torch.ones_like(v)
        inputs = [source, *leaves]
        _, back, most = count(lambda: torch.autograd.grad(v, inputs, weight))
    return alone, with_gradients + back, [*waits, *more, *most]


@needs_triton
@pytest.mark.parametrize("sources", [None, 4])
@pytest.mark.parametrize(
    ("grid", "batch", "forward", "both"), [((64, 64), 1, 32, 80), ((256, 256), 1, 140, 320)]
)
def test_launches(interpreted, grid, batch, forward, both, sources):
    """Nothing of a step waits for the device."""
    alone, all_of, waits = interpreted(count_launches, grid, batch, sources)
    assert waits == []
    assert alone <= forward + (sources is not None)  # several are brought into order first
    assert all_of <= both


@needs_triton
def test_launches_do_not_grow_with_the_batch(interpreted):
    few, many = (interpreted(count_launches, (64, 64), batch, None) for batch in (1, 32))
    assert few == many


# Registers of a thread and bytes of shared memory of a program, of networks in float32.
MOST = {
    "pack": (96, 4096),
    "pivots": (255, 34816),
    "beyond": (255, 24576),
    "update": (255, 16384),
    "add": (128, 1024),
    "levels": (80, 64),
    "up": (255, 6144),
    "down": (220, 16384),
    "drops": (96, 4096),
}
# Bytes of a thread: panels of many fronts in float32, and of 64 pivots in float64.
MOST_SPILLED = {"float32": 160, "float64": 336}


SMALL = [(Grid((16, 16)), "float32"), (Grid((40, 40), True), "float32"), (Grid((6, 6)), "float64")]
LARGE = [(Grid((64, 64)), "float32"), (Grid((8, 8, 8)), "float32")]
LARGE += [(Grid((20, 20), True), "float64"), (_graph("complete"), "float32")]


@needs_triton
@compiles
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    "cases", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["small", "large"]
)
def test_kernels_compile(compile_triton, cases, capability):
    """What the interpreter lets pass and the compiler does not; needs no GPU."""
    distinct = {}
    for layout, dtype in cases:
        for launch in recorded(layout, dtype=dtype)[0]:
            distinct.setdefault((launch[0].__name__, str(launch[1:]), dtype), launch)
    for (name, text, dtype), launch in distinct.items():
        found = compile_triton(*arguments_of(launch, dtype), capability)
        registers, spilled, shared = found
        assert spilled <= MOST_SPILLED[dtype], (name, text, found)
        if dtype == "float32":
            assert (registers <= MOST[name][0]) & (shared <= MOST[name][1]), (name, text, found)


def test_networks_on_the_cpu_leave_triton_alone():
    command = (
        "import sys, torch; from chonn_ops import Circuit, Grid\n"
        "one = torch.ones(1, 3, 3, 1)\n"
        "Circuit((one, one), one, on=Grid((3, 3))).factorize().solve(one)\n"
        "assert not {'triton', 'chonn_ops.network.direct.triton'} & set(sys.modules)"
    )
    commands.python(command, env={"TRITON_INTERPRET": None})


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("grid", [(5, 7), (64, 64), (130, 100), (12, 12, 12)])
def test_on_cuda(grid, dtype):
    g, leak, source = _networks(grid, dtype, B=3, C=2)
    found = []
    for device, backend, kind in (("cuda", "triton", dtype), ("cpu", "torch", torch.float64)):
        given = [x.to(device, kind).requires_grad_() for x in (source[:, 0], leak, *g)]
        v = solve_network(given[0], given[2:], given[1], backend=backend, solver=Direct())
        found.append([x.cpu() for x in (v.detach(), *torch.autograd.grad(v.sum(), given))])
    assert_near(*found, TOLERANCE[dtype])
