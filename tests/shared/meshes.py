"""Meshes and finite volumes of several tests, for cells, models and reconstructions."""

import math

import numpy as np
import pytest

from chonn_ops import FiniteVolumes, Grid
from chonn_ops.nn.geometry import NODES, distances_of, num_steps, wall_distances

SQUARE = [[0, 0], [1, 0], [0, 1], [1, 1]], [[0, 1, 2], [1, 2, 3]]


def linear_elements(points, cells, k):
    """The matrix of linear elements of k, numbers or tensors, cell by cell, and lumped volumes."""
    n, d = points.shape
    matrix, volume = np.zeros((n, n)), np.zeros(n)
    for cell, conductivity in zip(cells, k, strict=True):
        corners = np.hstack([np.ones((d + 1, 1)), points[cell]])
        gradients = np.linalg.inv(corners)[1:].T
        size = abs(np.linalg.det(corners)) / math.factorial(d)
        tensor = conductivity if np.ndim(conductivity) else conductivity * np.eye(d)
        matrix[np.ix_(cell, cell)] += size * gradients @ tensor @ gradients.T
        volume[cell] += size / (d + 1)
    return matrix, volume


def grid_as_graph(grid, lengths, nodes="centres", periodic=False):
    """The finite volumes that network cells put around the nodes of a grid."""
    steps = [size / num_steps(n, NODES[nodes]) for size, n in zip(lengths, grid, strict=True)]
    entries, ends = Grid(grid, periodic).edge_ends()
    index = np.stack(np.unravel_index(np.arange(math.prod(grid)), grid), 1)
    area = [math.prod(steps) / step for step in steps]
    weights = np.array([a / step for a, step in zip(area, steps, strict=True)])
    ((low, high),) = wall_distances(distances_of(nodes, 1))
    walls = [
        (node, area[axis], part * steps[axis], f"{side}{axis}")
        for axis, n in enumerate(grid)
        for side, at, part in (("low", 0, low), ("high", n - 1, high))
        for node in np.flatnonzero(index[:, axis] == at)
        if not periodic
    ]
    *walls, names = zip(*walls, strict=True) if walls else [(), (), (), ()]
    return FiniteVolumes(
        ends.T,
        weights[entries // math.prod(grid)],
        np.full(math.prod(grid), math.prod(steps)),
        (index + NODES[nodes][0]) * steps,
        walls,
        sets={name: np.array(names) == name for name in set(names)},
    )


def curved(n):
    """A hexagon of acute triangles with a hexagonal hole, bent by a smooth map into the unit box;
    the points of n are among those of 2 n."""
    i, j = (x.ravel() for x in np.mgrid[-n : n + 1, -n : n + 1])
    size = np.maximum(np.maximum(abs(i), abs(j)), abs(i + j))
    inside = (size <= n) & (3 * size >= n)
    number = np.full((2 * n + 2, 2 * n + 2), -1)
    number[i[inside], j[inside]] = np.arange(inside.sum())
    steps = np.array([[(0, 0), (1, 0), (0, 1)], [(1, 0), (1, 1), (0, 1)]])
    corner = np.stack([i, j], 1)[:, None, None] + steps
    cells = number[corner[..., 0], corner[..., 1]].reshape(-1, 3)
    u, v = i[inside] / n, j[inside] / n
    x, y = 0.5 + 0.4 * (u + v / 2), 0.5 + 0.4 * v * math.sqrt(0.75)
    points = np.stack([x + 0.02 * np.sin(5 * y), y + 0.02 * np.cos(4 * x)], 1)
    return points, cells[(cells >= 0).all(1)]


def delaunay(points, **sets):
    """Finite volumes of points in the plane."""
    spatial = pytest.importorskip("scipy.spatial")
    return FiniteVolumes.from_cells(points, spatial.Delaunay(points).simplices, sets=sets)


def rings(count):
    """Points on circles of the unit disc, whose triangles are nearly equilateral."""
    places = [(r, 2 * np.pi * i / (6 * r)) for r in range(1, count + 1) for i in range(6 * r)]
    points = [(r / count * np.cos(t), r / count * np.sin(t)) for r, t in places]
    return np.array([(0.0, 0.0), *points])


def disc(count):
    """Finite volumes of a disc of radius 1, its right half by name."""
    points = rings(count)
    return delaunay(points, right=points[:, 0] > 0)
