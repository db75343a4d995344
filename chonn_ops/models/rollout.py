"""Models that step in time: networks, transport along their potentials, and a damped state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.models._carrier import UNIT, Carrier, CarrierLayer
from chonn_ops.models._pointwise import Pointwise
from chonn_ops.models.transport import ENDS, ORDERS
from chonn_ops.network import kirchhoff_network
from chonn_ops.nn._checks import check_least
from chonn_ops.nn._geometry import NODES, check_geometry, steps_between_walls
from chonn_ops.nn._linear import PositionLinear

DAMPINGS = ("state", "increment", "none")
# Diffusivity over a step in these units; 5e-4 of the unit box.
DIFFUSIVITY = 0.125
RATE_GAIN = 8.0


class _CHONNRollout(nn.Module):
    """The model in any number of dimensions; see `CHONNRollout2d`."""

    axes: ClassVar[int]

    def __init__(
        self,
        channels: int = 1,
        history: int = 10,
        width: int = 24,
        depth: int = 2,
        *,
        networks: int = 8,
        heads: int = 4,
        mlp_ratio: int = 2,
        ends: str | Sequence[str] = "ring",
        nodes: str = "left",
        lengths: float | Sequence[float] = 1.0,
        coordinates: bool = True,
        reach: float = 0.125,
        order: int = 3,
        conservative: bool = False,
        carried: bool = True,
        damping: str = "state",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
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
        if order not in ORDERS:
            raise ValueError(f"order: expected one of {ORDERS}, got {order!r}")
        if damping not in DAMPINGS:
            raise ValueError(f"damping: expected one of {DAMPINGS}, got {damping!r}")
        self.channels, self.history, self.coordinates = channels, history, coordinates
        self.ends, self.nodes = words, nodes
        self.lengths = tuple(float(length) for length in sizes)
        self.carried, self.damping = carried, damping
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
        self.head = PositionLinear(width, channels, **factory)
        self.carrier = None
        if carried:
            form = {"order": order, "conservative": conservative}
            self.carrier = Carrier(networks, channels, self.axes, **form, **moved, **factory)
        # softplus of it, over a gain: one number that the whole field wants elsewhere must travel
        # further than a weight.
        self.diffusivity_param = None
        if damping != "none":
            start = math.log(math.expm1(DIFFUSIVITY)) / RATE_GAIN
            self.diffusivity_param = nn.Parameter(torch.full((channels,), start, **factory))
        with torch.no_grad():
            # The first frames predicted are near the last ones.
            nn.init.zeros_(self.head.bias)
            self.head.weight.mul_(0.1)

    def diffusivity(self) -> Tensor:
        """Of the last networks over a step, (channels,), the domain's unit of length being 1."""
        if self.diffusivity_param is None:
            return torch.zeros(self.channels)
        return F.softplus(RATE_GAIN * self.diffusivity_param) / UNIT**2

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
        state = frames[..., -self.channels :]
        h = torch.cat((frames, self._coordinates(frames)), -1) if self.coordinates else frames
        h = self.lift(h)
        potentials = h
        for layer, pointwise in zip(self.layers, self.pointwise, strict=True):
            branch, potentials = layer(h, steps)
            h = h + branch
            h = h + pointwise(h)
        increment = self.head(h)
        if self.conservative:
            places = tuple(range(1, self.axes + 1))
            increment = increment - increment.mean(places, keepdim=True)
        if self.carrier is not None:
            state = self.carrier(state, potentials, steps)
        if self.damping == "increment":
            state = state + self._damped(increment, steps)
        else:
            state = state + increment
            if self.damping == "state":
                state = self._damped(state, steps)
        return state.movedim(-1, 1)

    def _damped(self, field: Tensor, steps: list[float]) -> Tensor:
        """An implicit step of diffusion: networks with a capacitor at every node."""
        wide = field.to(torch.promote_types(field.dtype, torch.float32))
        diffusivity = self.diffusivity().to(wide)
        edges = [(diffusivity / step**2).expand_as(wide) for step in steps]
        words = ["ring" if end == "ring" else "open" for end in self.ends]
        return kirchhoff_network(wide, edges, torch.ones_like(wide), ends=words, tol=1e-4)

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


class CHONNRollout1d(_CHONNRollout):
    """`CHONNRollout2d` for fields (B, C, N)."""

    axes = 1


class CHONNRollout2d(_CHONNRollout):
    """Predict the next frame of a flow: circuits find the flow, and carry and damp the state.

    A pointwise embedding of the last frames; `depth` layers in which networks are solved, gated
    and read as displacements that move the features, and a pointwise network follows; a pointwise
    readout, which is added to the last frame. That frame itself, too, is moved along displacements
    read off the last potentials (`carried`), and what comes out is solved for once more by a
    network with a capacitor at every node, an implicit step of diffusion (`damping`). So what a
    rollout adds to its state at the scale of the grid, where models of increments keep everything,
    is carried along and decays.

    In two dimensions displacements are the curl of a stream function, with a part that is none.

    Not in the CHONN paper, whose circuits are lines.

    Parameters
    ----------
    channels : int
        Of a frame.
    history : int
        Frames given.
    width : int
        Hidden channels.
    depth : int
        Layers.
    networks : int
        Networks of every layer.
    heads : int
        Displacements of every layer, each for ``width / heads`` of the channels.
    mlp_ratio : int
        Hidden channels of the pointwise networks over `width`.
    ends : {"ring", "wall"} or a sequence of them, one an axis
    nodes : {"centres", "left", "corners"}
        Where the nodes lie, see `NetworkCell`.
    lengths : float or sequence of float, one an axis
        Size of the domain, to tell the spacing from a grid; the unit box by default.
    coordinates : bool
        Whether the model gets the coordinates, on rings sine and cosine of the angle; without, it
        is equivariant to shifts on rings.
    reach : float
        What a displacement stays below, in the unit of `lengths`.
    order : {1, 3}
        Of the interpolation of the last frame, see `chonn_ops.models.transport.transport`; that
        of features, of which there are many more, is linear.
    conservative : bool
        Whether the sum of the last frame over the nodes is kept: it is moved in the conservative
        form, and what is added has no mean.
    carried : bool
        Whether the last frame is moved, too, before the readout is added (ablation).
    damping : {"state", "increment", "none"}
        What goes through the last solve: the sum, what is added alone, or nothing (ablation).

    Raises
    ------
    ValueError
        For sizes below 1, heads that do not divide the width, or other words.

    Examples
    --------
    >>> model = CHONNRollout2d(1, history=10)
    >>> model(torch.randn(4, 10, 32, 32)).shape
    torch.Size([4, 1, 32, 32])
    """

    axes = 2
