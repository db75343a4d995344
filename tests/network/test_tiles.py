"""Tiles of the direct method: networks whose small boxes fill the lanes of vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from chonn_ops import Grid
from chonn_ops.network.direct import Factor, cpu
from chonn_ops.network.direct.cpu import kernel
from chonn_ops.network.direct.plan import make_plan
from chonn_ops.network.direct.tiles import TiledPlan, make_tiled_plan

GRIDS = [
    ((13, 17), (False, True)),
    ((33, 20), (False, False)),
    ((40, 37), (True, True)),
    ((1, 50, 31), (False, False, True)),
    ((400,), (False,)),
    ((357,), (True,)),
    ((9, 130), (False, True)),
]


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    """Single networks fill the vectors."""
    monkeypatch.setattr(cpu, "_worth_lanes", lambda _: math.inf)


ISAS = cpu.available_isas()


@pytest.fixture(
    params=[pytest.param(x, marks=() if x == ISAS[-1] else pytest.mark.thorough) for x in ISAS]
)
def isa(request, monkeypatch):
    monkeypatch.setenv("CHONN_NETWORK_ISA", request.param)
    return request.param


def random_network(B, grid, C, *, seed=0, dtype=torch.float64):
    """Conductances of 1e-3 to 1e3, a tenth of them 0, and a leak at every third node or so."""
    generator = torch.Generator().manual_seed(seed)

    def rand():
        return torch.rand(B, *grid, C, dtype=torch.float64, generator=generator)

    g = [10 ** (6 * rand() - 3) * (rand() > 0.1) for _ in grid]
    return [x.to(dtype) for x in g], (rand() * (rand() < 0.3)).to(dtype) + 1e-6


def truth(g, leak, periodic):
    return Factor(g, leak, Grid(leak.shape[1:-1], periodic), dtype=torch.float64, backend="torch")


def near(actual, expected, tolerance):
    error = (actual.double() - expected).abs().amax() / expected.abs().amax()
    return bool(error <= tolerance)


@pytest.mark.parametrize(("grid", "periodic"), [*GRIDS, ((64, 64), (False, False))])
@pytest.mark.parametrize("count", [2, 8, 16])
def test_every_node_and_every_edge_is_in_one_tile_or_region(grid, periodic, count):
    plan, there = (
        make_plan(Grid(grid, periodic), 4),
        make_tiled_plan(Grid(grid, periodic), 4, count),
    )
    assert isinstance(there, TiledPlan)
    tiles = there.tiles
    assert len(tiles.region) >= count
    inside = tiles.plan.nodes - int(tiles.plan.width[-1])
    above = [np.arange(f, f + n) for f, n in zip(there.first, there.pivots, strict=True)]
    positions = np.concatenate([*above, tiles.position[:, :inside].ravel()])
    assert sorted(positions[positions >= 0]) == list(range(math.prod(grid)))
    edges = np.concatenate([there.edge, tiles.edge.ravel()])
    assert sorted(edges[edges >= 0]) == sorted(plan.edge)


def test_volumes_and_small_grids_have_no_tiles():
    for grid in ((12, 12, 12), (3, 4)):
        assert not isinstance(make_tiled_plan(Grid(grid), 8, 16), TiledPlan)


@pytest.mark.skipif(kernel() is None, reason="no compiled kernel")
class TestNetworks:
    @pytest.mark.parametrize(("grid", "periodic"), GRIDS)
    @pytest.mark.parametrize(
        ("dtype", "tolerance"),
        [(torch.float32, 2e-5), pytest.param(torch.float64, 1e-11, marks=pytest.mark.thorough)],
    )
    def test_potentials_drops_and_inverse(self, isa, grid, periodic, dtype, tolerance):  # noqa: ARG002
        g, leak = random_network(2, grid, 2, dtype=dtype)
        factor, expected = (
            Factor(g, leak, Grid(leak.shape[1:-1], periodic), dtype=dtype),
            truth(g, leak, periodic),
        )
        assert factor.factors._arguments.groups > 0
        for sources in (1, 2, 3, 20):
            source = torch.rand(2, sources, *grid, 2, dtype=dtype)
            wide = expected.solve_all(source.double(), drops=True)
            found = factor.solve_all(source, drops=True)
            assert near(found.potential, wide.potential, tolerance)
            assert near(factor.solve(source), wide.potential, tolerance)
            for drop, other in zip(found.drops, wide.drops, strict=True):
                assert (drop - other).abs().max() <= tolerance * wide.potential.abs().max()
        assert torch.allclose(factor.logdet(), expected.logdet(), rtol=tolerance)
        noise = torch.randn(2, *grid, 2, dtype=dtype)
        assert factor.sample(noise).isfinite().all()
        diagonal, entries = factor.inverse_entries()
        diagonal_of, entries_of = expected.inverse_entries()
        assert near(diagonal, diagonal_of, tolerance)
        for entry, other in zip(entries, entries_of, strict=True):
            assert (entry - other).abs().max() <= tolerance * diagonal_of.abs().max()

    def test_samples_have_the_covariance_of_the_inverse(self):
        """All columns of the factor: white noise of one node each."""
        grid = (9, 10)
        g, leak = random_network(1, grid, 1)
        factor = Factor(g, leak, Grid(leak.shape[1:-1]))
        noise = torch.eye(90, dtype=torch.float64).reshape(1, 90, *grid, 1)
        columns = factor.sample(noise).reshape(90, 90)
        inverse = factor.solve(noise).reshape(90, 90)
        assert near(columns.T @ columns, inverse, 1e-11)

    @pytest.mark.parametrize("threads", [1, 2, 3])
    def test_threads_share_tiles(self, threads, monkeypatch):
        """And the substitution that follows the elimination."""
        grid = (90, 75)
        g, leak = random_network(1, grid, 1, dtype=torch.float32)
        expected = truth(g, leak, (False, False))
        source = torch.rand(1, 3, *grid, 1)
        # MKL's inverses go wrong in processes that once had more threads than cores.
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        for s in (source, source[:, :1]):
            factor = Factor(g, leak, Grid(leak.shape[1:-1]), source=s, drops=True)
            assert factor.factors._arguments.threads == threads
            wide = expected.solve_all(s.double(), drops=True)
            for found in (factor.solution, factor.solve_all(s, drops=True)):
                assert near(found.potential, wide.potential, 2e-5)
                for drop, other in zip(found.drops, wide.drops, strict=True):
                    assert (drop - other).abs().max() <= 2e-5 * wide.potential.abs().max()
            again = Factor(g, leak, Grid(leak.shape[1:-1]), source=s, drops=True).solution
            assert torch.equal(factor.solution.potential, again.potential)

    def test_drops_are_differences_along_the_axis(self):
        g, leak = random_network(1, (30, 26), 1)
        for backend in ("cpu", "torch"):
            factor = Factor(g, leak, Grid(leak.shape[1:-1], (False, True)), backend=backend)
            v, drops, _ = factor.solve_all(torch.rand(1, 30, 26, 1).double(), drops=True)
            assert torch.allclose(drops[0][:, :-1], v[:, :-1] - v[:, 1:], atol=1e-9)
            assert torch.allclose(drops[1], v - v.roll(-1, 2), atol=1e-9)

    @pytest.mark.parametrize("where", [(5, 9), (2, 30), (18, 24)])
    def test_a_part_without_leak_is_named_and_others_are_right(self, isa, where):  # noqa: ARG002
        """Within one tile, and across many."""
        low, high = where
        grid = (40, 40)
        g, leak = random_network(2, grid, 1)
        inside = torch.zeros(grid, dtype=torch.bool)
        inside[low:high, low:high] = True
        g = [x + 1e-3 for x in g]
        for axis, x in enumerate(g):
            x[1, inside != inside.roll(-1, axis)] = 0
        leak[1, inside] = 0
        source = torch.rand(2, *grid, 1, dtype=torch.float64)
        factor = Factor(g, leak, Grid(leak.shape[1:-1]))
        assert (factor.logdet() == -torch.inf).flatten().tolist() == [False, True]
        found = factor.solve_all(source, drops=True)
        leak[1, inside] = 1
        expected = truth(g, leak, (False, False)).solve(source)
        for batch, part in ((0, torch.ones_like(inside)), (1, ~inside)):
            assert near(found.potential[batch, part], expected[batch, part], 1e-9)
