"""Boundary conditions: values, and the words that are short for them.

A condition says what a face of the grid adds to a node beside it: a conductance to ground and a
current. That is all a circuit knows of its boundary. A new condition is one class here, with its
word in `CONDITIONS` if it has a default.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops.checks import error

BOUNDARIES = ("neumann", "dirichlet", "periodic", "matched", "robin")
# Those of circuits with coils or directed edges.
BOUNDED = ("neumann", "dirichlet", "periodic")

Words = str | Sequence[str | tuple[str, str]]

Number = float | Tensor


class Face(NamedTuple):
    """What a condition may depend on: one face of each of some cells.

    Attributes
    ----------
    conductivity : Tensor
        k of the cells.
    area : float
        Of the face.
    distance : float or Tensor
        From the cell's node to the face, > 0.
    step : float
        Distance of the nodes along the axis.
    leak : Tensor
        Conductance of the cells' nodes to ground without any boundary.
    """

    conductivity: Tensor
    area: float
    distance: Number
    step: float
    leak: Tensor


class Wall(NamedTuple):
    """What a face adds to the node beside it: a conductance to ground and a current into the node.
    None where it adds nothing."""

    conductance: Tensor | None = None
    current: Tensor | None = None


def series(a: Tensor, b: Tensor) -> Tensor:
    """Two conductances in series, 1 / (1/a + 1/b), or 0 where both are 0.

    The order of operations forms no product that could overflow, and no derivative is a difference
    of nearly equal numbers: a quotient of the smaller over the larger one has neither.
    """
    # One of both where they are equal: second derivatives of `minimum` would be wrong there.
    first = a.abs() < b.abs() if a.is_complex() or b.is_complex() else a < b
    small, large = torch.where(first, a, b), torch.where(first, b, a)
    some = large != 0
    small = torch.where(some, small, 0)
    return small / (1 + small / torch.where(some, large, 1))


def endless_line(g: Tensor, leak: Tensor) -> Tensor:
    """The input conductance of an endless line with edges g and leaks l.

    It is the positive root of G = g (l + G) / (g + l + G): an edge in series with a leak beside
    the rest of the line. The complex roots belong to waves in both directions. From node to node of
    the line potentials are multiplied by (r - 1) / (r + 1) with r = sqrt(l + 4 g) / sqrt(l); the
    root with Re r > 0 decays. Without loss Re r = 0. Then the root is the one that takes power in,
    and for real conductances the wave that goes out with exp(-i omega t).
    """
    if leak.is_complex():
        some, g = leak != 0, g.to(leak.dtype)
        l = torch.where(some, leak, 1)  # noqa: E741
        r = (l + 4 * g).sqrt() / l.sqrt()
        # Re r may be below the rounding of Im r. Then the sign of Im r^2 says which root decays;
        # its two terms have one sign in networks that are passive.
        g0, l0, r0 = g.detach(), l.detach(), r.detach()
        imag = g0.imag * l0.real - g0.real * l0.imag
        outgoing = torch.where(imag == 0, g0.imag >= 0, imag > 0) == (r0.imag >= 0)
        keep = torch.where(r0.imag.abs() > r0.real.abs(), outgoing, r0.real >= 0)
        return torch.where(some, 2 * g / (1 + torch.where(keep, r, -r)), 0)
    some = leak > 0
    l = torch.where(some, leak, 1)  # noqa: E741
    return torch.where(some, 2 * g * (l / (l + l.sqrt() * (l + 4 * g).sqrt())), 0)


def _number(name: str, value: Any, least: float = -math.inf) -> None:
    """Require a Tensor, or a number of at least `least` that is not NaN."""
    if isinstance(value, Tensor):
        return
    try:
        right = float(value) >= least
    except (TypeError, ValueError):
        right = False
    if not right:
        expected = "a number or a Tensor" + (f" >= {least:g}" if least > -math.inf else "")
        raise error(name, expected, repr(value))


def _times(value: Number, field: Tensor) -> Tensor | None:
    """A number or a tensor times a field; None for the number 0, which adds nothing."""
    return None if not isinstance(value, Tensor) and value == 0 else value * field


# Metadata of conditions' fields whose numbers are real and >= 0.
_NOT_NEGATIVE = {"least": 0.0}


@dataclasses.dataclass(frozen=True, eq=False)
class Condition:
    """A boundary condition. Numbers may be tensors that expand to the face: (B, \\*grid, C) with
    1 along the face's axis."""

    def __post_init__(self) -> None:
        for name, value, least in self.numbers():
            _number(name, value, least)

    def numbers(self) -> Iterator[tuple[str, Number, float]]:
        """Name, value and least value of each number."""
        for field in dataclasses.fields(self):
            yield field.name, getattr(self, field.name), field.metadata.get("least", -math.inf)

    @property
    def periodic(self) -> bool:
        """Whether the face is joined to the opposite one."""
        return False

    def wall(self, face: Face) -> Wall:
        """What a face adds to the nodes beside it."""
        del face
        return Wall()


@dataclasses.dataclass(frozen=True, eq=False)
class Neumann(Condition):
    """A given flux through the face, k dv/dn with n the outward normal.

    Parameters
    ----------
    flux : float or Tensor
        Into the domain, per unit area. 0, the default, is an insulated face.
    """

    flux: Number = 0.0

    def wall(self, face: Face) -> Wall:
        k = face.conductivity
        # No current enters where no cell is.
        return Wall(None, _times(self.flux, (k != 0).to(k.dtype) * face.area))


@dataclasses.dataclass(frozen=True, eq=False)
class Dirichlet(Condition):
    """A given potential at the face: the cell's own conductivity joins its node to it.

    Parameters
    ----------
    value : float or Tensor
        Potential.
    distance : float or Tensor
        How far behind the face the potential is given, >= 0, in the unit of the spacing. The cell's
        conductivity reaches that far.
    """

    value: Number = 0.0
    distance: Number = dataclasses.field(default=0.0, metadata=_NOT_NEGATIVE)

    def wall(self, face: Face) -> Wall:
        g = face.conductivity * face.area / (face.distance + self.distance)
        return Wall(g, _times(self.value, g))


@dataclasses.dataclass(frozen=True, eq=False)
class Robin(Condition):
    """A film between the face and a given potential: -k dv/dn = coefficient (v - value).

    Parameters
    ----------
    coefficient : float or Tensor
        Conductance of the film per unit area, >= 0. 0 is an insulated face; infinity is
        `Dirichlet`.
    value : float or Tensor
        Potential behind the film.
    """

    coefficient: Number = dataclasses.field(metadata=_NOT_NEGATIVE)
    value: Number = 0.0

    def wall(self, face: Face) -> Wall:
        cell = Dirichlet().wall(face).conductance
        assert cell is not None
        film = torch.as_tensor(self.coefficient, dtype=cell.dtype, device=cell.device) * face.area
        closed = torch.isinf(film)
        g = torch.where(closed, cell, series(cell, torch.where(closed, 1, film).expand(cell.shape)))
        return Wall(g, _times(self.value, g))


@dataclasses.dataclass(frozen=True, eq=False)
class Matched(Condition):
    """An unbounded medium: an endless line of the cell at the face and its leak goes on behind it.
    It reflects nothing of a wave at normal incidence, and conducts nothing where the leak is 0."""

    def wall(self, face: Face) -> Wall:
        g = face.conductivity * face.area / face.step
        return Wall(endless_line(g, face.leak))


@dataclasses.dataclass(frozen=True, eq=False)
class Periodic(Condition):
    """The face is joined to the opposite one, which must be periodic, too."""

    @property
    def periodic(self) -> bool:
        return True


# What the words are short for. "robin" has no default; cells and blocks learn its distance.
CONDITIONS = {
    "neumann": Neumann(),
    "dirichlet": Dirichlet(),
    "periodic": Periodic(),
    "matched": Matched(),
}

Boundary = str | Condition | Sequence[str | Condition | tuple[str | Condition, str | Condition]]
Faces = tuple[tuple[Condition, Condition], ...]


def conditions(boundary: Boundary, axes: int, words: Sequence[str] = tuple(CONDITIONS)) -> Faces:
    """Two conditions an axis, for its low and its high face.

    Parameters
    ----------
    boundary : str, Condition, or a sequence
        One for all faces, or for each axis one or a pair (low face, high face).
    axes : int
        Number of axes.
    words : sequence of str
        The words that the caller accepts. Conditions of the classes of other words are refused.

    Raises
    ------
    ValueError
        For another word, another number of axes, or "periodic" at only one face of an axis.
    """
    kinds = tuple(type(CONDITIONS[word]) for word in words)
    kinds += (Robin,) if len(words) == len(CONDITIONS) else ()
    names = ", ".join(kind.__name__ for kind in kinds)

    def condition(entry: Any) -> Condition | None:
        if isinstance(entry, str):
            return CONDITIONS[entry] if entry in words else None
        return entry if isinstance(entry, kinds) else None

    return _pairs(boundary, axes, condition, f"{tuple(words)} or a condition ({names})")


def per_face(
    boundary: Words, axes: int, known: Sequence[str] = BOUNDARIES
) -> tuple[tuple[str, str], ...]:
    """Two words an axis, for its low and its high face; arguments and errors as in `conditions`."""

    def word(entry: Any) -> str | None:
        return entry if isinstance(entry, str) and entry in known else None

    return _pairs(boundary, axes, word, str(tuple(known)))


def per_axis(
    boundary: str | Sequence[str], axes: int | None, known: Sequence[str] = BOUNDARIES
) -> tuple[str, ...]:
    """Normalise boundary conditions to one word an axis.

    Parameters
    ----------
    boundary : str or sequence of str
        One word for all axes, or one for each axis.
    axes : int or None
        Number of axes. With None, a sequence may have any length and a single word gives one entry.
    known : sequence of str
        The words that the caller accepts.

    Raises
    ------
    ValueError
        For another word, or another number of words.
    """
    words = _entries(boundary, axes or 1)
    right = all(isinstance(word, str) and word in known for word in words)
    if len(words) != (axes or max(len(words), 1)) or not right:
        count = "several" if axes is None else axes
        raise error("boundary", f"one of {tuple(known)}, or {count} of them", repr(boundary))
    return words


def _entries(boundary: Any, axes: int) -> tuple[Any, ...]:
    """One entry an axis, from one for all or a sequence; none of anything else."""
    if isinstance(boundary, (str, Condition)):
        return (boundary,) * axes
    return tuple(boundary) if isinstance(boundary, Sequence) else ()


def _pairs(
    boundary: Any, axes: int, accepted: Callable[[Any], Any], known: str
) -> tuple[tuple[Any, Any], ...]:
    """Two faces an axis, as `accepted` returns them; it returns None for what is refused."""
    entries = (
        tuple(entry) if isinstance(entry, (tuple, list)) else (entry, entry)
        for entry in _entries(boundary, axes)
    )
    faces: Any = tuple(tuple(map(accepted, pair)) for pair in entries)
    if len(faces) != axes or any(len(pair) != 2 or None in pair for pair in faces):
        expected = f"one of {known}, or {axes} of them or of pairs (low face, high face) of them"
        raise error("boundary", expected, repr(boundary))
    for pair in faces:
        low, high = (
            face == "periodic" if isinstance(face, str) else face.periodic for face in pair
        )
        if low != high:
            raise error("boundary", "'periodic' at both faces of an axis", repr(boundary))
    return faces
