"""Controls of the steady problems: direct solves, and blocks without a solve.

They show how much of a model's error a solver of the equation would have, and what the cells add.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from chonn_lab.baselines.fields import with_coordinates
from chonn_lab.experiments.modules import Units
from chonn_ops.checks import check_least
from chonn_ops.network import (
    absorbing_layer,
    edge_conductance,
    helmholtz_network,
    kirchhoff_network,
)
from chonn_ops.network.conductance import end_walls, face_area
from chonn_ops.nn.geometry import wall_distances
from chonn_ops.nn.layers import PositionLinear

_TOLERANCE = 1e-6
# Initial distance of a fitted wall, relative to the side of the square.
_WALL = 0.01


class Physics(NamedTuple):
    """The equation that maps inputs to outputs on the unit square or cube, u = 0 at its walls.

    Attributes
    ----------
    input : str
        "coefficient": the k of ``-div(k grad u) = 1``; "source": an affine function of the f of
        ``-laplace u = f``, and then the output is one of u, too. `DirectSolve` solves these two.
        "coefficient and source": the k and f of ``-div(k grad u) = f``; "wave number".
    nodes : str
        Where points lie, see `chonn_ops.NetworkCell`.
    strength : float
        For a source only: about the f that changes u by one unit of the output, over the f that one
        unit of the input stands for. Training starts from it.
    """

    input: str
    nodes: str
    strength: float = 1.0


class DirectSolve(nn.Module):
    """Finite volumes on the input's own grid, (B, 1, \\*grid), in the data's own units.

    The equation is known, and its few unknown numbers are trained: the size of the source if the
    input is a coefficient, the three numbers of the two affine functions if it is a source.

    Parameters
    ----------
    physics : Physics
    units : Units
        Units of the fields.
    fitted : bool
        Train the choices of a discretisation, too: the distance of the walls behind the ends and,
        for a coefficient, its mean at a face, from harmonic (0, as in textbooks) to arithmetic (1).
    """

    def __init__(self, physics: Physics, units: Units, fitted: bool = False) -> None:
        super().__init__()
        if physics.input not in ("coefficient", "source"):
            raise ValueError(f"input: expected 'coefficient' or 'source', got {physics.input!r}")
        self.physics, self.units = physics, units
        numbers = (1.0,) if physics.input == "coefficient" else (1.0, 0.0, 0.0)
        self.numbers = nn.Parameter(torch.tensor(numbers))
        self.wall = nn.Parameter(torch.tensor(math.log(_WALL))) if fitted else None
        mean = fitted and physics.input == "coefficient"
        self.mean = nn.Parameter(torch.tensor(0.1)) if mean else None

    def forward(self, x: Tensor) -> Tensor:
        units = self.units
        if self.physics.input == "coefficient":
            return self.numbers[0] * self.solve(x, torch.ones_like(x))
        source = units.scaled(x)
        fields = torch.cat((source, torch.ones_like(x)), dim=1)
        forced, constant = self.solve(
            torch.ones_like(fields), self.physics.strength * fields
        ).split(1, dim=1)
        scale, shift, level = self.numbers
        return units.output_centre + units.output_spread * (
            scale * forced + shift * constant + level
        )

    def solve(self, k: Tensor, source: Tensor) -> Tensor:
        """``-div(k grad u) = source``, all (B, C, \\*grid)."""
        k, source = k.movedim(1, -1), source.movedim(1, -1)
        shared = 1 if self.physics.nodes == "corners" else 0
        steps = [1 / (n - shared) for n in k.shape[1:-1]]
        g = edge_conductance(k, steps)
        if self.mean is not None:
            g = tuple(
                harmonic + self.mean.abs() * (_arithmetic(k, axis, steps) - harmonic)
                for axis, harmonic in enumerate(g)
            )
        margin = None
        if self.wall is not None:
            margin = self.wall.exp().expand(len(steps), k.shape[-1])
        distances = wall_distances(self.physics.nodes)
        leak = end_walls(k, steps, [(True, True)] * len(steps), margin, distances)
        v = kirchhoff_network(source * math.prod(steps), g, leak, tol=_TOLERANCE)
        return v.movedim(-1, 1)


def _arithmetic(k: Tensor, axis: int, steps: list[float]) -> Tensor:
    """Conductances along an axis with the arithmetic mean at the faces; 0 behind the last node."""
    dim, n = axis + 1, k.shape[axis + 1]
    faces = (k.narrow(dim, 0, n - 1) + k.narrow(dim, 1, n - 1)) / 2
    padding = [0, 0] * (k.dim() - dim - 1) + [0, 1]
    return nn.functional.pad(faces, padding) * (face_area(steps, axis) / steps[axis])


class CornerSolve(nn.Module):
    """Finite volumes around the corners between cells, as ConDiff's, in the data's own units.

    The equation is ``-div(k grad u) = f`` with k constant in each of (R + 1) x (R + 1) cells, and f
    and u at the corners between them. The first field of the input (B, C, R, R) has all cells but
    those of the last row and column, which are taken for those beside them, the last field is f.
    The size of the source is trained.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        k, f = nn.functional.pad(x[:, :1], [0, 1, 0, 1], mode="replicate"), x[:, -1:]
        # Half of the face between two corners lies in each of two cells.
        across = (k[..., 1:] + k[..., :-1]) / 2, (k[..., 1:, :] + k[..., :-1, :]) / 2
        edges, leak = [], torch.zeros_like(f)
        for dim, g in zip((2, 3), across, strict=True):
            first, inner, last = g.tensor_split((1, f.shape[dim]), dim)
            edges.append(torch.cat((inner, torch.zeros_like(last)), dim).movedim(1, -1))
            ends = torch.zeros_like(f)
            ends.narrow(dim, 0, 1).add_(first)
            ends.narrow(dim, f.shape[dim] - 1, 1).add_(last)
            leak = leak + ends
        h = 1 / k.shape[-1]
        source, ground = f.movedim(1, -1) * h**2, leak.movedim(1, -1)
        return self.scale * kirchhoff_network(source, edges, ground, tol=_TOLERANCE).movedim(-1, 1)


class WaveSolve(nn.Module):
    """Finite volumes of ``-laplace u - k^2 u = f``, on the input's own grid, in the data's units.

    The equation is known, and the size of the source is trained.

    Parameters
    ----------
    layer, attenuation : float
        Thickness of the absorbing medium around the square, and the amplitude that crosses it
        twice. With thickness 0, u is 0 at the walls of the square and f is 1.
    """

    def __init__(self, layer: float = 0.0, attenuation: float = 0.01) -> None:
        super().__init__()
        self.layer, self.attenuation = layer, attenuation
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[-1]
        k, f = x[:, :1], x[:, 1:] if self.layer else torch.ones_like(x)
        pad = math.ceil(self.layer * n)
        k = nn.functional.pad(k, [pad] * 4, mode="replicate").movedim(1, -1)
        f = nn.functional.pad(f, [pad] * 4).movedim(1, -1)
        one, h = torch.ones_like(k), 1 / n
        loss: Tensor | float = 0.0
        if pad:
            loss = absorbing_layer(one, k.square(), pad * h, h, attenuation=self.attenuation)
        u = helmholtz_network(
            f, one, k.square(), loss, 1.0, h, boundary="dirichlet", tol=_TOLERANCE
        )
        u = self.scale * u.movedim(-1, 1)[..., pad : pad + n, pad : pad + n]
        return torch.cat((u.real, u.imag), 1) if pad else u.real


class SolveThenConvolve(nn.Module):
    """A `DirectSolve` that a small convolution network corrects.

    Parameters
    ----------
    solve : DirectSolve
    units : Units
        In which the network sees input and solution and makes its correction.
    width, depth : int
        Channels and layers of 3 x 3 convolutions; at least two layers.
    """

    def __init__(self, solve: DirectSolve, units: Units, width: int = 20, depth: int = 4) -> None:
        super().__init__()
        check_least(1, width=width)
        check_least(2, depth=depth)
        self.direct, self.units = solve, units
        # Channels: input, solution and two coordinates.
        widths = [4, *[width] * (depth - 1), 1]
        layers: list[nn.Module] = []
        for channels, features in itertools.pairwise(widths):
            layers += [nn.Conv2d(channels, features, 3, padding=1), nn.GELU()]
        self.network = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        units, u = self.units, self.direct(x)
        fields = torch.cat(
            (
                units.scaled(x),
                (u - units.output_centre) / units.output_spread,
            ),
            dim=1,
        )
        return u + units.output_spread * self.network(with_coordinates(fields))


class NoCell(nn.Module):
    """A network cell without its solve: the projection of the source, each point by itself."""

    def __init__(self, dim: int, networks: int) -> None:
        super().__init__()
        self.source_proj = PositionLinear(dim, networks)
        nn.init.normal_(self.source_proj.weight, std=dim**-0.5)
        nn.init.zeros_(self.source_proj.bias)

    def forward(
        self,
        u: Tensor,
        spacing: list[float] | None = None,  # noqa: ARG002
        mask: Tensor | None = None,  # noqa: ARG002
        nodes: str | None = None,  # noqa: ARG002
    ) -> Tensor:
        return self.source_proj(nn.functional.silu(u))
