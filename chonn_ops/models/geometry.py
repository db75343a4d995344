"""The geometry that a host's coordinates state: spacing and position of the nodes.

Public for integrations with hosts, whose models are called with coordinates.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

import torch
from torch import Tensor

from chonn_ops.network.diffusion import Spacing
from chonn_ops.nn.geometry import NODES, Nodes, node_positions

__all__ = [
    "Geometry",
    "grid_geometry",
    "grid_nodes",
    "grid_spacing",
    "in_domain_lengths",
    "node_positions",
]


class Geometry(TypedDict):
    """Keywords of blocks with network cells."""

    spacing: Spacing
    nodes: Nodes | None


def grid_geometry(grid: Tensor) -> Geometry:
    """Read from coordinates where the nodes of a grid lie.

    Parameters
    ----------
    grid : Tensor, shape (B, \\*grid, number of axes)
        Coordinates, equally spaced and the same for all samples.

    Returns
    -------
    spacing : list of float, one an axis
        Distance of the nodes, in units of the domain's longest axis. An axis of one point, or whose
        coordinates are all the same, counts as one of length 1.
    nodes : str or None
        Where the nodes lie between walls, see `chonn_ops.Network`: "left" or "corners" where every
        axis starts at 0 and ends a step before 1 or at 1, "centres" where every axis starts and
        ends half a step inside of 0 and 1, else None. Under `torch.export` and compilers, which
        cannot read the coordinates, spacing and nodes are tensors with the same numbers, NaN for
        None.
    """
    axes, sizes = grid.shape[-1], grid.shape[1:-1]
    samples = grid.detach()
    lines = [
        samples[(0, *[0] * axis, slice(None), *[0] * (axes - 1 - axis), axis)]
        for axis in range(axes)
    ]
    first, last = (torch.stack([line[end] for line in lines]).double() for end in (0, -1))
    # Not by `len`, which fixes the grid of an exported program.
    pairs = zip(lines, sizes, strict=True)
    gaps = [(line[1] - line[0]).abs() if n > 1 else 0 * line[0] for line, n in pairs]
    steps = [
        torch.where(gap > 0, gap, 1 / n)
        for gap, n in zip(torch.stack(gaps).double(), sizes, strict=True)
    ]
    # The entry of `NODES` that the ends of all axes show; at most one fits.
    widths = zip(last - first, sizes, strict=True)
    mean = torch.stack([width / max(n - 1, 1) for width, n in widths])
    table = first.new_tensor(list(NODES.values()))
    low, high = table.T.unsqueeze(-1)
    off = torch.maximum((first - low * mean).abs(), (1 - last - high * mean).abs())
    shown = ((mean > 0) & (off < 0.1 * mean)).all(-1)
    at_walls = torch.where(shown.any(), shown.double() @ table, table[0])
    counts = [(n - 1 + at_walls.sum()).clamp(min=1) for n in sizes]
    longest = torch.stack([n * step for n, step in zip(counts, steps, strict=True)]).amax()
    spacing: Any = torch.stack(steps) / longest
    if torch.compiler.is_compiling():
        nodes = torch.where(shown.any(), at_walls, math.nan)
        return {"spacing": list(spacing), "nodes": nodes}
    numbers = torch.cat((spacing, shown)).tolist()  # one transfer from a GPU
    names = [name for name, fits in zip(NODES, numbers[axes:], strict=True) if fits]
    return {"spacing": numbers[:axes], "nodes": names[0] if names else None}


def in_domain_lengths(grid: Tensor, spacing: Any) -> Tensor:
    """Coordinates in units of the domain's longest axis, like the spacing of `grid_geometry`.

    A linear layer of coordinates from 0 to 1000 has features of hundreds, whose exponentials are
    conductances.
    """
    axes = grid.shape[-1]
    # Any axis tells the unit that has two points; `len` and `max` would fix exported grids.
    axis = next((axis for axis in range(axes) if grid.shape[1 + axis] > 1), 0)
    line = grid[(0, *[0] * axis, slice(None), *[0] * (axes - 1 - axis), axis)].detach()
    step = (line[-1] - line[0]).abs() / (grid.shape[1 + axis] - 1 or 1)
    unit = torch.as_tensor(spacing[axis], dtype=step.dtype, device=step.device)
    return grid * torch.where(step > 0, unit / step, 1.0)


def grid_spacing(grid: Tensor) -> Any:
    """The spacing of `grid_geometry`."""
    return grid_geometry(grid)["spacing"]


def grid_nodes(grid: Tensor) -> Any:
    """The nodes of `grid_geometry`."""
    return grid_geometry(grid)["nodes"]
