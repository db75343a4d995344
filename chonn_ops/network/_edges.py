"""The edges along an axis of a grid: which there are, drops of potential along them, and what their
currents carry."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def pad(field: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Zeros before and after the entries along a grid axis; TorchScript knows it."""
    return F.pad(field, [0, 0] * (field.dim() - axis - 2) + [before, after])


def used_edges(g: Tensor, axis: int, ring: bool) -> Tensor:
    """The entries along a grid axis that are edges: without the last, unless it closes a ring."""
    n = g.shape[axis + 1]
    return g if ring and n > 1 else g.narrow(axis + 1, 0, n - 1)


def drops(v: Tensor, axis: int, end: str) -> Tensor:
    """Potential at the start of each edge less that at its end; ground, to which the ends "short"
    have edges, has 0."""
    dim, n = axis + 1, v.shape[axis + 1]
    if end == "ring":
        return v - v.roll(-1, dim)
    if end == "short":
        v, n = pad(v, axis, 1, 1), n + 2
    return v.narrow(dim, 0, n - 1) - v.narrow(dim, 1, n - 1)


def outflow(current: Tensor, axis: int, end: str) -> Tensor:
    """What the currents of an axis carry out of each node; the transpose of `drops`."""
    dim = axis + 1
    if end == "ring":
        return current - current.roll(1, dim)
    if end == "open":
        current = pad(current, axis, 1, 1)
    n = current.shape[dim] - 1
    return current.narrow(dim, 1, n) - current.narrow(dim, 0, n)
