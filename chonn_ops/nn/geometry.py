"""The geometry of a grid: where its nodes lie, how far apart, and which of them exist. That of a
graph is `FiniteVolumes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops.checks import check_choice, check_tensor, error
from chonn_ops.network.grids import Spacing, spacings
from chonn_ops.network.volumes import FiniteVolumes

# Steps from the low wall to the first node, and from the last node to the high wall.
NODES = {"centres": (0.5, 0.5), "left": (0.0, 1.0), "corners": (0.0, 0.0)}
# A name of `NODES`, or its two numbers in a tensor, NaN where they are not known: compilers and
# exports compute it from coordinates, whose values they cannot read.
Nodes = str | Tensor


def wall_distances(nodes: Nodes) -> Sequence[float | Tensor]:
    """Steps from the low wall to the first node, and from the last node to the high wall. The
    distance of a node on its wall is a thousandth instead of 0, because conductances divide by
    it."""
    if isinstance(nodes, Tensor):
        return nodes.clamp(min=1e-3).unbind()
    return [max(distance, 1e-3) for distance in NODES[nodes]]


def num_steps(points: int, nodes: Nodes) -> float | Tensor:
    """Number of steps from wall to wall along an axis of so many nodes.

    A single node that lies on both walls counts as one step.
    """
    if isinstance(nodes, Tensor):
        return (points - 1 + nodes.sum()).clamp(min=1)
    return max(points - 1 + sum(NODES[nodes]), 1.0)


def node_positions(field: Tensor, nodes: Nodes) -> tuple[Tensor, ...]:
    """Position of the nodes of a field (B, \\*grid, C) along each axis, from 0 at the low wall to 1
    at the high wall; one tensor (\\*grid) an axis."""
    axes = []
    low = nodes[0] if isinstance(nodes, Tensor) else NODES[nodes][0]
    # Half precision has no integers above 256 or 2048.
    wide = torch.promote_types(field.dtype, torch.float32)
    for n in field.shape[1:-1]:
        index = torch.arange(n, device=field.device, dtype=wide)
        axes.append(((index + low) / num_steps(n, nodes)).to(field.dtype))
    return torch.meshgrid(*axes, indexing="ij")


def spacing_and_nodes(
    shape: Sequence[int],
    lengths: Sequence[float],
    default: str,
    spacing: Spacing | None,
    mask: Tensor | None,
    nodes: Nodes | None,
) -> tuple[list[float], Nodes]:
    """Check the geometry that a call states, which is that of `chonn_ops.NetworkCell.forward`, and
    return spacing and nodes with their defaults: the nodes of a field of this shape (B, \\*grid)
    fill a domain of these lengths, and lie where `default` says. A ValueError for what does not
    fit."""
    grid = tuple(shape[1:])
    if mask is not None:
        check_tensor("mask", mask)
        if mask.dtype != torch.bool or tuple(mask.shape) not in (grid, tuple(shape)):
            expected = f"torch.bool of shape {grid} or {tuple(shape)}"
            raise error("mask", expected, f"{mask.dtype} of {tuple(mask.shape)}")
    if isinstance(nodes, Tensor):
        nodes = torch.where(nodes.isnan(), nodes.new_tensor(NODES[default]), nodes)
    else:
        nodes = default if nodes is None else nodes
        check_choice("nodes", nodes, NODES)
    if spacing is not None:
        return spacings(spacing, len(grid)), nodes
    assert isinstance(nodes, str)  # a tensor comes with the spacing of its coordinates
    steps: Any = [size / num_steps(n, nodes) for size, n in zip(lengths, grid, strict=True)]
    return steps, nodes


def check_volumes(volumes: FiniteVolumes, axes: int, *geometry: object) -> int:
    """Check a graph's geometry, which takes the place of a grid's; its number of nodes."""
    if not isinstance(volumes, FiniteVolumes):
        raise TypeError(f"volumes: expected FiniteVolumes, got {type(volumes).__name__}")
    if any(argument is not None for argument in geometry):
        raise ValueError("spacing, mask, nodes: expected None with volumes")
    if volumes.positions.shape[1] != axes:
        raise error("volumes", f"positions of {axes} coordinates", volumes.positions.shape[1])
    return volumes.num_nodes
