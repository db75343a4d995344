"""The geometry of a grid: where its nodes lie, how far apart, and which of them exist."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.checks import check_choice, check_tensor
from chonn_ops.network.diffusion import Spacing, spacings

# Steps from the low wall to the first node, and from the last node to the high wall.
NODES = {"centres": (0.5, 0.5), "left": (0.0, 1.0), "corners": (0.0, 0.0)}
# A name of `NODES`, or its two numbers in a tensor, NaN where they are not known: compilers and
# exports compute it from coordinates, whose values they cannot read.
Nodes = str | Tensor


def wall_distances(nodes: Nodes) -> Sequence[float | Tensor]:
    """Steps from the low wall to the first node, and from the last node to the high wall. A node on
    its wall has the distance 0, by which nothing can be divided: it is a thousandth here."""
    if isinstance(nodes, Tensor):
        return nodes.clamp(min=1e-3).unbind()
    return [max(distance, 1e-3) for distance in NODES[nodes]]


def num_steps(points: int, nodes: str) -> float:
    """Number of steps from wall to wall along an axis of so many nodes.

    A single node that lies on both walls counts as one step.
    """
    low, high = NODES[nodes]
    return max(points - 1 + low + high, 1.0)


def default_spacing(lengths: Sequence[float], grid: Sequence[int], nodes: str) -> list[float]:
    """Distance of the nodes of a grid that fills a domain of these lengths, one an axis."""
    return [length / num_steps(n, nodes) for length, n in zip(lengths, grid, strict=True)]


def node_positions(field: Tensor, nodes: str) -> tuple[Tensor, ...]:
    """Position of the nodes of a field (B, \\*grid, C) along each axis, from 0 at the low wall to 1
    at the high wall; one tensor (\\*grid) an axis."""
    axes = []
    for n in field.shape[1:-1]:
        index = torch.arange(n, device=field.device, dtype=field.dtype)
        axes.append((index + NODES[nodes][0]) / num_steps(n, nodes))
    return torch.meshgrid(*axes, indexing="ij")


def existing(mask: Tensor, field: Tensor) -> Tensor:
    """A mask of shape (\\*grid) or (B, \\*grid) that broadcasts to fields (B, \\*grid, C)."""
    return (mask if mask.dim() == field.dim() - 1 else mask.unsqueeze(0)).unsqueeze(-1)


def between_existing(edges: Sequence[Tensor], exists: Tensor) -> list[Tensor]:
    """Conductances (B, \\*grid, C), one an axis, set to 0 beside nodes that do not exist."""
    return [
        torch.where(exists & exists.roll(-1, axis + 1), edge, 0) for axis, edge in enumerate(edges)
    ]


def check_geometry(
    shape: Sequence[int],
    spacing: Spacing | None = None,
    mask: Tensor | None = None,
    nodes: Nodes | None = None,
) -> list[float] | None:
    """The spacing of each axis, if given; a ValueError unless spacing, mask and nodes fit fields of
    shape (B, \\*grid)."""
    grid = tuple(shape[1:])
    if mask is not None:
        check_tensor("mask", mask)
    if mask is not None and (
        mask.dtype != torch.bool or tuple(mask.shape) not in (grid, tuple(shape))
    ):
        raise ValueError(
            f"mask: expected torch.bool of shape {grid} or {tuple(shape)}, "
            f"got {mask.dtype} of {tuple(mask.shape)}"
        )
    if nodes is not None and not isinstance(nodes, Tensor):
        check_choice("nodes", nodes, NODES)
    return None if spacing is None else spacings(spacing, len(grid))
