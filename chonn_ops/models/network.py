"""Models whose output is the potential of one circuit: a trunk makes features, a head solves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops._dtypes import at_least_float32
from chonn_ops.boundary import Condition
from chonn_ops.checks import GRID_AXES, as_field, check_integer, error, plain
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.network.discretise.grids import Spacing, spacings
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.network.layout import excess
from chonn_ops.nn.circuit_head import (
    ABSORPTION,
    DISTANCE,
    DISTANCE_GAIN,
    LEVEL_GAIN,
    MEAN_GAIN,
    WAVE_GAIN,
    CircuitHead,
    edge_cosines,
)
from chonn_ops.nn.geometry import Nodes, check_volumes, existing, node_positions, spacing_and_nodes
from chonn_ops.nn.layers import Factory

# Exponents of power laws move so many times as far a step of an optimiser as other weights.
POWER_GAIN = 4.0
# The floor of a positive channel over its typical value, below which logarithms become linear.
FLOOR = 1e-6
# Nodes of all samples of `calibrate`: 48 of 64 x 64.
NODES = 48 * 64**2
# One of so many of them chooses the law, in less than half of the time. On eight of twelve problems
# it is the law that all of them choose, on the others one whose walls are at other distances, with
# residuals from 3 % lower to 3 % higher.
SHARE = 4
# With so many positive inputs at most, `calibrate` tries each alone as the medium.
FEW = 3
# Distances of walls that `calibrate` tries, in the mean step of the grid, and that of a wall that
# insulates, in the unit of the domain.
NEAR, FAR = (1e-3, 0.5), 1e4
# `calibrate` lets a step move the head's numbers by so many times the root of the residual that it
# leaves, within bounds: the law of good data has little left to learn, and large steps lose it.
# After twelve epochs at rates of 2e-3 and 2e-2, errors on Darcy flow were 0.00003 and 0.00025
# without it and 0.00001 and 0.00002 at a tenth; for an unknown law 0.117 and 0.017 without it and
# 0.032 and 0.016 at four times the pace.
PACE, SLOWEST, FASTEST = 6.0, 0.05, 4.0
# Features of neighbours at most.
MOST_BESIDE = 16
# Means of the conductivities of both sides of a face: geometric, arithmetic, harmonic.
# With the geometric one alone errors after PDEBench's 270 steps at 1e-3 were 0.0028 on its Darcy
# flow and 0.0017 on log-normal media, with all of them 0.00004 and 0.0001.
MEANS = (0.0, 1.0, -1.0)

Geometry = tuple[Any, ...]  # what `CircuitHead.forward` takes besides features
# Exponents of the inputs in the conductivity, (m, C); the learned walls that are near, while the
# others insulate; and how far these are behind their faces.
Law = tuple[Tensor, list[int], float]


class Units(nn.Module):
    """Inputs (..., C) as logarithms and as values of about unit size.

    Logarithms are ``asinh(x / (2 floor)) - centre``: those of x where x is far above the floor,
    and smooth through 0. Until `fit` has seen data, inputs count as standardised.
    """

    floor: Tensor
    centre: Tensor
    spread: Tensor
    size: Tensor

    def __init__(self, channels: int, **factory: Any) -> None:
        super().__init__()
        for name, value in (("floor", 0.5), ("centre", 0.0), ("spread", 1.0), ("size", 1.0)):
            self.register_buffer(name, torch.full((channels,), value, **factory))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms and values."""
        return _asinh(x / (2 * self.floor)) - self.centre, x / self.size

    @torch.no_grad()
    def fit(self, x: Tensor) -> Tensor:
        """Take the units of inputs (N, C); returns which channels are positive."""
        size = x.square().mean(0).sqrt()
        size = torch.where(size > 0, size, 1)
        positive = (x > 0).all(0)
        typical = torch.where(positive, x, 1).log().mean(0).exp()
        floor = torch.where(positive, FLOOR * typical, size / 2)
        logs = _asinh(x / (2 * floor))
        spread = logs.std(0, correction=0)
        for buffer, value in zip(
            (self.floor, self.centre, self.spread, self.size),
            (floor, logs.mean(0), torch.where(spread > 1e-6, spread, 1), size),
            strict=True,
        ):
            buffer.copy_(value)
        return positive


def least_squares(columns: Sequence[Tensor], right: Tensor) -> tuple[Tensor, float]:
    """Shares of columns that make the right side best, and the norm of what is left; in float64 on
    the CPU, because some devices have none."""
    given, right = right, right.flatten().cpu().double()
    matrix = torch.stack([x.flatten().cpu().double() for x in columns], 1)
    unit = matrix.norm(dim=0)
    unit = torch.where(unit > 0, unit, 1)
    matrix = matrix / unit
    # Columns may depend on one another: walls of one level are no drive.
    inverse = torch.linalg.pinv(matrix.T @ matrix, rtol=1e-11, hermitian=True)
    shares = inverse @ (matrix.T @ right)
    return (shares / unit).to(given), float((matrix @ shares - right).norm())


def _asinh(x: Tensor) -> Tensor:
    """By a logarithm and a root: PyTorch's own takes nine times as long on a CPU."""
    a = at_least_float32(x).abs()
    return torch.copysign(torch.log1p(a + a * (a / (1 + (a * a + 1).sqrt()))), x).to(x.dtype)


class PointwiseTrunk(nn.Sequential):
    """A network of each point, (..., C) to (..., width)."""

    def __init__(self, channels: int, width: int, depth: int, **factory: Any) -> None:
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [nn.Linear(channels, width, **factory), nn.GELU()]
            channels = width
        super().__init__(*layers)


class NeighbourFeatures(nn.Module):
    r"""What neighbours add to the inputs of a node, (..., size), and 0 in homogeneous media.

    With inputs z_i (..., C) of node i and the direction d of each of its neighbours j::

        max_j (0, sum_a (d_a^2 A_a + d_a B_a) (z_j - z_i))

    They start as the greatest and the least neighbour of each channel, A_a = (1, -1) and B_a = 0,
    of some channels where these are many: size is 2 C, or 16 if that is less. In upscaling 32 were
    no better than 16.
    """

    def __init__(self, channels: int, axes: int, **factory: Any) -> None:
        super().__init__()
        self.size = min(2 * channels, MOST_BESIDE)
        one = torch.eye(channels, **factory)
        some = torch.arange(self.size) * 2 * channels // self.size
        even = torch.cat((one, -one))[some].repeat(axes, 1, 1)
        self.even, self.odd = nn.Parameter(even), nn.Parameter(torch.zeros_like(even))

    def forward(self, z: Tensor, periodic: Sequence[bool], geometry: Geometry | None) -> Tensor:
        """Of nodes of a grid, (B, \\*grid, C), or of a mesh, (B, N, C); of homogeneous media
        without a geometry."""
        greatest = z.new_zeros(*z.shape[:-1], self.size)
        if geometry is None:
            return greatest
        _, mask, _, volumes = geometry
        if volumes is not None:
            p, q = volumes.graph.ends.to(z.device)
            cosine, along = edge_cosines(volumes).to(z), z[:, q] - z[:, p]
            even, odd = (
                (c * along @ weight.mT[:, None]).sum(0)
                for c, weight in ((cosine**2, self.even), (cosine, self.odd))
            )
            steps, node = torch.cat((even + odd, odd - even), 1), torch.cat((p, q))
            steps = steps.to(greatest)  # autocast has rounded them
            return greatest.scatter_reduce(1, node[:, None].expand_as(steps), steps, "amax")
        exists = None if mask is None else existing(mask, len(self.even))
        for axis, (even, odd) in enumerate(zip(self.even, self.odd, strict=True), 1):
            n = z.shape[axis]
            for step in (1, -1):
                at = torch.arange(n, device=z.device) + step
                at = at % n if periodic[axis - 1] else at.clamp(0, n - 1)
                beside = z.index_select(axis, at) - z
                if exists is not None:
                    beside = torch.where(exists.index_select(axis, at), beside, 0)
                # As maximum(), whose derivative takes several times as long.
                greatest = greatest + F.relu(F.linear(beside, even + step * odd) - greatest)
        return greatest


class CHONNNetwork(Pretrained):
    """The model in any number of dimensions; see `CHONNNetwork2d`."""

    axes: ClassVar[int]

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int | None = None,
        depth: int = 2,
        *,
        trunk: nn.Module | None = None,
        lengths: float | Sequence[float] = 1.0,
        boundary: Any = "robin",
        inner: str | Condition = "robin",
        nodes: Nodes = "centres",
        ac: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, in_channels=in_channels, out_channels=out_channels)
        width = max(16, 2 * in_channels) if width is None else width
        check_integer(1, width=width)
        check_integer(0, depth=depth)
        self.in_channels, self.out_channels, self.width = in_channels, out_channels, width
        self.lengths = tuple(spacings(plain("lengths", lengths), self.axes, "lengths"))
        factory: Factory = {"device": device, "dtype": dtype}
        self.units = Units(in_channels, **factory)
        self.neighbours = None if trunk else NeighbourFeatures(in_channels, self.axes, **factory)
        if self.neighbours is not None:
            size = in_channels + self.neighbours.size
            trunk = PointwiseTrunk(size, width, depth, **factory)
            self.width = width if depth else size
        self.trunk: Any = trunk
        self.head = CircuitHead(
            self.width + 2 * in_channels,
            self.axes,
            out_channels,
            boundary=boundary,
            inner=inner,
            nodes=nodes,
            ac=ac,
            face_dim=self.width,
            # One input says nothing of what touches on the sides of a face; not measured with ac.
            sided=bool(in_channels > 1) and not ac,  # in_channels may be a number of NumPy
            **factory,
        )
        with torch.no_grad():
            # The network of each point alone sets the first conductivities. Another trunk may have
            # large features, which would hide what `calibrate` finds: it counts from zero on.
            first = 0 if self.neighbours is None else self.width
            self.head.conductivity.weight[:, first:] = 0

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        return {"lengths": self.lengths}

    def features(self, x: Tensor, geometry: Geometry | None = None) -> Tensor:
        """What the head gets of inputs (B, \\*grid, C): features, logarithms and values. Points are
        of homogeneous media without a geometry, which a trunk with coordinates needs."""
        logs, values = self.units(x)
        z = logs / self.units.spread
        if self.neighbours is not None:
            z = torch.cat((z, self.neighbours(z, self.head.periodic, geometry)), -1)
        elif getattr(self.trunk, "coordinates", False):
            if geometry is None:
                raise error("geometry", "that of the points, for a trunk with coordinates", None)
            _, _, nodes, volumes = geometry
            if volumes is None:
                places = torch.stack(node_positions(z, nodes), -1)
            else:
                places = volumes.positions.to(z) / z.new_tensor(self.lengths)
            z = torch.cat((z, places.expand(*z.shape[:-1], -1)), -1)
        h = self.trunk(z)
        power = POWER_GAIN / math.sqrt(self.in_channels)
        return torch.cat((h, (power * logs).to(h.dtype), values.to(h.dtype)), -1)

    def forward(
        self,
        x: Tensor,
        *,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
        y: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Map fields to fields.

        Parameters
        ----------
        x : Tensor, shape (B, in_channels, \\*grid); with `volumes` (B, N, in_channels)
        spacing : float or sequence of float, one an axis, optional
            Distance of the points, in the unit of `lengths`. Default: the points fill `lengths`.
        mask : Tensor of bool, shape (\\*grid) or (B, \\*grid), optional
            Which points belong to the domain. The output is 0 at the others.
        nodes : {"centres", "left", "corners"}, optional
            Where the points lie, see `chonn_ops.Network`. Default: the option.
        volumes : FiniteVolumes, optional
            A mesh instead of a grid.
        y : Tensor, optional
            Ignored: neuraloperator's `Trainer` calls a model with whole samples, targets too.

        Returns
        -------
        Tensor, shape (B, out_channels, \\*grid); with `volumes` (B, N, out_channels)

        Raises
        ------
        ValueError
            For another number of axes or channels, or a geometry that does not fit.
        """
        x, geometry = self._points(x, spacing, mask, nodes, volumes)
        u = self.head(self.features(x, geometry), *geometry).to(x.dtype)
        return u if volumes is not None else u.movedim(-1, 1)

    def _points(
        self,
        x: Tensor,
        spacing: Spacing | None,
        mask: Tensor | None,
        nodes: Nodes | None,
        volumes: FiniteVolumes | None,
    ) -> tuple[Tensor, Geometry]:
        """Checked inputs (B, \\*grid, C), and the geometry that the head takes."""
        if volumes is not None:
            count = check_volumes(volumes, self.axes, spacing, mask, nodes)
            x = as_field("x", x, self.parameters(), "B", count, self.in_channels)
            return x, (None, None, None, volumes)
        x = as_field("x", x, self.parameters(), "B", self.in_channels, *GRID_AXES[: self.axes])
        x = x.movedim(1, -1).contiguous()
        steps, lie = spacing_and_nodes(
            x.shape[:-1], self.lengths, self.head.nodes, spacing, mask, nodes
        )
        if mask is not None:  # values outside of the domain must not matter, not even NaN
            ordinary = 2 * self.units.floor * self.units.centre.sinh()  # its logarithm is 0
            x = torch.where(existing(mask, self.axes), x, ordinary.to(x.dtype))
        return x, (steps, mask, lie, None)

    @torch.no_grad()
    def calibrate(self, x: Tensor, y: Tensor, **geometry: Any) -> Tensor:
        """Start from the constant law that fits some samples best.

        Takes the units of the inputs, then tries circuits of constant laws: conductivities that
        are constant, follow the inputs or their inverse, with three means at faces; all walls
        near, or those of one axis, with those of a mask's holes and without; each driven by a
        constant, by the inputs and by the walls, in shares that least squares find. The best one
        sets the first parameters, and by how well it fits the head's `pace`. It takes seconds for
        48 samples of 64 x 64 points, and draws no random numbers. Without it the model starts from
        a constant medium and source, and takes its inputs as standardised.

        With ``ac=True`` the equation itself, which is linear in its coefficients, says first at
        nodes beside no wall which powers of the inputs the conductivity and the leak are.

        Parameters
        ----------
        x, y : Tensor
            Inputs and outputs as `forward` has them, of a few tens of samples that represent the
            data. More than 48 * 64 * 64 points are left out. NaN in y where it is not known.
        **geometry
            As `forward` takes it.

        Returns
        -------
        Tensor, shape (out_channels,)
            Residual of the best circuit over the deviation of the output from its mean.

        Raises
        ------
        ValueError
            For shapes that do not fit, or numbers that are not finite.
        """
        given = dict.fromkeys(("spacing", "mask", "nodes", "volumes")) | geometry
        x, where = self._points(x, *given.values())
        mask, volumes = given["mask"], given["volumes"]
        y = y if volumes is not None else y.movedim(1, -1)
        if y.shape != (*x.shape[:-1], self.out_channels):
            raise error("y", "a field of outputs for each input", tuple(y.shape))
        if not x.isfinite().all() or y.isinf().any() or y.isnan().all():
            raise error("x, y", "finite numbers", "others")
        count = max(1, NODES // max(1, math.prod(x.shape[1:-1])))
        x, y = x[:count], y[:count]
        inside = ~y.isnan().any(-1)
        if mask is not None:
            each = mask[:count] if mask.dim() > self.axes else mask
            where, inside = (where[0], each, *where[2:]), inside & each
        positive = self.units.fit(x[inside])
        self.head.set_pace(1.0)
        start = {name: p.clone() for name, p in self.head.named_parameters()}
        best = [math.inf] * self.head.num_circuits
        kept, media, leak = dict(start), self._media(positive, 1, -1), None
        if self.head.ac:
            medium, leak = self._wave_law(start, x, y, positive, inside, where)
            media = [medium]
        laws = list(self._constant_laws(media, where))
        # A part of the samples chooses the law, all of them say what drives it.
        each = mask is not None and mask.dim() > self.axes
        some = slice(None, None, SHARE)
        seen = (where[0], where[1][some], *where[2:]) if each else where
        fit = self._fitted(x[some], y[some], inside[some], seen)
        chosen = [(laws[0], MEANS[0])] * len(best)
        for mean in MEANS:
            for law in laws:
                self._set(start, law, leak, mean, where)
                for j, (_, _, residual) in enumerate(fit(law)):
                    if residual < best[j]:
                        best[j], chosen[j] = residual, (law, mean)
            # Other means are tried with the best law of each output.
            laws = [x for x in {id(law): law for law, _ in chosen}.values() if x[0].any()]
        fit = self._fitted(x, y, inside, where)
        for law, mean in {(id(law), mean): (law, mean) for law, mean in chosen}.values():
            self._set(start, law, leak, mean, where)
            for j, (shares, size, residual) in enumerate(fit(law)):
                if chosen[j][0] is law and chosen[j][1] == mean:
                    best[j] = residual
                    self._drive(shares, size, law[1], j)
                    kept = self._with_output(kept, j)
        self._load(kept)
        if not self.head.ac:  # whose numbers move slowly as they are
            self.head.set_pace(min(max(PACE * math.sqrt(max(best)), SLOWEST), FASTEST))
        return torch.tensor(best, device=x.device)

    def _fitted(
        self, x: Tensor, y: Tensor, inside: Tensor, where: Geometry
    ) -> Callable[[Law], list[tuple[Tensor, float, float]]]:
        """A function of laws that the head has: of each output the shares of what drives it, in
        the unit of the potential; this unit; and the residual."""
        values = self.units(x)[1]
        sources = torch.cat((torch.ones_like(values[..., :1]), values), -1).movedim(-1, 1)
        target = self._of_circuits(y[inside])
        spread = (target - target.mean(1, keepdim=True)).flatten(1).norm(dim=1).tolist()
        # The same for all laws.
        h = self.features(x, where)
        added = self.head.at_faces(h, where[3])
        whole = bool(inside.all())

        def fit(law: Law) -> list[tuple[Tensor, float, float]]:
            columns = self._responses(h, sources, law[1], where, added)
            outputs = (self.head.outputs(v) for v in columns)
            known = (u.flatten(0, -2) if whole else u[inside] for u in outputs)
            driven, *fields = map(self._of_circuits, known)
            found: list[tuple[Tensor, float, float]] = []
            for j, right in enumerate(target - driven):
                shares, rest = least_squares([v[j] for v in fields], right)
                size = spread[j] / math.sqrt(right.numel()) or 1.0
                found.append((shares / size, size, rest / max(spread[j], 1e-300)))
            return found

        return fit

    def _of_circuits(self, u: Tensor) -> Tensor:
        """Outputs (..., out_channels) by circuit, (m, ..., 1), or 2 with an imaginary part."""
        return at_least_float32(u).unflatten(-1, (self.head.num_circuits, -1)).movedim(-2, 0)

    def _media(self, positive: Tensor, *powers: int) -> list[Tensor]:
        """Exponents (m, C): 0, and powers of the positive inputs' mean and, of few, of each."""
        count, on = int(positive.sum()), positive.to(at_least_float32(self.units.size))
        shares = on[None][:count] / max(1, count)
        if 1 < count <= FEW:
            shares = torch.cat((shares, torch.eye(len(on)).to(on)[positive]))
        some = [0 * on, *(p * share for share in shares for p in powers)]
        return [exponents.expand(self.head.num_circuits, -1) for exponents in some]

    def _wave_law(
        self, start: Any, x: Tensor, y: Tensor, positive: Tensor, inside: Tensor, where: Geometry
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Exponents (m, C) in the conductivity; those in the leak, and its factors (m,).

        They are those for which -div(k grad y) + c y = f holds best with a source f that is linear
        in the inputs.
        """
        logs, values = (at_least_float32(field) for field in self.units(x))
        y = self._of_circuits(y)
        v = torch.complex(y[..., 0], y[..., 1] if y.shape[-1] > 1 else 0 * y[..., 0]).movedim(0, -1)
        sources = [
            s * unit for s in (v.real[..., :1] ** 0, *values.split(1, -1)) for unit in (1, 1j)
        ]
        best = [math.inf] * v.shape[-1]
        medium, exponents = logs.new_zeros(2, len(best), self.in_channels)
        factor, zero = logs.new_zeros(len(best)), torch.zeros_like(v)
        for powers in self._media(positive, 1, -1):
            self._set(start, (powers, [], 1.0), None, 0.0, where)
            circuit = self.head.assemble(self.features(x, where), *where)[0]
            flows = excess(v, zero, circuit.conductance, zero.real, circuit.layout)
            flows = flows / circuit.volume
            away = inside[..., None] & flows.isfinite()
            away = away if circuit.wall is None else away & (circuit.wall == 0)
            for leak in self._media(positive, 1, 2, -1, -2):
                # The leak alone, too: y may have an offset.
                c = (logs @ leak.T).exp()
                fields = [c * v, c, *(s.expand_as(v) for s in sources), flows]
                for j, on in enumerate(away.unbind(-1)):
                    *columns, right = (torch.view_as_real(c[..., j][on] + 0j) for c in fields)
                    shares, rest = least_squares(columns, right)
                    if (residual := rest / float(right.norm())) < best[j]:
                        best[j], factor[j] = residual, shares[0]
                        medium[j], exponents[j] = powers[j], leak[j]
        return medium, (exponents, factor)

    def _constant_laws(self, media: list[Tensor], where: Geometry) -> Iterator[Law]:
        places = self.head.learned
        # Without a mask nothing is known of the walls of holes, which stay as near as the others.
        outer = [i for i, place in enumerate(places) if place != "inner"]
        if where[3] is not None and not isinstance(self.head.boundary, Mapping):
            outer = outer[:1]
        holes = [i for i, place in enumerate(places) if place == "inner" and where[1] is not None]
        axes = [[i for i in outer if places[i][0] == axis] for axis in range(self.axes)]
        groups = [group + some for group in (outer, *axes) for some in (holes, [])]
        groups = [group for i, group in enumerate(groups) if not i or group not in groups[:i]]
        if where[3] is None:
            step = float(sum(where[0]) / self.axes)
        else:
            step = float((where[3].volume ** (1 / self.axes)).mean())
        for powers in media:
            for group in groups:
                for near in NEAR if group else NEAR[:1]:
                    yield powers, group, near * step

    def _set(self, start: Any, law: Law, leak: Any, mean: float, where: Geometry) -> None:
        """Give the head a constant law, without what drives it and without the trunk."""
        self._load(start)
        powers, walls, distance = law
        head, first, C = self.head, self.width, self.in_channels
        gain = (WAVE_GAIN if head.ac else 1) * POWER_GAIN / math.sqrt(C)
        head.conductivity.weight[:, :first] = 0
        weight = (powers / gain).to(head.source.weight)
        head.conductivity.weight[:, first : first + C] = weight.repeat(self.axes, 1)
        if head.leak is not None and leak is not None:
            weight = (leak[0] / gain).to(weight)
            for j, c in enumerate(leak[1].tolist()):
                row = j if c > 0 else head.num_circuits + j
                head.leak.weight[row, first : first + C] = weight[j]
                log_c = math.log(max(abs(c), 1e-6)) - ABSORPTION
                head.absorption[row] = log_c / WAVE_GAIN
        for p in (head.source.weight, head.source.bias, head.level, head.scale, head.offset):
            p.zero_()
        head.mean.fill_(mean / MEAN_GAIN)
        head.distance.fill_(math.log(FAR / DISTANCE) / DISTANCE_GAIN)
        unmasked = where[1] is None
        hole = [i for i, place in enumerate(head.learned) if place == "inner" and unmasked]
        near = math.log(max(distance, 1e-9) / DISTANCE) / DISTANCE_GAIN
        head.distance[[*walls, *hole]] = near

    def _responses(
        self, h: Tensor, sources: Tensor, walls: list[int], where: Geometry, added: list[Tensor]
    ) -> list[Tensor]:
        """The output of the head (B, \\*grid, m) without sources; what each of the sources
        (B, S, \\*grid) adds, and the potential of each wall; and 1, for the offset."""
        head = self.head
        circuit = head.assemble(h, *where, added=added)[0]
        fields = [torch.zeros_like(circuit.leak)]
        fields += [x[..., None].expand_as(fields[0]) for x in sources.to(fields[0]).unbind(1)]
        for wall in walls:
            head.level.zero_()
            head.level[wall] = 1 / LEVEL_GAIN
            current = head.assemble(h, *where, added=added)[0].source(fields[0])
            density = (current - circuit.source(fields[0])) / circuit.volume
            # Missing nodes have no volume.
            fields.append(density if where[1] is None else density.nan_to_num(0))
        head.level.zero_()
        driven, *found = circuit.solve(torch.stack(fields, 1)).unbind(1)
        return [driven, *(v - driven for v in found), torch.ones_like(driven)]

    def _drive(self, shares: Tensor, size: float, walls: list[int], j: int) -> None:
        """Drive output j by shares of a constant, of the inputs, of walls and of the offset; the
        potential is in the unit `size` of the output."""
        head, C = self.head, self.in_channels
        shares = shares.to(head.source.weight)
        head.source.bias[j] = shares[0]
        head.source.weight[j, self.width + C :] = shares[1 : 1 + C]
        head.level[walls, j] = shares[1 + C : -1] / LEVEL_GAIN
        head.scale[j] = math.log(size)
        head.offset[j] = shares[-1]

    def _with_output(self, parameters: dict[str, Tensor], j: int) -> dict[str, Tensor]:
        """These parameters of the head, with those of output j as they are now."""
        many, found = self.head.num_circuits, {}
        for name, now in self.head.named_parameters():
            new = parameters[name].clone()
            if name in ("level", "distance", "film"):
                new[:, j] = now[:, j]
            elif not name.startswith("faces"):
                new[j::many] = now[j::many]
            found[name] = new
        return found

    def _load(self, parameters: dict[str, Tensor]) -> None:
        for name, p in self.head.named_parameters():
            p.copy_(parameters[name])


class CHONNNetwork1d(CHONNNetwork):
    """`CHONNNetwork2d` for fields (B, C, N)."""

    axes = 1


class CHONNNetwork2d(CHONNNetwork):
    """Neural operator whose output is the potential of one circuit, which the inputs set.

    A network of each point makes features of its inputs and of what its neighbours add to them; a
    `chonn_ops.nn.CircuitHead` predicts conductivities, source, absorption and walls from these
    features and from the inputs' logarithms and values, and solves -div(k grad v) + c v = f. So a
    power law of the medium is one weight.

    Weights belong to the domain, so a trained model can be evaluated on finer grids, in other
    shapes with `mask`, and on meshes with `volumes`.

    `calibrate` takes units and first parameters from some data; a state dict has them all.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output fields; each output has a circuit of its own.
    width : int, optional
        Channels of the network of each point. Default: 16, or two an input channel if these are
        more.
    depth : int
        Its layers.
    trunk : Module, optional
        Another one in its place: (B, \\*grid, in_channels), about unit size, to
        (B, \\*grid, width). It sets conductivities and sources beside the inputs, from zero on. If
        it has a true attribute `coordinates`, its inputs end with those of the points, from 0 to 1
        along each axis of the domain: (B, \\*grid, in_channels + axes).
    lengths : float or sequence of float, one an axis
        Size of the domain, which sets the default spacing of a grid; the unit box by default.
    boundary, inner, nodes, ac
        As in `chonn_ops.nn.CircuitHead`.
    device, dtype
        As in `torch.nn`.

    Raises
    ------
    ValueError
        For sizes below 1, lengths not above 0 or an unknown boundary.

    Examples
    --------
    >>> model = CHONNNetwork2d(1, 1)
    >>> k, u = torch.rand(8, 1, 32, 48) + 0.1, torch.rand(8, 1, 32, 48)
    >>> residual = model.calibrate(k, u)
    >>> model(k).shape
    torch.Size([8, 1, 32, 48])
    """

    axes = 2


class CHONNNetwork3d(CHONNNetwork):
    """`CHONNNetwork2d` for fields (B, C, X, Y, Z)."""

    axes = 3
