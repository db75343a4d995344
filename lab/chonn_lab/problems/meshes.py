"""Darcy flow and heat on meshes of triangles and tetrahedra.

========== =====================================================================================
Equation   ``-div(k grad u) = f``; learn ``(k, f, mesh) -> u``
Domain     ``holes``: the unit square without two discs, one mesh. ``domains``: a random polygon
           with 5 to 8 corners in the unit square, without 1 to 3 discs; another one for every
           sample. ``part``: a box of 1 x 1 x 2/3 with a step and a square channel, one mesh
Boundary   ``holes``, ``domains``: u = 0 on all walls. ``part``: -k du/dn = 50 u in the channel,
           other walls are insulated
Input      k is constant in each cell and takes one of two values by the sign of a stationary
           Gaussian field at the cell's centre (squared exponential covariance): 1 and 10, length
           0.12; ``part``: 1 and 20, length 0.25. f = 1; ``part``: three Gaussian sources of random
           places, widths 0.08 to 0.2, and strengths 0.5 to 2, above a background of 0.1
Mesh       triangles: Delaunay, edges of about 1/36, 1,222 nodes (``holes``), 600 on average
           (``domains``); ``part``: boxes of a lattice with graded distances, six tetrahedra each,
           1,232 nodes. Edges of ``test_fine`` are half as long
Splits     256 train, 32 validation, 64 test and, on the finer mesh, half of the same test samples.
           Sample i of split s has ``spawn_key=(s, i)``; fields are functions of the position, the
           same on every mesh
Generator  linear finite elements, lumped f and Robin walls
Cost       half a minute on one core a file
Layout     a group a split, in it a group a mesh: ``points`` (N, d), ``cells`` (T, d + 1), ``wall``
           (F, d), the nodes of boundary facets that are not insulated, ``k`` (S, T), ``f`` and
           ``u`` (S, N), float64
========== =====================================================================================
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import scipy.sparse as sparse
from matplotlib.path import Path as Polygon
from scipy.sparse.linalg import spsolve
from scipy.spatial import Delaunay

from chonn_lab.problems.generation import stream, write_groups
from chonn_lab.problems.hdf5 import dataset, open_hdf5
from chonn_ops import FiniteVolumes
from chonn_ops.checks import check_choice, check_integer

SPLITS = ("train", "validation", "test", "test_fine")
RESOLUTION = {"holes": 36, "domains": 36, "part": 12}
PROBLEMS = tuple(RESOLUTION)
HOLES = ((0.3, 0.35, 0.12), (0.68, 0.7, 0.17))  # x, y, radius
SQUARE = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
TRANSFER = 50.0  # current through a Robin wall, per area and u
TRIES = 1000


class Shape(NamedTuple):
    """Cells of a mesh, and the facets of its boundary that are not insulated."""

    points: np.ndarray
    cells: np.ndarray
    wall: np.ndarray


class Samples(NamedTuple):
    """S samples on one mesh, float64: k (S, T) of cells, f and u (S, N) of nodes."""

    shape: Shape
    k: np.ndarray
    f: np.ndarray
    u: np.ndarray


def generate(
    path: Path | str = "",
    problem: str = "holes",
    seed: int = 0,
    resolution: int = 0,
    n_train: int = 256,
    n_validation: int = 32,
    n_test: int = 64,
    force: bool = False,
) -> Path:
    """Solve all samples of ``holes``, ``domains`` or ``part``; by default ``meshes_<problem>.h5``.

    `resolution` is that of edges along a side of the unit square, 8 or more, for ``part`` a
    multiple of 12, 0 for that of the card. Others, errors:
    `chonn_lab.problems.generation.write_groups`.
    """
    check_choice("problem", problem, PROBLEMS)
    resolution = resolution or RESOLUTION[problem]
    check_integer(8, resolution=resolution)
    if problem == "part" and resolution % 12:
        raise ValueError(f"resolution: expected a multiple of 12 for part, got {resolution}")

    def groups(split: int, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
        counts = {SPLITS[split]: count}
        if SPLITS[split] == "test":
            counts["test_fine"] = max(1, count // 2)
        for name, n in counts.items():
            for i, solved in enumerate(_solved(problem, seed, resolution, name, n)):
                fields = {"k": solved.k, "f": solved.f, "u": solved.u}
                yield f"{name}/{i}", {**solved.shape._asdict(), **fields}

    sizes = {"n_train": n_train, "n_validation": n_validation, "n_test": n_test}
    settings = {"problem": problem, "resolution": resolution}
    path = path or f"meshes_{problem}.h5"
    return write_groups(path, "meshes", settings, groups, sizes, seed, force)


def read(path: Path | str, split: str) -> list[Samples]:
    """The samples of a split, mesh by mesh; errors as `chonn_lab.problems.hdf5.read_group`."""
    with open_hdf5(path) as file:

        def arrays(group: h5py.Group, names: Sequence[str]) -> list[np.ndarray]:
            return [dataset(group, name)[...] for name in names]

        splits: Any = file[split]
        groups = [splits[str(i)] for i in range(len(splits))]
        return [Samples(Shape(*arrays(g, Shape._fields)), *arrays(g, "kfu")) for g in groups]


def _solved(problem: str, seed: int, resolution: int, split: str, count: int) -> Iterator[Samples]:
    fine = split == "test_fine"
    of = SPLITS.index("test" if fine else split)
    edges = 2 * resolution if fine else resolution
    generators = [stream(seed, of, i) for i in range(count)]
    if problem == "domains":
        for rng in generators:
            # A test domain has both meshes, or is drawn again.
            shapes = random_domain(rng, (resolution, 2 * resolution) if of == 2 else (resolution,))
            yield sample(shapes[-1] if fine else shapes[0], [rng])
    elif problem == "holes":
        yield sample(plane_mesh(SQUARE, HOLES, edges, np.random.default_rng(0)), generators)
    else:
        yield sample(part(edges), generators)


def sample(shape: Shape, generators: list[np.random.Generator]) -> Samples:
    """Random fields of each generator on a mesh, and their solutions; tetrahedra are ``part``."""
    solid = shape.points.shape[1] == 3
    law = (0.25, 20.0) if solid else (0.12, 10.0)
    k = np.stack([medium(rng, shape, *law) for rng in generators])
    unit = np.ones(len(shape.points))
    f = np.stack([sources(rng, shape.points) if solid else unit for rng in generators])
    u = np.stack([solve(shape, *fields) for fields in zip(k, f, strict=True)])
    return Samples(shape, k, f, u)


def medium(rng: np.random.Generator, shape: Shape, length: float, contrast: float) -> np.ndarray:
    """k of each cell, (T,)."""
    d = shape.points.shape[1]
    wave, phase = rng.standard_normal((d, 200)) / length, rng.uniform(0, 2 * np.pi, 200)
    centre = shape.points[shape.cells].mean(1)
    return np.where(np.cos(centre @ wave + phase).sum(1) > 0, contrast, 1.0)


def sources(rng: np.random.Generator, points: np.ndarray) -> np.ndarray:
    """f at each node, (N,)."""
    f = np.full(len(points), 0.1)
    for _ in range(3):
        place, width, strength = rng.uniform(0, 1, 3), rng.uniform(0.08, 0.2), rng.uniform(0.5, 2)
        f += strength * np.exp(-(((points - place) / width) ** 2).sum(1) / 2)
    return f


def solve(shape: Shape, k: np.ndarray, f: np.ndarray, transfer: float = TRANSFER) -> np.ndarray:
    """u at the nodes: 0 on `wall`; of tetrahedra ``-k du/dn = transfer u`` there."""
    points, cells, wall = shape
    n, d = points.shape
    corner = points[cells]
    inverse = np.linalg.inv(corner[:, 1:] - corner[:, :1])
    gradient = np.concatenate([-inverse.sum(2, keepdims=True), inverse], 2)  # (T, d, d + 1)
    size = sizes(corner)
    local = (k * size)[:, None, None] * gradient.swapaxes(1, 2) @ gradient
    rows, columns = np.repeat(cells, d + 1, 1), np.tile(cells, d + 1)
    matrix = sparse.csr_array((local.ravel(), (rows.ravel(), columns.ravel())), (n, n))
    load = f * np.bincount(cells.ravel(), np.repeat(size / (d + 1), d + 1), n)
    free = np.arange(n)
    if d == 2:
        free = np.setdiff1d(free, wall)
    else:
        share = np.repeat(transfer * sizes(points[wall]) / d, d)
        matrix = matrix + sparse.diags_array(np.bincount(wall.ravel(), share, n))
    u = np.zeros(n)
    u[free] = np.asarray(spsolve(matrix.tocsr()[free][:, free].tocsc(), load[free]))
    return u


def sizes(corners: np.ndarray) -> np.ndarray:
    """Lengths, areas or volumes of simplices (F, m, d), in any dimension d."""
    side = corners[:, 1:] - corners[:, :1]
    m = side.shape[1]
    gram = np.linalg.det(side @ side.swapaxes(1, 2))
    return np.sqrt(np.maximum(gram, 0)) / np.prod(np.arange(1, m + 1))


def boundary(cells: np.ndarray) -> np.ndarray:
    """Facets of one cell only, (F, d), each sorted."""
    d = cells.shape[1] - 1
    facets = np.sort(np.concatenate([cells[:, c] for c in combinations(range(d + 1), d)]), 1)
    unique, count = np.unique(facets, axis=0, return_counts=True)
    return unique[count == 1]


def random_domain(rng: np.random.Generator, resolutions: tuple[int, ...]) -> list[Shape]:
    """A random polygon with holes, with a mesh of each resolution that `FiniteVolumes` takes."""
    for _ in range(TRIES):
        m = rng.integers(5, 9)
        angle = 2 * np.pi * (np.arange(m) + rng.uniform(-0.25, 0.25, m)) / m
        outer = 0.5 + rng.uniform(0.3, 0.5, (m, 1)) * np.c_[np.cos(angle), np.sin(angle)]
        holes = [
            (*rng.uniform(0.2, 0.8, 2), rng.uniform(0.05, 0.12)) for _ in range(rng.integers(1, 4))
        ]
        if not _apart(outer, holes):
            continue
        try:
            return [plane_mesh(outer, holes, resolution, rng) for resolution in resolutions]
        except ValueError:
            continue
    raise RuntimeError(f"no domain with a good mesh in {TRIES} tries")


def _apart(outer: np.ndarray, holes: list[tuple[float, float, float]]) -> bool:
    """Whether corners are wider than 75 degrees, and walls 0.08 apart."""
    ahead, behind = np.roll(outer, -1, 0) - outer, np.roll(outer, 1, 0) - outer
    turn = np.arctan2(
        *(ahead[:, 0] * behind[:, 1] - ahead[:, 1] * behind[:, 0], (ahead * behind).sum(1))
    )
    if (np.abs(turn) < np.radians(75)).any():
        return False
    walls = _divided(outer, 0.01)
    for i, (x, y, radius) in enumerate(holes):
        centre = np.array([[x, y]])
        near = np.hypot(*(walls - centre).T).min() - radius
        others = [np.hypot(x - p, y - q) - radius - r for p, q, r in holes[:i]]
        if not inside(centre, outer)[0] or min([near, *others]) < 0.08:
            return False
    return True


def plane_mesh(
    outer: np.ndarray,
    holes: Sequence[tuple[float, float, float]],
    resolution: int,
    rng: np.random.Generator,
) -> Shape:
    """A Delaunay mesh of a polygon (M, 2) in the unit square without discs (x, y, radius).

    ValueError if the boundary is no union of edges, or an angle opposite to it is obtuse.
    """
    h = 1 / resolution
    loops = [_divided(outer, h)]
    for x, y, radius in holes:
        count = max(8, round(2 * np.pi * radius / h))
        angle = 2 * np.pi * np.arange(count) / count
        loops.append(np.c_[x + radius * np.cos(angle), y + radius * np.sin(angle)])
    side = np.arange(1, resolution) * h
    lattice = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    lattice += rng.uniform(-0.25 * h, 0.25 * h, lattice.shape)
    # No angle opposite to a wall is obtuse if no point is in the circle over a piece of a wall.
    middle = np.concatenate([(loop + np.roll(loop, -1, 0)) / 2 for loop in loops])
    clear = (np.hypot(*(lattice[:, None] - middle).transpose(2, 0, 1)) > 0.6 * h).all(1)
    points = np.concatenate([*loops, lattice[clear & inside(lattice, *loops)]])
    cells = Delaunay(points).simplices.astype(np.int64)
    corner = points[cells]
    cells = cells[inside(corner.mean(1), *loops) & (sizes(corner) > 1e-6 * h * h)]
    wall = boundary(cells)
    begin = np.cumsum([0, *map(len, loops)])
    pieces = [
        np.sort(np.c_[np.arange(a, b), a + (np.arange(b - a) + 1) % (b - a)], 1)
        for a, b in pairwise(begin)
    ]
    if not np.array_equal(wall, np.unique(np.concatenate(pieces), axis=0)):
        raise ValueError("outer: expected a polygon whose sides are edges of the mesh")
    FiniteVolumes.from_cells(points, cells)
    return Shape(points, cells, wall)


def _divided(corners: np.ndarray, h: float) -> np.ndarray:
    """Points along the sides of a polygon, about h apart."""
    ends = np.roll(corners, -1, 0)
    counts = np.maximum(1, (np.hypot(*(ends - corners).T) / h).round().astype(int))
    sides = zip(corners, ends, counts, strict=True)
    return np.concatenate([np.linspace(*side, endpoint=False) for side in sides])


def inside(points: np.ndarray, *loops: np.ndarray) -> np.ndarray:
    """Whether points (N, 2) lie in a polygon (M, 2) with polygonal holes."""
    return np.logical_xor.reduce([Polygon(loop).contains_points(points) for loop in loops])


def part(resolution: int) -> Shape:
    """The mesh of the problem ``part``: a block with a step and a channel along z."""
    centre, reach = np.full(2, 5 / 12), 1 / 6  # of the channel

    def solid(place: np.ndarray) -> np.ndarray:
        channel = (np.abs(place[:, :2] - centre) < reach).all(1)
        return ~(channel | ((place[:, 0] > 2 / 3) & (place[:, 2] > 1 / 3)))

    counts = resolution, resolution, 2 * resolution // 3
    points, cells, wall = lattice(counts, solid, resolution)
    middle = points[wall].mean(1)
    # Walls of the channel are along z, which the faces at its ends are not.
    along = np.ptp(points[wall][..., 2], axis=1) > 0
    wall = wall[along & (np.abs(middle[:, :2] - centre) < reach + 1e-9).all(1)]
    return Shape(points + 0.02 * np.sin(2 * np.pi * points), cells, wall)


def lattice(
    counts: Sequence[int], keep: Callable[[np.ndarray], np.ndarray], resolution: int
) -> Shape:
    """Boxes of a lattice whose centres (M, 3) are kept, six tetrahedra each, and all walls.

    All edges are 1 / resolution long along the axes. The corners of a box are on one sphere, so
    the mesh is Delaunay, and stays so where planes of the lattice are moved.
    """
    box = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(-1, 3)
    box = box[keep((box + 0.5) / resolution)]
    shape = [count + 1 for count in counts]
    # The tetrahedra are the paths along edges from the least to the greatest corner.
    steps = np.eye(3, dtype=int)[list(permutations(range(3)))].cumsum(1)
    corner = np.concatenate([np.zeros((6, 1, 3), int), steps], 1) + box[:, None, None]
    number = np.ravel_multi_index(tuple(corner.reshape(-1, 3).T), shape)
    used, cells = np.unique(number, return_inverse=True)
    points = np.stack(np.unravel_index(used, shape), 1) / resolution
    cells = cells.reshape(-1, 4)
    return Shape(points, cells, boundary(cells))
