"""What backbones are made of: CKBs by their options, pointwise networks, and what fields (B, C,
\\*grid) tell: shapes, coordinates and spacings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.nn import CKB, CKBOptions
from chonn_ops.nn._checks import GRID
from chonn_ops.nn._geometry import NODES, steps_between_walls
from chonn_ops.nn._layers import CONV
from chonn_ops.nn._linear import PositionLinear, position_linear
from chonn_ops.nn._recompute import recomputed

AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}
CONV_TRANSPOSE = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def build_ckb(
    dim: int,
    spatial_dims: int,
    options: CKBOptions,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> CKB:
    """CKB for channels-first fields (B, dim, \\*grid)."""
    return CKB(dim, spatial_dims, **dataclasses.asdict(options), device=device, dtype=dtype)


class Pointwise(nn.Module):
    """What a two-layer network adds at every point. Without a norm: one over the field hides its
    amplitude, in which a linear problem is linear."""

    def __init__(self, width: int, hidden: int, factory: dict[str, Any]) -> None:
        super().__init__()
        self.expand = PositionLinear(width, hidden, **factory)
        self.contract = PositionLinear(hidden, width, **factory)

    def forward(self, field: Tensor) -> Tensor:
        weights = (self.expand.weight, self.expand.bias, self.contract.weight, self.contract.bias)
        return recomputed(_pointwise, field, *weights)


def _pointwise(field: Tensor, inner: Tensor, b: Tensor, outer: Tensor, c: Tensor) -> Tensor:
    return position_linear(F.silu(position_linear(field, inner, b)), outer, c)


class DownsampledCKB(nn.Module):
    """A CKB whose evolution runs on a coarser grid; the residual path keeps full resolution.

    ``Y = X + up(CKB(pool(X)) - pool(X))`` with average pooling and linear interpolation: the
    paper's "downsampling factor" in its shallow-water branch, the filters being our choice.

    Parameters
    ----------
    ckb : CKB
        Block for channels-first fields.
    factor : int
        Coarsening of every axis.
    """

    def __init__(self, ckb: nn.Module, factor: int) -> None:
        super().__init__()
        self.ckb, self.factor = ckb, factor

    def forward(self, x: Tensor, spacing: Sequence[float] | None = None) -> Tensor:
        dims = x.ndim - 2
        coarse = AVG_POOL[dims](x, self.factor, ceil_mode=True)
        if spacing is None:
            evolved = self.ckb(coarse)
        else:
            evolved = self.ckb(coarse, [self.factor * step for step in spacing])
        return x + F.interpolate(evolved - coarse, size=x.shape[2:], mode=INTERPOLATION[dims])


class Equalised(nn.Module):
    """A module that learns `gain` times as fast at an optimiser's learning rate.

    Hosts train all their models at one rate, usually 1e-3, which is right for their wide layers and
    ten times too small for networks of a few channels. The module's parameters are stored over the
    gain, so that steps of Adam, whose size is the rate, are `gain` times as large in the values
    that the module sees, and an L2 penalty that the host adds is ``gain**2`` times as weak
    (equalised learning rates: Karras et al., "Progressive growing of GANs", ICLR 2018).

    The state dict has the names and the values of the module itself: its checkpoints load without
    this wrapper, and those of the module with it.

    Parameters
    ----------
    module : Module
    gain : float
        A power of 2, so that values survive the division.

    Raises
    ------
    ValueError
        For other gains.
    """

    def __init__(self, module: nn.Module, gain: float = 8.0) -> None:
        super().__init__()
        if gain <= 0 or math.frexp(gain)[0] != 0.5:
            raise ValueError(f"gain: expected a power of 2, got {gain!r}")
        self.module, self.gain = module, gain
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.div_(gain)
        self.register_state_dict_post_hook(_as_seen)
        self.register_load_state_dict_pre_hook(_as_stored)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns."""
        seen = {name: self.gain * value for name, value in self.module.named_parameters()}
        return torch.func.functional_call(self.module, seen, args, kwargs)

    def extra_repr(self) -> str:
        return f"gain={self.gain:g}"


def _as_seen(wrapper: Equalised, state: dict[str, Any], prefix: str, _: Any) -> None:
    parameters = dict(wrapper.module.named_parameters())
    for key in [key for key in state if key.startswith(f"{prefix}module.")]:
        name = key.removeprefix(f"{prefix}module.")
        value = state.pop(key)
        state[prefix + name] = value * wrapper.gain if name in parameters else value


def _as_stored(wrapper: Equalised, state: dict[str, Any], prefix: str, *_: Any) -> None:
    parameters = dict(wrapper.module.named_parameters())
    for key in [key for key in state if key.startswith(prefix)]:
        name = key.removeprefix(prefix)
        value = state.pop(key)
        state[f"{prefix}module.{name}"] = value / wrapper.gain if name in parameters else value


def check_axes(axes: int) -> None:
    """ValueError unless 1 to 3."""
    if axes not in CONV:
        raise ValueError(f"axes: expected 1, 2 or 3, got {axes!r}")


def check_field(x: Tensor, in_channels: int, axes: int, multiple: int = 1) -> None:
    """ValueError unless (B, in_channels, \\*grid) with so many axes, all multiples of a number."""
    sizes = tuple(x.shape)
    fits = len(sizes) == axes + 2 and sizes[1] == in_channels
    if not fits or any(n % multiple for n in sizes[2:]):
        names = ", ".join(GRID[:axes])
        multiples = "" if multiple == 1 else f", sizes multiples of {multiple}"
        raise ValueError(f"x: expected shape (B, {in_channels}, {names}){multiples}, got {sizes}")


def coordinates(x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Coordinates from `low` to `high` of the points of a field (B, C, \\*grid), as (B, axes,
    \\*grid)."""
    lines = [torch.linspace(low, high, n, dtype=x.dtype, device=x.device) for n in x.shape[2:]]
    return torch.stack(torch.meshgrid(*lines, indexing="ij")).expand(len(x), *[-1] * (x.ndim - 1))


def with_coordinates(x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """A field (B, C, \\*grid) with its `coordinates` as channels behind its own."""
    return torch.cat((x, coordinates(x, low, high)), dim=1)


def grid_spacing(grid: Tensor) -> list[float]:
    """Distance of the nodes along each axis, where the longest axis of the domain has length 1.

    Parameters
    ----------
    grid : Tensor, shape (B, \\*grid, number of axes)
        Coordinates, equally spaced and the same for all samples. An axis of one point, or whose
        coordinates are all the same, counts as one of length 1.
    """
    first, axes = grid[0].detach(), grid.shape[-1]
    steps = []
    for axis in range(axes):
        line = first[..., axis].movedim(axis, 0).reshape(first.shape[axis], -1)[:, 0]
        step = abs(float(line[1] - line[0])) if len(line) > 1 else 0.0
        steps.append(step if step > 0 else 1 / len(line))
    distances = NODES[grid_nodes(grid) or "centres"]
    longest = max(
        steps_between_walls(n, distances) * step
        for n, step in zip(first.shape, steps, strict=False)
    )
    return [step / longest for step in steps]


def grid_nodes(grid: Tensor) -> str | None:
    """Where the nodes lie between the walls, see `chonn_ops.NetworkCell`, if coordinates tell.

    Parameters
    ----------
    grid : Tensor, shape (B, \\*grid, number of axes)
        Coordinates, equally spaced and the same for all samples.

    Returns
    -------
    str or None
        "left" or "corners" where every axis starts at 0 and ends a step before 1 or at 1, "centres"
        where every axis starts and ends half a step inside of these; None where it cannot be told.
    """
    first, found = grid[0].detach(), set()
    for axis in range(grid.shape[-1]):
        line = first[..., axis].movedim(axis, 0).reshape(first.shape[axis], -1)[:, 0].tolist()
        step = (line[-1] - line[0]) / max(len(line) - 1, 1)
        found |= {
            name
            for name, (low, high) in NODES.items()
            if step > 0
            and max(abs(line[0] - low * step), abs(1 - line[-1] - high * step)) < 0.1 * step
        } or {None}
    return found.pop() if len(found) == 1 else None
