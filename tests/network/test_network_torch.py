"""What the PyTorch backend of the networks does inside: lumping, cycles, elimination, batches."""

from __future__ import annotations

import itertools

import pytest
import torch

pytest.importorskip("scipy")

from chonn_ops import Grid
from chonn_ops.network import reference
from chonn_ops.network.halo import HaloGrid, Network, along
from chonn_ops.network.multigrid import Multigrid, inverse_factors, lead_of_axes
from chonn_ops.network.multigrid.coarsen import coarsen
from chonn_ops.network.torch import solve


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_fields(sizes, batch=2, channels=2, decades=2.0, leak=1e-2, seed=0):
    """source, conductance, leak in float64."""
    generator, shape = seeded(seed), (batch, *sizes, channels)

    def uniform():
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    return uniform() - 0.5, tuple(10 ** (decades * uniform()) for _ in sizes), leak * uniform()


def random_network(sizes, periodic, leak=1e-2, seed=0):
    source, conductance, leaks = random_fields(sizes, 1, 3, leak=leak, seed=seed)
    fields = [field.movedim(-1, 1)[0].contiguous() for field in (source, leaks, *conductance)]
    grid, edges = HaloGrid(sizes, periodic), {}
    for axis, g in enumerate(fields[2:]):
        if not periodic[axis]:
            g.select(axis + 1, -1).zero_()
        edges[along(axis, len(sizes))] = grid.wrap(grid.pad(g))
    return Network(grid, edges, grid.pad(fields[1])), grid.pad(fields[0])


def inclusions(n, contrast, size=8, axes=2, seed=0):
    """Conductances and leak of a grid whose blocks conduct `contrast` or 1: a batch of two."""
    blocks = torch.rand((2, *(-(-n // size) for _ in range(axes)), 1), generator=seeded(seed))
    k = (blocks > 0.5).double() * (contrast - 1) + 1
    for axis in range(1, axes + 1):
        k = k.repeat_interleave(size, axis).narrow(axis, 0, n)
    conductance = [2 * k * k.roll(-1, a) / (k + k.roll(-1, a)) for a in range(1, axes + 1)]
    source = torch.randn(k.shape, generator=seeded(seed + 1), dtype=torch.float64)
    return source, conductance, torch.full_like(k, 0.05 * 256 / n**2)


def dot(a, b):
    return (a * b).flatten(1).sum(1)


@pytest.mark.parametrize("periodic", [*itertools.product((False, True), repeat=2)])
def test_factors_of_the_inverse_undo_the_network(periodic):
    """Also where an edge across a seam reaches further than its neighbours in row-major order."""
    network, source = random_network((5, 4), periodic)
    grid, factors = network.grid, inverse_factors(network)
    currents = grid.inside(source).flatten(1)[..., None]
    potentials = (factors.mT @ factors @ currents).reshape(-1, 5, 4)
    left = network.subtract_currents(source, grid.wrap(grid.pad(potentials)))
    assert grid.inside(left).abs().max() < 1e-10


def power(network, potential):
    """Dissipated in edges and leaks."""
    current = network.subtract_currents(network.grid.new(potential), potential)
    return -dot(network.grid.inside(potential), network.grid.inside(current))


RINGS = [
    ((9, 7), (False, False)),
    ((9, 8), (True, False)),
    ((7, 6), (True, True)),
    ((9, 9), (True, True)),
    ((5, 4, 6), (False, True, False)),
    ((5, 7, 3), (True, True, True)),
]


def test_edges_in_series_follow_the_series_law():
    network, _ = random_network((9,), (False,))
    g = network.grid.inside(network.edges[1,])
    _, coarse = coarsen(network, [True])
    expected = 1 / (1 / g[:, 0:8:2] + 1 / g[:, 1:8:2])
    torch.testing.assert_close(coarse.grid.inside(coarse.edges[1,])[:, :4], expected)


def test_rows_side_by_side_add_up():
    network, _ = random_network((6, 2), (False, False))
    g = network.grid.inside(network.edges[1, 0])
    _, coarse = coarsen(network, [False, True])
    torch.testing.assert_close(coarse.grid.inside(coarse.edges[1, 0])[..., 0], g.sum(2))


@pytest.mark.parametrize(("sizes", "periodic"), RINGS)
def test_every_level_keeps_leak_and_constants(sizes, periodic):
    network, _ = random_network(sizes, periodic)
    for axes in itertools.product((True, False), repeat=len(sizes)):
        if any(axes):
            transfer, coarse = coarsen(network, axes)
            torch.testing.assert_close(dot(coarse.leak, coarse.leak * 0 + 1), dot(network.leak, 1))
            ones, fine = coarse.grid.new(coarse.leak), network.grid.new(network.leak)
            coarse.grid.inside(ones).fill_(1)
            transfer.prolong(ones, fine)
            inside = network.grid.inside(fine)
            torch.testing.assert_close(inside, torch.ones_like(inside))


@pytest.mark.parametrize(("sizes", "periodic"), RINGS)
def test_coarse_edges_dissipate_what_interpolated_potentials_do(sizes, periodic):
    network, _ = random_network(sizes, periodic, leak=0.0)
    for axes in itertools.product((True, False), repeat=len(sizes)):
        if any(axes):
            transfer, coarse = coarsen(network, axes)
            values = torch.randn((3, *coarse.grid.sizes), generator=seeded(1), dtype=torch.float64)
            potential, fine = coarse.grid.pad(values), network.grid.new(network.leak)
            transfer.prolong(potential, fine)
            torch.testing.assert_close(power(coarse, potential), power(network, fine))


@pytest.mark.parametrize(
    ("sizes", "periodic"),
    [((33, 26), (False, False)), ((27, 25), (True, True)), ((9, 11, 7), (True, False, False))],
)
def test_a_cycle_is_symmetric_and_positive(sizes, periodic):
    network, x = random_network(sizes, periodic)
    cycle = Multigrid(network, [0] * len(sizes))
    assert len(cycle.levels) >= 1
    y = network.grid.pad(network.grid.inside(x).flip(1))
    torch.testing.assert_close(dot(x, cycle.solve(y)), dot(y, cycle.solve(x)), rtol=1e-9, atol=0)
    assert (dot(x, cycle.solve(x)) > 0).all()


def test_axes_that_conduct_better_are_halved_first():
    source, (g, _), leak = random_fields((64, 64), 1, 1, decades=0.0)
    for ratio, lead in ((1, [0, 0]), (16, [2, 0]), (1 / 64, [0, 3])):
        grid = HaloGrid((64, 64), (False, False))
        edges = {
            offset: grid.pad(field.movedim(-1, 1)[0])
            for offset, field in (((1, 0), ratio * g), ((0, 1), g))
        }
        assert lead_of_axes(Network(grid, edges, grid.new(g[0]))).tolist() == [lead]
        _, iterations, _ = solve(source, (ratio * g, g), leak, Grid(leak.shape[1:-1]), 1e-5, 100)
        assert iterations.max() <= 8


@pytest.mark.parametrize("sizes", [(1,), (2,), (9,), (1, 1), (2, 2), (1, 40), (12, 11), (17, 13)])
@pytest.mark.parametrize("closed", [False, True])
def test_potentials_equal_the_reference(sizes, closed):
    check_against_reference(sizes, (closed,) * len(sizes))


@pytest.mark.parametrize(
    ("sizes", "periodic"),
    [((3, 200), (True, False)), ((5, 7, 9), (False,) * 3), ((7, 1, 20), (True, True, False))],
)
def test_potentials_of_slender_and_solid_grids_equal_the_reference(sizes, periodic):
    check_against_reference(sizes, periodic)


def check_against_reference(sizes, periodic):
    source, conductance, leak = random_fields(sizes)
    # Walls and islands of nodes that do not exist, and whose source must not count.
    gone = torch.rand(source.shape, generator=seeded(3)) < 0.2
    conductance = [
        torch.where(gone | gone.roll(-1, axis + 1), 0, g) for axis, g in enumerate(conductance)
    ]
    leak = torch.where(gone, 0, leak + 1e-3)
    truth = reference.solve(source, conductance, leak, Grid(leak.shape[1:-1], periodic))[0]
    v, iterations, residual = solve(
        source, conductance, leak, Grid(leak.shape[1:-1], periodic), 1e-13, 100
    )
    assert v.dtype == torch.float64
    assert iterations.dtype == torch.int32
    assert residual.shape == iterations.shape == (2, 2)
    torch.testing.assert_close(v, truth, rtol=1e-10, atol=1e-10 * truth.abs().max().item())
    assert (v[(leak == 0) & gone] == 0).all()
    single = [field.float() for field in (source, *conductance, leak)]
    v, _, residual = solve(
        single[0], single[1:-1], single[-1], Grid(leak.shape[1:-1], periodic), 1e-6, 100
    )
    assert v.dtype == torch.float32
    assert (v - truth).abs().max() <= 1e-4 * truth.abs().max()
    if sum(n > 1 for n in sizes) > 1:
        assert (residual <= 1e-6).all()


def test_elimination_keeps_its_digits_at_any_contrast():
    source, (g,), leak = random_fields((501,), decades=9.0, leak=1e-6)
    source = source.abs()
    for periodic in (False, True):
        truth = reference.solve(source, (g,), leak, Grid(leak.shape[1:-1], (periodic,)))[0]
        v, iterations, _ = solve(source, (g,), leak, Grid(leak.shape[1:-1], (periodic,)), 1e-5, 100)
        assert (iterations == 0).all()
        torch.testing.assert_close(v, truth, rtol=1e-12, atol=0)
        single = [field.float() for field in (source, g, leak)]
        v, _, _ = solve(
            single[0], single[1:2], single[2], Grid(leak.shape[1:-1], (periodic,)), 1e-5, 100
        )
        torch.testing.assert_close(v.double(), truth, rtol=2e-5, atol=0)


@pytest.mark.parametrize(
    ("contrast", "most"),
    [
        (1e4, 16),
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in ((1, 6), (100, 8))),
    ],
)
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.thorough)]
)
def test_iterations_stay_few_at_any_contrast(contrast, most, dtype):
    for n in (63, 128, 256):
        source, conductance, leak = inclusions(n, contrast)
        fields = [field.to(dtype) for field in (source, *conductance, leak)]
        _, iterations, residual = solve(
            fields[0], fields[1:-1], fields[-1], Grid(leak.shape[1:-1]), 1e-5, 100
        )
        assert (residual <= 1e-5).all()
        assert iterations.max() <= most


def test_iterations_stay_few_in_three_dimensions():
    source, conductance, leak = inclusions(16, 1e4, size=4, axes=3)
    _, iterations, residual = solve(source, conductance, leak, Grid(leak.shape[1:-1]), 1e-5, 100)
    assert (residual <= 1e-5).all()
    assert iterations.max() <= 12


def test_what_does_not_converge_is_reported():
    source, conductance, leak = inclusions(64, 1e4)
    _, iterations, residual = solve(source, conductance, leak, Grid(leak.shape[1:-1]), 1e-10, 2)
    assert (iterations == 2).all()
    assert (residual > 1e-10).all()
    _, iterations, residual = solve(source, conductance, leak, Grid(leak.shape[1:-1]), 1e-10, 0)
    assert (iterations == 0).all()
    assert (residual == 1).all()
