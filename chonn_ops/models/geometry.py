"""The geometry that a host's coordinates state: spacing and position of the nodes.

Public for integrations with hosts, whose models are called with coordinates.
"""

from __future__ import annotations

import math
from typing import TypedDict

import torch
from torch import Tensor

from chonn_ops.network.diffusion import Spacing
from chonn_ops.nn.geometry import NODES, Nodes, num_steps


class Geometry(TypedDict):
    """Keywords of blocks with network cells."""

    spacing: Spacing
    nodes: Nodes | None


def grid_geometry(grid: Tensor) -> Geometry:
    """`grid_spacing` and `grid_nodes`; under `torch.export` and compilers tensors with the same
    numbers, which are computed when the program runs.

    Parameters
    ----------
    grid : Tensor, shape (B, \\*grid, number of axes)
        Coordinates, equally spaced and the same for all samples.
    """
    if not torch.compiler.is_compiling():
        return {"spacing": grid_spacing(grid), "nodes": grid_nodes(grid)}
    lines = [line.double() for line in _lines(grid)]
    found = torch.stack([_placement(line) for line in lines])
    nodes = torch.where((found == found[0]).all(), found[0], math.nan)
    centres = nodes.new_tensor(NODES["centres"])
    low, high = torch.where(nodes.isnan(), centres, nodes).unbind()
    steps, lengths = [], []
    for line in lines:
        n = line.shape[0]
        step = (line[1] - line[0]).abs() if n > 1 else line.new_zeros(())
        step = torch.where(step > 0, step, 1 / n)
        steps.append(step)
        lengths.append(step * (n - 1 + low + high).clamp(min=1))
    longest = torch.stack(lengths).amax()
    return {"spacing": [step / longest for step in steps], "nodes": nodes}  # pyright: ignore[reportReturnType]


def _placement(line: Tensor) -> Tensor:
    """The entry of `NODES` that the coordinates of an axis show, NaN if none."""
    first, last = line[0], line[-1]
    step = (last - first) / max(line.shape[0] - 1, 1)
    shown = line.new_full((2,), math.nan)
    for low, high in NODES.values():
        off = torch.maximum((first - low * step).abs(), (1 - last - high * step).abs())
        shown = torch.where((step > 0) & (off < 0.1 * step), line.new_tensor((low, high)), shown)
    return shown


def grid_spacing(grid: Tensor) -> list[float]:
    """Distance of the nodes along each axis, in units of the domain's longest axis.

    Parameters
    ----------
    grid : Tensor, shape (B, \\*grid, number of axes)
        Coordinates, equally spaced and the same for all samples. An axis of one point, or whose
        coordinates are all the same, counts as one of length 1.
    """
    steps = []
    for line in _lines(grid):
        step = abs(float(line[1] - line[0])) if len(line) > 1 else 0.0
        steps.append(step if step > 0 else 1 / len(line))
    nodes = grid_nodes(grid) or "centres"
    longest = max(
        num_steps(n, nodes) * step for n, step in zip(grid.shape[1:], steps, strict=False)
    )
    return [step / longest for step in steps]


def grid_nodes(grid: Tensor) -> str | None:
    """Where nodes lie between walls, see `chonn_ops.Network`; None if the grid does not show it.

    Parameters
    ----------
    grid : Tensor, shape (B, \\*grid, number of axes)
        Coordinates, equally spaced and the same for all samples.

    Returns
    -------
    str or None
        "left" or "corners" where every axis starts at 0 and ends a step before 1 or at 1, "centres"
        where every axis starts and ends half a step inside of 0 and 1.
    """
    found = set()
    for line in _lines(grid):
        first, last = float(line[0]), float(line[-1])
        step = (last - first) / max(len(line) - 1, 1)
        found |= {
            nodes
            for nodes, (low, high) in NODES.items()
            if step > 0 and max(abs(first - low * step), abs(1 - last - high * step)) < 0.1 * step
        } or {None}
    return found.pop() if len(found) == 1 else None


def _lines(grid: Tensor) -> list[Tensor]:
    """The coordinates along each axis."""
    first = grid[0].detach()
    return [
        first[..., axis].movedim(axis, 0).reshape(first.shape[axis], -1)[:, 0]
        for axis in range(grid.shape[-1])
    ]
