"""Controls of the steady problems: direct solves.

`OwnScheme` is given the equation and the scheme that made the data. `DirectSolve` knows the
equation, not the scheme.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.baselines.fields import with_coordinates
from chonn_lab.experiments.base import Untrained
from chonn_lab.problems import unknown_law, upscaling
from chonn_ops.boundary import Dirichlet
from chonn_ops.network import Auto, Circuit, Direct, diffusion
from chonn_ops.network.discretise.grids import walls_of
from chonn_ops.nn.geometry import distances_of, num_steps, wall_distances

_TOLERANCE = 1e-6
# In float64; elimination leaves less.


class Physics(NamedTuple):
    """The equation that maps inputs to outputs on the unit square or cube, u = 0 at its walls."""

    # "coefficient": the k of ``-div(k grad u) = 1``; "source": an affine function of the f of
    # ``-laplace u = f``, and then the output is one of u, too. `DirectSolve` solves these two.
    # "medium in blocks", "porosity": of problems without a coefficient for the grid.
    input: str
    nodes: str  # where points lie, see `chonn_ops.NetworkCell`
    # For a source only: about the f that changes u by one unit of the output, over the f that one
    # unit of the input stands for. Training starts from it.
    strength: float = 1.0


def check_input(problem: Any, name: str, *inputs: str) -> None:
    """ValueError for a problem of another equation than the solve's."""
    if problem.physics.input not in inputs:
        raise ValueError(
            f"{name}: expected a problem whose input is a {' or a '.join(inputs)}, "
            f"got {problem.name}: {problem.physics.input}"
        )


class DirectSolve(nn.Module):
    """Finite volumes on the input's own grid, (B, 1, \\*grid), in the data's own units.

    It knows the equation, not the scheme that made the data: faces have harmonic means and u = 0 at
    the walls, as in textbooks. The few unknown numbers of the equation are trained: the size of the
    source if the input is a coefficient, the three numbers of the two affine functions if it is a
    source.
    """

    in_data_units = True

    def __init__(self, problem: Any) -> None:
        super().__init__()
        check_input(problem, "direct", "coefficient", "source")
        self.physics, self.units = problem.physics, problem.about_unit_size
        numbers = (1.0,) if self.physics.input == "coefficient" else (1.0, 0.0, 0.0)
        self.numbers = nn.Parameter(torch.tensor(numbers))

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
        nodes = distances_of(self.physics.nodes, k.dim() - 2)
        steps = [1 / num_steps(n, pair) for n, pair in zip(k.shape[1:-1], nodes, strict=True)]
        faces = ((Dirichlet(), Dirichlet()),) * len(steps)
        nothing, distances = torch.zeros_like(k), wall_distances(nodes)
        leak = walls_of(k, steps, faces, nothing, distances=distances).conductance
        assert leak is not None
        g = diffusion(k, steps).conductance
        v = Circuit(g, leak).solve(source * math.prod(steps), Auto(_TOLERANCE))
        return v.movedim(-1, 1)


class OwnScheme(Untrained):
    """The scheme that made the data, on the data's own grid, in float64: a function of the input.

    Nothing is trained, so what is left of the error is the rounding of the stored fields, or what
    models do not see of the data.
    """

    in_data_units = True

    def __init__(self, solve: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.solve = solve

    def forward(self, x: Tensor) -> Tensor:
        return self.solve(x.double()).to(x.dtype)


def cell_scheme(x: Tensor, resolution: int) -> Tensor:
    """PDEBench's scheme of ``-div(k grad u) = 1``, as `chonn_lab.problems.darcy_solver` has it.

    A face has the arithmetic mean of its cells. u = 0 half a cell of the training grid, which has
    `resolution` cells along an axis, outside the square; on finer grids the walls stay there.
    """
    k, wall = x.movedim(1, -1), Dirichlet(0.0, 0.5 / resolution)
    circuit = diffusion(k, 1 / x.shape[-1], boundary=wall, arithmetic=1.0)
    return circuit.solve(torch.ones_like(k), Direct()).movedim(-1, 1)


class SineScheme(OwnScheme):
    """The sine series of ``-laplace u = f`` on (B, 1, R, R) nodes, those of the walls among them.

    The fields are normalised, f to a f + b and u to c u + d. Where f is 0, on the walls, the input
    shows b; c / a and d come from the training samples by least squares.
    """

    def __init__(self) -> None:
        super().__init__(lambda x: self.numbers[1] + self.numbers[0] * self.series(x))
        numbers = torch.tensor((1.0, 0.0), dtype=torch.float64)
        self.numbers = nn.Parameter(numbers, requires_grad=False)

    def fit(self, train: TensorDataset) -> None:
        f, u = (field.double() for field in train.tensors)
        coefficients = self.series(f)
        scale = (coefficients - coefficients.mean()).mul(u).sum() / (
            coefficients - coefficients.mean()
        ).square().sum()
        self.numbers.copy_(torch.stack((scale, u.mean() - scale * coefficients.mean())))

    def series(self, x: Tensor) -> Tensor:
        """Solution of the source less its value on the walls, u = 0 there."""
        n = x.shape[-1] - 1
        modes = torch.arange(1, n, dtype=x.dtype, device=x.device)
        nodes = torch.arange(n + 1, dtype=x.dtype, device=x.device)
        sine = torch.sin(math.pi / n * modes[:, None] * nodes)
        squares = math.pi**2 * (modes[:, None].square() + modes.square())
        weights = (2 / n) ** 2 * (sine @ (x - x[..., :1, :1]) @ sine.T) / squares
        return sine.T @ weights @ sine


def block_scheme(x: Tensor) -> Tensor:
    """Upscaling: the solve on the fine cells, of which each node has a block; the mean over it."""
    fine = nn.functional.pixel_shuffle(x, upscaling.PATCH)
    return upscaling.blocks(upscaling.solved(fine[:, 0])).mean(1, keepdim=True)


def law_scheme(x: Tensor) -> Tensor:
    """The unknown law without its noise: the least error that one can hope for."""
    k = unknown_law.law(x[:, 0].cpu().numpy())
    return upscaling.solved(torch.from_numpy(k).to(x))[:, None]


class LearnedCoefficients(nn.Module):
    """``-div(k grad u) = 1`` with log k of each axis from convolutions of the input."""

    in_data_units = True

    def __init__(self, problem: Any, width: int, depth: int) -> None:
        super().__init__()
        check_input(problem, "learned_coefficients", "medium in blocks", "porosity")
        self.units = problem.about_unit_size
        layers = _convolutions(problem.in_channels + 2, *[width] * depth, padding_mode="replicate")
        self.law = nn.Sequential(*layers, nn.Conv2d(width, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        log = self.law(with_coordinates(self.units.scaled(x)))
        # A conductivity beyond e^10 from 1 is none of these media.
        k = (10 * torch.tanh(log / 10)).exp()
        return upscaling.solved(k[:, 0], k[:, 1])[:, None]


class SolveThenConvolve(nn.Module):
    """A `DirectSolve` that a small convolution network corrects, in fields of about unit size: it
    has `depth` layers of 3 x 3 convolutions with `width` channels."""

    in_data_units = True

    def __init__(self, problem: Any, width: int, depth: int) -> None:
        super().__init__()
        self.direct, self.units = DirectSolve(problem), problem.about_unit_size
        # Channels: input, solution and two coordinates.
        self.network = nn.Sequential(*_convolutions(4, *[width] * (depth - 1), 1)[:-1])

    def forward(self, x: Tensor) -> Tensor:
        units, u = self.units, self.direct(x)
        fields = torch.cat(
            (units.scaled(x), (u - units.output_centre) / units.output_spread), dim=1
        )
        return u + units.output_spread * self.network(with_coordinates(fields))


def _convolutions(*channels: int, **options: Any) -> list[nn.Module]:
    """3 x 3 convolutions from each of these numbers of channels to the next, each with a GELU."""
    layers: list[nn.Module] = []
    for before, behind in itertools.pairwise(channels):
        layers += [nn.Conv2d(before, behind, 3, padding=1, **options), nn.GELU()]
    return layers
