"""Network cells, blocks and models on graphs: grids given as graphs, meshes, unions, refusals."""

import copy
import dataclasses
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from meshes import SQUARE, curved, grid_as_graph

from chonn_ops import (
    CKB,
    CHONNNetwork1d,
    CHONNNetwork2d,
    CHONNNetwork3d,
    CKBOptions,
    Dirichlet,
    FiniteVolumes,
    Network,
    NetworkCell,
    Robin,
    Scan,
    diffusion,
    read_circuits,
)
from chonn_ops.inspect.reading import read_fields
from chonn_ops.nn.geometry import NODES

try:
    from torch_geometric.data import Data
except ImportError:
    Data = SimpleNamespace

MODELS = {1: CHONNNetwork1d, 2: CHONNNetwork2d, 3: CHONNNetwork3d}
# All learned walls of a mesh are one.
WALLS = ("level", "distance", "film")
# The domain of 5 x 7 nodes where none is stated: square cells, and a mean length of 1.
UNSTATED = (5 / 6, 7 / 6)


def rand(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def model_of(axes=2, **options):
    """A model in float64 away from its start, as after a training, in a medium that conducts alike
    along all axes: on a mesh, walls have the mean of them."""
    torch.manual_seed(0)
    model = MODELS[axes](2, 3, width=6, **options).double()
    with torch.no_grad():
        for name, p in model.head.named_parameters():
            p.add_(0.2 * torch.randn(p.shape[-1:]) if name in WALLS else 0.1 * torch.randn_like(p))
        model.neighbours.even.add_(torch.randn_like(model.neighbours.even))
        if options.get("boundary") == "periodic":
            # Edges of a graph wrap around without a direction.
            model.head.faces.sides.weight.zero_()
        else:
            model.neighbours.odd.normal_()
        model.head.absorption.add_(4)  # without walls it alone holds the potentials
        model.head.conductivity.weight.copy_(model.head.conductivity.weight[:3].repeat(axes, 1))
    return model


@pytest.mark.parametrize("boundary", ["robin", "neumann", "dirichlet", "periodic"])
@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("grid", [(11,), (6, 9), (3, 4, 5)])
def test_a_grid_given_as_a_graph_is_the_grid(grid, nodes, boundary):
    lengths = (1.0, 1.5, 0.7)[: len(grid)]
    model = model_of(len(grid), nodes=nodes, boundary=boundary, lengths=lengths)
    volumes = grid_as_graph(grid, lengths, nodes, boundary == "periodic")
    x = rand(2, 2, *grid).requires_grad_()
    y = model(x)
    found = model(x.flatten(2).mT, volumes=volumes).mT.reshape(y.shape)
    torch.testing.assert_close(found, y, rtol=1e-9, atol=1e-9 * y.abs().max().item())
    weight = rand(*y.shape, seed=2)
    inputs = x, *model.trunk.parameters(), model.head.source.weight
    one, two = (torch.autograd.grad((out * weight).sum(), inputs) for out in (y, found))
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-8 * a.abs().max().item())


def test_a_mesh_under_autocast_is_the_grid():
    model, volumes = model_of(2).float(), grid_as_graph((5, 7), UNSTATED)
    x = rand(2, 2, 5, 7).float()
    with torch.autocast("cpu", torch.bfloat16):
        y, found = model(x), model(x.flatten(2).mT, volumes=volumes).mT.reshape(2, 3, 5, 7)
    torch.testing.assert_close(found, y, rtol=0, atol=0.005 * y.abs().max().item())


def test_walls_by_name_are_the_sides_of_a_grid():
    grid, steps = (5, 7), (0.5, 0.25)
    volumes = grid_as_graph(grid, (2.5, 1.75))
    k, f = rand(2, *grid, 3).exp(), rand(2, *grid, 3, seed=2)
    robin = Robin(0.3, 1.0)
    sides = ((Dirichlet(2.0), "neumann"), (robin, "matched"))
    plain = diffusion(k, steps, boundary=sides, absorption=0.2)
    words = {"low0": Dirichlet(2.0), "low1": robin, "high1": "matched"}  # "high0" is insulated
    named = volumes.circuit(k.flatten(1, 2), 0.2, words)
    torch.testing.assert_close(named.leak.reshape(k.shape), plain.leak, rtol=1e-13, atol=0)
    v = plain.solve(f)
    torch.testing.assert_close(named.solve(f.flatten(1, 2)).reshape(f.shape), v)
    through = named.currents(v.flatten(1, 2)).walls.reshape(f.shape)
    torch.testing.assert_close(through, plain.currents(v).walls)
    both = FiniteVolumes.union([volumes, volumes])
    twice = both.circuit(torch.cat([k.flatten(1, 2)] * 2, 1), 0.2, words)
    assert torch.equal(twice.leak, torch.cat([named.leak] * 2, 1))


def test_walls_of_a_model_by_name_are_those_by_axis():
    grid = (5, 7)
    volumes = grid_as_graph(grid, UNSTATED)
    x = rand(1, 2, *grid)
    walls = Dirichlet(1.0), "robin"
    model = model_of(2, boundary=(walls, "neumann"))
    named = model_of(2, boundary=dict(zip(("low0", "high0"), walls, strict=True)))
    named.load_state_dict(dict(model.state_dict()), strict=True)
    found = named(x.flatten(2).mT, volumes=volumes).mT.reshape(1, 3, *grid)
    torch.testing.assert_close(found, model(x), rtol=1e-9, atol=1e-9)
    # Options survive a file of JSON.
    options = CKBOptions(boundary={"low0": "robin", "high0": "neumann"})
    assert CKBOptions.from_mapping(json.loads(json.dumps(options.to_mapping()))) == options
    assert type(options.to_mapping()["boundary"]) is dict
    assert hash(options) == hash(copy.deepcopy(options))
    assert dataclasses.replace(options, order=2).boundary == options.boundary
    assert hash(options) == hash(CKBOptions(boundary={"high0": "neumann", "low0": "robin"}))


def test_facets_of_sets_are_walls_by_name():
    """The square's left side; a corner has a wall in the set and one in none."""
    volumes = FiniteVolumes.from_cells(*SQUARE, sets={"left": [0, 2]})
    walls = volumes.walls
    left = volumes.sets["left"]
    assert sorted(walls.node[left].tolist()) == [0, 2]
    assert walls.area[left].tolist() == [0.5, 0.5]
    assert walls.area.sum() == 4


@pytest.mark.parametrize("boundary", ["robin", "neumann", "dirichlet"])
def test_outputs_converge_when_the_mesh_is_refined(boundary):
    model, fields = model_of(boundary=boundary), []
    for n in (6, 12, 24, 48):
        points, cells = curved(n)
        x, y = torch.tensor(points).T
        inputs = torch.stack((1 + torch.sin(3 * x) * y, torch.cos(4 * y)), -1)[None]
        at = np.abs(points[:, None] - curved(6)[0]).sum(-1).argmin(0)
        with torch.no_grad():
            fields.append(model(inputs, volumes=FiniteVolumes.from_cells(points, cells))[:, at])
    changes = [((b - a).norm() / b.norm()).item() for a, b in itertools.pairwise(fields)]
    assert changes[0] < 0.1
    assert all(b < 0.6 * a for a, b in itertools.pairwise(changes)), changes


@pytest.mark.parametrize("boundary", ["robin", "neumann", "dirichlet"])
def test_weights_of_a_grid_mean_the_same_on_a_mesh(boundary):
    def inputs(x, y):
        return torch.stack((1 + torch.sin(3 * x) * y, torch.cos(4 * y)), -1)[None]

    model, off = model_of(boundary=boundary), []
    for n in (8, 16, 32):
        side = torch.arange(2 * n + 1).double() / (2 * n)
        points = torch.cartesian_prod(side, side)
        node = torch.arange(len(points)).reshape(2 * n + 1, -1)
        a, b, c, d = node[:-1, :-1], node[1:, :-1], node[:-1, 1:], node[1:, 1:]
        cells = torch.cat((torch.stack((a, b, c), -1), torch.stack((b, d, c), -1)))
        volumes = FiniteVolumes.from_cells(points, cells.reshape(-1, 3))
        centres = node[1::2, 1::2]
        with torch.no_grad():
            mesh = model(inputs(*points.T), volumes=volumes)[:, centres]
            grid = model(inputs(*points[centres].movedim(-1, 0)).movedim(-1, 1)).movedim(1, -1)
        off.append(((mesh - grid).norm() / grid.norm()).item())
    assert off[0] < 0.1
    # What neighbours add to features falls with the spacing, in its first order.
    assert all(b < 0.55 * a for a, b in itertools.pairwise(off)), off


def test_numbering_of_nodes_and_direction_of_edges_do_not_matter():
    points, cells = curved(6)
    volumes = FiniteVolumes.from_cells(points, cells)
    n = volumes.num_nodes
    new = np.random.default_rng(0).permutation(n)  # of each node
    old = np.argsort(new)
    edges = new[volumes.graph.ends.numpy()].T[::-1, ::-1].copy()
    walls = new[volumes.walls.node], *volumes.walls[1:]
    arguments = (volumes.weight.flip(0), volumes.volume[old], points[old], walls)
    turned = FiniteVolumes(edges, *arguments)
    renumbered = FiniteVolumes.from_cells(points[old], new[cells])
    model, x = model_of(), rand(2, n, 2)
    y = model(x, volumes=volumes)[:, old]
    for other in (turned, renumbered):
        torch.testing.assert_close(model(x[:, old], volumes=other), y, rtol=1e-9, atol=1e-10)


def test_a_union_of_domains_is_each_alone():
    model = model_of()
    domains = [FiniteVolumes.from_cells(*mesh) for mesh in (curved(6), SQUARE)]
    domains.append(grid_as_graph((5, 8), (1.0, 1.0)))
    x = [rand(1, domain.num_nodes, 2, seed=i) for i, domain in enumerate(domains)]
    y = model(torch.cat(x, 1), volumes=FiniteVolumes.union(domains))
    alone = [model(x, volumes=domain) for x, domain in zip(x, domains, strict=True)]
    torch.testing.assert_close(y, torch.cat(alone, 1), rtol=1e-9, atol=1e-10)


def test_volumes_of_lines_triangles_and_tetrahedra():
    line = FiniteVolumes.from_cells([[0.0], [0.25], [1.0]], [[0, 1], [2, 1]])
    assert line.weight.tolist() == [4.0, 1 / 0.75]
    assert line.volume.tolist() == [0.125, 0.5, 0.375]
    assert line.walls.node.tolist() == [0, 2]
    assert line.walls.area.tolist() == [1.0, 1.0]
    # The edges of a cube without its diagonals: six tetrahedra around one of them.
    corners = np.array(list(itertools.product((0, 1), repeat=3)))
    paths = [np.cumsum([0, *steps]) for steps in itertools.permutations((4, 2, 1))]
    cube = FiniteVolumes.from_cells(corners, np.array(paths))
    assert cube.graph.num_edges == 12
    assert cube.volume.sum().item() == pytest.approx(1)
    assert cube.walls.area.sum().item() == pytest.approx(6)
    assert CHONNNetwork3d(1, 1)(torch.randn(2, 8, 1), volumes=cube).shape == (2, 8, 1)


def test_right_angles_of_rounded_coordinates_leave_an_edge_out():
    points = (torch.tensor(SQUARE[0]) + 0.1) / 300  # in float32
    assert FiniteVolumes.from_cells(points, SQUARE[1]).graph.num_edges == 4


def test_a_mesh_of_a_linear_potential_carries_its_flux():
    """Weights, volumes and walls are those of the Laplacian: sums over edges are integrals."""
    volumes = FiniteVolumes.from_cells(*curved(8))
    p, q = volumes.graph.ends
    x = volumes.positions
    energy = torch.einsum("e,ei,ej->ij", volumes.weight, x[p] - x[q], x[p] - x[q])
    torch.testing.assert_close(energy, volumes.volume.sum() * torch.eye(2).double())


def test_meshes_of_meshio_and_of_pytorch_geometric():
    points, cells = curved(6)
    plain = FiniteVolumes.from_cells(points, cells)
    flat = np.c_[points, np.full(len(points), 2.0)]
    kinds = {"line": np.array([[0, 1]]), "triangle": cells}
    meshio = SimpleNamespace(points=flat.astype(">f8"), cells_dict=kinds)
    pos = torch.tensor(points)
    both = torch.cat((plain.graph.ends, plain.graph.ends.flip(0)), 1)
    both = both[:, torch.randperm(both.shape[1], generator=torch.Generator().manual_seed(0))]
    faces = Data(pos=pos, face=torch.tensor(cells.T), edge_index=None)
    for mesh in (meshio, faces, Data(pos=pos, edge_index=both)):
        found = FiniteVolumes.from_mesh(mesh)
        assert found.graph == plain.graph
        for name in ("weight", "volume"):
            torch.testing.assert_close(getattr(found, name), getattr(plain, name))
        torch.testing.assert_close(found.walls, plain.walls)
    # A node inside of a triangle, which is then no cell, between three others.
    turns = torch.arange(6) * math.pi / 3
    rim = torch.stack((turns.cos(), turns.sin()), 1) * torch.tensor([[0.1], [0.5]]).repeat(3, 1)
    ends = [0, 2, 4, 0, 1, 2, 3, 4, 5, 6, 6, 6], [2, 4, 0, 1, 2, 3, 4, 5, 0, 0, 2, 4]
    edges = torch.tensor(ends)
    mesh = SimpleNamespace(pos=torch.cat((rim, torch.zeros(1, 2))), edge_index=edges)
    star = 3 * 0.1 * 0.5 * math.sin(math.pi / 3)
    assert FiniteVolumes.from_mesh(mesh).volume.sum().item() == pytest.approx(star)


def test_a_batch_of_pytorch_geometric_is_a_union():
    points, cells = curved(6)
    count = len(points)
    pos = torch.tensor(np.concatenate([points, points]))
    faces = torch.tensor(np.concatenate([cells, cells + count]).T)
    parts = torch.arange(2).repeat_interleave(count)
    batch = FiniteVolumes.from_mesh(Data(pos=pos, face=faces, batch=parts))
    both = np.append(SQUARE[1], [[4, 5, 6], [5, 6, 7]], 0)  # two that overlap
    places = [*SQUARE[0], (0, 0), (0.5, 0), (0, 0.5), (1, 1)]
    mesh = Data(pos=places, face=both.T, batch=[0] * 4 + [1] * 4)
    assert FiniteVolumes.from_mesh(mesh).num_nodes == 8
    union = FiniteVolumes.union([FiniteVolumes.from_cells(points, cells)] * 2)
    model, x = model_of(), rand(1, 2 * count, 2)
    torch.testing.assert_close(model(x, volumes=batch), model(x, volumes=union))


def test_a_file_of_meshio(tmp_path):
    meshio = pytest.importorskip("meshio")
    points, cells = curved(6)
    flat = np.c_[points, np.zeros(len(points))]
    sides = {"low": np.flatnonzero(points[:, 1] < 0.3)}
    mesh = meshio.Mesh(flat, [("line", cells[:2, :2]), ("triangle", cells)], point_sets=sides)
    mesh.write(tmp_path / "mesh.xdmf")
    mesh.write(tmp_path / "mesh.vtk")
    plain = FiniteVolumes.from_cells(points, cells, sets=sides)
    for name in ("mesh.xdmf", "mesh.vtk"):
        found = FiniteVolumes.from_mesh(meshio.read(tmp_path / name), sets=sides)
        assert found.graph == plain.graph
        torch.testing.assert_close(found.weight, plain.weight)
        torch.testing.assert_close(found.walls, plain.walls)
        assert torch.equal(found.sets["low"], plain.sets["low"])


def test_circuits_are_read_on_a_graph_as_on_the_grid():
    torch.manual_seed(0)
    cell = NetworkCell(4, 2, Network(3, tol=1e-13)).double()
    u = rand(2, 5, 7, 4)
    (grid,) = read_circuits(cell, u)["networks"]
    volumes = grid_as_graph((5, 7), UNSTATED)
    (graph,) = read_circuits(cell, u.flatten(1, 2), volumes=volumes)["networks"]
    assert graph["grid"] == [35]
    assert graph["effective_rank"] == pytest.approx(grid["effective_rank"])
    for one, other in zip(graph["networks"], grid["networks"], strict=True):
        for name in ("potential", "dissipated_power", "leak_share"):
            assert one[name] == pytest.approx(other[name], rel=1e-8)


def test_a_block_on_a_graph_is_the_block_on_the_grid():
    torch.manual_seed(0)
    block = CKB(6, 2, cell=Network(4, tol=1e-13), order=2, norm="layer").double()
    x = rand(2, 6, 5, 7)
    y = block(x.flatten(2).mT, volumes=grid_as_graph((5, 7), UNSTATED))
    torch.testing.assert_close(y.mT.reshape(x.shape), block(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("whole", [True, False])
def test_compiles_with_gradients(whole):
    """Not as one graph, too, where compilers trace backward passes in another mode."""
    torch.compiler.reset()
    volumes = FiniteVolumes.from_cells(*curved(6))
    model, x = CHONNNetwork2d(1, 1).eval(), torch.rand(2, volumes.num_nodes, 1)
    expected = model(x, volumes=volumes)
    compiled = torch.compile(model, fullgraph=whole, backend="aot_eager")
    found = compiled(x, volumes=volumes)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(v.sum(), [*model.parameters()]) for v in (found, expected)]
    torch.testing.assert_close(*gradients)


GOOD = [[(0, 1)], [1.0], [1.0, 2.0], [[0.0], [1.0]], ([0, 1], [1.0, 1.0], [0.0, 0.0])]
VOLUMES, X = FiniteVolumes.from_cells(*SQUARE), torch.zeros(1, 4, 2)
OBTUSE = FiniteVolumes.from_cells([[0, 0], [1, 0], [0.5, 0.1], [0.5, -0.1]], [[0, 1, 2], [0, 1, 3]])
MESH = FiniteVolumes.from_mesh
ENDS = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])


def cells(points, cells, sets=None):
    return lambda: FiniteVolumes.from_cells(points, cells, sets=sets)


def numbers(at, wrong, **options):
    return lambda: FiniteVolumes(*[*GOOD[:at], wrong, *GOOD[at + 1 :]], **options)


def walls(given):
    return numbers(4, GOOD[4], sets={"a": given})


def on_square(build, x=X, **options):
    return lambda: build()(x, **{"volumes": VOLUMES, **options})


def cell(boundary):
    return lambda: NetworkCell(2, 2, boundary=boundary)


NO_WORDS = ([("robin", "neumann"), ("neumann", "robin")], (("low0", "robin"),), {}, {0: "robin"})
REFUSED = [
    (cells(SQUARE[0], [[0, 1, 2]]), "points 0 to 3, each in a cell, got point 3"),
    (cells(SQUARE[0], [[0, 1, 2], [1, 2, 4]]), "points 0 to 3, each in a cell, got point 3"),
    (cells(SQUARE[0], [[0.0, 1.0, 2.0]]), "integers"),
    (cells(SQUARE[0], [[0, 1, 2, 3, 0]]), r"\(T, 4\)"),
    (cells([[0, 0], [1, 0], [2, 0], [1, 1]], [[0, 1, 2], [0, 1, 3]]), "no flat cell, got cell 0"),
    (
        on_square(MODELS[2], volumes=OBTUSE),
        r"volumes: expected volumes with faces, .* got the weight -2\.4 of edge \(0, 1\)",
    ),
    (cells([*SQUARE[0], [2, 2]], [*SQUARE[1], [1, 2, 4]]), r"two cells, got .* \(1, 2\)"),
    (cells([[0, 0, 0], [1, 0, 0], [0, 1, 1]], [[0, 1, 2]]), "2 coordinates"),
    (cells([[0, 0], [1, 0], [0, math.nan]], [[0, 1, 2]]), "finite"),
    (cells(*SQUARE, {"a": [0, 2], "b": [0, 1, 2, 3]}), "sets: expected each facet in one set"),
    (cells(*SQUARE, {"a": [(0, 1)], "b": [(1, 0)]}), r"sets: .* got others for \(0, 1\)"),
    (cells(*SQUARE, {"a": [0, 1, 2], "b": [(0, 2)]}), r"sets: .* got others for \(0, 2\)"),
    (cells(*SQUARE, {"a": [0]}), r"sets\['a'\]: expected all nodes of a facet at least, got \[0\]"),
    (numbers(0, [(0, 2)]), "edges: expected nodes from 0 to 1"),
    (numbers(1, [-1.0]), r"weight: expected finite numbers >= 0, got -1.0 at \(0,\)"),
    (numbers(1, [1.0, 2.0]), r"weight: expected shape \(1,\)"),
    (numbers(2, [1.0, 0.0]), r"volume: expected finite numbers > 0, got 0.0 at \(1,\)"),
    (numbers(3, [[0.0] * 4] * 2), "positions: expected 1 to 3 coordinates, got 4"),
    (numbers(4, ([2], [1.0], [0.0])), "walls: expected nodes from 0 to 1"),
    (numbers(4, ([1], [0.0], [0.0])), r"walls.area: expected finite numbers > 0"),
    (numbers(4, GOOD[4], domain=[0]), r"domain: expected shape \(2,\)"),
    (walls([-1]), "walls from 0 to 1, got -1"),
    (walls([2]), r"sets\['a'\]: expected walls from 0 to 1, got 2"),
    *((walls([x]), r"sets\['a'\]: expected integers") for x in (0.0, True)),
    (walls([[0]]), r"sets\['a'\]: expected indices of 2 walls"),
    (walls(None), r"sets\['a'\]: expected numbers, as an array or a Tensor, got None"),
    (lambda: FiniteVolumes.union([FiniteVolumes(*GOOD), VOLUMES]), "one or more of one dimension"),
    (lambda: MESH(SimpleNamespace(pos=0)), "mesh: expected"),
    (lambda: MESH(SimpleNamespace(points=0, cells_dict={"quad": 0})), "mesh: expected"),
    (lambda: MESH(SimpleNamespace(pos=SQUARE[0], edge_index=ENDS)), r"edge \(0, 1\) of none"),
    (lambda: MESH(SimpleNamespace(pos=SQUARE[0], edge_index=ENDS + 1)), "nodes from 0 to 3"),
    (on_square(MODELS[2], X.mT), r"shape \(B, 4, 1\), got \(1, 2, 4\)"),
    (on_square(lambda: CHONNNetwork2d(2), mask=X[0, :, 0] == 0), "expected None with volumes"),
    (on_square(lambda: CHONNNetwork3d(2, 1)), "positions of 3 coordinates, got 2"),
    (on_square(cell("periodic")), "boundary: expected no 'periodic' where there are walls"),
    (on_square(cell(("robin", "neumann"))), "boundary: expected one word on a graph"),
    (
        on_square(cell({"left": "robin"})),
        r"boundary: expected names of \('boundary',\), got 'left'",
    ),
    (
        lambda: cell({"boundary": "robin"})()(X[None]),
        "boundary: expected words for the axes of a grid",
    ),
    (cell({"left": "open"}), r"boundary: expected names .*, got \{'left': 'open'\}"),
    # Pairs of words are for the faces of axes elsewhere, so they are never names.
    *((cell(x), "boundary: expected") for x in (*NO_WORDS, {"low0": Robin(1.0)})),
    *((lambda x=x: CKBOptions(boundary=x), "boundary: expected") for x in NO_WORDS),
    (on_square(lambda: CKB(2, 2, norm="group")), "norm: expected 'none' or 'layer' on a graph"),
    (on_square(lambda: CKB(2, cell=Scan())), "volumes: expected None with cell='scan'"),
    (lambda: read_fields(CHONNNetwork2d(2), X, volumes=VOLUMES), "drawn on grids only"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_unfit_meshes_and_calls_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_volumes_are_no_graph_and_sets_are_numbers_of_any_kind():
    with pytest.raises(TypeError, match="volumes: expected FiniteVolumes, got Graph"):
        CHONNNetwork2d(2)(X, volumes=VOLUMES.graph)
    for given in ([1, 1], np.array([1], "u1"), np.array([1], ">i4"), [False, True], range(1, 2)):
        assert walls(given)().sets["a"].tolist() == [1]
