"""Models of time series: one circuit a step carries, reacts, stores and diffuses."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.boundary import Dirichlet, Neumann, Periodic, per_axis
from chonn_ops.checks import GRID_AXES, answer, as_field, check_above, check_integer, error
from chonn_ops.models.carry import Carried, Kernel, has_kernel
from chonn_ops.models.line import Line, is_line
from chonn_ops.models.network import PointwiseTrunk, Units
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.network.circuit import Circuit, solve_checked
from chonn_ops.network.discretise.grids import Spacing, circuit_of, edges, face_area, spacings
from chonn_ops.network.discretise.steps import companion
from chonn_ops.network.layout import excess
from chonn_ops.network.solve.methods import AUTO
from chonn_ops.nn.circuit_head import DISTANCE, DISTANCE_GAIN, wall_distance
from chonn_ops.nn.geometry import (
    Distances,
    Nodes,
    checked_nodes,
    distances_of,
    spacing_and_nodes,
    wall_distances,
)
from chonn_ops.nn.layers import Factory

PARTS = ("carry", "react", "store", "diffuse")
# How it carries: differences of the fourth order instead of limited ones (rollouts of vorticity had
# errors of 0.003 instead of 0.069); velocities that a circuit finds from what flowed into each node
# since the last frame, or from the state as vorticity.
FORMS = ("smooth", "mass", "vorticity")
BOUNDARIES = ("auto", "periodic", "robin")
# Units of the parameters that are numbers for the whole field, which have further to go than
# weights, or less far: change a frame, in the unit of the state; displacement a frame, in that of
# the domain; logarithms of a capacity and of a diffusivity. The last is that of a diffusivity whose
# parameter is 0, the domain and a frame being 1.
RATE, SPEED, STORE, GAIN, DIFFUSIVITY = 0.1, 1 / 16, 0.25, 8.0, -11.0
# Cells that the fastest wave may cross in one step of limited fluxes and of smooth ones, which are
# stable to 1 and 2.06: to that of the four stages, 2.83, over the largest slope of a wave, 1.37.
CFL, SMOOTH = 0.9, 1.5
# The most such steps in half a substep, and how many where values cannot be read.
MOST, FEW = 32, 4
# Leak of circuits of velocities, over the square of the domain, which gives a mean a potential: the
# longest wave's resistors conduct 40 / LEAK times as much.
LEAK = 1e-4
# Two implicit stages of this part of a step each are of second order and damp all that is stiff
# (R. Alexander, 1977).
STAGE = 1 - math.sqrt(0.5)
# `calibrate` compares about so many numbers of next frames, which takes some seconds; starts from
# this diffusivity, in cells squared a frame; takes at most so many steps of Levenberg and
# Marquardt's method; and of more numbers than `MANY`, or of velocities, drops some before it
# compares frames. Without that a dam break took 60 s instead of 16, with an error 7 % lower.
NUMBERS, START, TURNS, MANY = 2e4, 0.1, 30, 60
# Inverses of channels that stay above this part of their size are terms. Without such terms
# compressible flow on a line had an error of 0.019 instead of 0.015.
NEAR = 0.1
# It drops terms without which squares of errors rise by less than the first part of themselves or
# the second part of the change. With a first part of 0.02 and of 0.125, Burgers' equation and
# diffusion-sorption had the same parts and errors.
WORTH, LITTLE = 0.05, 1e-5
# It tries further forms beyond this mean square of errors over the change, and takes one whose mean
# square is below this part of that of the simpler ones.
ENOUGH, WORSE = 0.02, 0.7
# The numbers that it sets: what they are where nothing is, and the most that a step changes them.
SET = {
    "carry": (0.0, math.inf),
    "forcing": (0.0, math.inf),
    "reaction": (0.0, math.inf),
    "storage": (0.0, 2.0),
    "diffusivity": (-2.0, 2 / GAIN),
    "level": (0.0, math.inf),
    "distance": (2.0, 2 / DISTANCE_GAIN),
}


class _CHONNStep(Pretrained):
    """The model in any number of dimensions; see `CHONNStep2d`."""

    axes: ClassVar[int]
    size: Tensor
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
        substeps: int = 1,
        lengths: float | Sequence[float] = 1.0,
        boundary: str | Sequence[str] = "auto",
        nodes: Nodes = "centres",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, channels=channels, width=width, depth=depth, substeps=substeps)
        self.channels, self.substeps, self.nodes = channels, substeps, checked_nodes(nodes)
        self.lengths = tuple(spacings(lengths, self.axes, "lengths"))
        self.boundary = per_axis(boundary, self.axes, BOUNDARIES)
        self.unit = sum(self.lengths) / self.axes
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
        self.level, self.distance = zeros(axes, 2, C), zeros(axes, 2, C)
        self.register_buffer("size", torch.ones(C, **factory))
        for name, value in (("low", -4.0), ("high", 4.0), ("positive", 0.0)):
            self.register_buffer(name, torch.full((Z,), value, **factory))
        self.register_buffer("found", torch.ones(len(PARTS) + len(FORMS) + axes, **factory))
        self._has(set(PARTS), set(), [word == "periodic" for word in self.boundary])
        self.register_load_state_dict_post_hook(_after_loading)

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        nodes = distances_of(self.nodes, self.axes)
        return {"lengths": self.lengths, "substeps": self.substeps, "nodes": nodes}

    def _has(self, parts: set[str], forms: set[str], rings: Sequence[bool]) -> None:
        """Set which parts are there, in which forms, and which axes are periodic. Other parts do
        not learn."""
        self.parts, self.forms, self.rings = parts, forms, tuple(rings)
        found = [*(part in parts for part in PARTS), *(form in forms for form in FORMS), *rings]
        self.found.copy_(torch.tensor(found, dtype=self.found.dtype))
        several = self.channels > 1 and not self.positive.is_meta
        self.inverses = several and bool((self.positive > 0).any())
        self.history = 2 if "mass" in forms else 1
        self.in_channels = self.history * self.channels
        network = [*self.trunk.parameters(), *self.last.parameters()]
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
        learned = F.linear(h, self.last.weight[:C], self.last.bias[:C])
        # Of the channels, one a term.
        products: dict[tuple[int, ...], Tensor] = {(): torch.ones_like(v[..., 0])}
        for term in self.powers[1:]:
            products[term] = products[term[:-1]] * v[..., term[-1]]
        polynomial = F.linear(torch.stack([*products.values()], -1), self.reaction.to(v))
        return RATE * (polynomial + learned)

    def capacity(self, v: Tensor) -> Tensor:
        """Capacity of each node, relative to that whose `diffusivity` is stated."""
        C, h = self.channels, self.features(self._bounded(v))
        logs = F.linear(h, self.storage)
        logs = logs + F.linear(self.trunk(h), self.last.weight[C:], self.last.bias[C:])
        return (STORE * logs.to(v)).clamp(-12, 12).exp()

    def _react(self, v: Tensor, time: float) -> Tensor:
        if "react" not in self.parts:
            return v
        return v + time * self.rate(v + time / 2 * self.rate(v))

    # What is carried, z (B, \\*grid, R): the state, and its velocity if that is a state, too.

    def _speeds(self, time: float, steps: Sequence[float]) -> list[Tensor]:
        """Of each axis the coefficients (R R, F) of cells that are crossed in a time."""
        n = self.states if self.forms & {"mass", "vorticity"} else self.channels
        rows = n if "mass" in self.forms else self.channels
        kept = self.carry[:, :rows, :rows]
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
        found = edges(medium, list(steps), list(self.rings))
        circuit = circuit_of(medium, found, torch.full_like(like, leak), steps, joined)
        # Without a medium, one circuit serves the whole batch.
        v = circuit.solve(source[None])[0] if k is None else circuit.solve(source)
        slopes = [self._slope(v, axis) / step for axis, step in enumerate(steps)]
        if k is None:
            slopes = [slopes[1], -slopes[0]]
        return torch.cat(slopes, -1) / (self.unit * SPEED)

    def _slope(self, v: Tensor, axis: int) -> Tensor:
        """Half the difference of both neighbours, of the fourth order."""
        a, b = (self._beside(v, axis, k) - self._beside(v, axis, -k) for k in (1, 2))
        return (8 * a - b) / 12

    def _beside(self, v: Tensor, axis: int, k: int) -> Tensor:
        """The k-th neighbour of each cell along an axis; beyond a wall the outermost cell."""
        if self.rings[axis]:
            return v.roll(-k, axis + 1)
        n = v.shape[axis + 1]
        return v.index_select(axis + 1, (torch.arange(n, device=v.device) + k).clamp(0, n - 1))

    def _drift(self, z: Tensor, weights: Sequence[Tensor], steps: Sequence[float]) -> Tensor:
        """Change of what is carried, by differences of the fourth order."""
        whole = self._whole(z, steps)
        moved = [_times(self._matrix(whole, w), self._slope(z, k)) for k, w in enumerate(weights)]
        return -torch.stack(moved).sum(0)

    def _carry(
        self, z: Tensor, time: float, steps: Sequence[float], smooth: bool = False
    ) -> Tensor:
        if "carry" not in self.parts:
            return z
        if not (smooth or self.forms) and has_kernel(z, self.carry):
            return self._carry_one(z, time, steps)
        weights = self._speeds(time, steps)
        with torch.no_grad():
            whole = self._whole(z, steps)
            way = torch.stack([_fastest(self._matrix(whole, w)) for w in weights]).sum(0)
            fastest = torch.cat((way.flatten(), way.new_zeros(1))).amax()
        smooth = smooth or "smooth" in self.forms
        limit = SMOOTH if smooth else CFL
        known = answer(lambda: float(fastest))
        most = FEW if known is None else MOST
        # Faster waves than that are slowed down, as longer steps were not stable.
        slower = (most * limit / fastest.clamp(min=1e-30)).clamp(max=1)
        count = most if known is None else _count(known, limit)
        weights = [w * (slower / count) for w in weights]
        push = self._push(z, time / count, steps) if "vorticity" in self.forms else 0.0
        for _ in range(count):
            if smooth:  # four stages (A. Jameson, W. Schmidt, E. Turkel, 1981)
                w = z
                for share in (1 / 4, 1 / 3, 1 / 2, 1):
                    w = z + share * (self._drift(w, weights, steps) + push)
                z = w
            else:
                z = z + self._limited(z, weights, steps) + push
        return z

    def _carry_one(self, z: Tensor, time: float, steps: Sequence[float]) -> Tensor:
        """The limited fluxes of one channel, by the compiled kernel."""
        scales = [self.unit * SPEED * time / step for step in steps]
        speeds = self.carry[:, 0, 0, :2]
        kernel = Kernel(z, speeds, scales, (self.low[0].item(), self.high[0].item()), self.rings)
        fastest = kernel.fastest(z)
        count = _count(fastest, CFL)
        part = min(1.0, MOST * CFL / max(fastest, 1e-30)) / count

        def plain(z: Tensor, speeds: Tensor) -> Tensor:
            rows = [(part * scale) * w[None] for w, scale in zip(speeds, scales, strict=True)]
            for _ in range(count):
                z = z + self._limited(z, rows, steps)
            return z

        return Carried.apply(z, speeds, kernel, count, part, plain)

    def _push(self, v: Tensor, time: float, steps: Sequence[float]) -> Tensor:
        """Change by a source that depends on the place: products of waves along the axes."""
        waves = torch.ones_like(v[:1])
        for axis, step in enumerate(steps):
            n = v.shape[axis + 1]
            shape = [n if k == axis + 1 else 1 for k in range(self.axes + 2)]
            at = torch.arange(n, device=v.device, dtype=v.dtype).view(shape) * step
            at = at * (2 * math.pi / self.lengths[axis])
            waves = torch.cat((waves, waves * at.sin(), waves * at.cos()), -1)
        return RATE * time * F.linear(waves, self.forcing.to(v))

    def _limited(self, z: Tensor, weights: Sequence[Tensor], steps: Sequence[float]) -> Tensor:
        """Change of what is carried in a step: limited slopes, half a step on (MUSCL-Hancock), and
        at faces the matrices of both sides' mean (Roe's, for the quadratic fluxes of one channel)
        with the dissipation of the fastest wave."""
        whole, slopes, half = self._whole(z, steps), [], z
        rest = whole[..., z.shape[-1] :]
        for axis, w in enumerate(weights):
            right = self._beside(z, axis, 1) - z
            left = right.roll(1, axis + 1)  # at walls the last difference is 0, so this is right
            both = left * right
            slope = torch.where(both > 0, 2 * both / torch.where(both > 0, left + right, 1), 0)
            slopes.append(slope)
            half = half - _times(self._matrix(whole, w), slope) / 2
        change = torch.zeros_like(z)
        for axis, (w, slope) in enumerate(zip(weights, slopes, strict=True)):
            front, back = half + slope / 2, self._beside(half - slope / 2, axis, 1)
            middle, jump = (front + back) / 2, back - front
            inner = half
            if rest.shape[-1]:
                middle = torch.cat((middle, (rest + self._beside(rest, axis, 1)) / 2), -1)
                inner = torch.cat((half, rest), -1)
            matrix = self._matrix(middle, w)
            flow = _times(matrix, jump)
            spread = _fastest(matrix)[..., None] * jump
            ahead, behind = (flow + spread) / 2, (flow - spread) / 2
            within = _times(self._matrix(inner, w), slope)
            change = change - within - behind - ahead.roll(1, axis + 1)
        return change

    def circuit(self, v: Tensor, steps: Sequence[float], nodes: Distances) -> Circuit:
        """The resistors between cells and behind walls where the diffusivity is 1, for states of
        this shape."""
        one = v.new_ones(()).expand(v.shape)
        edges = [one * (face_area(steps, axis) / step) for axis, step in enumerate(steps)]
        level = self.level.to(v)
        far = self.unit * wall_distance(self.distance.to(v))
        faces: Any = [
            (Periodic(),) * 2 if ring else tuple(map(Dirichlet, level[axis], far[axis]))
            for axis, ring in enumerate(self.rings)
        ]
        zero = torch.zeros_like(v)
        return circuit_of(one, edges, zero, steps, faces, distances=wall_distances(nodes))

    def _slowness(self, v: Tensor, store: bool) -> Tensor:
        """Capacity over diffusivity: the capacitors beside the resistors of `circuit`. As these
        need no gradient, a frame of diffusion-sorption trains in 4.8 ms instead of 5.6."""
        slow = (-DIFFUSIVITY - GAIN * self.diffusivity.to(v)).exp() / self.unit**2
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

        z = with_rest(self._react(z[..., :C], time / 2))
        z = self._carry(z, time if alone else time / 2, steps)
        if not alone:
            z = with_rest(self._diffuse(z[..., :C], time, circuit))
            z = self._carry(z, time / 2, steps)
        return with_rest(self._react(z[..., :C], time / 2))

    def _lifted(self, before: Tensor, v: Tensor, dt: float, steps: Sequence[float]) -> Tensor:
        """A state with the velocity that led to it from the frame before: currents that bring each
        node what it got. So many steps back lead to that frame, but for what is lost: without this
        correction a dam break had an error of 0.016 instead of 0.009."""
        z = torch.cat((v, self._velocity((v - before) / dt, (v + before) / 2, steps)), -1)
        back = self._carry(torch.cat((v, -z[..., 1:]), -1), dt, steps, smooth=True)[..., :1]
        return torch.cat((v, z[..., 1:] + self._velocity((back - before) / dt, v, steps)), -1)

    def forward(
        self,
        x: Tensor,
        *,
        dt: float = 1.0,
        spacing: Spacing | None = None,
        nodes: Nodes | None = None,
    ) -> Tensor:
        """Predict the next frame.

        Parameters
        ----------
        x : Tensor, shape (B, frames * channels, \\*grid)
            The last `history` frames, or more of which these count, the oldest first.
        dt : float
            Time to the next frame, in the frames of the training data.
        spacing : float or sequence of float, one an axis, optional
            Distance of the points, in the unit of `lengths`. Default: the points fill `lengths`.
        nodes : {"centres", "left", "corners"} or pairs of float, optional
            Where the points lie, see `chonn_ops.Network`. Default: the option.

        Returns
        -------
        Tensor, shape (B, channels, \\*grid)

        Raises
        ------
        ValueError
            For another number of axes, channels or frames, a `dt` not above 0, or a geometry that
            does not fit.
        """
        check_above(0, dt=dt)
        x = as_field("x", x, self.parameters(), "B", "C", *GRID_AXES[: self.axes])
        least, C = self.history * self.channels, self.channels
        if x.shape[1] < least or x.shape[1] % C:
            raise error("x", f"{C} channels of each of {self.history} frames or more", x.shape[1])
        v = x[:, -least:].movedim(1, -1)
        v = v.to(torch.promote_types(v.dtype, torch.float32)) / self.size.repeat(self.history)
        steps, lie = spacing_and_nodes(v.shape[:-1], self.lengths, self.nodes, spacing, None, nodes)
        if self.history > 1:
            before, v = v.split(C, -1)
            v = self._lifted(before, v, dt, steps)
        circuit = self.circuit(v[..., :C], steps, lie) if "diffuse" in self.parts else None
        for _ in range(self.substeps):
            v = self._step(v, dt / self.substeps, steps, circuit)
        return (v[..., :C] * self.size).movedim(-1, 1).to(x.dtype)

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
        found, unit = {}, self.unit
        if "diffuse" in self.parts:
            found["diffusivity"] = unit**2 * (DIFFUSIVITY + GAIN * self.diffusivity).exp()
        if "carry" in self.parts:
            size = self.size.new_full((self.states,), unit * SPEED)
            size[: self.channels] = self.size
            features = torch.cat((torch.ones_like(size[:1]), 1 / size, size))
            over = size[:, None, None] / size[:, None] * features
            found["speed"] = unit * SPEED * self.carry * over
        if "react" in self.parts:
            scale = torch.stack([self.size[list(term)].prod() for term in self.powers])
            found["reaction"] = RATE * self.size[:, None] * self.reaction / scale
        return found

    def equation(self) -> str:
        """The equation that `coefficients` state, one line a channel; u are channels, w the
        velocity that no frame shows, and d/dx, d/dy, d/dz slopes."""
        found, C = self.coefficients(), self.channels
        names = [f"u{c}" for c in range(C)] + [f"w{'xyz'[a]}" for a in range(self.states - C)]
        features = ["", *(f" {x}" for x in names), *(f" / {x}" for x in names)]
        lines, none = list[str](), torch.zeros(1, self.states, 1, 1)
        for c in range(self.states if "mass" in self.forms else C):
            terms = []
            for (a, j, f), x in _not_zero(found.get("speed", none)[:, c]):
                terms.append((-x, f"{features[f]} d/d{'xyz'[a]} {names[j]}"))
            if c < C:
                for (m,), x in _not_zero(found.get("reaction", torch.zeros(C, 1))[c]):
                    terms.append((x, "".join(f" {names[k]}" for k in self.powers[m])))
                if "diffuse" in self.parts:
                    terms.append((float(found["diffusivity"][c]), f" div grad {names[c]}"))
            right = " ".join(f"{'-' if x < 0 else '+'} {abs(x):.4g}{text}" for x, text in terms)
            lines.append(f"d/dt {names[c]} = {right or '0'}")
        if "store" in self.parts:
            lines.append("all over a capacity that depends on the channels")
        if "vorticity" in self.forms:
            lines.append("and a source that depends on the place")
            lines.append("w = curl of psi, -div grad psi = u0 - its mean")
        return "\n".join(lines)

    @torch.no_grad()
    def calibrate(
        self, frames: Tensor, *, spacing: Spacing | None = None, nodes: Nodes | None = None
    ) -> Tensor:
        """Start from the equation that predicts some frames best, without the parts that it lacks.

        Sets units, and finds all numbers but those of the pointwise network by nonlinear least
        squares on next frames (Levenberg and Marquardt). Terms that explain next to nothing are
        dropped one by one, as in the sparse identification of dynamics (S. Brunton, J. Proctor and
        J. Kutz, 2016), and the others found again. Parts without terms are left out: they take no
        time, and do not learn. It takes some seconds, and draws no random numbers.

        Parameters
        ----------
        frames : Tensor, shape (S, T, channels, \\*grid)
            S time series of T >= 2 frames, which represent the data.
        spacing, nodes
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
        if frames.dim() != axes + 3 or frames.shape[1] < 2 or frames.shape[2] != C:
            expected = f"shape (S, T >= 2, {C}, {', '.join(GRID_AXES[:axes])})"
            raise error("frames", expected, tuple(frames.shape))
        if not frames.isfinite().all():
            raise error("frames", "finite numbers", "others")
        self.double()
        x = frames.double()
        length = min(3, x.shape[1])
        some = x.unfold(1, length, 1).movedim(-1, 2).flatten(0, 1)  # stretches (N, length, C, ...)
        count = min(len(some), max(2, int(NUMBERS * len(some) / some[:, 0].numel())))
        # Steps of the golden ratio spread over the series and their frames alike.
        spread = torch.arange(count, device=x.device) * ((math.sqrt(5) - 1) / 2) % 1
        some = some[(spread * len(some)).long()]
        size = x.square().movedim(2, -1).flatten(0, -2).mean(0).sqrt()
        self.size.copy_(torch.where(size > 0, size, 1))
        x = x.movedim(2, -1) / self.size
        flat = x.reshape(-1, C)
        least, most = flat.aminmax(dim=0)
        self.low[:C], self.high[:C] = least - (most - least) / 4, most + (most - least) / 4
        self.positive[:C] = least > NEAR
        self.units.fit(flat)
        rings = [self._is_ring(x, axis) for axis in range(axes)]
        steps, lie = spacing_and_nodes(
            x[:, 0, ..., 0].shape, self.lengths, self.nodes, spacing, None, nodes
        )
        stretch = some.movedim(2, -1) / self.size
        change = (stretch[:, -1] - stretch[:, -2]).square()
        change = change.mean(tuple(range(1, axes + 1)), keepdim=True).sqrt()
        # Frames count alike, but for those in which next to nothing happens.
        change = change + change.mean(0) / 10 + 1e-30
        given = some[:, :-1].flatten(1, 2)
        after, geometry = stretch[:, -1], {"spacing": spacing, "nodes": nodes}

        def residual() -> Tensor:
            found = self(given, **geometry).movedim(1, -1) / self.size
            return (found - after) / change

        best: Any = None
        for forms in self._possible(length, rings):
            if forms == {"smooth"} and "carry" not in self.parts:
                continue
            self._begin(x, steps, rings, forms)
            squares = self._fitted(stretch, change, residual, steps, lie)
            if best is None or squares < WORSE * best[0]:
                best = squares, copy.deepcopy(self.state_dict())
            if best[0] < ENOUGH:
                break
        self.load_state_dict(best[1])
        squares = residual().square()
        self.to(dtype)
        return squares.flatten(0, -2).mean(0).sqrt().to(dtype)

    def _possible(self, length: int, rings: list[bool]) -> list[set[str]]:
        """The forms that data of so many frames and these ends may have, from simple to rich."""
        forms: list[set[str]] = [set(), {"smooth"}]
        if self.channels == 1 and self.axes == 2 and all(rings):
            forms.append({"smooth", "vorticity"})
        if self.channels == 1 and length > 2 and self.positive[0]:
            forms.append({"mass"})
        return forms

    def _fitted(
        self,
        stretch: Tensor,
        change: Tensor,
        residual: Callable[[], Tensor],
        steps: Sequence[float],
        lie: Distances,
    ) -> float:
        """Find the numbers of one form; mean square of what is left of the next frame. Rates at the
        frames come first, because Burgers' equation had wrong minima without them."""
        masks, collocation = self._entries(), self._collocation(stretch, change, steps, lie)
        free = torch.cat([m.flatten() for m in masks.values()])

        def fit(
            function: Callable[[], Tensor], free: Tensor, turns: int = TURNS
        ) -> tuple[Any, Tensor, Tensor]:
            def errors(some: Tensor) -> Tensor:
                self._numbers(self._numbers().masked_scatter(free, some))
                return function().flatten()

            start, largest = self._numbers()[free], self._each(1)[free]
            found = _levenberg_marquardt(errors, start, largest, turns)
            return errors, found, errors(found)

        def kept(errors: Any, found: Tensor, left: Tensor, free: Tensor) -> Tensor:
            effects = _slopes(errors, found) * self._effects(steps, lie)[free]
            return free.masked_scatter(free, _worth(effects, effects.sum(1) - left))

        started = fit(collocation, free, 2)
        if int(free.sum()) > MANY or "mass" in self.forms:
            free = kept(*started, free)
            self._keep(free)
        fitted = fit(residual, free)
        whole, squares = self._numbers(), float(fitted[2].square().mean())
        parts = self.parts
        self._keep(kept(*fitted, free))
        free = self._numbers() != self._each(0)
        after = float(fit(residual, free)[2].square().mean())
        if not self.parts or after > 2 * squares + LITTLE:
            # All terms stay where none explains much, so that something learns, and where those
            # that seemed to explain nothing did, beyond the first order.
            self._has(parts, self.forms, self.rings)
            self._numbers(whole)
            after = squares
        return after

    def _collocation(
        self, stretch: Tensor, change: Tensor, steps: Sequence[float], lie: Distances
    ) -> Callable[[], Tensor]:
        """What rates at the frames of stretches (N, T, \\*grid, C) leave of the change from first
        to last, by Simpson's rule. Nearly linear in the numbers, so it has no wrong minima. Also
        sets the range of velocities that no frame shows."""
        z = stretch
        if "mass" in self.forms:
            speeds = [
                self._velocity(z[:, k + 1] - z[:, k], (z[:, k + 1] + z[:, k]) / 2, steps)
                for k in range(2)
            ]
            mean, right = (speeds[0] + speeds[1]) / 2, speeds[1] - speeds[0]
            reach = 1.5 * mean.abs().amax()
            self.low[1:], self.high[1:] = -reach, reach
            unit = right.square().mean().sqrt()
            weights = self._speeds
            whole = torch.cat((z[:, 1], mean), -1)
            return lambda: (self._drift(whole, weights(1.0, steps), steps)[..., 1:] - right) / unit
        if "vorticity" in self.forms:
            reach = 1.5 * self._velocity(z[:, -1], None, steps).abs().amax()
            self.low[1:], self.high[1:] = -reach, reach
        shares = z.new_tensor((1 / 3, 4 / 3, 1 / 3) if z.shape[1] == 3 else (1 / 2, 1 / 2))
        right, every = z[:, -1] - z[:, 0], z.flatten(0, 1)

        def residual() -> Tensor:
            rates = self._rates(every, steps, lie).view_as(z)
            moved = torch.einsum("t,nt...->n...", shares, rates)
            return (moved - right) / (change * (z.shape[1] - 1))

        return residual

    def _rates(self, v: Tensor, steps: Sequence[float], lie: Distances) -> Tensor:
        """Change a frame by all parts at once."""
        circuit = self.circuit(v, steps, lie)
        current = torch.zeros_like(v) if circuit.current is None else circuit.current
        flow = excess(v, current, circuit.conductance, circuit.leak, circuit.layout)
        rate = self.rate(v) + flow / circuit.volume / self._slowness(v, store=True)
        if "vorticity" in self.forms:
            rate = rate + self._push(v, 1.0, steps)
        return rate + self._drift(v, self._speeds(1.0, steps), steps)

    def _is_ring(self, v: Tensor, axis: int) -> bool:
        """Whether the ends of an axis differ by as little as neighbours, in the later frames."""
        if self.boundary[axis] != "auto":
            return self.boundary[axis] == "periodic"
        late, dim = v[:, v.shape[1] // 2 :], axis + 2
        near, ends = late.diff(dim=dim), late.narrow(dim, 0, 1) - late.narrow(dim, -1, 1)
        limit = (2 * late.var(dim).mean() * near.square().mean()).sqrt()
        return bool(ends.square().mean() < limit)

    def _each(self, which: int) -> Tensor:
        """An entry of `SET` for each number."""
        return torch.cat(
            [torch.full_like(getattr(self, k), x[which]).flatten() for k, x in SET.items()]
        )

    def _numbers(self, new: Tensor | None = None) -> Tensor:
        """The numbers that `calibrate` sets, in a row, after they were set to others."""
        parts = [getattr(self, name) for name in SET]
        if new is not None:
            for p, x in zip(parts, new.split([p.numel() for p in parts]), strict=True):
                p.copy_(x.view_as(p))
        return torch.cat([p.flatten() for p in parts])

    def _begin(self, v: Tensor, steps: Sequence[float], rings: list[bool], forms: set[str]) -> None:
        """Nothing but diffusion, and walls near by at the potentials beside them."""
        self._has(set(PARTS), forms, rings)
        for p in (*self.last.parameters(), *(getattr(self, name) for name in SET)):
            p.zero_()
        cell = START * min(steps) ** 2 / self.unit**2
        self.diffusivity.fill_((math.log(cell) - DIFFUSIVITY) / GAIN)
        for axis, step in enumerate(steps):
            self.distance[axis] = math.log(step / 2 / (self.unit * DISTANCE)) / DISTANCE_GAIN
            for end, node in enumerate((0, v.shape[axis + 2] - 1)):
                self.level[axis, end] = v.select(axis + 2, node).flatten(0, -2).mean(0)
        if "mass" in forms:  # what flows into a node changes its state
            for axis in range(self.axes):
                self.carry[axis, 0, 0, 2 + axis] = self.carry[axis, 0, 1 + axis, 1] = 1

    def _entries(self) -> dict[str, Tensor]:
        """Which numbers `calibrate` sets: capacities depend on their own channel."""
        masks = {k: torch.ones_like(getattr(self, k), dtype=torch.bool) for k in SET}
        masks["storage"] &= torch.eye(self.channels, device=self.size.device).bool().repeat(1, 2)
        for axis, ring in enumerate(self.rings):
            masks["level"][axis] = masks["distance"][axis] = not ring
        C, carry = self.channels, masks["carry"]
        carry[..., self.states + 1 :] &= (self.positive > 0) & (self.channels > 1)
        if "mass" in self.forms:
            carry[:, 0] = False
            for name in masks.keys() - {"carry"}:
                masks[name][:] = False
        else:
            carry[:, C:], carry[:, :, C:] = False, False
            if "vorticity" not in self.forms:
                carry[..., 1 + C : 1 + self.states] = False
        masks["forcing"][:] = "vorticity" in self.forms
        masks["forcing"][:, 0] = False
        return masks

    def _effects(self, steps: Sequence[float], lie: Distances) -> Tensor:
        """What derivatives in the numbers are multiplied by for the effect of each. Logarithms have
        no zero; the conductance of a wall is that of both distances, before and behind its face."""
        before = torch.tensor([[a * h, b * h] for (a, b), h in zip(lie, steps, strict=True)])
        behind = self.unit * wall_distance(self.distance)
        parts = {k: getattr(self, k) for k in SET}
        parts["diffusivity"] = torch.full_like(self.diffusivity, 1 / GAIN)
        parts["distance"] = -(1 + before.to(behind)[..., None] / behind) / DISTANCE_GAIN
        return torch.cat([p.flatten() for p in parts.values()])

    def _keep(self, free: Tensor) -> None:
        """Leave these numbers in place, and nothing where the others are."""
        sizes = [getattr(self, k).numel() for k in SET]
        masks = dict(zip(SET, free.split(sizes), strict=True))  # views
        masks = {k: m.view_as(getattr(self, k)) for k, m in masks.items()}
        masks["storage"] &= masks["diffusivity"][:, None]
        masks["distance"] &= masks["diffusivity"]
        masks["level"] &= masks["distance"]
        if "mass" in self.forms:
            free = free.clone()
            free[: self.carry.numel()].view_as(self.carry)[:, 0] = True
        self._numbers(torch.where(free, self._numbers(), self._each(0)))
        pairs = zip(PARTS, ("carry", "reaction", "storage", "diffusivity"), strict=True)
        self._has({part for part, k in pairs if masks[k].any()}, self.forms, self.rings)


def _implicit(v: Tensor, circuit: Circuit, capacitance: Tensor, dt: float) -> Tensor:
    """`chonn_ops.rc_step` of fields that need no checks."""
    network = companion(v, circuit, capacitance * (circuit.volume / dt))
    current, (g, *others), leak, layout = network
    if not others and is_line(current, leak, g):
        return Line.apply(current, leak, g, layout)
    return solve_checked(*network, AUTO)[0].to(v.dtype)


def _not_zero(x: Tensor) -> list[tuple[tuple[int, ...], float]]:
    """Places and values of the entries that are not 0."""
    return [(tuple(place), float(x[tuple(place)])) for place in x.nonzero().tolist()]


@torch.no_grad()
def _after_loading(model: _CHONNStep, _keys: Any) -> None:
    if not model.found.is_meta:
        found = iter(model.found.bool().tolist())
        parts, forms = ({name for name in names if next(found)} for names in (PARTS, FORMS))
        model._has(parts, forms, list(found))


def _slopes(residual: Callable[[Tensor], Tensor], at: Tensor, step: float = 1e-5) -> Tensor:
    """Derivatives of residuals (rows,) in some numbers, (rows, numbers), by differences."""
    before = residual(at)
    shifts = torch.eye(len(at), dtype=at.dtype, device=at.device) * step
    columns = [(residual(at + shift) - before) / step for shift in shifts]
    return torch.stack(columns, 1) if columns else before.new_zeros(len(before), 0)


def _levenberg_marquardt(
    residual: Callable[[Tensor], Tensor], start: Tensor, largest: Tensor, turns: int
) -> Tensor:
    """Levenberg and Marquardt's method, whose steps change no number by more than its largest."""
    before, damping = residual(start), 1e-3
    for _ in range(turns if len(start) else 0):
        slopes, last = _slopes(residual, start), float(before.square().sum())
        gram, drive = slopes.T @ slopes, slopes.T @ before
        bend = gram.diagonal()
        cost = math.inf
        while damping < 1e6:
            matrix = gram + torch.diag(damping * bend + 1e-9 * bend.max() + 1e-30)
            change = torch.linalg.solve(matrix, drive).clamp(-largest, largest)
            after = residual(start - change)
            if (cost := float(after.square().sum())) < last:
                before, start, damping = after, start - change, damping / 10
                break
            damping *= 10
        if not cost < 0.995 * last:
            break
    return start


def _worth(effects: Tensor, target: Tensor) -> Tensor:
    """Which columns least squares need: without any of them the squares are larger by `WORTH`."""
    unit = effects.norm(dim=0)
    effects = effects / torch.where(unit > 0, unit, 1)
    gram, drive, whole = effects.T @ effects, effects.T @ target, float(target.square().sum())
    gram = gram + 1e-10 * torch.eye(len(gram)).to(gram)  # columns may depend on one another
    keep = torch.ones_like(drive, dtype=torch.bool)
    while keep.any():
        inverse = torch.linalg.inv(gram[keep][:, keep])
        shares = inverse @ drive[keep]
        rises = shares.square() / inverse.diagonal()
        left = max(whole - float(shares @ drive[keep]), 0.0)
        if rises.min() > WORTH * left + LITTLE * len(target):
            break
        keep[keep.nonzero()[rises.argmin()]] = False
    return keep


def _count(fastest: float, limit: float) -> int:
    """Steps in which no wave crosses more than so many cells, but at most `MOST`."""
    return math.ceil(min(max(fastest / limit, 1.0), MOST)) if fastest == fastest else MOST


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    """Products of matrices (..., R, R) and vectors (..., R)."""
    return (matrix * x[..., None, :]).sum(-1)


def _fastest(matrix: Tensor) -> Tensor:
    """A bound of the spectral radius of matrices (..., R, R), from their fourth powers."""
    if matrix.shape[-1] == 1:
        return matrix[..., 0, 0].abs()
    for _ in range(2):
        matrix = matrix @ matrix
    return (matrix.square().sum((-2, -1)) + 1e-30).pow(1 / 8)


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
    R     a polynomial of degree 3 (2 from four channels on), and a network of each point
    C     the exponential of a linear function of u and log u, and of a network of each point
    ===== ========================================================================================

    Faces of the domain are walls with a learned potential at a learned distance, or periodic. A
    state of one channel may have a velocity in A that no frame shows, which a circuit finds: the
    curl of the potential whose source is the state (a vorticity, on periodic planes; a source of
    the lowest waves is added), or the gradient of the one whose currents bring each node what it
    gained since the frame before (a depth of water). The latter needs two frames.

    A step is of second order in time: half of the reaction and of the fluxes, the circuit in two
    implicit stages, and both halves again. Fluxes are limited (MUSCL-Hancock) or, for smooth data,
    differences of the fourth order in four stages, in as many steps as the fastest wave needs.
    Where values cannot be read (exports, vmap), waves of more than 7 cells a step are slowed down.

    `calibrate` finds the equation from some frames and leaves out the parts that it lacks. Before
    it no velocity is hidden and fluxes are limited. Time to the next frame and spacing are
    arguments, so a model can be evaluated on finer grids and with shorter steps.

    Parameters
    ----------
    channels : int
        Channels of a frame.
    width, depth : int
        Channels and layers of the network of each point.
    substeps : int
        Steps a frame.
    lengths : float or sequence of float, one an axis
        Size of the domain, which sets the default spacing of a grid; the unit box by default.
    boundary : {"auto", "periodic", "robin"} or a sequence of them, one an axis
        "robin" are the learned walls; "auto" are these, too, until `calibrate` finds that the axis
        is periodic.
    nodes : {"centres", "left", "corners"} or pairs of float
        Where the nodes lie, see `chonn_ops.Network`.
    device, dtype
        As in `torch.nn`.

    Raises
    ------
    ValueError
        For sizes below 1, lengths not above 0 or an unknown boundary.

    Examples
    --------
    >>> model = CHONNStep2d(2)
    >>> residual = model.calibrate(torch.rand(4, 5, 2, 8, 8))
    >>> model(torch.rand(4, 2, 8, 8)).shape
    torch.Size([4, 2, 8, 8])
    """

    axes = 2


class CHONNStep3d(_CHONNStep):
    """`CHONNStep2d` for fields (B, C, X, Y, Z)."""

    axes = 3
