"""The functions of `chonn_ops.nn.fused` by PyTorch's operations, which have every derivative.

Each returns a tuple. Fields are (B, \\*grid, C).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.boundary import CELL_CONDITIONS, Dirichlet
from chonn_ops.network.grids import blended_edges, walls_of
from chonn_ops.nn.bounded import bounded


def bounded_sum(h: Tensor | None, x: Tensor, most: float) -> tuple[Tensor]:
    """h + `bounded` x."""
    added = bounded(x, most)
    return (added if h is None else h + added,)


def conductivity(raw: Tensor, bias: Tensor, largest: float) -> tuple[Tensor]:
    """Conductivities whose logarithm is raw + bias where that is small, and below `largest`."""
    return (torch.exp(largest * torch.tanh((bias + raw) / largest)),)


def grid_circuit(
    k: Tensor,
    arithmetic: Tensor,
    distance: Tensor | None,
    leak: Tensor,
    steps: Sequence[float],
    words: Sequence[str],
    distances: Sequence[float],
) -> tuple[Tensor, ...]:
    """Edges of each axis, leaks with walls, and the walls' conductances if there are any.

    Parameters
    ----------
    k : Tensor, shape (B, \\*grid, C)
    arithmetic, distance, leak : Tensor, shape (C,)
        As in `blended_edges`; how far behind "robin" faces the potential is 0; per unit volume.
    steps, words : one an axis
        Distance of the nodes, and the word of both faces: "robin", "dirichlet", "neumann" or
        "periodic".
    distances : pair of float
        As in `walls_of`.
    """
    known = dict(CELL_CONDITIONS)
    if distance is not None:
        known["robin"] = Dirichlet(0.0, distance)
    faces = tuple((known[word], known[word]) for word in words)
    leak = leak * math.prod(steps)
    wall = walls_of(k, steps, faces, leak.expand_as(k), distances=distances).conductance
    edges = blended_edges(k, list(steps), arithmetic)
    return (*edges, leak.expand_as(k)) if wall is None else (*edges, leak + wall, wall)
