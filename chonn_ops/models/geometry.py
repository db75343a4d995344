"""The geometry that a host's coordinates state: spacing and position of the nodes.

Public for integrations with hosts, whose models are called with coordinates.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

import torch
from torch import Tensor

from chonn_ops.network.grids import Spacing
from chonn_ops.nn.geometry import NODES, Nodes, node_positions

__all__ = [
    "Geometry",
    "grid_geometry",
    "node_positions",
]


class Geometry(TypedDict):
    """Keywords of blocks with network cells."""

    spacing: Spacing
    nodes: Nodes | None


def grid_geometry(grid: Tensor) -> tuple[Geometry, Tensor]:
    """Read from coordinates where the nodes of a grid lie.

    Parameters
    ----------
    grid : Tensor, shape (B, \\*grid, number of axes)
        Coordinates, equally spaced and the same for all samples.

    Returns
    -------
    geometry : Geometry
        ``spacing`` lists the distance of the nodes along each axis, in units of the domain's
        longest axis. An axis of one point, or whose coordinates are all the same, counts as one of
        length 1. ``nodes`` says where the nodes lie between walls, see `chonn_ops.Network`: "left"
        or "corners" where every axis starts at 0 and ends a step before 1 or at 1, "centres" where
        every axis starts and ends half a step inside of 0 and 1, else None. Under `torch.export`,
        compilers and a `vmap` over the coordinates, which cannot read them, both are tensors with
        the same numbers, NaN for None.
    length : Tensor, shape ()
        Length of the longest axis in the unit of the coordinates.
    """
    axes, sizes = grid.shape[-1], grid.shape[1:-1]
    # Of no samples nothing can be read: the axes count as ones of length 1.
    samples = grid.detach() if grid.shape[0] else grid.new_zeros(1, *grid.shape[1:])
    lines = [
        samples[(0, *[0] * axis, slice(None), *[0] * (axes - 1 - axis), axis)]
        for axis in range(axes)
    ]
    first, last = (torch.stack([line[end] for line in lines]).double() for end in (0, -1))
    # Not by `len`, which fixes the grid of an exported program.
    widths = zip(last - first, sizes, strict=True)
    mean = torch.stack([width / max(n - 1, 1) for width, n in widths])
    steps = [torch.where(step > 0, step, 1 / n) for step, n in zip(mean.abs(), sizes, strict=True)]
    # The entry of `NODES` that the ends of all axes show; at most one fits.
    table = first.new_tensor(list(NODES.values()))
    low, high = table.T.unsqueeze(-1)
    off = torch.maximum((first - low * mean).abs(), (1 - last - high * mean).abs())
    shown = ((mean > 0) & (off < 0.1 * mean)).all(-1)
    at_walls = torch.where(shown.any(), shown.double() @ table, table[0])
    counts = [(n - 1 + at_walls.sum()).clamp(min=1) for n in sizes]
    length = torch.stack([n * step for n, step in zip(counts, steps, strict=True)]).amax()
    spacing: Any = torch.stack(steps) / length
    numbers = _readable(torch.cat((spacing, shown)))
    if numbers is None:
        nodes = torch.where(shown.any(), at_walls, math.nan)
        return {"spacing": list(spacing), "nodes": nodes}, length
    names = [name for name, fits in zip(NODES, numbers[axes:], strict=True) if fits]
    return {"spacing": numbers[:axes], "nodes": names[0] if names else None}, length


def _readable(values: Tensor) -> list[float] | None:
    """The values, in one transfer from a GPU; None where they cannot be read."""
    if torch.compiler.is_compiling():
        return None
    try:
        return values.tolist()
    except RuntimeError:  # `vmap` over coordinates
        return None
