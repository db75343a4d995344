"""The geometry that a host's coordinates state: spacing of the nodes, and distance of the walls.

Public for integrations with hosts, whose models are called with coordinates.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from chonn_ops.checks import answer, error
from chonn_ops.nn.geometry import NODES, Distances, Nodes, distances_of, node_positions, num_steps

__all__ = [
    "Box",
    "Distances",
    "Nodes",
    "distances_of",
    "grid_geometry",
    "node_positions",
    "num_steps",
    "read_box",
]

# Coordinates of both walls of each axis.
Box = Sequence[Sequence[float]]
# Lengths that domains usually have: these times a power of ten, of which the first and the last
# come before the others, and multiples of pi. 1.6, 3.2 and 6.4 are there because 16 nodes at "left"
# of these end at 1.5, 3 and 6, which would look like "corners" otherwise.
LENGTHS = (1.0, 1.5, 1.6, 2.0, 2.5, 3.0, 3.2, 4.0, 5.0, 6.0, 6.4, 8.0, 10.0)
CIRCLES = tuple(math.pi * 2.0**power for power in range(-1, 6))
# A wall is where it was expected if it is off by less than this share of a step. Coordinates in
# single precision are off by four thousandths of a step on 65,536 points.
NEAR = 0.02


def grid_geometry(
    grid: Tensor, nodes: Nodes = "centres", box: Box | None = None
) -> tuple[dict[str, Any], Tensor]:
    """Read from coordinates where the nodes and the walls of a grid lie.

    Parameters
    ----------
    grid : Tensor, shape (B, \\*grid, number of axes)
        Coordinates, equally spaced and the same for all samples.
    nodes : str or sequence, optional
        Where the nodes lie, see `chonn_ops.Network`, along axes whose coordinates do not show it.
    box : sequence of (low, high), one an axis, optional
        Coordinates of the walls. Default: as `read_box` finds them; where it has to assume
        them, a warning says so, once for each grid.

    Returns
    -------
    geometry : dict, the keywords `spacing` and `nodes` of models
        ``spacing`` lists the distance of the nodes along each axis, in units of the domain's
        longest axis. An axis of one point, or whose coordinates are all the same, counts as one of
        length 1. ``nodes`` lists the steps from the walls to the first and from the last node of
        each axis. Under `torch.export`, compilers and a `vmap` over the coordinates, which cannot
        read them, both are tensors with the same numbers.
    length : Tensor, shape ()
        Length of the longest axis in the unit of the coordinates.

    Raises
    ------
    ValueError
        For a box of another number of axes, or one that does not hold the coordinates.
    """
    axes, sizes = grid.shape[-1], grid.shape[1:-1]
    # Without samples nothing can be read: the axes count as ones of length 1.
    samples = grid.detach() if grid.shape[0] else grid.new_zeros(1, *grid.shape[1:])
    ends = torch.stack(
        [
            samples[(0, *[0] * axis, end, *[0] * (axes - 1 - axis), axis)]
            for end in (0, -1)
            for axis in range(axes)
        ]
    )
    walls = None if box is None else tuple((float(low), float(high)) for low, high in box)
    if walls is not None and (len(walls) != axes or any(low >= high for low, high in walls)):
        raise error("box", f"{axes} pairs (low, high), one an axis", box)
    numbers = answer(ends.tolist)  # in one transfer from a GPU
    if numbers is not None:
        plain = nodes if isinstance(nodes, str) else tuple(map(tuple, distances_of(nodes, axes)))
        spacing, pairs, length = _of_numbers(tuple(numbers), tuple(sizes), plain, walls)
        wide = torch.promote_types(ends.dtype, torch.float32)
        return {"spacing": spacing, "nodes": pairs}, ends.new_tensor(length, dtype=wide)
    ends = ends.double()
    assumed = ends.new_tensor(distances_of(nodes, axes))
    steps, distances, length, _ = _geometry(ends, sizes, assumed, walls)
    spacing: Any = list(steps)
    return {"spacing": spacing, "nodes": distances}, length


def read_box(
    first: Sequence[float], last: Sequence[float], sizes: Sequence[int], nodes: Nodes = "centres"
) -> tuple[list[tuple[float, float]], list[bool]]:
    """Find the walls of the domain of a grid by its coordinates.

    Domains run from 0 or -L to L. The coordinates show L where the nodes lie as one of the words
    for `nodes` says and either no other word fits or L is a usual length, such as 1, 10 or 2 pi;
    numbers of the nodes, 0, 1, 2, ..., show only powers of ten. Otherwise L is assumed to be the
    power of ten that ends within a step outside of the nodes, as for every second cell of a grid,
    or else what `nodes` says.

    Parameters
    ----------
    first, last : sequence of float, one an axis
        Coordinates of the first and the last node, in either direction.
    sizes : sequence of int, one an axis
        Nodes.
    nodes : str or sequence, optional
        Where the nodes are assumed to lie.

    Returns
    -------
    box : list of (float, float), one an axis
        Coordinates of the low and the high wall.
    sure : list of bool, one an axis
        Whether the coordinates show them.
    """
    ends = torch.tensor([*first, *last], dtype=torch.float64)
    assumed = torch.tensor(distances_of(nodes, len(sizes)), dtype=torch.float64)
    _, distances, _, sure = _geometry(ends, sizes, assumed, None)
    step, (start, stop) = _steps(ends, sizes)[0], ends.view(2, -1)
    box = torch.stack((start - distances[:, 0] * step, stop + distances[:, 1] * step), -1)
    return [(low, high) for low, high in box.sort(-1).values.tolist()], sure.tolist()


@lru_cache(maxsize=256)
def _of_numbers(
    ends: tuple[float, ...], sizes: tuple[int, ...], nodes: Any, box: Any
) -> tuple[list[float], list[tuple[float, float]], float]:
    """`_geometry` in numbers, with an error for a box that does not hold the nodes, and a warning
    where walls are assumed."""
    axes = len(sizes)
    coordinates = torch.tensor(ends, dtype=torch.float64)
    assumed = torch.tensor(distances_of(nodes, axes), dtype=torch.float64)
    spacing, distances, length, sure = _geometry(coordinates, sizes, assumed, box)
    lines = []
    for axis in range(axes):
        lie = f"{sizes[axis]} coordinates from {ends[axis]:g} to {ends[axes + axis]:g}"
        low, high = distances[axis].tolist()
        if box is not None and min(low, high) < -0.5:  # half precision is off by less
            raise error("box", f"walls around the {lie} along axis {axis + 1}", box[axis])
        if not sure[axis] and sizes[axis] > 1:
            lines.append(
                f"{lie} along axis {axis + 1}, assumed {low:g} steps before the first and {high:g} "
                f"behind the last one"
            )
    if lines:
        warnings.warn(
            f"coordinates leave open where the walls are: {'; '.join(lines)}. The argument `box` "
            f"says where they are.",
            stacklevel=3,
        )
    pairs = [(low, high) for low, high in distances.clamp(min=0).tolist()]
    return spacing.tolist(), pairs, length.item()


def _steps(ends: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Mean steps between the coordinates (axes,), which may be negative, and their sizes; 1 / n
    where they are 0."""
    start, stop = ends.view(2, -1)
    # Not by `len`, which fixes the grid of an exported program.
    widths = zip(stop - start, sizes, strict=True)
    mean = torch.stack([width / max(n - 1, 1) for width, n in widths])
    steps = [torch.where(step > 0, step, 1 / n) for step, n in zip(mean.abs(), sizes, strict=True)]
    return mean, torch.stack(steps)


def _geometry(
    ends: Tensor, sizes: Sequence[int], assumed: Tensor, box: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Spacing (axes,) in units of the longest axis, distances of the walls (axes, 2) in steps,
    length of the longest axis, and whether the walls of each axis are sure."""
    (mean, step), (start, stop) = _steps(ends, sizes), ends.view(2, -1)
    first, last = torch.minimum(start, stop), torch.maximum(start, stop)
    flat = mean == 0
    if box is None:
        distances, rank = _guessed(first, last, step)
        sure = (rank < WITHIN) & ~flat
        distances = torch.where((mean < 0)[:, None], distances.flip(-1), distances)
        distances = torch.where(((rank < NONE) & ~flat)[:, None], distances, assumed)
    else:
        walls = ends.new_tensor(box)
        step = torch.where(flat, walls[:, 1] - walls[:, 0], step)
        distances = torch.stack(((first - walls[:, 0]) / step, (walls[:, 1] - last) / step), -1)
        # Coordinates in single precision are off by some thousandths of a step on large grids.
        half = torch.round(2 * distances) / 2
        distances = torch.where((distances - half).abs() < 1e-2, half, distances)
        distances = torch.where((mean < 0)[:, None], distances.flip(-1), distances)
        sure = torch.ones_like(flat)
    axes = zip(sizes, distances, step, strict=True)
    length = torch.stack([num_steps(n, (d[0], d[1])) * one for n, d, one in axes]).amax()
    return step / length, distances, length, sure


# How good an explanation of coordinates a box is: a power of ten with nodes as in a word; another
# usual length with such nodes; any length where no other word can be; a power of ten whose walls
# are within a step of the nodes.
POWER, USUAL, ONLY, WITHIN, NONE = range(5)


def _guessed(first: Tensor, last: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Distances (axes, 2) in steps of the walls of the best box, and how good it is (axes,)."""
    scale = 10.0 ** torch.maximum(first.abs(), last.abs()).log10().floor()
    tens = scale[:, None] * first.new_tensor(LENGTHS)
    usual = torch.cat((tens, first.new_tensor(CIRCLES).expand(len(first), -1)), -1)
    is_power = first.new_tensor([m in (1.0, 10.0) for m in (*LENGTHS, *CIRCLES)]) > 0
    # From 0 to L, and from -L to L.
    low = (first[:, None] - torch.cat((torch.zeros_like(usual), -usual), -1)) / step[:, None]
    high = (usual.repeat(1, 2) - last[:, None]) / step[:, None]
    distances, is_power = torch.stack((low, high), -1), is_power.repeat(2)
    words = first.new_tensor(list(NODES.values()))
    off, word = (distances[:, :, None] - words).abs().amax(-1).min(-1)
    fits = off < NEAR
    within = ((distances > -NEAR) & (distances < 1 + NEAR)).all(-1) & is_power
    rank = torch.where(within, WITHIN, NONE)
    # Numbers of the nodes, 0, 1, 2, ..., end at usual lengths by chance.
    counts = ((first == 0) & (step == 1))[:, None]
    rank = torch.where(fits & ~counts, USUAL, rank)
    rank = torch.where(fits & is_power, POWER, rank)
    distances = torch.where(fits[..., None], words[word], distances)
    # No other word fits coordinates that begin half a step behind 0, and ones between -L and L of
    # which the first alone is on a wall.
    centred = (first / step - 0.5).abs() < NEAR
    to_left = ((first + last) / step + 1).abs() < NEAR
    for shown, name in ((centred, "centres"), (to_left, "left")):
        pair = first.new_tensor(NODES[name]).expand(len(first), 1, 2)
        distances = torch.cat((distances, pair), 1)
        rank = torch.cat((rank, torch.where(shown, ONLY, NONE)[:, None]), 1)
    best, index = rank.min(-1)
    distances = distances.gather(1, index[:, None, None].expand(-1, 1, 2))[:, 0]
    # Two that are as good as each other say nothing.
    return distances, torch.where((rank == best[:, None]).sum(-1) == 1, best, NONE)
