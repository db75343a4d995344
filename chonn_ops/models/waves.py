"""Models of waves in time: coils on the edges of a grid, capacitors at its nodes, and transport."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.models._forecast import RATE_GAIN, UNIT, Forecast
from chonn_ops.network import kirchhoff_network
from chonn_ops.network._conductance import edges
from chonn_ops.network._edges import drops, outflow

# How far a wave gets in a step before training, in the domain's unit.
TRAVEL = 1 / 128
# Logit of what a current keeps over a step.
KEPT = 4.0
# What a change from frame to frame is over the frames, and a source to begin with over a change.
CHANGE, SOURCE = 1 / 8, 1 / 12


class _CHONNWaves(Forecast):
    """The model in any number of dimensions; see `CHONNWaves2d`."""

    def __init__(
        self,
        channels: int = 1,
        history: int = 2,
        width: int = 24,
        depth: int = 2,
        *,
        networks: int = 4,
        heads: int = 2,
        mlp_ratio: int = 2,
        ends: str | Sequence[str] = "wall",
        nodes: str = "centres",
        lengths: float | Sequence[float] = 1.0,
        coordinates: bool = False,
        reach: float = 0.125,
        conservative: bool = True,
        implicit: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if history < 2:
            raise ValueError(f"history: expected at least 2, a frame and its change, got {history}")
        super().__init__(
            2 * channels,
            channels=channels,
            history=history,
            width=width,
            depth=depth,
            networks=networks,
            heads=heads,
            mlp_ratio=mlp_ratio,
            ends=ends,
            nodes=nodes,
            lengths=lengths,
            coordinates=coordinates,
            reach=reach,
            conservative=conservative,
            device=device,
            dtype=dtype,
        )
        start = {"kept": KEPT, "conductivity": math.log(math.expm1((TRAVEL * UNIT) ** 2))}
        self.rates = nn.ParameterDict(
            {
                name: torch.full((channels,), value / RATE_GAIN, device=device, dtype=dtype)
                for name, value in start.items()
            }
        )
        self.implicit = implicit

    def features(self, frames: Tensor) -> Tensor:
        """The last frame, and what changed from each of the earlier ones to the next."""
        changes = frames[..., self.channels :] - frames[..., : -self.channels]
        return torch.cat((frames[..., -self.channels :], changes / CHANGE), -1)

    def conductivity(self, readout: Tensor) -> Tensor:
        """Squared distance of a wave's step, in the unit of the networks, (B, \\*grid, C)."""
        return F.softplus(self._rate("conductivity", readout)) * torch.exp(readout)

    def _rate(self, name: str, like: Tensor) -> Tensor:
        return RATE_GAIN * self.rates[name].to(like)

    def advance(
        self,
        frames: Tensor,
        readout: Tensor,
        potentials: Tensor,  # noqa: ARG002
        steps: list[float],
    ) -> Tensor:
        """A step of the LC network, with what is read out as its source."""
        wide = torch.promote_types(frames.dtype, torch.float32)
        raw, source = readout.to(wide).split(self.channels, -1)
        *_, before, now = frames.to(wide).split(self.channels, -1)
        units = [UNIT * step for step in steps]
        words = ["ring" if end == "ring" else "open" for end in self.ends]
        conductances = edges(self.conductivity(raw), units, [word == "ring" for word in words])
        per_node = [edge / math.prod(units) for edge in conductances]
        push = CHANGE * SOURCE * self._without_mean(source)
        for axis, (edge, word) in enumerate(zip(per_node, words, strict=True)):
            used = edge if word == "ring" else edge.narrow(axis + 1, 0, edge.shape[axis + 1] - 1)
            push = push - outflow(used * drops(now, axis, word), axis, word)
        if self.implicit:
            quarter = [edge / 4 for edge in per_node]
            push = kirchhoff_network(push, quarter, torch.ones_like(push), ends=words, tol=1e-4)
        kept = torch.sigmoid(self._rate("kept", now))
        return (now + kept * (now - before) + push).to(frames.dtype)


class CHONNWaves1d(_CHONNWaves):
    """`CHONNWaves2d` for fields (B, C, N)."""

    axes = 1


class CHONNWaves2d(_CHONNWaves):
    r"""Predict the next frame of a wave: an LC network whose coils follow the features.

    Two frames, v before and v now, are the voltages and the currents of a network with a capacitor
    at every node and a coil on every edge. The next frame is its next step::

        d' = a d - L v + s,    v' = v + d',    d = v - v_before

    (leapfrog), where L v is the current out of each node by Kirchhoff's current law with the
    conductances g of :math:`k > 0` as in `edge_conductance`, a < 1 what the coils' resistance
    leaves, and k and s are read from features: those of `CHONNRollout2d`, networks and what is
    moved along their potentials. In the continuum
    :math:`\ddot v + r \dot v = \nabla\cdot(k \nabla v) + s`; shallow water of depth v over a flat
    bed has k = g v, and in s the divergence of its momentum's flow.

    With `implicit` it is the midpoint rule, that of `chonn_ops.lc_step`::

        (1 + L / 4) (d' - a d) = s - L v

    at the cost of one more solve: stable for any step while the coils do not change, where
    leapfrog wants waves to pass less than a node or so.

    Not in the CHONN paper, whose circuits are lines.

    Parameters
    ----------
    channels : int
        Of a frame.
    history : int
        Frames given, at least 2; the last two are the state, all are seen by the features.
    width, depth, networks, heads, mlp_ratio, ends, nodes, lengths, coordinates, reach
        As in `CHONNRollout2d`. At "wall" no current leaves: waves are reflected.
    conservative : bool
        Whether the sum of a frame over the nodes changes as it did before: s has no mean.
    implicit : bool
        Whether steps are those of the midpoint rule.

    Raises
    ------
    ValueError
        As `CHONNRollout2d`; for a history below 2.

    Examples
    --------
    >>> model = CHONNWaves2d(1, history=2)
    >>> model(torch.randn(4, 2, 32, 32)).shape
    torch.Size([4, 1, 32, 32])
    """

    axes = 2
