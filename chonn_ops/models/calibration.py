"""The start of `CHONNNetwork`: the constant law of one circuit that fits some samples best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops._dtypes import at_least_float32
from chonn_ops.network.layout import residual_of
from chonn_ops.nn.circuit_head import (
    ABSORPTION,
    DISTANCE,
    DISTANCE_GAIN,
    LEVEL_GAIN,
    MEAN_GAIN,
    WAVE_GAIN,
    CircuitHead,
)
from chonn_ops.nn.geometry import Geometry

# Nodes of all samples of `calibrate`: 48 of 64 x 64.
MOST_NODES = 48 * 64**2
# One of so many of them chooses the law, in less than half of the time. On eight of twelve problems
# it is the law that all of them choose, on the others one whose walls are at other distances, with
# residuals from 3 % lower to 3 % higher.
SHARE = 4
# With so many positive inputs at most, `calibrate` tries each alone as the medium.
MOST_MEDIA = 3
# Distances of walls that `calibrate` tries, in the mean step of the grid.
WALL_DISTANCES = (1e-3, 0.5)
# The distance of a wall that insulates, in the unit of the domain.
INSULATING = 1e4
# `calibrate` lets a step move the head's numbers by so many times the root of the residual that it
# leaves, within bounds: the law of good data has little left to learn, and large steps lose it.
# After twelve epochs at rates of 2e-3 and 2e-2, errors on Darcy flow were 0.00003 and 0.00025
# without it and 0.00001 and 0.00002 at a tenth; for an unknown law 0.117 and 0.017 without it and
# 0.032 and 0.016 at four times the pace.
PACE, SLOWEST, FASTEST = 6.0, 0.05, 4.0
# Means of the conductivities of both sides of a face: geometric, arithmetic, harmonic.
# With the geometric one alone errors after PDEBench's 270 steps at 1e-3 were 0.0028 on its Darcy
# flow and 0.0017 on log-normal media, with all of them 0.00004 and 0.0001.
MEANS = (0.0, 1.0, -1.0)


class Law(NamedTuple):
    """A constant law of all circuits."""

    powers: Tensor  # exponents of the inputs in the conductivity, (m, C)
    walls: list[int]  # the learned walls that are near; the others insulate
    distance: float  # of near walls behind their faces
    mean: float = 0.0  # of the conductivities of both sides of a face


class Samples(NamedTuple):
    """Inputs (B, \\*grid, C) and outputs (B, \\*grid, out_channels); where these are known, a
    tensor of bool (B, \\*grid); and the geometry."""

    x: Tensor
    y: Tensor
    inside: Tensor
    geometry: Geometry

    def some(self, which: slice | Tensor) -> Samples:
        """The samples of a slice, or those for which a tensor of bool (B,) is true."""
        x, y, inside, geometry = self
        mask = geometry.mask
        if mask is not None and mask.dim() == inside.dim():
            geometry = geometry._replace(mask=mask[which])
        return Samples(x[which], y[which], inside[which], geometry)


def least_squares(columns: Sequence[Tensor], right: Tensor) -> tuple[Tensor, float]:
    """Shares of columns that make the right side best, and the norm of what is left; in float64 on
    the CPU, because some devices have none."""
    like, right = right, right.flatten().cpu().double()
    matrix = torch.stack([x.flatten().cpu().double() for x in columns], 1)
    unit = matrix.norm(dim=0)
    unit = torch.where(unit > 0, unit, 1)
    matrix = matrix / unit
    # Columns may depend on one another: walls of one level are no drive.
    inverse = torch.linalg.pinv(matrix.T @ matrix, rtol=1e-11, hermitian=True)
    shares = inverse @ (matrix.T @ right)
    return (shares / unit).to(like), float((matrix @ shares - right).norm())


class Calibration:
    """`CHONNNetwork.calibrate` of a model, without gradients, for samples that have been checked:
    `run` leaves the start in the model's parameters."""

    def __init__(self, model: Any, samples: Samples) -> None:
        points = math.prod(samples.x.shape[1:-1])
        samples = samples.some(samples.inside.flatten(1).any(1))  # nothing is known of the others
        samples = samples.some(slice(max(1, MOST_NODES // max(1, points))))
        self.model, self.samples = model, samples
        self.head: CircuitHead = model.head
        self.positive = model.units.fit(samples.x[samples.inside])
        self.head.set_pace(1.0)
        self.first = {name: p.clone() for name, p in self.head.named_parameters()}
        # Learned walls of holes.
        self.holes = [i for i, place in enumerate(self.head.learned) if place == "inner"]
        # Exponents of the inputs in the leaks and their factors, with `ac`.
        self.leak: tuple[Tensor, Tensor] | None = None

    def run(self) -> Tensor:
        """Residual of the best circuit of each output over the deviation of the output from its
        mean, (m,)."""
        head = self.head
        media = self._media(1, -1)
        if head.ac:
            medium, self.leak = self._wave_law()
            media = [medium]
        # A part of the samples chooses the law, all of them say what drives it.
        fit = self._fitted(self.samples.some(slice(None, None, SHARE)))
        laws = list(self._constant_laws(media))
        best, chosen = [math.inf] * head.num_circuits, laws[:1] * head.num_circuits
        for mean in MEANS:
            for law in (law._replace(mean=mean) for law in laws):
                for j, (_, _, residual) in enumerate(fit(law)):
                    if residual < best[j]:
                        best[j], chosen[j] = residual, law
            # Other means are tried with the best law of each output.
            laws = [law for law in _different(chosen) if law.powers.any()]
        fit, kept = self._fitted(self.samples), self.first
        for law in _different(chosen):
            for j, (shares, size, residual) in enumerate(fit(law)):
                if chosen[j] is law:
                    best[j] = residual
                    self._drive(shares, size, law.walls, j)
                    kept = self._with_output(kept, j)
        self._load(kept)
        if not head.ac:  # whose numbers move slowly as they are
            head.set_pace(min(max(PACE * math.sqrt(max(best)), SLOWEST), FASTEST))
        return torch.tensor(best, device=self.samples.x.device)

    def _fitted(self, samples: Samples) -> Callable[[Law], list[tuple[Tensor, float, float]]]:
        """A function that gives the head a law and returns for each output the shares of what
        drives it, in the unit of the potential; this unit; and the residual."""
        x, y, inside, geometry = samples
        values = self.model.units(x)[1]
        sources = torch.cat((torch.ones_like(values[..., :1]), values), -1).movedim(-1, 1)
        target = self._of_circuits(y[inside])
        spread = (target - target.mean(1, keepdim=True)).flatten(1).norm(dim=1).tolist()
        # The same for all laws.
        h = self.model.features(x, geometry)
        added = self.head.at_faces(h, geometry.volumes)
        whole = bool(inside.all())

        def fit(law: Law) -> list[tuple[Tensor, float, float]]:
            self._set(law)
            columns = self._responses(h, sources, law.walls, geometry, added)
            outputs = (self.head.outputs(v) for v in columns)
            known = (u.flatten(0, -2) if whole else u[inside] for u in outputs)
            driven, *fields = map(self._of_circuits, known)
            fits: list[tuple[Tensor, float, float]] = []
            for j, right in enumerate(target - driven):
                shares, rest = least_squares([v[j] for v in fields], right)
                size = spread[j] / math.sqrt(right.numel()) or 1.0
                fits.append((shares / size, size, rest / max(spread[j], 1e-300)))
            return fits

        return fit

    def _of_circuits(self, u: Tensor) -> Tensor:
        """Outputs (..., out_channels) by circuit, (m, ..., 1), or 2 with an imaginary part."""
        return at_least_float32(u).unflatten(-1, (self.head.num_circuits, -1)).movedim(-2, 0)

    def _media(self, *powers: int) -> list[Tensor]:
        """Exponents (m, C): 0, and powers of the positive inputs' mean and, of few, of each."""
        positive = self.positive
        count, on = int(positive.sum()), positive.to(at_least_float32(self.model.units.size))
        shares = on[None][:count] / max(1, count)
        if 1 < count <= MOST_MEDIA:
            shares = torch.cat((shares, torch.eye(len(on)).to(on)[positive]))
        some = [0 * on, *(p * share for share in shares for p in powers)]
        return [exponents.expand(self.head.num_circuits, -1) for exponents in some]

    def _wave_law(self) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Exponents (m, C) in the conductivity; those in the leak, and its factors (m,).

        They are those for which -div(k grad y) + c y = f holds best with a source f that is linear
        in the inputs.
        """
        x, y, inside, geometry = self.samples
        logs, values = (at_least_float32(field) for field in self.model.units(x))
        y = self._of_circuits(y)
        v = torch.complex(y[..., 0], y[..., 1] if y.shape[-1] > 1 else 0 * y[..., 0]).movedim(0, -1)
        sources = [
            s * unit for s in (v.real[..., :1] ** 0, *values.split(1, -1)) for unit in (1, 1j)
        ]
        best = [math.inf] * v.shape[-1]
        medium, exponents = logs.new_zeros(2, len(best), self.model.in_channels)
        factor, zero = logs.new_zeros(len(best)), torch.zeros_like(v)
        for powers in self._media(1, -1):
            self._set(Law(powers, [], 1.0))
            circuit = self.head.assemble(self.model.features(x, geometry), *geometry)[0]
            flows = residual_of(v, zero, circuit.conductance, zero.real, circuit.layout)
            flows = flows / circuit.volume
            away = inside[..., None] & flows.isfinite()
            away = away if circuit.wall is None else away & (circuit.wall == 0)
            for leak in self._media(1, 2, -1, -2):
                # The leak alone, too: y may have an offset.
                c = (logs @ leak.T).to(logs).exp()  # autocast has rounded the product
                fields = [c * v, c, *(s.expand_as(v) for s in sources), flows]
                for j, on in enumerate(away.unbind(-1)):
                    *columns, right = (torch.view_as_real(c[..., j][on] + 0j) for c in fields)
                    shares, rest = least_squares(columns, right)
                    if (residual := rest / float(right.norm())) < best[j]:
                        best[j], factor[j] = residual, shares[0]
                        medium[j], exponents[j] = powers[j], leak[j]
        return medium, (exponents, factor)

    def _constant_laws(self, media: list[Tensor]) -> Iterator[Law]:
        geometry = self.samples.geometry
        places = self.head.learned
        # Without a mask nothing is known of the walls of holes, which stay as near as the others.
        outer = [i for i, place in enumerate(places) if place != "inner"]
        if geometry.volumes is not None and not isinstance(self.head.boundary, Mapping):
            outer = outer[:1]
        holes = [] if geometry.mask is None else self.holes
        axes = [[i for i in outer if places[i][0] == axis] for axis in range(self.model.axes)]
        groups = [group + some for group in (outer, *axes) for some in (holes, [])]
        groups = [group for i, group in enumerate(groups) if not i or group not in groups[:i]]
        if geometry.volumes is None:
            step = float(sum(geometry.spacing) / self.model.axes)
        else:
            step = float((geometry.volumes.volume ** (1 / self.model.axes)).mean())
        for powers in media:
            for group in groups:
                for near in WALL_DISTANCES if group else WALL_DISTANCES[:1]:
                    yield Law(powers, group, near * step)

    def _set(self, law: Law) -> None:
        """Give the head a constant law, without what drives it and without the trunk."""
        self._load(self.first)
        head, first, C = self.head, self.model.width, self.model.in_channels
        gain = (WAVE_GAIN if head.ac else 1) * self.model.power
        head.conductivity.weight[:, :first] = 0
        weight = (law.powers / gain).to(head.source.weight)
        head.conductivity.weight[:, first : first + C] = weight.repeat(self.model.axes, 1)
        if head.leak is not None and self.leak is not None:
            exponents, factors = self.leak
            weight = (exponents / gain).to(weight)
            for j, c in enumerate(factors.tolist()):
                row = j if c > 0 else head.num_circuits + j
                head.leak.weight[row, first : first + C] = weight[j]
                log_c = math.log(max(abs(c), 1e-6)) - ABSORPTION
                head.absorption[row] = log_c / WAVE_GAIN
        for p in (head.source.weight, head.source.bias, head.level, head.scale, head.offset):
            p.zero_()
        head.mean.fill_(law.mean / MEAN_GAIN)
        head.distance.fill_(math.log(INSULATING / DISTANCE) / DISTANCE_GAIN)
        holes = self.holes if self.samples.geometry.mask is None else []
        near = math.log(max(law.distance, 1e-9) / DISTANCE) / DISTANCE_GAIN
        head.distance[[*law.walls, *holes]] = near

    def _responses(
        self, h: Tensor, sources: Tensor, walls: list[int], geometry: Geometry, added: list[Tensor]
    ) -> list[Tensor]:
        """The output of the head (B, \\*grid, m) without sources; what each of the sources
        (B, S, \\*grid) adds, and the potential of each wall; and 1, for the offset."""
        head = self.head
        circuit = head.assemble(h, *geometry, added=added)[0]
        fields = [torch.zeros_like(circuit.leak)]
        fields += [x[..., None].expand_as(fields[0]) for x in sources.to(fields[0]).unbind(1)]
        for wall in walls:
            head.level.zero_()
            head.level[wall] = 1 / LEVEL_GAIN
            current = head.assemble(h, *geometry, added=added)[0].source(fields[0])
            density = (current - circuit.source(fields[0])) / circuit.volume
            # Missing nodes have no volume.
            fields.append(density if geometry.mask is None else density.nan_to_num(0))
        head.level.zero_()
        driven, *responses = circuit.solve(torch.stack(fields, 1)).unbind(1)
        return [driven, *(v - driven for v in responses), torch.ones_like(driven)]

    def _drive(self, shares: Tensor, size: float, walls: list[int], j: int) -> None:
        """Drive output j by shares of a constant, of the inputs, of walls and of the offset; the
        potential is in the unit `size` of the output."""
        head, C = self.head, self.model.in_channels
        shares = shares.to(head.source.weight)
        head.source.bias[j] = shares[0]
        head.source.weight[j, self.model.width + C :] = shares[1 : 1 + C]
        head.level[walls, j] = shares[1 + C : -1] / LEVEL_GAIN
        head.scale[j] = math.log(size)
        head.offset[j] = shares[-1]

    def _with_output(self, parameters: dict[str, Tensor], j: int) -> dict[str, Tensor]:
        """These parameters of the head, with those of output j as they are now."""
        many, kept = self.head.num_circuits, {}
        for name, now in self.head.named_parameters():
            new = parameters[name].clone()
            if name in ("level", "distance", "film"):
                new[:, j] = now[:, j]
            elif not name.startswith("faces"):
                new[j::many] = now[j::many]
            kept[name] = new
        return kept

    def _load(self, parameters: dict[str, Tensor]) -> None:
        for name, p in self.head.named_parameters():
            p.copy_(parameters[name])


def _different(laws: Sequence[Law]) -> list[Law]:
    """Without repetitions; laws hold tensors, so that they are compared by identity."""
    return list({id(law): law for law in laws}.values())
