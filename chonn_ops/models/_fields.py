"""What operator networks of plain fields (B, C, \\*grid) share: shapes and coordinates."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
CONV_TRANSPOSE = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def check_axes(axes: int) -> None:
    """ValueError unless 1 to 3."""
    if axes not in CONV:
        raise ValueError(f"axes: expected 1, 2 or 3, got {axes!r}")


def check_field(x: Tensor, in_channels: int, axes: int) -> None:
    """ValueError unless (B, in_channels, \\*grid) with so many axes."""
    if x.ndim != axes + 2 or x.shape[1] != in_channels:
        names = ", ".join(("H", "W", "T")[:axes])
        raise ValueError(f"x: expected shape (B, {in_channels}, {names}), got {tuple(x.shape)}")


def coordinates(x: Tensor) -> Tensor:
    """Coordinates 0 to 1 of the points of a field (B, C, \\*grid), as (B, axes, \\*grid)."""
    lines = [torch.linspace(0, 1, n, dtype=x.dtype, device=x.device) for n in x.shape[2:]]
    return torch.stack(torch.meshgrid(*lines, indexing="ij")).expand(len(x), *[-1] * (x.ndim - 1))


def with_coordinates(x: Tensor) -> Tensor:
    """A field (B, C, \\*grid) with its `coordinates` as channels behind its own."""
    return torch.cat((x, coordinates(x)), dim=1)
