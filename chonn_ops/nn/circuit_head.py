"""`CircuitHead`: features of points set the elements of one circuit an output, whose potential is
the output."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.boundary import CONDITIONS, Condition, Dirichlet, Neumann, Robin, conditions
from chonn_ops.checks import GRID_AXES, as_field, check_bool, check_choice, check_integer, error
from chonn_ops.network.circuit import Circuit
from chonn_ops.network.discretise.grids import Spacing, circuit_of, edges_within, face_area
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.nn.geometry import (
    Geometry,
    Nodes,
    check_volumes,
    checked_nodes,
    distances_of,
    existing,
    spacing_and_nodes,
    wall_distances,
)
from chonn_ops.nn.layers import Stated

# The mean of faces and the logarithms of walls' distances have further to move than weights at the
# same learning rate, and potentials of walls less far: on Darcy flow of contrast 1,000, 12 s of one
# core, errors were 0.041 with a gain of 8 for potentials of walls, 0.0012 with 1 and 0.0008 with
# 0.2. From a calibrated start, a gain of 8 for scale, offset and absorption made errors higher
# there; without that of distances, the law of a porous medium was read with an error of 2 %, with
# it of 0.4 %.
MEAN_GAIN, LEVEL_GAIN, DISTANCE_GAIN = 4.0, 0.2, 8.0
# Channels of the network of both ends of a face.
FACE_WIDTH = 8
# Absorption at the start, in the unit of the conductivity over that of length squared.
ABSORPTION = -9.0
# At a frequency, conductivities and leaks set phases: moved as fast as those of other circuits,
# they cross resonances. Errors of Helmholtz's equation in a box after 600 steps were 0.98 at a rate
# of 1e-2 with gains of 1 and 0.3; 0.0065 at 2e-2 with 0.1, and 0.0005 with 0.03.
WAVE_GAIN = 0.03
# Distance of learned walls behind their face at the start, over the domain's unit of length: close
# to a given potential at the face itself.
DISTANCE = 0.01
# Resistance of the film of learned walls at the start, over that of their distance in a medium of
# conductivity 1. A distance alone conducts as the medium does: errors of heat in a part behind a
# film were 0.091 without films and 0.017 with them, after 20 s of one core.
FILM = 0.001
# Logarithms of conductivities stay between these bounds, those of faces between twice them.
LARGEST_LOG = 15.0


def wall_distance(parameter: Tensor) -> Tensor:
    """How far learned walls lie behind their face, over the domain's unit of length."""
    return DISTANCE * (DISTANCE_GAIN * parameter).clamp(-12, 12).exp()


def mean_of_ends(a: Tensor, b: Tensor, mean: Tensor, added: Tensor | float = 0.0) -> Tensor:
    """The conductivity of a face, from the logarithms of both nodes': their arithmetic mean for
    ``mean = 1``, the geometric one for 0, the harmonic one for -1; times the exponential of what
    is added to its logarithm."""
    half = (a - b).abs() / 2
    log_cosh = half + F.softplus(-2 * half) - math.log(2)
    most = 2 * LARGEST_LOG
    return ((a + b) / 2 + mean * log_cosh + added).clamp(-most, most).exp()


def edge_cosines(volumes: FiniteVolumes) -> Tensor:
    """Directions of a mesh's edges, (axes, 1, E, 1), of length 1."""
    p, q = volumes.graph.ends.cpu()
    along = volumes.positions[q] - volumes.positions[p]
    cosine = along / along.norm(dim=1, keepdim=True).clamp_min(1e-300)
    return cosine.T[:, None, :, None]


class FaceNetwork(nn.Module):
    """What features of both ends add to the logarithm of a face's conductivity.

    A network of one layer sees the sum of both ends' features and the square of their difference,
    so a face is the same from both sides, and outputs converge with the second order of the
    spacing. `sided` adds a square with the sign of the difference along the axis, which tells the
    sides that touch. Nothing is added between equal ends, nor at the start. Without the square,
    errors on Darcy flow of contrast 1,000 were 0.0006 and not 0.0004; with the signed one, too,
    they were 0.0003 and not 0.0001 there, and after 500 steps of upscaling 0.066 and not 0.077.
    """

    def __init__(
        self,
        dim: int,
        axes: int,
        out_channels: int,
        gain: float = 1.0,
        *,
        sided: bool = False,
        **factory: Any,
    ) -> None:
        super().__init__()
        self.gain = gain
        self.sums = nn.Linear(dim, axes * FACE_WIDTH, **factory)
        self.differences = nn.Linear(dim, axes * FACE_WIDTH, bias=False, **factory)
        self.sides = nn.Linear(dim, axes * FACE_WIDTH, bias=False, **factory) if sided else None
        self.output = nn.Linear(FACE_WIDTH, out_channels, bias=False, **factory)
        nn.init.zeros_(self.output.weight)

    def forward(self, h: Tensor, volumes: FiniteVolumes | None = None) -> list[Tensor]:
        """What is added at edges: from features of nodes (B, \\*grid, dim) along each axis between
        a node and the next, (B, \\*grid, out_channels); from those of a mesh, (B, N, dim), at its
        edges, (B, E, out_channels)."""
        layers = (self.sums, self.differences, self.sides)
        parts = [layer(h).unflatten(-1, (-1, FACE_WIDTH)) for layer in layers if layer is not None]
        if volumes is None:
            parts.append(F.gelu(2 * parts[0]))
            along = zip(*(part.unbind(-2) for part in parts), strict=True)
            return [
                self._added(near, [x.roll(-1, axis) for x in near])
                for axis, near in enumerate(along, 1)
            ]
        # Along an edge, what belongs to axes counts as the squares of its direction, and what has
        # a sign as the direction.
        cosine = edge_cosines(volumes).to(parts[0]).permute(1, 2, 0, 3)
        ends = []
        for nodes in volumes.graph.ends.to(h.device):
            shares = zip((cosine**2, cosine**2, cosine), parts, strict=False)
            end = [(share * part[:, nodes]).sum(-2) for share, part in shares]
            ends.append([*end, F.gelu(2 * end[0])])
        return [self._added(*ends)]

    def _added(self, low: Sequence[Tensor], high: Sequence[Tensor]) -> Tensor:
        """What is added at edges, from the sums, differences, perhaps sides, and gelu(2 sums) of
        both ends."""
        (a, x, *s, alike_a), (b, y, *t, alike_b) = low, high
        seen = a + b + (x - y).square()
        for side_a, side_b in zip(s, t, strict=True):
            seen = seen + (side_b - side_a) * (side_b - side_a).abs()
        return self.gain * self.output(F.gelu(seen) - (alike_a + alike_b) / 2)


class CircuitHead(Stated):
    r"""Features of points to potentials: one circuit for each output.

    With features h of a point, along each axis a::

        log k_a = W_a h,  f = W_f h + b,  c = exp(p - 9)
        -div(k grad v) + c v = f
        u = exp(q) (v + z h^2 f / k + r)

    solved by finite volumes, of which u is the output. The face between two nodes conducts with
    a learned mean of both k, from harmonic to arithmetic, times a factor that a network of both
    nodes' features sets where they differ. Each face of the domain is a wall with a learned
    potential behind a learned film, at a learned distance behind the face: near walls hold the
    potential, far ones insulate. z h^2 f / k, h^d the volume of a cell, says what an output means:
    a value at a point or a mean over its cell.

    With ``ac=True`` circuits are at a frequency, as those of `chonn_ops.helmholtz`, and their
    leaks follow the features::

        log k_a = 0.03 W_a h,  f = W_f h + b + i (W_g h + d)
        c = exp(a) - exp(b) - i exp(l)
        (a, b) = 0.03 (W_c h + p) - 9,  l = W_l h + p - 9

    Outputs are the real and the imaginary part of each circuit; a single one is a real part.
    Fields vary in time as exp(-i omega t), so a "matched" wall lets waves out.

    Weights belong to the domain and not to a grid: a trained head can be evaluated on finer grids,
    with a mask, and on meshes. All numbers that are learned are in the state dict.

    All numbers above are parameters times ``pace``, a buffer of the state dict, which is 1 until
    `set_pace` changes it: so many times as far a step of an optimiser moves them.

    Parameters
    ----------
    dim : int
        Channels of the features.
    spatial_dims : {1, 2, 3}
        Axes of the grid.
    out_channels : int
        Outputs, of one circuit each; with `ac` two of one circuit.
    boundary : str, Condition, a sequence, or a mapping of names of walls to them
        "robin", the learned walls, by default; one for all faces, or for each axis one or a pair
        (low face, high face). The other words are those of `chonn_ops.diffusion`, and conditions
        such as ``Dirichlet(1.0)`` hold in the unit of the output. On a mesh one for all walls,
        which are one wall then, or a mapping from names of `FiniteVolumes.sets`.
    inner : str or Condition
        The same for walls of holes in a mask.
    nodes : {"centres", "left", "corners"}, or distances
        Where the nodes of a grid lie, see `chonn_ops.Network`.
    ac : bool
        Whether circuits are at a frequency.
    face_dim : int, optional
        So many of the features, the first ones, about unit size, are seen by the network of both
        nodes. Default: all.
    sided : bool
        Whether this network may tell a face's sides apart, as features of what lies on them need.
    device, dtype
        As in `torch.nn`.

    Raises
    ------
    ValueError
        For sizes below 1 or an unknown boundary.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops.nn import CircuitHead
    >>> head = CircuitHead(16, spatial_dims=2)
    >>> head(torch.randn(4, 32, 48, 16)).shape
    torch.Size([4, 32, 48, 1])
    """

    pace: Tensor

    def __init__(
        self,
        dim: int,
        spatial_dims: int = 2,
        out_channels: int = 1,
        *,
        boundary: Any = "robin",
        inner: str | Condition = "robin",
        nodes: Nodes = "centres",
        ac: bool = False,
        face_dim: int | None = None,
        sided: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, dim=dim, out_channels=out_channels)
        check_bool(ac=ac, sided=sided)
        if ac and out_channels > 1 and out_channels % 2:
            raise error("out_channels", "1 or an even number with ac", out_channels)
        check_choice("spatial_dims", spatial_dims, (1, 2, 3))
        self.dim, self.spatial_dims, self.out_channels = dim, spatial_dims, int(out_channels)
        self.ac, self.num_circuits = ac, (out_channels + 1) // 2 if ac else self.out_channels
        self.nodes = checked_nodes(nodes)
        # "robin" stands for a wall of its own at each place where it is said.
        self.learned: list[Any] = []
        self.boundary, self._alike = boundary, isinstance(boundary, (str, Condition))
        if isinstance(boundary, Mapping):
            self._faces: Any = {name: self._face(name, x) for name, x in boundary.items()}
        else:
            known = (boundary,) * spatial_dims if self._alike else boundary
            pairs = [x if isinstance(x, (tuple, list)) else (x, x) for x in known]
            self._faces = [
                [self._face((axis, end), x) for end, x in enumerate(pair)]
                for axis, pair in enumerate(pairs)
            ]
            conditions([tuple(_known(x) for x in pair) for pair in pairs], spatial_dims)
        self._inner = self._face("inner", inner)
        # Which axes of a grid close on themselves.
        grid = [] if isinstance(self._faces, Mapping) else self._faces
        self.periodic = [getattr(low, "periodic", False) for low, _ in grid]
        m, factory = self.num_circuits, {"device": device, "dtype": dtype}
        parts, gain = (3, WAVE_GAIN) if ac else (1, 1.0)
        self.conductivity = nn.Linear(dim, spatial_dims * m, bias=False, **factory)
        self.source = nn.Linear(dim, 2 * m if ac else m, **factory)
        self.leak = nn.Linear(dim, parts * m, bias=False, **factory) if ac else None
        self.register_buffer("pace", torch.ones((), **factory))
        self.face_dim = dim if face_dim is None else face_dim
        self.faces = FaceNetwork(self.face_dim, spatial_dims, m, gain, sided=sided, **factory)

        def zeros(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*size, **factory))

        self.absorption = zeros(parts * m)
        self.mean, self.cell, self.scale, self.offset = (zeros(m) for _ in range(4))
        # Potential, distance and film of each learned wall.
        self.level, self.distance, self.film = (zeros(len(self.learned), m) for _ in range(3))
        with torch.no_grad():  # a constant source in a medium that is nearly constant
            self.conductivity.weight.mul_(0 if ac else 0.1)
            nn.init.zeros_(self.source.weight)
            nn.init.zeros_(self.source.bias)
            self.source.bias[:m] = 1
            if self.leak is not None:
                nn.init.zeros_(self.leak.weight)

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""

        def said(face: Any) -> Any:
            return "robin" if isinstance(face, int) else face

        if isinstance(self._faces, Mapping):
            faces: Any = {name: said(face) for name, face in self._faces.items()}
        else:
            faces = [[said(face) for face in pair] for pair in self._faces]
        nodes = distances_of(self.nodes, self.spatial_dims)
        # The order of names decides which learned wall is whose.
        return {
            "boundary": faces,
            "inner": said(self._inner),
            "nodes": nodes,
            "walls": self.learned,
        }

    @torch.no_grad()
    def set_pace(self, pace: float) -> None:
        """Let a step of an optimiser move the head's numbers `pace` times as far as at first. The
        numbers themselves stay, up to rounding."""
        change = self.pace / pace
        for name, p in self.named_parameters():
            # Within the network of faces, the last layer alone.
            if not name.startswith("faces.") or name.startswith("faces.output"):
                p.mul_(change)
        self.pace.fill_(pace)

    def _number(self, name: str, dtype: torch.dtype) -> Tensor:
        return self.pace.to(dtype) * getattr(self, name).to(dtype)

    def _face(self, place: Any, given: str | Condition) -> Any:
        """A condition, or the number of a learned wall."""
        condition = _known(given)
        if not isinstance(condition, Condition):
            expected = f"one of {('robin', *CONDITIONS)} or a condition such as Dirichlet(1.0)"
            raise error(f"boundary[{place!r}]", expected, repr(given))
        if given != "robin":
            return condition
        self.learned.append(place)
        return len(self.learned) - 1

    def _condition(self, face: Any, learned: list[Robin]) -> Condition:
        """The condition of a face, in the unit of the potentials."""
        if isinstance(face, int):
            return learned[face]
        numbers = {name for name, _, _ in face.numbers()}
        scale, offset = self.output_unit(torch.promote_types(self.scale.dtype, torch.float32))
        changes: dict[str, Any] = {}
        if "value" in numbers:
            changes["value"] = face.value / scale - offset
        if isinstance(face, Neumann):
            changes["flux"] = face.flux / scale
        return dataclasses.replace(face, **changes) if changes else face

    def output_unit(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The unit of the potentials in that of the output, and what is added to them before they
        are scaled; shape (m,) each."""
        return self._number("scale", dtype).exp(), self._number("offset", dtype)

    def _learned_walls(self, dtype: torch.dtype) -> list[Robin]:
        """The conditions of the learned walls, in the unit of the potentials."""
        levels = LEVEL_GAIN * self._number("level", dtype)
        # The offset of the output is the level of all walls.
        levels = levels - levels.mean(0) if len(levels) else levels
        distances = wall_distance(self._number("distance", dtype))
        films = (DISTANCE_GAIN * self._number("film", dtype)).clamp(-24, 24).exp()
        films = films / (FILM * distances)
        return [Robin(*wall) for wall in zip(films, levels, distances, strict=True)]

    def walls(self) -> dict[Any, Condition]:
        """The condition of each face, in the unit of the output. Keys are (axis, end) of a face of
        the grid, or names of walls of a mesh; and "inner" for holes."""
        scale, offset = self.output_unit(torch.promote_types(self.scale.dtype, torch.float32))
        learned = [
            dataclasses.replace(wall, value=scale * (wall.value + offset))
            for wall in self._learned_walls(scale.dtype)
        ]
        faces: dict[Any, Any] = {"inner": self._inner}
        if isinstance(self._faces, Mapping):
            faces.update(self._faces)
        else:
            for axis, pair in enumerate(self._faces):
                faces.update({(axis, end): face for end, face in enumerate(pair)})
        return {
            place: learned[face] if isinstance(face, int) else face for place, face in faces.items()
        }

    def coefficients(self, h: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """Coefficients that the features set, in float32 at least.

        Parameters
        ----------
        h : Tensor, shape (..., dim)

        Returns
        -------
        log_k : list of Tensor, shape (..., m)
            Logarithm of the conductivity along each axis.
        leak : Tensor, shape (m,); with `ac` (..., m), complex
            c, an absorption.
        source : Tensor, shape (..., m)
            Per unit volume, in the unit of the potentials; complex with `ac`.
        """
        # As one layer: its derivative reads and writes the features once, which takes most of it.
        both = F.linear(h, torch.cat((self.conductivity.weight, self.source.weight)))
        dtype = torch.promote_types(both.dtype, torch.float32)
        pace, sizes = self.pace.to(dtype), [len(x.weight) for x in (self.conductivity, self.source)]
        log_k, f = (pace * both.to(dtype)).split(sizes, -1)
        f = f + pace * self.source.bias.to(dtype)
        log_c = self._number("absorption", dtype)
        if self.leak is None:
            c = (ABSORPTION + log_c).exp()
        else:
            log_k, log_c = WAVE_GAIN * log_k, (log_c + pace * self.leak(h).to(dtype)).chunk(3, -1)
            absorbs, reacts, loses = (
                (ABSORPTION + gain * x).clamp(-LARGEST_LOG, LARGEST_LOG).exp()
                for gain, x in zip((WAVE_GAIN, WAVE_GAIN, 1.0), log_c, strict=True)
            )
            c, f = torch.complex(absorbs - reacts, -loses), torch.complex(*f.chunk(2, -1))
        logs = log_k.clamp(-LARGEST_LOG, LARGEST_LOG).split(self.num_circuits, -1)
        return list(logs), c, f

    def assemble(
        self,
        h: Tensor,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
        *,
        added: Sequence[Tensor] | None = None,
    ) -> tuple[Circuit, Tensor, Tensor]:
        """The circuits that `forward` solves, whose arguments these are; their sources
        (B, \\*grid, m) per unit volume; and what is added to the potentials, of the same shape.
        `added` is the result of `at_faces` for the same features, if it is known."""
        axes = self.spatial_dims
        grid: Sequence[str | int] = GRID_AXES[:axes]
        if volumes is not None:
            grid = [check_volumes(volumes, axes, spacing, mask, nodes)]
        h = as_field("h", h, self.parameters(), "B", *grid, self.dim)
        logs, c, f = self.coefficients(h)
        added = self.at_faces(h, volumes) if added is None else added
        if volumes is not None:
            circuit, size = self._on_graph(logs, c, added, volumes)
        else:
            circuit, f, size = self._on_grid(logs, c, f, added, Geometry(spacing, mask, nodes))
        k = torch.stack(logs).mean(0).exp()
        return circuit, f, self._number("cell", k.dtype) * size * f / k

    def at_faces(self, h: Tensor, volumes: FiniteVolumes | None = None) -> list[Tensor]:
        """What features add to the logarithms of faces' conductivities: along each axis of a grid
        (B, \\*grid, m), between a node and the next; of the edges of a mesh, (B, E, m)."""
        return [self.pace * added for added in self.faces(h[..., : self.face_dim], volumes)]

    def face_mean(self, dtype: torch.dtype) -> Tensor:
        """Which mean of both nodes' conductivities a face has, see `mean_of_ends`; (m,)."""
        return MEAN_GAIN * self._number("mean", dtype)

    def _on_grid(
        self, logs: list[Tensor], c: Tensor, f: Tensor, added: Sequence[Tensor], where: Geometry
    ) -> tuple[Circuit, Tensor, float]:
        """The circuits; their sources, 0 at missing nodes; and the squared step."""
        spacing, mask, nodes, _ = where
        mean, learned = self.face_mean(logs[0].dtype), self._learned_walls(logs[0].dtype)
        if isinstance(self._faces, Mapping):
            raise error("boundary", "conditions for the axes of a grid", self._faces)
        steps, lie = spacing_and_nodes(f.shape[:-1], 1.0, self.nodes, spacing, mask, nodes)
        faces: Any = tuple(tuple(self._condition(x, learned) for x in pair) for pair in self._faces)
        edges = []
        for axis, (a, more) in enumerate(zip(logs, added, strict=True)):
            k = mean_of_ends(a, a.roll(-1, axis + 1), mean, more)
            edges.append(k * (face_area(steps, axis) / steps[axis]))
        k, leak = [a.exp() for a in logs], (c * math.prod(steps)).expand(f.shape)
        exists = inner = None
        if mask is not None:
            exists = existing(mask, self.spatial_dims)
            f, leak = torch.where(exists, f, 0), torch.where(exists, leak, 0)
            k = [torch.where(exists, x, 0) for x in k]
            edges = edges_within(edges, exists)
            inner = ((self._condition(self._inner, learned),) * 2,) * self.spatial_dims
        walls: Any = {"exists": exists, "inner": inner, "distances": wall_distances(lie)}
        circuit = circuit_of(k, edges, leak, steps, faces, **walls)
        return circuit, f, math.prod(steps) ** (2 / self.spatial_dims)

    def _on_graph(
        self, logs: list[Tensor], c: Tensor, added: Sequence[Tensor], volumes: FiniteVolumes
    ) -> tuple[Circuit, Tensor]:
        """The circuits, and the squared step of each node."""
        mean, learned = self.face_mean(logs[0].dtype), self._learned_walls(logs[0].dtype)
        faces = self._faces
        if not isinstance(faces, Mapping):
            if not self._alike:
                raise error("boundary", "one for all walls of a mesh, or a mapping", self.boundary)
            faces = {"boundary": faces[0][0]}
        walls = {name: self._condition(x, learned) for name, x in faces.items()}
        share = edge_cosines(volumes).to(logs[0]) ** 2
        nodes = volumes.graph.ends.to(share.device)
        low, high = ((share * torch.stack(logs)[:, :, node]).sum(0) for node in nodes)
        k = torch.stack(logs).mean(0).exp()
        circuit = volumes.circuit(k, c, walls, faces=mean_of_ends(low, high, mean, added[0]))
        size = (volumes.volume ** (2 / self.spatial_dims)).to(k)[:, None]
        return circuit, size

    def forward(
        self,
        h: Tensor,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
    ) -> Tensor:
        """Solve the circuits of a field.

        Parameters
        ----------
        h : Tensor, shape (B, \\*grid, dim)
        spacing, mask, nodes, volumes : optional
            As in `NetworkCell.forward`. The output is 0 at nodes that do not exist.

        Returns
        -------
        Tensor, shape (B, \\*grid, out_channels)
            In float32 at least.
        """
        circuit, f, added = self.assemble(h, spacing, mask, nodes, volumes)
        u = self.outputs(circuit.solve(f) + added)
        return u if mask is None else torch.where(existing(mask, self.spatial_dims), u, 0)

    def outputs(self, v: Tensor) -> Tensor:
        """The outputs (..., out_channels) of potentials (..., m)."""
        scale, offset = self.output_unit(v.real.dtype)
        u = scale * (v + offset)
        return torch.view_as_real(u).flatten(-2)[..., : self.out_channels] if self.ac else u

    def extra_repr(self) -> str:
        return f"dim={self.dim}, spatial_dims={self.spatial_dims}, out_channels={self.out_channels}"


def _known(given: Any) -> Any:
    """A condition for what stands for one; "robin" is a learned wall."""
    if isinstance(given, str):
        return Dirichlet() if given == "robin" else CONDITIONS.get(given)
    return given
