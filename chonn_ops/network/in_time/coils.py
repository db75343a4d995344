"""The edges of LC networks: their currents, ends and inductances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from chonn_ops import _ends
from chonn_ops.network._checks import BOUNDED_ENDS, check_field
from chonn_ops.network._conductance import Spacing, edge_conductance, face_area, spacings
from chonn_ops.network._edges import pad

# Edges of an axis with n nodes, less n.
_EDGES = {"open": -1, "ring": 0, "short": 1}


class LCState(NamedTuple):
    """The state of an LC network.

    Attributes
    ----------
    voltage : Tensor, shape (B, \\*grid, C)
        Potential of each node.
    current : tuple of Tensor, one an axis
        Current of each edge towards the next node; shape (B, \\*grid, C) but for the axis itself,
        which has as many entries as edges: n - 1 with the ends "open"; n with "ring", the last
        edge closing it; n + 1 with "short", from ground to the first node and from the last node
        to ground, too.
    """

    voltage: Tensor
    current: tuple[Tensor, ...]


def edge_shape(field: Tensor, axis: int, end: str) -> tuple[int, ...]:
    """Of the edges along an axis, for nodes of the field's shape (B, \\*grid, C)."""
    shape = list(field.shape)
    shape[axis + 1] += _EDGES[end]
    return tuple(shape)


def as_network(g: Tensor, axis: int, end: str) -> tuple[Tensor, Tensor | None]:
    """Conductances of edges in the layout of `kirchhoff_network`, and what ends add to leaks."""
    dim, n = axis + 1, g.shape[axis + 1]
    if end == "ring":
        return g, None
    if end == "open":
        return pad(g, axis, 0, 1), None
    nodes = n - 1
    ground = pad(g.narrow(dim, 0, 1), axis, 0, nodes - 1)
    ground = ground + pad(g.narrow(dim, n - 1, 1), axis, nodes - 1, 0)
    return g.narrow(dim, 1, nodes), ground


def inductance_of(g: Tensor) -> Tensor:
    """1 / g; infinite, with finite gradients, where g is 0."""
    some = g > 0
    return torch.where(some, torch.where(some, g, 1).reciprocal(), torch.inf)


def zero_current(voltage: Tensor, ends: str | Sequence[str] = "open") -> LCState:
    """A state without currents.

    Parameters
    ----------
    voltage : Tensor, shape (B, \\*grid, C)
    ends : {"open", "short", "ring"} or a sequence of them, one an axis

    Raises
    ------
    TypeError, ValueError
        For another voltage than `lc_step` takes, or unknown ends.
    """
    check_field("voltage", voltage)
    words = _ends.of_axes(ends, voltage.dim() - 2, BOUNDED_ENDS)
    shapes = [edge_shape(voltage, axis, word) for axis, word in enumerate(words)]
    return LCState(voltage, tuple(voltage.new_zeros(shape) for shape in shapes))


def edge_inductance(
    conductivity: Tensor, spacing: Spacing = 1.0, *, ends: str | Sequence[str] = "open"
) -> tuple[Tensor, ...]:
    r"""Inductances of the edges of a grid of cells, for `lc_step`: 1 over `edge_conductance`.

    Parameters
    ----------
    conductivity : Tensor, shape (B, \*grid, C)
        k > 0 of each cell, 1 to 3 grid axes: c times the square of the waves' speed. 0 isolates.
    spacing : float or sequence of float, one an axis
        Distance of the nodes > 0.
    ends : {"open", "short", "ring"} or a sequence of them, one an axis
        With "short" half a cell from the nodes there to ground.

    Returns
    -------
    tuple of Tensor, one an axis
        One entry an edge, see `LCState`.

    Raises
    ------
    TypeError, ValueError
        As `edge_conductance`; also for other ends.
    """
    check_field("conductivity", conductivity)
    words = _ends.of_axes(ends, conductivity.dim() - 2, BOUNDED_ENDS)
    steps = spacings(spacing, len(words))
    rings = ["ring" if word == "ring" else "open" for word in words]
    found = []
    for axis, (g, word) in enumerate(
        zip(edge_conductance(conductivity, spacing, ends=rings), words, strict=True)
    ):
        dim, n = axis + 1, g.shape[axis + 1]
        if word == "open":
            g = g.narrow(dim, 0, n - 1)
        elif word == "short":
            scale = 2 * face_area(steps, axis) / steps[axis]
            low, high = (scale * conductivity.narrow(dim, at, 1) for at in (0, n - 1))
            g = torch.cat((low, g.narrow(dim, 0, n - 1), high), dim)
        found.append(inductance_of(g))
    return tuple(found)
