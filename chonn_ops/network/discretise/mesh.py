r"""`Mesh`: circuits on triangles and tetrahedra, with everything about their boundaries.

Nodes are the corners of the cells. Around each lies its Voronoi cell, whose face towards a
neighbour j is at a right angle to the edge. A current through it is k |F_ij| / |e_ij| (v_i - v_j).
On triangles these are the conductances of linear finite elements, -k cot(angle) / 2 off the
diagonal. On tetrahedra they are not: linear elements have positive off-diagonals there even on
Delaunay meshes, and Voronoi faces have not.

A cell contributes a negative part of a face where it is obtuse. Only the sum over the cells around
an edge is an area, and it is never negative on a Delaunay mesh, but for cells at the boundary. On
other meshes circuits are those of linear elements: with the gradients of the functions that are 1
at one corner of a cell and linear in it, its edges conduct -|cell| grad_i . k grad_j, which may be
negative.

References: R. E. Bank, D. J. Rose, "Some error estimates for the box method", SIAM J. Numer. Anal.
24 (1987); M. Putti, C. Cordes, "Finite element approximation of the diffusion operator on
tetrahedra", SIAM J. Sci. Comput. 19 (1998).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chonn_ops._dtypes import at_least_float32, real_dtype, widened
from chonn_ops.boundary import Condition, Dirichlet, Face, named_conditions
from chonn_ops.checks import (
    NETWORK_DTYPES,
    answer,
    as_tensor,
    check_bool,
    check_field,
    check_not_negative,
    check_positive,
    check_tensor,
    error,
    expanded,
    is_integer,
)
from chonn_ops.network.circuit import Circuit, Extents
from chonn_ops.network.discretise.grids import check_tensors, density_of
from chonn_ops.network.layout.dissection import Array, begins
from chonn_ops.network.layout.graph import Graph, plain_tensors, real_numbers

# Both limits are relative to what a well-shaped cell contributes to a face. A contribution below
# `_NO_FACE` comes from a right angle and rounding, and makes no face. A sum below minus `_NEGATIVE`
# is an error; the limit allows for points that were rounded to float32 before.
_NO_FACE = 1e-12
_NEGATIVE = 1e-4
_FLAT = 1e-12  # heights of cells in parts of their longest edges
_SIMPLICES = ("tetra", "triangle", "line", "vertex")  # meshio's names
# Where nodes lie, in parts of facets, and where points that were rounded to float32 do.
_HANGING, _ROUNDED = 1e-9, 1e-6


class _Set(NamedTuple):
    """A part of the boundary. `nodes` are its nodes, and `area` (N,) is each node's share of its
    area. Entry i says that `part[i]` of the share of `node[i]` lies beside `cell[i]`. `facet` are
    the numbers of its facets, (F,), whose nodes are `node`, (F d,)."""

    nodes: Tensor
    facet: Tensor
    area: Tensor
    part: Tensor
    node: Tensor
    cell: Tensor


class Mesh:
    r"""Lines, triangles or tetrahedra, and the circuits of equations on them.

    Making it finds faces and orders nodes for elimination, so make it once for all conductivities.

    Parameters
    ----------
    points : Tensor or array, shape (N, D)
        Corners of the cells, D = 1, 2 or 3, in the unit of length.
    cells : Tensor or array of integers, shape (M, d + 1)
        The corners of each cell, in any order; d <= D. Triangles in space are a surface.
    sets : mapping from str to Tensor or array, optional
        Named parts of the boundary: nodes, as a mask (N,) of bool or as numbers (n,), or facets as
        the nodes of each, (F, d). A set of nodes has the boundary facets all of whose nodes are in
        it. Nodes may lie inside, to be held at a potential.
    elements : bool
        Linear elements in any case. By default they are for meshes with a negative Voronoi face.
    domain : Tensor or array, shape (N,), optional
        Which of several domains each node belongs to, where these overlap in space.

    Attributes
    ----------
    graph : Graph
    elements : bool
        Whether circuits are those of linear elements.
    weight : Tensor, shape (E,)
        Voronoi face over length, of each edge of the graph, or what linear elements of k = 1 make
        of it, which may be negative. A side of cells without a face is no edge.
    volume : Tensor, shape (N,)
        An equal part of each cell for each of its corners, or the volume of the Voronoi cell among
        tetrahedra. They sum to the volume of the mesh.
    points : Tensor, shape (N, D)
    edges : Tensor, shape (E, 2)
        The two nodes of each edge of the graph.
    cells : Tensor, shape (M, d + 1)
    sets : dict from str to Tensor
        The nodes of each set, and under "boundary" those of all boundary facets.
    area : dict from str to Tensor, shape (N,)
        Each node's share of the area of each set.

    Raises
    ------
    ValueError
        Another shape or dtype; an index out of range; a flat cell; cells that overlap; a facet of
        more than two cells, or with a node of other cells inside; a facet of a set that is not at
        the boundary.

    Examples
    --------
    The unit square, cut along a diagonal; 1 at the left side and 0 at the right:

    >>> import torch
    >>> from chonn_ops import Dirichlet, Mesh
    >>> mesh = Mesh(
    ...     [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.5, 0.5)],
    ...     [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)],
    ...     sets={"left": [0, 3], "right": [1, 2]},
    ... )
    >>> plates = {"left": Dirichlet(1.0), "right": Dirichlet(0.0)}
    >>> v = mesh.diffusion(torch.ones(1, 4, 1), boundary=plates).solve(torch.zeros(1, 5, 1))
    >>> v.flatten().tolist()
    [1.0, 0.0, 0.0, 1.0, 0.5]
    """

    @plain_tensors
    def __init__(
        self,
        points: Any,
        cells: Any,
        sets: Mapping[str, Any] | None = None,
        elements: bool = False,
        domain: Any = None,
    ) -> None:
        check_bool(elements=elements)
        numbers = real_numbers("points", points, torch.float64)
        self.points = numbers.double()
        if self.points.dim() != 2 or self.points.shape[1] not in (1, 2, 3):
            raise error("points", "shape (N, D) with D = 1, 2 or 3", tuple(self.points.shape))
        n, axes = self.points.shape
        self.cells = node_numbers("cells", cells, n)
        if self.cells.dim() != 2 or self.cells.shape[1] not in range(2, axes + 2) or not len(cells):
            kinds = ", ".join(("lines", "triangles", "tetrahedra")[:axes])
            expected = (
                f"shape (M, 2) to (M, {axes + 1}) of {kinds} with points of {axes} coordinates"
            )
            raise error("cells", expected, tuple(self.cells.shape))
        corners = self.points[self.cells]
        if len(wrong := self.cells[~corners.isfinite().all(-1)]):
            point = int(wrong[0])
            actual = f"{self.points[point].tolist()} of point {point}"
            raise error("points", "finite numbers", actual)
        rounded = numbers.is_floating_point() and numbers.dtype != torch.float64
        self._find_edges(corners, _NEGATIVE if rounded else _NO_FACE, elements)
        located = self.points
        if domain is not None:  # a coordinate that separates domains
            apart = real_numbers("domain", domain, torch.float64).double()
            located = torch.cat([located, apart[:, None]], 1)
        self._find_boundary(sets or {}, located, _ROUNDED if rounded else _HANGING)

    @classmethod
    def from_mesh(
        cls, mesh: Any, sets: Mapping[str, Any] | None = None, elements: bool = False
    ) -> Mesh:
        """A mesh of meshio's, or a `Data` of PyTorch Geometric's.

        Parameters
        ----------
        mesh
            With attributes ``points`` and ``cells_dict``, whose cells of most dimensions are taken;
            groups of their facets, such as gmsh's physical groups, become `sets`, of nodes where
            some are not at the boundary. Or with ``pos`` and ``face``, (3, T). Without ``face`` the
            triangles of a plane mesh are read from ``edge_index``, (2, E), with each edge in one or
            both directions: holes have more than three edges then.
        sets, elements : optional
            As in `Mesh`, beside the groups of the file.
        """
        points, cells, groups, _ = read_mesh(mesh)
        return cls(points, cells, {**groups, **(sets or {})}, elements)

    @cached_property
    def graph(self) -> Graph:
        """Nodes, and the edges that have a face."""
        return Graph(self.edges, len(self.points), self.points)

    @cached_property
    @plain_tensors
    def linear_elements(self) -> tuple[Tensor, Tensor]:
        """The gradients (M, d + 1, D) of the functions that are 1 at one corner of a cell and
        linear in it, and the sizes (M,) of cells."""
        return _elements(self.points[self.cells])

    def _find_edges(self, corners: Tensor, least: float, elements: bool) -> None:
        n, d = len(self.points), self.cells.shape[1] - 1
        pairs = list(combinations(range(d + 1), 2))
        part, scale = _faces(corners)
        ends, edge, _ = _distinct(self.cells[:, pairs].flatten(0, 1), n)

        def total(values: Tensor) -> Tensor:
            return values.new_zeros(len(ends)).index_add(0, edge, values)

        part, scale = part.flatten(), scale.flatten()
        part = torch.where(part.abs() > least * scale, part, 0)
        weight, scales = total(part), total(scale)
        self.elements = elements or bool((weight < -_NEGATIVE * scales).any())
        if self.elements:
            gradients, sizes = self.linear_elements
            first, second = (gradients[:, list(ends)] for ends in zip(*pairs, strict=True))
            part = -((first * second).sum(2) * sizes[:, None]).flatten()
            weight = total(part)
            some = total(part.abs()) > _NO_FACE * scales
        else:
            some = weight > least * scales
        self.weight = weight[some]
        number = torch.where(some, some.cumsum(0) - 1, -1)
        edge, cell = number[edge], torch.arange(len(part)) // len(pairs)
        counts = (edge >= 0) & (part != 0)
        self._edge, self._cell, self._share = edge[counts], cell[counts], part[counts]
        ends = ends[some]
        self.edges = ends
        if not self.elements:
            # The conductivity of a face is the mean of its cells', weighted by the sizes of their
            # parts: a sum of parts with signs could be negative where the conductivity jumps.
            share = self._share.abs()
            sums = share.new_zeros(len(self.weight)).index_add(0, self._edge, share)
            self._share = share * (self.weight / sums)[self._edge]
        if d == 2 or self.elements:
            nodes = self.cells.flatten()
            part = (self.linear_elements[1] / (d + 1)).repeat_interleave(d + 1)
        else:
            length = (self.points[ends[:, 0]] - self.points[ends[:, 1]]).square().sum(1)
            nodes, part = ends.flatten(), (self.weight * length / (2 * d)).repeat_interleave(2)
        self.volume = part.new_zeros(n).index_add(0, nodes, part)

    def _find_boundary(self, sets: Mapping[str, Any], located: Tensor, near: float) -> None:
        n, d = len(self.points), self.cells.shape[1] - 1
        pieces = list(combinations(range(d + 1), d))
        facets, which, count = _distinct(self.cells[:, pieces].flatten(0, 1), n)
        if bool((count > 2).any()):
            wrong = tuple(facets[count > 2][0].tolist())
            raise error("cells", "facets of at most two cells", f"more for the facet {wrong}")
        if d == self.points.shape[1]:  # a surface may fold
            # The facet, then the corner of the cell that is not on it.
            apex = self.cells[:, range(d, -1, -1)].flatten()
            frame = self.points[torch.cat([facets[which], apex[:, None]], 1)]
            side = torch.linalg.det(frame[:, 1:] - frame[:, :1]).sign()
            folded = (side.new_zeros(len(facets)).index_add(0, which, side) != 0) & (count == 2)
            if bool(folded.any()):
                wrong = tuple(facets[folded][0].tolist())
                got = f"two on one side of the facet {wrong}"
                raise error("cells", "no cells that overlap", got)
        cell = torch.empty(len(facets), dtype=torch.long)
        cell[which] = torch.arange(len(which)) // len(pieces)
        facets, cell = facets[count == 1], cell[count == 1]
        if (hanging := _hanging(located, facets, near)) is not None:
            node, facet = hanging
            got = f"node {node} on the facet {tuple(facets[facet].tolist())} of cell {cell[facet]}"
            raise error("cells", "neighbours that share whole facets", got)
        place = {tuple(facet): i for i, facet in enumerate(facets.tolist())}
        # Entries (facet, node of it): what part of the facet's area is nearest to the node.
        nearest = _cones(self.points[facets])
        equal = (nearest.sum(1, keepdim=True) / d).expand_as(nearest)

        def area(part: Tensor, of: Tensor) -> Tensor:
            return part.new_zeros(n).index_add(0, facets[of].flatten(), part[of].flatten())

        def set_of(nodes: Tensor, of: Tensor) -> _Set:
            by_volumes = not self.elements and bool((area(nearest, of) >= 0).all())
            part = nearest if by_volumes else equal
            entries = part[of].flatten(), facets[of].flatten(), cell[of].repeat_interleave(d)
            return _Set(nodes, of, area(part, of), *entries)

        self._sets = {"boundary": set_of(facets.unique(), torch.arange(len(facets)))}
        for name, group in sets.items():
            if name == "boundary":
                raise error("sets", "other names than 'boundary', which is all of it", repr(name))
            mask = as_tensor(f"sets[{name!r}]", group, "cpu")
            if mask.dtype == torch.bool:
                if mask.shape != (n,):
                    raise error(f"sets[{name!r}]", f"a mask of shape ({n},)", tuple(mask.shape))
                group = mask.nonzero()[:, 0]
            chosen = node_numbers(f"sets[{name!r}]", group, n)
            if chosen.dim() == 1 and len(chosen):
                among = torch.zeros(n, dtype=torch.bool)
                among[chosen] = True
                of = among[facets].all(1).nonzero()[:, 0]
            elif chosen.dim() == 2 and chosen.shape[1] == d and len(chosen):
                places = [place.get(tuple(sorted(facet))) for facet in chosen.tolist()]
                if None in places:
                    wrong = tuple(chosen[places.index(None)].tolist())
                    raise error(f"sets[{name!r}]", "facets at the boundary", f"the facet {wrong}")
                of = torch.tensor(places).unique()
            else:
                expected = f"a mask ({n},), nodes (n,) or facets (F, {d}), at least one of them"
                raise error(f"sets[{name!r}]", expected, f"shape {tuple(chosen.shape)}")
            self._sets[name] = set_of(chosen.unique(), of)
        named = [self._sets[name].facet for name in sets]
        unnamed = torch.ones(len(facets), dtype=torch.bool)
        unnamed[torch.cat([*named, facets.new_zeros(0)])] = False
        self._unnamed = set_of(facets[unnamed].unique(), unnamed.nonzero()[:, 0])
        self.sets = {name: part.nodes for name, part in self._sets.items()}
        self.area = {name: part.area for name, part in self._sets.items()}

    def diffusion(
        self,
        conductivity: Tensor,
        *,
        boundary: str | Condition | Mapping[str, str | Condition] = "neumann",
        absorption: Tensor | float = 0.0,
    ) -> Circuit:
        r"""The circuit of :math:`-\nabla \cdot (k \nabla v) + c \, v = f`.

        It is exact for potentials that are linear in a medium of one k, and of second order on
        smooth ones. With `elements`, and of tensors k, it has the matrix of linear elements of k in
        pieces and lumped volumes and walls. Else the conductivity of a Voronoi face is the mean of
        those of the cells around its edge, weighted by the sizes of their parts of it. That is the
        same where no triangle is obtuse opposite the edge; elsewhere k is blurred over the cells of
        the edge.

        Parameters
        ----------
        conductivity : Tensor, shape (B, M, C); or (B, M, C, D, D), symmetric
            k of each cell, >= 0 or of any direction. Tensors of tetrahedra need `elements`.
        boundary : str, Condition, or a mapping from names of sets to them
            What holds at the boundary: one for all of it, or one a set; facets of no set are
            insulated, and conditions on one facet add up. As in `diffusion`, but for "periodic"
            and "matched", with a tensor k for a `Dirichlet` at a distance, and for infinities in a
            tensor. Numbers may be tensors that expand to (B, N, C). A `Dirichlet`
            without a distance holds the nodes of its set themselves, whatever their sources, and
            goes before other conditions there; of two of them the last one holds.
        absorption : float or Tensor that expands to (B, N, C)
            c at each node, per unit volume: >= 0, or complex at a frequency, as the leaks of
            `helmholtz`.

        Returns
        -------
        Circuit
            Its fields are (B, N, C), in float64 with `elements`. Its graph is `graph`, or with a
            tensor k one of all sides. Its `solve` takes f per unit volume at nodes. `currents` has
            what flows through a set in the walls of its nodes.

        Raises
        ------
        TypeError, ValueError
            As `diffusion`; also for the name of no set, and a condition that needs facets for a set
            without any.
        """
        (n, axes), (M, corners) = self.points.shape, self.cells.shape
        check_tensor("conductivity", conductivity)
        tensor = conductivity.dim() == 5
        check_field("conductivity", conductivity[..., 0, 0] if tensor else conductivity)
        B, C, wanted = conductivity.shape[0], conductivity.shape[2], (axes, axes) if tensor else ()
        if conductivity.shape != (B, M, C, *wanted):
            expected = f"shape (B, M, C) with M = {M} cells, or (B, M, C, {axes}, {axes})"
            raise error("conductivity", expected, tuple(conductivity.shape))
        if tensor and corners == 4 and not self.elements:
            expected = "no tensors of tetrahedra but with elements=True"
            raise error("conductivity", expected, tuple(conductivity.shape))
        # Rounding of conductances counts for more where they cancel.
        wide = widened(conductivity) if self.elements else at_least_float32(conductivity)
        k = wide.diagonal(dim1=-2, dim2=-1).mean(-1) if tensor else wide
        check_not_negative("conductivity", k)
        density = density_of(
            "absorption", absorption, k.new_zeros(1).expand(B, n, C), NETWORK_DTYPES
        )
        k = k.to(real_dtype(density.dtype))

        def like(values: Tensor) -> Tensor:
            """Numbers of entries as a factor of fields, or as indices."""
            if not values.is_floating_point():
                return values.to(k.device)
            return values.to(k.device, k.dtype)[:, None]

        if tensor:
            check_tensors("conductivity", wide)
            graph, g = self.tensor_conductances(wide.to(k.dtype))
        else:
            graph, g = self.graph, self.conductances(k)
        volume = like(self.volume)
        leak, wall, current = density * volume, k.new_zeros(B, n, C), k.new_zeros(B, n, C)
        held, value = torch.zeros(n, dtype=torch.bool, device=k.device), current
        far = False  # whether a potential is given at a distance, through no cell
        for name, condition in named_conditions(boundary, self._sets, inner=True).items():
            part = self._sets[name]
            nodes = like(part.nodes)
            if isinstance(condition, Dirichlet) and is_zero(condition.distance):
                held = held.index_fill(0, nodes, True)
                held_at = number_on(f"{name}: value", condition.value, value)
                value = value.index_copy(1, nodes, held_at[:, nodes])
                continue
            far |= isinstance(condition, Dirichlet)
            if tensor and far:
                raise error(f"boundary[{name!r}]", "no distance with a tensor k", condition)
            if not len(part.part) and name != "boundary":  # a closed surface has none
                raise error(f"boundary[{name!r}]", "Dirichlet for a set without facets", condition)
            area = like(part.area)[nodes]
            entries = k.index_select(1, like(part.cell)) * like(part.part)
            beside = torch.zeros_like(wall).index_add(1, like(part.node), entries)[:, nodes]
            beside = torch.where(area > 0, beside / torch.where(area > 0, area, 1), 0)
            numbers = {}
            for field, whole, least in numbers_on(name, condition, value):
                if field == "distance":
                    check_positive(f"{name}: {field}", whole)
                infinite = least == 0 and answer(lambda x=whole: bool(x.isinf().any()), whole)
                if infinite:
                    expected = "finite numbers (`Dirichlet` holds a potential)"
                    raise error(f"{name}: {field}", expected, "infinite ones")
                numbers[field] = whole[:, nodes]
            face = Face(beside.clamp(min=0), area, 0.0, 0.0, leak[:, nodes])
            added = dataclasses.replace(condition, **numbers).wall(face)
            if added.conductance is not None:
                wall = wall.index_add(1, nodes, added.conductance)
            if added.current is not None:
                current = current.index_add(1, nodes, added.current.expand(B, len(nodes), C))
        circuit = Circuit(g, leak + wall, graph, volume=volume, wall=wall, current=current)
        circuit.extents = partial(self._extents, leak, None if tensor or far else k)
        circuit = circuit.hold(held[:, None], value)
        if not (tensor or self.elements) and answer(lambda: bool((k == 0).any()), k):
            circuit.rising = partial(self._risen, k.detach(), boundary)
        return circuit

    def conductances(self, k: Tensor) -> Tensor:
        """Conductances (B, E, C) of numbers k >= 0 of cells, (B, M, C)."""
        edge, cell = self._edge.to(k.device), self._cell.to(k.device)
        part = k.index_select(1, cell) * self._share.to(k)[:, None]
        return k.new_zeros(k.shape[0], len(self.weight), k.shape[2]).index_add(1, edge, part)

    def _extents(self, leak: Tensor, k: Tensor | None) -> Extents:
        """Lengths and areas of edges, or cells of linear elements, between whose nodes there are
        no faces; nothing where k is None."""
        if k is None or self.elements:
            return Extents(leak, cells=() if k is None else [(self, k)])
        return Extents(leak, extents_of_edges(self.graph, self.points, self.weight, k))

    def _risen(self, k: Tensor, boundary: Any) -> Circuit:
        """The circuit where cells of no conductivity conduct less than all others, all the same."""
        least = torch.where(k > 0, k, math.inf).amin()
        small = torch.where(least.isfinite(), least, 1) * 2.0**-30
        return self.diffusion(torch.where(k == 0, small, k) / small, boundary=boundary)

    @cached_property
    @plain_tensors
    def sides(self) -> tuple[Graph, Tensor]:
        """The graph of all sides of cells, and the number of each cell's."""
        pairs = list(combinations(range(self.cells.shape[1]), 2))
        ends, edge, _ = _distinct(self.cells[:, pairs].flatten(0, 1), len(self.points))
        return Graph(ends, len(self.points), self.points), edge

    def tensor_conductances(self, k: Tensor) -> tuple[Graph, Tensor]:
        """Graph and conductances of linear elements."""
        graph, edge = self.sides
        gradients, sizes = (x.to(k) for x in self.linear_elements)
        first, second = (
            gradients[:, list(ends), None]  # (M, sides, 1, D)
            for ends in zip(*combinations(range(self.cells.shape[1]), 2), strict=True)
        )
        # No matrix product, which autocast would round to half precision.
        products = first[..., :, None] * k[:, :, None] * second[..., None, :]
        parts = (-products.sum((-2, -1)) * sizes[:, None, None]).flatten(1, 2)
        B, C, to = k.shape[0], k.shape[2], edge.to(k.device)

        def total(values: Tensor) -> Tensor:
            return values.new_zeros(B, graph.num_edges, C).index_add(1, to, values)

        g, rounding = total(parts), 4 * torch.finfo(k.dtype).eps * total(parts.detach().abs())
        return graph, torch.where((g < 0) & (g >= -rounding), 0, g)

    def gradient(self, v: Tensor) -> Tensor:
        """Gradients of potentials v, (B, N, C) or (B, S, N, C), that are linear in each cell:
        (B, M, C, D) or (B, S, M, C, D). The flux in a cell is -k times that."""
        check_tensor("v", v)
        if v.dim() not in (3, 4) or v.shape[-2] != len(self.points):
            raise error(
                "v", f"shape (B, N, C) or (B, S, N, C), N = {len(self.points)}", tuple(v.shape)
            )
        at = v.index_select(-2, self.cells.flatten().to(v.device)).unflatten(-2, self.cells.shape)
        return (at[..., None] * self.linear_elements[0].to(v)[:, :, None]).sum(-3)

    def __repr__(self) -> str:
        return f"Mesh of {len(self.points)} nodes and {len(self.cells)} cells"


def _elements(corners: Tensor) -> tuple[Tensor, Tensor]:
    """`Mesh.linear_elements` of simplices (M, d + 1, D)."""
    q, r = torch.linalg.qr((corners[:, 1:] - corners[:, :1]).mT)
    others = torch.linalg.solve_triangular(r, q.mT, upper=True)
    gradients = torch.cat([-others.sum(1, keepdim=True), others], 1)
    sizes = r.diagonal(dim1=1, dim2=2).prod(1).abs() / math.factorial(r.shape[1])
    return gradients, sizes


def _hanging(points: Tensor, facets: Tensor, limit: float) -> tuple[int, int] | None:
    """A node on one of the facets (F, d) at the boundary, up to `limit` of its length, other than
    its corners, and that facet; None where there is none."""
    corners, nodes = points[facets], facets.unique()
    if facets.shape[1] < 2 or not len(facets):  # a closed surface has no facets at a boundary
        return None
    # Nodes in order along a direction that few facets are at a right angle to.
    sides = points[nodes].amax(0) - points[nodes].amin(0)
    along = (points * (torch.arange(1, points.shape[1] + 1).sqrt() / sides.clamp_min(_FLAT))).sum(1)
    nodes = nodes[along[nodes].argsort()]
    low = torch.searchsorted(along[nodes], along[facets].amin(1))
    count = torch.searchsorted(along[nodes], along[facets].amax(1), right=True) - low
    gradients, _ = _elements(corners)
    length = (corners[:, 1] - corners[:, 0]).norm(dim=1, keepdim=True)
    least, most = corners.amin(1) - limit * length, corners.amax(1) + limit * length
    for some in torch.arange(len(facets)).split(max(1, 2**21 // int(count.amax()))):
        facet = some.repeat_interleave(count[some])
        first = (count[some].cumsum(0) - count[some]).repeat_interleave(count[some])
        node = nodes[low[facet] + torch.arange(len(facet)) - first]
        near = ((points[node] >= least[facet]) & (points[node] <= most[facet])).all(1)
        node, facet = node[near], facet[near]
        off = points[node] - corners[facet, 0]
        part = (gradients[facet] * off[:, None]).sum(2)
        part[:, 0] += 1
        beside = (points[node] - (part[..., None] * corners[facet]).sum(1)).abs()
        inside = (part > -limit).all(1) & (part < 1 - limit).all(1)
        hanging = inside & (beside < limit * length[facet]).all(1)
        if bool(hanging.any()):
            return int(node[hanging][0]), int(facet[hanging][0])
    return None


def read_mesh(mesh: Any) -> tuple[Any, Any, dict[str, Any], Any]:
    """Points, cells, facets by name and domains of what `Mesh.from_mesh` takes. Coordinates behind
    those of the cells' dimension are left out where they are all the same."""
    pos, face, edges = (getattr(mesh, name, None) for name in ("pos", "face", "edge_index"))
    sets: dict[str, Any] = {}
    if hasattr(mesh, "cells_dict"):
        kinds = [name for name in _SIMPLICES if name in mesh.cells_dict]
        if not kinds:
            raise error("mesh", f"cells of a kind of {_SIMPLICES[:-1]}", list(mesh.cells_dict))
        pos, cells = mesh.points, mesh.cells_dict[kinds[0]]
        sets = _groups(mesh, cells, _SIMPLICES[_SIMPLICES.index(kinds[0]) + 1])
    elif pos is None or (face is None and edges is None):
        raise error("mesh", "points and cells_dict, or pos and face or edge_index", repr(mesh))
    elif face is None:
        at = real_numbers("pos", pos, torch.float64).numpy()
        cells = _triangles(real_numbers("edge_index", edges).numpy(), at)
    else:
        cells = real_numbers("face", face).numpy().T
    points = real_numbers("points", pos, torch.float64)
    d = len(cells[0]) - 1 if len(cells) else 1
    if points.dim() == 2 and bool((points[:, d:] == points[:1, d:]).all()):
        points = points[:, :d]
    return points, cells, sets, getattr(mesh, "batch", None)


def _groups(mesh: Any, cells: Array, facet: str) -> dict[str, Array]:
    """Groups of facets (F, d) of a mesh of meshio's, whose kind is `facet`, by name; their nodes
    where a facet is not that of one cell alone."""
    blocks = [x for x in enumerate(getattr(mesh, "cells", ())) if x[1].type == facet]
    # In files of gmsh's older format groups are numbers of cells.
    groups, numbers = getattr(mesh, "cell_sets", {}), getattr(mesh, "field_data", {})
    tags = getattr(mesh, "cell_data", {}).get("gmsh:physical", [])
    d = cells.shape[1] - 1
    sides = np.concatenate([cells[:, list(x)] for x in combinations(range(d + 1), d)])
    sets: dict[str, Array] = {}
    for name in {**groups, **(numbers if tags else {})}:
        of = groups.get(name) or [np.flatnonzero(x == numbers[name][0]) for x in tags]
        chosen = [block.data[of[i]] for i, block in blocks if np.size(of[i])]
        if chosen and not name.startswith("gmsh:"):
            group = np.concatenate(chosen)
            both = torch.from_numpy(np.concatenate([sides, group]).astype(np.int64))
            which = _distinct(both, len(mesh.points))[1]
            of_cells = which[: len(sides)].bincount(minlength=len(both))[which[len(sides) :]]
            sets[name] = np.unique(group) if bool((of_cells != 1).any()) else group
    return sets


def _triangles(edge_index: Array, points: Array) -> Array:
    """The triangles (T, 3) of a plane mesh: its cycles of three edges that hold no node inside."""
    n = len(points)
    if edge_index.shape[:1] != (2,) or not np.isin(edge_index, np.arange(n)).all():
        raise error("edge_index", f"nodes from 0 to {n - 1}, of shape (2, E)", edge_index.shape)
    p, q = np.unique(np.sort(edge_index, axis=0), axis=1)
    at = np.searchsorted(p, np.arange(n + 1))
    count = np.diff(at)[q]
    edge = np.repeat(np.arange(len(p)), count)
    last = q[at[q[edge]] + np.arange(len(edge)) - np.repeat(begins(count)[:-1], count)]
    closed = np.isin(p[edge] * n + last, p * n + q)
    cells = np.stack([p[edge], q[edge], last], 1)[closed]
    a, b = (points[cells[:, i]] - points[cells[:, 0]] for i in (1, 2))
    area = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    cells[area < 0] = cells[area < 0][:, [0, 2, 1]]
    # A cycle with nodes inside has a smaller triangle on the same side of some of its edges.
    cells = cells[np.argsort(np.abs(area), kind="stable")]
    start, end = cells.ravel(), np.roll(cells, -1, axis=1).ravel()
    first = np.unique(start * n + end, return_index=True)[1]
    smallest = np.isin(np.arange(3 * len(cells)), first).reshape(-1, 3).all(1)
    side = np.repeat(smallest, 3)
    used = np.minimum(start, end)[side] * n + np.maximum(start, end)[side]
    missing = np.setdiff1d(p * n + q, used)
    if len(missing):
        alone = divmod(int(missing[0]), n)
        raise error("edge_index", "edges of triangles only, or face", f"edge {alone} of none")
    return cells[smallest]


def node_numbers(name: str, values: Any, num_nodes: int, kind: str = "nodes") -> Tensor:
    """Numbers of nodes, or of another kind."""
    numbers = real_numbers(name, values)
    if numbers.numel() and not is_integer(numbers):
        raise error(name, "integers", numbers.dtype)
    numbers = numbers.long()
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < num_nodes:
        wrong = int(numbers[(numbers < 0) | (numbers >= num_nodes)][0])
        raise error(name, f"{kind} from 0 to {num_nodes - 1}", wrong)
    return numbers


def _distinct(rows: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The different sets of nodes among rows, which of them each row is, and how often each is."""
    powers = num_nodes ** torch.arange(rows.shape[1] - 1, -1, -1)
    keys = (rows.sort(-1).values * powers).sum(1)
    key, which, count = torch.unique(keys, return_inverse=True, return_counts=True)
    return key[:, None] // powers % num_nodes, which, count


def extents_of_edges(
    graph: Graph, points: Tensor, weight: Tensor, k: Tensor, unit: float = 1.0
) -> list[tuple[Tensor, Tensor]]:
    """Lengths and areas of edges that have faces, whose weights are areas over lengths in a `unit`.
    An edge without a face counts as one of area 1: its conductance is 0."""
    first, second = points[graph.ends]
    length = (first - second).norm(dim=-1)
    area = torch.where(weight != 0, weight * length * unit ** (points.shape[1] - 1), 1)
    return [((length * unit).to(k)[:, None], area.to(k)[:, None])]


def is_zero(number: Any) -> bool:
    """Whether a number of a condition is 0; a Tensor, which is not read, is none."""
    return not isinstance(number, Tensor) and number == 0


def numbers_on(
    name: str, condition: Condition, field: Tensor
) -> Iterator[tuple[str, Tensor, float]]:
    """The numbers of a condition that are tensors, by name, as fields, with the least that each may
    be."""
    for number, value, least in condition.numbers():
        if isinstance(value, Tensor):
            whole = number_on(f"{name}: {number}", value, field)
            if least == 0:
                check_not_negative(f"{name}: {number}", whole)
            yield number, whole, least


def number_on(name: str, value: Any, field: Tensor) -> Tensor:
    """A number of a condition as a field."""
    if isinstance(value, Tensor) and value.is_complex():
        raise error(name, "real numbers", value.dtype)
    return expanded(name, value, field).to(field.dtype)


def _faces(corners: Tensor) -> tuple[Tensor, Tensor]:
    """What each simplex contributes to |F| / \\|e\\| of its edges, in the order of `combinations`,
    and the size of such a part in a well-shaped simplex; (cells, edges) each.

    `corners` is (cells, m + 1, d) with m <= d. The part of a face leads from the middle of its edge
    to the circumcentre of the simplex, by those of the simplices between them; each step is at a
    right angle to the others and negative where it leads away from the next corner.
    """
    m = corners.shape[1] - 1
    sides = [corners[:, j] - corners[:, i] for i, j in combinations(range(m + 1), 2)]
    lengths = torch.stack([side.norm(dim=1) for side in sides], 1)
    longest = lengths.amax(1)
    parts = []
    for (i, j), side in zip(combinations(range(m + 1), 2), sides, strict=True):
        length = side.norm(dim=1, keepdim=True)
        total = torch.zeros_like(length)
        for order in permutations(k for k in range(m + 1) if k not in (i, j)):
            centre, squared = (corners[:, i] + corners[:, j]) / 2, length.square() / 4
            directions, face = [side / length], torch.ones_like(length)
            for corner in order:
                to = corners[:, corner] - centre
                normal = to
                for direction in directions:
                    normal = normal - (normal * direction).sum(1, keepdim=True) * direction
                height = normal.norm(dim=1, keepdim=True)
                flat = ~(height[:, 0] > _FLAT * longest)
                if bool(flat.any()):
                    raise error("cells", "no flat cell", f"cell {int(flat.nonzero()[0])}")
                step = (to.square().sum(1, keepdim=True) - squared) / (2 * height)
                directions.append(normal / height)
                centre, squared = centre + step * directions[-1], squared + step.square()
                face = face * step
            total = total + face
        parts.append(total / (math.factorial(m - 1) * length))
    return torch.cat(parts, 1), longest[:, None] ** (m - 1) / lengths


def _cones(corners: Tensor) -> Tensor:
    """The part of each simplex's volume that is nearest to each corner, with its sign, (cells,
    m + 1): cones over Voronoi faces, half an edge high."""
    m = corners.shape[1] - 1
    if not m:
        return torch.ones_like(corners[..., 0])
    part, _ = _faces(corners)
    volume = torch.zeros_like(corners[..., 0])
    for (i, j), weight in zip(combinations(range(m + 1), 2), part.unbind(1), strict=True):
        cone = weight * (corners[:, j] - corners[:, i]).square().sum(1) / (2 * m)
        volume[:, i] += cone
        volume[:, j] += cone
    return volume
