"""The direct method: potentials, derivatives, determinants, inverses and samples of its factors."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from network_cases import (
    factorize,
    make_network,
    matrix,
    network_with_walls,
    on,
    solve_network,
    solver_of,
    walled,
)
from torch import Tensor

from chonn_ops import Auto, Circuit, Direct, Grid, Iterative
from chonn_ops.boundary import series
from chonn_ops.network import methods, reference
from chonn_ops.network.direct import Factor, cpu, flops, predicted_bytes

BACKENDS = ("cpu", "torch") if cpu.available_isas() else ("torch",)
MEDIA = ("smooth", "channels", "stripes", "binary", "log-uniform")
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


@pytest.fixture(params=["lanes", "rows"])
def filling(request, monkeypatch):
    """What fills the vectors of the compiled kernel: networks, or rows of fronts."""
    if not cpu.available_isas():
        pytest.skip("no compiled kernel")
    monkeypatch.setattr(cpu, "_worth_lanes", lambda _: 0 if request.param == "lanes" else math.inf)
    return request.param


def random_network(B, grid, C, *, dtype=torch.float64, seed=0, leak=0.1):
    generator = torch.Generator().manual_seed(seed)

    def rand():
        return torch.rand(B, *grid, C, dtype=torch.float64, generator=generator).to(dtype)

    source = torch.randn(B, *grid, C, dtype=torch.float64, generator=generator).to(dtype)
    return source, [rand() + 0.01 for _ in grid], rand() * leak


def elimination(s, conductance: Sequence[Tensor], leak: Tensor, closed: bool = False):
    """Potentials (\\*grid) of one network by a dense elimination in extended precision, which takes
    no difference: the truth where a matrix in float64 has lost the leaks. s: an array."""
    grid = leak.shape
    n = leak.numel()
    g = np.zeros((n, n), np.longdouble)
    nodes = np.arange(n).reshape(grid)
    for axis, x in enumerate(conductance):
        count = grid[axis] if closed and grid[axis] > 1 else grid[axis] - 1
        p = nodes.take(range(count), axis).ravel()
        q = np.roll(nodes, -1, axis).take(range(count), axis).ravel()
        np.add.at(g, (p, q), x.narrow(axis, 0, count).double().numpy().ravel())
    g += g.T.copy()
    l = leak.double().numpy().ravel().astype(np.longdouble)  # noqa: E741
    v = np.array(s, np.longdouble).ravel()
    shares = []
    for k in range(n):
        t = l[k] + g[k, k + 1 :].sum()
        share = g[k, k + 1 :] / (t or 1)  # 0: no part of the network
        g[k + 1 :, k + 1 :] += np.outer(share, g[k, k + 1 :])
        l[k + 1 :] += share * l[k]
        v[k + 1 :] += share * v[k]
        v[k] /= t or 1
        shares.append(share)
    for k in reversed(range(n)):
        v[k] += shares[k] @ v[k + 1 :]
    return v.reshape(grid)


def medium(kind: str, n: int, contrast: float, seed: int = 0) -> list[Tensor]:
    """Conductances (n, n) from 1 to `contrast`, one an axis."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:n, :n] / n
    if kind == "smooth":
        k = contrast ** (0.5 + 0.5 * np.sin(7 * x + 1) * np.cos(5 * y))
    elif kind == "channels":
        k = np.where((np.abs(y - 0.5 - 0.3 * np.sin(9 * x)) < 0.05) | (x == 0.5), contrast, 1.0)
    elif kind == "stripes":
        k = np.where(np.arange(n) % 2, contrast, 1.0) * np.ones((n, 1))
    elif kind == "binary":
        k = np.where(rng.random((n, n)) < 0.5, contrast, 1.0)
    else:
        k = contrast ** rng.random((n, n))
    return [torch.from_numpy(2 / (1 / k + 1 / np.roll(k, -1, axis))) for axis in (0, 1)]


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


def assert_near(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    assert actual.shape == expected.shape
    error = (actual.double() - expected).abs().amax() / expected.abs().amax()
    assert error <= tolerance


SHAPES = [
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
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("B", "grid", "C", "periodic"), SHAPES)
class TestShapes:
    def check(self, backend, B, grid, C, periodic, dtype):
        source, g, leak = random_network(B, grid, C, dtype=dtype)
        for axis, x in enumerate(g):  # what is no edge may be anything
            if not periodic[axis]:
                x.select(axis + 1, -1).fill_(math.nan)
        factor = Factor(g, leak, Grid(leak.shape[1:-1], periodic), backend=backend)
        wide = [x.double().nan_to_num() for x in g]
        expected, _, _ = reference.solve(source, wide, leak, Grid(leak.shape[1:-1], periodic))
        assert_near(factor.solve(source), expected, TOLERANCE[dtype] / 10)
        several = torch.stack([source, 2 * source, source.flip(1), *[-source] * 19], 1)
        v = factor.solve(several)
        flipped, _, _ = reference.solve(
            source.flip(1), wide, leak, Grid(leak.shape[1:-1], periodic)
        )
        for index, truth in ((0, expected), (1, 2 * expected), (2, flipped), (21, -expected)):
            assert_near(v[:, index], truth, TOLERANCE[dtype] / 10)
        assert factor.logdet().isfinite().all()

    def test_torch(self, B, grid, C, periodic, dtype):
        self.check("torch", B, grid, C, periodic, dtype)

    def test_cpu(self, filling, B, grid, C, periodic, dtype):  # noqa: ARG002
        self.check("cpu", B, grid, C, periodic, dtype)


@pytest.mark.skipif(not cpu.available_isas(), reason="no compiled kernel")
@pytest.mark.parametrize("isa", cpu.available_isas())
def test_instruction_sets(isa, filling, monkeypatch):  # noqa: ARG001
    monkeypatch.setenv("CHONN_NETWORK_ISA", isa)
    for dtype, tolerance in TOLERANCE.items():
        source, g, leak = random_network(3, (13, 17), 3, dtype=dtype)
        factor = Factor(g, leak, Grid(leak.shape[1:-1], (False, True)), backend="cpu")
        expected, _, _ = reference.solve(source, g, leak, Grid(leak.shape[1:-1], (False, True)))
        assert_near(factor.solve(source), expected, tolerance / 10)
        assert_near(factor.solve(source[:, None].repeat(1, 6, 1, 1, 1))[:, 5], expected, tolerance)
        # NumPy's, because PyTorch's fails beside an address sanitizer (`make sanitize`).
        inverse = torch.from_numpy(np.linalg.inv(matrix(g, leak, (False, True)).numpy()))
        expected = inverse.diagonal(dim1=1, dim2=2).reshape(3, 3, 13, 17).movedim(1, -1)
        assert_near(factor.inverse_entries()[0], expected, tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", MEDIA)
@pytest.mark.parametrize(
    "contrast", [*(pytest.param(x, marks=pytest.mark.thorough) for x in (1e2, 1e6)), 1e12]
)
def test_hard_media(backend, kind, contrast):
    """Leaks of 1e-12 at a few nodes, conductances of 1 to `contrast`: every digit stays."""
    n = 14
    source = torch.from_numpy(np.random.default_rng(1).random((n, n)))
    leak = torch.zeros(n, n, dtype=torch.float64)
    leak[2, 3] = leak[9, 1] = 1e-12
    for dtype, tolerance in ((torch.float32, 3e-6), (torch.float64, 1e-14)):
        given = [x.to(dtype) for x in (source, leak, *medium(kind, n, contrast))]
        exactly = elimination(given[0], given[2:], given[1])
        expected = torch.from_numpy(exactly.astype(float))
        s, l, *g = (x[None, ..., None] for x in given)  # noqa: E741
        v = Factor(g, l, Grid(l.shape[1:-1]), backend=backend).solve(s)[0, ..., 0].double()
        # Componentwise, because source and inverse are positive.
        assert ((v - expected).abs() / expected).max() <= tolerance


def check_cancelling(backend, kind, small):
    """Rounded shares of a pivot do not sum to 1, so that they lost current."""
    source, g, leak, weight = cancelling(kind, small)
    expected = [torch.from_numpy(elimination(x, g, leak).astype(float)) for x in (source, weight)]
    source, leak, weight, *g = (x[None, ..., None] for x in (source, leak, weight, *g))
    leaves = [x.requires_grad_() for x in (source, *g)]
    v = solve_network(source, g, leak, backend=backend, solver=Direct())
    gradient, *_ = torch.autograd.grad(v, leaves, weight)
    for found, right in zip((v.detach(), gradient), expected, strict=True):
        assert_near(found[0, ..., 0], right, 2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_differences_where_sources_cancel(backend):
    """Sources that less the leaks' currents cancel were rounded before: 1e-5 off."""
    source, g, leak, weight = cancelling("block", 1e-4)
    source[0, 0], weight[14, 14] = 3, 2
    leak[5:12, 5:12] = 1e-7
    found = []
    for dtype in (torch.float32, torch.float64):
        given = [x[None, ..., None].to(dtype) for x in (source, leak, weight, *g)]
        edges = [x.requires_grad_() for x in given[3:]]
        v = solve_network(given[0], edges, given[1], backend=backend, solver=Direct())
        found.append(torch.autograd.grad(v, edges, given[2]))
    for actual, expected in zip(*found, strict=True):
        assert_near(actual, expected, 2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["leak", "block"])
@pytest.mark.parametrize("small", [1e-4, 1e-8, 1e-12])
def test_sources_that_cancel(backend, kind, small):
    check_cancelling(backend, kind, small)


@pytest.mark.parametrize("kind", ["leak", "block"])
def test_sources_that_cancel_however_vectors_are_filled(kind, filling):  # noqa: ARG001
    source, g, leak, _ = cancelling(kind, 1e-12)
    expected = torch.from_numpy(elimination(source, g, leak).astype(float))
    s, l, *g = (x[None, ..., None].repeat(20, 1, 1, 1) for x in (source, leak, *g))  # noqa: E741
    factor = Factor(g, l, Grid(l.shape[1:-1]), backend="cpu")
    several = factor.solve(torch.stack([s, -s, s.flip(1), s, s], 1))
    for v in (factor.solve(s), *several[:, [0, 3, 4]].unbind(1), -several[:, 1]):
        assert_near(v[..., 0], expected.expand(20, 16, 16), 2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_without_ground_are_named_and_others_stay_right(backend, filling):  # noqa: ARG001
    source, g, leak = random_network(2, (8, 9), 9)
    g[0][1, 3, :, 5] = 0  # rows 0 to 3 of network (1, 5) are cut off
    leak[1, :4, :, 5] = 0
    factor = Factor(g, leak, Grid(leak.shape[1:-1]), backend=backend)
    v = factor.solve(source)
    assert v.isfinite().all()
    assert (factor.logdet() == -math.inf).nonzero().tolist() == [[1, 5]]
    repaired = leak.clone()
    repaired[1, 0, 0, 5] = 1
    expected, _, _ = reference.solve(source, g, repaired, Grid(repaired.shape[1:-1]))
    right = torch.ones_like(v, dtype=torch.bool)
    right[1, :4, :, 5] = False
    assert_near(v[right], expected[right], 1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("grid", "periodic"), [((6, 7), (False, True)), ((9,), (False,))])
class TestInverse:
    def test_determinant_and_inverse(self, backend, grid, periodic, filling):  # noqa: ARG002
        _, g, leak = random_network(2, grid, 3)
        factor = Factor(g, leak, Grid(leak.shape[1:-1], periodic), backend=backend)
        a = matrix(g, leak, periodic)
        torch.testing.assert_close(factor.logdet().flatten(), torch.linalg.slogdet(a).logabsdet)
        inverse = torch.linalg.inv(a)
        diagonal, entries = factor.inverse_entries()

        def rows(x):
            return x.movedim(-1, 1).reshape(6, -1)

        torch.testing.assert_close(rows(diagonal), inverse.diagonal(dim1=1, dim2=2))
        nodes = torch.arange(math.prod(grid)).reshape(grid)
        for axis, entry in enumerate(entries):
            count = grid[axis] - (not periodic[axis])
            p = nodes.narrow(axis, 0, count).flatten()
            q = nodes.roll(-1, axis).narrow(axis, 0, count).flatten()
            torch.testing.assert_close(rows(entry)[:, p], inverse[:, p, q])

    def test_samples_have_the_inverse_as_covariance(self, backend, grid, periodic, filling):  # noqa: ARG002
        _, g, leak = random_network(2, grid, 2)
        n = math.prod(grid)
        noise = torch.eye(n, dtype=torch.float64).reshape(1, n, *grid, 1)
        x = Factor(g, leak, Grid(leak.shape[1:-1], periodic), backend=backend).sample(
            noise.expand(2, -1, *grid, 2)
        )
        x = x.movedim(-1, 1).reshape(4, n, n)
        inverse = torch.linalg.inv(matrix(g, leak, periodic))
        torch.testing.assert_close(x.mT @ x, inverse)


@pytest.mark.parametrize("backend", BACKENDS)
class TestNothingToSolve:
    """No network, or no source."""

    def test_shapes(self, backend):
        source, g, leak = random_network(2, (4, 5), 3)
        networks = factorize(g, leak, backend=backend)
        assert networks.solve(source[:, None][:, :0]).shape == (2, 0, 4, 5, 3)
        assert networks.sample(source[:, None][:, :0]).shape == (2, 0, 4, 5, 3)
        none = factorize([x[:0].requires_grad_() for x in g], leak[:0], backend=backend)
        assert none.solve(source[:0]).shape == none.sample(source[:0]).shape == (0, 4, 5, 3)
        assert none.diagonal_of_inverse().shape == (0, 4, 5, 3)
        assert none.logdet().shape == (0, 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_copies_and_pickles(backend):
    source, g, leak = random_network(2, (5, 6), 1)
    factor = factorize(g, leak, periodic=(False, True), backend=backend)
    with on(backend):
        for other in (copy.deepcopy(factor), pickle.loads(pickle.dumps(factor))):
            assert torch.equal(other.solve(source), factor.solve(source))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_factors_are_of_the_networks_as_they_were(backend, dtype):
    source, g, leak = random_network(1, (5, 6), 1)
    g, leak = [x.to(dtype) for x in g], leak.to(dtype)
    leak.requires_grad_()
    factor = factorize(g, leak, periodic=(False, True), backend=backend)
    v, logdet, variance = factor.solve(source), factor.logdet(), factor.diagonal_of_inverse()
    with torch.no_grad():
        for x in (leak, *g):
            x.mul_(7).add_(3)
    for same in (factor, copy.deepcopy(factor), pickle.loads(pickle.dumps(factor))):
        torch.testing.assert_close(same.solve(source), v)
        torch.testing.assert_close(same.logdet(), logdet)
        torch.testing.assert_close(same.diagonal_of_inverse(), variance)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_threads_share_factors(backend, dtype):
    """They shared the arguments of the kernel's calls, too: a crash, or another's potentials."""
    _, g, leak = random_network(1, (20, 20), 1)
    factor = factorize([x.to(dtype) for x in g], leak.to(dtype), backend=backend)
    sources = [torch.full((1, i + 1, 20, 20, 1), i + 1.0) for i in range(8)]
    expected = [factor.solve(source) for source in sources]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            for v, w in zip(threads.map(factor.solve, sources), expected, strict=True):
                torch.testing.assert_close(v, w)


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_changes_nothing(backend):
    """PyTorch's products of fronts were bfloat16: an error, or three digits."""
    source, g, leak = random_network(1, (6, 9), 1, dtype=torch.float32)
    leak.requires_grad_()

    def results():
        factor = factorize(g, leak, backend=backend)
        found = [factor.solve(source), factor.logdet(), factor.diagonal_of_inverse()]
        found += [factor.sample(source), solve_network(source[:, None], g, leak)]
        return found + [torch.autograd.grad(x.sum(), leak)[0] for x in found[:2]]

    expected = results()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = results()
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_has_no_ground_is_refused(backend):
    """Rows 2 and 3, or a single node, have no leak: there is no potential of a source there, no
    variance and no sample."""
    for first in (0, 4):
        source, g, leak = random_network(2, (4, 5), 2)
        g[0][1, 1, first:, 1] = 0
        if first:
            g[0][1, 2, 4, 1] = g[1][1, 2, 3, 1] = 0
        leak[1, 2 : 3 if first else 4, first:, 1] = 0
        networks = factorize(g, leak, backend=backend)
        assert networks.logdet().isneginf().tolist() == [[False, False], [False, True]]
        named = rf"part of network \(1, 1\) .* node \(2, {first}\)"
        for refused in (networks.solve, networks.sample):
            with pytest.raises(ValueError, match=named):
                refused(source)
        with pytest.raises(ValueError, match=named):
            networks.diagonal_of_inverse()
        source[1, 2 : 3 if first else 4, first:, 1] = 0
        v = networks.solve(source)
        assert not v[1, 2 : 3 if first else 4, first:, 1].any()
        torch.testing.assert_close(v, solve_network(source, g, leak, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_complex_parts_without_ground_and_resonances_have_no_inverse(backend):
    """Solves raised as at a resonance; variances were numbers."""
    source, g, leak = random_network(2, (4, 5), 2)
    g[0][1, 1, :, 1] = 0
    leak[1, 2:, :, 1] = 0
    networks = factorize([x * (1 + 0.1j) for x in g], leak * (1 - 1j), backend=backend)
    for refused in (networks.solve, lambda _: networks.diagonal_of_inverse()):
        with pytest.raises(ValueError, match=r"part of network \(1, 1\)"):
            refused(source)
    for rounding in (0.0, 1e-17):
        y = torch.tensor([1.0, 0.0], dtype=torch.complex128).reshape(1, 2, 1)
        leaks = torch.tensor([1.0, -0.5 + rounding], dtype=torch.complex128).reshape(1, 2, 1)
        for wanted in (False, True):
            singular = factorize((y,), leaks.requires_grad_(wanted), backend=backend)
            with pytest.raises(RuntimeError, match="resonance"):
                singular.diagonal_of_inverse()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("B", [1, 40])
def test_factors_that_are_not_kept(backend, B, filling):  # noqa: ARG001
    source, g, leak = random_network(B, (9, 7), 1)
    g[0][0, 3] = 0
    leak[0, :4] = 0
    factor = Factor(g, leak, Grid(leak.shape[1:-1], (False, True)), backend=backend)
    options = {"backend": backend, "keep": False}
    solution = Factor(
        g, leak, Grid(leak.shape[1:-1], (False, True)), source=source, drops=True, **options
    ).solution
    v = solution.potential
    assert not solution.residual[1:].any()
    kept = factor.solve_all(source, drops=True)
    for actual, expected in zip((v, *solution.drops), (kept.potential, *kept.drops), strict=True):
        assert_near(actual, expected, 1e-14)
    several = torch.stack([source, -source], 1)
    both = Factor(
        g, leak, Grid(leak.shape[1:-1], (False, True)), source=several, **options
    ).solution
    assert_near(both.potential[:, 1], -v, 1e-14)


def parameters(grid):
    source, g, leak = random_network(1, grid, 2)
    return [x.requires_grad_() for x in (source, leak, *g)]


RESULTS = {
    "solve": lambda factor, s: factor.solve(s),
    "several": lambda factor, s: factor.solve(torch.stack([s, s.square(), 1 - s], 1)),
    "logdet": lambda factor, _: factor.logdet(),
    "inverse": lambda factor, _: factor.diagonal_of_inverse(),
    "sample": lambda factor, s: factor.sample(s),
}


@pytest.mark.parametrize("backend", BACKENDS)
class TestGradients:
    @pytest.mark.parametrize("result", RESULTS)
    def test_first_derivatives(self, backend, result):
        def call(source, leak, *g):
            factor = factorize(g, leak, periodic=(False, True), backend=backend)
            return RESULTS[result](factor, source)

        both_modes = {"fast_mode": True, "check_forward_ad": True}
        torch.autograd.gradcheck(call, parameters((2, 4)), **both_modes)

    @pytest.mark.parametrize("result", RESULTS)
    def test_second_derivatives(self, backend, result):
        def call(source, leak, *g):
            factor = factorize(g, leak, periodic=(False, True), backend=backend)
            return RESULTS[result](factor, source)

        torch.autograd.gradgradcheck(call, parameters((2, 3)), fast_mode=True)

    @pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
    def test_solves_are_mapped(self, backend, strategy):
        source, leak, *g = (x.detach() for x in parameters((2, 3)))
        solve = factorize(g, leak, backend=backend).solve
        found, expected = (
            torch.autograd.functional.jacobian(solve, source, vectorize=mapped, strategy=how)
            for mapped, how in ((True, strategy), (False, "reverse-mode"))
        )
        torch.testing.assert_close(found, expected)

    def test_logdet_of_small_leaks_in_float32(self, backend):
        """Across an edge the inverse's entries differ in their last digits alone."""
        _, g, leak = random_network(1, (6, 6), 1, leak=1e-6)
        wide = [x.float().double().requires_grad_() for x in g]
        factorize(wide, leak.float().double(), backend=backend).logdet().sum().backward()
        narrow = [x.float().requires_grad_() for x in g]
        factorize(narrow, leak.float(), backend=backend).logdet().sum().backward()
        for x, y in zip(narrow, wide, strict=True):
            assert x.grad is not None
            assert y.grad is not None
            assert_near(x.grad, y.grad, 1e-6)

    def test_isolated_nodes_have_finite_gradients(self, backend):
        source, leak, *g = parameters((3, 4))
        with torch.no_grad():
            for x in g:
                x.zero_()
            leak[:, 0].zero_()
            source[:, 0].zero_()
        factor = factorize(g, leak, backend=backend)
        total = factor.solve(source).sum() + factor.logdet().sum()
        for grad in torch.autograd.grad(total, [source, leak, *g]):
            assert grad.isfinite().all()


def test_transforms_of_networks_are_refused():
    _, leak, *g = parameters((2, 3))
    with pytest.raises(RuntimeError, match="expected networks made outside"):
        torch.func.grad(lambda leak: factorize(g, leak).logdet().sum())(leak)


def test_transforms_of_resistances_are_refused_and_a_batch_takes_their_place():
    _, g, leak = random_network(3, (2, 3), 1)
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


def test_predicted_memory_is_what_factors_hold():
    if not cpu.available_isas():
        pytest.skip("no compiled kernel")
    _, g, leak = random_network(2, (100, 100), 2, dtype=torch.float32)
    factor = Factor(g, leak, Grid(leak.shape[1:-1]), backend="cpu")
    held = factor.factors.nbytes
    predicted = predicted_bytes(Grid((100, 100)), 4)
    assert held <= predicted <= 2 * held
    assert 1e5 < flops(Grid((32, 32))) < flops(Grid((64, 64))) / 6


@pytest.mark.skipif(not cpu.available_isas(), reason="no compiled kernel")
@pytest.mark.parametrize("networks", [1, 3, 40])
def test_threads_change_nothing(networks, monkeypatch):
    source, g, leak = random_network(networks, (40, 41), 1)
    one = Factor(g, leak, Grid(leak.shape[1:-1], (False, True)), backend="cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(cpu, "_WORTH", 1)
    several = Factor(g, leak, Grid(leak.shape[1:-1], (False, True)), backend="cpu")
    assert several.factors._arguments.threads > 1
    assert bool(several.factors._arguments.parts) == (networks < 4)
    assert_near(several.solve(source), one.solve(source), 1e-14)
    assert_near(several.inverse_entries()[0], one.inverse_entries()[0], 1e-14)


class TestErrors:
    def given(self):
        source, g, leak = random_network(1, (4, 5), 2)
        return source, g, leak

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda g, leak: factorize(g[:1], leak), "conductance: expected 2 tensors"),
            (
                lambda g, leak: factorize([g[0][:, :2], g[1]], leak),
                r"conductance\[0\]: expected shape",
            ),
            (lambda g, leak: factorize([-g[0], g[1]], leak), r"conductance\[0\]: expected >= 0"),
            (lambda g, leak: factorize(g, leak - 1), "leak: expected >= 0"),
            (lambda g, leak: factorize(g, leak.int()), "leak: expected a dtype"),
            (lambda g, leak: factorize(g, leak, periodic="ring"), "periodic: expected a bool"),
            (
                lambda g, leak: factorize(g, leak, periodic=[True]),
                "periodic: expected a bool, or 2",
            ),
            (lambda g, leak: factorize(g, leak).solve(leak[:, :2]), "source: expected shape"),
            (lambda g, leak: factorize(g, leak).sample(leak[..., :1]), "noise: expected shape"),
            (lambda g, leak: factorize(g, leak, backend="none"), "backend: expected one of"),
        ],
    )
    def test_values(self, change, message):
        _, g, leak = self.given()
        with pytest.raises(ValueError, match=message):
            change(g, leak)

    def test_types(self):
        _, g, leak = self.given()
        with pytest.raises(TypeError, match="conductance: expected a tuple"):
            factorize(g[0], leak)
        with pytest.raises(TypeError, match=r"leak: expected a torch\.Tensor"):
            factorize(g, 1.0)


def hard_networks(kind, contrast, grid, leak, dtype=torch.float32):
    """Two networks with two channels, a source of both signs, conductances of a hard medium."""
    rng = np.random.default_rng(3)
    shape = (2, *grid, 2)
    x = np.meshgrid(*[np.arange(n) / n for n in grid], indexing="ij")
    wave = 0.5 + 0.5 * np.prod([np.sin(7 * axis + 1) for axis in x], axis=0)
    k = {
        "smooth": contrast ** wave[None, ..., None] * np.ones(shape),
        "channels": np.where(np.abs(x[0] - 0.4)[None, ..., None] < 0.1, contrast, 1.0)
        * np.ones(shape),
        "stripes": np.where((np.arange(grid[-1]) % 2)[:, None] > 0, contrast, 1.0) * np.ones(shape),
        "binary": np.where(rng.random(shape) < 0.5, contrast, 1.0),
        "log-uniform": contrast ** rng.random(shape),
    }[kind]
    axes = range(len(grid))
    g = [torch.from_numpy(2 / (1 / k + 1 / np.roll(k, -1, axis + 1))).to(dtype) for axis in axes]
    source = torch.from_numpy(rng.random(shape)).to(dtype)
    return source, g, torch.full(shape, leak, dtype=dtype)


BOUNDARIES = ("neumann", "dirichlet", "periodic", "matched")
EASY = [("binary", 1e4), ("channels", 1e12), ("log-uniform", 1e8)]
EVERY = [(kind, contrast) for kind in MEDIA for contrast in (1e2, 1e4, 1e8, 1e12)]


class TestNetworksOperator:
    """`solve_network` leaves no network unsolved, forward or backward."""

    def check(self, kind, contrast, grid, leak, boundary, tol, **options):
        source, g, leaks = hard_networks(kind, contrast, grid, leak)
        options["boundary"] = boundary
        weight = torch.from_numpy(np.random.default_rng(5).random(source.shape)).float()
        results = []
        for dtype in (torch.float32, torch.float64):
            given = [x.detach().to(dtype).requires_grad_() for x in (source, leaks, *g)]
            if dtype == torch.float64:
                options |= {"solver": Direct()}
            else:
                options["solver"] = Auto(tol)
            v, info = network_with_walls(given[0], given[2:], given[1], info=True, **options)
            rounding = 1e-6 if dtype == torch.float32 else 1e-14
            limits = torch.where(info.iterations > 0, tol, rounding)
            assert (info.backward_error <= limits).all()
            results.append([v.detach(), *torch.autograd.grad((v * weight).sum(), given)])
        limit = 2e-5 if options.get("backend") is None else 100 * tol  # it iterates
        for actual, expected in zip(*results, strict=True):
            if boundary == "matched":
                # Potentials differ twenty times less along one axis than along the other, and each
                # axis is compared with its own largest gradient.
                limit = max(limit, 1e-4)
            assert actual.isfinite().all()
            if expected.any():  # an axis of one node has no edges
                assert_near(actual, expected, limit)
            else:
                assert not actual.any()

    @pytest.mark.thorough
    @pytest.mark.parametrize("boundary", BOUNDARIES)
    @pytest.mark.parametrize(("kind", "contrast"), EVERY)
    @pytest.mark.parametrize("leak", [1e-2, 1e-12])
    def test_larger_planes(self, kind, contrast, boundary, leak):
        self.check(kind, contrast, (72, 64), leak, boundary, 1e-5)

    @pytest.mark.parametrize("boundary", BOUNDARIES)
    @pytest.mark.parametrize(("kind", "contrast"), [*EASY, ("smooth", 1e2), ("smooth", 1e12)])
    def test_volumes_that_are_iterated_first(self, kind, contrast, boundary):
        self.check(kind, contrast, (13, 12, 14), 1e-12, boundary, 1e-5)

    @pytest.mark.parametrize(
        "backend",
        [BACKENDS[0], *(pytest.param(x, marks=pytest.mark.thorough) for x in BACKENDS[1:])],
    )
    def test_iterations_and_elimination_agree_on_the_sign_of_an_edge(self, backend, monkeypatch):
        """Where the forward pass iterates and the backward pass eliminates, or the other way."""
        source, g, leak = random_network(2, (13, 12, 14), 1, dtype=torch.float32)
        g = [x.requires_grad_() for x in g]
        grads = []
        for forward, backward in ((40, 40), (40, 1), (1, 40)):
            monkeypatch.setattr(methods, "PATIENCE", (forward,) * 4)
            v = solve_network(source, g, leak, solver=Auto(1e-5), backend=backend)
            monkeypatch.setattr(methods, "PATIENCE", (backward,) * 4)
            grads.append(torch.autograd.grad(v.square().sum(), g))
        for others in grads[1:]:
            for actual, expected in zip(others, grads[0], strict=True):
                assert_near(actual, expected.double(), 1e-4)

    @pytest.mark.parametrize(("kind", "contrast"), EASY)
    @pytest.mark.parametrize("tol", [1e-3, 1e-5])
    def test_the_pytorch_backend(self, kind, contrast, tol):
        self.check(kind, contrast, (24, 20), 1e-2, "neumann", tol, backend="torch")

    @pytest.mark.parametrize("edge", [0.0, 1e-12])
    @pytest.mark.parametrize("grid", [(7, 8), (4, 5, 6)])
    def test_parts_whose_ground_is_below_rounding(self, grid, edge):
        """Iterations of both converged to a residual below `tol`, with errors of up to 5e-3."""
        source, g, leak = random_network(1, grid, 1, dtype=torch.float32, leak=1e-11)
        source, half = source.abs(), grid[0] // 2
        leak[:, 0] = 1
        g[0][:, half - 1] = edge
        v = solve_network(source, g, leak, backend="torch")
        given = source[0, ..., 0].numpy(), [x[0, ..., 0] for x in g], leak[0, ..., 0]
        truth = torch.from_numpy(elimination(*given).astype(np.float64))
        for part in (slice(0, half), slice(half, None)):
            actual, expected = v[0, part, ..., 0], truth[part]
            assert (actual - expected).abs().max() <= 2e-5 * expected.abs().max()


def exact(source, g, leak, boundary, weight):
    """Potentials and gradients (source, leak, conductances) of `hard_networks` in extended
    precision. Edges' differences are those of currents s - l V, V being the sum of s over that of
    l: a large constant, which leaves them alike, costs them no digits then."""
    closed = boundary == "periodic"
    leaves = [x.detach().requires_grad_() for x in (leak, *g)]
    total, _ = walled(leaves[1:], leaves[0], boundary)
    grads = [torch.zeros_like(x) for x in (source, leak, *g)]
    v = torch.zeros_like(source)
    through = torch.zeros_like(leak)
    for b, c in np.ndindex(source.shape[0], source.shape[-1]):
        edges = [x[b, ..., c] for x in g]
        l = total.detach()[b, ..., c]  # noqa: E741
        ends = []
        for s in (source[b, ..., c], weight[b, ..., c]):
            wide = s.numpy().astype(np.longdouble)
            leaks = l.numpy().astype(np.longdouble)
            level = wide.sum() / leaks.sum()
            ends.append((elimination(wide - level * leaks, edges, l, closed), level))
        (u, up), (w, over) = ends
        v[b, ..., c] = torch.from_numpy((u + up).astype(float))
        grads[0][b, ..., c] = torch.from_numpy((w + over).astype(float))
        through[b, ..., c] = torch.from_numpy((-(u + up) * (w + over)).astype(float))
        for axis in range(len(g)):
            product = -(u - np.roll(u, -1, axis)) * (w - np.roll(w, -1, axis))
            if not (closed and u.shape[axis] > 1):
                product[(slice(None),) * axis + (-1,)] = 0
            grads[2 + axis][b, ..., c] = torch.from_numpy(product.astype(float))
    chain = torch.autograd.grad(total, leaves, through, allow_unused=True)
    for to, more in zip(grads[1:], chain, strict=True):
        to += 0 if more is None else more
    return [v, *grads]


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


class TestDigitsOfTheOperator:
    """Potentials and all gradients of `solve_network` against extended precision. SciPy's
    spsolve is the less accurate one: it subtracts, and loses small leaks."""

    def check(self, kind, contrast, grid, leak, boundary):
        for dtype, limit in TOLERANCE.items():
            source, g, leaks = hard_networks(kind, contrast, grid, leak, dtype)
            weight = torch.from_numpy(np.random.default_rng(5).random(source.shape)).to(dtype)
            given = [x.requires_grad_() for x in (source, leaks, *g)]
            options = {"boundary": boundary, "solver": Direct()}
            v = network_with_walls(given[0], given[2:], given[1], **options)
            actual = [v.detach(), *torch.autograd.grad(v, given, weight)]
            wide = [x.detach().double() for x in (*given, weight)]
            expected = exact(wide[0], wide[2:-1], wide[1], boundary, wide[-1])
            for x, y in zip(actual, expected, strict=True):
                if y.any():  # an axis of one node has no edges
                    assert_near(x, y, limit)
                else:
                    assert not x.any()

    @pytest.mark.parametrize("boundary", BOUNDARIES)
    @pytest.mark.parametrize("kind", MEDIA)
    @pytest.mark.parametrize("leak", [pytest.param(1e-2, marks=pytest.mark.thorough), 1e-12])
    def test_planes(self, kind, boundary, leak):
        self.check(kind, 1e4, (9, 7), leak, boundary)

    @pytest.mark.thorough
    @pytest.mark.parametrize("boundary", BOUNDARIES)
    @pytest.mark.parametrize("kind", MEDIA)
    @pytest.mark.parametrize("contrast", [1e2, 1e8, 1e12])
    @pytest.mark.parametrize("leak", [1e-2, 1e-12])
    def test_all(self, kind, contrast, boundary, leak):
        self.check(kind, contrast, (13, 12), leak, boundary)
        self.check(kind, contrast, (5, 1, 6), leak, boundary)

    @pytest.mark.parametrize("grid", [(40,), (1, 9), (4, 5, 6)])
    @pytest.mark.parametrize("boundary", ["neumann", "periodic"])
    def test_lines_and_volumes(self, grid, boundary):
        self.check("log-uniform", 1e8, grid, 1e-12, boundary)

    def test_spsolve_is_the_less_accurate_one(self):
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import spsolve

        source, g, leak = hard_networks("binary", 1e4, (9, 7), 1e-12, torch.float64)
        expected = exact(source, g, leak, "neumann", source)[0][0, ..., 0]
        v = solve_network(source, g, leak, solver=Direct())[0, ..., 0]
        a = csc_array(matrix(g, leak, (False, False))[0].numpy())
        theirs = torch.from_numpy(spsolve(a, source[0, ..., 0].numpy().ravel())).reshape(9, 7)
        error = [float((x - expected).abs().amax() / expected.abs().amax()) for x in (v, theirs)]
        assert error[0] < 1e-13
        assert error[1] > 1e-6

    @pytest.mark.slow
    @pytest.mark.parametrize("grid", [(512, 512), (32, 32, 32)])
    @pytest.mark.parametrize(("kind", "contrast"), [("binary", 1e4), ("log-uniform", 1e8)])
    @pytest.mark.parametrize("leak", [1e-2, 1e-12])
    def test_the_largest(self, grid, kind, contrast, leak):
        """float32 against float64, whose digits the other tests show."""
        results = []
        for dtype in (torch.float32, torch.float64):
            fields = hard_networks(kind, contrast, grid, leak, dtype)
            source, leaks, *g = (x[:1, ..., :1] for x in (fields[0], fields[2], *fields[1]))
            given = [x.clone().requires_grad_() for x in (source, leaks, *g)]
            v = solve_network(given[0], given[2:], given[1], solver=Direct())
            weight = torch.from_numpy(np.random.default_rng(5).random(v.shape)).to(dtype)
            results.append([v.detach(), *torch.autograd.grad(v, given, weight)])
        for x, y in zip(*results, strict=True):
            assert_near(x, y, 2e-5)


class TestManySources:
    def given(self):
        source, g, leak = random_network(2, (6, 7), 3)
        return torch.stack([source, -source, source.flip(1), 9 * source], 1), g, leak

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("method", ["auto", "direct"])
    def test_equal_one_by_one(self, backend, method):
        sources, g, leak = self.given()
        options = {
            "boundary": ("periodic", "matched"),
            "solver": solver_of(method),
            "backend": backend,
        }
        v, info = network_with_walls(sources, g, leak, info=True, **options)
        assert info.iterations.shape == info.backward_error.shape == (2, 4, 3)
        assert (info.backward_error <= 1e-14).all()
        for i in range(4):
            assert_near(v[:, i], network_with_walls(sources[:, i], g, leak, **options), 1e-13)

    def test_errors(self):
        sources, g, leak = self.given()
        with pytest.raises(ValueError, match=r"solver: expected Auto\(\) .* for sources"):
            solve_network(sources, g, leak, solver=Iterative())
        with pytest.raises(ValueError, match="source: expected shape"):
            solve_network(sources[:, :, :3], g, leak)
        g[0][1, 3, :, 2] = 0
        leak[1, :4, :, 2] = 0
        with pytest.raises(ValueError, match=r"part of network \(1, 2\)"):
            solve_network(sources, g, leak)
        with pytest.raises(ValueError, match=r"part of network \(0, 0\)"):
            solve_network(sources, [0 * x for x in g], 0 * leak)


class TestBackward:
    def grads(self, call, *given):
        leaves = [x.detach().requires_grad_() for x in given]
        return torch.autograd.grad(call(*leaves).square().sum(), leaves)

    def test_uses_the_factors_of_the_forward(self, monkeypatch):
        if not cpu.available_isas():
            pytest.skip("no compiled kernel")
        source, g, leak = random_network(2, (9, 8), 2)
        made = []
        allocate = cpu.Factors._allocate
        monkeypatch.setattr(cpu.Factors, "_allocate", lambda *x: made.append(x) or allocate(*x))
        solve = lambda s, l, *g: solve_network(s, g, l, solver=Direct())  # noqa: E731, E741
        kept = self.grads(solve, source, leak, *g)
        assert len(made) == 1
        monkeypatch.setattr(methods, "MEMORY", 0)
        again = self.grads(solve, source, leak, *g)
        assert len(made) == 1 + 2 * 4  # one network at a time, in both passes
        for a, b in zip(kept, again, strict=True):
            assert_near(a, b, 1e-12)

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("memory", [0, 2 * 2**20])
    def test_gradients_have_digits_without_factors(self, backend, memory, monkeypatch):
        """What is too much to be kept, of one network or of a batch, is eliminated once more. The
        leaks lift potentials a million times, whose differences had no digits."""
        source, g, leak = hard_networks("binary", 1e4, (20, 18), 1e-6)
        weight = torch.linspace(-1, 2, source.numel(), dtype=torch.float64).reshape(source.shape)

        def gradients(dtype, **options):
            leaves = [x.to(dtype).requires_grad_() for x in g]
            v = network_with_walls(source.to(dtype), leaves, leak.to(dtype), **options)
            return torch.autograd.grad(v, leaves, weight.to(dtype))

        exact = gradients(torch.float64, solver=Direct())
        monkeypatch.setattr(methods, "MEMORY", memory)
        monkeypatch.setattr(methods, "predicted_bytes", lambda *given: 2**20 * given[1])
        found = gradients(torch.float32, solver=Direct(), backend=backend)
        for actual, expected in zip(found, exact, strict=True):
            assert_near(actual, expected, 1e-5)

    def test_factors_go_with_the_graph(self):
        source, g, leak = random_network(1, (9, 8), 1)
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
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0
    assert "Exception" not in ended.stderr


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
    for grad, other in zip(*grads, strict=True):
        torch.testing.assert_close(grad, other, rtol=0, atol=0)
