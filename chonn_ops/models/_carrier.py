"""What carries features and states in models of rollouts: displacements read off potentials."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.models.transport import transport
from chonn_ops.nn import NetworkCell
from chonn_ops.nn._linear import PositionLinear

# Units of length of the networks in the domain's unit, as in `NetworkCell`.
UNIT = 16.0


class Carrier(nn.Module):
    """Fields moved along displacements that are read off potentials.

    Parameters
    ----------
    networks : int
        Potentials m.
    heads : int
        Displacements; a field's channels are shared out among them.
    axes : {1, 2}
    ends, order, conservative
        See `chonn_ops.models.transport.transport`.
    reach : float
        What a displacement stays below.
    """

    def __init__(
        self,
        networks: int,
        heads: int,
        axes: int,
        *,
        ends: Sequence[str],
        reach: float,
        order: int = 1,
        conservative: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.axes, self.reach = heads, axes, reach
        self.ends, self.order, self.conservative = tuple(ends), order, conservative
        # Displacements themselves, and in two dimensions stream functions.
        self.maps = nn.Linear(
            networks, heads * (axes + (axes == 2)), bias=False, device=device, dtype=dtype
        )
        with torch.no_grad():
            self.maps.weight.mul_(0.1)
            if axes == 2:
                nn.init.normal_(self.maps.weight[2 * heads :], std=0.3 * networks**-0.5)

    def displacement(self, potentials: Tensor, spacing: Sequence[float]) -> Tensor:
        """(B, \\*grid, heads, axes) from potentials (B, \\*grid, m), in the unit of `spacing`."""
        maps = self.maps(potentials)
        direct = maps[..., : self.axes * self.heads].unflatten(-1, (self.heads, self.axes))
        shift = direct / UNIT
        if self.axes == 2:
            stream = maps[..., 2 * self.heads :]
            along = [
                _derivative(stream, axis, step, end == "ring")
                for axis, (step, end) in enumerate(zip(spacing, self.ends, strict=True))
            ]
            shift = shift + torch.stack((along[1], -along[0]), -1) / UNIT**2
        return self.reach * torch.tanh(shift / self.reach)

    def forward(self, field: Tensor, potentials: Tensor, spacing: Sequence[float]) -> Tensor:
        """The field (B, \\*grid, C) moved; `spacing` is that of the nodes."""
        steps = torch.tensor(spacing, dtype=potentials.dtype, device=potentials.device)
        displacement = self.displacement(potentials, spacing) / steps
        return transport(
            field,
            displacement,
            ends=self.ends,
            order=self.order,
            conservative=self.conservative,
        )


class CarrierLayer(nn.Module):
    """What a layer adds: networks made of the features, gated, and features that they move."""

    def __init__(
        self,
        width: int,
        networks: int,
        heads: int,
        axes: int,
        nodes: str,
        moved: dict,
        factory: dict,
    ) -> None:
        super().__init__()
        self.split = [width, networks, width]
        self.in_proj = PositionLinear(width, 2 * width + networks, bias=False, **factory)
        # There is no norm: signals keep their size.
        nn.init.normal_(self.in_proj.weight, std=width**-0.5)
        self.cell = NetworkCell(width, networks, axes, ends=moved["ends"], nodes=nodes, **factory)
        self.carrier = Carrier(networks, heads, axes, **moved, **factory)
        self.out_proj = PositionLinear(networks + width, width, **factory)

    def forward(self, h: Tensor, spacing: list[float]) -> tuple[Tensor, Tensor]:
        u, gate, value = self.in_proj(h).split(self.split, dim=-1)
        potentials = self.cell(u, spacing).to(h.dtype)
        moved = self.carrier(value, potentials, spacing) - value
        gated = potentials * F.silu(gate.contiguous())
        return self.out_proj(torch.cat((gated, moved), -1)), potentials


def _derivative(field: Tensor, axis: int, step: float, ring: bool) -> Tensor:
    """Central differences along a grid axis of (B, \\*grid, C); one-sided at walls."""
    dim = axis + 1
    if ring or field.shape[dim] == 1:
        return (field.roll(-1, dim) - field.roll(1, dim)) / (2 * step)
    return torch.gradient(field, spacing=step, dim=dim)[0]
