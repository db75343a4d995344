r"""Full tensors of conductivity on grids of two axes: nine-point circuits.

The centres of four cells are the corners of a rectangle. In it the circuit is that of linear finite
elements on two triangles, cut along the diagonal that conducts better: :math:`|k_{xy}|` along it,
and half as much less along each side, which is negative where :math:`|k_{xy}|` is above
:math:`k_{xx} h_y / h_x` or :math:`k_{yy} h_x / h_y`. The matrix is positive definite then unless
tensors jump by much from cell to cell: at a ratio of 100 along and across fibres, directions that
turn smoothly had a solution and random ones had none. Between a wall and the nodes beside it lies a
strip of half a cell. Where the wall is insulated, the gradient across the strip follows from that
along it, so that the strip conducts :math:`k_{yy} - k_{xy}^2 / k_{xx}`.

Reference: J. Fehrenbach, J.-M. Mirebeau, "Sparse non-negative stencils for anisotropic diffusion",
J. Math. Imaging Vis. 49 (2014).
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops._dtypes import at_least_float32
from chonn_ops.boundary import Boundary, Dirichlet, Faces, Neumann, Wall, conditions
from chonn_ops.checks import check_field, check_not_negative, error
from chonn_ops.network.circuit import Circuit, Extents
from chonn_ops.network.discretise.grids import (
    Steps,
    Widths,
    check_conditions,
    check_tensors,
    density_of,
    edges,
    step_at,
    walls_of,
    widths,
)
from chonn_ops.network.layout import edges_alone, indices, pad
from chonn_ops.network.layout.graph import Graph, plain_tensors

_ROUNDING = 1e-4  # of the part of a conductance that k_xx makes, or of a wall


@lru_cache(maxsize=8)
@plain_tensors
def lattice(
    rows: int, columns: int, neighbours: int, periodic: tuple[bool, bool] = (False, False)
) -> tuple[Graph, Tensor]:
    """The graph of cells with four or eight neighbours, and which edge each of its edges is: node
    p of (4, rows, columns), joined along the first axis, the second, both, or from the next one
    along the first to the next one along the second."""
    cell = torch.arange(rows * columns).reshape(rows, columns)
    down, right = cell.roll(-1, 0), cell.roll(-1, 1)
    pairs = [(cell, down), (cell, right), (cell, down.roll(-1, 1)), (down, right)]
    pairs = pairs[: neighbours // 2]
    joins = torch.ones(2, rows, columns, dtype=torch.bool)
    joins[0, -1], joins[1, :, -1] = periodic
    joined = torch.stack([joins[0], joins[1], *[joins.all(0)] * 2][: len(pairs)]).flatten()
    edge = joined.nonzero()[:, 0]
    ends = torch.stack([torch.stack(pair, -1) for pair in pairs]).reshape(-1, 2)[edge]
    positions = torch.stack([cell.flatten() // columns, cell.flatten() % columns], 1)
    return Graph(ends, rows * columns, positions), edge


def times(matrix: Tensor, x: Tensor) -> Tensor:
    """Products of matrices (..., R, R) and vectors (..., R), column by column: sums over an axis of
    three numbers take eight times as long."""
    columns = zip(matrix.unbind(-1), x.unbind(-1), strict=True)
    first, *others = (column * y[..., None] for column, y in columns)
    return sum(others, first)


def tensor_diffusion(
    conductivity: Tensor, spacing: Widths, boundary: Boundary, absorption: Tensor | float
) -> Circuit:
    """`diffusion` with k (B, nx, ny, C, 2, 2)."""
    expected = "(B, *grid, C), or of two axes (B, nx, ny, C, 2, 2)"
    if conductivity.dim() != 6 or conductivity.shape[-2:] != (2, 2):
        raise error("conductivity", f"shape {expected}", tuple(conductivity.shape))
    check_field("conductivity", conductivity[..., 0, 0])
    k = at_least_float32(conductivity)
    check_not_negative("conductivity", k[..., 0, 0])
    check_not_negative("conductivity", k[..., 1, 1])
    check_tensors("conductivity", k)
    steps, faces = widths(spacing, k[..., 0, 0]), conditions(boundary, 2)
    check_conditions(faces, k[..., 0, 0])
    for condition in (x for pair in faces for x in pair):
        far = isinstance(condition, Dirichlet) and (
            isinstance(condition.distance, Tensor) or condition.distance != 0
        )
        if far or not (isinstance(condition, (Dirichlet, Neumann)) or condition.periodic):
            raise error(
                "boundary", "Neumann, Dirichlet at the face or 'periodic' with tensors", condition
            )
    closed = [low.periodic for low, _ in faces]
    grid = k.shape[1:3]
    if any(joined and n < 3 for joined, n in zip(closed, grid, strict=True)):
        raise error("conductivity", "3 cells or more along a periodic axis with tensors", grid)
    leak = density_of("absorption", absorption, k[..., 0, 0]) * math.prod(steps)
    k = k.to(leak.dtype)
    cross, straight = k[..., 0, 1], [k[..., 0, 0], k[..., 1, 1]]
    beside = _beside_insulated(straight, cross, faces)
    wall = walls_of(beside, steps, faces, leak)
    wall = _corners(wall, cross, faces)
    current = _shifted(wall.current, straight, cross, steps, faces)
    sides = edges(beside, steps, closed)
    corner = cross
    for axis in (0, 1):
        mean = (corner + corner.roll(-1, axis + 1)) / 2
        corner = edges_alone(mean, axis, closed[axis])
    less = [(corner.abs() + corner.abs().roll(1, dim)) / 2 for dim in (2, 1)]
    rest = [_unless_rounding(x - y, x) for x, y in zip(sides, less, strict=True)]
    g = torch.stack([*rest, corner.clamp(min=0), (-corner).clamp(min=0)], 1)
    graph, edge = lattice(*grid, 8, tuple(closed))
    g = g.flatten(1, 3)[:, edge.to(g.device)]
    total = leak if wall.conductance is None else leak + wall.conductance
    volume: Any = math.prod(steps)
    if isinstance(volume, Tensor):
        volume = volume.expand(1, *grid, 1).flatten(1, 2)
    circuit = Circuit(
        g,
        total.flatten(1, 2),
        graph,
        volume=volume,
        wall=None if wall.conductance is None else wall.conductance.flatten(1, 2),
        current=None if current is None else current.flatten(1, 2),
    )
    circuit.extents = partial(Extents, leak.flatten(1, 2))
    return circuit


def _unless_rounding(difference: Tensor, size: Tensor) -> Tensor:
    """The difference, and 0 where it is negative by rounding of k alone."""
    rounding = (difference < 0) & (difference >= -_ROUNDING * size)
    return torch.where(rounding, 0, difference)


def _beside_insulated(straight: list[Tensor], cross: Tensor, faces: Faces) -> list[Tensor]:
    """Conductivities along both axes, with those of strips beside walls of a given flux."""
    conductivities = []
    for axis, (along, across) in enumerate(zip(straight, straight[::-1], strict=True)):
        other = 1 - axis
        last = along.shape[other + 1] - 1
        part = cross.square() / torch.where(across > 0, across, 1) / 2
        place = indices(along, other)
        for condition, node in zip(faces[other], (0, last), strict=True):
            if isinstance(condition, Neumann):
                along = along - torch.where(place == node, part, 0)
        conductivities.append(along)
    return conductivities


def _corners(wall: Wall, cross: Tensor, faces: Faces) -> Wall:
    """Walls, with what those at given potentials conduct more, or less, where an insulated one ends
    at them. A gradient towards a wall drives a current along it, which goes on from strip to strip;
    the insulated wall is the only one that lets none through."""
    conductance, current = wall
    for axis, pair in enumerate(faces):
        dim, along = axis + 1, 2 - axis
        n, last = cross.shape[dim], cross.shape[along] - 1
        place = indices(cross, 1 - axis)
        for condition, node, sign in zip(pair, (0, n - 1), (1, -1), strict=True):
            if not isinstance(condition, Dirichlet):
                continue
            low, high = (isinstance(other, Neumann) for other in faces[1 - axis])
            ends = sign * (high * (place == last).int() - low * (place == 0).int())
            g = ends * cross.narrow(dim, node, 1)
            assert conductance is not None  # of this wall
            more = conductance + pad(g, axis, node, n - 1 - node)
            conductance = _unless_rounding(more, conductance)
            if current is not None:
                current = current + pad(g * condition.value, axis, node, n - 1 - node)
    return Wall(conductance, current)


def _shifted(
    current: Tensor | None, straight: list[Tensor], cross: Tensor, steps: Steps, faces: Faces
) -> Tensor | None:
    """Currents from the walls at the nodes that they reach: beside a wall a tensor carries them
    along it, so what varies along the wall arrives at other nodes."""
    for axis, pair in enumerate(faces):
        dim, along = axis + 1, 2 - axis
        n, last = cross.shape[dim], cross.shape[along] - 1
        place = indices(cross, 1 - axis)
        for condition, node, sign in zip(pair, (0, n - 1), (0.5, -0.5), strict=True):
            held = isinstance(condition, Dirichlet)
            flow = condition.value if held else getattr(condition, "flux", 0.0)
            if not isinstance(flow, Tensor) and (held or flow == 0):
                continue
            k, across = (x.narrow(dim, node, 1) for x in (cross, straight[axis]))
            flow = flow * torch.ones_like(k)
            if not held:
                flow = flow * step_at(steps[axis], node) * k / torch.where(across > 0, across, 1)
            after, before = flow.roll(-1, along), flow.roll(1, along)
            if not faces[1 - axis][0].periodic:
                # A current along an insulated wall goes on to a held one, and ends at another.
                first, end = (
                    flow if held or isinstance(other, Dirichlet) else -flow
                    for other in faces[1 - axis]
                )
                after = torch.where(place == last, end, after)
                before = torch.where(place == 0, first, before)
            moved = sign * (k if held else 0.5) * (before - after)
            moved = pad(moved, axis, node, n - 1 - node)
            current = moved if current is None else current + moved
    return current
