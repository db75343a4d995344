"""Ladders and grids: networks on lines, planes and volumes, and endless lines in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from chonn_ops.circuit._cell import DiscreteCell
from chonn_ops.circuit._checks import check_positive, finite_array
from chonn_ops.circuit._network import ResistorNetwork


def grid(
    conductance: Sequence[Any], leak: Any, *, ring: bool | Sequence[bool] = False
) -> ResistorNetwork:
    """The network of a grid, in the layout of `chonn_ops.kirchhoff_network`.

    Parameters
    ----------
    conductance : sequence of array_like, shape (\\*grid)
        One an axis; entry p joins node p and the next one along that axis. The last entry counts
        for a ring alone.
    leak : array_like, shape (\\*grid)
    ring : bool or sequence of bool, one an axis
        Whether the last node of the axis is the first one's neighbour.

    Raises
    ------
    ValueError
        For shapes that do not fit, and what `ResistorNetwork` refuses.
    """
    leak = finite_array("leak", leak)
    closed = [ring] * leak.ndim if isinstance(ring, bool) else list(ring)
    if not len(conductance) == len(closed) == leak.ndim:
        raise ValueError(
            f"conductance, ring: expected one an axis ({leak.ndim}), got {len(conductance)} and "
            f"{len(closed)}"
        )
    nodes = np.arange(leak.size).reshape(leak.shape)
    edges, values = [], []
    for axis, g in enumerate(conductance):
        g = finite_array(f"conductance[{axis}]", g)
        if g.shape != leak.shape:
            raise ValueError(f"conductance[{axis}]: expected shape {leak.shape}, got {g.shape}")
        pairs = np.stack((nodes, np.roll(nodes, -1, axis)), -1)
        count = leak.shape[axis] if closed[axis] and leak.shape[axis] > 1 else leak.shape[axis] - 1
        edges.append(np.take(pairs, range(count), axis).reshape(-1, 2))
        values.append(np.take(g, range(count), axis).ravel())
    return ResistorNetwork(np.concatenate(edges), np.concatenate(values), leak.ravel(), leak.shape)


def ladder(conductance: float, leak: float, nodes: int, *, ring: bool = False) -> ResistorNetwork:
    """A line of equal nodes: `grid` of one axis.

    With conductance tau^2 / h^2 and leak 1, times any number, a ring of 1 / h nodes is the paper's
    (I - tau^2 d_ss) y = x (eq. 40) by second differences.
    """
    return grid([np.full(nodes, conductance)], np.full(nodes, leak), ring=ring)


def length_scale(conductivity: float, leak: float) -> float:
    """sqrt(k / l): how far a potential reaches in a medium of conductivity k and leak density l,
    that is to 1 / e. Infinite without leak."""
    check_positive(conductivity=conductivity)
    if leak == 0:
        return math.inf
    check_positive(leak=leak)
    return math.sqrt(conductivity / leak)


def endless_conductance(conductance: float, leak: float) -> float:
    """What an endless ladder conducts to ground behind its first edge, siemens: the positive root
    of G = g (l + G) / (g + l + G)."""
    check_positive(conductance=conductance)
    if leak == 0:
        return 0.0
    check_positive(leak=leak)
    return 2 * conductance * leak / (leak + math.sqrt(leak) * math.sqrt(leak + 4 * conductance))


def attenuation(conductance: float, leak: float) -> float:
    """Potential of the next node over that of a node of an endless ladder fed behind it: below 1
    where there is a leak."""
    return conductance / (conductance + leak + endless_conductance(conductance, leak))


def ladder_cell(conductance: float, leak: float) -> DiscreteCell:
    """The stage whose scans both ways, added, and the input's own share once, are the potentials
    of an endless ladder: two first-order recursions are one node of second order.

    Its output for an input s is the sum over q <= p of G_pq s_q, G being the ladder's Green's
    function attenuation^|p - q| / (leak + 2 endless_conductance). So v = forth + back - G_pp s.
    """
    own = 1 / (leak + 2 * endless_conductance(conductance, leak))
    return DiscreteCell(attenuation(conductance, leak), own)
