"""What the models that step in time share: features of the frames, networks made of them, and what
those carry: features and states, along displacements that are read off potentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops import _ends
from chonn_ops.models._blocks import Pointwise, check_field
from chonn_ops.models.transport import ENDS, transport
from chonn_ops.network._conductance import spacings
from chonn_ops.nn import NetworkCell
from chonn_ops.nn._checks import check_choice, check_least
from chonn_ops.nn._geometry import NODES, check_geometry, default_spacing, places
from chonn_ops.nn._linear import PositionLinear

# Units of length of the networks in the domain's unit, as in `NetworkCell`.
UNIT = 16.0
# Parameters that are one number for the whole field are kept over this gain: such a number has
# further to go than a weight.
RATE_GAIN = 8.0


class Forecast(nn.Module):
    """Features of the last frames through layers of networks and transport; the next frame is made
    of them by the subclass, in `advance`.

    Parameters
    ----------
    readouts : int
        Numbers a point that are read out for `advance`.
    channels, history, width, depth, networks, heads, mlp_ratio, ends, nodes, lengths, coordinates,
    reach, conservative
        See `CHONNRollout2d`.
    """

    axes: ClassVar[int]

    def __init__(
        self,
        readouts: int,
        *,
        channels: int,
        history: int,
        width: int,
        depth: int,
        networks: int,
        heads: int,
        mlp_ratio: int,
        ends: str | Sequence[str],
        nodes: str,
        lengths: float | Sequence[float],
        coordinates: bool,
        reach: float,
        conservative: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        check_least(1, channels=channels, history=history, width=width, depth=depth)
        check_least(1, networks=networks, heads=heads, mlp_ratio=mlp_ratio)
        words = _ends.of_axes(ends, self.axes, ENDS)
        check_choice("nodes", nodes, NODES)
        if width % heads:
            raise ValueError(f"heads: expected a divisor of width={width}, got {heads}")
        if not 0 < reach < math.inf:
            raise ValueError(f"reach: expected a number > 0, got {reach!r}")
        self.channels, self.history, self.coordinates = channels, history, coordinates
        self.ends, self.nodes = words, nodes
        self.lengths = tuple(spacings(lengths, self.axes, "lengths"))
        factory = {"device": device, "dtype": dtype}
        inputs = channels * history
        if coordinates:
            inputs += sum(2 if end == "ring" else 1 for end in words)
        self.lift = PositionLinear(inputs, width, **factory)
        self.conservative = conservative
        moved = {"ends": words, "reach": reach}
        self.layers = nn.ModuleList(
            CarrierLayer(width, networks, heads, self.axes, nodes, moved, factory)
            for _ in range(depth)
        )
        self.pointwise = nn.ModuleList(
            Pointwise(width, mlp_ratio * width, factory) for _ in range(depth)
        )
        self.head = PositionLinear(width, readouts, **factory)
        with torch.no_grad():
            # The first frames predicted are near the last ones.
            nn.init.zeros_(self.head.bias)
            self.head.weight.mul_(0.1)

    def forward(self, x: Tensor, *, spacing: Sequence[float] | None = None) -> Tensor:
        """Predict the next frame.

        Parameters
        ----------
        x : Tensor, shape (B, history * channels, \\*grid)
            Frames, the oldest first, each with its channels.
        spacing : sequence of float, one an axis, optional
            Distance of the points, in the unit of `lengths`. Default: `lengths` over the grid, as
            its nodes lie.

        Returns
        -------
        Tensor, shape (B, channels, \\*grid)

        Raises
        ------
        ValueError
            For another number of axes or channels, or a spacing that does not fit.
        """
        check_field(x, self.history * self.channels, self.axes)
        frames = x.movedim(1, -1)
        grid = frames.shape[:-1]
        check_geometry(grid, spacing, None)
        steps = spacing or default_spacing(self.lengths, grid[1:], self.nodes)
        steps = [float(step) for step in steps]
        h = self.features(frames)
        if self.coordinates:
            h = torch.cat((h, self._coordinates(frames)), -1)
        h = self.lift(h)
        potentials = h
        for layer, pointwise in zip(self.layers, self.pointwise, strict=True):
            branch, potentials = layer(h, steps)
            h = h + branch
            h = h + pointwise(h)
        return self.advance(frames, self.head(h), potentials, steps).movedim(-1, 1)

    def features(self, frames: Tensor) -> Tensor:
        """What the layers are given of the frames (B, \\*grid, history * channels)."""
        return frames

    def advance(
        self, frames: Tensor, readout: Tensor, potentials: Tensor, steps: list[float]
    ) -> Tensor:
        """The next frame (B, \\*grid, channels).

        Parameters
        ----------
        frames : Tensor, shape (B, \\*grid, history * channels)
        readout : Tensor, shape (B, \\*grid, readouts)
        potentials : Tensor, shape (B, \\*grid, networks)
            Of the last layer.
        steps : list of float
            Spacing.
        """
        raise NotImplementedError

    def _without_mean(self, increment: Tensor) -> Tensor:
        """The increment; where the sum is to be kept, less its mean."""
        if not self.conservative:
            return increment
        places = tuple(range(1, self.axes + 1))
        return increment - increment.mean(places, keepdim=True)

    def _coordinates(self, field: Tensor) -> Tensor:
        """Where the nodes are: sine and cosine of the angle on rings, -1/2 to 1/2 between walls."""
        lines = []
        for place, end in zip(places(field, self.nodes), self.ends, strict=True):
            if end == "ring":
                lines += [torch.sin(2 * math.pi * place), torch.cos(2 * math.pi * place)]
            else:
                lines.append(place - 0.5)
        return torch.stack(lines, -1).expand(*field.shape[:-1], -1)


class Carrier(nn.Module):
    """Fields moved along displacements that are read off potentials.

    Parameters
    ----------
    networks : int
        Potentials m.
    heads : int
        Displacements; a field's channels are shared out among them.
    axes : {1, 2}
    ends, order, conservative
        See `chonn_ops.models.transport.transport`.
    reach : float
        What a displacement stays below.
    """

    def __init__(
        self,
        networks: int,
        heads: int,
        axes: int,
        *,
        ends: Sequence[str],
        reach: float,
        order: int = 1,
        conservative: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.axes, self.reach = heads, axes, reach
        self.ends, self.order, self.conservative = tuple(ends), order, conservative
        # Displacements themselves, and in two dimensions stream functions.
        self.maps = nn.Linear(
            networks, heads * (axes + (axes == 2)), bias=False, device=device, dtype=dtype
        )
        with torch.no_grad():
            self.maps.weight.mul_(0.1)
            if axes == 2:
                nn.init.normal_(self.maps.weight[2 * heads :], std=0.3 * networks**-0.5)

    def displacement(self, potentials: Tensor, spacing: Sequence[float]) -> Tensor:
        """(B, \\*grid, heads, axes) from potentials (B, \\*grid, m), in the unit of `spacing`."""
        maps = self.maps(potentials)
        direct = maps[..., : self.axes * self.heads].unflatten(-1, (self.heads, self.axes))
        shift = direct / UNIT
        if self.axes == 2:
            stream = maps[..., 2 * self.heads :]
            along = [
                _derivative(stream, axis, step, end == "ring")
                for axis, (step, end) in enumerate(zip(spacing, self.ends, strict=True))
            ]
            shift = shift + torch.stack((along[1], -along[0]), -1) / UNIT**2
        return self.reach * torch.tanh(shift / self.reach)

    def forward(self, field: Tensor, potentials: Tensor, spacing: Sequence[float]) -> Tensor:
        """The field (B, \\*grid, C) moved; `spacing` is that of the nodes."""
        steps = torch.tensor(spacing, dtype=potentials.dtype, device=potentials.device)
        displacement = self.displacement(potentials, spacing) / steps
        return transport(
            field,
            displacement,
            ends=self.ends,
            order=self.order,
            conservative=self.conservative,
        )


class CarrierLayer(nn.Module):
    """What a layer adds: networks made of the features, gated, and features that they move."""

    def __init__(
        self,
        width: int,
        networks: int,
        heads: int,
        axes: int,
        nodes: str,
        moved: dict,
        factory: dict,
    ) -> None:
        super().__init__()
        self.split = [width, networks, width]
        self.in_proj = PositionLinear(width, 2 * width + networks, bias=False, **factory)
        # There is no norm: signals keep their size.
        nn.init.normal_(self.in_proj.weight, std=width**-0.5)
        self.cell = NetworkCell(width, networks, axes, ends=moved["ends"], nodes=nodes, **factory)
        self.carrier = Carrier(networks, heads, axes, **moved, **factory)
        self.out_proj = PositionLinear(networks + width, width, **factory)

    def forward(self, h: Tensor, spacing: list[float]) -> tuple[Tensor, Tensor]:
        u, gate, value = self.in_proj(h).split(self.split, dim=-1)
        potentials = self.cell(u, spacing).to(h.dtype)
        moved = self.carrier(value, potentials, spacing) - value
        gated = potentials * F.silu(gate.contiguous())
        return self.out_proj(torch.cat((gated, moved), -1)), potentials


def _derivative(field: Tensor, axis: int, step: float, ring: bool) -> Tensor:
    """Central differences along a grid axis of (B, \\*grid, C); one-sided at walls."""
    dim = axis + 1
    if ring or field.shape[dim] == 1:
        return (field.roll(-1, dim) - field.roll(1, dim)) / (2 * step)
    return torch.gradient(field, spacing=step, dim=dim)[0]
