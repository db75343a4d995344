"""`FiniteVolumes`: a domain cut into one volume around each node of a graph."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chonn_ops._dtypes import at_least_float32, widened
from chonn_ops.boundary import Condition, Dirichlet, Face, Wall, named_conditions
from chonn_ops.checks import (
    NETWORK_DTYPES,
    answer,
    as_tensor,
    check_above,
    check_each,
    check_field,
    check_not_negative,
    check_shape,
    check_tensor,
    check_unit_interval,
    error,
)
from chonn_ops.network.circuit import Circuit, Extents
from chonn_ops.network.discretise.grids import density_of
from chonn_ops.network.discretise.mesh import (
    Mesh,
    extents_of_edges,
    is_zero,
    node_numbers,
    number_on,
    numbers_on,
    read_mesh,
)
from chonn_ops.network.layout.dissection import begins
from chonn_ops.network.layout.graph import Graph, plain_tensors, real_numbers


class Walls(NamedTuple):
    """The faces through which nodes touch the boundary of the domain; a node may have several.

    Attributes
    ----------
    node : Tensor of int, shape (F,)
    area, distance : Tensor, shape (F,)
        Area of the face, and how far its node is from it.
    """

    node: Tensor
    area: Tensor
    distance: Tensor


class FiniteVolumes:
    """A domain cut into volumes, one around each node of a graph: the geometry of network cells.

    Domains are 1 to 3 dimensional. Samples on different domains are one batch as one sample on the
    `union` of these.

    Parameters
    ----------
    edges : Tensor or array, shape (E, 2)
        The nodes whose volumes touch, as in `Graph`.
    weight : Tensor or array, shape (E,)
        Area of the face between both volumes over the distance of both nodes, >= 0.
    volume : Tensor or array, shape (N,)
        > 0.
    positions : Tensor or array, shape (N, d)
        Where the nodes are.
    walls : (node, area, distance), shape (F,) each, optional
        Faces at the boundary, see `Walls`. By default the domain has none.
    domain : Tensor or array of int, shape (N,), optional
        Which of several domains each node belongs to; only the order of elimination depends on it.
    sets : mapping of str to Tensor or array, optional
        Walls by name: their indices, or a mask (F,).

    Attributes
    ----------
    graph : Graph
    weight, volume, positions, walls
        The parameters, as tensors in float64.
    sets : dict from str to Tensor
        The indices of the walls of each set, and under "boundary" those of all.

    Raises
    ------
    ValueError
        For shapes that do not fit, a number with the wrong sign, or an edge that `Graph` refuses.

    Examples
    --------
    >>> from chonn_ops import FiniteVolumes
    >>> square = FiniteVolumes.from_cells([[0, 0], [1, 0], [0, 1], [1, 1]], [[0, 1, 2], [1, 2, 3]])
    >>> square.weight.tolist(), square.walls.area.tolist()
    ([0.5, 0.5, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0])
    """

    @plain_tensors
    def __init__(
        self,
        edges: Any,
        weight: Any,
        volume: Any,
        positions: Any,
        walls: Sequence[Any] | None = None,
        domain: Any = None,
        sets: Mapping[str, Any] | None = None,
    ) -> None:
        self.positions = _numbers("positions", positions, "N", "d", least=-math.inf)
        nodes, axes = self.positions.shape
        if axes not in (1, 2, 3):
            raise error("positions", "1 to 3 coordinates", axes)
        places = self.positions
        if domain is not None:
            # Domains are where others are, too. This coordinate separates them.
            domain = _numbers("domain", domain, nodes, least=-math.inf)
            places = torch.cat((places, domain[:, None]), 1)
        self.graph = Graph(edges, nodes, places)
        self.weight = _numbers("weight", weight, self.graph.num_edges)
        # The mesh, where its circuits are those of linear elements.
        self.mesh: Mesh | None = None
        self.volume = _numbers("volume", volume, nodes, above=True)
        node, area, distance = ((), (), ()) if walls is None else walls
        node = node_numbers("walls", node, nodes)
        if node.dim() != 1:
            raise error("walls", "nodes of shape (F,)", tuple(node.shape))
        area = _numbers("walls.area", area, len(node), above=True)
        self.walls = Walls(node, area, _numbers("walls.distance", distance, len(node)))
        every = torch.arange(len(node))
        self.sets = {"boundary": every}
        for name, group in (sets or {}).items():
            chosen = as_tensor(f"sets[{name!r}]", group, "cpu")
            if chosen.dtype == torch.bool and chosen.shape == every.shape:
                chosen = every[chosen]
            chosen = node_numbers(f"sets[{name!r}]", chosen, len(node), "walls")
            if name == "boundary" or chosen.dim() != 1 or not len(chosen):
                expected = f"indices of {len(node)} walls, or a mask of them; not 'boundary'"
                raise error(f"sets[{name!r}]", expected, group)
            self.sets[name] = chosen.unique()
        # Known here, because compilers cannot branch on values.
        away = self.walls.distance != 0
        self._on_nodes = {name: not bool(away[some].any()) for name, some in self.sets.items()}

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    def require_faces(self) -> None:
        """Refuse linear elements, which have no faces: potentials have no bounds there."""
        if self.mesh is not None:
            expected = "volumes with faces, as of meshes that are nowhere too obtuse"
            least, edge = self.weight.min(0)
            where = tuple(self.graph.ends[:, edge].tolist())
            raise error("volumes", expected, f"the weight {float(least):g} of edge {where}")

    def __repr__(self) -> str:
        return f"FiniteVolumes of {self.graph}, {self.positions.shape[1]} dimensions"

    @classmethod
    @plain_tensors
    def union(cls, domains: Sequence[FiniteVolumes]) -> FiniteVolumes:
        """The disjoint union of domains: nodes of the first, then those of the second, ..."""
        if len({domain.positions.shape[1] for domain in domains}) != 1:
            raise error("domains", "one or more of one dimension", list(domains))
        for domain in domains:
            domain.require_faces()
        counts = [domain.num_nodes for domain in domains]
        first = begins(np.array(counts)).tolist()
        walls = [(d.walls.node + at, *d.walls[1:]) for d, at in zip(domains, first, strict=False)]
        sets: dict[str, Any] = {}
        before = 0
        for d in domains:
            for name in d.sets.keys() - {"boundary"}:
                sets[name] = torch.cat([sets.get(name, d.sets[name][:0]), d.sets[name] + before])
            before += len(d.walls.node)
        return cls(
            torch.cat([d.graph.ends.T + at for d, at in zip(domains, first, strict=False)]),
            torch.cat([d.weight for d in domains]),
            torch.cat([d.volume for d in domains]),
            torch.cat([d.positions for d in domains]),
            [torch.cat(entry) for entry in zip(*walls, strict=True)],
            torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)),
            sets,
        )

    @classmethod
    @plain_tensors
    def from_cells(
        cls, points: Any, cells: Any, domain: Any = None, sets: Mapping[str, Any] | None = None
    ) -> FiniteVolumes:
        """The nodes of a mesh of simplices, with the weights and volumes of `Mesh`. Each node of
        the boundary is a wall, with its part of the facets beside it: one for the facets of each
        set, and one for those of none. Where Voronoi faces would be negative, `circuit` has linear
        elements, with the mean of k at its corners in each cell, and weights those of k = 1. What
        needs faces, as cells that learn do, is an error then.

        Parameters
        ----------
        points : Tensor or array, shape (N, d)
            Further columns may be constant, as the third is in files of plane meshes.
        cells : Tensor or array of int, shape (T, d + 1)
            Corners of lines, triangles or tetrahedra.
        domain : optional
            See `FiniteVolumes`.
        sets : mapping, optional
            Facets of the boundary by name, as `Mesh` takes them. None may be in two sets.

        Raises
        ------
        ValueError
            As `Mesh`, and for a point of no cell.
        """
        _numbers("points", points, "N", "d", least=-math.inf)
        x = real_numbers("points", points, torch.float64).numpy()
        cells = real_numbers("cells", cells).numpy()
        if cells.ndim != 2 or cells.shape[1] not in (2, 3, 4) or cells.dtype.kind not in "iu":
            raise error("cells", "integers of shape (T, 2), (T, 3) or (T, 4)", cells.shape)
        d = cells.shape[1] - 1
        if x.shape[1] < d or np.ptp(x[:, d:], axis=0).any():
            raise error("points", f"{d} coordinates for cells of {d + 1} corners", x.shape)
        wrong = np.setxor1d(cells, np.arange(len(x)))
        if len(wrong):
            raise error("cells", f"points 0 to {len(x) - 1}, each in a cell", f"point {wrong[0]}")
        mesh = Mesh(x[:, :d], cells, sets, domain=domain)
        areas, whole = dict(mesh.area), mesh.area["boundary"]
        parts = [mesh._sets[name] for name in areas if name != "boundary"]
        for name, part in mesh._sets.items():
            if not len(part.facet):
                raise error(f"sets[{name!r}]", "all nodes of a facet at least", part.nodes.tolist())
        areas["boundary"] = mesh._unnamed.area
        seen = torch.cat([mesh._unnamed.facet, *(part.facet for part in parts)])
        facet, count = seen.unique(return_counts=True)
        if bool((count > 1).any()):
            at = facet[count > 1][0] == mesh._sets["boundary"].facet
            wrong = tuple(mesh._sets["boundary"].node.reshape(len(at), d)[at][0].tolist())
            raise error("sets", "each facet in one set at most", f"others for {wrong}")
        nodes = {name: (area > 1e-6 * whole).nonzero()[:, 0] for name, area in areas.items()}
        area = torch.cat([areas[name][node] for name, node in nodes.items()])
        walls = (torch.cat([*nodes.values()]), area, torch.zeros(len(area)))
        ranges = zip(nodes, torch.arange(len(area)).split([*map(len, nodes.values())]), strict=True)
        named = {name: walls for name, walls in ranges if name != "boundary"}
        faces = mesh.weight.abs()
        volumes = cls(mesh.edges, faces, mesh.volume, mesh.points, walls, domain, named)
        if mesh.elements:
            volumes.weight, volumes.mesh = mesh.weight, mesh
        return volumes

    @classmethod
    def from_mesh(cls, mesh: Any, sets: Mapping[str, Any] | None = None) -> FiniteVolumes:
        """The nodes of a mesh of meshio's, or of a `Data` or `Batch` of PyTorch Geometric's.

        Parameters
        ----------
        mesh
            As in `Mesh.from_mesh`. ``batch`` tells the domains of a `Batch` apart.
        sets : mapping, optional
            As in `from_cells`, beside those of the file.

        Raises
        ------
        ValueError
            As `from_cells`, and for missing attributes.
        """
        points, cells, groups, domain = read_mesh(mesh)
        facets = {name: group for name, group in groups.items() if group.ndim > 1}
        return cls.from_cells(points, cells, domain, {**facets, **(sets or {})})

    def _between(self, k: Tensor, arithmetic: Tensor | float, faces: Tensor | None) -> Tensor:
        """k of the edges, (B, E, C)."""
        if faces is None:
            in_series = 2 * (1 - arithmetic) / self.graph.sums_at_edges(k.reciprocal())[0]
            return in_series + 0.5 * arithmetic * self.graph.sums_at_edges(k)[0]
        self.require_faces()
        check_field("faces", faces)
        shape = (k.shape[0], self.graph.num_edges, k.shape[2])
        if tuple(faces.shape) != shape:
            raise error("faces", f"shape {shape}, an entry an edge", tuple(faces.shape))
        check_not_negative("faces", faces)
        return faces

    def circuit(
        self,
        conductivity: Tensor,
        absorption: Tensor | float = 0.0,
        boundary: str | Condition | Mapping[str, str | Condition] = "neumann",
        arithmetic: Tensor | float = 0.0,
        unit: float = 1.0,
        faces: Tensor | None = None,
    ) -> Circuit:
        r"""The circuits of :math:`-\nabla \cdot (k \nabla v) + c \, v = f` with k at the nodes.

        Parameters
        ----------
        conductivity : Tensor, shape (B, N, C)
            k > 0, or 0 where no gradient is asked for.
        absorption : float or Tensor that expands to (B, N, C)
            c per unit volume: >= 0, or complex at a frequency, as the leaks of `helmholtz`.
        boundary : str, Condition, or a mapping from names of `sets` to them
            What holds at the walls: one for all, or one a set; walls of no set are insulated then,
            and conditions on one wall add up. Numbers may be tensors that expand to (B, F, C), with
            an entry for each wall of the set in ascending order. As in `diffusion`, but
            "periodic" for domains without walls only. A `Dirichlet` of another value than 0 at
            walls without distance holds their nodes, as in `Mesh.diffusion`. Otherwise the distance
            of a wall counts as a millionth of the volume over its area at least, because
            conductances divide by it.
        arithmetic : float or Tensor, shape (C,)
            Weight, 0 to 1, of the arithmetic mean of both ends' k in the k of an edge; the rest is
            their harmonic mean.
        unit : float
            The domain's unit of length in that of k, c and f.
        faces : Tensor, shape (B, E, C), optional
            k of the edges, instead of a mean of k at both ends; not for linear elements.
        """
        d, n = self.positions.shape[1], self.num_nodes
        check_tensor("conductivity", conductivity)
        if conductivity.dim() != 3 or conductivity.shape[1] != n:
            expected = f"shape (B, N, C) with N = {n} nodes"
            raise error("conductivity", expected, tuple(conductivity.shape))
        check_field("conductivity", conductivity)
        check_not_negative("conductivity", conductivity)
        if not isinstance(arithmetic, Tensor):
            check_unit_interval(arithmetic=arithmetic)
        check_above(0, unit=unit)
        # Areas and distances may be beyond half precision.
        k = at_least_float32(conductivity) if self.mesh is None else widened(conductivity)

        def like_k(numbers: Tensor, power: int) -> Tensor:
            return (numbers * unit**power).to(k)[:, None]

        cells: list[tuple[Mesh, Tensor]] = []
        if self.mesh is not None and faces is None:
            corners = k[:, self.mesh.cells.to(k.device)]
            mean = (1 - arithmetic) / corners.reciprocal().mean(2) + arithmetic * corners.mean(2)
            edges = self.mesh.conductances(mean) * unit ** (d - 2)
            cells = [(self.mesh, mean)]
        else:
            edges = self._between(k, arithmetic, faces).to(k) * like_k(self.weight, d - 2)
        volume = like_k(self.volume, d)
        leak = density_of("absorption", absorption, k, NETWORK_DTYPES) * volume
        wall = Wall()
        held: list[Tensor] = []
        grounded: list[Tensor] = []
        away = False  # whether a potential is given at a distance
        value = torch.zeros_like(k)
        for name, condition in named_conditions(boundary, self.sets).items():
            some = self.sets[name]
            if condition.periodic and len(some):
                raise error("boundary", "no 'periodic' where there are walls", repr(boundary))
            node = self.walls.node[some].to(k.device)
            beside = k[:, node]
            numbers = {field: number for field, number, _ in numbers_on(name, condition, beside)}
            condition = dataclasses.replace(condition, **numbers)
            if isinstance(condition, Dirichlet):
                at_nodes = is_zero(condition.distance) and self._on_nodes[name]
                if at_nodes and is_zero(condition.value):
                    grounded.append(node)
                elif at_nodes:
                    # Behind a millionth of the distance, the current would be a difference of
                    # numbers that are equal in float32.
                    held.append(node)
                    held_at = number_on(f"{name}: value", condition.value, beside)
                    value = value.index_copy(1, node, held_at)
                    continue
                else:
                    away = True
            closed = numbers.get("coefficient", k.new_zeros(0))
            away |= bool(answer(lambda x=closed: bool(x.isinf().any()), closed))
            area = like_k(self.walls.area[some], d - 1)
            step = volume[node] / area
            distance = torch.maximum(like_k(self.walls.distance[some], 1), 1e-6 * step)
            face = Face(beside, area, distance, step, leak[:, node])
            added = condition.wall(face)
            wall = wall.plus(
                added.each(lambda x, node=node: x.new_zeros(k.shape).index_add(1, node, x))
            )
        total = leak if wall.conductance is None else leak + wall.conductance
        walls = {"wall": wall.conductance, "current": wall.current}
        circuit = Circuit(edges, total, self.graph, volume=volume, **walls)
        if not torch.compiler.is_compiling():
            # Walls at a distance obey the law of edges; elements' sizes are in the domain's unit.
            pinned = self._mask(grounded, k) if grounded else None
            if away or (cells and unit != 1):
                circuit.extents = partial(Extents, leak, held=pinned)
            elif cells:
                circuit.extents = partial(Extents, leak, cells=cells, held=pinned)
            else:
                circuit.extents = partial(self._extents, leak, k, unit, pinned)
        return circuit.hold(self._mask(held, k), value) if held else circuit

    def _extents(self, leak: Tensor, k: Tensor, unit: float, held: Tensor | None) -> Extents:
        edges = extents_of_edges(self.graph, self.positions, self.weight, k, unit)
        return Extents(leak, edges, held=held)

    def _mask(self, nodes: list[Tensor], k: Tensor) -> Tensor:
        mask = torch.zeros(self.num_nodes, dtype=torch.bool, device=k.device)
        return mask.index_fill(0, torch.cat(nodes), True)[:, None]


def _numbers(
    name: str, values: Any, *shape: int | str, least: float = 0.0, above: bool = False
) -> Tensor:
    """Finite numbers of at least, or above, `least` as a tensor of this shape."""
    numbers = real_numbers(name, values, torch.float64).double()
    check_shape(name, numbers, *shape)
    right = numbers.isfinite() & (numbers > least if above else numbers >= least)
    bound = "" if least == -math.inf else f" {'>' if above else '>='} {least:g}"
    check_each(name, numbers, right, f"finite numbers{bound}")
    return numbers
