"""What the models that step in time share: features of the frames, networks, and transport."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from chonn_ops.models._carrier import CarrierLayer
from chonn_ops.models._pointwise import Pointwise
from chonn_ops.models.transport import ENDS
from chonn_ops.nn._checks import check_least
from chonn_ops.nn._geometry import NODES, check_geometry, steps_between_walls
from chonn_ops.nn._linear import PositionLinear

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
        words = (ends,) * self.axes if isinstance(ends, str) else tuple(ends)
        if len(words) != self.axes or not all(word in ENDS for word in words):
            raise ValueError(f"ends: expected one of {ENDS}, or {self.axes} of them, got {ends!r}")
        sizes = (lengths,) * self.axes if isinstance(lengths, (int, float)) else tuple(lengths)
        if len(sizes) != self.axes or not all(0 < length < math.inf for length in sizes):
            raise ValueError(
                f"lengths: expected a number > 0, or {self.axes} of them, got {lengths!r}"
            )
        if nodes not in NODES:
            raise ValueError(f"nodes: expected one of {tuple(NODES)}, got {nodes!r}")
        if width % heads:
            raise ValueError(f"heads: expected a divisor of width={width}, got {heads}")
        if not 0 < reach < math.inf:
            raise ValueError(f"reach: expected a number > 0, got {reach!r}")
        self.channels, self.history, self.coordinates = channels, history, coordinates
        self.ends, self.nodes = words, nodes
        self.lengths = tuple(float(length) for length in sizes)
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
        inputs = self.history * self.channels
        if x.ndim != self.axes + 2 or x.shape[1] != inputs:
            names = ", ".join(("H", "W", "T")[: self.axes])
            raise ValueError(f"x: expected shape (B, {inputs}, {names}), got {tuple(x.shape)}")
        grid = x.shape[2:]
        check_geometry((x.shape[0], *grid), spacing, None)
        steps = spacing or [
            length / steps_between_walls(n, NODES[self.nodes])
            for length, n in zip(self.lengths, grid, strict=True)
        ]
        steps = [float(step) for step in steps]
        frames = x.movedim(1, -1)
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
        distances, axes = NODES[self.nodes], []
        for n in field.shape[1:-1]:
            place = torch.arange(n, device=field.device, dtype=field.dtype)
            axes.append((place + distances[0]) / steps_between_walls(n, distances))
        places = torch.meshgrid(*axes, indexing="ij")
        lines = []
        for place, end in zip(places, self.ends, strict=True):
            if end == "ring":
                lines += [torch.sin(2 * math.pi * place), torch.cos(2 * math.pi * place)]
            else:
                lines.append(place - 0.5)
        return torch.stack(lines, -1).expand(*field.shape[:-1], -1)
