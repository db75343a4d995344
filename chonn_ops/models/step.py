"""Models of time series: one circuit a step carries, reacts, stores and diffuses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.boundary import Dirichlet, Periodic, per_axis
from chonn_ops.checks import GRID_AXES, answer, as_field, check_above, check_integer, error
from chonn_ops.models.network import PointwiseTrunk, Units
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.network.circuit import Circuit
from chonn_ops.network.grids import Spacing, circuit_of, face_area, spacings
from chonn_ops.network.rc import rc_step
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
BOUNDARIES = ("auto", "periodic", "robin")
# A parameter of 1 is this change and this displacement a frame, in the unit of the state and of the
# domain, and this logarithm of a capacity, of a diffusivity and of the distance of a wall: numbers
# for the whole field have further to move than weights at the same learning rate.
RATE, SPEED, STORE, GAIN = 0.1, 1 / 16, 0.25, 8.0
# Logarithm of the diffusivity a frame, and distance of the walls behind their face, at 0.
DIFFUSIVITY, DISTANCE = -11.0, 0.01
# Cells that the fastest wave crosses in one step of the fluxes; most such steps in half a substep,
# and how many where values cannot be read, as in exports and under vmap.
CFL, MOST, FEW = 0.9, 32, 4
# Two implicit stages of this part of a step each are of second order and damp all that is stiff.
STAGE, MORE = 1 - math.sqrt(0.5), math.sqrt(2)
# `calibrate` looks at so many numbers of next frames, takes at most so many steps of its method,
# starts from this diffusivity, in cells squared a frame, and drops terms without which squares of
# errors rise by less than the first part of themselves or the second part of the change.
NUMBERS, TURNS, START, WORTH, LITTLE = 2e4, 10, 0.1, 0.1, 1e-5
GOLDEN = (math.sqrt(5) - 1) / 2
# The numbers that it sets: what they are where nothing is, and the most that a step changes them.
SET = {
    "speed": (0.0, math.inf),
    "shear": (0.0, math.inf),
    "reaction": (0.0, math.inf),
    "storage": (0.0, 2.0),
    "diffusivity": (-2.0, 1 / GAIN),
    "level": (0.0, math.inf),
    "distance": (2.0, 1 / GAIN),
}


class _CHONNStep(Pretrained):
    """The model in any number of dimensions; see `CHONNStep2d`."""

    axes: ClassVar[int]
    size: Tensor
    low: Tensor
    high: Tensor
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

        self.reaction, self.storage = zeros(C, len(self.powers)), zeros(C, 2 * C)
        self.speed, self.shear = zeros(axes, C), zeros(axes, C, C)
        self.diffusivity = zeros(C)
        self.level, self.distance = zeros(axes, 2, C), zeros(axes, 2, C)
        for name, value in (("size", 1.0), ("low", -4.0), ("high", 4.0)):
            self.register_buffer(name, torch.full((C,), value, **factory))
        rings = [word == "periodic" for word in self.boundary]
        self.register_buffer("found", torch.ones(len(PARTS) + axes, **factory))
        self._has([True] * len(PARTS) + rings)
        self.register_load_state_dict_post_hook(_after_loading)

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        nodes = distances_of(self.nodes, self.axes)
        return {"lengths": self.lengths, "substeps": self.substeps, "nodes": nodes}

    def _has(self, found: list[bool]) -> None:
        """Set which parts are there, and which axes are periodic. Other parts do not learn."""
        self.rings = tuple(found[len(PARTS) :])
        self.parts = parts = {part for part, there in zip(PARTS, found, strict=False) if there}
        self.found.copy_(torch.tensor(found, dtype=self.found.dtype))
        used = {id(p) for p in (self.speed, self.shear) if "carry" in parts}
        used |= {id(p) for p in (self.reaction,) if "react" in parts}
        used |= {id(p) for p in (self.storage,) if "store" in parts}
        if parts & {"react", "store"}:
            used |= {id(p) for layer in (self.trunk, self.last) for p in layer.parameters()}
        if "diffuse" in parts:
            used |= {id(self.diffusivity)}
            used |= {id(p) for p in (self.level, self.distance) if not all(self.rings)}
        for p in self.parameters():
            p.requires_grad_(id(p) in used)

    # The four parts, of states (B, *grid, C) in the unit `size`. Times are in frames.

    def features(self, v: Tensor) -> Tensor:
        """What the pointwise network gets: logarithms and values, (B, \\*grid, 2 C)."""
        logs, values = self.units(v)
        return torch.cat((logs / self.units.spread, values), -1).to(self.last.weight.dtype)

    def monomials(self, v: Tensor) -> Tensor:
        """Products of the channels up to the third degree, (B, \\*grid, M)."""
        found: dict[tuple[int, ...], Tensor] = {(): torch.ones_like(v[..., 0])}
        for term in self.powers[1:]:
            found[term] = found[term[:-1]] * v[..., term[-1]]
        return torch.stack([found[term] for term in self.powers], -1)

    def rate(self, v: Tensor) -> Tensor:
        """Change a frame by reaction: a polynomial and a pointwise network. Beyond the range of the
        data it is that at its ends, so rollouts stay finite."""
        v = v.clamp(self.low.to(v), self.high.to(v))
        C, h = self.channels, self.trunk(self.features(v))
        learned = F.linear(h, self.last.weight[:C], self.last.bias[:C])
        return RATE * (F.linear(self.monomials(v), self.reaction.to(v)) + learned)

    def capacity(self, v: Tensor) -> Tensor:
        """Capacity of each node, relative to that whose `diffusivity` is stated."""
        v = v.clamp(self.low.to(v), self.high.to(v))
        C, h = self.channels, self.features(v)
        logs = F.linear(h, self.storage)
        logs = logs + F.linear(self.trunk(h), self.last.weight[C:], self.last.bias[C:])
        return (STORE * logs.to(v)).clamp(-12, 12).exp()

    def _react(self, v: Tensor, time: float) -> Tensor:
        if "react" not in self.parts:
            return v
        return v + time * self.rate(v + time / 2 * self.rate(v))

    def _carry(self, v: Tensor, time: float, steps: Sequence[float]) -> Tensor:
        if "carry" not in self.parts:
            return v
        scale = [self.unit * SPEED * time / step for step in steps]
        moves = [
            (x * s.to(v), x * S.to(v))
            for x, s, S in zip(scale, self.speed, self.shear, strict=True)
        ]
        with torch.no_grad():
            way, within = torch.zeros_like(v), v.clamp(self.low.to(v), self.high.to(v))
            for s, S in moves:
                way = way + F.linear(within, S, s).abs() + F.linear(within.abs(), S.abs())
            fastest = torch.cat((way.flatten(), way.new_zeros(1))).amax()
        known = answer(lambda: float(fastest))
        most = MOST if known is not None else FEW
        # Faster waves than that are slowed down, as longer steps were not stable.
        part = (most * CFL / fastest.clamp(min=1e-30)).clamp(max=1)
        few = known is not None and known < most * CFL
        count = max(1, math.ceil((known or 0.0) / CFL)) if few else most
        for _ in range(count):
            v = v + sum(
                self._brought(v, axis, S * (part / count), s * (part / count))
                for axis, (s, S) in enumerate(moves)
            )
        return v

    def _next(self, v: Tensor, axis: int) -> Tensor:
        """The neighbour of each cell along an axis; at a wall the cell itself."""
        after = v.roll(-1, axis + 1)
        if not self.rings[axis]:
            n = v.shape[axis + 1]
            after = torch.cat(
                (after.narrow(axis + 1, 0, n - 1), v.narrow(axis + 1, n - 1, 1)), axis + 1
            )
        return after

    def _inward(self, flux: Tensor, axis: int) -> Tensor:
        """What fluxes through the far faces of cells bring; nothing flows through a wall."""
        if self.rings[axis]:
            return flux.roll(1, axis + 1) - flux
        inner = flux.narrow(axis + 1, 0, flux.shape[axis + 1] - 1)
        before, after = [0, 0] * (self.axes - axis) + [1, 0], [0, 0] * (self.axes - axis) + [0, 1]
        return F.pad(inner, before) - F.pad(inner, after)

    def _brought(self, v: Tensor, axis: int, shear: Tensor, speed: Tensor) -> Tensor:
        """What fluxes along an axis bring to each cell in a step: limited slopes, half a step on
        (MUSCL-Hancock), and from upwind, on which side the sign of the secant decides."""
        right = self._next(v, axis) - v
        left = right.roll(1, axis + 1)  # at walls the last difference is 0, so this is right there
        both = left * right
        some = both > 0
        both = torch.where(some, both, 0) / torch.where(some, left + right, 1)

        def flux(q: Tensor) -> Tensor:
            if self.channels == 1:
                return torch.addcmul(speed, shear[0], q) * q
            return F.linear(q.clamp(self.low.to(q), self.high.to(q)), shear, speed) * q

        front, back = v + both, v - both  # with half of van Leer's slope
        drift = (flux(front) - flux(back)) / 2
        front, back = front - drift, self._next(back - drift, axis)
        behind, ahead = flux(front), flux(back)
        with torch.no_grad():
            forward = (ahead - behind) * (back - front) >= 0
        return self._inward(torch.where(forward, behind, ahead), axis)

    def circuit(self, v: Tensor, steps: Sequence[float], nodes: Distances) -> Circuit:
        """The resistors between cells and behind walls, for states of this shape."""
        k = self.unit**2 * (DIFFUSIVITY + GAIN * self.diffusivity.to(v)).exp().expand(v.shape)
        edges = [k * (face_area(steps, axis) / step) for axis, step in enumerate(steps)]
        level = self.level.to(v)
        far = self.unit * DISTANCE * (GAIN * self.distance.to(v)).clamp(-12, 16).exp()
        faces: Any = [
            (Periodic(),) * 2 if ring else tuple(map(Dirichlet, level[axis], far[axis]))
            for axis, ring in enumerate(self.rings)
        ]
        zero = torch.zeros_like(v)
        return circuit_of(k, edges, zero, steps, faces, distances=wall_distances(nodes))

    def _diffuse(self, v: Tensor, time: float, circuit: Circuit | None) -> Tensor:
        if circuit is None:
            return v
        part, capacity = STAGE * time, 1.0
        if "store" in self.parts:
            middle = rc_step(v, circuit, self.capacity(v), part)
            capacity = self.capacity(v + (middle - v) / (2 * STAGE))
        first = rc_step(v, circuit, capacity, part)
        return (1 + MORE) * rc_step(first, circuit, capacity, part) - MORE * first

    def _step(self, v: Tensor, time: float, steps: Sequence[float], circuit: Any) -> Tensor:
        v = self._carry(self._react(v, time / 2), time / 2, steps)
        v = self._diffuse(v, time, circuit)
        return self._react(self._carry(v, time / 2, steps), time / 2)

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
        x : Tensor, shape (B, channels, \\*grid)
            A frame.
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
            For another number of axes or channels, a `dt` not above 0, or a geometry that does not
            fit.
        """
        check_above(0, dt=dt)
        x = as_field("x", x, self.parameters(), "B", self.channels, *GRID_AXES[: self.axes])
        v = x.movedim(1, -1)
        v = v.to(torch.promote_types(v.dtype, torch.float32)) / self.size
        steps, lie = spacing_and_nodes(v.shape[:-1], self.lengths, self.nodes, spacing, None, nodes)
        circuit = self.circuit(v, steps, lie) if "diffuse" in self.parts else None
        for _ in range(self.substeps):
            v = self._step(v, dt / self.substeps, steps, circuit)
        return (v * self.size).movedim(-1, 1).to(x.dtype)

    def coefficients(self) -> dict[str, Tensor]:
        """What the parts that are there do, in the units of the data, of `lengths` and of a frame.

        Returns
        -------
        dict
            ``diffusivity`` (C,); ``speed`` (axes, C) and ``shear`` (axes, C, C): entry [a, c, j] is
            what channel j adds to the speed of channel c along axis a; ``reaction`` (C, M): the
            polynomial of the rate, whose terms `powers` has.
        """
        found, unit = {}, self.unit
        if "diffuse" in self.parts:
            found["diffusivity"] = unit**2 * (DIFFUSIVITY + GAIN * self.diffusivity).exp()
        if "carry" in self.parts:
            found["speed"] = unit * SPEED * self.speed
            found["shear"] = unit * SPEED * self.shear / self.size
        if "react" in self.parts:
            scale = torch.stack([self.size[list(term)].prod() for term in self.powers])
            found["reaction"] = RATE * self.size[:, None] * self.reaction / scale
        return {name: x.detach() for name, x in found.items()}

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
        C, axes, dtype = self.channels, self.axes, self.speed.dtype
        if frames.dim() != axes + 3 or frames.shape[1] < 2 or frames.shape[2] != C:
            expected = f"shape (S, T >= 2, {C}, {', '.join(GRID_AXES[:axes])})"
            raise error("frames", expected, tuple(frames.shape))
        if not frames.isfinite().all():
            raise error("frames", "finite numbers", "others")
        self.double()
        x = frames.double()
        now, after = x[:, :-1].flatten(0, 1), x[:, 1:].flatten(0, 1)
        count = min(len(now), max(2, int(NUMBERS * len(now) / now.numel())))
        # Spread over the series and their frames alike.
        at = (torch.arange(count, device=x.device) * GOLDEN % 1 * len(now)).long()
        now, after = now[at], after[at]
        change = (after - now).square().mean(tuple(range(2, axes + 2)), keepdim=True).sqrt()
        # Frames count alike, but for those in which next to nothing happens.
        change = change + change.mean(0) / 10 + 1e-30
        x = x.movedim(2, -1)
        flat = x.reshape(-1, C)
        self.size.copy_(torch.where((size := flat.square().mean(0).sqrt()) > 0, size, 1))
        x, flat = x / self.size, flat / self.size
        least, most = flat.aminmax(dim=0)
        self.low.copy_(least - (most - least) / 4)
        self.high.copy_(most + (most - least) / 4)
        self.units.fit(flat)
        rings = [self._is_ring(x, axis) for axis in range(axes)]
        steps, lie = spacing_and_nodes(
            x[:, 0, ..., 0].shape, self.lengths, self.nodes, spacing, None, nodes
        )

        self._begin(x, steps, rings)
        free = torch.cat([m.flatten() for m in self._entries().values()])

        def residual(some: Tensor) -> Tensor:
            self._numbers(self._numbers().masked_scatter(free, some))
            return ((self(now, spacing=spacing, nodes=nodes) - after) / change).flatten()

        found = _least_squares(residual, self._numbers()[free], self._each(1)[free])
        whole, before = self._numbers(), residual(found)
        effects = _slopes(residual, found) * self._effects(steps, lie)[free]
        free[free.clone()] = _worth(effects, effects.sum(1) - before)
        self._keep(free, rings)
        found = _least_squares(residual, self._numbers()[free], self._each(1)[free])
        errors = residual(found)
        if errors.square().mean() > 2 * before.square().mean() + LITTLE:
            # What seemed to explain nothing did, beyond the first order: all terms stay.
            self._has([True] * len(PARTS) + rings)
            self._numbers(whole)
            errors = before
        squares = errors.view_as(now).square()
        self.to(dtype)
        return squares.mean((0, *range(2, axes + 2))).sqrt().to(dtype)

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

    def _begin(self, v: Tensor, steps: Sequence[float], rings: list[bool]) -> None:
        """Nothing but diffusion, and walls near by at the potentials beside them."""
        self._has([True] * len(PARTS) + rings)
        for p in (*self.last.parameters(), *(getattr(self, name) for name in SET)):
            p.zero_()
        cell = START * min(steps) ** 2 / self.unit**2
        self.diffusivity.fill_((math.log(cell) - DIFFUSIVITY) / GAIN)
        for axis, step in enumerate(steps):
            self.distance[axis] = math.log(step / 2 / (self.unit * DISTANCE)) / GAIN
            for end, node in enumerate((0, v.shape[axis + 2] - 1)):
                self.level[axis, end] = v.select(axis + 2, node).flatten(0, -2).mean(0)

    def _entries(self) -> dict[str, Tensor]:
        """Which numbers `calibrate` sets: capacities depend on their own channel."""
        masks = {k: torch.ones_like(getattr(self, k), dtype=torch.bool) for k in SET}
        masks["storage"] &= torch.eye(self.channels, device=self.size.device).bool().repeat(1, 2)
        for axis, ring in enumerate(self.rings):
            masks["level"][axis] = masks["distance"][axis] = not ring
        return masks

    def _effects(self, steps: Sequence[float], lie: Distances) -> Tensor:
        """What derivatives in the numbers are multiplied by for the effect of each. Logarithms have
        no zero; the conductance of a wall is that of both distances, before and behind its face."""
        before = torch.tensor([[a * h, b * h] for (a, b), h in zip(lie, steps, strict=True)])
        behind = self.unit * DISTANCE * (GAIN * self.distance).exp()
        parts = {k: getattr(self, k) for k in SET}
        parts["diffusivity"] = torch.full_like(self.diffusivity, 1 / GAIN)
        parts["distance"] = -(1 + before.to(behind)[..., None] / behind) / GAIN
        return torch.cat([p.flatten() for p in parts.values()])

    def _keep(self, free: Tensor, rings: list[bool]) -> None:
        """Leave these numbers in place, and nothing where the others are."""
        sizes = [getattr(self, k).numel() for k in SET]
        masks = dict(zip(SET, free.split(sizes), strict=True))  # views
        masks = {k: m.view_as(getattr(self, k)) for k, m in masks.items()}
        masks["storage"] &= masks["diffusivity"][:, None]
        masks["distance"] &= masks["diffusivity"]
        masks["level"] &= masks["distance"]
        self._numbers(torch.where(free, self._numbers(), self._each(0)))
        there = {k: bool(m.any()) for k, m in masks.items()}
        carries = there["speed"] or there["shear"]
        self._has([carries, there["reaction"], there["storage"], there["diffusivity"], *rings])


@torch.no_grad()
def _after_loading(model: _CHONNStep, _keys: Any) -> None:
    if not model.found.is_meta:
        model._has(model.found.bool().tolist())


def _slopes(residual: Callable[[Tensor], Tensor], at: Tensor, step: float = 1e-5) -> Tensor:
    """Derivatives of residuals (rows,) in some numbers, (rows, numbers), by differences."""
    before = residual(at)
    shifts = torch.eye(len(at), dtype=at.dtype, device=at.device) * step
    columns = [(residual(at + shift) - before) / step for shift in shifts]
    return torch.stack(columns, 1) if columns else before.new_zeros(len(before), 0)


def _least_squares(residual: Callable[[Tensor], Tensor], start: Tensor, largest: Tensor) -> Tensor:
    """Levenberg and Marquardt's method, whose steps change no number by more than its largest."""
    before, damping = residual(start), 1e-3
    for _ in range(TURNS if len(start) else 0):
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

    def left(terms: list[int]) -> float:
        part = gram[terms][:, terms]
        share = torch.linalg.pinv(part, rtol=1e-12, hermitian=True) @ drive[terms]
        return max(whole - 2 * float(share @ drive[terms]) + float(share @ part @ share), 0.0)

    terms = list(range(len(drive)))
    now = left(terms)
    while terms:
        rest, term = min((left([t for t in terms if t != term]), term) for term in terms)
        if rest > (1 + WORTH) * now + LITTLE * whole:
            break
        terms.remove(term)
        now = rest
    keep = torch.zeros_like(drive, dtype=torch.bool)
    keep[terms] = True
    return keep


class CHONNStep1d(_CHONNStep):
    """`CHONNStep2d` for fields (B, C, N)."""

    axes = 1


class CHONNStep2d(_CHONNStep):
    r"""Predict the next frame of a time series: one circuit carries, reacts, stores and diffuses.

    Capacitors hold the state u, resistors share it out, currents carry and react::

        C(u) (du/dt + div((s + S u) u) - R(u)) = div(D grad u)

    for each channel: D is a number, the speed s + S u is affine in all channels, the rate R is a
    polynomial of the third degree (second from four channels on) and a pointwise network, and C is
    the exponential of another one. Each face of an axis that is not periodic is a wall with a
    learned potential at a learned distance; nothing is carried through it.

    A step is of second order in time: half of the reaction and of the fluxes (MUSCL-Hancock, in as
    many steps as the fastest wave needs), the circuit, implicit in two stages that damp what is
    stiff, and both halves again. Without reaction, store and walls the sum of a state is conserved.
    The time to the next frame and the spacing are arguments, so a model can be evaluated on finer
    grids and at shorter steps. Rates and capacities are bounded, so rollouts stay finite. Where
    values cannot be read (exports, vmap), waves of more than 7 cells a step are slowed down.

    `calibrate` finds the equation from some frames, and leaves out the parts that it does not have.

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
