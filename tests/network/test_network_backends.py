"""Every backend against the float64 reference, and the reference against a dense matrix."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from network_cases import (
    BACKENDS,
    assert_equal,
    make_network,
    net_current,
    network_with_walls,
    relative_residual,
    rounding_floor,
    run,
    truth,
)

from chonn_ops import kirchhoff_network

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
SMALL = [
    ((1,), "neumann", 1.0),
    ((1,), "periodic", 1.0),
    ((2,), "periodic", 100.0),
    ((7,), "neumann", 1e6),
    ((7,), "periodic", 1e4),
    ((1, 1), "periodic", 1.0),
    ((1, 9), ("periodic", "neumann"), 100.0),
    pytest.param((3, 200), "neumann", 1e4, marks=pytest.mark.thorough),
    ((16, 16), ("periodic", "neumann"), 1e6),
    ((16, 16), "periodic", 100.0),
    ((17, 33), ("neumann", "periodic"), 100.0),
    ((2, 5), "periodic", 100.0),
    pytest.param((5, 7, 9), "neumann", 1e4, marks=pytest.mark.thorough),
    ((1, 2, 5), "periodic", 100.0),
    ((4, 5, 6), ("neumann", "periodic", "periodic"), 1e6),
]
# Its dense matrix would be large.
CASES = [*SMALL, pytest.param((63, 64), "neumann", 1e4, marks=pytest.mark.thorough)]
EACH_CASE = pytest.mark.parametrize(("grid", "boundary", "contrast"), CASES, ids=str)
IDS = [name for name in BACKENDS if name != "reference"]


def _rings(boundary, grid):
    words = (boundary,) * len(grid) if isinstance(boundary, str) else boundary
    return tuple(word == "periodic" for word in words)


def _dense(conductance, leak, periodic):
    """The matrix of network (0, 0), a column for each node's unit potential."""
    grid = leak.shape[1:-1]
    size = math.prod(grid)
    units = torch.eye(size, dtype=torch.float64).reshape(size, *grid, 1)
    fields = [x[:1, ..., :1].expand(size, *grid, 1) for x in (*conductance, leak)]
    return net_current(units, tuple(fields[:-1]), fields[-1], periodic).reshape(size, size).T


@pytest.mark.parametrize(("grid", "boundary", "contrast"), SMALL, ids=str)
def test_reference_solves_the_dense_matrix(grid, boundary, contrast):
    source, conductance, leak = make_network(grid, contrast=contrast)
    v = network_with_walls(source, conductance, leak, boundary=boundary, backend="reference")
    matrix = _dense(conductance, leak, _rings(boundary, grid))
    expected = torch.linalg.solve(matrix, source[0, ..., 0].flatten())
    torch.testing.assert_close(v[0, ..., 0].flatten(), expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-12 * float(matrix.max()))


@pytest.mark.parametrize("backend", IDS)
@EACH_CASE
def test_float64_equals_the_reference(backend, grid, boundary, contrast):
    network = make_network(grid, B=1, C=2, contrast=contrast)
    actual = run(*network, boundary=boundary, tol=1e-13, backend=backend)
    assert_equal(actual, truth(*network, boundary=boundary), 1e-10)


@pytest.mark.parametrize("backend", IDS)
@EACH_CASE
@pytest.mark.parametrize("tol", [pytest.param(1e-3, marks=pytest.mark.thorough), 1e-5])
def test_float32_reaches_the_residual_asked_for(backend, grid, boundary, contrast, tol):
    source, conductance, leak = network = make_network(
        grid, C=2, contrast=contrast, dtype=torch.float32
    )
    periodic = _rings(boundary, grid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(*network, boundary=boundary, tol=tol, backend=backend)
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


@EACH_BACKEND
@pytest.mark.parametrize("grid", [(9,), (6, 8), (3, 4, 5)], ids=str)
def test_any_strides(backend, grid):
    source, conductance, leak = make_network(grid)
    options = {"tol": 1e-13, "backend": backend}
    expected = kirchhoff_network(source, conductance, leak, **options)
    turned = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in (source, *conductance)]
    wide = torch.empty(2, *grid, 6, dtype=torch.float64)[..., ::2].copy_(leak)
    actual = kirchhoff_network(turned[0], turned[1:], wide, **options)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@EACH_BACKEND
def test_expanded_inputs(backend):
    source, (g, _), leak = make_network((6, 8))
    g, leak = g[:1, :1, :1, :1], leak[:1, :1, :1, :1]
    full = [x.expand(2, 6, 8, 3) for x in (g, leak)]
    options = {"tol": 1e-13, "backend": backend}
    actual = kirchhoff_network(source, (full[0], full[0]), full[1], **options)
    g, leak = (x.contiguous() for x in full)
    expected = kirchhoff_network(source, (g, g), leak, **options)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@EACH_BACKEND
@pytest.mark.parametrize("grid", [(8,), (9, 9)], ids=str)
def test_entries_that_are_no_edges_are_never_read(backend, grid):
    source, conductance, leak = make_network(grid)
    spoilt = tuple(g.clone() for g in conductance)
    for axis, g in enumerate(spoilt):
        g.select(axis + 1, -1).fill_(float("nan"))
    options = {"tol": 1e-13, "backend": backend}
    expected = run(source, conductance, leak, **options)
    actual = run(source, spoilt, leak, **options)
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, rtol=1e-12, atol=1e-12)
        if name.startswith("grad_g"):
            assert tensor.select(int(name[-1]) + 1, -1).abs().max() == 0


def _holes_and_islands(grid):
    """A network with dead nodes, and an island that only its own leak grounds."""
    source, conductance, leak = make_network(grid)
    exists = torch.ones(grid, dtype=torch.bool)
    exists[2:4, 3:6] = False
    exists[-4:-1, -4:-1] = False
    exists[-3, -3] = True
    grounded = torch.zeros(grid, dtype=torch.bool)
    grounded[0, 0] = grounded[-3, -3] = True
    masked = []
    for axis, g in enumerate(conductance):
        both = exists & exists.roll(-1, axis)
        masked.append(g * both[None, ..., None])
    return source, tuple(masked), leak * grounded[None, ..., None], exists


@EACH_BACKEND
def test_masks_with_holes_and_islands(backend):
    source, conductance, leak, exists = _holes_and_islands((12, 13))
    options = {"tol": 1e-13, "backend": backend}
    actual = run(source * exists[None, ..., None], conductance, leak, **options)
    assert actual["v"][:, ~exists].abs().max() == 0
    residual = relative_residual(
        actual["v"], source * exists[None, ..., None], conductance, leak, (False, False)
    )
    assert residual.max() < 1e-12
    island = actual["v"][:, -3, -3] * leak[:, -3, -3]
    torch.testing.assert_close(island, source[:, -3, -3], rtol=1e-10, atol=1e-10)
    if backend != "reference":
        actual.pop("weight")
        expected = truth(source * exists[None, ..., None], conductance, leak)
        expected.pop("weight")
        assert_equal(actual, expected, 1e-9)


@EACH_BACKEND
def test_a_source_at_a_node_outside_of_the_network_counts_for_nothing(backend):
    source, conductance, leak, exists = _holes_and_islands((12, 13))
    options = {"tol": 1e-12, "backend": backend}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = kirchhoff_network(source, conductance, leak, **options)
    expected = kirchhoff_network(source * exists[None, ..., None], conductance, leak, **options)
    assert actual[:, ~exists].abs().max() == 0
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@EACH_BACKEND
@pytest.mark.parametrize("where", ["source", "conductance", "leak"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("grid", [(40,), (9, 11)], ids=str)
def test_nan_and_infinity_stay_in_their_network(backend, where, value, grid):
    source, conductance, leak = make_network(grid, dtype=torch.float32)
    expected = kirchhoff_network(source, conductance, leak, backend=backend)
    spoilt = {"source": source, "conductance": conductance[0], "leak": leak}
    spoilt[where] = spoilt[where].clone()
    spoilt[where][(1, *[0] * len(grid), 2)] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        v, info = kirchhoff_network(
            spoilt["source"],
            (spoilt["conductance"], *conductance[1:]),
            spoilt["leak"],
            backend=backend,
            return_info=True,
        )
    assert v[1, ..., 2].isnan().all()
    assert info.backward_error[1, 2].isnan()
    v[1, ..., 2] = expected[1, ..., 2]
    assert torch.equal(v, expected)


@EACH_BACKEND
def test_no_source_no_potential(backend):
    source, conductance, leak = make_network((9, 11), dtype=torch.float32)
    source[0, ..., 1] = 0
    v, info = kirchhoff_network(source, conductance, leak, backend=backend, return_info=True)
    assert v[0, ..., 1].abs().max() == 0
    assert info.backward_error[0, 1] == 0
    assert info.iterations[0, 1] == 0


@EACH_BACKEND
def test_a_network_does_not_depend_on_its_neighbours(backend):
    hard = make_network((16, 17), contrast=1e6, dtype=torch.float32)
    easy = make_network((16, 17), contrast=1.0, dtype=torch.float32, seed=1)

    def solved_beside(neighbours):
        """The kernel's form goes by the number of networks, so batches are equally large."""
        flat = [(source, *conductance, leak) for source, conductance, leak in (neighbours, easy)]
        source, g0, g1, leak = (torch.cat(pair) for pair in zip(*flat, strict=True))
        return kirchhoff_network(source, (g0, g1), leak, backend=backend)[2:]

    assert torch.equal(solved_beside(hard), solved_beside(easy))


@EACH_BACKEND
def test_small_leaks_beside_large_conductances(backend):
    """The mean potential of a nearly floating network: a stored diagonal loses the leak."""
    grid = (8, 9)
    g, leak = torch.full((1, *grid, 1), 1e3), torch.full((1, *grid, 1), 1e-4)
    source = torch.full((1, *grid, 1), 0.5)
    v = kirchhoff_network(source, (g, g), leak, backend=backend)
    torch.testing.assert_close(v, torch.full_like(v, 0.5 / 1e-4), rtol=1e-3, atol=0)


def test_an_empty_batch():
    source, conductance, leak = make_network((4, 5), B=0)
    v, info = kirchhoff_network(source, conductance, leak, return_info=True)
    assert v.shape == (0, 4, 5, 3)
    assert info.iterations.shape == info.backward_error.shape == (0, 3)


def test_the_reference_refuses_a_part_without_ground():
    source, conductance, leak = make_network((6,), B=1, C=1)
    conductance[0][0, 2] = 0
    leak[0, 3:] = 0
    with pytest.raises(ValueError, match=r"part of network \(0, 0\) .* node \(3,\)"):
        kirchhoff_network(source, conductance, leak, backend="reference")
