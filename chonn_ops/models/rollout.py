"""Models that step in time: networks, transport along their potentials, and a damped state."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.models._forecast import RATE_GAIN, UNIT, Carrier, Forecast
from chonn_ops.models.transport import ORDERS
from chonn_ops.network import kirchhoff_network
from chonn_ops.nn._checks import check_choice

DAMPINGS = ("state", "increment", "none")
# Diffusivity over a step in these units; 5e-4 of the unit box.
DIFFUSIVITY = 0.125


class _CHONNRollout(Forecast):
    """The model in any number of dimensions; see `CHONNRollout2d`."""

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
        check_choice("order", order, ORDERS)
        check_choice("damping", damping, DAMPINGS)
        super().__init__(
            channels,
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
        self.carried, self.damping = carried, damping
        factory = {"device": device, "dtype": dtype}
        self.carrier = None
        if carried:
            moved = {"ends": self.ends, "reach": reach, "order": order}
            moved["conservative"] = conservative
            self.carrier = Carrier(networks, channels, self.axes, **moved, **factory)
        # softplus of it, over the gain.
        self.diffusivity_param = None
        if damping != "none":
            start = math.log(math.expm1(DIFFUSIVITY)) / RATE_GAIN
            self.diffusivity_param = nn.Parameter(torch.full((channels,), start, **factory))

    def diffusivity(self) -> Tensor:
        """Of the last networks over a step, (channels,), the domain's unit of length being 1."""
        if self.diffusivity_param is None:
            return torch.zeros(self.channels)
        return F.softplus(RATE_GAIN * self.diffusivity_param) / UNIT**2

    def advance(
        self, frames: Tensor, readout: Tensor, potentials: Tensor, steps: list[float]
    ) -> Tensor:
        """The last frame, moved; what is read out, added; the sum, or that alone, damped."""
        state = frames[..., -self.channels :]
        increment = self._without_mean(readout)
        if self.carrier is not None:
            state = self.carrier(state, potentials, steps)
        if self.damping == "increment":
            return state + self._damped(increment, steps)
        state = state + increment
        return self._damped(state, steps) if self.damping == "state" else state

    def _damped(self, field: Tensor, steps: list[float]) -> Tensor:
        """An implicit step of diffusion: networks with a capacitor at every node."""
        wide = field.to(torch.promote_types(field.dtype, torch.float32))
        diffusivity = self.diffusivity().to(wide)
        edges = [(diffusivity / step**2).expand_as(wide) for step in steps]
        words = ["ring" if end == "ring" else "open" for end in self.ends]
        return kirchhoff_network(wide, edges, torch.ones_like(wide), ends=words, tol=1e-4)


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
