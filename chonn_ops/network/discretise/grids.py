"""Finite volumes on grids: spacings, conductances of faces between cells, and walls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from chonn_ops._dtypes import DTYPES, real_dtype
from chonn_ops.boundary import Dirichlet, Face, Faces, Wall, films_of, series
from chonn_ops.checks import (
    answer,
    check_field,
    check_like,
    check_not_negative,
    check_positive,
    check_tensor,
    error,
    expanded,
    recording,
)
from chonn_ops.network.circuit import Circuit, Extents
from chonn_ops.network.layout import Grid, edges_alone, indices, pad

Spacing = float | Sequence[float]
# A vector has the width of each cell along its axis.
Widths = float | Sequence[float | Tensor | Sequence[float]]
Steps = Sequence[float | Tensor]  # a vector as a factor of fields
Conductivity = Tensor | Sequence[Tensor]  # one for all axes or one an axis
# Where nodes lie beside walls, in steps: in the middles of cells.
HALF = ((0.5, 0.5),) * 3


def spacings(spacing: Spacing, axes: int, name: str = "spacing") -> list[float]:
    """One length an axis, from one for all axes or one each."""
    same = isinstance(spacing, (Real, torch.SymFloat))
    steps: Any = (spacing,) * axes if same else spacing
    try:
        steps = [_length(step) for step in steps]
    except (TypeError, ValueError, RuntimeError):  # neither a number nor numbers
        steps = []
    known = [step for step in steps if not isinstance(step, Tensor)]
    if len(steps) != axes or not all(0 < step < math.inf for step in known):
        raise error(name, f"a number > 0, or {axes} of them", repr(spacing))
    return steps


def _length(step: Any) -> Any:
    """A float. What cannot be read stays as it is: a symbol of a grid whose size is free, as in
    `torch.export`, or a tensor under a compiler, a transform or the recording of a CUDA graph."""
    if isinstance(step, bool):
        raise TypeError
    if isinstance(step, torch.SymFloat):
        return step
    if isinstance(step, Tensor) and step.numel() == 1:
        if torch.compiler.is_compiling() or recording(step):
            return step
        try:
            return float(step.detach())
        except RuntimeError:
            return step
    return float(step)


def widths(spacing: Any, k: Tensor) -> Steps:
    """One length an axis, or the widths of its cells in a shape that broadcasts with fields."""
    grid = k.shape[1:-1]
    if not isinstance(spacing, (tuple, list)) or len(spacing) != len(grid):
        return spacings(spacing, len(grid))
    vectors: dict[int, Tensor] = {}
    for axis, entry in enumerate(spacing):
        # Compilers do not know whether a number that they trace has dimensions.
        is_vector = isinstance(entry, (tuple, list))
        if isinstance(entry, (int, float)) or (not is_vector and getattr(entry, "ndim", 0) == 0):
            continue
        width = torch.as_tensor(entry, dtype=k.dtype, device=k.device)
        if width.shape != (grid[axis],):
            expected = f"a number, or the width of each of {grid[axis]} cells"
            raise error(f"spacing[{axis}]", expected, f"shape {tuple(width.shape)}")
        check_positive(f"spacing[{axis}]", width)
        vectors[axis] = width.reshape([-1] + [1] * (len(grid) - axis))
    numbers = spacings([1.0 if axis in vectors else x for axis, x in enumerate(spacing)], len(grid))
    return [vectors.get(axis, number) for axis, number in enumerate(numbers)]


def step_at(step: float | Tensor, node: int) -> float | Tensor:
    """The width of a cell."""
    return step[node].flatten() if isinstance(step, Tensor) and step.dim() else step


def mask_of_fields(mask: Tensor | None, conductivity: Tensor) -> Tensor | None:
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


def masked_conductivity(
    conductivity: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor | None, float | None]:
    """The conductivity in float32 or wider, 0 at missing nodes; the mask; and the smallest
    conductivity, None where it may not be read."""
    check_field("conductivity", conductivity)
    mask = mask_of_fields(mask, conductivity)
    wide = torch.promote_types(conductivity.dtype, torch.float32)
    k = conductivity.to(wide)
    k = k if mask is None else torch.where(mask, k, 0)
    return k, mask, check_not_negative("conductivity", k)


def face_area(steps: Steps, axis: int) -> Any:
    """Area of the face between two cells along an axis; a Tensor where widths vary across it."""
    area: Any = 1.0
    for other, step in enumerate(steps):
        area = area if other == axis else area * step
    return area


def _per_axis(k: Conductivity, axes: int) -> list[Tensor]:
    return [k] * axes if isinstance(k, Tensor) else list(k)


def edges(
    k: Conductivity, steps: Steps, periodic: list[bool], *, zeros: bool = True
) -> list[Tensor]:
    r"""Conductances between nodes: half of one cell in series with half of the other.

    .. math::

        g_{pq} = \frac{2 k_p k_q}{k_p + k_q} \, \frac{|F_{pq}|}{h}

    with the area :math:`|F_{pq}|` of the face between two cells and the distance h of their nodes;
    where widths vary, with k over the width for k / h. `zeros` says whether some k may be 0.
    """
    conductances: list[Tensor] = []
    for axis, (half, step) in enumerate(zip(_per_axis(k, len(steps)), steps, strict=True)):
        if isinstance(step, Tensor) and step.dim():
            half, step, zeros = half / step, 1.0, True  # which rounding may make
        dim, n = axis + 1, half.shape[axis + 1]
        # Programs that are compiled would exclude grids of which n - 1 is 1.
        if periodic[axis] or torch.compiler.is_compiling():
            g = series(half, half.roll(-1, dim), zeros=zeros)
            g = edges_alone(g, axis, periodic[axis])
        else:
            low, high = half.narrow(dim, 0, n - 1), half.narrow(dim, 1, n - 1)
            g = pad(series(low, high, zeros=zeros), axis, 0, 1)
        conductances.append(g * (2 * face_area(steps, axis) / step))
    return conductances


def blended_edges(k: Tensor, steps: list[float], arithmetic: Tensor) -> list[Tensor]:
    """Conductances of faces that blend the arithmetic and the harmonic mean of k > 0; the last
    entry along an axis joins the last node and the first.

    `arithmetic` (C,), between 0 and 1, is the weight of the arithmetic mean.
    """
    resistivity, of_harmonic = torch.reciprocal(k), torch.rsub(arithmetic, 2, alpha=2)
    conductances: list[Tensor] = []
    for axis, step in enumerate(steps):
        scale = face_area(steps, axis) / step
        mean, harmonic = 0.5 * scale * arithmetic, scale * of_harmonic
        both, in_series = (x + x.roll(-1, axis + 1) for x in (k, resistivity))
        conductances.append(torch.addcmul(mean * both, harmonic, in_series.reciprocal()))
    return conductances


def edges_within(edges: Sequence[Tensor], exists: Tensor) -> list[Tensor]:
    """Edges between nodes that exist, and 0 for others; the last entry along an axis joins the last
    node and the first. `exists` broadcasts with the nodes."""
    return [
        torch.where(exists & exists.roll(-1, axis), edge, 0) for axis, edge in enumerate(edges, 1)
    ]


def _missing_neighbours(exists: Tensor, axis: int, periodic: bool) -> Iterator[Tensor]:
    """Which nodes that exist have a neighbour on the grid that does not, at their low and at their
    high face of an axis."""
    dim, n = axis + 1, exists.shape[axis + 1]
    at = indices(exists, axis)
    for shift, last in ((1, 0), (-1, n - 1)):
        beside = exists & ~exists.roll(shift, dim)
        yield beside if periodic else beside & (at != last)


def check_conditions(faces: Faces, k: Tensor, *, inner: bool = False) -> None:
    """Check the tensors in conditions at the faces of the grid, or at inner faces of all cells:
    devices, shapes, and signs where they may be read."""
    each = ((axis, x) for axis, pair in enumerate(faces) for x in dict.fromkeys(pair))
    for axis, condition in each:
        for field, value, least in condition.numbers():
            if isinstance(value, Tensor):
                name = f"{type(condition).__name__}.{field}"
                expanded(name, value, k if inner else k.narrow(axis + 1, 0, 1))
                if least == 0:
                    if value.is_complex():
                        raise error(name, "real numbers", value.dtype)
                    check_not_negative(name, value)


def _ends(field: Tensor, axis: int, n: int) -> Sequence[Tensor]:
    """The first of n nodes along an axis and the last, and those between if there are any, but in
    an exported program, which would then refuse three nodes."""
    if n == 1 or torch.compiler.is_compiling():
        return field.narrow(axis + 1, 0, 1), field.narrow(axis + 1, n - 1, 1)
    return field.split_with_sizes((1, n - 2, 1), axis + 1)


def _at_ends(
    nodes: Sequence[Tensor], n: int, axis: int, low: Tensor | None, high: Tensor | None
) -> Tensor | None:
    """Values of the first and of the last of n nodes along an axis, 0 between; None of none."""
    known = low if high is None else high
    if known is None:
        return None
    low = torch.zeros_like(known) if low is None else low
    high = torch.zeros_like(known) if high is None else high
    if len(nodes) == 2:
        return pad(low, axis, 0, n - 1) + pad(high, axis, n - 1, 0)
    return torch.cat((low, torch.zeros_like(nodes[1], dtype=known.dtype), high), axis + 1)


def walls_of(
    k: Conductivity,
    steps: Steps,
    faces: Faces,
    leak: Tensor,
    *,
    exists: Tensor | None = None,
    inner: Faces | None = None,
    distances: Sequence[Sequence[float | Tensor]] = HALF,
) -> Wall:
    """Conductances and currents that all faces add to the nodes, (B, \\*grid, C) each.

    `k` is the conductivity of the cells (B, \\*grid, C), or one an axis, 0 where none exists, and
    `leak` that of their nodes. `faces` has a pair of conditions an axis for the faces of the grid,
    and `inner` one for the low and high faces of cells towards cells that do not exist; `exists`
    broadcasts to the shape of k. `distances` has a pair an axis, in steps: from the low face of the
    grid to the first node, from the last node to the high face. Others are half a step away.
    """
    wall = Wall()
    of_axes = _per_axis(k, len(steps))
    for axis, (k, step, pair) in enumerate(zip(of_axes, steps, faces, strict=True)):
        area = face_area(steps, axis)
        n = k.shape[axis + 1]
        ends: list[Wall] = []
        beside, below = _ends(k, axis, n), _ends(leak, axis, n)
        for i, condition, distance in zip((0, -1), pair, distances[axis], strict=True):
            width = step_at(step, i)
            ends.append(condition.wall(Face(beside[i], area, distance * width, width, below[i])))
        both = zip(*ends, strict=True)
        wall = wall.plus(Wall(*[_at_ends(beside, n, axis, *values) for values in both]))
        if exists is None or inner is None:
            continue
        sides = _missing_neighbours(exists.expand(k.shape), axis, pair[0].periodic)
        for condition, beside in zip(inner[axis], sides, strict=True):
            added = condition.wall(Face(k, area, step / 2, step, leak))
            wall = wall.plus(added.each(lambda x, beside=beside: torch.where(beside, x, 0)))
    return wall if exists is None else wall.each(lambda x: torch.where(exists, x, 0))


def _extents(
    k: Conductivity,
    leak: Tensor,
    steps: Steps,
    faces: Faces,
    exists: Tensor | None = None,
    inner: Faces | None = None,
    distances: Sequence[Sequence[float | Tensor]] = HALF,
) -> Extents:
    """What laws need to know of a circuit with these arguments of `walls_of`."""
    edges, walls = [], []
    media = [x if exists is None else torch.where(exists, x, 0) for x in _per_axis(k, len(steps))]
    for axis, (k, step, pair) in enumerate(zip(media, steps, faces, strict=True)):
        area = face_area(steps, axis)
        if isinstance(step, Tensor) and step.dim():
            edges.append(((step + step.roll(-1, 0)) / 2, area))
        else:
            edges.append((step, area))
        last = k.shape[axis + 1] - 1
        sides: list[Any] = [
            (condition, k.narrow(axis + 1, at, 1), distance * step_at(step, at), None, (axis, at))
            for condition, distance, at in zip(pair, distances[axis], (0, last), strict=True)
        ]
        if exists is not None and inner is not None:
            missing = _missing_neighbours(exists.expand(k.shape), axis, pair[0].periodic)
            for condition, beside in zip(inner[axis], missing, strict=True):
                sides.append((condition, torch.where(beside, k, 0), step / 2, beside, None))
        for condition, conductivity, distance, *place in sides:
            if isinstance(condition, Dirichlet):
                length = distance + condition.distance
                walls.append((conductivity, condition.value, length, area, *place))
    others, inside = (
        tuple((films_of(low), films_of(high)) for low, high in x or ()) for x in (faces, inner)
    )
    beside: Any = {"exists": exists, "inner": inside or None, "distances": distances}
    return Extents(leak, edges, (), walls, walls_of(media, steps, others, leak, **beside))


def circuit_of(
    k: Conductivity,
    edges: Sequence[Tensor],
    leak: Tensor,
    steps: Steps,
    faces: Faces,
    **walls: Any,
) -> Circuit:
    """The circuit of checked fields: edges, leak and the walls of `walls_of`. Nodes that do not
    exist have no volume, so that sources there count for nothing."""
    wall = walls_of(k, steps, faces, leak, **walls)
    total = leak if wall.conductance is None else leak + wall.conductance
    grid = Grid(total.shape[1:-1], [low.periodic for low, _ in faces])
    volume: Any = math.prod(steps)
    if (exists := walls.get("exists")) is not None:
        volume = volume * exists.to(real_dtype(total.dtype))
    circuit = Circuit(
        edges, total, grid, volume=volume, wall=wall.conductance, current=wall.current
    )
    if not torch.compiler.is_compiling():
        circuit.extents = partial(_extents, k, leak, steps, faces, **walls)
    return circuit


def check_tensors(name: str, k: Tensor) -> None:
    """Refuse tensors (..., d, d) that are not symmetric or have a negative eigenvalue, where values
    may be read; a NaN passes."""
    k = k.detach()

    def first() -> list[list[int]]:
        most = 1e-5 * k.diagonal(dim1=-2, dim2=-1).sum(-1)
        wrong = ((k - k.mT).abs() > most[..., None, None]).flatten(-2).any(-1)
        least = torch.linalg.eigvalsh(k.nan_to_num(0, 0, 0))[..., 0]
        return (wrong | (least < -most)).nonzero()[:1].tolist()

    if places := answer(first, k):
        at = tuple(places[0])
        raise error(name, "symmetric positive semidefinite tensors", f"{k[at].tolist()} at {at}")


def density_of(
    name: str, value: Tensor | float, k: Tensor, dtypes: Sequence[torch.dtype] = DTYPES
) -> Tensor:
    """A number or a Tensor as a field of the shape of k, in its precision or wider; >= 0 where it
    is real."""
    field = expanded(name, value, k, dtype=k.dtype)
    check_like(name, field, k, "the conductivity", dtypes)
    if not isinstance(value, Tensor):
        if value < 0:
            raise error(name, ">= 0 everywhere", f"minimum {value:g}")
    elif not field.is_complex():
        check_not_negative(name, field)
    return field
