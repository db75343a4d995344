"""Boundary conditions: values, and the words that are short for them.

A condition says what a face of the grid adds to a node beside it: a conductance to ground and a
current. That is all a circuit knows of its boundary. A new condition is one class here, with its
word in `CONDITIONS` if it has a default; circuits, cells, blocks and reconstructions take it then.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from chonn_ops.checks import error, is_real

Number = float | Tensor


class Face(NamedTuple):
    """What a condition may depend on: one face of each of some cells.

    Attributes
    ----------
    conductivity : Tensor
        k of the cells.
    area : float or Tensor
        Area of the face.
    distance : float or Tensor
        From the cell's node to the face, > 0; the float 0 for a node on the face.
    step : float or Tensor
        Distance of the nodes along the axis.
    leak : Tensor
        Conductance of the cells' nodes to ground without any boundary.
    """

    conductivity: Tensor
    area: Number
    distance: Number
    step: Number
    leak: Tensor


class Wall(NamedTuple):
    """What a face adds to the node beside it: a conductance to ground and a current into the node.
    None where it adds nothing."""

    conductance: Tensor | None = None
    current: Tensor | None = None

    def plus(self, other: Wall) -> Wall:
        """The sum of both."""
        pairs = zip(self, other, strict=True)
        return Wall(*[b if a is None else a if b is None else a + b for a, b in pairs])

    def each(self, function: Callable[[Tensor], Tensor]) -> Wall:
        """What a function makes of each that is there."""
        return Wall(*[None if x is None else function(x) for x in self])


def series(a: Tensor, b: Tensor, *, zeros: bool = True) -> Tensor:
    """Two conductances in series, 1 / (1/a + 1/b), or 0 where both are 0; `zeros` says whether some
    may be.

    The order of operations forms no product that could overflow, and no derivative is a difference
    of nearly equal numbers: a quotient of the smaller over the larger one has neither.
    """
    # One of both where they are equal: second derivatives of `minimum` would be wrong there.
    first = a.abs() < b.abs() if a.is_complex() or b.is_complex() else a < b
    small, large = torch.where(first, a, b), torch.where(first, b, a)
    if zeros:
        some = large != 0
        small, large = torch.where(some, small, 0), torch.where(some, large, 1)
    return small / (small / large + 1)


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
        c = torch.where(some, leak, 1)
        r = (c + 4 * g).sqrt() / c.sqrt()
        # Re r may be below the rounding of Im r. Then the sign of Im r^2 says which root decays;
        # its two terms have one sign in networks that are passive.
        g0, c0, r0 = g.detach(), c.detach(), r.detach()
        imag = g0.imag * c0.real - g0.real * c0.imag
        outgoing = torch.where(imag == 0, g0.imag >= 0, imag > 0) == (r0.imag >= 0)
        keep = torch.where(r0.imag.abs() > r0.real.abs(), outgoing, r0.real >= 0)
        return torch.where(some, 2 * g / (1 + torch.where(keep, r, -r)), 0)
    some = leak > 0
    c = torch.where(some, leak, 1)
    return torch.where(some, 2 * g * (c / (c + c.sqrt() * (c + 4 * g).sqrt())), 0)


def _number(name: str, value: Any, least: float = -math.inf) -> None:
    """Require a Tensor, or a real number of at least `least`: no NaN, and infinity only where there
    is a `least`, as a conductance or a distance may be infinite and a potential not."""
    number = is_real(value)
    if isinstance(value, Tensor) or (
        number and float(value) >= least and (least > -math.inf or abs(float(value)) < math.inf)
    ):
        return
    kind = "finite" if number and math.isinf(value) else "real"
    expected = f"a {kind} number or a Tensor" + (f" >= {least:g}" if least > -math.inf else "")
    raise error(name, expected, repr(value))


def _times(value: Number, field: Any) -> Any:
    """A number or a tensor times a field; None for the number 0, which adds nothing."""
    return None if not isinstance(value, Tensor) and value == 0 else value * field


# Metadata of conditions' fields whose numbers are real and >= 0.
_NOT_NEGATIVE = {"least": 0.0}


@dataclasses.dataclass(frozen=True, eq=False)
class Condition:
    """A boundary condition. Numbers may be tensors that expand to the face: (B, \\*grid, C) with
    1 along the face's axis.

    Attributes
    ----------
    periodic : bool
        Whether the face is joined to the opposite one.
    inner : bool
        Whether it may hold at faces towards cells that do not exist.
    grounded : bool
        Whether current leaves through the face, so that it bounds the potential.
    padding : str
        What a convolution beside the face pads with, in the words of `torch.nn.Conv2d`.
    """

    periodic: ClassVar[bool] = False
    inner: ClassVar[bool] = True
    grounded: ClassVar[bool] = True
    padding: ClassVar[str] = "zeros"

    def __post_init__(self) -> None:
        for name, value, least in self.numbers():
            _number(name, value, least)

    def numbers(self) -> Iterator[tuple[str, Number, float]]:
        """Name, value and least value of each number."""
        for field in dataclasses.fields(self):
            yield field.name, getattr(self, field.name), field.metadata.get("least", -math.inf)

    def to_mapping(self) -> dict[str, Any]:
        """Its class and its numbers by name, for `from_mapping`."""
        numbers = {name: value for name, value, _ in self.numbers()}
        return {"condition": type(self).__name__, **numbers}

    @staticmethod
    def from_mapping(entries: Mapping[str, Any]) -> Condition:
        """The condition of `to_mapping`; ValueError for a class that is not of this package."""
        known = {x.__name__: x for x in (Neumann, Dirichlet, Robin, Matched, Periodic)}
        if entries["condition"] not in known:
            raise error("condition", f"one of {tuple(known)}", repr(entries["condition"]))
        numbers = {name: value for name, value in entries.items() if name != "condition"}
        return known[entries["condition"]](**numbers)

    def wall(self, face: Face) -> Wall:
        """Return what a face adds to the nodes beside it."""
        del face
        return Wall()


@dataclasses.dataclass(frozen=True, eq=False)
class Neumann(Condition):
    """A given flux through the face, k dv/dn with n the outward normal.

    Parameters
    ----------
    flux : float or Tensor
        Into the domain, per unit area. 0, the default, is an insulated face. It enters cells that
        conduct nothing, too, as a source there does.
    """

    grounded: ClassVar[bool] = False
    # The scan's mirror image repeats the last point (its reverse scan starts there), as "replicate"
    # does at kernel size 3 and "reflect" never does.
    padding: ClassVar[str] = "replicate"

    flux: Number = 0.0

    def wall(self, face: Face) -> Wall:
        # Also into a cell that conducts nothing: there it is a source as any other.
        return Wall(None, _times(self.flux, torch.ones_like(face.conductivity) * face.area))


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

    # The mirror image of a scan has the opposite sign, so the field is 0 half a step outside;
    # PyTorch pads zeros, but no odd mirror images.

    value: Number = 0.0
    distance: Number = dataclasses.field(default=0.0, metadata=_NOT_NEGATIVE)

    def wall(self, face: Face) -> Wall:
        g = face.area / (face.distance + self.distance)
        current = _times(self.value, g)
        k = face.conductivity
        return Wall(k * g, None if current is None else k * current)


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
    distance : float or Tensor
        How far behind the face the film is, as of `Dirichlet`.
    """

    coefficient: Number = dataclasses.field(metadata=_NOT_NEGATIVE)
    value: Number = 0.0
    distance: Number = dataclasses.field(default=0.0, metadata=_NOT_NEGATIVE)

    def wall(self, face: Face) -> Wall:
        k = face.conductivity
        film = torch.as_tensor(self.coefficient, dtype=k.dtype, device=k.device) * face.area
        at_face = not isinstance(self.distance, Tensor) and self.distance == 0
        if at_face and not isinstance(face.distance, Tensor) and face.distance == 0:
            g = film.expand(k.shape)
            return Wall(g, _times(self.value, g))
        cell = Dirichlet(distance=self.distance).wall(face).conductance
        assert cell is not None
        closed = torch.isinf(film)
        g = torch.where(closed, cell, series(cell, torch.where(closed, 1, film).expand(cell.shape)))
        return Wall(g, _times(self.value, g))


@dataclasses.dataclass(frozen=True, eq=False)
class Matched(Condition):
    """An unbounded medium: an endless line of the cell at the face and its leak goes on behind it.
    It reflects nothing of a wave at normal incidence, and conducts nothing where the leak is 0."""

    inner: ClassVar[bool] = False

    def wall(self, face: Face) -> Wall:
        g = face.conductivity * face.area / face.step
        return Wall(endless_line(g, face.leak))


@dataclasses.dataclass(frozen=True, eq=False)
class Periodic(Condition):
    """The face is joined to the opposite one, which must be periodic, too."""

    periodic: ClassVar[bool] = True
    inner: ClassVar[bool] = False
    grounded: ClassVar[bool] = False
    padding: ClassVar[str] = "circular"


# Each word is short for one condition.
CONDITIONS: dict[str, Condition] = {
    "neumann": Neumann(),
    "dirichlet": Dirichlet(),
    "periodic": Periodic(),
    "matched": Matched(),
}
# Cells and blocks take these words; they learn the distance of "robin".
CELL_CONDITIONS: dict[str, Condition] = {**CONDITIONS, "robin": Dirichlet()}
BOUNDARIES = tuple(CELL_CONDITIONS)


def films_of(condition: Condition) -> Condition:
    """A condition without what obeys the law of edges, where these have one."""
    if isinstance(condition, Dirichlet):
        return Neumann()
    if isinstance(condition, Robin) and bool(torch.as_tensor(condition.coefficient).isinf().any()):
        expected = "finite numbers where edges have a law (`Dirichlet` obeys it)"
        raise error("Robin.coefficient", expected, condition.coefficient)
    return condition


def _condition(x: Any) -> Any:
    """A condition by its word, and `Dirichlet` for a film of no resistance."""
    x = CONDITIONS.get(x) if isinstance(x, str) else x
    if isinstance(x, Robin) and not isinstance(x.coefficient, Tensor) and math.isinf(x.coefficient):
        return Dirichlet(x.value, x.distance)
    return x


Boundary = str | Condition | Sequence[str | Condition | tuple[str | Condition, str | Condition]]
Faces = tuple[tuple[Condition, Condition], ...]


def conditions(boundary: Boundary, axes: int) -> Faces:
    """Two conditions an axis, for its low and its high face, from one for all faces, or for each
    axis one or a pair (low face, high face). A ValueError for another word, another number of axes,
    or "periodic" at only one face of an axis."""
    same = _condition(boundary)
    if isinstance(same, Condition):
        return ((same, same),) * axes
    entries = _entries(boundary, axes)
    pairs = [entry if isinstance(entry, (tuple, list)) else (entry, entry) for entry in entries]
    faces: Any = tuple(tuple(map(_condition, pair)) for pair in pairs)
    if len(faces) != axes or any(
        len(pair) != 2 or not all(isinstance(x, Condition) for x in pair) for pair in faces
    ):
        known = f"one of {tuple(CONDITIONS)} or a condition such as Robin(1.0)"
        expected = f"{known}, or {axes} of them or of pairs (low face, high face) of them"
        raise error("boundary", expected, repr(boundary))
    if any(low.periodic != high.periodic for low, high in faces):
        raise error("boundary", "'periodic' at both faces of an axis", repr(boundary))
    return faces


def named_conditions(
    boundary: str | Condition | Mapping[str, str | Condition],
    names: Collection[str],
    *,
    inner: bool = False,
) -> dict[str, Condition]:
    """One condition a named part of the boundary of a mesh, from a mapping of these names; one
    alone is for the part "boundary", which is all of it. With `inner` conditions have to be
    `Condition.inner`. A ValueError for another word, and for the name of no part."""
    each = boundary if isinstance(boundary, Mapping) else {"boundary": boundary}
    walls: dict[str, Condition] = {}
    for name, wall in each.items():
        if name not in names:
            raise error("boundary", f"names of {tuple(names)}", repr(name))
        condition = _condition(wall)
        if not isinstance(condition, Condition) or (inner and not condition.inner):
            words = tuple(word for word, known in CONDITIONS.items() if known.inner or not inner)
            expected = f"one of {words} or a condition like those"
            raise error(f"boundary[{name!r}]", expected, repr(wall))
        walls[name] = condition
    return walls


class NamedWords(dict[str, str]):
    """One word a named wall, as options have them: not to be changed, since it has a hash."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def named_words(boundary: Any) -> NamedWords | None:
    """The words for named walls, from a mapping; None for words of axes."""
    if not isinstance(boundary, Mapping):
        return None
    words = NamedWords(boundary)
    names = all(isinstance(name, str) for name in words)
    if not words or not names or not all(word in BOUNDARIES for word in words.values()):
        raise error("boundary", f"names of walls and words of {BOUNDARIES}", repr(boundary))
    return words


def per_axis(
    boundary: str | Sequence[str], axes: int | None, known: Sequence[str] = BOUNDARIES
) -> tuple[str, ...]:
    """One word an axis, from one for all axes or one each. Without a number of axes, a sequence may
    have any length and a single word gives one entry. A ValueError for a word that the caller does
    not accept (`known`), or another number of words."""
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
