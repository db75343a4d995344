"""Circuits that discretise -div(k grad v) + c v = f."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops.boundary import CONDITIONS, Boundary, Condition, Faces, conditions
from chonn_ops.checks import answer, check_like, check_unit_interval, error
from chonn_ops.network.circuit import Circuit
from chonn_ops.network.discretise.grids import (
    Conductivity,
    Steps,
    Widths,
    check_conditions,
    circuit_of,
    density_of,
    edges,
    face_area,
    masked_conductivity,
    walls_of,
    widths,
)
from chonn_ops.network.discretise.tensors import tensor_diffusion
from chonn_ops.network.layout import Grid, edges_alone


def diffusion(
    conductivity: Conductivity,
    spacing: Widths = 1.0,
    *,
    boundary: Boundary = "neumann",
    absorption: Tensor | float = 0.0,
    mask: Tensor | None = None,
    inner: str | Condition | None = None,
    arithmetic: float = 0.0,
) -> Circuit:
    r"""The circuit of :math:`-\nabla \cdot (k \nabla v) + c \, v = f` by finite volumes.

    ``diffusion(k, h, boundary="dirichlet").solve(f)`` solves the equation. The scheme is of second
    order on smooth media and exact for layers. Nodes are the centres of the cells; two of them are
    joined through the face between their cells, and a node beside a wall is joined to the wall
    through its own half of a cell.

    Parameters
    ----------
    conductivity : Tensor, shape (B, \*grid, C); or (B, nx, ny, C, 2, 2), symmetric
        k >= 0 of each cell, 1 to 3 grid axes. 0 isolates a cell; the gradient there is that of a
        cell that begins to conduct, see `chonn_ops.network.solve.ground`. A sequence has one
        conductivity an axis, as in layered media. Full tensors are for two axes, without a mask,
        and with `Neumann`, `Dirichlet` at the face and "periodic". They need \|k_xy\| of at most
        k_xx h_y / h_x and k_yy h_x / h_y, h the spacing, for conductances >= 0; the k_xy of a
        rectangle between four nodes is the mean of its corners'.
    spacing : float, or a sequence of one entry an axis
        Distance h of the nodes > 0, in the unit of length. An entry may be a vector (Tensor, array
        or sequence) of the widths of the cells along the axis, whose centres the nodes are.
    boundary : str, Condition, or a sequence
        What holds at the faces of the grid: one for all, or for each axis one or a pair (low face,
        high face). The words "neumann", "dirichlet", "periodic" and "matched" are short for
        `chonn_ops.boundary`'s `Neumann(0)`, `Dirichlet(0)`, `Periodic()` and `Matched()`; `Robin`
        needs its coefficient. "matched" continues the medium at the face without end.
    absorption : float or Tensor that expands to the shape of the conductivity
        c >= 0, per unit volume.
    mask : Tensor of bool, shape (\*grid), or one that broadcasts to the conductivity's, optional
        Which cells exist; the others have v = 0, and sources there count for nothing. By default
        all exist.
    inner : str or Condition, optional
        With a mask: what holds at faces towards cells that do not exist, holes inside the domain
        included ("neumann", "dirichlet", or a condition other than periodic and matched). Default:
        the boundary of the grid where that is one such condition for all faces; else it has to be
        given.
    arithmetic : float
        Weight of the arithmetic mean of both cells' k in the conductivity of a face, 0 to 1. The
        default 0 is the harmonic mean, which is right where k jumps at the face. Many
        finite-difference codes take 1. With a weight above 0 the conductance of a face jumps as k
        of one side becomes 0, so that there is no derivative at 0.

    Returns
    -------
    Circuit
        Its `solve` takes f per unit volume. In float32, or float64 where conductivity or absorption
        is float64. With tensors it is on the graph of all cells in row-major order: its fields are
        (B, nx ny, C).

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype or device; a negative k at a node that exists, or a negative c (checked
        on the CPU only, because reading values stalls a GPU); spacings not above 0; an unknown
        boundary; a mask whose faces have no condition; a tensor that is not symmetric or has a
        negative eigenvalue (checked on the CPU).

    References
    ----------
    S. Patankar, "Numerical Heat Transfer and Fluid Flow" (1980), section 4.2-3; R. Eymard,
    T. Gallouet, R. Herbin, "Finite volume methods" (2000). "matched" is this package's own.

    Examples
    --------
    Darcy flow on the unit square, v = 0 at its walls:

    >>> import torch
    >>> from chonn_ops import diffusion
    >>> k = f = torch.ones(1, 32, 32, 1)
    >>> v = diffusion(k, 1 / 32, boundary="dirichlet").solve(f)
    >>> round(v.max().item(), 3)  # 0.0737 for h -> 0
    0.074
    """
    if isinstance(conductivity, Tensor) and conductivity.dim() > 5:
        given = (mask is not None, inner is not None, bool(arithmetic))
        if any(given):
            name = ("mask", "inner", "arithmetic")[given.index(True)]
            raise error("mask, inner, arithmetic", "none of them with tensors", name)
        return tensor_diffusion(conductivity, spacing, boundary, absorption)
    media = [conductivity] if isinstance(conductivity, Tensor) else conductivity
    if not isinstance(media, (tuple, list)) or not media:
        kind = type(conductivity).__name__
        raise TypeError(f"conductivity: expected a torch.Tensor, or one an axis, got {kind}")
    parts = [masked_conductivity(part, mask) for part in media]
    (k, exists, _), axes = parts[0], parts[0][0].dim() - 2
    if len(parts) not in (1, axes):
        raise error("conductivity", f"a Tensor, or one for each of {axes} axes", len(parts))
    for i, (other, *_) in enumerate(parts[1:], 1):
        check_like(f"conductivity[{i}]", other, k, "conductivity[0]")
    steps, faces = widths(spacing, k), conditions(boundary, axes)
    inside = None if exists is None else _inner(inner, faces)
    if exists is None and inner is not None:
        raise error("inner", "None without a mask", repr(inner))
    check_conditions(faces, k)
    if inside is not None:
        check_conditions(inside, k, inner=True)
    check_unit_interval(arithmetic=arithmetic)
    for other, *_ in parts:
        k = k.to(torch.promote_types(k.dtype, other.dtype))
    leak = density_of("absorption", absorption, k) * math.prod(steps)
    if exists is not None:
        leak = torch.where(exists, leak, 0)
    media = [part.to(leak.dtype) for part, *_ in parts] * (axes // len(parts))
    closed = [low.periodic for low, _ in faces]
    # A NaN hides zeros.
    positive = all(least is not None and least > 0 for *_, least in parts)
    conductance = edges(media, steps, closed, zeros=not positive)
    if arithmetic:
        conductance = [
            torch.lerp(harmonic, mean, float(arithmetic))
            for harmonic, mean in zip(conductance, _arithmetic(media, steps, closed), strict=True)
        ]
    walls: Any = {"exists": exists, "inner": inside}
    circuit = circuit_of(media, conductance, leak, steps, faces, **walls)
    if not positive:
        zeros = [k == 0 if exists is None else (k == 0) & exists for k in media]
        if answer(lambda: any(bool(zero.any()) for zero in zeros), *media) is not False:
            circuit.rising = partial(_risen, media, steps, faces, leak, walls)
    return circuit


def _risen(
    media: list[Tensor], steps: Steps, faces: Faces, leak: Tensor, walls: dict[str, Any]
) -> Circuit:
    """What a cell of no conductivity adds to the circuit of these fields as its k rises, divided by
    that k, for all such cells."""
    closed = [low.periodic for low, _ in faces]
    media, zero = [k.detach() for k in media], [k.detach() == 0 for k in media]
    least = torch.stack([torch.where(k > 0, k, math.inf).amin() for k in media]).amin()
    small = torch.where(least.isfinite(), least, 1) * 2.0**-30  # beside all others
    risen = [torch.where(none, small, k) for none, k in zip(zero, media, strict=True)]
    pairs = zip(edges(risen, steps, closed), edges(media, steps, closed), zero, strict=True)
    # The edge of two such cells stays 0 as the k of one of them rises.
    rates = [
        torch.where(none & none.roll(-1, axis + 1), 0, (g - before) / small)
        for axis, (g, before, none) in enumerate(pairs)
    ]
    both = (walls_of(x, steps, faces, leak, **walls) for x in (risen, media))
    wall, current = (
        None if after is None or before is None else (after - before) / small
        for after, before in zip(*both, strict=True)
    )
    leak = leak if wall is None else leak + wall
    return Circuit(rates, leak, Grid(leak.shape[1:-1], closed), wall=wall, current=current)


def _arithmetic(k: list[Tensor], steps: Steps, periodic: list[bool]) -> Iterator[Tensor]:
    """Conductances of faces with the arithmetic mean, interpolated where widths vary; 0 beside a
    cell that conducts nothing."""
    for axis, (here, step) in enumerate(zip(k, steps, strict=True)):
        there, far = here.roll(-1, axis + 1), step
        if isinstance(step, Tensor) and step.dim():
            far = step.roll(-1, 0)
        mean = torch.where((here > 0) & (there > 0), (here * far + there * step) / (step + far), 0)
        g = mean * (2 * face_area(steps, axis) / (step + far))
        yield edges_alone(g, axis, periodic[axis])


def _inner(inner: str | Condition | None, faces: Faces) -> Faces:
    """The conditions of faces towards cells that do not exist."""
    if inner is None:
        first = faces[0][0]
        same = all(condition is first for pair in faces for condition in pair)
        if not same or not first.inner:
            raise error(
                "inner",
                "a condition for faces towards missing cells, such as 'neumann' or 'dirichlet', "
                "where the boundary of the grid is not one such condition for all faces",
                None,
            )
        return faces
    condition = CONDITIONS.get(inner) if isinstance(inner, str) else inner
    if not isinstance(condition, Condition) or not condition.inner:
        words = tuple(word for word, condition in CONDITIONS.items() if condition.inner)
        raise error("inner", f"one of {words} or a condition like those", repr(inner))
    return ((condition, condition),) * len(faces)
