"""Wave models: an LC network advances the state; networks, and transport along displacements that
are computed from their potentials, compute its inductors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.boundary import per_axis
from chonn_ops.checks import (
    GRID_AXES,
    as_field,
    check_bool,
    check_integer,
    error,
)
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.models.transport import BOUNDARIES, transport
from chonn_ops.network import diffusion
from chonn_ops.network.discretise.grids import Spacing
from chonn_ops.network.layout import excess
from chonn_ops.nn import Network, NetworkCell
from chonn_ops.nn.block import gated
from chonn_ops.nn.geometry import (
    Distances,
    Nodes,
    checked_lengths,
    checked_nodes,
    distances_of,
    node_positions,
    spacing_and_nodes,
)
from chonn_ops.nn.layers import Factory
from chonn_ops.nn.network_cell import UNIT

# A parameter that is one number for the whole field is stored divided by this gain, because it has
# to move further than a weight.
RATE_GAIN = 8.0
# The most that the networks of a layer, and its pointwise network, add to a feature. Both multiply
# values that come from frames: without a bound, a rollout with large frames overflows within
# a few steps. Bounds of 2 and 4 trained alike (advection, two seeds at PDEBench's rate); 4 changes
# the predictions of the trained models in `weights` by less than 1e-4 of a step.
MOST = 4.0
# Displacements of a layer, one for each half of the features, and their upper bound in the unit
# of the domain.
HEADS, REACH = 2, 1 / 8
# Distance that a wave travels per step before training, in the unit of the domain.
TRAVEL = 1 / 128
# Logit of the share of a current that remains after a step.
KEPT = 4.0
# Initial scales: a change between frames relative to a frame, and a source relative to a change.
CHANGE, SOURCE = 1 / 8, 1 / 12


class Displacement(nn.Module):
    """`HEADS` displacements that are computed from the potentials of m networks."""

    def __init__(self, num_networks: int, boundary: Sequence[str], factory: Factory) -> None:
        super().__init__()
        self.boundary = tuple(boundary)
        self.axes = axes = len(self.boundary)
        # Vector fields and, in two dimensions, stream functions.
        maps = HEADS * (axes + (axes == 2))
        self.maps = nn.Linear(num_networks, maps, bias=False, **factory)
        with torch.no_grad():
            self.maps.weight.mul_(0.1)
            if axes == 2:
                nn.init.normal_(self.maps.weight[2 * HEADS :], std=0.3 * num_networks**-0.5)

    def forward(self, potentials: Tensor, spacing: Sequence[float]) -> Tensor:
        """Displacements (B, \\*grid, heads, axes) from potentials (B, \\*grid, m), in steps."""
        maps = self.maps(potentials)
        direct = maps[..., : self.axes * HEADS].unflatten(-1, (HEADS, self.axes))
        shift = direct / UNIT
        if self.axes == 2:
            stream = maps[..., 2 * HEADS :]
            along = [
                _derivative(stream, axis, step, end == "periodic")
                for axis, (step, end) in enumerate(zip(spacing, self.boundary, strict=True))
            ]
            shift = shift + torch.stack((along[1], -along[0]), -1) / UNIT**2
        moved = REACH * torch.tanh(shift / REACH)
        parts = zip(moved.unbind(-1), spacing, strict=True)  # steps are tensors under exports
        return torch.stack([part / step for part, step in parts], -1)


class CarrierLayer(nn.Module):
    """One layer: gated networks of the features, and features transported along the potentials."""

    def __init__(
        self,
        width: int,
        options: Network,
        boundary: Sequence[str],
        factory: Factory,
    ) -> None:
        super().__init__()
        m = options.num_networks
        self.split, self.boundary = [width, m, width], boundary
        self.in_proj = nn.Linear(width, 2 * width + m, bias=False, **factory)
        # Without a norm, this initialisation keeps the size of signals.
        nn.init.normal_(self.in_proj.weight, std=width**-0.5)
        self.cell = NetworkCell(width, len(boundary), options, boundary=boundary, **factory)
        self.carrier = Displacement(m, boundary, factory)
        self.out_proj = nn.Linear(m + width, width, **factory)

    def forward(self, h: Tensor, spacing: list[float], nodes: Distances) -> Tensor:
        u, gate, value = self.in_proj(h).split(self.split, dim=-1)
        potentials = self.cell(u, spacing, nodes=nodes).to(h.dtype)
        path = self.carrier(potentials, spacing)
        moved = transport(value, path, boundary=self.boundary) - value
        both = torch.cat((gated(potentials, gate), moved), -1)
        return self.out_proj(both)


def bounded(x: Tensor) -> Tensor:
    """Values between -`MOST` and `MOST`, which are x where it is small.

    The slope falls with a power of x, that of tanh exponentially. So gradients do not vanish after
    a step of an optimiser that was too large.
    """
    wide = x.float() if x.dtype == torch.float16 else x  # whose fourth powers end at 16
    # Beyond 1e5 the fourth power would overflow.
    factor = (1 + (wide / MOST).clamp(-1e5, 1e5).square().square()).rsqrt().sqrt()
    return (wide * factor).clamp(-MOST, MOST).to(x.dtype)


class Pointwise(nn.Module):
    """A two-layer network at every position, with `hidden` channels inside: the field plus its
    bounded output. It has no norm, which would remove the field's amplitude, in which a linear
    problem is linear."""

    def __init__(self, width: int, hidden: int, factory: Factory) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden, **factory)
        self.contract = nn.Linear(hidden, width, **factory)

    def forward(self, field: Tensor) -> Tensor:
        return field + bounded(self.contract(F.silu(self.expand(field))))


def _derivative(field: Tensor, axis: int, step: float, ring: bool) -> Tensor:
    """Central differences along a grid axis of (B, \\*grid, C); one-sided at walls."""
    dim = axis + 1
    if ring or field.shape[dim] == 1:
        return (field.roll(-1, dim) - field.roll(1, dim)) / (2 * step)
    # `torch.gradient` would fix the size of an exported batch.
    slope = field.diff(dim=dim) / step
    first, last = slope.narrow(dim, 0, 1), slope.narrow(dim, slope.shape[dim] - 1, 1)
    return (torch.cat((first, slope), dim) + torch.cat((slope, last), dim)) / 2


class _CHONNWaves(Pretrained):
    """The model in any number of dimensions; see `CHONNWaves2d`."""

    axes: ClassVar[int]

    def __init__(
        self,
        channels: int = 1,
        history: int = 2,
        width: int = 24,
        depth: int = 2,
        *,
        num_networks: int = 4,
        mlp_ratio: int = 2,
        boundary: str | Sequence[str] = "robin",
        nodes: Nodes = "centres",
        lengths: float | Sequence[float] = 1.0,
        coordinates: bool = False,
        conservative: bool = True,
        substeps: int = 1,
        media: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: Factory = {"device": device, "dtype": dtype}
        check_integer(1, channels=channels, width=width, substeps=substeps)
        check_integer(2, history=history)
        check_integer(0, media=media)
        check_integer(0 if media else 1, depth=depth)
        check_integer(1, num_networks=num_networks, mlp_ratio=mlp_ratio)
        check_bool(coordinates=coordinates, conservative=conservative)
        words = per_axis(boundary, self.axes, BOUNDARIES)
        if width % HEADS:
            raise error("width", f"a multiple of {HEADS}", width)
        self.channels, self.history, self.coordinates = channels, history, coordinates
        self.boundary, self.nodes = words, checked_nodes(nodes)
        self.lengths = checked_lengths(lengths, self.axes)
        self.conservative, self.media = conservative, media
        self.substeps = substeps
        self.in_channels = inputs = channels * history + media
        if coordinates:
            inputs += sum(2 if end == "periodic" else 1 for end in words)
        self.lift = nn.Linear(inputs, width, **factory)
        cell = Network(num_networks=num_networks, nodes=nodes)
        self.layers = nn.ModuleList(CarrierLayer(width, cell, words, factory) for _ in range(depth))
        self.pointwise = nn.ModuleList(
            Pointwise(width, mlp_ratio * width, factory) for _ in range(depth)
        )
        self.head = nn.Linear(width, channels if media else 2 * channels, **factory)
        with torch.no_grad():
            # Before training the predicted frame is close to the last one.
            nn.init.zeros_(self.head.bias)
            self.head.weight.mul_(0.1)
        start = {"kept": KEPT, "conductivity": math.log(math.expm1((TRAVEL * UNIT) ** 2))}
        self.rates = nn.ParameterDict(
            {
                name: torch.full((channels,), value / RATE_GAIN, **factory)
                for name, value in start.items()
            }
        )
        self.medium = None
        if media:
            first = nn.Linear(media, width, **factory)
            last = nn.Linear(width, channels, **factory)
            with torch.no_grad():
                # Before training the coils are nearly the same everywhere.
                nn.init.zeros_(last.bias)
                last.weight.mul_(0.1)
            self.medium = nn.Sequential(first, nn.GELU(), last)

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        names = "lengths", "boundary", "conservative", "substeps"
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
        # The last frame, and the scaled differences of consecutive frames.
        changes = frames[..., self.channels :] - frames[..., : -self.channels]
        h = torch.cat((frames[..., -self.channels :], changes / CHANGE), -1)
        if self.media:
            h = torch.cat((h, media), -1)
        if self.coordinates:
            h = torch.cat((h, self._coordinates(frames, lie)), -1)
        h = self.lift(h)
        for layer, pointwise in zip(self.layers, self.pointwise, strict=True):
            h = pointwise(h + bounded(layer(h, steps, lie)))
        frame = self._advanced(frames, media, self.head(h), steps)
        return frame.movedim(-1, 1).to(x.dtype)

    def conductivity(self, readout: Tensor) -> Tensor:
        """Square of the distance that a wave travels per step, (B, \\*grid, C), in the unit of
        length of the networks."""
        return F.softplus(self._rate("conductivity", readout)) * torch.exp(readout)

    def _rate(self, name: str, like: Tensor) -> Tensor:
        return RATE_GAIN * self.rates[name].to(like)

    def _advanced(
        self, frames: Tensor, media: Tensor, readout: Tensor, steps: list[float]
    ) -> Tensor:
        """One frame of the LC network; the readout sets its inductors and its source."""
        wide = torch.promote_types(frames.dtype, torch.float32)
        *_, before, now = frames.to(wide).split(self.channels, -1)
        units = [UNIT * step for step in steps]
        words = ["periodic" if end == "periodic" else "neumann" for end in self.boundary]
        if self.medium is None:
            raw, source = readout.to(wide).split(self.channels, -1)
        else:
            # The coils of a given medium do not depend on the wave.
            raw, source = self.medium(media).to(wide), readout.to(wide)
        circuit = diffusion(self.conductivity(raw), units, boundary=words)
        per_node = [edge / circuit.volume for edge in circuit.conductance]
        if self.conservative:
            source = source - source.mean(tuple(range(1, self.axes + 1)), keepdim=True)
        push = CHANGE * SOURCE * source / self.substeps**2

        def force(v: Tensor) -> Tensor:
            """Current into the capacitors at the voltages v."""
            return excess(v, push, per_node, torch.zeros_like(push), circuit.layout)

        # `moved` is twice the displacement of a network that starts at rest: two frames and their
        # middle obey v' + v_before = 2 T(v), where T takes a network at rest at v one frame on.
        change = moved = force(now)
        for _ in range(self.substeps - 1):
            change = change + 2 * force(now + moved / 2)
            moved = moved + change
        kept = torch.sigmoid(self._rate("kept", now))
        if self.substeps > 1:
            # v' = (1 + a) T(v) - a v_before is stable for every T. A step of a wave that travels
            # less than a node is stable without this factor, too.
            moved = moved * ((1 + kept) / 2)
        return (now + kept * (now - before) + moved).to(frames.dtype)

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


class CHONNWaves1d(_CHONNWaves):
    """`CHONNWaves2d` for fields (B, C, N)."""

    axes = 1


class CHONNWaves2d(_CHONNWaves):
    r"""Predict the next frame of a wave with an LC network whose inductors depend on the features.

    The network has a capacitor at every node and an inductor on every edge. The last two frames are
    its state: the node voltages v, and their change d, which is the current into the capacitors.
    The next frame is a leapfrog step of the network::

        d' = a d - L v + s,    v' = v + d',    d = v - v_before

    L v is the current out of each node by Kirchhoff's current law, with conductances that
    `diffusion` computes from :math:`k > 0`. The factor a < 1 is the share of a current that
    the inductors' resistance leaves after a step. The fields k and s are computed from features: a
    pointwise embedding of the last frames, followed by `depth` layers and a pointwise readout. Each
    layer solves networks, gates their potentials, transports features along displacements computed
    from the potentials, and ends in a pointwise network. What it adds to a feature is at most 4, so
    a rollout stays finite while weights are not yet right. In the continuum the step is
    :math:`\ddot v + r \dot v = \nabla\cdot(k \nabla v) + s`. Shallow water of depth v over a flat
    bed has k = g v, and s contains the divergence of the momentum flux.

    Leapfrog is stable while waves travel less than about one node per step. `substeps` is for
    frames that are further apart. Frames of a network without resistance obey
    :math:`v' + v_{before} = 2 T(v)`, where T takes a network that is at rest at v one frame on. T
    is `substeps` steps of leapfrog, so the two frames stay the state, and a
    wave may travel as many times further per frame. With a resistance the frame is
    :math:`v' = (1 + a) T(v) - a v_{before}`, which is stable for the same steps.

    `media` is for a medium that is known, such as the density of a material. It is given as
    channels behind the frames. Inductors are then a function of the medium at each node alone, and
    the features set the source. With a `depth` of 0 the source is linear in the frames.

    The model is not in the CHONN paper, whose circuits are lines.

    Parameters
    ----------
    channels : int
        Channels of a frame.
    history : int
        Number of input frames, at least 2. The last two are the state; features see all of them.
    width, depth, num_networks : int
        Hidden channels, layers, and networks of each layer.
    mlp_ratio : int
        Hidden channels of the pointwise networks over `width`.
    boundary : {"periodic", "robin"} or a sequence of them, one an axis
        The LC network has "neumann" faces where the boundary is "robin": waves are reflected.
    nodes : {"centres", "left", "corners"} or pairs of float
        Where the nodes lie, see `Network`.
    lengths : float or sequence of float, one an axis
        As in `CHONNNetwork2d`.
    coordinates : bool
        Whether the coordinates are additional inputs: sine and cosine of the angle along periodic
        axes. Without them the model is equivariant to shifts along periodic axes.
    conservative : bool
        Whether the mean of s is removed, so that the source adds nothing to the sum of a frame.
    substeps : int
        Steps of the network from one frame to the next.
    media : int
        Channels behind the frames that describe a medium. With any, `depth` may be 0.

    Raises
    ------
    ValueError
        For sizes below 1, an odd width, an unknown word, a history below 2 or `substeps` below 1.

    Examples
    --------
    >>> model = CHONNWaves2d(1, history=2)
    >>> model(torch.randn(4, 2, 32, 32)).shape
    torch.Size([4, 1, 32, 32])
    """

    axes = 2
