"""Complex networks: against a dense solve, all boundaries, gradients, resonances and power."""

import contextlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from network_cases import (
    EACH_BACKEND_THOROUGHLY,
    factorize,
    matrix,
    network_with_walls,
    solve_network,
)
from rows import thorough
from torch import Tensor

from chonn_ops import Auto, Direct
from chonn_ops.network import available_backends

Network = tuple[Tensor, tuple[Tensor, ...], Tensor]
BACKENDS = tuple(name for name in ("cpu", "torch", "reference") if name in available_backends())
EACH_DIRECT_THOROUGHLY = pytest.mark.parametrize(
    "backend", [BACKENDS[0], *(thorough(x) for x in BACKENDS[1:2])]
)
GRIDS = [(1,), (2,), (17,), (9, 11), (1, 6), (16, 12), (3, 4, 5)]


def make(kind: str, grid: tuple[int, ...], B: int = 2, C: int = 2, seed: int = 0) -> Network:
    """complex128. "waves": -laplace u - k^2 u with 3 % loss, "lossless" without; "circuit": passive
    admittances of any phase; "any": of both signs."""
    generator = torch.Generator().manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(B, *grid, C, dtype=torch.float64, generator=generator)

    source = torch.complex(uniform() - 0.5, uniform() - 0.5)
    if kind in ("waves", "lossless"):
        g = tuple((0.5 + uniform()).to(torch.complex128) for _ in grid)
        loss = 1 + 0.03j if kind == "waves" else 1 + 0j
        return source, g, -((9 / max(grid)) ** 2) * (0.7 + 0.6 * uniform()) * loss
    real = (lambda: 2 * uniform() - 1) if kind == "any" else uniform
    g = tuple(torch.complex(real(), 2 * uniform() - 1) for _ in grid)
    return source, g, torch.complex(0.3 * real(), uniform() - 0.5)


def solve_dense(case: Network, periodic: bool = False) -> Tensor:
    source, g, leak = case
    s = source.movedim(-1, 1)
    v = torch.linalg.solve(
        matrix(g, leak, [periodic] * len(g)), s.reshape(-1, leak[0, ..., 0].numel())
    )
    return v.reshape(s.shape).movedim(1, -1)


def cast(case: Network, dtype: torch.dtype) -> Network:
    source, g, leak = case
    return source.to(dtype), tuple(x.to(dtype) for x in g), leak.to(dtype)


def error(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


@EACH_BACKEND_THOROUGHLY
@pytest.mark.parametrize("kind", ["waves", "lossless", "circuit", "any"])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_potentials(grid, kind, backend):
    case = make(kind, grid, B=3)
    narrow = cast(case, torch.complex64)
    for periodic in (False, True):
        boundary = "periodic" if periodic else "neumann"
        v = network_with_walls(*case, boundary=boundary, backend=backend)
        assert error(v, solve_dense(case, periodic)) < 1e-9
        options = {"boundary": boundary, "backend": backend, "solver": Auto(1e-8)}
        v, info = network_with_walls(*narrow, **options, info=True)
        assert v.dtype == torch.complex64
        assert info.backward_error.max() <= torch.finfo(torch.float32).eps
        assert error(v, solve_dense(cast(narrow, torch.complex128), periodic)) < 1e-5


def test_matched_takes_power_where_the_loss_is_below_rounding():
    """Ladders of coils, capacitors and a resistance of 1e-3 to 1e-12 of the coils' impedance, or
    none, at either sign of the frequency."""
    for dtype in (torch.complex64, torch.complex128):
        source = torch.eye(40, dtype=dtype)[:1, :, None]
        leak = torch.full((1, 40, 1), -0.3j, dtype=dtype)
        for ohm in (0.0, *torch.logspace(-12, -3, 37, dtype=torch.float64)):
            g = torch.full((1, 40, 1), 1 / complex(ohm, -0.3), dtype=dtype)
            v = network_with_walls(source, (g,), leak, boundary="matched")
            w = network_with_walls(source, (g.conj(),), leak.conj(), boundary="matched")
            assert v[0, 0, 0].real > 0.4
            assert torch.allclose(w, v.conj(), atol=1e-5)


def test_gradients_in_complex64():
    case = make("waves", (16, 12), B=3)
    weight = torch.randn(case[0].shape, dtype=torch.complex128)

    def gradients(dtype: torch.dtype, backend: str) -> list[Tensor]:
        source, g, leak = cast(cast(case, torch.complex64), dtype)
        leaves = [x.clone().requires_grad_() for x in (source, *g, leak)]
        v = solve_network(leaves[0], tuple(leaves[1:-1]), leaves[-1], backend=backend)
        loss = (v * weight.to(dtype)).real.sum() + v.abs().square().sum()
        return list(torch.autograd.grad(loss, leaves))

    found = gradients(torch.complex64, BACKENDS[0])
    for ours, true in zip(found, gradients(torch.complex128, "reference"), strict=True):
        assert ours.dtype == torch.complex64
        assert error(ours, true) < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_a_pivot_of_zero_is_no_resonance(dtype, backend):
    def pair(a: complex, b: complex) -> Tensor:
        return torch.tensor([a, b], dtype=dtype).reshape(1, 2, 1)

    # [[0, -1], [-1, 0]]
    v = solve_network(pair(1, 2j), (pair(1, 0),), pair(-1, -1), backend=backend)
    assert torch.allclose(v, pair(-2j, -1), atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_near_a_resonance_complex64_is_eliminated_in_complex128(backend):
    ones = torch.ones(1, 8, 8, 1, dtype=torch.complex64)
    # Ten times further off, refinement in complex64 ends below `tol`, with errors of up to 2e-5.
    leak = (-2 + 2 * math.cos(math.pi * 3 / 8) + 3e-7) * ones
    source = torch.zeros_like(ones)
    source[0, 1, 2] = 1
    v, info = solve_network(source, (ones, ones), leak, backend=backend, info=True)
    assert info.backward_error.max() < 1e-7
    wide = cast((source, (ones, ones), leak), torch.complex128)
    assert error(v, solve_dense(wide)) < 1e-7


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_all_ways_to_eliminate_refuse_the_same_networks(backend):
    def answers(solve: Any, *given: Any, **options: Any) -> bool:
        with contextlib.suppress(RuntimeError):
            return bool(solve(*given, **options).isfinite().all())
        return False

    ones = torch.ones(1, 8, 8, 1, dtype=torch.complex128)
    source = torch.zeros_like(ones)
    source[0, 1, 2] = 1
    answered = set()
    # The nearer the resonance, the larger the residual: some lie between any two tolerances.
    for distance in torch.logspace(-9, -16, 29).tolist():
        leak = (-2 + 2 * math.cos(math.pi * 3 / 8) + distance) * ones
        network = (ones, ones), leak
        by_solver = [
            answers(solve_network, source, *network, solver, backend=backend)
            for solver in (Auto(), Direct())
        ]
        by_solver.append(answers(factorize(*network, backend=backend).solve, source))
        assert len(set(by_solver)) == 1, (distance, by_solver)
        answered.update(by_solver)
    assert answered == {False, True}


def test_values_that_are_not_finite_stay_in_their_network():
    source, g, leak = make("waves", (6, 5), B=3)
    v = solve_network(source, g, leak)
    leak, source = leak.clone(), source.clone()
    leak[1, 2, 3, 1] = math.nan
    source[0, 0, 0, 0] = math.inf
    for backend in BACKENDS:
        w = solve_network(source, g, leak, backend=backend)
        lost = torch.isnan(w.real).flatten(1, 2)
        assert lost.all(1).tolist() == [[True, False], [False, True], [False, False]]
        assert torch.equal(lost.all(1), lost.any(1))
        assert torch.allclose(w[2], v[2])


def test_dtypes_of_potentials():
    source, g, leak = make("waves", (4, 3))
    for given, wanted in (
        (source, torch.complex128),
        (source.to(torch.complex64), torch.complex64),
        (source.real, torch.complex128),
        (source.real.float(), torch.complex64),
        (source.real.bfloat16(), torch.complex64),
    ):
        assert solve_network(given, g, leak).dtype == wanted
    v = solve_network(source, [x.real for x in g], leak.real)  # only the source is complex
    assert torch.allclose(v, solve_network(source, g, leak.real.to(torch.complex128)))


def cancelling(grid: tuple[int, ...], kind: str, seed: int = 0) -> tuple[list[Tensor], Tensor]:
    """Networks of which pivots cancel, all of them or some."""
    generator = torch.Generator().manual_seed(seed)
    shape = (1, *grid, 1)
    if kind == "waves":  # omega^2 h^2 is the number of neighbours: each leak cancels its edges
        leak = torch.full(shape, -2.0 * len(grid), dtype=torch.complex128)
        return [torch.ones_like(leak) for _ in grid], leak
    numbers = (torch.randint(-1, 2, shape, generator=generator) for _ in range(len(grid) + 1))
    leak, *g = (x.to(torch.complex128) for x in numbers)
    return g, leak + 0.01j


CANCELLING = {"waves": [(3,), (10,), (40,), (8, 9), (17, 16), (4, 5, 6)]}
CANCELLING["integers"] = [(30,), (9, 9), (4, 4, 4)]


@EACH_DIRECT_THOROUGHLY
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(
    ("grid", "kind"), [(grid, kind) for kind in CANCELLING for grid in CANCELLING[kind]], ids=str
)
def test_determinant_and_inverse_where_pivots_cancel(grid, kind, periodic, backend):
    g, leak = cancelling(grid, kind)
    a = matrix(g, leak, [periodic] * len(grid))[0]
    condition = float(torch.linalg.cond(a))
    networks = factorize(g, leak, periodic=periodic, backend=backend)
    if condition > 1e12:
        for refused in (networks.logdet, networks.diagonal_of_inverse):
            with pytest.raises(RuntimeError, match=r"network \(0, 0\) .*resonance"):
                refused()
        return
    enough = 1e-14 * condition
    sign, size = np.linalg.slogdet(a.numpy())
    found = complex(networks.logdet()[0, 0])
    assert abs(found.real - size) < enough
    assert abs(np.exp(1j * found.imag) - sign) < enough
    inverse = torch.linalg.inv(a)
    off = networks.diagonal_of_inverse().flatten() - inverse.diagonal()
    assert off.abs().max() < enough * inverse.abs().max()
    source = torch.randn(leak.shape, generator=torch.Generator().manual_seed(1)).to(leak.dtype)
    several = torch.stack([source, 1j * source, source.flip(1) - 1j], 1)
    options = {"periodic": periodic, "backend": backend}
    for given in (source, several):
        exact = torch.linalg.solve(a, given.reshape(-1, len(a)).mT)
        for v in (networks.solve(given), solve_network(given, g, leak, **options)):
            assert (v.reshape(-1, len(a)).mT - exact).abs().max() < enough * exact.abs().max()


@EACH_DIRECT_THOROUGHLY
def test_networks_beside_one_whose_pivots_cancel(backend):
    """Networks of a batch have many, some or no pivots that cancel."""
    grid = (8, 9)
    cases = [*(cancelling(grid, kind) for kind in CANCELLING), make("circuit", grid, 1, 1)[1:]]
    g = [torch.cat(fields) for fields in zip(*(case[0] for case in cases), strict=True)]
    leak = torch.cat([case[1] for case in cases])
    networks = factorize(g, leak, backend=backend)
    logdet, diagonal = networks.logdet()[:, 0], networks.diagonal_of_inverse()
    for b, a in enumerate(matrix(g, leak, (False, False))):
        sign, size = torch.linalg.slogdet(a)
        assert abs(logdet[b].real - size) < 1e-10
        assert abs(torch.exp(1j * logdet[b].imag) - sign) < 1e-10
        assert error(diagonal[b].flatten(), torch.linalg.inv(a).diagonal()) < 1e-10


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize("several", [False, True])
def test_gradients_are_not_conjugated_lazily(backend, several):
    """`numpy()` refuses tensors with PyTorch's conjugate bit."""
    case = make("waves", (5, 4))
    inputs = source, *g, leak = [x.requires_grad_() for x in (case[0], *case[1], case[2])]
    fed = torch.stack([source, 2 * source], 1) if several else source
    v = solve_network(fed, g, leak, backend=backend)
    networks = factorize(g, leak, backend=backend)
    results = (v, networks.solve(source), networks.logdet(), networks.diagonal_of_inverse())
    for result in results:
        loss = result.abs().sum()
        for gradient in torch.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True):
            assert gradient is None or not gradient.is_conj()
    loss = sum(result.abs().sum() for result in results[:2])
    assert isinstance(loss, Tensor)
    for gradient in torch.autograd.grad(loss, inputs, create_graph=True):
        assert not gradient.is_conj()
