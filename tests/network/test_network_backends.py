"""Every backend against the float64 reference, and the reference against a dense matrix."""

import math
import warnings
from functools import partial

import pytest
import torch
from network_cases import (
    BACKENDS,
    EACH_DOOR,
    assert_equal,
    make_network,
    matrix,
    network_with_walls,
    relative_residual,
    rounding_floor,
    run,
    solve_network,
    truth,
    uniform,
    walled,
)
from rows import thorough

from chonn_ops import Auto

SMALL = [
    ((1,), "neumann", 1.0),
    ((1,), "periodic", 1.0),
    ((2,), "periodic", 100.0),
    ((7,), "neumann", 1e6),
    ((7,), "periodic", 1e4),
    ((1, 1), "periodic", 1.0),
    ((1, 9), ("periodic", "neumann"), 100.0),
    thorough((3, 200), "neumann", 1e4),
    ((16, 16), ("periodic", "neumann"), 1e6),
    ((16, 16), "periodic", 100.0),
    ((17, 33), ("neumann", "periodic"), 100.0),
    ((2, 5), "periodic", 100.0),
    ((11, 3), ("neumann", "periodic"), 1e4),
    ((5, 1, 6), ("periodic", "neumann", "periodic"), 1e4),
    thorough((5, 7, 9), "neumann", 1e4),
    ((1, 2, 5), "periodic", 100.0),
    ((7, 1, 20), ("periodic", "periodic", "neumann"), 100.0),
    thorough((3, 200), ("periodic", "neumann"), 100.0),
    ((4, 5, 6), ("neumann", "periodic", "periodic"), 1e6),
]
# Its dense matrix would be large.
CASES = [*SMALL, thorough((63, 64), "neumann", 1e4)]
EACH_CASE = pytest.mark.parametrize(("grid", "boundary", "contrast"), CASES, ids=str)
IDS = [name for name in BACKENDS if name != "reference"]
# Lines; a plane and a volume that are not eliminated where iterations are asked for.
GRIDS = [(40,), (33, 26), thorough((7, 9, 8))]


@pytest.mark.parametrize(("grid", "boundary", "contrast"), SMALL, ids=str)
def test_reference_solves_the_dense_matrix(grid, boundary, contrast):
    source, conductance, leak = make_network(grid, contrast=contrast)
    v = network_with_walls(source, conductance, leak, boundary=boundary, backend="reference")
    a = matrix(conductance, leak, walled(conductance, leak, boundary)[1])
    expected = torch.linalg.solve(a, source.movedim(-1, 1).reshape(6, -1)).flatten()
    torch.testing.assert_close(v.movedim(-1, 1).flatten(), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("backend", IDS)
@EACH_CASE
def test_float64_equals_the_reference(backend, grid, boundary, contrast):
    network = make_network(grid, B=1, C=2, contrast=contrast)
    actual = run(*network, boundary=boundary, solver=Auto(1e-13), backend=backend)
    assert_equal(actual, truth(*network, boundary=boundary), 1e-10)


@pytest.mark.parametrize("backend", IDS)
@EACH_CASE
@pytest.mark.parametrize("tol", [thorough(1e-3), 1e-5])
def test_float32_reaches_the_residual_asked_for(backend, grid, boundary, contrast, tol):
    source, conductance, leak = network = make_network(
        grid, C=2, contrast=contrast, dtype=torch.float32
    )
    periodic = walled(conductance, leak, boundary)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(*network, boundary=boundary, solver=Auto(tol), backend=backend)
    v, w, weight = result["v"], result["grad_source"], result["weight"]
    for potentials, current in ((v, source), (w, weight)):
        residual = relative_residual(potentials, current, conductance, leak, periodic)
        floor = rounding_floor(current, conductance, leak, periodic)
        assert (residual <= tol + 4 * floor).all(), (residual, floor)
    torch.testing.assert_close(result["grad_leak"], -w * v)
    for axis, wraps in enumerate(periodic):
        dim, n = axis + 1, grid[axis]
        expected = -(w - w.roll(-1, dim)) * (v - v.roll(-1, dim))
        if not wraps or n == 1:
            expected.narrow(dim, n - 1, 1).zero_()
        torch.testing.assert_close(result[f"grad_g{axis}"], expected)


@EACH_DOOR
@pytest.mark.parametrize("grid", GRIDS, ids=str)
class TestDoors:
    """What holds for every way to solve a network: backends, methods and what fills vectors."""

    def test_any_strides_and_entries_that_are_no_edges(self, door, grid):
        source, g, leak = network = make_network(grid)
        with door as solve:
            expected = solve(*network)
            source, *g = (x.transpose(0, -1).contiguous().transpose(0, -1) for x in (source, *g))
            wide = torch.empty(*source.shape[:-1], 6, dtype=torch.float64)[..., ::2].copy_(leak)
            spoilt = [x.clone() for x in g]
            for axis, x in enumerate(spoilt, 1):
                x.select(axis, -1).fill_(math.nan)
            actual = solve(source, spoilt, wide)
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
            same = [x[:1, ..., :1].expand_as(x) for x in (leak, *g)]
            expected = solve(source, [x.contiguous() for x in same[1:]], same[0].contiguous())
            actual = solve(source, same[1:], same[0])
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_half_precision_is_read_as_it_is_and_solved_in_float32(self, door, grid, dtype):
        """In all fields, or in all but one."""
        source, g, leak = make_network(grid, dtype=dtype, contrast=4.0)
        halves = source, leak, *g
        found = []
        with door as solve:
            for fields in (halves, (source, leak.float(), *g), [x.float() for x in halves]):
                leaves = [x.detach().clone().requires_grad_() for x in fields]
                v, info = solve(leaves[0], leaves[2:], leaves[1]), solve.info
                if info is not None:
                    assert info.backward_error.dtype == torch.float64
                    assert not info.backward_error.requires_grad
                    assert info.iterations.dtype == torch.int32
                    # The error of the potentials as they were rounded at the end.
                    most = torch.finfo(v.dtype).eps
                    assert most / 100 < info.backward_error.max() <= max(most, 1e-5)
                found.append((v.detach(), *torch.autograd.grad(v.sum(), leaves)))
        for narrow in found[:2]:
            assert torch.equal(narrow[0], found[2][0].to(dtype))
            for half, full in zip(narrow[1:], found[2][1:], strict=True):
                torch.testing.assert_close(half.to(dtype), full.to(dtype))

    @pytest.mark.parametrize("scale", [1e-30, thorough(1e30)])
    def test_units(self, door, grid, scale):
        """Conductances and sources of any magnitude, without overflow or underflow."""
        source, g, leak = make_network(grid, dtype=torch.float32)
        with door as solve:
            expected = solve(source, g, leak)
            v = solve(source * scale, [x * scale for x in g], leak * scale)
            small, tiny = (solve(source * x, g, leak) for x in (1e-8, 1e-39))  # denormal
        torch.testing.assert_close(v, expected, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(small * 1e8, expected, rtol=1e-3, atol=1e-4)
        assert (tiny.double() * 1e39 - expected).norm() <= 1e-3 * expected.norm()

    @pytest.mark.parametrize("periodic", [False, True])
    def test_holes_and_islands(self, door, grid, periodic):
        """A fifth of the nodes lose all edges; those without a leak have potential 0, and edges of
        conductance 0 have gradients."""
        source, g, leak = make_network(grid)
        exists = uniform(*source.shape, seed=3) > 0.2
        g = [x * exists * exists.roll(-1, axis) for axis, x in enumerate(g, 1)]
        leak = leak * (exists | (uniform(*source.shape, seed=4) > 0.5))
        source = torch.where(exists | (leak != 0), source, 0)
        weight = uniform(*source.shape, seed=5)
        results = []
        with door as solve:
            for call in (solve, partial(solve_network, backend="reference")):
                leaves = [x.clone().requires_grad_() for x in (source, *g, leak)]
                v = call(leaves[0], leaves[1:-1], leaves[-1], periodic=periodic)
                results.append([v.detach(), *torch.autograd.grad(v, leaves, weight)])
        assert (results[0][0][~exists & (leak == 0)] == 0).all()
        for actual, expected in zip(*results, strict=True):
            assert (actual - expected).norm() <= 1e-8 * expected.norm()

    @pytest.mark.parametrize("where", ["source", "conductance", "leak"])
    @pytest.mark.parametrize("value", [math.nan, thorough(math.inf)])
    def test_numbers_that_are_not_finite_stay_in_their_network(self, door, grid, where, value):
        source, g, leak = make_network(grid, dtype=torch.float32)
        with door as solve, warnings.catch_warnings():
            warnings.simplefilter("error")
            expected = solve(source, g, leak)
            {"source": source, "conductance": g[0], "leak": leak}[where][
                (1, *[n // 2 for n in grid], 2)
            ] = value
            v, info = solve(source, g, leak), solve.info
        assert v[1, ..., 2].isnan().all()
        assert info is None or info.backward_error.isnan().nonzero().tolist() == [[1, 2]]
        v[1, ..., 2] = expected[1, ..., 2]
        torch.testing.assert_close(v, expected, rtol=1e-5, atol=1e-6)

    def test_no_source_no_potential_and_no_neighbours(self, door, grid):
        """The kernel's form goes by the number of networks, so batches are equally large."""
        hard = make_network(grid, contrast=1e6, dtype=torch.float32)
        easy = make_network(grid, contrast=1.0, dtype=torch.float32, seed=1)
        easy[0][0, ..., 1] = 0
        found = []
        with door as solve:
            for beside in (hard, easy):
                flat = zip(*((s, *g, leak) for s, g, leak in (beside, easy)), strict=True)
                source, *g, leak = (torch.cat(pair) for pair in flat)
                found.append(solve(source, g, leak)[2:])
                assert solve.info is None or solve.info.backward_error[2, 1] == 0
                assert solve.info is None or solve.info.iterations[2, 1] == 0
        assert torch.equal(*found)
        assert not found[0][0, ..., 1].any()

    def test_small_leaks_beside_large_conductances(self, door, grid):
        """The mean potential of a nearly floating network: a stored diagonal loses the leak."""
        ones = torch.ones(1, *grid, 1)
        with door as solve:
            v = solve(0.5 * ones, [1e3 * ones for _ in grid], 1e-4 * ones)
        torch.testing.assert_close(v, 0.5 / 1e-4 * ones, rtol=1e-3, atol=0)
