"""What an unknown field lives on: the cells of a grid, or the volumes of a mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from chonn_ops.boundary import Boundary, Condition, Faces, Neumann, conditions, named_conditions
from chonn_ops.checks import as_tensor, error
from chonn_ops.network import Circuit, Factorization, diffusion
from chonn_ops.network.discretise.grids import Spacing, check_conditions, spacings, walls_of
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.network.layout import Grid, Layout

_WITHOUT_VALUES = "conditions other than 'matched', without a value or flux other than 0"


@dataclass(frozen=True, eq=False)
class _Domain:
    """Nodes, which of them exist, and the geometry of their cells."""

    mask: Tensor  # of bool, (*grid); (N,) on a mesh
    layout: Layout  # that of circuits
    dimensions: int  # of space
    step: float  # how far neighbours are from each other
    volume: Tensor  # of the nodes' cells, (*grid)

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of a field."""
        return tuple(self.mask.shape)

    def field(self, values: Tensor) -> Tensor:
        """(K, n) or (\\*grid) as (1, K, \\*grid, 1), 0 at missing nodes."""
        inside = values.reshape(-1, *self.grid)
        return torch.where(self.mask, inside, 0)[None, ..., None]


@dataclass(frozen=True, eq=False)
class GridDomain(_Domain):
    """Cells of a grid: the spacing of each axis, and the condition at each face. Each corner of a
    cell joins one of the cell's two edges along every axis."""

    steps: list[float]
    faces: Faces

    @property
    def inner(self) -> Condition | None:
        """What holds at faces towards missing nodes: the condition of all faces of the grid that
        are not periodic where it is one, else "neumann". None where no node is missing."""
        if bool(self.mask.all()):
            return None
        walls = {x for pair in self.faces for x in pair if not x.periodic}
        return walls.pop() if len(walls) == 1 else Neumann()

    def circuit(self, k: Tensor) -> Circuit:
        """The circuit of a medium (1, \\*grid, 1), with walls and without absorption."""
        mask = None if self.inner is None else self.mask
        return diffusion(k, self.steps, boundary=self.faces, mask=mask, inner=self.inner)

    def insulated(self) -> tuple[Tensor, ...]:
        """Conductances between existing nodes of a medium of conductivity 1."""
        exists = self.mask[None, ..., None].double()
        options: Any = {"mask": self.mask, "boundary": self.faces, "inner": "neumann"}
        return diffusion(exists, self.steps, **options).conductance

    def at_corners(self, edges: Sequence[Tensor]) -> Tensor:
        """Sums (K, \\*grid) of numbers of edges at each of the K corners of the nodes' cells."""
        total = torch.zeros(1, *self.grid, dtype=edges[0].dtype, device=edges[0].device)
        for axis, edge in enumerate(edges):
            both = torch.stack([edge, edge.roll(1, axis)])
            total = (total[:, None] + both).flatten(0, 1)
        return total

    def at_edges(self, corners: Tensor) -> list[Tensor]:
        """The transpose of `at_corners`, over K."""
        edges, axes = [], len(self.grid)
        corners = corners.unflatten(0, (2,) * axes) / len(corners)
        for axis in range(axes):
            others = [other for other in range(axes) if other != axis]
            after, before = (corners.sum(others) if others else corners).unbind(0)
            edges.append(after + before.roll(-1, axis))
        return edges


@dataclass(frozen=True, eq=False)
class MeshDomain(_Domain):
    """Volumes of a mesh, and the condition at each set of walls; methods as those of `GridDomain`.
    A cell counts as one corner, and both nodes of an edge share it."""

    volumes: FiniteVolumes
    walls: dict[str, Condition]

    def circuit(self, k: Tensor) -> Circuit:
        return self.volumes.circuit(k, boundary=self.walls)

    def insulated(self) -> tuple[Tensor, ...]:
        return (self.volumes.weight.to(self.mask.device)[None, :, None],)

    def at_corners(self, edges: Sequence[Tensor]) -> Tensor:
        return self.layout.sums_at_nodes([edges[0][None, :, None] / 2])[..., 0]

    def at_edges(self, corners: Tensor) -> list[Tensor]:
        return [self.layout.sums_at_edges(corners[..., None] / 2)[0][0, :, 0]]


Domain = GridDomain | MeshDomain


def eliminate(domain: Domain, edges: Sequence[Tensor], leak: Tensor) -> Factorization:
    """Networks on a domain, whose leaks hold all conductances to ground."""
    # Missing nodes have no volume. That of others is in the sources.
    exists = domain.field(domain.mask.to(leak.dtype))[0]
    return Factorization(tuple(edges), leak, domain.layout, volume=exists)


def solve_on(domain: Domain, network: Factorization, sources: Tensor) -> Tensor:
    """Potentials (K, n) for sources (K, n)."""
    return network.solve(domain.field(sources))[0, ..., 0].flatten(1)


def domain_of(
    grid: Sequence[int], spacing: Spacing, mask: Any, boundary: Boundary, device: torch.device
) -> GridDomain:
    """Check the arguments and make a domain of them."""
    sizes = tuple(grid) if isinstance(grid, Sequence) else ()
    if not 1 <= len(sizes) <= 3 or not all(isinstance(n, Integral) and n > 0 for n in sizes):
        raise error("grid", "1 to 3 sizes of at least 1", grid)
    grid = tuple(map(int, sizes))
    if mask is None:
        exists = torch.ones(grid, dtype=torch.bool, device=device)
    else:
        exists = as_tensor("mask", mask, device)
        if exists.dtype != torch.bool:
            raise error("mask", "dtype torch.bool, True where a node exists", exists.dtype)
        if tuple(exists.shape) != grid:
            raise error("mask", f"shape (*grid) = {grid}", tuple(exists.shape))
        if not bool(exists.any()):
            raise error("mask", "at least one node", "none")
    steps, faces = spacings(spacing, len(grid)), conditions(boundary, len(grid))
    k = torch.ones(1, *grid, 1, dtype=torch.float64, device=device)
    check_conditions(faces, k)
    # All currents are in the source, and the leak is unknown where "matched" needs it.
    known = all(x.inner or x.periodic for pair in faces for x in pair)
    if not known or walls_of(k, steps, faces, k).current is not None:
        raise error("boundary", _WITHOUT_VALUES, repr(boundary))
    layout = Grid(grid, [low.periodic for low, _ in faces])
    volume = torch.full(grid, math.prod(steps), dtype=torch.float64).to(device)
    return GridDomain(exists, layout, len(grid), min(steps), volume, steps, faces)


def domain_on(volumes: FiniteVolumes, boundary: Any, device: torch.device) -> MeshDomain:
    """Check the arguments and make a domain of them."""
    if not isinstance(volumes, FiniteVolumes):
        raise TypeError(f"volumes: expected FiniteVolumes, got {type(volumes).__name__}")
    volumes.require_faces()
    exists = torch.ones(volumes.num_nodes, dtype=torch.bool, device=device)
    walls = named_conditions(boundary, volumes.sets, inner=True)
    start, end = volumes.positions[volumes.graph.ends]
    step = float((start - end).norm(dim=1).median())
    place = volumes.graph, volumes.positions.shape[1], step, volumes.volume.to(device)
    domain = MeshDomain(exists, *place, volumes, walls)
    if domain.circuit(exists[None, :, None].double()).current is not None:
        raise error("boundary", _WITHOUT_VALUES, repr(boundary))
    return domain
