"""`Mesh`: circuits on triangles and tetrahedra, against linear elements and exact solutions."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from manufactured import manufactured, tensor, wall
from meshes import SQUARE, linear_elements, rings
from network_cases import assert_near, matrix_of, uniform

from chonn_ops import Dirichlet, FiniteVolumes, Mesh, Neumann, Robin, raster

pytest.importorskip("scipy")
from scipy.spatial import Delaunay

DOUBLE = torch.float64


def disc(count):
    points = rings(count)
    return points, delaunay(points)


def delaunay(points):
    """Cells without the flat ones that qhull leaves at straight boundaries."""
    cells = Delaunay(points).simplices
    sides = points[cells[:, 1:]] - points[cells[:, :1]]
    size = np.abs(np.linalg.det(sides))
    return cells[size > 1e-6 * np.median(size)]


def box(n, d=2, jitter=0.3):
    """The unit square or cube, its sides divided evenly, points moved inside."""
    axes = np.meshgrid(*[np.linspace(0, 1, n + 1)] * d, indexing="ij")
    points = np.stack(axes, -1).reshape(-1, d)
    inside = ((points > 1e-9) & (points < 1 - 1e-9)).all(1)
    moved = np.random.default_rng(0).uniform(-jitter, jitter, points.shape) / n
    points[inside] += moved[inside]
    return points, delaunay(points)


def cube(n):
    """Six tetrahedra a cube, around its diagonal."""
    number = np.arange((n + 1) ** 3).reshape(n + 1, n + 1, n + 1)
    points = np.stack(np.unravel_index(number.ravel(), number.shape), 1) / n
    cells = []
    for order in itertools.permutations(range(3)):
        at, corners = [0, 0, 0], []
        for axis in (None, *order):
            if axis is not None:
                at[axis] = 1
            window = tuple(slice(a, n + a) for a in at)
            corners.append(number[window].ravel())
        cells.append(np.stack(corners, 1))
    return points, np.concatenate(cells)


def sides(points):
    """Sets of the low and the high side of each axis."""
    ends = itertools.product(range(points.shape[1]), (0, 1))
    return {f"{'xyz'[axis]}{end}": np.abs(points[:, axis] - end) < 1e-9 for axis, end in ends}


def field(values):
    return torch.as_tensor(values, dtype=DOUBLE).reshape(1, -1, 1)


def test_acute_triangles_are_linear_elements_at_any_contrast():
    points, cells = disc(6)
    k = 10 ** (12 * uniform(len(cells)) - 6)
    circuit = Mesh(points, cells).diffusion(field(k))
    expected, _ = linear_elements(points, cells, k.numpy())
    np.testing.assert_allclose(matrix_of(circuit), expected, rtol=1e-9, atol=1e-9 * k.max().item())


def test_one_conductivity_on_a_delaunay_mesh_is_linear_elements():
    """Also where single triangles are obtuse."""
    points, cells = box(12)
    circuit = Mesh(points, cells).diffusion(torch.full((1, len(cells), 1), 3.0, dtype=DOUBLE))
    expected, _ = linear_elements(points, cells, np.full(len(cells), 3.0))
    off_diagonal = expected - np.diag(np.diag(expected))
    assert off_diagonal.max() < 1e-12
    angles = [linear_elements(points[cell], [[0, 1, 2]], [1.0])[0] for cell in cells]
    assert max(part[0, 1] for part in angles) > 0.1
    np.testing.assert_allclose(matrix_of(circuit), expected, atol=1e-12)


@pytest.mark.parametrize("mesh", [box(10), box(4, 3)], ids=["triangles", "tetrahedra"])
def test_no_conductivity_makes_a_negative_conductance(mesh):
    points, cells = mesh
    k = torch.where(uniform(1, len(cells), 1) < 0.5, 1e-9, 1e9).to(DOUBLE)
    circuit = Mesh(points, cells, sides(points)).diffusion(k, boundary={"x0": "dirichlet"})
    assert all(x.min() >= 0 for x in (*circuit.conductance, circuit.leak))
    v = circuit.solve(torch.ones(1, len(points), 1, dtype=DOUBLE))
    assert torch.isfinite(v).all()


def test_cubes_of_tetrahedra_are_the_grid():
    points, cells = cube(4)
    mesh = Mesh(points, cells)
    assert mesh.graph.num_edges == 3 * 4 * 25
    length = (points[mesh.graph.ends[0]] - points[mesh.graph.ends[1]]).astype(bool).sum(1)
    assert (length == 1).all()
    inside = ((points > 0) & (points < 1)).all(1)
    np.testing.assert_allclose(mesh.volume.numpy()[inside], 4**-3, rtol=1e-12)
    assert float(mesh.volume.sum()) == pytest.approx(1)


SCATTERED = [box(7, jitter=0.9), box(4, 3, jitter=0.9)]


@pytest.mark.parametrize("mesh", [box(7), box(4, 3), *SCATTERED], ids=len)
@pytest.mark.parametrize("condition", ["dirichlet", "neumann", "robin", "distant"])
def test_linear_potentials_are_exact(mesh, condition):
    points, cells = mesh
    d = points.shape[1]
    slope, k = np.array([1.0, -2.0, 0.5])[:d], 1.7
    u = torch.from_numpy(points @ slope)[:, None]
    found = Mesh(points, cells, sides(points))
    boundary = {"x0": Dirichlet(u)}
    for name in sides(points):
        outward = k * slope["xyz".index(name[0])] * (2 * int(name[1]) - 1)
        if name != "x0":
            boundary[name] = {
                "dirichlet": Dirichlet(u),
                "neumann": Neumann(outward),
                "robin": Robin(2.5, u + outward / 2.5),
                "distant": Dirichlet(u + 0.3 * outward / k, distance=0.3),
            }[condition]
    circuit = found.diffusion(torch.full((1, len(cells), 1), k, dtype=DOUBLE), boundary=boundary)
    v = circuit.solve(torch.zeros(1, len(points), 1, dtype=DOUBLE))
    torch.testing.assert_close(v[0], u, rtol=0, atol=1e-12)
    along = torch.from_numpy(slope).expand(1, len(cells), 1, d)
    torch.testing.assert_close(found.gradient(v), along, rtol=0, atol=1e-11)
    # What comes in through walls leaves through walls.
    assert circuit.currents(v).walls.sum().abs() < 1e-12


@pytest.mark.parametrize("mesh", SCATTERED, ids=["triangles", "tetrahedra"])
@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
def test_every_mesh_has_linear_elements(mesh, dtype):
    """For numbers and tensors, in the plane, in space and on a surface; with gradients."""
    points, cells = mesh
    d, found = points.shape[1], Mesh(points, cells)
    assert found.elements
    assert (found.weight < 0).any()
    k = (10 ** (4 * uniform(1, len(cells), 1) - 2)).to(dtype).requires_grad_()
    root = uniform(1, len(cells), 1, d, d, seed=1) - 0.5
    full = (root @ root.mT).to(dtype)
    for medium in (k, full):
        circuit = found.diffusion(medium)
        expected, volume = linear_elements(points, cells, medium[0, :, 0].detach().double().numpy())
        np.testing.assert_allclose(matrix_of(circuit), expected, atol=1e-12 * expected.max())
        np.testing.assert_allclose(found.volume, volume, rtol=1e-12)
    if d == 2:
        turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0][:2]
        surface, turned = Mesh(points @ turn, cells), torch.from_numpy(turn)
        lifted = surface.diffusion(turned.mT @ full.double() @ turned)
        np.testing.assert_allclose(matrix_of(lifted), expected, atol=1e-12 * expected.max())
    tolerance = 1e-10 if dtype == DOUBLE else 1e-6
    circuit = found.diffusion(k, boundary="dirichlet")
    s = circuit.source((uniform(1, len(points), 1) - 0.5).to(dtype))
    circuit.volume, free = 1.0, ~circuit.held[0, :, 0]
    v, x = circuit.solve(s), torch.zeros(1, len(points), 1, dtype=DOUBLE)
    a = torch.from_numpy(linear_elements(points, cells, k[0, :, 0].detach().double().numpy())[0])
    x[:, free] = torch.linalg.solve(a[free][:, free], s[:, free].double())
    assert_near(v, x, tolerance)
    (gradient,) = torch.autograd.grad((s * v).sum(), k)
    size = torch.from_numpy(np.abs(np.linalg.det(points[cells[:, 1:]] - points[cells[:, :1]])))
    steep = found.gradient(x).square().sum(-1)
    assert_near(gradient, -steep * size[:, None] / math.factorial(d), tolerance)
    nodes = uniform(1, len(points), 1).to(dtype)
    circuit = FiniteVolumes.from_cells(points, cells).circuit(nodes)
    harmonic = 1 / (1 / nodes[0, :, 0].double())[cells].mean(1)
    expected, _ = linear_elements(points, cells, harmonic.numpy())
    np.testing.assert_allclose(matrix_of(circuit), expected, atol=1e-12 * expected.max())


def exact(x, y):
    return torch.exp(x) * torch.cos(2 * y)


def errors_of(medium, letter, mesh_of, absorption=0.0):
    """Errors beside `exact`, with potentials at the low side of x, the condition elsewhere."""
    errors = []
    for n in (8, 16, 32, 64):
        points, cells = mesh_of(n)
        mesh = Mesh(points, cells, sides(points))
        k = medium(*mesh.points[mesh.cells].mean(1).T)
        k = tensor(*k)[None, :, None] if isinstance(k, tuple) else field(k)
        u, flux, f = manufactured(exact, medium, *mesh.points.T, absorption=absorption)
        boundary = {"x0": Dirichlet(u[:, None])}
        for name in ("x1", "y0", "y1"):
            outward = flux["xy".index(name[0])] * (2 * int(name[1]) - 1)
            boundary[name] = wall(letter, u[:, None], outward[:, None])
        v = mesh.diffusion(k, boundary=boundary, absorption=absorption).solve(field(f))[0, :, 0]
        errors.append(float((mesh.volume * (v - u).square()).sum().sqrt()))
    return errors


@pytest.mark.parametrize("letter", "DNR")
@pytest.mark.parametrize("cross", [None, 0.5, 1.5])
def test_second_order_in_a_medium_that_varies(letter, cross):
    """On meshes with obtuse triangles; tensors turn from one diagonal to the other, so that some
    conductances are negative."""

    def medium(x, y):
        tensors = cross and (2 + x * y, 1.5 + y**2, cross * torch.sin(3 * (x - y)))
        return tensors or 1 + x / 2 + y**2

    errors = errors_of(medium, letter, box, 0.5)
    assert math.log2(errors[0] / errors[-1]) / 3 > 1.8, errors


def test_a_tensor_that_is_none_is_the_number():
    points, cells = disc(5)
    mesh = Mesh(points, cells, {"half": points[:, 0] > 0})
    k, f = uniform(2, len(cells), 3) + 0.1, torch.zeros(2, len(points), 3, dtype=DOUBLE)
    boundary = {"boundary": Robin(1.0, 2.0), "half": Neumann(1.0)}
    expected = mesh.diffusion(k, boundary=boundary).solve(f)
    given = k[..., None, None] * torch.eye(2, dtype=DOUBLE)
    circuit = mesh.diffusion(given, boundary=boundary)
    torch.testing.assert_close(circuit.solve(f), expected)


def test_unfit_tensors_are_refused():
    mesh = Mesh(*disc(2))
    k = torch.tensor([[2.0, 3.0], [3.0, 5.0]], dtype=DOUBLE).expand(2, len(mesh.cells), 1, 2, 2)
    with pytest.raises(ValueError, match="symmetric"):
        mesh.diffusion(k + torch.tensor([[0.0, 0.1], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="no distance with a tensor"):
        mesh.diffusion(k, boundary=Dirichlet(0.0, 1.0))
    with pytest.raises(ValueError, match="no tensors of tetrahedra but with elements"):
        Mesh(*cube(1)).diffusion(torch.ones(1, 6, 1, 3, 3))


def test_layers_are_exact_and_electrodes_measure_them():
    """Two layers in series on a mesh that has their interface, and a rod that is held inside."""
    points, cells = box(8, jitter=0)
    k = torch.where(torch.from_numpy(points[cells].mean(1)[:, 0]) < 0.5, 1.0, 100.0)
    inside = np.flatnonzero((np.abs(points - 0.5) < 1e-9).all(1))
    mesh = Mesh(points, cells, {**sides(points), "rod": inside})
    plates = {"x0": Dirichlet(1.0), "x1": "dirichlet"}
    circuit = mesh.diffusion(field(k.double()), boundary=plates)
    v = circuit.solve(torch.zeros(1, len(points), 1, dtype=DOUBLE))
    x = mesh.points[:, 0]
    right = torch.where(x < 0.5, 1 - x / 0.505, (1 - x) / 50.5)
    torch.testing.assert_close(v, field(right), rtol=0, atol=1e-12)
    out = circuit.currents(v).walls[0, :, 0]
    assert float(out[x > 0.6].sum()) == pytest.approx(1 / 0.505)
    assert float(out.sum()) == pytest.approx(0, abs=1e-12)
    held = mesh.diffusion(field(k.double()), boundary={**plates, "rod": Dirichlet(7.0)})
    v = held.solve(torch.ones(1, len(points), 1, dtype=DOUBLE))
    assert v[0, inside[0], 0] == 7
    assert float(v.max()) == 7


def test_facets_nodes_and_masks_name_the_same_sides():
    points, cells = box(5)
    masks = sides(points)
    found, nodes = Mesh(points, cells, masks), {k: np.flatnonzero(m) for k, m in masks.items()}
    facets = {}
    for name, on in nodes.items():
        line = on[np.argsort(points[on, 1 - "xy".index(name[0])])]
        facets[name] = np.stack([line[1:], line[:-1]], 1)
    twice = {name: np.concatenate([given, given[:, ::-1]]) for name, given in facets.items()}
    others = [Mesh(points, cells, given) for given in (facets, nodes, twice)]
    boundary = {"x0": Dirichlet(1.0), "y0": Neumann(0.3), "x1": Robin(2.0, -1.0)}
    k, f = uniform(1, len(cells), 1) + 0.1, uniform(1, len(points), 1)
    v = found.diffusion(k, boundary=boundary).solve(f)
    closed = boundary | {"x0": Robin(math.inf, 1.0)}
    torch.testing.assert_close(found.diffusion(k, boundary=closed).solve(f), v)
    for other in others:
        torch.testing.assert_close(other.diffusion(k, boundary=boundary).solve(f), v)
    (every,) = np.any(list(masks.values()), axis=0).nonzero()
    assert found.sets["boundary"].tolist() == every.tolist()


@pytest.mark.parametrize("kind", [">", "reversed", "lists", "whole"])
def test_points_and_cells_are_arrays_of_any_kind(kind):
    points, cells = box(5)
    expected = Mesh(points, cells)
    if kind == ">":
        points, cells = points.astype(">f8"), cells.astype(">i4")
    elif kind == "reversed":
        points, cells = points[::-1].copy()[::-1], cells[::-1].copy()[::-1]
    elif kind == "lists":
        points, cells = points.tolist(), cells.tolist()
    else:  # Whole numbers are not rounded, so that flat cells keep their faces.
        points, cells = np.array([(0, 0), (10**6, 0), (10**6, 1), (0, 1)]), [(0, 1, 2), (0, 2, 3)]
        expected = Mesh(points.astype(float), cells)
    found = Mesh(points, cells)
    assert torch.equal(found.points, expected.points)
    assert torch.equal(found.weight, expected.weight)


@pytest.mark.parametrize("mode", ["inference", "device", "grad"])
@pytest.mark.parametrize("what", ["scalars", "tensors", "raster", "volumes"])
def test_what_is_made_once_is_of_no_mode(mode, what):
    """A graph that is kept serves training, whatever was active when it was made."""
    points, cells = box(5)
    made = {}

    def make():
        made["mesh"] = Mesh(points, cells, sides(points))
        made["volumes"] = FiniteVolumes.from_cells(points, cells, sets={"x0": points[:, 0] == 0})

    def solve(k):
        if what == "raster":
            circuit = raster(k[None, :, None, None], leak=0.1)
        elif what == "volumes":
            field = k[0].expand(1, len(points), 1)
            circuit = made["volumes"].circuit(field, boundary={"x0": "dirichlet"})
        else:
            medium = k[0].expand(1, len(cells), 1)
            if what == "tensors":
                medium = medium[..., None, None] * torch.eye(2, dtype=k.dtype, device=k.device)
            circuit = made["mesh"].diffusion(medium, boundary={"x0": "dirichlet"})
        source = torch.linspace(0, 1, circuit.layout.num_nodes, dtype=k.dtype, device=k.device)
        return circuit.solve(source[None, :, None]).sum()

    # A shape of its own each, because the graphs of rasters are kept by shape.
    k = torch.full((40 + ["inference", "device", "grad"].index(mode),), 2.0, dtype=DOUBLE)
    slope = None
    if mode == "grad":
        slope = torch.func.grad(lambda k: (make(), solve(k))[1])(k)
    else:
        with torch.inference_mode() if mode == "inference" else torch.device("meta"):
            make()
            solve(k) if mode == "inference" else raster(k[None, :, None, None])
    x = k.clone().requires_grad_()
    (expected,) = torch.autograd.grad(solve(x), x)
    assert expected.isfinite().all()
    torch.testing.assert_close(expected if slope is None else slope, expected)


@pytest.mark.parametrize("more", [[], [(1, 1, 1)]], ids=["triangles", "tetrahedra"])
def test_a_hanging_node_is_named(more):
    """On a surface in space, and in it."""
    points = [(0, 0, 0), (2, 0, 1), (2, 2, 1), (0, 2, 0), (3, 1, 0), (1.9999, 1, 1), (2, 0.7, 1)]
    cells = [(0, 1, 2), (0, 2, 3), (1, 6, 4), (6, 2, 4)]
    with pytest.raises(ValueError, match=r"node 6 on the facet \(.*1, 2.*\) of cell 0"):
        Mesh(points + more, [(*cell, 7) for cell in cells] if more else cells)


def test_a_hanging_node_of_rounded_points_is_named():
    points = np.array([(0, 0), (1, 0.3), (0.7, 1.1), (0, 1), (0.28, 0.44)], dtype=np.float32)
    with pytest.raises(ValueError, match=r"node 4 on the facet \(0, 2\) of cell 0"):
        Mesh(points, [(0, 1, 2), (0, 4, 3), (4, 2, 3)])


@pytest.mark.parametrize("d", [1, 2])
def test_closed_surfaces_have_no_boundary(d):
    cells = list(itertools.combinations(range(d + 2), d + 1))
    mesh = Mesh(np.eye(d + 2)[:, : d + 1], cells, {"some": [0]})
    ones = torch.ones(1, d + 2, 1, dtype=DOUBLE)
    insulated = mesh.diffusion(ones, absorption=0.5).solve(ones)
    torch.testing.assert_close(insulated, 2 * ones)
    held = mesh.diffusion(ones, boundary={"some": Dirichlet(3.0)}).solve(0 * ones)
    torch.testing.assert_close(held, 3 * ones)


def test_groups_of_a_file_are_sets():
    """In gmsh's format 4 groups are sets of cells, in format 2 they are numbers."""
    points, cells = box(3)
    low, high = (np.flatnonzero(sides(points)[name]) for name in ("x0", "x1"))
    blocks = [np.stack([at[:-1], at[1:]], 1) for at in (low, high)]
    cells_of = [SimpleNamespace(type="line", data=x) for x in blocks]
    cells_of.insert(1, SimpleNamespace(type="triangle", data=cells))
    file = {"points": np.pad(points, ((0, 0), (0, 1))), "cells": cells_of}
    file |= {"cells_dict": {"line": np.concatenate(blocks), "triangle": cells}}
    inner = cells[:, :2][~np.isin(cells[:, :2], Mesh(points, cells).sets["boundary"]).any(1)][:1]
    cells_of.append(SimpleNamespace(type="line", data=inner))
    named, none = {"in": np.array([7, 1]), "inner": np.array([9, 1])}, np.arange(0)
    tags = [np.full(3, 7), np.full(len(cells), 1), np.full(3, 8), np.full(1, 9)]
    numbers = {"field_data": named, "cell_data": {"gmsh:physical": tags}}
    groups = {"in": [np.arange(3), none, none, none], "inner": [none, none, none, np.arange(1)]}
    groups["gmsh:bounding_entities"] = [None] * 4
    for more in ({"cell_sets": groups}, numbers):
        mesh = Mesh.from_mesh(SimpleNamespace(**file, **more), {"out": high})
        assert mesh.points.shape[1] == 2
        assert mesh.sets.keys() == {"boundary", "in", "out", "inner"}
        assert mesh.sets["in"].tolist() == low.tolist()
        assert mesh.sets["inner"].tolist() == sorted(inner[0].tolist())
        assert mesh.area["inner"].sum() == 0


@pytest.mark.parametrize("hot", [1.0, 300.0, torch.full((1, 2, 1), 300.0)])
def test_currents_between_walls_of_volumes(hot):
    """Plates at two potentials, in float32: what one gives the other takes."""
    x, y = np.meshgrid(np.linspace(0, 1, 9), [0.0, 0.5], indexing="ij")
    points = np.stack([x.ravel(), y.ravel()], 1)
    at = np.arange(16).reshape(8, 2)
    cells = np.concatenate([np.stack([at, at + 2, np.roll(at, -1, 1)], -1)[:, 0],
                            np.stack([at + 1, at + 2, at + 3], -1)[:, 0]])  # fmt: skip
    sets = {"hot": [0, 1], "cold": [16, 17]}
    volumes = FiniteVolumes.from_cells(points, cells, sets=sets)
    cold = hot - 1
    walls = {"hot": Dirichlet(hot), "cold": Dirichlet(cold)}
    circuit = volumes.circuit(torch.ones(1, 18, 1), boundary=walls)
    v = circuit.solve(torch.zeros(1, 18, 1))
    assert v[0, 0] == torch.as_tensor(hot).max()
    through = circuit.currents(v).walls
    for part in (through.clamp(min=0), (-through).clamp(min=0)):
        assert part.sum().item() == pytest.approx(0.5, rel=1e-3)


def test_volumes_are_beyond_half_precision_and_their_nodes_are_counted():
    volumes = FiniteVolumes.from_cells(300 * np.array(SQUARE[0]), SQUARE[1])
    k = torch.ones(1, 4, 1, dtype=torch.float16)
    v, expected = (
        volumes.circuit(x, boundary="dirichlet").solve(k.double()) for x in (k, k.float())
    )
    torch.testing.assert_close(v, expected, rtol=0, atol=0)
    assert v.isfinite().all()
    with pytest.raises(ValueError, match=r"conductivity: expected .* with N = 4 nodes"):
        volumes.circuit(torch.ones(1, 5, 1))


def test_held_walls_of_volumes_compile_as_one_graph():
    volumes = FiniteVolumes.from_cells(*SQUARE, sets={"in": [0, 2]})

    def solve(k):
        return volumes.circuit(k, 0.1, {"in": Dirichlet(2.0)}).solve(torch.ones_like(k))

    k, compiled = torch.rand(1, 4, 2) + 0.1, torch.compile(solve, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(k), solve(k))
