"""Directed networks against dense matrices: laws, derivatives, extremes, refusals."""

from __future__ import annotations

import warnings

import pytest
import torch

from chonn_ops import kirchhoff_network
from chonn_ops.experimental import directed_network


def make_network(grid, *, B=2, C=3, contrast=100.0, dtype=torch.float64, seed=0):
    """Source, conductances spread over `contrast` and leaks of 0.1 to 1."""
    generator = torch.Generator().manual_seed(seed)

    def uniform():
        return torch.rand(B, *grid, C, dtype=torch.float64, generator=generator)

    source = torch.randn(B, *grid, C, dtype=torch.float64, generator=generator)
    conductance = tuple((contrast ** (uniform() - 0.5)).to(dtype) for _ in grid)
    return source.to(dtype), conductance, (0.1 + 0.9 * uniform()).to(dtype)


DOUBLE = torch.float64
EXACT = {"tol": 1e-12}
EACH_BACKEND = pytest.mark.parametrize("backend", ["torch", "reference"])
EACH_FORM = pytest.mark.parametrize("conservative", [True, False], ids=["charge", "bounds"])
CASES = [
    ((1,), "neumann"),
    ((2,), "periodic"),
    ((7,), "neumann"),
    ((9,), "periodic"),
    ((8,), "dirichlet"),
    ((1, 6), "dirichlet"),
    ((5, 6), "neumann"),
    ((8, 8), "periodic"),
    ((17, 3), ("periodic", "dirichlet")),
    ((3, 2, 5), ("neumann", "periodic", "dirichlet")),
]
EACH_CASE = pytest.mark.parametrize(("grid", "boundary"), CASES, ids=str)


def _directed(grid, *, one_way=0.5, dtype=DOUBLE, **options):
    """Conductances of two unlike networks, so many of them 0: those edges are one-way."""
    source, forward, leak = make_network(grid, **options)
    _, backward, _ = make_network(grid, **(options | {"seed": 11}))
    generator = torch.Generator().manual_seed(2)

    def some(g):
        return g * (torch.rand(g.shape, generator=generator, dtype=DOUBLE) > one_way / 2)

    f, b = (tuple(some(g).to(dtype) for g in edges) for edges in (forward, backward))
    return source.to(dtype), f, b, leak.to(dtype)


def _matrix(forward, backward, leak, words):
    """(n, n) of the first network, edge by edge: what leaves p arrives at q."""
    grid = leak.shape[1:-1]
    nodes = torch.arange(leak[0, ..., 0].numel()).reshape(grid)
    a = torch.diag(leak[0, ..., 0].flatten().double())
    for axis, word in enumerate(words):
        f, b = (x[axis][0, ..., 0].double().movedim(axis, 0) for x in (forward, backward))
        index, n = nodes.movedim(axis, 0), grid[axis]
        for i in range(n if word == "periodic" and n > 1 else n - 1):
            here, there = index[i].flatten(), index[(i + 1) % n].flatten()
            for rate, p, q in ((f[i].flatten(), here, there), (b[i].flatten(), there, here)):
                a[p, p] += rate
                a[q, p] -= rate
        if word == "dirichlet":
            last = max(n - 2, 0)
            for at, rate, other in ((0, b[0], f[0]), (n - 1, f[last], b[last])):
                at = index[at].flatten()
                a[at, at] += (rate + torch.minimum(rate, other)).flatten()
    return a


@EACH_BACKEND
@EACH_FORM
@EACH_CASE
def test_a_solve_is_that_of_the_dense_matrix(grid, boundary, conservative, backend):
    source, f, b, leak = _directed(grid, B=1, C=1)
    words = (boundary,) * len(grid) if isinstance(boundary, str) else boundary
    a = _matrix(f, b, leak, words)
    expected = torch.linalg.solve(a if conservative else a.T, source.flatten())
    v = directed_network(
        source, f, b, leak, conservative=conservative, boundary=boundary, backend=backend, **EXACT
    )
    torch.testing.assert_close(v.flatten(), expected, rtol=1e-9, atol=1e-9)


@EACH_FORM
@EACH_CASE
def test_equal_ways_are_resistors(grid, boundary, conservative):
    source, g, leak = make_network(grid)
    v = directed_network(source, g, g, leak, conservative=conservative, boundary=boundary, **EXACT)
    expected = kirchhoff_network(source, g, leak, boundary=boundary, tol=1e-13)
    torch.testing.assert_close(v, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("grid", "boundary"),
    [((40,), "periodic"), ((11, 9), "neumann"), ((4, 3, 5), "periodic")],
    ids=str,
)
def test_charge_bounds_and_signs(grid, boundary):
    source, f, b, leak = _directed(grid, contrast=1e4)
    source = source.abs()
    kept = directed_network(source, f, b, leak, boundary=boundary, **EXACT)
    dims = tuple(range(1, len(grid) + 1))
    torch.testing.assert_close((leak * kept).sum(dims), source.sum(dims), rtol=1e-8, atol=0)
    assert kept.min() >= 0
    bound = directed_network(leak * 3, f, b, leak, conservative=False, boundary=boundary, **EXACT)
    torch.testing.assert_close(bound, torch.full_like(bound, 3.0), rtol=1e-8, atol=0)
    v = directed_network(source, f, b, leak, conservative=False, boundary=boundary, **EXACT)
    assert v.min() >= 0
    assert (v <= (source / leak).amax(dims, keepdim=True) * (1 + 1e-8)).all()


@EACH_FORM
@pytest.mark.parametrize(
    ("grid", "boundary"),
    [
        ((3,), "periodic"),
        ((3,), "dirichlet"),
        pytest.param((2, 2), ("periodic", "dirichlet"), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_derivatives_of_every_kind(grid, boundary, conservative):
    source, f, b, leak = _directed(grid, B=1, C=1, one_way=0.0)
    leaves = [x.requires_grad_() for x in (source, *f, *b, leak)]
    axes = len(grid)

    def solve(source, *rest):
        return directed_network(
            source,
            rest[:axes],
            rest[axes:-1],
            rest[-1],
            conservative=conservative,
            boundary=boundary,
            tol=1e-14,
        )

    assert torch.autograd.gradcheck(solve, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(solve, leaves, fast_mode=True)
    of_leak = torch.func.jacrev(solve, len(leaves) - 1)(*leaves)
    expected = torch.autograd.functional.jacobian(lambda x: solve(*leaves[:-1], x), leaves[-1])
    torch.testing.assert_close(of_leak, expected)


@pytest.mark.thorough
@EACH_FORM
@pytest.mark.parametrize("strength", [0.1, 10.0, 1e4], ids=["creeping", "even", "fast"])
@pytest.mark.parametrize("grid", [(48, 48), (33, 70)], ids=str)
def test_whirls_are_solved_in_few_iterations(grid, strength, conservative):
    """Closed ways round four whirls, hardly any leak: the worst of what carries."""
    y, x = torch.meshgrid(*(torch.arange(n) / n * 2 * torch.pi for n in grid), indexing="ij")
    stream = torch.sin(x) * torch.sin(y) * strength
    flow = (stream - stream.roll(1, 1)), -(stream - stream.roll(1, 0))
    rates = [a.reshape(1, *grid, 1) for a in flow]
    f, b = (tuple((1 + (sign * a).clamp(min=0)) for a in rates) for sign in (1, -1))
    source = make_network(grid, B=1, C=1, dtype=torch.float32)[0]
    leak = torch.full_like(source, 1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        v, info = directed_network(
            source, f, b, leak, conservative=conservative, boundary="periodic", return_info=True
        )
    assert info.residual.item() <= 1e-5
    assert info.iterations.item() <= 40
    wide = [tuple(x.double() for x in edges) for edges in (f, b)]
    truth = directed_network(source.double(), *wide, leak.double(), conservative=conservative,
                             boundary="periodic", backend="reference")  # fmt: skip
    assert (v - truth).norm() <= 0.05 * truth.norm()


@pytest.mark.filterwarnings("ignore:directed_network. .* above tol")  # in float32
@pytest.mark.parametrize("grid", [(50,), (7, 8)], ids=str)
def test_extreme_values(grid):
    """Decades of conductances, tiny and huge units, dead edges, and a NaN that stays at home."""
    source, f, b, leak = _directed(grid, contrast=1e8)
    expected = directed_network(source, f, b, leak, backend="reference")
    v = directed_network(source, f, b, leak, tol=1e-10)
    assert (v - expected).norm() <= 1e-5 * expected.norm()
    single = [x.float() for x in (source, leak)]
    edges = [tuple(g.float() for g in way) for way in (f, b)]
    for unit in (1e-30, 1e30):  # in float32 such a contrast takes two digits more
        v = directed_network(
            single[0] * unit, *(tuple(g * unit for g in way) for way in edges), single[1] * unit
        )
        assert (v - expected).norm() <= 0.05 * expected.norm()
    broken = source.clone()
    broken[0, ..., 1].view(-1)[3] = torch.nan
    v = directed_network(broken, f, b, leak, tol=1e-10)
    assert v[0, ..., 1].isnan().all()
    assert v.isnan().sum() == v[0, ..., 1].numel()
    dead = [tuple(torch.zeros_like(g) for g in way) for way in (f, b)]
    torch.testing.assert_close(directed_network(source, *dead, leak), source / leak)


def test_strides_batches_and_narrow_types():
    source, f, b, leak = _directed((9, 8), B=2, C=3, dtype=torch.float32)
    expected = directed_network(source, f, b, leak)
    turned = [x.transpose(0, 3).contiguous().transpose(0, 3) for x in (source, *f, *b, leak)]
    v = directed_network(turned[0], turned[1:3], turned[3:5], turned[5])
    torch.testing.assert_close(v, expected)
    first = [[g[:1] for g in way] for way in (f, b)]
    alone = directed_network(source[:1], *first, leak[:1])
    torch.testing.assert_close(alone, expected[:1])
    half = directed_network(source.bfloat16(), f, b, leak)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.05, atol=0.05)
    empty = [[g[:0] for g in way] for way in (f, b)]
    none = directed_network(source[:0], *empty, leak[:0])
    assert none.shape == (0, 9, 8, 3)


@pytest.mark.thorough
def test_compiled_code_may_hold_a_solve():
    source, f, b, leak = _directed((5, 4))

    def twice(source):
        return 2 * directed_network(source + 1, f, b, leak)

    torch.testing.assert_close(torch.compile(twice, backend="eager")(source), twice(source))


def test_vmap_is_a_loop():
    source, f, b, leak = _directed((5, 4))
    many = torch.stack((source, -2 * source, source.flip(1)))
    mapped = torch.func.vmap(lambda s: directed_network(s, f, b, leak, **EXACT))(many)
    for one, v in zip(many, mapped, strict=True):
        torch.testing.assert_close(v, directed_network(one, f, b, leak, **EXACT))


def test_what_is_not_reached_is_said():
    source, f, b, leak = _directed((20, 20), contrast=1e4)
    with pytest.warns(RuntimeWarning, match="directed_network: 6 of 6 networks above tol=1e-09"):
        directed_network(source, f, b, leak, tol=1e-9, max_iterations=2)


def test_unfit_networks_are_refused():
    source, f, b, leak = _directed((4, 3))
    for call, message in (
        (lambda: directed_network(source, f, (b[0], -b[1]), leak), r"backward\[1\]: expected >= 0"),
        (lambda: directed_network(source, (-f[0], f[1]), b, leak), r"forward\[0\]: expected >= 0"),
        (lambda: directed_network(source, f, b, -leak), "leak: expected >= 0 everywhere"),
        (lambda: directed_network(source, f, b, 0 * leak), "leak: expected > 0 at some node"),
        (lambda: directed_network(source, f[:1], b, leak), "conductance: expected 2 tensors"),
        (lambda: directed_network(source, f, b, leak[:1]), "leak: expected shape"),
        (
            lambda: directed_network(source, f, b, leak, boundary="matched"),
            "boundary: expected one of",
        ),
        (lambda: directed_network(source, f, b, leak, tol=0), "tol: expected above 0"),
        (lambda: directed_network(source, f, b, leak, backend="cpu"), "backend: expected one of"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
