"""What network cells with a state have in common: capacitors, and how sequences are rolled out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar, cast

import torch
from torch import Tensor, nn

from chonn_ops.nn.network_cell import NetworkCell

if TYPE_CHECKING:
    from typing_extensions import Unpack


State = TypeVar("State")


class CellOptions(TypedDict, total=False):
    """Keywords that a cell hands on to `NetworkCell`, whose defaults they have."""

    ends: str | tuple[str, ...]
    nodes: str
    selective: bool
    tol: float
    device: torch.device | str | None
    dtype: torch.dtype | None


class NetworkInTime(NetworkCell, Generic[State]):
    """A network cell with a capacitor at every node; one that derives from it has `_step`."""

    def __init__(
        self, dim: int, networks: int = 8, spatial_dims: int = 2, **options: Unpack[CellOptions]
    ) -> None:
        super().__init__(dim, networks, spatial_dims, **options)
        # log of the capacities: at 0 a step of 1 spreads over sqrt(k) sixteenths of the domain.
        self.capacitance_param = nn.Parameter(torch.zeros_like(self.coefficient_bias)[::2].clone())

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw fresh initial parameters."""
        super().reset_parameters()
        if hasattr(self, "capacitance_param"):  # not yet in the constructor of NetworkCell
            nn.init.zeros_(self.capacitance_param)

    @property
    def capacitance(self) -> Tensor:
        """Capacity of a unit volume, (m,), > 0, in float32 at least."""
        wide = torch.promote_types(self.capacitance_param.dtype, torch.float32)
        return torch.exp(self.capacitance_param.to(wide))

    def forward(
        self,
        u: Tensor,
        spacing: list[float] | None = None,
        mask: Tensor | None = None,
        state: State | None = None,
        dt: float = 1.0,
    ) -> Tensor:
        """Roll a sequence of channels-last fields out.

        Parameters
        ----------
        u : Tensor, shape (B, T, \\*grid, D)
        spacing, mask
            As in `NetworkCell`.
        state : optional
            State before the first step; rest if absent.
        dt : float
            Length of each step > 0.

        Returns
        -------
        Tensor, shape (B, T, \\*grid, m)
            Potentials after each step, in float32 at least: what `step` gives, step by step.

        Raises
        ------
        ValueError
            If a shape, the spacing, the mask or dt does not fit.
        """
        return self.advance(u, state, dt=dt, spacing=spacing, mask=mask)[0]

    def advance(
        self,
        u: Tensor,
        state: State | None = None,
        *,
        dt: float = 1.0,
        spacing: list[float] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """`forward` of a part of a sequence, from the state that the part before it left.

        Returns
        -------
        v : Tensor, shape (B, T, \\*grid, m)
        state
            After the last step.
        """
        axes = self.spatial_dims
        if u.dim() != axes + 3 or u.shape[-1] != self.dim or not u.shape[1]:
            grid = ", ".join(("H", "W", "D")[:axes])
            raise ValueError(
                f"u: expected shape (B, T >= 1, {grid}, {self.dim}), got {tuple(u.shape)}"
            )
        found = []
        for now in u.unbind(1):
            v, state = self.step(now, state, dt=dt, spacing=spacing, mask=mask)
            found.append(v)
        return torch.stack(found, 1), cast("State", state)

    def step(
        self,
        u: Tensor,
        state: State | None = None,
        *,
        dt: float = 1.0,
        spacing: list[float] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """One step, for streaming.

        Parameters
        ----------
        u : Tensor, shape (B, \\*grid, D)
        state : optional
            Before the step; rest if absent.
        dt : float
            Length of the step > 0.
        spacing, mask
            As in `NetworkCell`.

        Returns
        -------
        v : Tensor, shape (B, \\*grid, m)
            Potentials after the step, in float32 at least.
        state
            After the step.

        Raises
        ------
        ValueError
            If a shape, the spacing, the mask or dt does not fit.
        """
        self._check(u, spacing, mask)
        return self._step(u, state, dt, self._steps(u, spacing), mask)

    def _step(
        self, u: Tensor, state: State | None, dt: float, steps: list[float], mask: Tensor | None
    ) -> tuple[Tensor, State]:
        """`step` of checked fields, with the distance of the nodes in the unit of the networks."""
        raise NotImplementedError


def check_state(name: str, state: Tensor, like: Tensor) -> None:
    """A part of a cell's state of the shape of another tensor."""
    if state.shape != like.shape:
        raise ValueError(f"{name}: expected shape {tuple(like.shape)}, got {tuple(state.shape)}")
