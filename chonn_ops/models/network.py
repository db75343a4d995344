"""Models whose output is the potential of one circuit: a trunk makes features, a head solves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops._dtypes import at_least_float32
from chonn_ops.boundary import Condition
from chonn_ops.checks import GRID_AXES, as_field, check_each, check_integer, error
from chonn_ops.models.calibration import Calibration, Samples
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.network.discretise.grids import Spacing
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.nn.circuit_head import CircuitHead, edge_cosines
from chonn_ops.nn.geometry import (
    Geometry,
    Nodes,
    check_volumes,
    checked_lengths,
    existing,
    node_positions,
    spacing_and_nodes,
)
from chonn_ops.nn.layers import Factory

# Exponents of power laws move so many times as far a step of an optimiser as other weights.
POWER_GAIN = 4.0
# The floor of a positive channel over its typical value, below which logarithms become linear.
FLOOR = 1e-6
# Features of neighbours at most.
MOST_BESIDE = 16


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
        """Features of nodes of a grid, (B, \\*grid, C), or of a mesh, (B, N, C); 0 as in a
        homogeneous medium without a geometry."""
        greatest = z.new_zeros(*z.shape[:-1], self.size)
        if geometry is None:
            return greatest
        if (volumes := geometry.volumes) is not None:
            p, q = volumes.graph.ends.to(z.device)
            cosine, along = edge_cosines(volumes).to(z), z[:, q] - z[:, p]
            even, odd = (
                (c * along @ weight.mT[:, None]).sum(0)
                for c, weight in ((cosine**2, self.even), (cosine, self.odd))
            )
            steps, node = torch.cat((even + odd, odd - even), 1), torch.cat((p, q))
            steps = steps.to(greatest)  # autocast has rounded them
            return greatest.scatter_reduce(1, node[:, None].expand_as(steps), steps, "amax")
        exists = None if geometry.mask is None else existing(geometry.mask, len(self.even))
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
        # Times a logarithm, what the head's exponents are of.
        self.power = POWER_GAIN / math.sqrt(in_channels)
        self.lengths = checked_lengths(lengths, self.axes)
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
            if geometry.volumes is None:
                places = torch.stack(node_positions(z, geometry.nodes), -1)
            else:
                places = geometry.volumes.positions.to(z) / z.new_tensor(self.lengths)
            z = torch.cat((z, places.expand(*z.shape[:-1], -1)), -1)
        h = self.trunk(z)
        return torch.cat((h, (self.power * logs).to(h.dtype), values.to(h.dtype)), -1)

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
        x, geometry = self._points(x, Geometry(spacing, mask, nodes, volumes))
        u = self.head(self.features(x, geometry), *geometry).to(x.dtype)
        return u if volumes is not None else u.movedim(-1, 1)

    def _points(self, x: Tensor, given: Geometry) -> tuple[Tensor, Geometry]:
        """Checked inputs (B, \\*grid, C), and the geometry that the head takes."""
        spacing, mask, nodes, volumes = given
        if volumes is not None:
            count = check_volumes(volumes, self.axes, spacing, mask, nodes)
            x = as_field("x", x, self.parameters(), "B", count, self.in_channels)
            return x, Geometry(volumes=volumes)
        x = as_field("x", x, self.parameters(), "B", self.in_channels, *GRID_AXES[: self.axes])
        x = x.movedim(1, -1).contiguous()
        steps, lie = spacing_and_nodes(
            x.shape[:-1], self.lengths, self.head.nodes, spacing, mask, nodes
        )
        if mask is not None:  # values outside of the domain must not matter, not even NaN
            ordinary = 2 * self.units.floor * self.units.centre.sinh()  # its logarithm is 0
            x = torch.where(existing(mask, self.axes), x, ordinary.to(x.dtype))
        return x, Geometry(steps, mask, lie)

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
        points, where = self._points(x, Geometry(**geometry))
        check_each("x", x, x.isfinite(), "finite numbers")
        check_each("y", y, ~y.isinf(), "finite numbers, NaN where it is not known")
        y = y if where.volumes is not None else y.movedim(1, -1)
        if y.shape != (*points.shape[:-1], self.out_channels) or y.isnan().all():
            actual = "NaN only" if y.isnan().all() else tuple(y.shape)
            raise error("y", "a field of outputs for each input", actual)
        inside = ~y.isnan().any(-1)
        if where.mask is not None:
            inside = inside & where.mask
        return Calibration(self, Samples(points, y, inside, where)).run()


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
        Size of the domain along each axis, which sets the default spacing of a grid. One number is
        their mean, and the cells are square.
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
    >>> import torch
    >>> from chonn_ops import CHONNNetwork2d
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
