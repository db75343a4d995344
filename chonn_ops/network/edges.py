"""The edges along an axis of a grid: their layout, voltage drops and net currents."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def pad(field: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Zeros before and after the entries along a grid axis."""
    return F.pad(field, [0, 0] * (field.dim() - axis - 2) + [before, after])


def used_edges(g: Tensor, axis: int, periodic: bool) -> Tensor:
    """The entries along a grid axis that are edges: all if periodic, otherwise all but the last."""
    n = g.shape[axis + 1]
    return g if periodic and n > 1 else g.narrow(axis + 1, 0, n - 1)


def indices(field: Tensor, axis: int) -> Tensor:
    """Indices along a grid axis, in a shape that broadcasts with the field."""
    n = field.shape[axis + 1]
    return torch.arange(n, device=field.device).reshape([n] + [1] * (field.dim() - axis - 2))


def edges_alone(g: Tensor, axis: int, periodic: bool) -> Tensor:
    """Set the last entry along an axis, which is no edge, to 0, unless periodic or of one node."""
    n = g.shape[axis + 1]
    if periodic or n == 1:
        return g
    return torch.where(indices(g, axis) < n - 1, g, 0)


def drops(v: Tensor, axis: int, closed: bool) -> Tensor:
    """The potential at the start of each edge of an axis minus that at its end."""
    dim, n = axis + 1, v.shape[axis + 1]
    if closed:
        return v - v.roll(-1, dim)
    return v.narrow(dim, 0, n - 1) - v.narrow(dim, 1, n - 1)


def differences(v: Tensor, axis: int, periodic: bool) -> Tensor:
    """Potential of each node of (..., \\*grid, C) less the next one's along an axis counted from
    the last; 0 behind the last node where the axis is not periodic."""
    difference = v - v.roll(-1, axis)
    if periodic and v.shape[axis] > 1:
        return difference
    inner = difference.narrow(axis, 0, v.shape[axis] - 1)
    return torch.cat([inner, torch.zeros_like(difference.narrow(axis, 0, 1))], axis)


def differences_by_axis(v: Tensor, periodic: Sequence[bool]) -> list[Tensor]:
    """`differences` along each axis."""
    first = -1 - len(periodic)
    return [differences(v, axis, closed) for axis, closed in enumerate(periodic, first)]


def outflow(current: Tensor, axis: int, closed: bool) -> Tensor:
    """The current that the edges of an axis carry out of each node; the transpose of `drops`."""
    if closed:
        return current - current.roll(1, axis + 1)
    return pad(current, axis, 0, 1) - pad(current, axis, 1, 0)


def sum_of_ends(size: Tensor, axis: int, closed: bool) -> Tensor:
    """What both nodes of each edge of an axis have."""
    dim, n = axis + 1, size.shape[axis + 1]
    if closed:
        return size + size.roll(-1, dim)
    return size.narrow(dim, 0, n - 1) + size.narrow(dim, 1, n - 1)


def at_both_ends(value: Tensor, axis: int, closed: bool) -> Tensor:
    """The transpose of `sum_of_ends`."""
    if closed:
        return value + value.roll(1, axis + 1)
    return pad(value, axis, 0, 1) + pad(value, axis, 1, 0)
