"""A flow that the state makes itself: a network turns the state into a stream function, whose curl
carries the state, and another one diffuses it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from chonn_ops.models._forecast import in_steps
from chonn_ops.models.transport import transport
from chonn_ops.network import Circuit, Direct, Grid
from chonn_ops.nn.geometry import Distances, node_positions
from chonn_ops.nn.layers import Factory

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The source is stored divided by this gain, because it has to move further than a weight.
GAIN = 8.0
# Leak of the network of a stream function, over the square of the domain's length. It only fixes
# the mean, which has no curl; the slowest wave has an eigenvalue of 4 pi^2.
LEAK = 1e-4
# Waves of the forcing along each axis.
HARMONICS = 2


class StateFlow(nn.Module):
    """Steps of a state (B, H, W, C) in the flow of its own stream function, on a periodic grid.

    The source of the stream function is linear in the state; the network has constant conductances.
    For vorticity, the source is the state itself.

    Parameters
    ----------
    channels : int
        Channels C of the state.
    substeps : int
        Steps a frame.
    forced : bool
        Whether there is a forcing that depends on the place.
    """

    def __init__(
        self, channels: int, substeps: int, *, forced: bool, **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        self.substeps = substeps
        # At the start there is no flow, and no forcing.
        self.source_param = nn.Parameter(torch.zeros(channels, **factory))
        waves = 2 * HARMONICS + 1
        forcing = torch.zeros(channels, waves, waves, **factory)
        self.forcing_param = nn.Parameter(forcing) if forced else None

    def forcing(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The increment (H, W, C) a frame at nodes of these places (H,) and (W,), from 0 to 1."""
        order = torch.arange(1, HARMONICS + 1).to(rows)
        first, second = (
            torch.cat((torch.ones_like(a[:, :1]), torch.sin(a), torch.cos(a)), -1)
            for a in (2 * math.pi * place[:, None] * order for place in (rows, columns))
        )
        assert self.forcing_param is not None
        # Two products: the path that `einsum` chooses for three fixes the grid of an export.
        rows = torch.einsum("xi,cij->xcj", first, self.forcing_param.to(rows))
        return torch.einsum("xcj,yj->xyc", rows, second)

    def velocity(self, state: Tensor, steps: Sequence[float]) -> Tensor:
        """Displacement per frame (B, H, W, 2), in the unit of `steps`, of a state at rest.

        The state is in float32 at least.
        """
        source = torch.einsum("...c,c->...", state, GAIN * self.source_param.to(state))
        # Autocast leaves float16, in which the square of 256 nodes is infinite.
        source = source.to(state.dtype)
        source = source - source.mean((1, 2), keepdim=True)
        edges = [source.new_full((), 1 / step**2) for step in steps]
        longest = max(n * step for n, step in zip(source.shape[1:], steps, strict=True))
        stream = solve_shared(source[..., None], edges, LEAK / longest**2)[..., 0]
        along = [_slope(stream, axis + 1) / step for axis, step in enumerate(steps)]
        return torch.stack((along[1], -along[0]), -1)

    def forward(
        self,
        state: Tensor,
        before: Tensor | None,
        increment: Tensor,
        correction: Tensor | None,
        diffusivity: Tensor | None,
        steps: Sequence[float],
        nodes: Distances,
    ) -> Tensor:
        """The state a frame later.

        Parameters
        ----------
        state : Tensor, shape (B, H, W, C)
        before : Tensor, shape (B, H, W, C), optional
            The frame before, for the acceleration in the first substep.
        increment : Tensor, shape (B, H, W, C)
            What is added during the frame.
        correction : Tensor, shape (B, H, W, 2), optional
            Displacement during the frame that is added to the flow's.
        diffusivity : Tensor, shape (C,), optional
            Per frame.
        steps : sequence of float
            Spacing of the nodes.
        nodes : list of pairs
            Steps between the walls and the first and the last node of each axis.
        """
        wide = torch.promote_types(state.dtype, torch.float32)
        state, before = state.to(wide), None if before is None else before.to(wide)
        if self.forcing_param is not None:
            rows, columns = node_positions(state, nodes)
            increment = increment + self.forcing(rows[:, 0], columns[0])
        dt = 1 / self.substeps
        half = increment * (dt / 2)
        earlier, gap = (None if before is None else self.velocity(before, steps)), 1.0
        # Half a step of diffusion at both ends of the frame makes the splitting symmetric, which
        # lowers the error of a step by a factor of five.
        state = self._diffused(state, diffusivity, dt / 2, steps)
        for substep in range(self.substeps):
            now = self.velocity(state, steps)
            # Velocity at the middle of the substep and of the path that ends at a node.
            middle = now if earlier is None else now + (now - earlier) * (dt / 2 / gap)
            moved = dt * (middle - dt / 2 * _along(middle, steps))
            if correction is not None:
                moved = moved + dt * correction
            path = in_steps(moved, steps)[..., None, :]
            state = transport(state + half, path) + half
            last = substep == self.substeps - 1
            state = self._diffused(state, diffusivity, dt / 2 if last else dt, steps)
            earlier, gap = now, dt
        return state

    @staticmethod
    def _diffused(
        state: Tensor, diffusivity: Tensor | None, dt: float, steps: Sequence[float]
    ) -> Tensor:
        """One step of diffusion by the midpoint rule, which is stable for any step."""
        if diffusivity is None:
            return state
        edges = [dt / 2 * diffusivity / step**2 for step in steps]
        return 2 * solve_shared(state, edges, 1.0) - state


def solve_shared(source: Tensor, edges: Sequence[Tensor], leak: float) -> Tensor:
    """Potentials of networks with sources (B, H, W, C), periodic, the same for the whole batch and
    at all nodes: edges along each axis, which expand to (C,), and a leak."""
    wide = source.to(torch.promote_types(source.dtype, torch.float32))
    shape = (1, *source.shape[1:])
    conductance = [edge.to(wide).expand(shape) for edge in edges]
    ground = wide.new_full((), leak).expand(shape)
    # The batch shares one network, so one factorisation serves all.
    torus = Grid(shape[1:-1], periodic=True)
    return Circuit(conductance, ground, torus).solve(wide[None], Direct())[0]


def _slope(field: Tensor, dim: int) -> Tensor:
    """First derivative per node on a ring, of fourth order."""
    near = field.roll(-1, dim) - field.roll(1, dim)
    return (8 * near - (field.roll(-2, dim) - field.roll(2, dim))) / 12


def _along(velocity: Tensor, steps: Sequence[float]) -> Tensor:
    """Derivative of the velocity along itself."""
    slopes = [_slope(velocity, axis + 1) / step for axis, step in enumerate(steps)]
    return velocity[..., :1] * slopes[0] + velocity[..., 1:] * slopes[1]
