"""The geometry that a host's coordinates state: spacing and position of the nodes.

Public for integrations with hosts, whose models are called with coordinates.
"""

from __future__ import annotations

from torch import Tensor

from chonn_ops.nn.geometry import NODES, num_steps


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
