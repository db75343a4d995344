"""The layers of wave models: networks, and transport along displacements that are computed from
their potentials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from chonn_ops.boundary import per_axis
from chonn_ops.checks import (
    GRID_AXES,
    as_field,
    check_bool,
    check_integer,
    check_number,
    error,
    plain,
)
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.models.transport import BOUNDARIES, transport
from chonn_ops.network.grids import Spacing, spacings
from chonn_ops.nn import Network, NetworkCell
from chonn_ops.nn.bounded import bounded
from chonn_ops.nn.geometry import (
    Distances,
    Nodes,
    checked_nodes,
    distances_of,
    node_positions,
    spacing_and_nodes,
)
from chonn_ops.nn.layers import Factory, Gained, Pointwise, PositionLinear, gated
from chonn_ops.nn.network_cell import UNIT

# A parameter that is one number for the whole field is stored divided by this gain, because it has
# to move further than a weight.
RATE_GAIN = 8.0
# The most that the networks of a layer, and its pointwise network, add to a feature. Both multiply
# values that come from frames: without a bound, a rollout with large frames overflows within
# a few steps. Bounds of 2 and 4 trained alike (advection, two seeds at PDEBench's rate); 4 changes
# the predictions of the trained models in `weights` by less than 1e-4 of a step.
MOST = 4.0


class Forecast(Gained, Pretrained):
    """Base of the models that predict the next frame: layers of networks and transport compute
    features, and the subclass computes the next frame from them in `advance`.

    Parameters
    ----------
    readouts : int
        Channels of the readout that `advance` gets.
    media : int
        Channels behind the frames, which are the same at all times.
    channels, history, width, depth, num_networks, heads, mlp_ratio, boundary, nodes, lengths, \
    coordinates, reach, conservative, factory
        See `CHONNWaves2d`.
    """

    axes: ClassVar[int]

    def __init__(
        self,
        readouts: int,
        media: int,
        channels: int,
        history: int,
        width: int,
        depth: int,
        num_networks: int,
        heads: int,
        mlp_ratio: int,
        boundary: str | Sequence[str],
        nodes: Nodes,
        lengths: float | Sequence[float],
        coordinates: bool,
        reach: float,
        conservative: bool,
        factory: Factory,
    ) -> None:
        super().__init__()
        check_integer(1, channels=channels, history=history, width=width)
        check_integer(0, media=media)
        check_integer(0 if media else 1, depth=depth)
        check_integer(1, num_networks=num_networks, heads=heads, mlp_ratio=mlp_ratio)
        check_bool(coordinates=coordinates, conservative=conservative)
        words = per_axis(boundary, self.axes, BOUNDARIES)
        if width % heads:
            raise error("heads", f"a divisor of width={width}", heads)
        check_number(reach=reach)
        if not 0 < reach < math.inf:
            raise error("reach", "a number > 0", repr(reach))
        self.channels, self.history, self.coordinates = channels, history, coordinates
        self.boundary, self.nodes = words, checked_nodes(nodes)
        self.lengths = tuple(spacings(plain("lengths", lengths), self.axes, "lengths"))
        self.reach, self.conservative, self.media = reach, conservative, media
        self.in_channels = inputs = channels * history + media
        if coordinates:
            inputs += sum(2 if end == "periodic" else 1 for end in words)
        self.lift = PositionLinear(inputs, width, **factory)
        cell = Network(num_networks=num_networks, nodes=nodes)
        self.layers = nn.ModuleList(
            CarrierLayer(width, cell, heads, words, reach, factory) for _ in range(depth)
        )
        self.pointwise = nn.ModuleList(
            Pointwise(width, mlp_ratio * width, **factory) for _ in range(depth)
        )
        self.head = PositionLinear(width, readouts, **factory)
        with torch.no_grad():
            # Before training the predicted frame is close to the last one.
            nn.init.zeros_(self.head.bias)
            self.head.weight.mul_(0.1)

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        names = "lengths", "boundary", "reach", "conservative", "substeps"
        nodes = distances_of(self.nodes, self.axes)
        return {"nodes": nodes, **{name: getattr(self, name) for name in names}}

    def forward(
        self,
        x: Tensor,
        *,
        spacing: Spacing | None = None,
        nodes: Nodes | None = None,
    ) -> Tensor:
        """Predict the next frame.

        Parameters
        ----------
        x : Tensor, shape (B, history * channels + media, \\*grid)
            Frames, the oldest first, each with its channels, and the media.
        spacing : float or sequence of float, one an axis, optional
            Distance of the points, in the unit of `lengths`. Default: `lengths` over the grid, as
            its nodes lie.
        nodes : {"centres", "left", "corners"} or pairs of float, optional
            Where the points lie, see `chonn_ops.Network`. Default: the option of the model.

        Returns
        -------
        Tensor, shape (B, channels, \\*grid)

        Raises
        ------
        ValueError
            For another number of axes or channels, or a geometry that does not fit.
        """
        shape = ("B", self.in_channels, *GRID_AXES[: self.axes])
        x = as_field("x", x, self.parameters(), *shape).movedim(1, -1)
        frames, media = x.tensor_split((self.history * self.channels,), -1)
        steps, lie = spacing_and_nodes(
            frames.shape[:-1], self.lengths, self.nodes, spacing, None, nodes
        )
        h = self.features(frames)
        if self.media:
            h = torch.cat((h, media), -1)
        if self.coordinates:
            h = torch.cat((h, self._coordinates(frames, lie)), -1)
        h = self.lift(h)
        potentials = h
        for layer, pointwise in zip(self.layers, self.pointwise, strict=True):
            branch, potentials = layer(h, steps, lie)
            h = h + bounded(branch, MOST)
            h = pointwise(h, MOST)
        frame = self.advance(frames, media, self.head(h), potentials, steps, lie)
        return frame.movedim(-1, 1).to(x.dtype)

    def features(self, frames: Tensor) -> Tensor:
        """The input of the layers, from the frames (B, \\*grid, history * channels)."""
        return frames

    def advance(
        self,
        frames: Tensor,
        media: Tensor,
        readout: Tensor,
        potentials: Tensor,
        steps: list[float],
        nodes: Distances,
    ) -> Tensor:
        """The next frame (B, \\*grid, channels).

        Parameters
        ----------
        frames : Tensor, shape (B, \\*grid, history * channels)
        media : Tensor, shape (B, \\*grid, media)
        readout : Tensor, shape (B, \\*grid, readouts)
        potentials : Tensor, shape (B, \\*grid, networks)
            Potentials of the last layer.
        steps : list of float
            Spacing of the nodes along each axis.
        nodes : list of pairs
            Steps between the walls and the first and the last node of each axis.
        """
        raise NotImplementedError

    def _without_mean(self, increment: Tensor) -> Tensor:
        """The increment, without its mean if the model is conservative."""
        if not self.conservative:
            return increment
        places = tuple(range(1, self.axes + 1))
        return increment - increment.mean(places, keepdim=True)

    def _coordinates(self, field: Tensor, nodes: Distances) -> Tensor:
        """Coordinates of the nodes: sine and cosine of the angle along periodic axes, otherwise
        -1/2 to 1/2."""
        lines = []
        for place, end in zip(node_positions(field, nodes), self.boundary, strict=True):
            if end == "periodic":
                lines += [torch.sin(2 * math.pi * place), torch.cos(2 * math.pi * place)]
            else:
                lines.append(place - 0.5)
        return torch.stack(lines, -1).expand(*field.shape[:-1], -1)


class Displacement(nn.Module):
    """Displacements that are computed from the potentials of m networks: so many `heads`, whose
    components are below `reach`."""

    def __init__(
        self,
        num_networks: int,
        heads: int,
        boundary: Sequence[str],
        reach: float,
        factory: Factory,
    ) -> None:
        super().__init__()
        self.heads, self.boundary, self.reach = heads, tuple(boundary), reach
        self.axes = axes = len(self.boundary)
        # Vector fields and, in two dimensions, stream functions.
        maps = heads * (axes + (axes == 2))
        self.maps = PositionLinear(num_networks, maps, bias=False, **factory)
        with torch.no_grad():
            self.maps.weight.mul_(0.1)
            if axes == 2:
                nn.init.normal_(self.maps.weight[2 * heads :], std=0.3 * num_networks**-0.5)

    def forward(self, potentials: Tensor, spacing: Sequence[float]) -> Tensor:
        """Displacements (B, \\*grid, heads, axes) from potentials (B, \\*grid, m), in the unit of
        `spacing`."""
        maps = self.maps(potentials)
        direct = maps[..., : self.axes * self.heads].unflatten(-1, (self.heads, self.axes))
        shift = direct / UNIT
        if self.axes == 2:
            stream = maps[..., 2 * self.heads :]
            along = [
                _derivative(stream, axis, step, end == "periodic")
                for axis, (step, end) in enumerate(zip(spacing, self.boundary, strict=True))
            ]
            shift = shift + torch.stack((along[1], -along[0]), -1) / UNIT**2
        return self.reach * torch.tanh(shift / self.reach)


def in_steps(displacement: Tensor, spacing: Sequence[float]) -> Tensor:
    """A displacement (..., axes), given in the unit of the spacing, in steps of the grid."""
    parts = zip(displacement.unbind(-1), spacing, strict=True)  # steps are tensors under exports
    return torch.stack([part / step for part, step in parts], -1)


class CarrierLayer(nn.Module):
    """One layer: gated networks of the features, and features transported along the potentials."""

    def __init__(
        self,
        width: int,
        options: Network,
        heads: int,
        boundary: Sequence[str],
        reach: float,
        factory: Factory,
    ) -> None:
        super().__init__()
        m = options.num_networks
        self.split, self.boundary = [width, m, width], boundary
        self.in_proj = PositionLinear(width, 2 * width + m, bias=False, **factory)
        # Without a norm, this initialisation keeps the size of signals.
        nn.init.normal_(self.in_proj.weight, std=width**-0.5)
        self.cell = NetworkCell(width, len(boundary), options, boundary=boundary, **factory)
        self.carrier = Displacement(m, heads, boundary, reach, factory)
        self.out_proj = PositionLinear(m + width, width, **factory)

    def forward(self, h: Tensor, spacing: list[float], nodes: Distances) -> tuple[Tensor, Tensor]:
        u, gate, value = self.in_proj(h).split(self.split, dim=-1)
        potentials = self.cell(u, spacing, nodes=nodes).to(h.dtype)
        path = in_steps(self.carrier(potentials, spacing), spacing)
        # Features are many, so they are interpolated linearly.
        moved = transport(value, path, boundary=self.boundary, order=1) - value
        both = torch.cat((gated(potentials, gate), moved), -1)
        return self.out_proj(both), potentials


def _derivative(field: Tensor, axis: int, step: float, ring: bool) -> Tensor:
    """Central differences along a grid axis of (B, \\*grid, C); one-sided at walls."""
    dim = axis + 1
    if ring or field.shape[dim] == 1:
        return (field.roll(-1, dim) - field.roll(1, dim)) / (2 * step)
    # `torch.gradient` would fix the size of an exported batch.
    slope = field.diff(dim=dim) / step
    first, last = slope.narrow(dim, 0, 1), slope.narrow(dim, slope.shape[dim] - 1, 1)
    return (torch.cat((first, slope), dim) + torch.cat((slope, last), dim)) / 2
