"""Plans of the elimination: what they must be for any grid, whatever order they choose."""

import itertools
import math

import numpy as np
import pytest
from rows import thorough

from chonn_ops import Grid
from chonn_ops.network import layout as layouts
from chonn_ops.network.direct.plan import Dissection, make_plan, plan_of_dissection
from chonn_ops.network.direct.tiles import TiledPlan, make_tiled_plan

# Single networks are cut into tiles, whose small boxes fill the vectors.
LARGE = [
    ((33, 20), (False, False)),
    ((40, 37), (True, True)),
    ((1, 50, 31), (False, False, True)),
    ((400,), (False,)),
    ((357,), (True,)),
    ((9, 130), (False, True)),
]

GRIDS = [grid for axes in (1, 2) for grid in itertools.product((1, 2, 3, 5, 8), repeat=axes)]
GRIDS += [(2, 3, 4), (5, 1, 6), (13, 29)]
LONG = (7, 7, 7), (64, 64), (100, 37), (201,)
GRIDS += [thorough(x) for x in LONG]


def fronts_of(plan):
    """The positions of each region's front."""
    regions = zip(plan.first, plan.pivots, itertools.pairwise(plan.boundary_at), strict=True)
    return [[*range(a, a + n), *plan.boundary[slice(*ends)]] for a, n, ends in regions]


def check(plan, grid, edges):
    """`edges`: (axis * nodes + node, node, next node) of each."""
    nodes = math.prod(grid)
    assert sorted(plan.node) == list(range(nodes))
    assert plan.first.tolist() == [0, *np.cumsum(plan.pivots)[:-1]]
    assert plan.pivots.sum() == nodes
    fronts = fronts_of(plan)
    assert all(front == sorted(set(front)) for front in fronts)  # by position, each node once
    kids = [[] for _ in fronts]
    for region, parent in enumerate(plan.parent):
        if parent < 0:
            assert len(fronts[region]) == plan.pivots[region]
            continue
        assert region < parent
        kids[parent].append(region)
        begin, end = plan.boundary_at[region : region + 2]
        # The front of the parent has a place for each entry of the update.
        updated = [fronts[parent][place] for place in plan.place[begin:end]]
        assert updated == plan.boundary[begin:end].tolist()
    assert [[kid for kid in two if kid >= 0] for two in plan.kids] == kids
    begin, waiting, most = {}, 0, 0  # post-order: subtrees are ranges
    for region, children in enumerate(kids):
        begin[region] = region
        for kid in reversed(children):
            assert kid == begin[region] - 1
            begin[region] = begin[kid]
        waiting += plan.update[region] - sum(plan.update[kid] for kid in children)
        most = max(most, waiting)
    assert plan.stack == most
    for count in (1, 2, 5):
        subtrees = plan.subtrees(count)
        assert all(begin[end - 1] == start for start, end in subtrees)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(subtrees))
    found = []
    for region, front in enumerate(fronts):
        for e in range(plan.edge_at[region], plan.edge_at[region + 1]):
            ends = [front[plan.row[e]], front[plan.column[e]]]
            found.append((plan.edge[e], *plan.node[ends]))
            assert min(plan.row[e], plan.column[e]) < plan.pivots[region]  # at its first end
    assert sorted(found) == sorted(edges)
    first_ends = plan.position[np.array(found, int).reshape(-1, 3)[:, 1:]].min(1)
    assert (np.diff(first_ends) >= 0).all()


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("leaf", [1, 8, 16])
def test_every_node_edge_and_update_has_its_place(grid, leaf):
    for periodic in itertools.product((False, True), repeat=len(grid)):
        number = np.arange(math.prod(grid)).reshape(grid)
        edges = []
        for axis, n in enumerate(grid):
            ends = number, np.roll(number, -1, axis)
            if n > 1:
                a, b = (x.take(range(n if periodic[axis] else n - 1), axis).ravel() for x in ends)
                edges += zip(axis * number.size + a, a, b, strict=True)
        check(make_plan(Grid(grid, periodic), leaf), grid, edges)


def test_a_graph_needs_a_dissection_and_edges_only():
    """A wheel: six spokes, a rim, and a node that is alone."""
    rim = np.arange(6)
    ends = np.stack([np.append(rim, rim), np.append(np.roll(rim, -1), np.full(6, 6))])
    # The hub and two nodes of the rim separate what is left.
    tree = Dissection(np.array([1, 2, 4, 5, 0, 3, 6, 7]), np.array([2, 2, 4]), np.array([2, 2, -1]))
    plan = plan_of_dissection(tree, np.arange(12), ends, layout=Grid((8,)))
    check(plan, (8,), list(zip(range(12), *ends, strict=True)))
    assert plan.width.tolist() == [3, 3, 0]
    with pytest.raises(ValueError, match="no edge between separate subtrees"):
        plan_of_dissection(tree, np.arange(13), np.c_[ends, [1, 4]], layout=Grid((8,)))


def test_a_plan_beyond_all_bytes_is_made_once_for_what_is_made_of_it(monkeypatch):
    class Result:
        nbytes = 8

    monkeypatch.setattr(layouts, "KEPT_BYTES", 1)
    made = []

    @layouts.kept
    def plan(n):
        made.append(n)
        return Result()

    @layouts.kept
    def read(plan):
        return Result() if plan else None

    for n in (3, 3, 4, 4, 3):
        read(plan(n))
    assert made == [3, 4, 3]
    assert len(layouts._kept) == 2


def test_plans_that_are_kept_are_bounded_by_their_bytes(monkeypatch):
    monkeypatch.setattr(layouts, "KEPT_BYTES", 2**20)
    first = make_plan(Grid((61, 62)))
    assert make_plan(Grid((61, 62))) is first
    for n in range(30, 60):
        last = make_tiled_plan(Grid((n, 61)), 16, 8)
        assert make_tiled_plan(Grid((n, 61)), 16, 8) is last
        assert layouts.nbytes_kept() <= 2**20
    assert make_plan(Grid((61, 62))) is not first
    large = make_plan(Grid((150, 150)))
    assert large.nbytes > 2**20
    assert make_plan(Grid((150, 150))) is large  # the last one, whatever it takes


@pytest.mark.parametrize(
    ("grid", "periodic"), [((13, 17), (False, True)), *LARGE, ((64, 64), (False, False))]
)
@pytest.mark.parametrize("count", [2, 8, 16])
def test_every_node_and_every_edge_is_in_one_tile_or_region(grid, periodic, count):
    layout = Grid(grid, periodic)
    plan, there = make_plan(layout, 4), make_tiled_plan(layout, 4, count)
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
