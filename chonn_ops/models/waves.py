"""Models of waves in time: coils on the edges of a grid, capacitors at its nodes, and transport."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.models._carrier import UNIT
from chonn_ops.models._forecast import RATE_GAIN, Forecast
from chonn_ops.network import kirchhoff_network
from chonn_ops.network._conductance import edges
from chonn_ops.network.in_time.coils import as_network, drops, outflow

# How far a wave gets in a step before training, in the domain's unit.
TRAVEL = 1 / 128
# Logit of what a current keeps over a step; softplus of the other is the part of a step that is
# implicit.
KEPT, IMPLICIT = 4.0, -1.0
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
            channels * history,
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
        # One number for the whole field: its shift travels further than a weight's, see `Forecast`.
        start = {"kept": KEPT, "conductivity": math.log(math.expm1((TRAVEL * UNIT) ** 2))}
        if implicit:
            start["implicit"] = IMPLICIT
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
        """Of the coils over a step, squared speed of the waves in the unit of the networks."""
        shift = RATE_GAIN * self.rates["conductivity"]
        # From a small start a softplus is an exponential: its rate would be that of what it is.
        return F.softplus(shift) * torch.exp(readout)

    def advance(
        self, frames: Tensor, readout: Tensor, potentials: Tensor, steps: list[float]
    ) -> Tensor:
        """A step of the LC network, with what is read out as its source."""
        wide = torch.promote_types(frames.dtype, torch.float32)
        raw, source = readout.to(wide).split(self.channels, -1)
        now, before = (
            frames[..., -end:][..., : self.channels].to(wide)
            for end in (self.channels, 2 * self.channels)
        )
        units = [UNIT * step for step in steps]
        volume = math.prod(units)
        ring = [end == "ring" for end in self.ends]
        coils = [edge / volume for edge in edges(self.conductivity(raw), units, ring)]
        change = torch.sigmoid(RATE_GAIN * self.rates["kept"].to(wide)) * (now - before)
        change = change + CHANGE * SOURCE * self._without_mean(source)
        for axis, edge in enumerate(coils):
            word = "ring" if ring[axis] else "open"
            used = edge if ring[axis] else edge.narrow(axis + 1, 0, edge.shape[axis + 1] - 1)
            change = change - outflow(used * drops(now, axis, word), axis, word)
        if self.implicit:
            part = F.softplus(RATE_GAIN * self.rates["implicit"].to(wide))
            words = ["ring" if closed else "open" for closed in ring]
            beside = [part * edge for edge in coils]
            change = kirchhoff_network(
                change, beside, torch.ones_like(change), ends=words, tol=1e-4
            )
        return (now + change).to(frames.dtype)


class CHONNWaves1d(_CHONNWaves):
    """`CHONNWaves2d` for fields (B, C, N)."""

    axes = 1


class CHONNWaves2d(_CHONNWaves):
    axes = 2
