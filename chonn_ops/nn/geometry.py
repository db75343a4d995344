"""The geometry of a grid: where its nodes lie, how far apart, and which of them exist. That of a
graph is `FiniteVolumes`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops.checks import answer, check_choice, check_tensor, error, is_real, json_value
from chonn_ops.network.discretise.grids import Spacing, spacings
from chonn_ops.network.discretise.volumes import FiniteVolumes

# Steps from the low wall to the first node, and from the last node to the high wall.
NODES = {"centres": (0.5, 0.5), "left": (0.0, 1.0), "corners": (0.0, 0.0)}
# A name of `NODES`, or such a pair of distances, or one an axis. Compilers and exports compute
# distances from coordinates whose values they cannot read: then they are a tensor (axes, 2).
Nodes = str | Sequence[Any] | Tensor
# The pair of each axis; numbers, or tensors where `Nodes` is one.
Distances = list[tuple[Any, Any]]
Lengths = float | tuple[float, ...]


class Geometry(NamedTuple):
    """What `chonn_ops.nn.CircuitHead.forward` takes besides features."""

    spacing: Any = None
    mask: Tensor | None = None
    nodes: Any = None
    volumes: FiniteVolumes | None = None


def existing(mask: Tensor, axes: int) -> Tensor:
    """A mask (\\*grid) or (B, \\*grid) beside features: (1 or B, \\*grid, 1)."""
    return (mask if mask.dim() > axes else mask[None]).unsqueeze(-1)


def checked_nodes(nodes: Any) -> str | tuple[Any, ...]:
    """An option `nodes` as a value that can be hashed; ValueError for an unknown one."""
    nodes = json_value("nodes", nodes)
    pairs = distances_of(nodes, None)
    if isinstance(nodes, str):
        return nodes
    return pairs[0] if is_real(nodes[0]) else tuple(pairs)


def distances_of(nodes: Nodes, axes: int | None) -> Distances:
    """Steps from the low wall to the first node, and from the last node to the high wall: one pair
    for each axis, or those that are given. ValueError for an unknown word, another number of axes,
    and distances that are not finite numbers of at least 0."""
    if isinstance(nodes, Tensor):
        if (numbers := answer(nodes.tolist, nodes)) is None and nodes.shape == (axes, 2):
            return [(pair[0], pair[1]) for pair in nodes.unbind()]
        nodes = numbers or []
    if isinstance(nodes, str):
        check_choice("nodes", nodes, NODES)
        return [NODES[nodes]] * (axes or 1)
    try:
        pairs = [nodes] * (axes or 1) if is_real(nodes[0]) else list(nodes)
        fit = all(len(pair) == 2 and all(_is_distance(x) for x in pair) for pair in pairs)
    except (TypeError, LookupError):  # neither a pair nor pairs
        pairs, fit = [], False
    if not fit or not pairs or len(pairs) != (axes or len(pairs)):
        expected = f"one of {tuple(NODES)}, or the distances of the walls in steps, one pair"
        raise error("nodes", f"{expected} or one an axis", repr(nodes))
    values = [[x if isinstance(x, Tensor) else float(x) for x in pair] for pair in pairs]
    return [(low, high) for low, high in values]


def _is_distance(value: Any) -> bool:
    return isinstance(value, Tensor) or (is_real(value) and 0 <= value < math.inf)


def wall_distances(nodes: Distances) -> Distances:
    """The distances, with a thousandth instead of 0 for a node on its wall, because conductances
    divide by them."""
    return [(_at_least(low, 1e-3), _at_least(high, 1e-3)) for low, high in nodes]


def _at_least(value: Any, least: float) -> Any:
    return value.clamp(min=least) if isinstance(value, Tensor) else max(value, least)


def num_steps(points: int, pair: tuple[Any, Any]) -> Any:
    """Number of steps from wall to wall along an axis of so many nodes with these distances.

    A single node that lies on both walls counts as one step.
    """
    return _at_least(points - 1 + pair[0] + pair[1], 1.0)


def node_positions(field: Tensor, nodes: Nodes) -> tuple[Tensor, ...]:
    """Position of the nodes of a field (B, \\*grid, C) along each axis, from 0 at the low wall to 1
    at the high wall; one tensor (\\*grid) an axis."""
    axes, grid = [], field.shape[1:-1]
    # Half precision has no integers above 256 or 2048.
    wide = torch.promote_types(field.dtype, torch.float32)
    for n, pair in zip(grid, distances_of(nodes, len(grid)), strict=True):
        index = torch.arange(n, device=field.device, dtype=wide)
        axes.append(((index + pair[0]) / num_steps(n, pair)).to(field.dtype))
    return torch.meshgrid(*axes, indexing="ij")


def checked_lengths(lengths: Any, axes: int) -> Lengths:
    """The size of a domain as `spacing_and_nodes` takes it, from numbers of any kind."""
    known = json_value("lengths", lengths)
    sizes = tuple(spacings(known, axes, "lengths"))
    return sizes if isinstance(known, list) and axes > 1 else sizes[0]


def spacing_and_nodes(
    shape: Sequence[int],
    lengths: Lengths,
    default: Nodes,
    spacing: Spacing | None,
    mask: Tensor | None,
    nodes: Nodes | None,
) -> tuple[list[float], Distances]:
    """Check the geometry that a call states, which is that of `chonn_ops.NetworkCell.forward`, and
    return spacing and distances with their defaults: the nodes of a field of this shape
    (B, \\*grid) fill a domain of these lengths, or with square cells one of this mean length, and
    lie where `default` says. A ValueError for what does not fit."""
    grid = tuple(shape[1:])
    if mask is not None:
        check_tensor("mask", mask)
        if mask.dtype != torch.bool or tuple(mask.shape) not in (grid, tuple(shape)):
            expected = f"torch.bool of shape {grid} or {tuple(shape)}"
            raise error("mask", expected, f"{mask.dtype} of {tuple(mask.shape)}")
    distances = distances_of(default if nodes is None else nodes, len(grid))
    if spacing is not None:
        return spacings(spacing, len(grid)), distances
    counts = [num_steps(n, pair) for n, pair in zip(grid, distances, strict=True)]
    if not isinstance(lengths, tuple):
        return [len(grid) * lengths / sum(counts)] * len(grid), distances
    return [size / n for size, n in zip(lengths, counts, strict=True)], distances


def check_volumes(volumes: FiniteVolumes | None, axes: int, *geometry: object) -> int:
    """Check a graph's geometry, which takes the place of a grid's; its number of nodes."""
    if not isinstance(volumes, FiniteVolumes):
        raise TypeError(f"volumes: expected FiniteVolumes, got {type(volumes).__name__}")
    if any(argument is not None for argument in geometry):
        raise ValueError("spacing, mask, nodes: expected None with volumes")
    volumes.require_faces()
    if volumes.positions.shape[1] != axes:
        raise error("volumes", f"positions of {axes} coordinates", volumes.positions.shape[1])
    return volumes.num_nodes
