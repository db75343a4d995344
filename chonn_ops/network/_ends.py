"""What the ends of an axis add to the leak of the nodes there: plain differentiable PyTorch.

The operator and its backends know two ends: none (open) and a ring. All others are conductances
to ground, so they are leak.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chonn_ops.network._edges import pad


def series(a: Tensor, b: Tensor) -> Tensor:
    """Two conductances one after the other, 1 / (1/a + 1/b): 0 where either is 0.

    Neither product nor square is formed, and no gradient is NaN where both are 0.
    """
    total = a + b
    return a * (b / torch.where(total > 0, total, 1))


def _endless_line(g: Tensor, leak: Tensor) -> Tensor:
    """What a line of the same edges and leaks, going on for ever, conducts: the positive root of
    G = g (l + G) / (g + l + G), each stage being an edge in series with a leak beside the rest."""
    some = leak > 0
    l = torch.where(some, leak, 1)  # noqa: E741
    return torch.where(some, 2 * g * (l / (l + l.sqrt() * (l + 4 * g).sqrt())), 0)


def _wall(half: Tensor, wall: Tensor) -> Tensor:
    """A wall, infinite or not, in series with half an edge."""
    endless = torch.isinf(wall)
    return torch.where(endless, half, series(half, torch.where(endless, 1, wall)))


def _added(end: str, g: Tensor, leak: Tensor, wall: Tensor | None) -> Tensor:
    """What one end conducts to ground."""
    if end == "short":
        return 2 * g
    if end == "matched":
        return _endless_line(g, leak)
    assert wall is not None
    return _wall(2 * g, wall)


def leak_with_ends(
    conductance: list[Tensor],
    leak: Tensor,
    ends: list[str],
    wall: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """The leak and what the ends of each axis conduct to ground; TorchScript knows it.

    Parameters
    ----------
    conductance : list of Tensor, shape (B, \\*grid, C)
        One an axis.
    leak : Tensor, shape (B, \\*grid, C)
    ends : list of str
        One of `ENDS` an axis.
    wall : Tensor, shape (C,) or (axes, 2, C), optional
        Conductance to ground behind the half edge of open ends; none by default.
    dtype : torch.dtype
        In which the network is solved.

    Returns
    -------
    Tensor, shape (B, \\*grid, C)
        `leak` itself where the ends add nothing, else of `dtype`.
    """
    total = leak
    if wall is not None:
        wall = wall.to(dtype)
        if wall.dim() == 1:
            wall = wall.expand(len(ends), 2, wall.shape[0])
    for axis, end in enumerate(ends):
        if end == "ring" or (end == "open" and wall is None):
            continue
        dim, n = axis + 1, leak.shape[axis + 1]
        # The edge beside the low wall is entry 0, beside the high wall n - 2; one node has its own.
        for side, node, edge in ((0, 0, 0), (1, n - 1, max(n - 2, 0))):
            added = _added(
                end,
                conductance[axis].narrow(dim, edge, 1).to(dtype),
                leak.narrow(dim, node, 1).to(dtype),
                None if wall is None else wall[axis, side],
            )
            total = total + pad(added, axis, node, n - 1 - node)
    return total
