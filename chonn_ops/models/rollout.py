"""Rollout models: networks, transport along their potentials, and diffusion of the state."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.checks import check_bool, check_integer, error
from chonn_ops.models._forecast import RATE_GAIN, Displacement, Forecast, in_steps
from chonn_ops.models._state_flow import StateFlow
from chonn_ops.models.transport import transport
from chonn_ops.network import Auto, Circuit, Grid, rc_step
from chonn_ops.nn.geometry import Distances, Nodes
from chonn_ops.nn.layers import Factory
from chonn_ops.nn.network_cell import UNIT

# Initial diffusivity per step in the networks' unit of length: 5e-4 on the unit box.
DIFFUSIVITY = 0.125


class _CHONNRollout(Forecast):
    """The model in any number of dimensions; see `CHONNRollout2d`."""

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
        boundary: str | Sequence[str] = "periodic",
        nodes: Nodes = "centres",
        lengths: float | Sequence[float] = 1.0,
        coordinates: bool = False,
        reach: float = 0.125,
        conservative: bool = False,
        carried: bool = True,
        damped: bool = True,
        substeps: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_bool(carried=carried, damped=damped)
        factory: Factory = {"device": device, "dtype": dtype}
        super().__init__(
            *(channels, 0, channels, history, width, depth, num_networks, heads, mlp_ratio),
            *(boundary, nodes, lengths, coordinates, reach, conservative, factory),
        )
        self.damped = damped
        self.substeps, self.flow = substeps, self._flow(substeps, factory)
        self.carrier = None
        if carried:
            moves = channels if self.flow is None else 1
            self.carrier = Displacement(num_networks, moves, self.boundary, reach, factory)
        # The diffusivity is softplus(RATE_GAIN * parameter).
        self.diffusivity_param = None
        if damped:
            start = math.log(math.expm1(DIFFUSIVITY)) / RATE_GAIN
            self.diffusivity_param = nn.Parameter(torch.full((channels,), start, **factory))

    def _flow(self, substeps: int | None, factory: Factory) -> StateFlow | None:
        if substeps is None:
            return None
        check_integer(1, substeps=substeps)
        if self.axes != 2 or set(self.boundary) != {"periodic"}:
            found = f"{self.axes} with boundary={self.boundary}"
            raise error("substeps", "2 axes, both periodic", found)
        if self.conservative:
            raise error("substeps", "conservative=False", "conservative=True")
        return StateFlow(self.channels, substeps, forced=self.coordinates, **factory)

    def diffusivity(self) -> Tensor:
        """Diffusivity of the state per step, (channels,), in the unit of the domain."""
        if self.diffusivity_param is None:
            return torch.zeros(self.channels)
        stored = self.diffusivity_param
        wide = stored.to(torch.promote_types(stored.dtype, torch.float32))
        return F.softplus(RATE_GAIN * wide) / UNIT**2

    def advance(
        self,
        frames: Tensor,
        media: Tensor,  # noqa: ARG002
        readout: Tensor,
        potentials: Tensor,
        steps: list[float],
        nodes: Distances,
    ) -> Tensor:
        """Transport the last frame, add the readout, and diffuse the sum."""
        state = frames[..., -self.channels :]
        increment = self._without_mean(readout)
        path = None if self.carrier is None else self.carrier(potentials, steps)
        if self.flow is not None:
            earlier = frames[..., -2 * self.channels : -self.channels]
            before = earlier if self.history > 1 else None
            correction = None if path is None else path[..., 0, :]
            diffusivity = self.diffusivity() if self.damped else None
            return self.flow(state, before, increment, correction, diffusivity, steps, nodes)
        if path is not None:
            way = {"boundary": self.boundary, "conservative": self.conservative}
            state = transport(state, in_steps(path, steps), **way)
        state = state + increment
        return self._damped_step(state, steps) if self.damped else state

    def _damped_step(self, field: Tensor, steps: list[float]) -> Tensor:
        """One implicit step of diffusion, solved as an RC network."""
        wide = field.to(torch.promote_types(field.dtype, torch.float32))
        diffusivity = self.diffusivity().to(wide)
        edges = [(diffusivity / step**2).expand_as(wide) for step in steps]
        periodic = [end == "periodic" for end in self.boundary]
        circuit = Circuit(edges, torch.zeros_like(wide), Grid(wide.shape[1:-1], periodic))
        return rc_step(wide, circuit, 1.0, 1.0, solver=Auto(1e-4))


class CHONNRollout1d(_CHONNRollout):
    """`CHONNRollout2d` for fields (B, C, N)."""

    axes = 1


class CHONNRollout2d(_CHONNRollout):
    """Predict the next frame of a flow with networks, transport and diffusion.

    A pointwise embedding of the last frames is followed by `depth` layers and a pointwise readout.
    Each layer solves networks, gates their potentials, computes displacements from the potentials
    and transports features along them; a pointwise network follows. What either adds to a feature
    is at most 4, so a rollout stays finite while weights are not yet right. The next frame is the
    last frame, transported along displacements computed from the last potentials (`carried`), plus
    the readout; an implicit step of diffusion then acts on the sum (`damped`). In a rollout,
    errors at the scale of the grid are therefore transported and decay, while a model that only
    adds increments keeps them.

    In two dimensions a displacement is the curl of a stream function plus a general vector field.

    The model is not in the CHONN paper, whose circuits are lines.

    Parameters
    ----------
    channels : int
        Channels of a frame.
    history : int
        Number of input frames.
    width : int
        Hidden channels.
    depth : int
        Layers.
    num_networks : int
        Networks of each layer.
    heads : int
        Displacements of each layer; one displacement moves ``width / heads`` channels.
    mlp_ratio : int
        Hidden channels of the pointwise networks over `width`.
    boundary : {"periodic", "robin"} or a sequence of them, one an axis
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
        Whether the sum of a frame over the nodes is conserved: transport is in conservative form,
        and the mean of the readout is removed.
    carried : bool
        Whether the last frame is transported before the readout is added (ablation).
    damped : bool
        Whether diffusion acts on the sum (ablation).
    substeps : int, optional
        Steps a frame in the flow that the state itself makes, for vorticity and the like. In each,
        one network with constant conductances and a source linear in the state gives a stream
        function, whose curl carries the state; the readout is added, and another network diffuses
        the state by the midpoint rule. The displacement of `carried` is a correction, and `reach`
        bounds it alone. The flow uses the last two frames, and it is zero before training. All
        axes must be periodic, and `conservative` False. Default: no such flow, and one step a
        frame.

    Raises
    ------
    ValueError
        For sizes below 1, heads that do not divide the width, an unknown word, or `substeps` with
        options that it does not have.

    Examples
    --------
    >>> model = CHONNRollout2d(1, history=10)
    >>> model(torch.randn(4, 10, 32, 32)).shape
    torch.Size([4, 1, 32, 32])
    """

    axes = 2
