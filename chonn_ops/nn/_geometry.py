"""Where the nodes of networks lie, between which ends."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops import _ends
from chonn_ops.network import ENDS

CELL_ENDS = ("wall", *ENDS)
# Steps from the low wall to the first node and from the last node to the high wall.
NODES = {"centres": (0.5, 0.5), "left": (0.0, 1.0), "corners": (0.0, 0.0)}


def steps_between_walls(nodes: int, distances: tuple[float, float]) -> float:
    """Of an axis with so many nodes, see `NODES`; a node on both walls has a step, too."""
    return max(nodes - 1 + distances[0] + distances[1], 1.0)


def check_ends(name: str, ends: str | Sequence[str], axes: int | None = None) -> tuple[str, ...]:
    """One of `CELL_ENDS` an axis; for any number of axes by default."""
    words = (ends,) * (axes or 1) if isinstance(ends, str) else tuple(ends or ())
    words = tuple(_ends.canonical(word) for word in words)
    count = len(words) if axes is None else axes
    if not words or len(words) != count or not all(word in CELL_ENDS for word in words):
        several = "" if axes is None else f" {axes}"
        raise ValueError(
            f"{name}: expected {_ends.expected(CELL_ENDS)}, or{several} of them (one an axis), "
            f"got {ends!r}"
        )
    return words


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
