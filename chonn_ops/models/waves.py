"""Wave models: an LC network advances the state; networks and transport compute its inductors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.checks import check_integer
from chonn_ops.models._forecast import RATE_GAIN, Forecast
from chonn_ops.network import diffusion
from chonn_ops.network.edges import excess
from chonn_ops.nn.geometry import Distances, Nodes
from chonn_ops.nn.layers import Factory, Gained, PositionLinear, learn_faster
from chonn_ops.nn.network_cell import UNIT

# Distance that a wave travels per step before training, in the unit of the domain.
TRAVEL = 1 / 128
# Logit of the share of a current that remains after a step.
KEPT = 4.0
# Initial scales: a change between frames relative to a frame, and a source relative to a change.
CHANGE, SOURCE = 1 / 8, 1 / 12


class _Rates(Gained, nn.ParameterDict):
    """Numbers of a channel."""


class _CHONNWaves(Forecast):
    """The model in any number of dimensions; see `CHONNWaves2d`."""

    def __init__(
        self,
        channels: int = 1,
        history: int = 2,
        width: int = 24,
        depth: int = 2,
        *,
        num_networks: int = 4,
        heads: int = 2,
        mlp_ratio: int = 2,
        boundary: str | Sequence[str] = "robin",
        nodes: Nodes = "centres",
        lengths: float | Sequence[float] = 1.0,
        coordinates: bool = False,
        reach: float = 0.125,
        conservative: bool = True,
        substeps: int = 1,
        media: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_integer(1, channels=channels, substeps=substeps)
        check_integer(2, history=history)
        factory: Factory = {"device": device, "dtype": dtype}
        readouts = channels if media else 2 * channels
        super().__init__(
            *(readouts, media, channels, history, width, depth, num_networks, heads, mlp_ratio),
            *(boundary, nodes, lengths, coordinates, reach, conservative, factory),
        )
        start = {"kept": KEPT, "conductivity": math.log(math.expm1((TRAVEL * UNIT) ** 2))}
        self.rates = _Rates(
            {
                name: torch.full((channels,), value / RATE_GAIN, **factory)
                for name, value in start.items()
            }
        )
        self.substeps = substeps
        self.medium = None
        if media:
            first = PositionLinear(media, width, **factory)
            last = PositionLinear(width, channels, **factory)
            with torch.no_grad():
                # Before training the coils are nearly the same everywhere.
                nn.init.zeros_(last.bias)
                last.weight.mul_(0.1)
            self.medium = nn.Sequential(first, nn.GELU(), last)
        learn_faster(self, 1.0)  # hosts let it learn faster, so state dicts say how fast it does

    def features(self, frames: Tensor) -> Tensor:
        """The last frame, and the scaled differences of consecutive frames."""
        changes = frames[..., self.channels :] - frames[..., : -self.channels]
        return torch.cat((frames[..., -self.channels :], changes / CHANGE), -1)

    def conductivity(self, readout: Tensor) -> Tensor:
        """Square of the distance that a wave travels per step, (B, \\*grid, C), in the unit of
        length of the networks."""
        return F.softplus(self._rate("conductivity", readout)) * torch.exp(readout)

    def _rate(self, name: str, like: Tensor) -> Tensor:
        return RATE_GAIN * self.rates.effective(name).to(like)

    def advance(
        self,
        frames: Tensor,
        media: Tensor,
        readout: Tensor,
        potentials: Tensor,  # noqa: ARG002
        steps: list[float],
        nodes: Distances,  # noqa: ARG002
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
        push = CHANGE * SOURCE * self._without_mean(source) / self.substeps**2

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
    heads : int
        Displacements of each layer; one displacement moves ``width / heads`` channels.
    mlp_ratio : int
        Hidden channels of the pointwise networks over `width`.
    boundary : {"periodic", "robin"} or a sequence of them, one an axis
        The LC network has "neumann" faces where the boundary is "robin": waves are reflected.
    nodes : {"centres", "left", "corners"} or pairs of float
        Where the nodes lie, see `Network`.
    lengths : float or sequence of float, one an axis
        Size of the domain, which sets the default spacing of a grid; the unit box by default.
    coordinates : bool
        Whether the coordinates are additional inputs: sine and cosine of the angle along periodic
        axes. Without them the model is equivariant to shifts along periodic axes.
    reach : float
        Upper bound of a displacement, in the unit of `lengths`.
    conservative : bool
        Whether the mean of s is removed, so that the source adds nothing to the sum of a frame.
    substeps : int
        Steps of the network from one frame to the next.
    media : int
        Channels behind the frames that describe a medium. With any, `depth` may be 0.

    Raises
    ------
    ValueError
        For sizes below 1, heads that do not divide the width, an unknown word, a history below 2 or
        `substeps` below 1.

    Examples
    --------
    >>> model = CHONNWaves2d(1, history=2)
    >>> model(torch.randn(4, 2, 32, 32)).shape
    torch.Size([4, 1, 32, 32])
    """

    axes = 2
