"""Where the nodes of networks lie, between which ends."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.network import ENDS

CELL_ENDS = ("wall", *ENDS)
# Steps from the low wall to the first node and from the last node to the high wall.
NODES = {"centres": (0.5, 0.5), "left": (0.0, 1.0), "corners": (0.0, 0.0)}


def steps_between_walls(nodes: int, distances: tuple[float, float]) -> float:
    """Of an axis with so many nodes, see `NODES`; a node on both walls has a step, too."""
    return max(nodes - 1 + distances[0] + distances[1], 1.0)


def default_spacing(lengths: Sequence[float], grid: Sequence[int], nodes: str) -> list[float]:
    """Of the nodes on a grid in a domain of these lengths, see `NODES`."""
    return [
        length / steps_between_walls(n, NODES[nodes])
        for length, n in zip(lengths, grid, strict=True)
    ]


def places(field: Tensor, nodes: str) -> tuple[Tensor, ...]:
    """Where the nodes of a field (B, \\*grid, C) lie along each axis, (\\*grid) each: 0 to 1 from
    wall to wall, see `NODES`."""
    distances, axes = NODES[nodes], []
    for n in field.shape[1:-1]:
        place = torch.arange(n, device=field.device, dtype=field.dtype)
        axes.append((place + distances[0]) / steps_between_walls(n, distances))
    return torch.meshgrid(*axes, indexing="ij")


def existing(mask: Tensor, field: Tensor) -> Tensor:
    """A mask of shape (\\*grid) or (B, \\*grid), to go with fields (B, \\*grid, C)."""
    return (mask if mask.dim() == field.dim() - 1 else mask.unsqueeze(0)).unsqueeze(-1)


def between_existing(edges: Sequence[Tensor], exists: Tensor) -> list[Tensor]:
    """Conductances (B, \\*grid, C), one an axis, 0 beside nodes that do not exist."""
    return [
        torch.where(exists & exists.roll(-1, axis + 1), edge, 0) for axis, edge in enumerate(edges)
    ]


def check_geometry(
    fields: Sequence[int], spacing: Sequence[float] | None, mask: Tensor | None
) -> None:
    """Spacing and mask for fields of shape (B, \\*grid)."""
    grid = tuple(fields[1:])
    if spacing is not None and (
        len(spacing) != len(grid) or not all(0 < step < math.inf for step in spacing)
    ):
        raise ValueError(f"spacing: expected {len(grid)} numbers > 0, got {spacing!r}")
    if mask is not None and (
        mask.dtype != torch.bool or tuple(mask.shape) not in (grid, tuple(fields))
    ):
        raise ValueError(
            f"mask: expected torch.bool of shape {grid} or {tuple(fields)}, "
            f"got {mask.dtype} of {tuple(mask.shape)}"
        )
