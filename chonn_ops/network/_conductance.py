"""Finite volumes: what a conductivity makes the edges and walls of a network conduct."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from chonn_ops import _ends
from chonn_ops.network._checks import ENDS, check_field, check_tensor, error
from chonn_ops.network._ends import series

Spacing = float | Sequence[float]


def spacings(spacing: Spacing, axes: int, name: str = "spacing") -> list[float]:
    """A length an axis, of one for all axes or of one each."""
    steps = (spacing,) * axes if isinstance(spacing, (int, float)) else tuple(spacing)
    if len(steps) != axes or not all(0 < step < math.inf for step in steps):
        raise error(name, f"a number > 0, or {axes} of them", repr(spacing))
    return [float(step) for step in steps]


def _mask_of_fields(mask: Tensor | None, conductivity: Tensor) -> Tensor | None:
    """A mask that broadcasts with (B, \\*grid, C)."""
    if mask is None:
        return None
    check_tensor("mask", mask)
    shape = tuple(conductivity.shape)
    if mask.dtype != torch.bool:
        raise error("mask", "dtype torch.bool, True where a node exists", mask.dtype)
    if mask.device != conductivity.device:
        raise error("mask", f"device {conductivity.device}, as the conductivity", mask.device)
    full = mask[None, ..., None] if mask.dim() == len(shape) - 2 else mask
    if full.dim() != len(shape) or any(
        m not in (1, n) for m, n in zip(full.shape, shape, strict=True)
    ):
        expected = f"shape (*grid) = {shape[1:-1]}, or one that broadcasts to {shape}"
        raise error("mask", expected, tuple(mask.shape))
    return full


def _existing(conductivity: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Conductivity, 0 where no node is, in float32 or wider, and the mask."""
    check_field("conductivity", conductivity)
    mask = _mask_of_fields(mask, conductivity)
    wide = torch.promote_types(conductivity.dtype, torch.float32)
    k = conductivity.to(wide)
    return (k if mask is None else torch.where(mask, k, 0)), mask


def face_area(steps: list[float], axis: int) -> float:
    """Area of the face between two cells along an axis; TorchScript knows it."""
    area = 1.0
    for other, step in enumerate(steps):
        area *= 1.0 if other == axis else step
    return area


def _index(field: Tensor, axis: int) -> Tensor:
    """Places along a grid axis, to broadcast with the field; TorchScript knows it."""
    n = field.shape[axis + 1]
    return torch.arange(n, device=field.device).reshape([n] + [1] * (field.dim() - axis - 2))


def edge_conductance(
    conductivity: Tensor,
    spacing: Spacing = 1.0,
    *,
    mask: Tensor | None = None,
    ends: str | Sequence[str] = "open",
) -> tuple[Tensor, ...]:
    r"""Conductances between the nodes of a grid of cells, for `kirchhoff_network`.

    .. math::

        g_{pq} = \frac{2 k_p k_q}{k_p + k_q} \, \frac{|F_{pq}|}{h}

    with :math:`|F_{pq}|` the area of the face between two cells (the product of the other
    spacings) and h the distance of their centres, the nodes: half a cell of one conductivity in
    series with half a cell of the other, exact for layers. With source and leak times the cell's
    volume, the network is the finite-volume scheme of second order for
    :math:`-\nabla \cdot (k \nabla v) + c \, v = f`.

    Parameters
    ----------
    conductivity : Tensor, shape (B, \*grid, C)
        k >= 0 of each cell, 1 to 3 grid axes; 0 isolates (its gradients are finite).
    spacing : float or sequence of float, one an axis
        Distance h between nodes > 0, in the unit of length.
    mask : Tensor of bool, shape (\*grid), or one that broadcasts to the conductivity's, optional
        Which nodes exist; nothing flows to those that do not. All do by default. Where the
        boundary this makes is at potential 0, add `wall_leak` to the leak.
    ends : {"open", "short", "ring", "matched"} or a sequence of them, one an axis
        The network's: with "ring" the last entry along the axis is the seam edge, from the last
        node to the first; with others it is 0, and belongs to no edge.

    Returns
    -------
    tuple of Tensor, shape (B, \*grid, C)
        One an axis, in the conductivity's dtype; entry p joins node p and the next one along that
        axis. An axis of one node has no edge, and k times area over h as its only entry, which
        gives its ends (`short`, `wall`) half a cell.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype or device of conductivity or mask; spacings not above 0; unknown ends.

    References
    ----------
    S. Patankar, "Numerical Heat Transfer and Fluid Flow" (1980), section 4.2-3; R. Eymard,
    T. Gallouet, R. Herbin, "Finite volume methods" (2000).

    Examples
    --------
    Darcy flow :math:`-\nabla \cdot (k \nabla v) = f` on the unit square, v = 0 at its walls:

    >>> import torch
    >>> from chonn_ops import edge_conductance, kirchhoff_network
    >>> k, f, h = torch.ones(1, 32, 32, 1), torch.ones(1, 32, 32, 1), 1 / 32
    >>> g = edge_conductance(k, h)
    >>> v = kirchhoff_network(f * h**2, g, torch.zeros_like(k), ends="short")
    >>> round(v.max().item(), 3)  # 0.0737 for h -> 0
    0.074
    """
    k, _ = _existing(conductivity, mask)
    axes = k.dim() - 2
    ring = [end == "ring" for end in _ends.of_axes(ends, axes, ENDS)]
    return tuple(g.to(conductivity.dtype) for g in edges(k, spacings(spacing, axes), ring))


def edges(k: Tensor, steps: list[float], ring: list[bool]) -> list[Tensor]:
    """`edge_conductance` of checked arguments; TorchScript knows it."""
    found: list[Tensor] = []
    for axis, step in enumerate(steps):
        g = series(k, k.roll(-1, axis + 1))
        found.append(edges_alone(g, axis, ring[axis]) * (2 * face_area(steps, axis) / step))
    return found


def blended_edges(
    k: Tensor, steps: list[float], ring: list[bool], arithmetic: Tensor
) -> list[Tensor]:
    """`edges` of conductivities above 0 whose faces have so much, 0 to 1, (C,), of the arithmetic
    mean and the rest of the harmonic one; TorchScript knows it."""
    resistivity = torch.reciprocal(k)
    found: list[Tensor] = []
    for axis, step in enumerate(steps):
        n, scale = k.shape[axis + 1], face_area(steps, axis) / step
        harmonic, mean = 2 * scale * (1 - arithmetic), 0.5 * scale * arithmetic
        if not ring[axis] and n > 1:  # the last entry is no edge
            edge = (_index(k, axis) < n - 1).to(k.dtype)
            harmonic, mean = edge * harmonic, edge * mean
        parallel = mean * (k + k.roll(-1, axis + 1))
        in_series = torch.reciprocal(resistivity + resistivity.roll(-1, axis + 1))
        found.append(torch.addcmul(parallel, harmonic, in_series))
    return found


def edges_alone(g: Tensor, axis: int, ring: bool) -> Tensor:
    """0 in the last entry along an axis, which is no edge; but a single node's, and a ring's."""
    n = g.shape[axis + 1]
    if ring or n == 1:
        return g
    return torch.where(_index(g, axis) < n - 1, g, 0)


def end_walls(
    k: Tensor,
    steps: list[float],
    closed: list[bool],
    margin: Tensor | None,
    distances: tuple[float, float] = (0.5, 0.5),
) -> Tensor:
    """`wall_leak` at the ends of the grid's closed axes, which are so many steps from the first and
    the last node, and the margin, (axes, C); TorchScript knows it."""
    total = torch.zeros_like(k)
    for axis, step in enumerate(steps):
        if not closed[axis]:
            continue
        dim, n = axis + 1, k.shape[axis + 1]
        for side, node in enumerate((0, n - 1)):
            face = k.narrow(dim, node, 1) * face_area(steps, axis)
            # A wire has some length, even to a node on its wall.
            length = max(distances[side], 1e-3) * step
            face = face / length if margin is None else face / (length + margin[axis])
            total = total + F.pad(face, [0, 0] * (k.dim() - dim - 1) + [node, n - 1 - node])
    return total


def wall_leak(
    conductivity: Tensor,
    spacing: Spacing = 1.0,
    *,
    mask: Tensor | None = None,
    ends: str | Sequence[str] = "short",
    margin: Tensor | None = None,
) -> Tensor:
    r"""Leak of the nodes beside a boundary at potential 0, whatever the domain's shape.

    Each face of a cell towards a node that does not exist conducts half an edge to ground,
    :math:`2 k_p |F| / h`: a Dirichlet boundary at the face. Add it to the leak::

        g = edge_conductance(k, h, mask=mask)
        v = kirchhoff_network(f * h**2, g, c * h**2 + wall_leak(k, h, mask=mask))

    Parameters
    ----------
    conductivity : Tensor, shape (B, \*grid, C)
        As in `edge_conductance`, as are `spacing` and `mask`.
    ends : {"short", "open", "ring"} or a sequence of them, one an axis
        "short" puts the boundary at the ends of the axis, too: `kirchhoff_network` then gets
        ends="open" for this axis, or they would count twice. (Its own "short" takes the edge next
        to the end for the conductivity there, so a mask must leave that edge.) "open" leaves the
        ends of the grid alone; "ring" has none: the last node is the first one's neighbour.
    margin : Tensor, shape (C,) or (axes, C), optional
        How far behind the face the boundary lies, >= 0, in the unit of the spacing, with the node's
        conductivity up to there: :math:`k_p |F| / (h / 2 + margin)`. 0 by default; infinite is
        "open".

    Returns
    -------
    Tensor, shape (B, \*grid, C)
        In the conductivity's dtype; 0 away from the boundary and where no node exists.

    Raises
    ------
    TypeError, ValueError
        As `edge_conductance`; also for the ends "matched", which no wall is.
    """
    k, mask = _existing(conductivity, mask)
    axes = k.dim() - 2
    steps, words = spacings(spacing, axes), _ends.of_axes(ends, axes, ENDS)
    if "matched" in words:
        raise error("ends", "'short', 'open' or 'ring'", repr(ends))
    if margin is not None:
        check_tensor("margin", margin)
        C = k.shape[-1]
        if margin.shape not in ((C,), (axes, C)):
            expected = f"shape (C,) = {(C,)} or (axes, C) = {(axes, C)}"
            raise error("margin", expected, tuple(margin.shape))
        margin = margin.to(k.dtype).expand(axes, C)
    if mask is None:
        closed = [end == "short" for end in words]
        return end_walls(k, steps, closed, margin).to(conductivity.dtype)
    exists = mask.expand(k.shape)
    total = torch.zeros_like(k)
    for axis, end in enumerate(words):
        dim, n = axis + 1, k.shape[axis + 1]
        faces = torch.zeros_like(k)
        for way, edge in ((1, 0), (-1, n - 1)):
            neighbour = exists.roll(way, dim)
            if end != "ring":
                neighbour = torch.where(_index(k, axis) == edge, end == "open", neighbour)
            faces = faces + (~neighbour).to(k.dtype)
        length = steps[axis] / 2 if margin is None else steps[axis] / 2 + margin[axis]
        total = total + faces * (k * face_area(steps, axis) / length)
    return total.to(conductivity.dtype)
