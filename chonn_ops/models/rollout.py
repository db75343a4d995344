"""Rollout models: networks, transport along their potentials, and diffusion of the state."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.checks import check_bool, check_choice, check_integer
from chonn_ops.models._forecast import RATE_GAIN, UNIT, Carrier, Displacement, Forecast
from chonn_ops.models._state_flow import StateFlow
from chonn_ops.models.transport import ORDERS
from chonn_ops.network import Circuit, rc_step

DAMPINGS = ("state", "increment", "none")
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
        nodes: str = "centres",
        lengths: float | Sequence[float] = 1.0,
        coordinates: bool = False,
        reach: float = 0.125,
        order: int = 3,
        conservative: bool = False,
        carried: bool = True,
        damping: str = "state",
        substeps: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("order", order, ORDERS)
        check_choice("damping", damping, DAMPINGS)
        check_bool(carried=carried)
        super().__init__(
            channels,
            channels=channels,
            history=history,
            width=width,
            depth=depth,
            num_networks=num_networks,
            heads=heads,
            mlp_ratio=mlp_ratio,
            boundary=boundary,
            nodes=nodes,
            lengths=lengths,
            coordinates=coordinates,
            reach=reach,
            conservative=conservative,
            device=device,
            dtype=dtype,
        )
        self.carried, self.damping = carried, damping
        self.flow = self._flow(substeps, order, {"device": device, "dtype": dtype})
        factory = {"device": device, "dtype": dtype}
        self.carrier = None
        if carried:
            moved = {"boundary": self.boundary, "reach": reach, **factory}
            if self.flow is None:
                moved |= {"order": order, "conservative": conservative}
                self.carrier = Carrier(num_networks, channels, self.axes, **moved)
            else:
                self.carrier = Displacement(num_networks, 1, self.axes, **moved)
        # The diffusivity is softplus(RATE_GAIN * parameter).
        self.diffusivity_param = None
        if damping != "none":
            start = math.log(math.expm1(DIFFUSIVITY)) / RATE_GAIN
            self.diffusivity_param = nn.Parameter(torch.full((channels,), start, **factory))

    def _flow(self, substeps: int | None, order: int, factory: dict) -> StateFlow | None:
        if substeps is None:
            return None
        check_integer(1, substeps=substeps)
        if self.axes != 2 or set(self.boundary) != {"periodic"}:
            raise ValueError(
                "substeps: expected 2 axes, both periodic, "
                f"got {self.axes} with boundary={self.boundary}"
            )
        if self.conservative or self.damping == "increment":
            raise ValueError(
                "substeps: expected conservative=False and damping='state' or 'none', "
                f"got conservative={self.conservative}, damping={self.damping!r}"
            )
        return StateFlow(self.channels, substeps, order, forced=self.coordinates, **factory)

    def diffusivity(self) -> Tensor:
        """Diffusivity of the state per step, (channels,), in the unit of the domain."""
        if self.diffusivity_param is None:
            return torch.zeros(self.channels)
        return F.softplus(RATE_GAIN * self.effective("diffusivity_param")) / UNIT**2

    def advance(
        self,
        frames: Tensor,
        media: Tensor,  # noqa: ARG002
        readout: Tensor,
        potentials: Tensor,
        steps: list[float],
        nodes: str,
    ) -> Tensor:
        """Transport the last frame, add the readout, and diffuse the sum or the readout."""
        state = frames[..., -self.channels :]
        increment = self._without_mean(readout)
        if self.flow is not None:
            return self._flowing(frames, increment, potentials, steps, nodes)
        if self.carrier is not None:
            state = self.carrier(state, potentials, steps)
        if self.damping == "increment":
            return state + self._damped(increment, steps)
        state = state + increment
        return self._damped(state, steps) if self.damping == "state" else state

    def _flowing(
        self,
        frames: Tensor,
        increment: Tensor,
        potentials: Tensor,
        steps: list[float],
        nodes: str,
    ) -> Tensor:
        """The next frame by substeps in the flow of the state."""
        assert self.flow is not None
        state = frames[..., -self.channels :]
        before = frames[..., -2 * self.channels : -self.channels] if self.history > 1 else None
        correction = None
        if self.carrier is not None:
            correction = self.carrier(potentials, steps)[..., 0, :]
        diffusivity = None if self.diffusivity_param is None else self.diffusivity()
        return self.flow(state, before, increment, correction, diffusivity, steps, nodes)

    def _damped(self, field: Tensor, steps: list[float]) -> Tensor:
        """One implicit step of diffusion, solved as an RC network."""
        wide = field.to(torch.promote_types(field.dtype, torch.float32))
        diffusivity = self.diffusivity().to(wide)
        edges = [(diffusivity / step**2).expand_as(wide) for step in steps]
        periodic = [end == "periodic" for end in self.boundary]
        circuit = Circuit(edges, torch.zeros_like(wide), periodic=periodic)
        return rc_step(wide, circuit, 1.0, 1.0, tol=1e-4)


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
    the readout; an implicit step of diffusion then acts on the sum (`damping`). In a rollout,
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
    nodes : {"centres", "left", "corners"}
        Where the nodes lie, see `Network`.
    lengths : float or sequence of float, one an axis
        Size of the domain, which sets the default spacing of a grid; the unit box by default.
    coordinates : bool
        Whether the coordinates are additional inputs: sine and cosine of the angle along periodic
        axes. Without them the model is equivariant to shifts along periodic axes.
    reach : float
        Upper bound of a displacement, in the unit of `lengths`.
    order : {1, 3}
        Order of the interpolation of the last frame, see `chonn_ops.models.transport.transport`.
        Features, of which there are many more, are interpolated linearly.
    conservative : bool
        Whether the sum of a frame over the nodes is conserved: transport is in conservative form,
        and the mean of the readout is removed.
    carried : bool
        Whether the last frame is transported before the readout is added (ablation).
    damping : {"state", "increment", "none"}
        Where diffusion acts: on the sum, on the readout alone, or nowhere (ablation).
    substeps : int, optional
        Steps a frame in the flow that the state itself makes, for vorticity and the like. In each,
        one network with constant conductances and a source linear in the state gives a stream
        function, whose curl carries the state; the readout is added, and another network diffuses
        the state by the midpoint rule. The displacement of `carried` is a correction, and `reach`
        bounds it alone. The flow uses the last two frames, and it is zero before training. All
        axes must be periodic, `conservative` False and `damping` "state" or "none". Default: no
        such flow, and one step a frame.

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
