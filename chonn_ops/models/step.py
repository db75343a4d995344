"""Models of time series: one circuit a step carries, reacts, stores and diffuses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.boundary import Dirichlet, Neumann, Periodic, per_axis
from chonn_ops.checks import GRID_AXES, answer, as_field, check_above, check_integer, error
from chonn_ops.models.calibration import PACE, SLOWEST
from chonn_ops.models.carry import Carried, Kernel, has_kernel
from chonn_ops.models.identification import (
    DIFFUSIVITY,
    GAIN,
    NEAR,
    NUMBERS,
    PARTS,
    RATE,
    SPEED,
    STORE,
    Identification,
)
from chonn_ops.models.line import Line, is_line
from chonn_ops.models.network import PointwiseTrunk, Units
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.network.circuit import Circuit, solve_checked
from chonn_ops.network.discretise.grids import Spacing, circuit_of, edges, face_area, spacings
from chonn_ops.network.discretise.steps import companion
from chonn_ops.network.discretise.tensors import times
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.network.layout import Grid
from chonn_ops.network.solve.methods import AUTO
from chonn_ops.nn.circuit_head import wall_distance
from chonn_ops.nn.geometry import (
    Geometry,
    Nodes,
    check_volumes,
    checked_lengths,
    checked_nodes,
    distances_of,
    spacing_and_nodes,
    wall_distances,
)
from chonn_ops.nn.layers import Factory

# How it carries: differences of the sixth order instead of limited ones (rollouts of vorticity had
# errors of 0.003 instead of 0.069; with the fourth order fast advection had 0.0052 instead of
# 0.0029); velocities that a circuit finds from what flowed into each node since the last frame, or
# from the state as vorticity. How it reacts: by hats of the values, whose places are fixed. And
# whether it takes two steps a frame.
FORMS = ("smooth", "mass", "vorticity", "hats", "halved")
BOUNDARIES = ("auto", "periodic", "robin")
# Cells that the fastest wave may cross in one step of limited fluxes, as in PDEBench's generators;
# of those of hidden velocities; and of smooth ones, which are stable to 1.78: to that of the four
# stages, 2.83, over the largest slope of a wave, 1.59. With 0.9 cells advection had an error of
# 0.019 instead of 0.0007, and with the fluxes of hidden velocities 0.028. These are those of a dam
# break, which had 0.0025 with them, and 0.0027 with the others in a third more time. With 1.6 and
# 1.0 cells of smooth waves fast advection had 0.0040 and 0.0020 instead of 0.0029.
CFL, HIDDEN, SMOOTH = 0.4, 0.9, 1.3
# The most such steps in half a substep, which slow faster waves down, and how many where values
# cannot be read. With 32 at most, waves that cross a fifth of 256 cells a frame were too slow: an
# error of 1.8 after five frames instead of 0.0006.
MOST, FEW = 576, 9
# Leak of circuits of velocities, over the square of the domain, which gives a mean a potential: the
# longest wave's resistors conduct 40 / LEAK times as much.
LEAK = 1e-4
# Terms of an equation that are not written are below this part of the largest one.
SMALL = 1e-3
# Two implicit stages of this part of a step each are of second order and damp all that is stiff
# (R. Alexander, 1977).
STAGE = 1 - math.sqrt(0.5)


class _CHONNStep(Pretrained):
    """The model in any number of dimensions; see `CHONNStep2d`."""

    axes: ClassVar[int]
    size: Tensor
    pace: Tensor
    low: Tensor
    high: Tensor
    positive: Tensor
    found: Tensor

    def __init__(
        self,
        channels: int = 1,
        width: int = 24,
        depth: int = 2,
        *,
        lengths: float | Sequence[float] = 1.0,
        boundary: str | Sequence[str] = "auto",
        nodes: Nodes = "centres",
        sets: Sequence[str] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, channels=channels, width=width, depth=depth)
        self.channels, self.nodes = channels, checked_nodes(nodes)
        self.lengths = checked_lengths(lengths, self.axes)
        self.boundary = per_axis(boundary, self.axes, BOUNDARIES)
        self.sets = None if sets is None else tuple(sets)
        if isinstance(sets, str) or len({*(self.sets or ())}) < len(self.sets or ()):
            raise error("sets", "a sequence of different names", repr(sets))
        self.unit = sum(spacings(self.lengths, self.axes)) / self.axes
        factory: Factory = {"device": device, "dtype": dtype}
        C, axes = channels, self.axes
        degree = 3 if C < 4 else 2
        self.powers = [
            term
            for n in range(degree + 1)
            for term in itertools.combinations_with_replacement(range(C), n)
        ]
        self.units = Units(C, **factory)
        self.trunk = PointwiseTrunk(2 * C, width, depth, **factory)
        self.last = nn.Linear(width, 2 * C, **factory)
        for p in self.last.parameters():
            nn.init.zeros_(p)

        def zeros(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*size, **factory))

        # The state of one channel may have a velocity, which no frame shows.
        Z = self.states = C + axes if C == 1 else C
        self.reaction, self.storage = zeros(C, len(self.powers)), zeros(C, 2 * C)
        self.carry, self.forcing = zeros(axes, Z, Z, 1 + 2 * Z), zeros(C, 3**axes)
        self.diffusivity = zeros(C)
        walls = (axes, 2) if self.sets is None else (len(self.sets),)
        self.level, self.distance = zeros(*walls, C), zeros(*walls, C)
        self.register_buffer("size", torch.ones(C, **factory))
        self.register_buffer("pace", torch.ones((), **factory))
        for name, value in (("low", -4.0), ("high", 4.0), ("positive", 0.0)):
            self.register_buffer(name, torch.full((Z,), value, **factory))
        self.register_buffer("found", torch.ones(len(PARTS) + len(FORMS) + axes, **factory))
        self._set_parts(set(PARTS), set(), [word == "periodic" for word in self.boundary])
        self.register_load_state_dict_post_hook(_after_loading)

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        nodes = distances_of(self.nodes, self.axes)
        return {"lengths": self.lengths, "nodes": nodes, "sets": self.sets}

    def _set_parts(self, parts: set[str], forms: set[str], rings: Sequence[bool]) -> None:
        """Set which parts are there, in which forms, and which axes are periodic. Other parts do
        not learn. Nothing is carried on meshes."""
        parts = parts if self.sets is None else parts - {"carry"}
        self.parts, self.forms, self.rings = parts, forms, tuple(rings)
        present = [*(part in parts for part in PARTS), *(form in forms for form in FORMS), *rings]
        self.found.copy_(torch.tensor(present, dtype=self.found.dtype))
        several = self.channels > 1 and not self.positive.is_meta
        self.inverses = several and bool((self.positive > 0).any())
        self.history = 2 if "mass" in forms else 1
        self.in_channels = self.history * self.channels
        features = [] if "hats" in forms else self.trunk.parameters()
        network = [*features, *self.last.parameters()]
        walls = [] if all(self.rings) else [self.level, self.distance]
        of_parts = {
            "carry": [self.carry],
            "react": [self.reaction, *network],
            "store": [self.storage, *network],
            "diffuse": [self.diffusivity, *walls],
        }
        used = {id(p) for part in parts for p in of_parts[part]}
        used |= {id(self.forcing)} if "vorticity" in forms else set()
        for p in self.parameters():
            p.requires_grad_(id(p) in used)

    def _number(self, name: str) -> Tensor:
        return self.pace * getattr(self, name)

    @torch.no_grad()
    def set_pace(self, pace: float) -> None:
        """Let a step of an optimiser move the equation's numbers `pace` times as far as at first.
        The numbers themselves stay, up to rounding."""
        for p in (self.last.bias, *map(self.get_parameter, NUMBERS)):
            p.mul_(self.pace / pace)
        self.pace.fill_(pace)

    # The four parts, of states (B, *grid, C) in the unit `size`. Times are in frames.

    def _bounded(self, z: Tensor) -> Tensor:
        """States within the range of the data and a quarter more, beyond which rates, matrices and
        capacities are those at its ends, so rollouts stay finite."""
        n = z.shape[-1]
        return z.clamp(self.low[:n].to(z), self.high[:n].to(z))

    def features(self, v: Tensor) -> Tensor:
        """What the pointwise network gets: logarithms and values, (B, \\*grid, 2 C)."""
        logs, values = self.units(v)
        return torch.cat((logs / self.units.spread, values), -1).to(self.last.weight.dtype)

    def rate(self, v: Tensor) -> Tensor:
        """Change a frame by reaction."""
        C, v = self.channels, self._bounded(v)
        h = self.trunk(self.features(v))
        learned = self.pace * F.linear(h, self.last.weight[:C], self.last.bias[:C])
        # Products of channels, by the channels that they have.
        products: dict[tuple[int, ...], Tensor] = {(): torch.ones_like(v[..., 0])}
        for term in self.powers[1:]:
            products[term] = products[term[:-1]] * v[..., term[-1]]
        polynomial = F.linear(torch.stack([*products.values()], -1), self._number("reaction").to(v))
        return RATE * (polynomial + learned)

    def capacity(self, v: Tensor) -> Tensor:
        """Capacity of each node, relative to that whose `diffusivity` is stated."""
        C, h = self.channels, self.features(self._bounded(v))
        logs = F.linear(self.trunk(h), self.last.weight[C:], self.last.bias[C:])
        logs = self.pace * (F.linear(h, self.storage) + logs)
        return (STORE * logs.to(v)).clamp(-12, 12).exp()

    # What is carried, z (B, \\*grid, R): the state, and its velocity if that is a state, too.

    def _speeds(self, time: float, steps: Sequence[float]) -> list[Tensor]:
        """For each axis coefficients (R R, F) of the cells that are crossed in a time."""
        n = self.states if self.forms & {"mass", "vorticity"} else self.channels
        rows = n if "mass" in self.forms else self.channels
        kept = self._number("carry")[:, :rows, :rows]
        kept = torch.cat((kept[..., : n + 1], kept[..., self.states + 1 :][..., :n]), -1)
        if not self.inverses:
            kept = kept[..., : n + 1]
        return [
            (self.unit * SPEED * time / step) * w.flatten(0, 1)
            for w, step in zip(kept, steps, strict=True)
        ]

    def _matrix(self, z: Tensor, weight: Tensor) -> Tensor:
        """The matrices (B, \\*grid, R, R) that multiply the slopes along an axis."""
        n, z = z.shape[-1], self._bounded(z)
        features = [torch.ones_like(z[..., :1]), z]
        if self.inverses:
            positive = self.positive[:n].bool()
            features.append(torch.where(positive, 1 / torch.where(positive, z, 1), 0))
        rows = math.isqrt(len(weight))
        return F.linear(torch.cat(features, -1), weight.to(z)).unflatten(-1, (rows, rows))

    def _waves(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Mean speed of the waves of matrices (..., R, R), and the square of the distance from it
        of two that are equally far, by traces: exact if all others have the mean speed."""
        mean = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)
        squares = (matrix * matrix.mT).sum((-2, -1)) - matrix.shape[-1] * mean.square()
        return mean, squares.abs() / 2

    def _fastest(self, matrix: Tensor) -> Tensor:
        """The fastest wave's speed."""
        if matrix.shape[-1] == 1:
            return matrix[..., 0, 0].abs()
        mean, square = self._waves(matrix)
        return mean.abs() + square.sqrt()

    def _whole(self, z: Tensor, steps: Sequence[float]) -> Tensor:
        """The state, and the velocity of the vorticity that it is."""
        hidden = [self._velocity(z, None, steps)] if "vorticity" in self.forms else []
        return torch.cat((z, *hidden), -1)

    def _velocity(self, source: Tensor, k: Tensor | None, steps: Sequence[float]) -> Tensor:
        """The gradient of the potential of sources (B, \\*grid, 1) in a medium, or without one its
        curl, (B, \\*grid, axes)."""
        axes, leak = self.axes, LEAK / self.unit**2 * math.prod(steps)
        source = source - source.mean(tuple(range(1, axes + 1)), keepdim=True)
        like = source[:1] if k is None else source
        medium = torch.ones_like(like) if k is None else k.clamp(min=NEAR)
        joined: Any = [(Periodic() if ring else Neumann(),) * 2 for ring in self.rings]
        conductance = edges(medium, list(steps), list(self.rings))
        circuit = circuit_of(medium, conductance, torch.full_like(like, leak), steps, joined)
        # Without a medium, one circuit serves the whole batch.
        v = circuit.solve(source[None])[0] if k is None else circuit.solve(source)
        slopes = [self._slope(v, axis) / step for axis, step in enumerate(steps)]
        if k is None:
            slopes = [slopes[1], -slopes[0]]
        return torch.cat(slopes, -1) / (self.unit * SPEED)

    def _slope(self, v: Tensor, axis: int) -> Tensor:
        """Half the difference of both neighbours, of the sixth order; with hidden velocities of the
        fourth: a dam break had an error of 0.0101 over all frames instead of 0.0122."""
        a, b, c = (self._beside(v, axis, k) - self._beside(v, axis, -k) for k in (1, 2, 3))
        return (8 * a - b) / 12 if "mass" in self.forms else (45 * a - 9 * b + c) / 60

    def _beside(self, v: Tensor, axis: int, k: int) -> Tensor:
        """The k-th neighbour of each cell along an axis; beyond a wall the outermost cell."""
        if self.rings[axis]:
            return v.roll(-k, axis + 1)
        n = v.shape[axis + 1]
        return v.index_select(axis + 1, (torch.arange(n, device=v.device) + k).clamp(0, n - 1))

    def _drift(self, z: Tensor, weights: Sequence[Tensor], steps: Sequence[float]) -> Tensor:
        """Change of what is carried, by differences of the sixth order."""
        whole = self._whole(z, steps)
        moved = [times(self._matrix(whole, w), self._slope(z, k)) for k, w in enumerate(weights)]
        return -torch.stack(moved).sum(0)

    def _carry(self, z: Tensor, time: float, steps: Sequence[float]) -> Tensor:
        if "carry" not in self.parts:
            return z
        if self.forms <= {"hats", "halved"} and has_kernel(z, self.carry):
            return self._carry_one(z, time, steps)
        weights = self._speeds(time, steps)
        with torch.no_grad():
            whole = self._whole(z, steps)
            way = torch.stack([self._fastest(self._matrix(whole, w)) for w in weights]).sum(0)
            fastest = torch.cat((way.flatten(), way.new_zeros(1))).amax()
        smooth = "smooth" in self.forms
        limit = SMOOTH if smooth else HIDDEN if "mass" in self.forms else CFL
        known = answer(lambda: float(fastest))
        most = FEW if known is None else MOST
        # Faster waves than that are slowed down, as longer steps were not stable.
        slower = (most * limit / fastest.clamp(min=1e-30)).clamp(max=1)
        count = most if known is None else _count(known, limit)
        weights = [w * (slower / count) for w in weights]
        push = self._push(z, time / count) if "vorticity" in self.forms else 0.0
        for _ in range(count):
            if smooth:  # four stages (A. Jameson, W. Schmidt, E. Turkel, 1981)
                w = z
                for share in (1 / 4, 1 / 3, 1 / 2, 1):
                    w = z + share * (self._drift(w, weights, steps) + push)
                z = w
            else:
                z = z + self._limited(z, weights)
        return z

    def _carry_one(self, z: Tensor, time: float, steps: Sequence[float]) -> Tensor:
        """The limited fluxes of one channel, by the compiled kernel."""
        scales = [self.unit * SPEED * time / step for step in steps]
        speeds = self._number("carry")[:, 0, 0, :2]
        kernel = Kernel(z, speeds, scales, (self.low[0].item(), self.high[0].item()), self.rings)
        fastest = kernel.fastest(z)
        count = _count(fastest, CFL)
        part = min(1.0, MOST * CFL / max(fastest, 1e-30)) / count

        def plain(z: Tensor, speeds: Tensor) -> Tensor:
            rows = [(part * scale) * w[None] for w, scale in zip(speeds, scales, strict=True)]
            for _ in range(count):
                z = z + self._limited(z, rows)
            return z

        return Carried.apply(z, speeds, kernel, count, part, plain)

    def _push(self, v: Tensor, time: float) -> Tensor:
        """Change by a source that depends on the place: products of waves along the axes."""
        waves = torch.ones_like(v[:1])
        for axis in range(1, self.axes + 1):
            n = v.shape[axis]
            shape = [n if k == axis else 1 for k in range(v.dim())]
            at = torch.arange(n, device=v.device, dtype=v.dtype).view(shape) * (2 * math.pi / n)
            waves = torch.cat((waves, waves * at.sin(), waves * at.cos()), -1)
        return RATE * time * F.linear(waves, self._number("forcing").to(v))

    def _limited(self, z: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Change of what is carried in a step: that by the fluxes at its middle."""
        slopes = self._slopes(z)
        if "mass" in self.forms:  # to the middle by slopes alone (MUSCL-Hancock)
            moves = [times(self._matrix(z, w), s) for w, s in zip(weights, slopes, strict=True)]
            middle = z - sum(moves[1:], moves[0]) / 2
            return self._fluxes(middle, slopes, weights)
        middle = z + self._fluxes(z, slopes, weights) / 2
        return self._fluxes(middle, self._slopes(middle), weights)

    def _slopes(self, z: Tensor) -> list[Tensor]:
        """Slopes along each axis: the mean of the differences on both sides, limited by twice the
        smaller one (B. van Leer, 1977), or of hidden velocities as N. Waterson and H. Deconinck
        did (1995): a dam break had an error of 0.0025 instead of 0.0027 with the harmonic mean."""
        slopes = []
        for axis in range(self.axes):
            right = self._beside(z, axis, 1) - z
            left = right.roll(1, axis + 1)  # at walls the last difference is 0, so this is right
            both, mean = left * right, (left + right) / 2
            if "mass" in self.forms:
                slope = 3 * both * mean / torch.where(both > 0, 4 * mean.square() - both, 1)
            else:
                least = 2 * torch.where(left.abs() < right.abs(), left, right)
                slope = torch.where(least.abs() < mean.abs(), least, mean)
            slopes.append(torch.where(both > 0, slope, 0))
        return slopes

    def _fluxes(self, z: Tensor, slopes: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
        """Change by the fluxes of states with slopes: at faces the matrices of both sides' mean
        (Roe's, for the quadratic fluxes of one channel) with the dissipation of each wave."""
        change = torch.zeros_like(z)
        for axis, (w, slope) in enumerate(zip(weights, slopes, strict=True)):
            front, back = z + slope / 2, self._beside(z - slope / 2, axis, 1)
            matrix, jump = self._matrix((front + back) / 2, w), back - front
            flow = times(matrix, jump)
            spread = self._dissipated(matrix, jump, flow)
            ahead, behind = (flow + spread) / 2, (flow - spread) / 2
            within = times(self._matrix(z, w), slope)
            change = change - within - behind - ahead.roll(1, axis + 1)
        return change

    def _dissipated(self, matrix: Tensor, jump: Tensor, flow: Tensor) -> Tensor:
        """The absolute value of matrices times jumps, where their product is `flow`: exact for
        waves of the mean speed and of two others equally far from it, as in gases. With the
        dissipation of the fastest wave for all, compressible flow whose equation was known had
        errors of 0.042 instead of 0.038 on a line and 0.059 instead of 0.049 on a plane. Hidden
        velocities have that of the fastest waves in both directions (A. Harten, P. Lax, B. van
        Leer, 1983): a dam break had an error of 0.0027 instead of 0.0028 with that of the fastest
        one, and of 0.0032 with that of each wave."""
        if matrix.shape[-1] == 1:
            return matrix[..., 0].abs() * jump
        # At least a hundredth of a cell a step, as matrices without waves have squares, too.
        mean, square = (x[..., None] for x in self._waves(matrix))
        other = (square + 1e-4).sqrt()
        part, rest = (mean / other).clamp(-1, 1), flow - mean * jump
        if "mass" in self.forms:
            return part * flow + other * (1 - part.square()) * jump
        twice = times(matrix, rest) - mean * rest
        return mean.abs() * jump + part * rest + (1 - part.abs()) / other * twice

    def circuit(self, v: Tensor, where: Geometry) -> Circuit:
        """The resistors between cells and behind walls where the diffusivity is 1, for states of
        this shape."""
        one = v.new_ones(()).expand(v.shape)
        level = self._number("level").to(v)
        far = self.unit * wall_distance(self._number("distance").to(v))
        if where.volumes is not None:
            names = self.sets or ()
            walls = dict(zip(names, map(Dirichlet, level, far), strict=True))
            return where.volumes.circuit(one, boundary=walls)
        steps = where.spacing
        edges = [one * (face_area(steps, axis) / step) for axis, step in enumerate(steps)]
        faces: Any = [
            (Periodic(),) * 2 if ring else tuple(map(Dirichlet, level[axis], far[axis]))
            for axis, ring in enumerate(self.rings)
        ]
        zero = torch.zeros_like(v)
        return circuit_of(one, edges, zero, steps, faces, distances=wall_distances(where.nodes))

    def _slowness(self, v: Tensor, store: bool) -> Tensor:
        """Capacity over diffusivity: the capacitors beside the resistors of `circuit`. As these
        need no gradient, a frame of diffusion-sorption trains in 4.8 ms instead of 5.6."""
        slow = (-DIFFUSIVITY - GAIN * self._number("diffusivity").to(v)).exp() / self.unit**2
        return self.capacity(v) * slow if store else slow

    def _diffuse(self, v: Tensor, time: float, circuit: Circuit) -> Tensor:
        part, store = STAGE * time, "store" in self.parts
        slow = self._slowness(v, store)
        change = _implicit(v, circuit, slow, part) - v
        if store:  # that of the middle, with the same currents
            middle = self._slowness(v + change / (2 * STAGE), store)
            change, slow = change * (slow / middle), middle
        return _implicit(v + (1 / STAGE - 1) * change, circuit, slow, part)

    def _step(self, z: Tensor, time: float, steps: Sequence[float], circuit: Any) -> Tensor:
        C, alone = self.channels, "diffuse" not in self.parts

        def with_rest(v: Tensor) -> Tensor:
            return v if z.shape[-1] == C else torch.cat((v, z[..., C:]), -1)

        # Half of the reaction comes first and half last, where the second is of the state that the
        # first would have led to: together of second order, and one evaluation of the rate each.
        change = torch.zeros_like(z[..., :C])
        if react := "react" in self.parts:
            change = time / 2 * self.rate(z[..., :C])
            z = with_rest(z[..., :C] + change)
        z = self._carry(z, time if alone else time / 2, steps)
        if not alone:
            z = with_rest(self._diffuse(z[..., :C], time, circuit))
            z = self._carry(z, time / 2, steps)
        v = z[..., :C]
        return with_rest(v + time / 2 * self.rate(v + change)) if react else z

    def _lifted(self, before: Tensor, v: Tensor, dt: float, steps: Sequence[float]) -> Tensor:
        """A state with the velocity that led to it from the frame before, by shooting: the currents
        that bring each node what it got, and those that bring it what a step with them lacks. With
        steps back instead, which lose the dissipation, a dam break whose equation was known had an
        error of 0.020 instead of 0.003."""
        start = self._velocity((v - before) / dt, (v + before) / 2, steps)
        z = self._carry(torch.cat((before, start), -1), dt, steps)
        start = start + self._velocity((v - z[..., :1]) / dt, v, steps)
        z = self._carry(torch.cat((before, start), -1), dt, steps)
        return torch.cat((v, z[..., 1:]), -1)

    def forward(
        self,
        x: Tensor,
        *,
        dt: float = 1.0,
        spacing: Spacing | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
    ) -> Tensor:
        """Predict the next frame.

        Parameters
        ----------
        x : Tensor, shape (B, frames * channels, \\*grid); on a mesh (B, N, frames * channels)
            The last `history` frames, or more of which these count, the oldest first.
        dt : float
            Time to the next frame, in the frames of the training data.
        spacing, nodes : optional
            As in `CHONNNetwork2d.forward`.
        volumes : FiniteVolumes
            The mesh of a model with the option `sets`.

        Returns
        -------
        Tensor, shape (B, channels, \\*grid); on a mesh (B, N, channels)

        Raises
        ------
        ValueError
            For another number of axes, channels or frames, a `dt` not above 0, or a geometry that
            does not fit.
        """
        check_above(0, dt=dt)
        least, C = self.history * self.channels, self.channels
        shape = ("C", *GRID_AXES[: self.axes]) if self.sets is None else ("N", "C")
        x = as_field("x", x, self.parameters(), "B", *shape)
        v = x.movedim(1, -1) if self.sets is None else x
        if v.shape[-1] < least or v.shape[-1] % C:
            raise error("x", f"{C} channels of each of {self.history} frames or more", v.shape[-1])
        where = self.geometry(v.shape[:-1], spacing, nodes, volumes)
        v = v[..., -least:].to(torch.promote_types(v.dtype, torch.float32))
        v = self.step(v / self.size.repeat(self.history), dt, where) * self.size
        return (v.movedim(-1, 1) if self.sets is None else v).to(x.dtype)

    def geometry(
        self,
        shape: Sequence[int],
        spacing: Spacing | None,
        nodes: Nodes | None,
        volumes: FiniteVolumes | None,
    ) -> Geometry:
        """The checked geometry of states of a shape (B, \\*grid), or (B, N) on a mesh."""
        if self.sets is None:
            if volumes is not None:
                raise error("volumes", "None without the option `sets`", "FiniteVolumes")
            steps, places = spacing_and_nodes(shape, self.lengths, self.nodes, spacing, None, nodes)
            return Geometry(steps, nodes=places)
        count = check_volumes(volumes, self.axes, spacing, nodes)
        if shape[1] != count:
            raise error("x", f"{count} nodes, as `volumes`", shape[1])
        if volumes is not None and set(self.sets) - volumes.sets.keys():
            raise error("volumes", f"sets {self.sets}", sorted(volumes.sets))
        return Geometry(volumes=volumes)

    def step(self, v: Tensor, dt: float, where: Geometry) -> Tensor:
        """`forward` for states (B, \\*grid, history * channels) in the unit `size`."""
        C, steps = self.channels, where.spacing
        if self.history > 1:
            before, v = v.split(C, -1)
            v = self._lifted(before, v, dt, steps)
        circuit = self.circuit(v[..., :C], where) if "diffuse" in self.parts else None
        count = 2 if "halved" in self.forms else 1
        for _ in range(count):
            v = self._step(v, dt / count, steps, circuit)
        return v[..., :C]

    @torch.no_grad()
    def coefficients(self) -> dict[str, Tensor]:
        """What the parts that are there do, in the units of the data, of `lengths` and of a frame.

        Returns
        -------
        dict
            ``diffusivity`` (C,). ``speed`` (axes, R, R, F): entry [a, c, j] multiplies the slope of
            channel j along axis a in the equation of channel c; its F parts belong to 1, to all
            channels and to their inverses. Where frames show no velocity, its components are
            channels 1 to R - 1. ``reaction`` (C, M): the polynomial of the rate, whose terms
            `powers` has.
        """
        values, unit = {}, self.unit
        if "diffuse" in self.parts:
            values["diffusivity"] = (
                unit**2 * (DIFFUSIVITY + GAIN * self._number("diffusivity")).exp()
            )
        if "carry" in self.parts:
            size = self.size.new_full((self.states,), unit * SPEED)
            size[: self.channels] = self.size
            if "vorticity" in self.forms:  # whose velocity is as large as it
                size[self.channels :] *= self.size
            features = torch.cat((torch.ones_like(size[:1]), 1 / size, size))
            over = size[:, None, None] / size[:, None] * features
            values["speed"] = unit * SPEED * self._number("carry") * over
        if "react" in self.parts:
            scale = torch.stack([self.size[list(term)].prod() for term in self.powers])
            values["reaction"] = RATE * self.size[:, None] * self._number("reaction") / scale
        return values

    def equation(self) -> str:
        """The equation that `coefficients` state, one line a channel; u are channels, w the
        velocity that no frame shows, and d/dx, d/dy, d/dz slopes. Training moves what `calibrate`
        left at 0, so terms below `SMALL` of the largest one of their part are not written."""
        values, C = self.coefficients(), self.channels
        names = [f"u{c}" for c in range(C)] + [f"w{'xyz'[a]}" for a in range(self.states - C)]
        features = ["", *(f" {x}" for x in names), *(f" / {x}" for x in names)]
        lines, speed = list[str](), values.get("speed", torch.zeros_like(self.carry))
        reaction = values.get("reaction", torch.zeros_like(self.reaction))
        least = 2 * self.unit**2 * math.exp(DIFFUSIVITY + GAIN * NUMBERS["diffusivity"][0])
        for c in range(self.states if "mass" in self.forms else C):
            terms = []
            for (a, j, f), x in _terms(speed[:, c], self.carry[:, c]):
                terms.append((-x, f"{features[f]} d/d{'xyz'[a]} {names[j]}"))
            if c < C:
                for (m,), x in _terms(reaction[c], self.reaction[c]):
                    terms.append((x, "".join(f" {names[k]}" for k in self.powers[m])))
                # The logarithm of what does not diffuse is finite.
                if "diffuse" in self.parts and (d := float(values["diffusivity"][c])) > least:
                    terms.append((d, f" div grad {names[c]}"))
            right = " ".join(f"{'-' if x < 0 else '+'} {abs(x):.4g}{text}" for x, text in terms)
            lines.append(f"d/dt {names[c]} = {right or '0'}")
        if "store" in self.parts:
            lines.append("all over a capacity that depends on the channels")
        if "hats" in self.forms:
            lines.append("and a rate of the network of each point")
        if "vorticity" in self.forms:
            lines.append("and a source that depends on the place")
            lines.append("w = curl of psi, -div grad psi = u0 - its mean")
        return "\n".join(lines)

    @torch.no_grad()
    def calibrate(
        self,
        frames: Tensor,
        *,
        spacing: Spacing | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
    ) -> Tensor:
        """Start from the equation that predicts some frames best, without the parts that it lacks.

        Sets units, and finds the numbers by nonlinear least squares on next frames (Levenberg and
        Marquardt), of equations from simple to rich: what stores and diffuses, with a reaction,
        with a rate that is more than a polynomial, and with what carries. A richer one is taken if
        it is better by far. Terms that explain next to nothing are dropped one by one, as in the
        sparse identification of dynamics (S. Brunton, J. Proctor and J. Kutz, 2016), and the others
        found again. Parts without terms are left out: they take no time, and do not learn. It takes
        some seconds, minutes where gases flow, and draws no random numbers.

        Parameters
        ----------
        frames : Tensor, shape (S, T, channels, \\*grid); on a mesh (S, T, N, channels)
            S series of T >= 2 frames like those to be predicted.
        spacing, nodes, volumes
            As in `forward`.

        Returns
        -------
        Tensor, shape (channels,)
            Error of the next frame over the change from frame to frame, as roots of mean squares.

        Raises
        ------
        ValueError
            For shapes that do not fit, or numbers that are not finite.
        """
        C, axes, dtype = self.channels, self.axes, self.carry.dtype
        shape = (C, *GRID_AXES[:axes]) if self.sets is None else ("N", C)
        states = frames.movedim(2, -1) if self.sets is None and frames.dim() > 3 else frames
        few = frames.dim() < 2 or frames.shape[0] < 1 or frames.shape[1] < 2
        if few or frames.dim() != len(shape) + 2 or states.shape[-1] != C:
            expected = f"shape (S >= 1, T >= 2, {', '.join(map(str, shape))})"
            raise error("frames", expected, tuple(frames.shape))
        if not frames.isfinite().all():
            raise error("frames", "finite numbers", "others")
        where = self.geometry(states[:, 0, ..., 0].shape, spacing, nodes, volumes)
        self.double()
        self.set_pace(1.0)
        errors, drift = Identification(self, states.double(), where).run()
        # After three epochs at PDEBench's rate of 1e-3, diffusion-reaction had an error of 0.0022
        # with a pace of 1, and has 0.0002. Numbers of hidden velocities are small: gravity of a dam
        # break is 0.02, and with a pace of 0.7 four steps at that rate doubled its error.
        pace = 0.0 if "mass" in self.forms else PACE * drift
        self.set_pace(min(max(SLOWEST, pace), 1.0))  # the slowest for NaN
        self.to(dtype)
        return errors.to(dtype)


def _implicit(v: Tensor, circuit: Circuit, capacitance: Tensor, dt: float) -> Tensor:
    """`chonn_ops.rc_step` of fields that need no checks."""
    network = companion(v, circuit, capacitance * (circuit.volume / dt))
    current, (g, *others), leak, layout = network
    if not others and isinstance(layout, Grid) and is_line(current, leak, g):
        return Line.apply(current, leak, g, layout)
    return solve_checked(*network, AUTO)[0].to(v.dtype)


def _terms(x: Tensor, numbers: Tensor) -> list[tuple[tuple[int, ...], float]]:
    """Places and values of the entries that are not 0, nor their numbers small."""
    kept = (x != 0) & (numbers.abs() > SMALL * numbers.abs().amax())
    return [(tuple(place), float(x[tuple(place)])) for place in kept.nonzero().tolist()]


@torch.no_grad()
def _after_loading(model: _CHONNStep, _keys: Any) -> None:
    if not model.found.is_meta:
        present = iter(model.found.bool().tolist())
        parts, forms = ({name for name in names if next(present)} for names in (PARTS, FORMS))
        model._set_parts(parts, forms, list(present))


def _count(fastest: float, limit: float) -> int:
    """Steps in which no wave crosses more than so many cells, but at most `MOST`."""
    return math.ceil(min(max(fastest / limit, 1.0), MOST)) if fastest == fastest else MOST


class CHONNStep1d(_CHONNStep):
    """`CHONNStep2d` for fields (B, C, N)."""

    axes = 1


class CHONNStep2d(_CHONNStep):
    r"""Predict the next frame of a time series: one circuit carries, reacts, stores and diffuses.

    Capacitors hold the state u, resistors spread it, currents carry it and react::

        C(u) (du/dt + sum_a A_a(u) du/dx_a - R(u)) = div(D grad u)

    ===== ========================================================================================
    D     one number a channel
    A_a   a matrix that couples the channels along axis a; affine in the channels and, with several,
          in the inverses of those that stay away from 0
    R     a polynomial of degree 3 (2 from four channels on), and a network of each point, which
          `calibrate` may make hat functions of the values of a channel with fixed places
    C     the exponential of a linear function of u and log u, and of a network of each point
    ===== ========================================================================================

    Faces of the domain are walls with a learned potential at a learned distance, or periodic. A
    state of one channel may have a velocity in A that no frame shows, which a circuit finds: the
    curl of the potential whose source is the state (a vorticity, on periodic planes; a source of
    the lowest waves is added), or the gradient of the one whose currents bring each node what it
    gained since the frame before (a depth of water). The latter needs two frames.

    A step is of second order in time: half of the reaction and of the fluxes, the circuit in two
    implicit stages, and both halves again. Two steps make a frame where that is far better. Fluxes
    are limited (MUSCL) or, for smooth data, differences of the sixth order in four stages, in as
    many steps as the fastest wave needs.
    Where values cannot be read (exports, vmap), waves of more than 7 cells a step are slowed down.

    `calibrate` finds the equation from some frames and leaves out the parts that it lacks. All
    numbers are parameters times ``pace``, a buffer that it sets: the better it fits, the less far a
    step of an optimiser moves them. Before it no velocity is hidden and fluxes are limited. Time to
    the next frame and spacing are arguments, so a model can be evaluated on finer grids and with
    shorter steps.

    Parameters
    ----------
    channels : int
        Channels of a frame.
    width, depth : int
        Channels and layers of the network of each point.
    lengths : float or sequence of float, one an axis
        As in `CHONNNetwork2d`.
    boundary : {"auto", "periodic", "robin"} or a sequence of them, one an axis
        "robin" are the learned walls; "auto" are these, too, until `calibrate` finds that the axis
        is periodic.
    nodes : {"centres", "left", "corners"} or pairs of float
        Where the nodes lie, see `chonn_ops.Network`.
    sets : sequence of str, optional
        Makes it a model of meshes, which nothing is carried on: names of `FiniteVolumes.sets`, each
        with a learned potential at a learned distance. Other walls are insulated.
    device, dtype
        As in `torch.nn`.

    Raises
    ------
    ValueError
        For sizes below 1, lengths not above 0 or an unknown boundary.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops import CHONNStep2d
    >>> model = CHONNStep2d(2)
    >>> residual = model.calibrate(torch.rand(4, 5, 2, 8, 8))
    >>> model(torch.rand(4, 2, 8, 8)).shape
    torch.Size([4, 2, 8, 8])
    """

    axes = 2


class CHONNStep3d(_CHONNStep):
    """`CHONNStep2d` for fields (B, C, X, Y, Z)."""

    axes = 3
