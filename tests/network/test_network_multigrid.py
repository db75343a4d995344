"""Iterations: compiled, of one network after the other and of groups of networks, and PyTorch's."""

import itertools

import pytest
import torch
from network_cases import make_network, network_with_walls, relative_residual, solve_network
from rows import thorough

from chonn_ops import Iterative
from chonn_ops.network.solve import cpu

COMPILED = pytest.mark.skipif(cpu.kernel() is None, reason="no compiled kernel")
# Rows shorter and longer than a vector, odd axes, axes of one node, an axis that is not halved.
GRIDS = [
    *((33, 32), (130, 15), (1, 47, 49), (16, 13, 17)),
    *(thorough(x) for x in ((70, 81), (3, 400), (37, 1, 40), (21, 4, 18))),
]


OURS = [pytest.param(x, marks=COMPILED) for x in ("cpu", "cpu, group")]
COMPILED_ONLY = pytest.mark.parametrize("backend", OURS, indirect=True)
EACH_QUICKLY = pytest.mark.parametrize("backend", [*OURS, "torch"], indirect=True)


@pytest.fixture(params=[*OURS, thorough("torch")])
def backend(request, monkeypatch) -> str:
    """Vectors of the compiled kernel are filled with slabs of one network or with networks."""
    monkeypatch.setattr(cpu, "_are_few", lambda *_: request.param == "cpu")
    return request.param.partition(",")[0]


@pytest.fixture
def num_networks(request) -> int:
    """One, or so many that they fill vectors."""
    return 20 if "group" in request.node.callspec.id else 1


def _solve(network, tol=1e-5, backend="cpu", **options):
    source, conductance, leak = network
    options |= {"solver": Iterative(tol), "backend": backend}
    return network_with_walls(source, conductance, leak, **options)


def _check(network, tol, backend, monkeypatch, boundary):
    """Potentials on every instruction set, which are those of the reference."""
    expected = network_with_walls(*network, boundary=boundary, backend="reference")
    for isa in cpu.kernel().isas if backend == "cpu" else [""]:
        with monkeypatch.context() as patch:
            patch.setenv("CHONN_NETWORK_ISA", isa)
            actual, info = _solve(network, tol, backend, boundary=boundary, info=True)
        assert info.backward_error.max() <= 20 * tol
        assert info.iterations.max() <= 28
        assert (actual - expected).norm() <= 10 * tol * expected.norm(), isa
        yield actual


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
@pytest.mark.parametrize("dtype", [torch.float32, thorough(torch.float64)], ids=str)
def test_equals_the_reference_on_every_instruction_set(backend, monkeypatch, grid, boundary, dtype):
    # 17 networks leave lanes empty in vectors of every width.
    network = make_network(grid, B=1, C=17 if grid == (33, 32) else 2, dtype=dtype)
    tol = 1e-6 if dtype == torch.float32 else 1e-11
    assert [*_check(network, tol, backend, monkeypatch, boundary)]


@pytest.mark.parametrize("boundary", itertools.product(("neumann", "periodic"), repeat=3), ids=str)
def test_every_choice_of_periodic_axes(backend, monkeypatch, boundary):
    for grid in ((12, 11, 17), (15, 14, 10)):
        assert [*_check(make_network(grid, B=1, C=1), 1e-11, backend, monkeypatch, boundary)]


@pytest.mark.thorough
@pytest.mark.parametrize("grid", [(40, 93), (15, 14, 70), (12, 17, 64)], ids=str)
@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
def test_insulating_boxes_are_left_out(backend, monkeypatch, grid, boundary):
    """Boxes of many vectors that differ from network to network, at faces, seams and within."""
    source, conductance, leak = make_network(grid, B=1, C=3)
    conducts = torch.ones_like(source)
    for channel, (start, end) in enumerate([(0.3, 0.9), (0.0, 0.6), (0.5, 1.0)]):
        box = tuple(slice(int(start * n), int(end * n)) for n in grid)
        conducts[0, ..., channel][box] = 0
    edges = tuple(g * conducts * conducts.roll(-1, axis) for axis, g in enumerate(conductance, 1))
    network = source * conducts, edges, leak * conducts
    for actual in _check(network, 1e-11, backend, monkeypatch, boundary):
        assert (actual[conducts == 0] == 0).all()


@COMPILED
@pytest.mark.parametrize("grid", [(130, 140), thorough((36, 37, 38))], ids=str)
def test_the_number_of_threads_changes_no_bit(set_threads, grid):
    network = make_network(grid, B=1, C=1, dtype=torch.float32)
    found = []
    for threads in (1, 2, 3):
        set_threads(threads)
        found.append(_solve(network))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@EACH_QUICKLY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("grid", "size"),
    [
        ((256, 256), 8),
        ((40, 40, 40), 8),
        *(thorough(*x) for x in (((63, 63), 8), ((128, 128), 8))),
        ((16, 16, 16), 4),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("contrast", "most"), [*(thorough(*x) for x in ((1.0, 8), (100.0, 12))), (1e4, 32)]
)
def test_iterations(backend, grid, size, contrast, most, dtype):
    """Squares and cubes with better and worse conductances: no more on larger grids."""
    generator = torch.Generator().manual_seed(0)
    k = torch.randn(1, *(-(-n // size) for n in grid), 1, generator=generator) > 0
    for axis, n in enumerate(grid, 1):
        k = k.repeat_interleave(size, axis).narrow(axis, 0, n)
    k = contrast ** k.double()
    conductance = [2 / (1 / k + 1 / k.roll(-1, axis)) for axis in range(1, len(grid) + 1)]
    leak = torch.full_like(k, 1e-4 if dtype == torch.float64 else 12.8 / grid[0] ** 2)
    source = torch.randn(k.shape, generator=generator, dtype=torch.float64)
    source, leak, *conductance = (x.to(dtype) for x in (source, leak, *conductance))
    v, info = _solve((source, conductance, leak), backend=backend, info=True)
    assert info.iterations.item() <= (most if backend == "torch" else 12)
    assert info.backward_error.item() <= 2e-5
    if dtype == torch.float64:  # whose rounding is no part of the residual
        open_ends = (False,) * len(grid)
        assert relative_residual(v, source, conductance, leak, open_ends).item() <= 2e-5


@EACH_QUICKLY
@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
@pytest.mark.parametrize("ratio", [thorough(64.0), 16.0, 1e4])
def test_iterations_do_not_grow_with_anisotropy(backend, boundary, ratio):
    source, (g0, g1), leak = make_network((65, 96), contrast=1.0, dtype=torch.float32)
    for strong in ((ratio * g0, g1), (g0, ratio * g1)):
        case = source, strong, leak
        _, info = _solve(case, boundary=boundary, backend=backend, info=True)
        assert info.iterations.max() <= 12


def pores(num_networks):
    """Channels one node wide between the nodes of the coarser networks, in an insulator."""
    shape = (1, 23, 21, 40, num_networks)
    conducts = torch.zeros(shape)
    for at in (3, 9, 15):
        for other in (3, 9, 15):
            conducts[:, at, other] = conducts[:, at, :, other] = conducts[:, :, at, other] = 1
    edges = tuple(conducts * conducts.roll(-1, axis) for axis in (1, 2, 3))
    leak, source = torch.zeros(shape), torch.zeros(shape)
    leak[:, 0, 3, 3], source[:, 3, 3, -1], source[:, 15, -1, 9] = 2, 1, 0.3
    return source, edges, leak


def rods(num_networks):
    """Islands of a conductor of two to four nodes anywhere, of a contrast of 1e5."""
    shape = (1, 20, 21, 22, num_networks)
    generator = torch.Generator().manual_seed(1)
    k = torch.ones(shape)
    for rod in range(60):
        length = 2 + rod // 3 % 3
        z, y, x = (int(torch.randint(n - 4, (), generator=generator)) for n in shape[1:-1])
        sides = [length if axis == rod % 3 else 1 for axis in range(3)]
        k[:, z : z + sides[0], y : y + sides[1], x : x + sides[2]] = 1e5
    edges = tuple(2 / (1 / k + 1 / k.roll(-1, axis)) for axis in (1, 2, 3))
    return torch.randn(shape, generator=generator), edges, torch.full(shape, 1e-3)


@COMPILED_ONLY
@pytest.mark.parametrize(
    ("medium", "most", "tolerance"), [(pores, 16, 1e-4), thorough(rods, 36, 1e-3)]
)
def test_iterations_in_hard_volumes(backend, num_networks, medium, most, tolerance):
    network = medium(num_networks)
    v, info = _solve(network, backend=backend, info=True)
    assert info.iterations.max() <= most
    expected = solve_network(*network, backend="reference")
    assert (v - expected).norm() <= tolerance * expected.norm()
