"""The direct method: potentials, derivatives, determinants, inverses and samples of its factors."""

import copy
import math
import pickle
import re
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

import commands
import numpy as np
import pytest
import torch
from network_cases import (
    assert_near,
    edges_of,
    factorize,
    make_network,
    matrix,
    on,
    solve_network,
    walled,
)
from rows import thorough
from test_graphs import CASES as GRAPHS
from test_plan import LARGE
from torch import Tensor

from chonn_ops import Auto, Circuit, Direct, Graph, Grid
from chonn_ops.boundary import series
from chonn_ops.network.direct import cpu
from chonn_ops.network.direct.elimination import Elimination, flops, predicted_bytes
from chonn_ops.network.solve import methods

ISAS = compiled.isas if (compiled := cpu.kernel()) else ()
BACKENDS = ("cpu", "torch") if ISAS else ("torch",)
EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}
EACH_DTYPE = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
WAYS = [
    *(
        pytest.param((filling, isa), marks=() if isa == ISAS[-1] else pytest.mark.thorough)
        for isa in ISAS
        for filling in ("lanes", "rows")
    ),
    ("torch", ""),
]


@pytest.fixture(params=WAYS, ids=" ".join)
def way(request, monkeypatch):
    """The backend, with an instruction set of the compiled kernel and with what fills its vectors:
    networks, or rows of fronts."""
    filling, isa = request.param
    if filling == "torch":
        return filling
    monkeypatch.setattr(cpu, "_worth_lanes", lambda _: 0 if filling == "lanes" else math.inf)
    monkeypatch.setenv("CHONN_NETWORK_ISA", isa)
    return "cpu"


def elimination(s, conductance: Sequence[Tensor], leak: Tensor):
    """Potentials (\\*grid) of one network by a dense elimination in extended precision, which takes
    no difference: the truth where a matrix in float64 has lost the leaks. s: an array."""
    n, grid = leak.numel(), leak.shape
    g = np.zeros((n, n), np.longdouble)
    for x, (p, q, entry) in zip(conductance, edges_of([False] * len(grid), grid), strict=True):
        g[p, q] = g[q, p] = x.double().flatten()[entry].numpy()
    leaks = leak.double().numpy().ravel().astype(np.longdouble)
    v = np.array(s, np.longdouble).ravel()
    shares = []
    for k in range(n):
        t = leaks[k] + g[k, k + 1 :].sum()
        share = g[k, k + 1 :] / (t or 1)  # 0: no part of the network
        g[k + 1 :, k + 1 :] += np.outer(share, g[k, k + 1 :])
        leaks[k + 1 :] += share * leaks[k]
        v[k + 1 :] += share * v[k]
        v[k] /= t or 1
        shares.append(share)
    for k in reversed(range(n)):
        v[k] += shares[k] @ v[k + 1 :]
    return torch.from_numpy(v.astype(float)).reshape(grid)


def cancelling(kind: str, small: float) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    """Source, conductances, leak and cotangent (16, 16) of a network that hardly leaks what its
    sources, a dipole, leave: everywhere, or in a block behind small conductances."""
    rng = np.random.default_rng(0)
    g = [torch.from_numpy(np.exp(rng.normal(size=(16, 16)))).float() for _ in range(2)]
    leak = torch.full((16, 16), small if kind == "leak" else 0.1)
    if kind == "block":
        for x in (g[0], g[1].mT):
            x[[4, 11], 5:12] *= small
        leak[5:12, 5:12] = 0
    source, weight = torch.zeros(2, 16, 16).unbind()
    source[6, 6], source[10, 9] = 1, -1
    weight[6, 10], weight[9, 6] = 1, -1
    return source, g, leak, weight


SMALL = [
    (1, (9,), 1, (False,)),
    (3, (10,), 7, (True,)),
    (2, (1,), 2, (True,)),
    (1, (12, 13), 1, (False, False)),
    (5, (9, 14), 5, (False, True)),
    (1, (11, 8), 2, (True, True)),
    (17, (8, 8), 1, (False, False)),
    (2, (5, 6, 7), 3, (True, False, True)),
    (1, (1, 8), 3, (True, True)),
    (2, (2, 2), 1, (True, True)),
    (1, (3, 1, 5), 2, (True, True, False)),
    (3, (13, 17), 3, (False, True)),
    *((2, Graph(*case[1:]), 2, ()) for case in GRAPHS[-2:]),
]


@lru_cache(maxsize=2)
def network_and_inverse(B, grid, C, periodic, dtype):
    """A network, what is no edge in it NaN, and the determinant and inverse of its matrix. NumPy's,
    because PyTorch's fails beside an address sanitizer (`make sanitize`)."""
    source, g, leak = make_network(grid, B=B, C=C, dtype=dtype)
    a = matrix(g, leak, periodic or grid).numpy()
    for axis, closed in enumerate(periodic):
        if not closed:
            g[axis].select(axis + 1, -1).fill_(math.nan)
    logdet = torch.from_numpy(np.linalg.slogdet(a)[1])
    return source, g, leak, logdet, torch.from_numpy(np.linalg.inv(a))


@EACH_DTYPE
@pytest.mark.parametrize(("B", "grid", "C", "periodic"), SMALL)
def test_results_are_those_of_the_matrix(way, B, grid, C, periodic, dtype):
    source, g, leak, logdet, inverse = network_and_inverse(B, grid, C, periodic, dtype)
    g, leak = [x.clone().requires_grad_() for x in g], leak.clone().requires_grad_()
    given = {"periodic": periodic} if periodic else {"graph": grid}
    grid = source.shape[1:-1]

    def rows(x):
        """Fields (B, ..., \\*grid, C) as (B * C, ..., nodes)."""
        return x.detach().double().movedim(-1, 1).flatten(-len(grid)).flatten(0, 1)

    factor = factorize(g if periodic else g[0], leak, **given, backend=way)
    n, layout = math.prod(grid), periodic or given["graph"]
    s = rows(source)
    expected = (inverse @ s[..., None])[..., 0]
    assert_near(rows(factor.solve(source)), expected, TOLERANCE[dtype] / 10)
    flipped = source.flip(1)
    for count in (3, 22):
        v = rows(factor.solve(torch.stack([source, flipped, *[-source] * (count - 2)], 1)))
        others = (inverse @ rows(flipped)[..., None])[..., 0]
        for index, truth in ((0, expected), (1, others), (count - 1, -expected)):
            assert_near(v[:, index], truth, TOLERANCE[dtype] / 10)
    torch.testing.assert_close(
        factor.logdet().flatten().double(), logdet, rtol=TOLERANCE[dtype], atol=1e-5
    )
    diagonal = inverse.diagonal(dim1=1, dim2=2)
    slope, *slopes = torch.autograd.grad(factor.logdet().sum(), (leak, *g))
    assert_near(rows(slope), diagonal, TOLERANCE[dtype])
    for found, (p, q, entry) in zip(slopes, edges_of(layout, grid), strict=True):
        if len(p):
            across = diagonal[:, p] + diagonal[:, q] - 2 * inverse[:, p, q]
            assert_near(rows(found)[:, entry], across, TOLERANCE[dtype])
    assert_near(rows(factor.diagonal_of_inverse()), diagonal, TOLERANCE[dtype])
    # All columns of the root: white noise of one node each.
    unit = torch.eye(n, dtype=dtype).reshape(1, n, *grid, 1).expand(B, -1, *grid, C)
    root = rows(factor.sample(unit))
    assert_near(root.mT @ root, inverse, TOLERANCE[dtype])


@EACH_DTYPE
@pytest.mark.parametrize(("grid", "periodic"), LARGE)
def test_large_grids_of_any_contrast(way, grid, periodic, dtype):
    """Conductances of 1e-3 to 1e3, a tenth of them 0, and a leak at every third node or so,
    against PyTorch's elimination in float64, which `test_fuzz` tests."""
    if way == "torch":
        pytest.skip("the truth")
    generator = torch.Generator().manual_seed(0)

    def rand(*more):
        return torch.rand(2, *more, *grid, 2, dtype=torch.float64, generator=generator)

    g = [(10 ** (6 * rand() - 3) * (rand() > 0.1)).to(dtype) for _ in grid]
    leak = (rand() * (rand() < 0.3)).to(dtype) + 1e-6
    found = factorize(g, leak, periodic=periodic, backend=way)
    wide = [x.double() for x in g]
    truth = factorize(wide, leak.double(), periodic=periodic, backend="torch")
    for count in (1, 2, 3, 20):
        source = rand(count).to(dtype)
        assert_near(found.solve(source), truth.solve(source.double()), TOLERANCE[dtype])
    expected = truth.logdet().to(found.logdet().dtype)
    torch.testing.assert_close(found.logdet(), expected, rtol=TOLERANCE[dtype], atol=0)
    assert_near(found.diagonal_of_inverse(), truth.diagonal_of_inverse(), TOLERANCE[dtype])


def check_cancelling(backend, kind, small):
    """Rounded shares of a pivot do not sum to 1, so that they lost current."""
    source, g, leak, weight = cancelling(kind, small)
    expected = [elimination(x, g, leak) for x in (source, weight)]
    source, leak, weight, *g = (x[None, ..., None] for x in (source, leak, weight, *g))
    leaves = [x.requires_grad_() for x in (source, *g)]
    v = solve_network(source, g, leak, backend=backend, solver=Direct())
    gradient, *_ = torch.autograd.grad(v, leaves, weight)
    assert_near([x[0, ..., 0] for x in (v, gradient)], expected, 2e-5)


@pytest.mark.parametrize("kind", ["leak", "block"])
@pytest.mark.parametrize("small", [1e-4, 1e-8, 1e-12])
def test_sources_that_cancel(way, kind, small):
    check_cancelling(way, kind, small)


@pytest.mark.parametrize(
    ("grid", "part"),
    [
        ((8, 9), (slice(4), slice(None))),
        ((4, 5), (slice(2, None), slice(None))),
        ((4, 5), (slice(2, 3), slice(4, None))),  # one node
        ((4, 5), (slice(None), slice(None))),  # the whole network
        # Within one tile, and across many.
        *(((40, 40), (slice(*ends), slice(*ends))) for ends in ((5, 9), (2, 30), (18, 24))),
    ],
    ids=str,
)
def test_parts_without_ground_are_refused_and_others_stay_right(way, grid, part):
    """There is no potential of a source there, no variance and no sample."""
    source, g, leak = make_network(grid, C=9)
    inside = torch.zeros(grid, dtype=torch.bool)
    inside[part] = True
    for axis, x in enumerate(g):
        x[1, ..., 5][inside != inside.roll(-1, axis)] = 0
    leak[1, ..., 5][inside] = 0
    factor = factorize(g, leak, backend=way)
    assert factor.logdet().isneginf().nonzero().tolist() == [[1, 5]]
    calls = partial(factor.solve, source), partial(factor.sample, source)
    for refused in (*calls, factor.diagonal_of_inverse):
        with pytest.raises(ValueError, match=r"part of network \(1, 5\) .* node \(") as caught:
            refused()
        node = re.search(r"node \((\d+), (\d+)\)", str(caught.value))
        assert inside[tuple(map(int, node.groups()))]
    repaired = leak.clone()
    repaired[1, ..., 5][inside] = 1
    expected = solve_network(source, g, repaired, backend="torch", solver=Direct())
    v = factor.solve(source, ungrounded="nan")
    lost = torch.zeros_like(v, dtype=torch.bool)
    lost[1, ..., 5] = True
    assert v.isnan().any(1).any(1).equal(lost.any(1).any(1))
    assert_near(v[~lost], expected[~lost], 1e-12)
    source[1, ..., 5][inside] = 0
    lost[1, ..., 5] = inside
    v = factor.solve(source)
    assert not v[lost].any()
    assert_near(v[~lost], expected[~lost], 1e-12)
    torch.testing.assert_close(v, solve_network(source, g, leak, backend=way, solver=Direct()))


@EACH_BACKEND
def test_shapes_where_there_is_no_network_or_no_source(backend):
    source, g, leak = make_network((4, 5))
    networks = factorize(g, leak, backend=backend)
    assert networks.solve(source[:, None][:, :0]).shape == (2, 0, 4, 5, 3)
    assert networks.sample(source[:, None][:, :0]).shape == (2, 0, 4, 5, 3)
    v, info = solve_network(source[:, None][:, :0], g, leak, backend=backend, info=True)
    assert v.shape == (2, 0, 4, 5, 3)
    assert info.backward_error.shape == (2, 0, 3)
    v, info = solve_network(source[:0], [x[:0] for x in g], leak[:0], backend=backend, info=True)
    assert v.shape == (0, 4, 5, 3)
    assert info.iterations.shape == info.backward_error.shape == (0, 3)
    nodes, graph = torch.ones(0, 3, 1), Graph([(0, 1), (1, 2)], 3)
    assert Circuit(torch.ones(0, 2, 1), nodes, graph).solve(nodes).shape == (0, 3, 1)
    none = factorize([x[:0].requires_grad_() for x in g], leak[:0], backend=backend)
    assert none.solve(source[:0]).shape == none.sample(source[:0]).shape == (0, 4, 5, 3)
    assert none.diagonal_of_inverse().shape == (0, 4, 5, 3)
    assert none.logdet().shape == (0, 3)


@EACH_BACKEND
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_factors_and_their_copies_are_of_the_networks_as_they_were(backend, dtype):
    source, g, leak = make_network((5, 6), C=1)
    g, leak = [x.to(dtype) for x in g], leak.to(dtype)
    leak.requires_grad_()
    factor = factorize(g, leak, periodic=(False, True), backend=backend)
    v, logdet, variance = factor.solve(source), factor.logdet(), factor.diagonal_of_inverse()
    with torch.no_grad():
        for x in (leak, *g):
            x.mul_(7).add_(3)
    with on(backend):
        for same in (factor, copy.deepcopy(factor), pickle.loads(pickle.dumps(factor))):
            torch.testing.assert_close(same.solve(source), v)
            torch.testing.assert_close(same.logdet(), logdet)
            torch.testing.assert_close(same.diagonal_of_inverse(), variance)


@pytest.mark.thorough
@EACH_BACKEND
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_threads_share_factors(backend, dtype):
    """They shared the arguments of the kernel's calls, too: a crash, or another's potentials."""
    _, g, leak = make_network((20, 20), B=1, C=1)
    factor = factorize([x.to(dtype) for x in g], leak.to(dtype), backend=backend)
    sources = [torch.full((1, i + 1, 20, 20, 1), i + 1.0) for i in range(8)]
    expected = [factor.solve(source) for source in sources]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            torch.testing.assert_close([*threads.map(factor.solve, sources)], expected)


@EACH_BACKEND
def test_gradients_of_determinants_with_small_leaks_in_float32(backend):
    """Across an edge the inverse's entries differ in their last digits alone."""
    _, g, leak = make_network((6, 6), B=1, C=1, dtype=torch.float32)
    leak, found = 1e-6 * leak, []
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype).requires_grad_() for x in g]
        logdet = factorize(leaves, leak.to(dtype), backend=backend).logdet()
        found.append(torch.autograd.grad(logdet.sum(), leaves))
    assert_near(*found, 1e-6)


@EACH_BACKEND
def test_isolated_nodes_have_finite_gradients(backend):
    source, g, leak = make_network((3, 4), B=1, C=2)
    for x in (*g, leak[:, 0], source[:, 0]):
        x.zero_()
    leaves = [x.requires_grad_() for x in (source, leak, *g)]
    factor = factorize(g, leak, backend=backend)
    total = factor.solve(source).sum() + factor.logdet().sum()
    for grad in torch.autograd.grad(total, leaves):
        assert grad.isfinite().all()


def test_transforms_are_refused_and_a_batch_takes_their_place():
    _, g, leak = make_network((2, 3), B=3, C=1)
    with pytest.raises(RuntimeError, match="expected networks made outside"):
        torch.func.grad(lambda leak: factorize(g, leak).logdet().sum())(leak)
    pairs = torch.tensor([[0, 5], [1, 2]])

    def of_one(i):
        return Circuit([x[i, None] for x in g], leak[i, None]).resistance(pairs)

    torch.testing.assert_close(
        Circuit(g, leak).resistance(pairs), torch.cat([of_one(i) for i in range(3)])
    )
    for call in (
        lambda: torch.func.grad(lambda x: Circuit(g, x).resistance(pairs).sum())(leak),
        lambda: torch.vmap(lambda x: Circuit((x, x), leak[:1]).resistance(pairs))(g[0][:, None]),
        lambda: torch.vmap(Circuit(g, leak).resistance)(pairs[None]),
    ):
        with pytest.raises(RuntimeError, match=r"^resistance: .*batch.* torch\.autograd"):
            call()


@pytest.mark.skipif(not ISAS, reason="no compiled kernel")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize(("batches", "grid"), [(2, (100, 100)), (2048, (10, 20)), (512, (300,))])
def test_predicted_memory_is_what_factors_hold(set_threads, batches, grid, dtype):
    """The workspace of each thread counts, too, which is large beside the factors of few
    networks."""
    set_threads(2)
    _, g, leak = make_network(grid, B=batches, C=2, dtype=dtype)
    held = Elimination(g, leak, Grid(grid), backend="cpu").factors.nbytes
    predicted = predicted_bytes(Grid(grid), 2 * batches, dtype)
    assert held <= predicted <= (2 if batches == 2 else 1.2) * held


def test_work_grows_with_the_size():
    assert 1e5 < flops(Grid((32, 32))) < flops(Grid((64, 64))) / 6


@pytest.mark.skipif(not ISAS, reason="no compiled kernel")
@pytest.mark.parametrize("sources", [None, 1, 3])
@pytest.mark.parametrize(
    ("networks", "grid"), [(1, (40, 41)), (3, (40, 41)), (40, (40, 41)), (1, (90, 75))]
)
def test_threads_change_nothing(set_threads, networks, grid, sources, monkeypatch):
    """In factors, with and without tiles, and in the solve that follows an elimination."""
    source, g, leak = make_network(grid, B=networks, C=1, dtype=torch.float32)
    if sources:
        source = torch.stack([(i + 1) * source.roll(i, 1) for i in range(sources)], 1)
    monkeypatch.setattr(cpu, "_WORTH", 1)
    found = []
    for threads in (1, 2, 3, 3):
        set_threads(threads)
        leaves = [x.clone().requires_grad_() for x in (source, leak, *g)]
        v = solve_network(leaves[0], leaves[2:], leaves[1], Direct(), periodic=(False, True))
        factor = factorize(g, leak, periodic=(False, True))
        results = v.detach(), *torch.autograd.grad(v.sin().sum(), leaves), factor.solve(source)
        found.append([*results, factor.diagonal_of_inverse()])
    options = {"periodic": (False, True), "backend": "torch", "solver": Direct()}
    wide = solve_network(source.double(), [x.double() for x in g], leak.double(), **options)
    assert_near(found[0][0], wide, 2e-5)
    for others in found[1:]:
        assert_near(others, found[0], 1e-5)
    assert torch.equal(found[2][0], found[3][0])


def hard_networks(kind, contrast, grid, leak, dtype=torch.float32, boundary="neumann"):
    """Two networks with two channels, a source of both signs, conductances of a hard medium, and
    grounds of many sizes at their faces; whether axes are periodic."""
    rng = np.random.default_rng(3)
    shape = (2, *grid, 2)
    x = np.meshgrid(*[np.arange(n) / n for n in grid], indexing="ij")
    wave = 0.5 + 0.5 * np.prod([np.sin(7 * axis + 1) for axis in x], axis=0)
    channels = np.where(np.abs(x[0] - 0.4) < 0.1, contrast, 1.0)
    k = {
        "smooth": contrast ** wave[None, ..., None] * np.ones(shape),
        "channels": channels[None, ..., None] * np.ones(shape),
        "binary": np.where(rng.random(shape) < 0.5, contrast, 1.0),
        "log-uniform": contrast ** rng.random(shape),
    }[kind]
    axes = range(len(grid))
    g = [torch.from_numpy(2 / (1 / k + 1 / np.roll(k, -1, axis + 1))).to(dtype) for axis in axes]
    source = torch.from_numpy(rng.random(shape)).to(dtype)
    total, periodic = walled(g, torch.full(shape, leak, dtype=dtype), boundary)
    return (source, g, total), periodic[0]


BOUNDARIES = ("neumann", "dirichlet", "periodic", "matched")
HARD = [("binary", 1e4), ("channels", 1e12), ("log-uniform", 1e8), ("smooth", 1e2)]
HARD += [("smooth", 1e12)]


def solved(fields, **options):
    """Potentials, what is said of them, and gradients (source, leak, conductances) of `fields`
    (source, conductances, leak)."""
    source, g, leak = fields
    leaves = [x.detach().requires_grad_() for x in (source, leak, *g)]
    v, info = solve_network(leaves[0], leaves[2:], leaves[1], info=True, **options)
    weight = torch.from_numpy(np.random.default_rng(5).random(v.shape)).to(v.dtype)
    return info, [v.detach(), *torch.autograd.grad(v, leaves, weight)]


@pytest.mark.parametrize(
    ("grid", "leak", "boundary", "tol", "backend"),
    [
        *(((13, 12, 14), 1e-12, boundary, 1e-5, None) for boundary in BOUNDARIES),
        *(((24, 20), 1e-2, "neumann", tol, "torch") for tol in (1e-3, 1e-5)),
    ],
)
@pytest.mark.parametrize(("kind", "contrast"), HARD)
def test_networks_that_are_iterated_first(kind, contrast, grid, leak, boundary, tol, backend):
    """No network is left unsolved, forward or backward."""
    results = []
    both = (torch.float32, Auto(tol), 1e-6), (torch.float64, Direct(), 1e-14)
    for dtype, solver, rounding in both:
        (source, g, total), periodic = hard_networks(kind, contrast, grid, leak, boundary=boundary)
        fields = source.to(dtype), [x.to(dtype) for x in g], total.to(dtype)
        info, found = solved(fields, periodic=periodic, solver=solver, backend=backend)
        limits = torch.where(info.iterations > 0, tol, rounding)
        assert (info.backward_error <= limits).all()
        results.append(found)
    limit = 2e-5 if backend is None else 100 * tol  # it iterates
    # Potentials at matched ends differ twenty times less along one axis than along the other,
    # and each axis is compared with its own largest gradient.
    assert_near(*results, max(limit, 1e-4) if boundary == "matched" else limit)


@pytest.mark.parametrize("backend", [BACKENDS[0], *(thorough(x) for x in BACKENDS[1:])])
def test_iterations_and_elimination_agree_on_the_sign_of_an_edge(backend, monkeypatch):
    """Where the forward pass iterates and the backward pass eliminates, or the other way."""
    source, g, leak = make_network((13, 12, 14), C=1, dtype=torch.float32)
    g = [x.requires_grad_() for x in g]
    grads = []
    for forward, backward in ((40, 40), (40, 1), (1, 40)):
        monkeypatch.setattr(methods, "PATIENCE", forward)
        v = solve_network(source, g, leak, solver=Auto(1e-5), backend=backend)
        monkeypatch.setattr(methods, "PATIENCE", backward)
        grads.append(torch.autograd.grad(v.square().sum(), g))
    for others in grads[1:]:
        assert_near(others, grads[0], 1e-4)


@pytest.mark.parametrize("edge", [0.0, 1e-12])
@pytest.mark.parametrize("grid", [(7, 8), (4, 5, 6)])
def test_parts_whose_ground_is_below_rounding(grid, edge):
    """Iterations of both converged to a residual below `tol`, with errors of up to 5e-3."""
    source, g, leak = make_network(grid, B=1, C=1, dtype=torch.float32)
    leak = 1e-11 * leak
    source, half = source.abs(), grid[0] // 2
    leak[:, 0] = 1
    g[0][:, half - 1] = edge
    v = solve_network(source, g, leak, backend="torch")
    given = source[0, ..., 0].numpy(), [x[0, ..., 0] for x in g], leak[0, ..., 0]
    truth = elimination(*given)
    for part in (slice(0, half), slice(half, None)):
        actual, expected = v[0, part, ..., 0], truth[part]
        assert (actual - expected).abs().max() <= 2e-5 * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ratio", [1e-12, 1e-3, 1.0, 1e3, 1e12])
def test_derivatives_of_conductances_in_series_have_digits(dtype, ratio):
    """(b / (a + b))^2: a difference of two quotients lost it where a is much larger."""
    a = torch.tensor(ratio, dtype=dtype, requires_grad=True)
    b = torch.tensor(0.5, dtype=dtype, requires_grad=True)
    first, second = torch.autograd.grad(series(a, b), [a, b])
    x, y = a.item(), 0.5
    assert float(first) == pytest.approx((y / (x + y)) ** 2, rel=8 * torch.finfo(dtype).eps)
    assert float(second) == pytest.approx((x / (x + y)) ** 2, rel=8 * torch.finfo(dtype).eps)
    nothing = torch.zeros(2, dtype=dtype, requires_grad=True)
    assert not torch.autograd.grad(series(*nothing), nothing)[0].any()


def test_spsolve_is_the_less_accurate_one():
    """It subtracts, and loses small leaks."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import spsolve

    (source, g, leak), _ = hard_networks("binary", 1e4, (9, 7), 1e-12, torch.float64)
    one = source[0, ..., 0].numpy(), [x[0, ..., 0] for x in g], leak[0, ..., 0]
    expected = elimination(*one)
    v = solve_network(source, g, leak, solver=Direct())[0, ..., 0]
    a = csc_array(matrix(g, leak, (False, False))[0].numpy())
    theirs = torch.from_numpy(spsolve(a, one[0].ravel())).reshape(9, 7)
    error = [float((x - expected).abs().amax() / expected.abs().amax()) for x in (v, theirs)]
    assert error[0] < 1e-13
    assert error[1] > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("grid", [(512, 512), (32, 32, 32)])
@pytest.mark.parametrize(("kind", "contrast"), [("binary", 1e4), ("log-uniform", 1e8)])
@pytest.mark.parametrize("leak", [1e-2, 1e-12])
def test_the_largest(grid, kind, contrast, leak):
    """float32 against float64, whose digits `test_fuzz` shows on small networks."""
    fields = (hard_networks(kind, contrast, grid, leak, dtype)[0] for dtype in TOLERANCE)
    one = ((s[:1, ..., :1], [x[:1, ..., :1] for x in g], c[:1, ..., :1]) for s, g, c in fields)
    assert_near(*(solved(x, solver=Direct())[1] for x in one), 2e-5)


class TestBackward:
    def grads(self, call, *given):
        leaves = [x.detach().requires_grad_() for x in given]
        return torch.autograd.grad(call(*leaves).square().sum(), leaves)

    def test_uses_the_factors_of_the_forward(self, monkeypatch):
        if cpu.kernel() is None:
            pytest.skip("no compiled kernel")
        source, g, leak = make_network((9, 8), C=2)
        made = []
        eliminate = cpu.Factors.__init__
        count = lambda *x, **options: made.append(x) or eliminate(*x, **options)  # noqa: E731
        monkeypatch.setattr(cpu.Factors, "__init__", count)
        solve = lambda s, leak, *g: solve_network(s, g, leak, solver=Direct())  # noqa: E731
        kept = self.grads(solve, source, leak, *g)
        assert len(made) == 1
        monkeypatch.setattr(methods, "MEMORY", 0)
        again = self.grads(solve, source, leak, *g)
        assert len(made) == 1 + 2 * 4  # one network at a time, in both passes
        assert_near(kept, again, 1e-12)

    @EACH_BACKEND
    @pytest.mark.parametrize("memory", [0, 2 * 2**20])
    def test_gradients_have_digits_without_factors(self, backend, memory, monkeypatch):
        """What is too much to be kept, of one network or of a batch, is eliminated once more. The
        leaks lift potentials a million times, whose differences had no digits."""
        (source, g, leak), _ = hard_networks("binary", 1e4, (20, 18), 1e-6)
        weight = torch.linspace(-1, 2, source.numel(), dtype=torch.float64).reshape(source.shape)

        def gradients(dtype, **options):
            leaves = [x.to(dtype).requires_grad_() for x in g]
            v = solve_network(source.to(dtype), leaves, leak.to(dtype), **options)
            return torch.autograd.grad(v, leaves, weight.to(dtype))

        exact = gradients(torch.float64, solver=Direct())
        monkeypatch.setattr(methods, "MEMORY", memory)
        monkeypatch.setattr(methods, "predicted_bytes", lambda *given: 2**20 * given[1])
        found = gradients(torch.float32, solver=Direct(), backend=backend)
        assert_near(found, exact, 1e-5)

    def test_factors_go_with_the_graph(self):
        source, g, leak = make_network((9, 8), B=1, C=1)
        v = solve_network(source, g, leak.requires_grad_(), solver=Direct())
        saved = [x for x in v.grad_fn.saved_tensors if x is not None]
        largest = weakref.ref(max(saved, key=torch.Tensor.numel))
        del saved
        assert largest() is not None
        del v
        assert largest() is None


@pytest.mark.thorough
def test_a_program_that_holds_factors_ends_without_a_message():
    program = (
        "import torch; from chonn_ops import Circuit, Grid; leak = torch.ones(1, 4, 5, 1); "
        "f = Circuit((leak, leak), leak, on=Grid((4, 5))).factorize(); f.solve(leak)"
    )
    assert "Exception" not in commands.python(program).stderr


@pytest.mark.thorough
def test_within_compiled_functions():
    """The elimination breaks the graph; what stands around it is compiled."""
    source, conductance, leak = make_network((4, 5), B=1, C=1)

    def everything(source, *conductance):
        factor = factorize([2 * g for g in conductance], leak)
        return factor.solve(source) + factor.diagonal_of_inverse() + factor.logdet().sum()

    leaves = [x.clone().requires_grad_() for x in (source, *conductance)]
    expected = everything(*leaves)
    found = torch.compile(everything, backend="aot_eager")(*leaves)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    grads = (torch.autograd.grad(value.sum(), leaves) for value in (found, expected))
    torch.testing.assert_close(*grads, rtol=0, atol=0)
