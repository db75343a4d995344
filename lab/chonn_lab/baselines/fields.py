"""Fields (B, C, \\*grid) of the baselines: checks, coordinates, layers by number of axes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.checks import GRID_AXES

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
CONV_TRANSPOSE = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}


def check_axes(axes: int) -> None:
    """ValueError unless there are 1 to 3 axes."""
    if axes not in CONV:
        raise ValueError(f"axes: expected 1, 2 or 3, got {axes!r}")


def check_field(x: Tensor, in_channels: int, axes: int, multiple: int = 1) -> None:
    """ValueError unless x is (B, in_channels, \\*grid), every size of the grid a multiple."""
    sizes = tuple(x.shape)
    fits = len(sizes) == axes + 2 and sizes[1] == in_channels
    if not fits or any(n % multiple for n in sizes[2:]):
        names = ", ".join(GRID_AXES[:axes])
        multiples = "" if multiple == 1 else f", sizes multiples of {multiple}"
        raise ValueError(f"x: expected shape (B, {in_channels}, {names}){multiples}, got {sizes}")


def coordinates(x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Coordinates from `low` to `high` of the points of a field, (B, axes, \\*grid)."""
    lines = [torch.linspace(low, high, n, dtype=x.dtype, device=x.device) for n in x.shape[2:]]
    return torch.stack(torch.meshgrid(*lines, indexing="ij")).expand(len(x), *[-1] * (x.ndim - 1))


def with_coordinates(x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """A field with its `coordinates` as channels behind its own."""
    return torch.cat((x, coordinates(x, low, high)), dim=1)


def count_parameters(module: nn.Module) -> int:
    """Number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())
