"""Finite volumes: the conductances of edges and walls that discretise a conductivity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from chonn_ops.boundary import Boundary, is_periodic, per_face
from chonn_ops.checks import check_tensor, error
from chonn_ops.network.checks import BOUNDED, check_field, check_not_negative, traced
from chonn_ops.network.leaks import series

Spacing = float | Sequence[float]


def spacings(spacing: Spacing, axes: int, name: str = "spacing") -> list[float]:
    """One length an axis, from one for all axes or one each."""
    steps: Any = (spacing,) * axes if isinstance(spacing, Real) else spacing
    try:
        # Of a grid whose size is free, as in `torch.export`, they are symbols and remain so, as do
        # tensors whose values may not be read.
        steps = [step if _unread(step) else float(step) for step in steps]
    except (TypeError, ValueError):  # neither a number nor numbers
        steps = []
    known = [step for step in steps if not isinstance(step, Tensor)]
    if len(steps) != axes or not all(0 < step < math.inf for step in known):
        raise error(name, f"a number > 0, or {axes} of them", repr(spacing))
    return steps


def _unread(step: Any) -> bool:
    return isinstance(step, torch.SymFloat) or (isinstance(step, Tensor) and traced(step))


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
    """The conductivity in float32 or wider, 0 at missing nodes, and the mask."""
    check_field("conductivity", conductivity)
    mask = _mask_of_fields(mask, conductivity)
    wide = torch.promote_types(conductivity.dtype, torch.float32)
    k = conductivity.to(wide)
    k = k if mask is None else torch.where(mask, k, 0)
    check_not_negative("conductivity", k)
    return k, mask


def face_area(steps: list[float], axis: int) -> float:
    """Area of the face between two cells along an axis."""
    area = 1.0
    for other, step in enumerate(steps):
        area *= 1.0 if other == axis else step
    return area


def _index(field: Tensor, axis: int) -> Tensor:
    """Indices along a grid axis, in a shape that broadcasts with the field."""
    n = field.shape[axis + 1]
    return torch.arange(n, device=field.device).reshape([n] + [1] * (field.dim() - axis - 2))


def edge_conductance(
    conductivity: Tensor,
    spacing: Spacing = 1.0,
    *,
    mask: Tensor | None = None,
    boundary: Boundary = "neumann",
) -> tuple[Tensor, ...]:
    r"""Conductances between the nodes of a grid of cells, for `kirchhoff_network`.

    .. math::

        g_{pq} = \frac{2 k_p k_q}{k_p + k_q} \, \frac{|F_{pq}|}{h}

    Here :math:`|F_{pq}|` is the area of the face between two cells, the product of the other
    spacings, and h is the distance of the cells' centres, which are the nodes. The edge is half of
    one cell in series with half of the other, which is exact for layers. If source and leak are
    multiplied by the cell's volume, the network is the finite-volume scheme of second order for
    :math:`-\nabla \cdot (k \nabla v) + c \, v = f`.

    Parameters
    ----------
    conductivity : Tensor, shape (B, \*grid, C)
        k >= 0 of each cell, 1 to 3 grid axes; 0 isolates (its gradients are finite).
    spacing : float or sequence of float, one an axis
        Distance h between nodes > 0, in the unit of length.
    mask : Tensor of bool, shape (\*grid), or one that broadcasts to the conductivity's, optional
        Which nodes exist; edges to missing nodes conduct nothing. By default all nodes exist. For
        potential 0 at the boundary that the mask makes, add `wall_leak` to the leak.
    boundary : {"neumann", "dirichlet", "periodic", "matched", "robin"} or a sequence
        That of `kirchhoff_network`: pass the same word to both. With "periodic" the last entry
        along the axis is the edge from the last node to the first; otherwise it is 0, and the axis
        stays open, even with ``boundary="periodic"`` in `kirchhoff_network`.

    Returns
    -------
    tuple of Tensor, shape (B, \*grid, C)
        One tensor an axis, in the conductivity's dtype; entry p joins node p and the next one along
        that axis. An axis of one node has no edge; its only entry is k times the area over h, from
        which `kirchhoff_network` computes "dirichlet" and "robin" faces.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype or device of conductivity or mask; a negative conductivity at a node that
        exists (checked on the CPU only, because reading values stalls a GPU); spacings not above 0;
        an unknown boundary.

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
    >>> v = kirchhoff_network(f * h**2, g, torch.zeros_like(k), boundary="dirichlet")
    >>> round(v.max().item(), 3)  # 0.0737 for h -> 0
    0.074
    """
    k, _ = _existing(conductivity, mask)
    axes = k.dim() - 2
    periodic = is_periodic(per_face(boundary, axes))
    return tuple(g.to(conductivity.dtype) for g in edges(k, spacings(spacing, axes), periodic))


def edges(k: Tensor, steps: list[float], periodic: list[bool]) -> list[Tensor]:
    """`edge_conductance` of checked arguments."""
    found: list[Tensor] = []
    for axis, step in enumerate(steps):
        g = series(k, k.roll(-1, axis + 1))
        found.append(edges_alone(g, axis, periodic[axis]) * (2 * face_area(steps, axis) / step))
    return found


def blended_edges(
    k: Tensor, steps: list[float], periodic: list[bool], arithmetic: Tensor
) -> list[Tensor]:
    """Conductances of faces that blend the arithmetic and the harmonic mean of k > 0.

    `arithmetic` (C,), between 0 and 1, is the weight of the arithmetic mean.
    """
    resistivity = torch.reciprocal(k)
    found: list[Tensor] = []
    for axis, step in enumerate(steps):
        n, scale = k.shape[axis + 1], face_area(steps, axis) / step
        harmonic, mean = 2 * scale * (1 - arithmetic), 0.5 * scale * arithmetic
        if not periodic[axis] and n > 1:  # the last entry is not an edge
            edge = (_index(k, axis) < n - 1).to(k.dtype)
            harmonic, mean = edge * harmonic, edge * mean
        parallel = mean * (k + k.roll(-1, axis + 1))
        in_series = torch.reciprocal(resistivity + resistivity.roll(-1, axis + 1))
        found.append(torch.addcmul(parallel, harmonic, in_series))
    return found


def edges_alone(g: Tensor, axis: int, periodic: bool) -> Tensor:
    """Set the last entry along an axis, which is no edge, to 0, unless periodic or of one node."""
    n = g.shape[axis + 1]
    if periodic or n == 1:
        return g
    return torch.where(_index(g, axis) < n - 1, g, 0)


def end_walls(
    k: Tensor,
    steps: list[float],
    closed: Sequence[tuple[bool, bool]],
    margin: Tensor | None,
    distances: Sequence[float | Tensor] = (0.5, 0.5),
) -> Tensor:
    """`wall_leak` at the closed faces of the grid, low and high of each axis.

    `distances` > 0, in steps, are those from a low face to the first node and from the last node to
    a high face; `margin` is (axes, C).
    """
    total = torch.zeros_like(k)
    for axis, step in enumerate(steps):
        dim, n = axis + 1, k.shape[axis + 1]
        for side, node in enumerate((0, n - 1)):
            if not closed[axis][side]:
                continue
            face = k.narrow(dim, node, 1) * face_area(steps, axis)
            length = distances[side] * step
            face = face / length if margin is None else face / (length + margin[axis])
            total = total + F.pad(face, [0, 0] * (k.dim() - dim - 1) + [node, n - 1 - node])
    return total


def wall_leak(
    conductivity: Tensor,
    spacing: Spacing = 1.0,
    *,
    mask: Tensor | None = None,
    boundary: Boundary = "dirichlet",
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
    boundary : {"dirichlet", "neumann", "periodic"} or a sequence
        As in `kirchhoff_network`. "dirichlet" adds the leak at this face of the grid, too: pass
        "neumann" for it to `kirchhoff_network`, which would add it again. (With "dirichlet" the
        operator takes the conductivity from the edge next to the face, which a mask may have
        removed.) "neumann" adds nothing at the face; "periodic" has no face.
    margin : Tensor, shape (C,) or (axes, C), optional
        Distance >= 0 from the face to the boundary behind it, in the unit of the spacing. The
        node's conductivity extends to the boundary: :math:`k_p |F| / (h / 2 + margin)`. The default
        is 0; an infinite margin is "neumann".

    Returns
    -------
    Tensor, shape (B, \*grid, C)
        In the conductivity's dtype; 0 away from the boundary and where no node exists.

    Raises
    ------
    TypeError, ValueError
        As `edge_conductance`; also for the boundaries "matched" and "robin".
    """
    k, mask = _existing(conductivity, mask)
    axes = k.dim() - 2
    steps, pairs = spacings(spacing, axes), per_face(boundary, axes, BOUNDED)
    if margin is not None:
        check_tensor("margin", margin)
        C = k.shape[-1]
        if margin.shape not in ((C,), (axes, C)):
            expected = f"shape (C,) = {(C,)} or (axes, C) = {(axes, C)}"
            raise error("margin", expected, tuple(margin.shape))
        margin = margin.to(k.dtype).expand(axes, C)
    if mask is None:
        closed = [(low == "dirichlet", high == "dirichlet") for low, high in pairs]
        return end_walls(k, steps, closed, margin).to(conductivity.dtype)
    exists = mask.expand(k.shape)
    total = torch.zeros_like(k)
    for axis, pair in enumerate(pairs):
        dim, n = axis + 1, k.shape[axis + 1]
        faces = torch.zeros_like(k)
        for word, shift, edge in zip(pair, (1, -1), (0, n - 1), strict=True):
            neighbour = exists.roll(shift, dim)
            if word != "periodic":
                neighbour = torch.where(_index(k, axis) == edge, word == "neumann", neighbour)
            faces = faces + (~neighbour).to(k.dtype)
        length = steps[axis] / 2 if margin is None else steps[axis] / 2 + margin[axis]
        total = total + faces * (k * face_area(steps, axis) / length)
    return total.to(conductivity.dtype)
