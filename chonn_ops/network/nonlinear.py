r"""`NonlinearCircuit`: circuits whose elements have laws, solved by linear circuits.

Elements are edges, leaks and walls. With the drop of an element over its length, E, and the flux
density J = i / area, its law is J = phi(E) or, for laws whose slope may be infinite, E = rho(J).

Newton's method in wave variables. Each element has a point (E, J) of its own on the curve of its
law and the slope G of the law there. One step solves the linear circuit of these tangents, which
gives each element a drop E' and a current J' = J + G (E' - E) that are not on its curve. The next
point is the one with the same incident wave, :math:`J'' + G E'' = J' + G E'`. With a fixed G this
is the splitting of Peaceman and Rachford [1]_, a wave digital filter [2]_, which no steepness of a
law makes diverge: where a law is exponential the current moves, where it is flat the drop does.
Because G is the slope, the wave that a law reflects does not depend on the incident one to first
order, and the last steps converge quadratically, as Newton's.

That holds for waves of any impedance R, as points of tangents are those of laws to second order. If
R is the conductance of the rest of the circuit, a step solves a circuit with one law exactly: where
the law's current matters little, the drop is the tangent's, and else the current is. R is here the
conductance that an element sees if the nodes beyond its own were ground, which is too large, so it
is used to raise R above G, up to a factor of 10. Laws whose inverse is given are of the dual kind,
and R is lowered for them.

Derivatives are those of the equations at the solution: one solve with the slopes there, which is
differentiable itself because potentials and points of the solution are outputs that have
derivatives, too.

References
----------
.. [1] P. L. Lions, B. Mercier, "Splitting algorithms for the sum of two nonlinear operators", SIAM
   J. Numer. Anal. 16 (1979).
.. [2] A. Fettweis, "Wave digital filters: theory and practice", Proceedings of the IEEE 74 (1986).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from chonn_ops._dtypes import widened, without_autocast
from chonn_ops._in_graph import uncompiled
from chonn_ops._pytorch import at_lower_levels
from chonn_ops.checks import (
    any_complex,
    check_choice,
    check_integer,
    check_like,
    check_not_negative,
    check_open_unit_interval,
    check_sources,
    error,
)
from chonn_ops.network.circuit import Circuit, NetworkInfo
from chonn_ops.network.discretise.tensors import times
from chonn_ops.network.laws import Law, Ohm, split, takes_any, tangent_of
from chonn_ops.network.layout import Grid, pad
from chonn_ops.network.layout.graph import Graph
from chonn_ops.network.solve.autograd import solve_network
from chonn_ops.network.solve.ground import (
    Ungrounded,
    check_sources_have_ground,
    labels_of,
    lost_networks,
    without,
)
from chonn_ops.network.solve.methods import Direct, Networks, Solver, options_of
from chonn_ops.network.solve.operator import forced_backend

# Type checkers believe that it returns two tuples.
vjp: Any = torch.func.vjp
# Slopes are kept between the reciprocals of this: a law may be flat or vertical at a point.
_STEEPEST = 1e100
_FIELDS = ("exists", "k", "length", "area")
# A point on a curve is found to this part of the wave; the last steps need no search.
_WAVE, _SEARCH = 0.05, 60
# An eighth of the batch, if it is done, leaves it.
_LEAVE = 8
# How far impedances of waves may be from those of elements, towards those of the rest of the
# circuit; by what factor slopes change at most a step; and what part of the change of waves is
# taken. Of networks that are not near their solution after `_PATIENCE` steps these are `_LATE`: the
# splitting of Douglas and Rachford converges where the other one cycles.
_LIMITS, _LATE = (10.0, 1e3, 1.0), (1.0, 5.0, 0.6)
_PATIENCE, _NEAR = 15, 1e-3
_WIDEST = 4.0  # log2 of the most that a wave moves an element, over its tangent
# Drops below this part of the largest potential are as good as none: rounding of the potentials of
# a step leaves 1e-4 of them.
_SHORT = 1e-12

_HELD = (
    "tensors that need a gradient as arguments of a functools.partial, or in the fields of a "
    "dataclass or the parameters of a module"
)


class _Elements(NamedTuple):
    """Elements of one law: an axis of edges, leaks, or walls. Fields broadcast with drops."""

    law: Law
    inverse: bool
    axis: int | None  # of edges; None for elements to ground
    # Of elements to ground: the nodes at an index of an axis, or None for all; of cells: the mesh.
    place: Any
    unit: bool  # whether lengths and areas are 1
    loose: bool  # whether no tensor of the law belongs to elements
    exists: Tensor  # 0 at entries that belong to no element, else 1
    k: Tensor
    length: Tensor
    area: Tensor
    value: Tensor  # the potential that elements to ground lead to

    def __call__(self, x: Tensor) -> Tensor:
        """The current of a drop, or the drop of a current where the law is an inverse, with finite
        derivatives where there is no element."""
        some, (per, times) = self.exists != 0, self.units()
        y = self.law(torch.where(some, x / per, 1), torch.where(some, self.k, 1))
        return torch.where(some, y * times, 0)

    def units(self) -> tuple[Tensor, Tensor]:
        """By what arguments of the law are divided, and its values multiplied."""
        return (self.area, self.length) if self.inverse else (self.length, self.area)

    def conducting(self) -> _Elements:
        """Without those of conductance 0; k is 1 there, so that no law divides by it."""
        some = self.k != 0
        return self._replace(exists=some.to(self.k), k=torch.where(some, self.k, 1))

    def tangent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of `conducting` elements the call, and the derivative of currents with drops. Not in
        forward mode, of which PyTorch has one level."""
        per, times = self.units()
        y, slope = tangent_of(self.law, x if self.unit else x / per, self.k)
        if not self.unit:
            y, slope = y * times, slope * (times / per)
        if not isinstance(self.law, Ohm):  # which may be of either sign
            slope = slope.nan_to_num(_STEEPEST, _STEEPEST, 0).clamp(1 / _STEEPEST, _STEEPEST)
            slope = 1 / slope if self.inverse else slope
        return y * self.exists, slope * self.exists

    def slope(self, x: Tensor) -> Tensor:
        """The derivative of currents with drops at a point, with derivatives."""
        y, back = vjp(self, x)
        slope = back(torch.ones_like(y))[0]
        if self.inverse:
            slope = torch.where(self.k != 0, 1 / slope.clamp(1 / _STEEPEST), 0)
        return slope if isinstance(self.law, Ohm) else slope.clamp(max=_STEEPEST)

    def size(self, x: Tensor) -> Tensor:
        """The lengths of drops or currents."""
        return x.abs()

    def times(self, G: Tensor, drop: Tensor) -> Tensor:
        return G * drop

    def mean(self, G: Tensor) -> Tensor:
        """The slope of a current, whatever its direction is."""
        return G

    def along(self, field: Tensor) -> Tensor:
        """Numbers of elements, in a shape that broadcasts with their drops."""
        return field

    def bound(self, size: Tensor) -> Tensor:
        """What drops of elements to ground are for the sizes of potentials at most."""
        return self.of_nodes(size) + self.value.abs()

    def first(self, drop: Tensor) -> tuple[Tensor, ...]:
        """A point (x, y, G, behind) without current, with the slope of a resistor."""
        G = self.exists * self.k * (self.area / self.length) + 0 * drop
        x = drop if isinstance(self.law, Ohm) else 0 * drop  # resistors are never behind
        y = self.tangent(x)[0]
        return x, y, G, (drop - (y if self.inverse else x)) * self.exists

    def of_nodes(self, field: Tensor) -> Tensor:
        """The numbers of the nodes of elements to ground."""
        return field if self.place is None else field.narrow(self.place[0] + 1, self.place[1], 1)

    def to_nodes(self, field: Tensor, like: Tensor) -> Tensor:
        """Numbers of elements to ground as a field of all nodes."""
        return _of_all(self.place, field, like)

    def moved(
        self,
        point: Sequence[Tensor],
        drop: Tensor,
        impedance: Callable[[], Tensor],
        limits: Sequence[Any],
    ) -> tuple[Tensor, ...]:
        """The point (x, y, G, behind) with the wave of that of the tangent whose drop is further by
        `drop`, and `behind`; with `_LIMITS`."""
        x, y, G, behind = point
        _, change, part, short = limits
        if isinstance(self.law, Ohm):
            x = x + drop + behind
            return x, G * x, G, 0 * behind
        drop = (drop + behind).mul_(self.exists)
        move = part * (drop * G if self.inverse else drop)
        now, slope = self.tangent(x + move)
        off = self.far(x, y, G, move, now, short)
        if bool(off.any()):
            move, now, slope = self.reflected((move, now, slope), x, y, G, impedance(), off)
        rest, x = drop - (now - y if self.inverse else move), x + move
        slope = slope.clamp(G / change, G * change)
        if self.inverse:  # steeper ones make currents of what rounding leaves of potentials
            most = (_largest(x) / short).nan_to_num(_STEEPEST, _STEEPEST)
            slope = slope.minimum(most.clamp(1 / _STEEPEST))
        return x, now, slope, rest

    def far(self, x: Tensor, y: Tensor, G: Tensor, move: Tensor, now: Tensor, short: Any) -> Tensor:
        """Whether the law is off its tangent by a part of the wave in a move from the point (x, y)
        to (x + move, now); of inverses, by more than a drop of `short`."""
        g = 1 / G if self.inverse else G
        off = (now - y).addcmul_(g, move, value=-1).abs_()
        off = off - short if self.inverse else off
        # Below rounding a change cannot be measured, and the tangent is right.
        return off > (move.abs() * (2 * _WAVE)).add_(x.abs(), alpha=2e-14).mul_(g)

    def reflected(
        self, there: Sequence[Tensor], x: Tensor, y: Tensor, G: Tensor, R: Tensor, off: Tensor
    ) -> list[Tensor]:
        """A move, the law there, and its slope: `there`, of the move t along the tangent, and where
        this is `off`, of the root z of y(x + z) - y + r z = (g + r) t, with the impedance R of
        waves; by Newton's method for logarithms, with bisection."""
        # Those that need a search, if the law takes them alone.
        some: Any = off.flatten().nonzero()[:, 0] if self.loose else slice(None)

        def few(field: Tensor) -> Tensor:
            return field.expand_as(off).reshape(-1 if self.loose else off.shape)[some]

        e = self._replace(**{name: few(getattr(self, name)) for name in _FIELDS})
        t, x, y, G, R, off = map(few, (there[0], x, y, G, R, off))
        g, r = (1 / G, 1 / R) if self.inverse else (G, R)
        z = now = slope = t
        at, sign, wanted = torch.zeros_like(t), t.sign(), (g + r) * t.abs()
        # log2(z / t); below the rounding of x the law shows no change.
        low = (x / t * 1e-16).abs().log2_().clamp_(-700, 0)
        high = torch.full_like(t, _WIDEST)
        for count in range(_SEARCH):
            now, slope = e.tangent(x + z)
            wave = ((now - y + r * z) * sign / wanted).nan_to_num_(math.inf, math.inf, 0)
            on = off & ((wave - 1).abs() > _WAVE)
            if count == _SEARCH - 1 or not bool(on.any()):
                break
            low, high = torch.where(wave < 1, at, low), torch.where(wave > 1, at, high)
            rate = (1 / slope if self.inverse else slope) + r
            newton = at - wave.log2() * wave * wanted / (rate * z.abs())
            inside = (newton > low) & (newton < high)
            at = torch.where(on, torch.where(inside, newton, (low + high) / 2), at)
            z = torch.where(on, t * torch.exp2(at), z)
        if not self.loose:
            return [z, now, slope]
        pairs = zip(there, (z, now, slope), strict=True)
        return [a.flatten().index_copy(0, some, b).reshape(a.shape) for a, b in pairs]


class _Cells(_Elements):
    """Cells in which potentials are linear, with one isotropic law, of the gradient's length. Drops
    are gradients (B, M, C, D), currents flux densities times the sizes of cells, and G tensors
    (B, M, C, D, D). `place` is the `Mesh`."""

    @property
    def radial(self) -> _Elements:
        return _Elements._make(self)

    def __call__(self, x: Tensor) -> Tensor:
        length = _length(x)
        return (self.radial(length) / length)[..., None] * x

    def along(self, field: Tensor) -> Tensor:
        return field[..., None]

    def size(self, x: Tensor) -> Tensor:
        return x.norm(dim=-1)

    def times(self, G: Tensor, drop: Tensor) -> Tensor:
        return times(G, drop)

    def mean(self, G: Tensor) -> Tensor:
        return G.diagonal(dim1=-2, dim2=-1).mean(-1)

    def of_nodes(self, field: Tensor) -> Tensor:
        return self.place.gradient(field)

    def bound(self, size: Tensor) -> Tensor:
        gradients = self.place.linear_elements[0].to(size).norm(dim=-1)
        return (size[:, self.place.cells] * gradients[..., None]).sum(2)

    def to_nodes(self, field: Tensor, like: Tensor) -> Tensor:
        """What cells carry out of nodes, or the sum of its sizes."""
        gradients = self.place.linear_elements[0].to(field)
        if field.dim() == like.dim():
            parts = field[:, :, None] * gradients.norm(dim=-1)[..., None]
        else:
            parts = (field[:, :, None] * gradients[:, :, None]).sum(-1)
        nodes = self.place.cells.flatten().to(field.device)
        return torch.zeros_like(like).index_add(1, nodes, parts.flatten(1, 2))

    def tensor(self, unit: Tensor, x: Tensor, y: Tensor, slope: Tensor) -> Tensor:
        """G at a point of the lengths (x, y) in the direction `unit`, with this slope along it."""
        across, slope = (a[..., None, None] for a in (x / y if self.inverse else y / x, slope))
        one = torch.eye(unit.shape[-1], dtype=unit.dtype, device=unit.device)
        outer = unit[..., :, None] * unit[..., None, :]
        return across * (one - outer) + slope * outer

    def slope(self, x: Tensor) -> Tensor:
        length, radial = _length(x), self.radial
        y = torch.where(self.k != 0, radial(length), length)
        G = self.tensor(x / length[..., None], length, y, radial.slope(length))
        return torch.where((self.k != 0)[..., None, None], G, 0)

    def first(self, drop: Tensor) -> tuple[Tensor, ...]:
        one = torch.eye(drop.shape[-1], dtype=drop.dtype, device=drop.device)
        G = (self.exists * self.k * self.area)[..., None, None] * one + 0 * drop[..., None]
        return 0 * drop, 0 * drop, G, drop * self.exists[..., None]

    def moved(
        self,
        point: Sequence[Tensor],
        drop: Tensor,
        impedance: Callable[[], Tensor],
        limits: Sequence[Any],
    ) -> tuple[Tensor, ...]:
        """The law keeps the direction of a wave, and its length is that of one element."""
        x, y, G, behind = point
        _, change, part, _ = limits
        drop = (drop + behind) * self.exists[..., None]
        R, (E, J) = impedance(), (y, x) if self.inverse else (x, y)
        wave = J + self.times(G, drop) + R[..., None] * (E + drop)
        moves, size, least = (self.size(x) > 0)[..., None], self.size(wave), 1 / _STEEPEST
        unit, before = wave / (size + least)[..., None], torch.where(moves, x, wave)
        before = before / (self.size(before) + least)[..., None]
        g = (before * self.times(G, before)).sum(-1) + least
        length, other = self.size(x), self.size(y)
        slope, r, size = (1 / g, 1 / R, size / R) if self.inverse else (g, R, size)
        move = part * ((size - other - r * length) / (slope + r)).maximum(-length / 2)
        now, slope = self.radial.tangent(length + move)
        off = self.far(length, other, g, move, now, 0.0)
        if bool(off.any()):
            there = move, now, slope
            move, now, slope = self.radial.reflected(there, length, other, g, R, off)
        length, slope = length + move, slope.clamp(g / change, g * change)
        G = self.tensor(unit, length + least, now + least, slope) * self.exists[..., None, None]
        a, b = length[..., None] * unit, now[..., None] * unit
        return a, b, G, drop - (b - y if self.inverse else a - x)


class _System(NamedTuple):
    """The equations of some networks: outflow of all currents = source, or v = held value."""

    layout: Grid | Graph
    elements: list[_Elements]
    source: Tensor
    held: Tensor | None
    value: Any
    options: tuple[Any, ...]  # of `Networks`

    def rows(self, some: Tensor) -> _System:
        """Those of some networks of the batch."""
        source = self.source

        def of(field: Any) -> Any:
            whole = isinstance(field, Tensor) and field.dim() == source.dim()
            return field[some] if whole and len(field) == len(source) else field

        elements = [e._make(map(of, e)) for e in self.elements]
        return self._replace(
            elements=elements, source=of(source), held=of(self.held), value=of(self.value)
        )

    def drops(self, v: Tensor) -> list[Tensor]:
        """The drop over all elements."""
        return [f - e.value for e, f in zip(self.elements, self.fields(v), strict=True)]

    def fields(self, v: Tensor) -> list[Tensor]:
        """`drops` without the potentials of walls: linear in v."""
        along = self.layout.drops(v) if self.elements[0].axis is not None else []
        return [e.of_nodes(v) if e.axis is None else along[e.axis] for e in self.elements]

    def outflow(self, currents: Sequence[Tensor], *, sizes: bool = False) -> Tensor:
        """What elements carry out of each node, or the sum of the numbers of its elements;
        transposes `fields`."""
        add = self.layout.sums_at_nodes if sizes else self.layout.outflow
        pairs = list(zip(self.elements, currents, strict=True))
        edges = [i for e, i in pairs if e.axis is not None]
        out = add(edges) if edges else torch.zeros_like(self.source)
        return sum((e.to_nodes(i, out) for e, i in pairs if e.axis is None), out)

    def tangent_outflow(self, G: Sequence[Tensor], drops: Sequence[Tensor]) -> Tensor:
        """What these drops carry out of each node through resistors of the slopes G."""
        each = zip(self.elements, G, drops, strict=True)
        return self.outflow([e.times(g, d) for e, g, d in each])

    def around(self, G: Sequence[Tensor], most: Any) -> list[Tensor]:
        """What conductance elements see of the rest of the circuit, if the nodes beyond those that
        they join were ground, up to a factor of `most` of their own."""
        each = [(e, e.mean(g)) for e, g in zip(self.elements, G, strict=True)]
        total, seen = self.outflow([g for _, g in each], sizes=True), []
        if self.held is not None:
            total = torch.where(self.held, _STEEPEST, total)
        for e, g in each:
            if isinstance(e, _Cells):  # a node has six triangles
                rest = 3 * g
            elif e.axis is None:
                rest = e.of_nodes(total) - g
            else:
                p, q = (x - g for x in self.layout.at_ends(total, e.axis))
                rest = p / (p + q) * q
            bounds = (g / most, g) if e.inverse else (g, g * most)
            seen.append(rest.clamp(*bounds).clamp(1 / _STEEPEST))
        return seen

    def solve(
        self, source: Tensor, conductance: Sequence[Tensor], *, derivative: bool = False
    ) -> Tensor:
        """The linear circuit of these slopes, with 0 at held nodes."""
        pairs = list(zip(self.elements, conductance, strict=True))
        edges = [g for e, g in pairs if e.axis is not None]
        leak = torch.zeros_like(self.source)
        for e, g in pairs:
            if isinstance(e, _Cells):
                edges = [e.place.tensor_conductances(g / e.area[..., None, None])[1]]
            elif e.axis is None:
                leak = leak + e.to_nodes(g, leak)
        if self.held is not None:  # an edge to a held node is a leak
            free = 1 - self.held.to(source)
            ends = (self.layout.at_ends(free, axis) for axis in range(len(edges)))
            inner = [g * p * q for g, (p, q) in zip(edges, ends, strict=True)]
            outer = [g - i for g, i in zip(edges, inner, strict=True)]
            leak = free * (leak + self.layout.sums_at_nodes(outer)) + (1 - free)
            source, edges = source * free, inner
        network = Networks(edges, leak, self.layout, *self.options)
        if derivative:  # what is asked of parts without ground changes nothing
            source = without(source, labels_of(network))
        # A step with a matrix that is not definite is a bad one, which errors show.
        return solve_network(source, network, check=derivative)[0]


def _of_all(place: tuple[int, int] | None, field: Tensor, like: Tensor) -> Tensor:
    """A field of all nodes, 0 but at an index of an axis."""
    if place is None:
        return field
    axis, index = place
    return pad(field, axis, index, like.shape[axis + 1] - 1 - index)


def _length(x: Tensor) -> Tensor:
    """Of vectors, 1 where that is 0, with derivatives."""
    square = x.square().sum(-1)
    return torch.where(square > 0, square, 1).sqrt()


def _largest(field: Tensor) -> Tensor:
    """The largest number of each network, in a shape that broadcasts with its fields."""
    return field.abs().amax(tuple(range(1, field.dim() - 1)), keepdim=True)


def _relative(error: Tensor, size: Tensor, tol: float) -> Tensor:
    """The largest error of each network beside its size, of which `tol` is allowed, and beside the
    largest size of the network, of which rounding is."""
    info = torch.finfo(size.dtype)
    return _largest(error / (size + (_largest(size) * (info.eps / tol) + info.tiny)))


def _of_networks(field: Tensor, other: Tensor) -> Tensor:
    """A number of each network, in a shape that broadcasts with another field."""
    return field[(..., *[None] * (other.dim() - field.dim()))]


class _Points(NamedTuple):
    """Potentials, and for each element its point (x, y), the slope G of its current there, and how
    far its drop is behind that of the potentials."""

    v: Tensor
    of: list[tuple[Tensor, ...]]

    def each(self, function: Callable[..., Tensor], *others: _Points) -> _Points:
        """A function of each field."""
        rows = zip(self.of, *(x.of for x in others), strict=True)
        v = function(self.v, *(x.v for x in others))
        return _Points(v, [tuple(map(function, *row)) for row in rows])

    def errors(self, system: _System, tol: float, peak: Tensor) -> tuple[Tensor, Tensor, _Points]:
        """Backward errors, in a shape that broadcasts with fields; what Kirchhoff's current law
        leaves over at nodes; and the points. Where potentials were much larger before (`peak`),
        their sums of steps have lost digits: there points are as far behind as potentials are."""
        each = list(zip(system.elements, self.of, strict=True))
        currents = [x if e.inverse else y for e, (x, y, *_) in each]
        residual = system.source - system.outflow(currents)
        if system.held is not None:
            residual = torch.where(system.held, 0, residual)
        sizes = [e.size(i) for (e, _), i in zip(each, currents, strict=True)]
        size = system.outflow(sizes, sizes=True).add_(system.source.abs())
        worst = _relative(residual, size, tol)
        if not bool((worst <= tol).any()):  # the rest cannot change that
            return worst, residual, self
        ends, points = system.layout.sums_at_edges(self.v.abs()), []

        def scale(e: _Elements, x: Tensor, y: Tensor) -> Tensor:
            bound = e.bound(self.v.abs()) if e.axis is None else ends[e.axis]
            return e.size(y if e.inverse else x).add_(bound)

        for e, (x, y, _, behind) in each:
            if not isinstance(e.law, Ohm):
                worst = worst.maximum(_relative(e.size(behind), scale(e, x, y), tol))
        rounding = torch.finfo(peak.dtype).eps * peak > tol / 100 * _largest(self.v)
        if not bool((rounding & (worst <= tol)).any()):
            return worst, residual, self
        for (e, (x, y, G, behind)), drop in zip(each, system.drops(self.v), strict=True):
            distance = (drop - (y if e.inverse else x)) * e.along(e.exists)
            lost, most = e.size(distance - behind), scale(e, x, y)
            points.append((x, y, G, torch.where(e.along(lost > tol * most), distance, behind)))
            worst = worst.maximum(_relative(lost, most, tol))
        return worst, residual, _Points(self.v, points)

    def step(self, system: _System, residual: Tensor, limits: Sequence[Any]) -> _Points:
        """One step of Newton's method in wave variables, with `_LIMITS`."""
        _, _, G, behind = zip(*self.of, strict=True)
        dv = system.solve(residual - system.tangent_outflow(G, behind), G)
        seen = cache(lambda: system.around(G, limits[0]))  # which most steps do not need
        each = zip(system.elements, self.of, system.fields(dv), strict=True)
        new = [
            e.moved(point, drop, lambda i=i: seen()[i], limits)
            for i, (e, point, drop) in enumerate(each)
        ]
        return _Points(self.v + dv, new)


def _first(system: _System, start: Tensor | None) -> _Points:
    """Where elements start: without current, with the slopes of resistors, or at the drops of the
    start."""
    v: Tensor = torch.zeros_like(system.source) if start is None else start
    if system.held is not None:
        v = torch.where(system.held, system.value, v)
    each = list(zip(system.elements, system.drops(v), strict=True))
    points = [e.first(drop) for e, drop in each]
    if start is not None:
        # Seen from a rest of the circuit that is a source of voltage, elements have these drops.
        limits = (1.0, _STEEPEST, 1.0, 0.0)
        points = [
            e.moved(p, 0 * drop, partial(torch.mul, e.mean(p[2]), _STEEPEST**0.5), limits)
            for (e, drop), p in zip(each, points, strict=True)
        ]
    return _Points(v, points)


def _newton(
    system: _System, start: Tensor | None, tol: float, max_steps: int
) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    """Potentials, the point of each element (its drop, or current where the law is an inverse),
    backward errors and numbers of steps (B, C)."""
    system = system._replace(elements=[e.conducting() for e in system.elements])
    points, source = _first(system, start), system.source
    # Networks that are done leave the batch, unless tensors of laws may belong to some.
    leave = all(e.loose for e in system.elements)
    v, x = torch.empty_like(source), [torch.empty_like(p[0]) for p in points.of]
    worst = torch.empty_like(_largest(source))
    steps, bad = torch.zeros_like(worst, dtype=torch.int32), torch.zeros_like(worst) != 0
    peak = torch.zeros_like(worst)
    live = torch.arange(len(source), device=source.device)
    for step in range(max_steps + 1):
        peak = peak.maximum(_largest(points.v))
        now, residual, points = points.errors(system, tol, peak)
        bad = bad if step else now.isnan()
        done = ~(now > tol)  # what is not a number stays none
        over = done.flatten(1).all(1) | (step == max_steps)
        if bool(over.all() | (leave & (over.sum() * _LEAVE >= len(over)))):
            which, keep = live[over], ~over
            now = torch.where(bad, math.nan, now.nan_to_num(math.inf))
            worst[which], lost = now[over], ~(now <= tol)
            # Networks that are not solved have no gradient, and slopes that are finite.
            for result, field in zip((v, *x), (points.v, *(p[0] for p in points.of)), strict=True):
                result[which] = torch.where(_of_networks(lost, field), 0, field)[over]
            if bool(over.all()):
                break
            kept = live, now, bad, done, residual, peak
            live, now, bad, done, residual, peak = (a[keep] for a in kept)
            system, points = system.rows(keep), points.each(lambda x, some=keep: x[some])
        steps[live] += (~done).int()
        limits: Sequence[Any] = _LIMITS
        if step >= _PATIENCE:
            pairs = zip(_LATE, _LIMITS, strict=True)
            limits = [torch.where(now > _NEAR, *pair).to(now) for pair in pairs]
        new = points.step(system, residual, (*limits, _SHORT * _largest(points.v)))
        if bool(done.any()):
            new = new.each(lambda x, y, at=done: torch.where(_of_networks(at, x), y, x), points)
        points = new
    return v, x, worst.reshape(len(v), -1), steps.reshape(len(v), -1)


class _Spec(NamedTuple):
    """What a system is made of beside tensors that have derivatives."""

    layout: Grid | Graph
    # The class of elements, what makes their law of tensors, how many these are, and what
    # `_Elements` has before tensors.
    kinds: list[tuple[type[_Elements], Callable[[Sequence[Tensor]], Law], int, tuple[Any, ...]]]
    held: Tensor | None
    options: tuple[Any, ...]

    def system(self, tensors: Sequence[Tensor]) -> _System:
        """`tensors`: source, what held nodes are held at, and of each kind of elements five fields
        and the tensors of the law."""
        source, value, *rest = tensors
        elements: list[_Elements] = []
        for kind, make, count, options in self.kinds:
            law, fields, rest = make(rest[5 : 5 + count]), rest[:5], rest[5 + count :]
            elements.append(kind._make((law, *options, *fields)))
        return _System(self.layout, elements, source, self.held, value, self.options)

    def linearised(self, tensors: Sequence[Tensor], v: Tensor, x: Sequence[Tensor]) -> Any:
        """The system at a solution, its slopes, and the equations as a function of tensors."""
        system = self.system(tensors)
        fixed = system.drops(v)
        # Points of elements without conductance have not been found.
        each = zip(system.elements, x, fixed, strict=True)
        x = [a if e.inverse else torch.where(e.along(e.k) != 0, a, d) for e, a, d in each]
        slopes = [e.slope(a) for e, a in zip(system.elements, x, strict=True)]

        def equations(*tensors: Tensor) -> tuple[Tensor, ...]:
            now = self.system(tensors)
            of_elements, flux = [], []
            points = zip(now.elements, now.drops(v), fixed, x, slopes, strict=True)
            for e, drop, before, point, slope in points:
                if e.inverse:
                    of_elements.append(drop - e(point))
                    flux.append(point + e.times(slope, of_elements[-1]))
                else:
                    of_elements.append(drop)
                    flux.append(e(point + (drop - before)))
            net = now.source - now.outflow(flux)
            net = net if now.held is None else torch.where(now.held, now.value, net)
            return (net, *of_elements)

        return system, slopes, equations


class _Potentials(torch.autograd.Function):
    """The arguments are a `_Spec`, the options of `_newton`, and the tensors of `_Spec.system`.
    Returns potentials, backward errors, steps, and the points of elements."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        spec, options, *tensors = inputs
        with without_autocast(tensors[0]):
            v, x, worst, steps = _newton(spec.system(tensors), *options)
        return (v, worst, steps, *x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.spec, _, *tensors = inputs
        v, worst, steps, *x = output
        ctx.mark_non_differentiable(worst, steps)
        ctx.save_for_backward(*tensors, v, *x)
        ctx.save_for_forward(*tensors, v, *x)
        ctx.parts = slice(len(tensors)), len(tensors), slice(len(tensors) + 1, None)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        tensors, v, x = map(ctx.saved_tensors.__getitem__, ctx.parts)
        system, slopes, equations = ctx.spec.linearised(tensors, v, x)
        each = zip(system.elements, slopes, grads[3:], strict=True)
        of_points = [e.times(g, grad) if e.inverse else grad for e, g, grad in each]
        towards = grads[0] + system.outflow(of_points)
        w = system.solve(towards, slopes, derivative=True)
        if system.held is not None:
            w = torch.where(system.held, 0, w)
            out = system.tangent_outflow(slopes, system.fields(w))
            w = torch.where(system.held, towards - out, w)
        _, back = vjp(equations, *tensors)
        return (None, None, *back((w, *of_points)))

    @staticmethod
    def jvp(ctx: Any, *changes: Any) -> tuple[Any, ...]:
        with at_lower_levels(*ctx.saved_tensors) as saved:
            tensors, v, x = map(saved.__getitem__, ctx.parts)
            system, slopes, equations = ctx.spec.linearised(tensors, v, x)
            pairs = zip(tensors, changes[2:], strict=True)
            tangents = tuple(torch.zeros_like(a) if b is None else b for a, b in pairs)
            values, back = vjp(equations, *tensors)  # linear: its transpose is forward mode
            _, forth = vjp(back, tuple(torch.zeros_like(x) for x in values))
            ((net, *of_elements),) = forth(tangents)
            value = torch.zeros_like(net)
            if system.held is not None:
                value = torch.where(system.held, net, 0)
                net = net - system.tangent_outflow(slopes, system.fields(value))
            dv = system.solve(net, slopes, derivative=True)
            dv = dv if system.held is None else torch.where(system.held, value, dv)
            parts = zip(system.elements, slopes, of_elements, system.fields(dv), strict=True)
            points = (e.times(g, m + d) if e.inverse else m + d for e, g, m, d in parts)
            return (dv, None, None, *points)


class NonlinearCircuit:
    r"""A circuit whose edges and leaks obey laws, increasing functions of the drop.

    .. math::

        \sum_q A_{pq}\, \phi\Bigl(\frac{v_p - v_q}{L_{pq}}; k_{pq}\Bigr) + V_p\, \psi(v_p; c_p)
        = V_p f_p + i_p

    Of a bare circuit lengths L, areas A and volumes V are 1, and k and c its conductances and
    leaks. In a circuit of `diffusion` they are those of its cells, k is the conductivity between
    two cells and c the absorption, so that the equation is
    :math:`-\sum_x \partial_x \phi(\partial_x v; k) + \psi(v; c) = f` along the axes x on every
    grid. `Dirichlet` walls obey the law of edges, through their half of a cell; films (`Robin`) and
    `Matched` walls are resistors. On a mesh of linear elements, ``Mesh(..., elements=True)``, the
    law is isotropic, of the length of the gradient in each cell:
    :math:`-\nabla \cdot (\phi(|\nabla v|; k) \nabla v / |\nabla v|) + \psi(v; c) = f`, for a law
    with :math:`\phi(0) = 0`. On volumes with faces it acts along edges, whose lengths are
    the distances of their nodes: there the answer converges where the law is linear, and else
    depends on the edges' directions. Where nodes were merged, laws have to be in proportion to k
    and, of edges, odd.

    The solution is the minimum of a convex energy. A step solves one linear circuit, and each
    network stops for itself: `chonn_ops.network.nonlinear` has the method. Computed in float64.

    Parameters
    ----------
    circuit : Circuit
        Real. Nodes may be held. An edge or leak of 0 is none, whatever the law is.
    edges, leaks : law
        :math:`\phi` and :math:`\psi`, one of `chonn_ops.network.laws` or any function of that kind.

    Examples
    --------
    The p-Laplacian on the unit square, and a diode in parallel with 1 ohm, fed by 1 A:

    >>> import torch
    >>> from chonn_ops import Circuit, NonlinearCircuit, diffusion
    >>> from chonn_ops.network.laws import Diode, Power
    >>> k = f = torch.ones(1, 32, 32, 1)
    >>> v = NonlinearCircuit(diffusion(k, 1 / 32, boundary="dirichlet"), Power(4)).solve(f)
    >>> one = torch.ones(1, 1, 1)
    >>> diode = lambda d, k: k * d + 1e-9 * torch.expm1(d / 0.02585)
    >>> circuit = NonlinearCircuit(Circuit((0 * one,), one), leaks=diode)
    >>> round(circuit.solve(one).item(), 3)
    0.517
    """

    def __init__(
        self, circuit: Circuit, edges: Law | None = None, leaks: Law | None = None
    ) -> None:
        if not isinstance(circuit, Circuit):
            raise TypeError(f"circuit: expected a Circuit, got {type(circuit).__name__}")
        if any_complex(circuit.leak, circuit.current, *circuit.conductance):
            raise error("circuit", "real conductances, leaks and currents", "complex ones")
        if circuit.current is not None and circuit.current.dim() > circuit.leak.dim():
            raise error("circuit", "one current a node", "one for each of several sources")
        for name, law in (("edges", edges), ("leaks", leaks)):
            if law is not None and not callable(law):
                raise error(name, "a law such as Power(3)", type(law).__name__)
        self.circuit = circuit
        self.edges, self.leaks = edges or Ohm(), leaks or Ohm()

    def solve(
        self,
        source: Tensor,
        solver: Solver | None = None,
        *,
        start: Tensor | None = None,
        tol: float = 1e-10,
        max_steps: int = 100,
        ungrounded: Ungrounded = "error",
        unconverged: Literal["error", "nan"] = "error",
    ) -> Tensor:
        """Solve Kirchhoff's current law, differentiably: the potentials of `solve_with_info`."""
        return self.solve_with_info(
            source,
            solver,
            start=start,
            tol=tol,
            max_steps=max_steps,
            ungrounded=ungrounded,
            unconverged=unconverged,
        )[0]

    @uncompiled
    def solve_with_info(
        self,
        source: Tensor,
        solver: Solver | None = None,
        *,
        start: Tensor | None = None,
        tol: float = 1e-10,
        max_steps: int = 100,
        ungrounded: Ungrounded = "error",
        unconverged: Literal["error", "nan"] = "error",
    ) -> tuple[Tensor, NetworkInfo]:
        """Solve Kirchhoff's current law, differentiably any number of times.

        Gradients flow to the source, to all tensors of the circuit and to the parameters of laws,
        not to `start`. Each costs one solve, with the slopes at the solution: where these are 0 or
        infinite, as those of powers at drops of 0, gradients may be, too. Parts without ground have
        the potential 0, whatever changes: gradients of conductances of 0 beside them are not those
        of `Circuit`, and elements of conductance 0 whose law is an inverse have the gradient 0.
        Forward mode, `torch.func.grad` and `jvp` work; `torch.vmap` over a solve does not: use a
        batch.

        Parameters
        ----------
        source : Tensor, shape (B, \\*grid, C)
            f per unit volume, as in `Circuit.solve`.
        solver : Auto, Direct or Iterative, optional
            Of the linear circuits; by default ``Direct()``.
        start : Tensor, shape (B, \\*grid, C), optional
            Potentials to start from. By default the first step is that of resistors.
        tol : float
            The backward error at which steps stop.
        max_steps : int
            The most steps. Diodes in series open one after another, in about ten steps each.
        ungrounded : {"error", "nan"}
            As in `Circuit.solve`.
        unconverged : {"error", "nan"}
            What networks above `tol` after `max_steps` are: a RuntimeError that names them, or NaN,
            without a gradient.

        Returns
        -------
        Tensor, shape and dtype of `source`
            Potentials. A network with a NaN or an infinity in an input is all NaN.
        NetworkInfo
            `iterations` are steps, each a linear solve. `backward_error` is the least relative
            change of currents, sources and potentials that makes them exact, before they are
            rounded to the dtype of `source`: what Kirchhoff's current law leaves over at a node
            beside the sizes of its currents, or the distance of a drop of potentials from the drop
            of the element, beside the sizes of both potentials. What is below the rounding of the
            network's largest current or potential counts as 0.

        Raises
        ------
        ValueError
            Wrong shape, dtype or device; a law with a tensor that no gradient could find, or that
            does not fit the elements; a law of edges other than Ohm's where edges have no length of
            their own (k is a tensor, the circuit of an equation is merged, a mesh or volumes have
            walls at a distance).
        RuntimeError
            Networks that did not converge, with their backward errors.
        """
        check_choice("unconverged", unconverged, ("error", "nan"))
        check_choice("ungrounded", ungrounded, ("error", "nan"))
        check_open_unit_interval(tol=tol)
        check_integer(1, max_steps=max_steps)
        check_sources("source", source, self.circuit.leak)
        if source.dim() > self.circuit.leak.dim():
            raise error("source", "(B, *grid, C), one source a network", tuple(source.shape))
        if start is not None:
            check_like("start", start, self.circuit.leak, "the circuit")
            start = widened(start.detach())
        current, network = self.circuit.source(source), self.circuit._networks()
        if ungrounded == "nan":
            source = torch.where(lost_networks(current, network), math.nan, source)
        elif (label := labels_of(network)) is not None:
            check_sources_have_ground(current, label)
        spec, tensors = self._system(source, options_of(solver or Direct()))
        results: Any = _Potentials.apply(spec, (start, tol, max_steps), *tensors)
        v, worst, steps = results[:3]
        failed = worst > tol
        if unconverged == "error" and bool(failed.any()):
            raise RuntimeError(_message(failed, worst, tol, max_steps))
        lost = (failed | worst.isnan()).reshape(len(v), *[1] * (v.dim() - 2), v.shape[-1])
        v = torch.where(lost, math.nan, v).to(source.dtype)
        return v, NetworkInfo(
            steps, worst, "newton", "Newton's method: each step solves one linear circuit"
        )

    def _system(
        self, source: Tensor, options: tuple[float, int, str]
    ) -> tuple[_Spec, list[Tensor]]:
        """What the solve needs, in float64."""
        tol, most, method = options
        held, circuit = self.circuit.held, self.circuit.before or self.circuit
        layout, extents = circuit.layout, circuit._extents()
        at: Any = self.circuit.current
        value: Any = 0.0 if held is None else torch.where(held, at, 0)
        if extents.held is not None:
            held = extents.held if held is None else held | extents.held
        kinds: list[Any] = []
        fields: list[Tensor] = []

        def add(
            law: Law,
            k: Tensor,
            axis: int | None,
            *numbers: Any,
            place: Any = None,
            exists: Tensor | None = None,
            kind: type[_Elements] = _Elements,
        ) -> None:
            tensors, make = split(law)
            tensors = [widened(x) for x in tensors]
            # Elements of conductance 0 have derivatives, so that they exist unless it is said.
            there = torch.ones_like(k) if exists is None else exists.to(k)
            inverse = bool(getattr(law, "inverse", False))
            unit = not any(isinstance(x, Tensor) or x != 1 for x in numbers[:2])
            k = widened(k)
            wide = [widened(x) if isinstance(x, Tensor) else k.new_tensor(x) for x in numbers]
            fields.extend((widened(there), k, *wide, *tensors))
            loose = takes_any(make(tensors), k)
            kinds.append((kind, make, len(tensors), (inverse, axis, place, unit, loose)))

        cells, edges, walls = extents.cells, extents.edges, extents.walls
        wall, current = extents.films or (circuit.wall, circuit.current)
        if isinstance(self.edges, Ohm):  # lengths do not matter
            cells, edges, walls = (), [(1.0, 1.0)] * len(circuit.conductance), ()
            wall, current = circuit.wall, circuit.current
        elif not (cells or edges):
            where = "k is a tensor, nodes are merged or walls are at a distance"
            raise error("edges", f"the law of Ohm where {where}", repr(self.edges))
        for mesh, k in cells:
            layout = mesh.sides[0]
            sizes = mesh.linear_elements[1].to(k.device)[:, None]
            add(self.edges, k, None, 1.0, sizes, 0.0, place=mesh, kind=_Cells)
        ones = circuit.layout.edges([torch.ones_like(g) for g in circuit.conductance])
        conductance = circuit.layout.edges(circuit.conductance)
        for axis, (length, area) in enumerate(edges):
            if not isinstance(self.edges, Ohm):
                check_not_negative("conductance of an edge with a law", conductance[axis])
            k = widened(conductance[axis]) * length / area
            add(self.edges, k, axis, length, area, 0.0, exists=ones[axis])
        for k, to, length, area, exists, place in walls:
            add(self.edges, k, None, length, area, to, place=place, exists=exists)
        if wall is not None:
            add(Ohm(), wall, None, 1.0, 1.0, 0.0)
        if not isinstance(self.leaks, Ohm):
            check_not_negative("leak with a law", extents.leak)
        volume = circuit.volume
        if isinstance(volume, Tensor):
            volume = torch.where(volume != 0, volume, 1)
        add(self.leaks, extents.leak / volume, None, 1.0, volume, 0.0)
        s = widened(source) * circuit.volume
        s = s if current is None else s + current
        spec = _Spec(layout, kinds, held, (tol, most, forced_backend(), method))
        tensors = [s, value + torch.zeros_like(s), *fields]
        _check(spec.system([x.detach() for x in tensors]).elements, extents.joined)
        return spec, tensors


def _check(elements: Sequence[_Elements], joined: bool) -> None:
    """Refuse laws that are not those of these elements, or of sums of several."""
    for e in elements:
        one = torch.ones_like(e.k)
        y = e.law(one, e.k)
        if y.requires_grad or unpack_dual(y).tangent is not None:
            raise error("law", _HELD, "one that the function holds")
        if y.shape != one.shape:
            expected = f"numbers of {tuple(one.shape)} elements (walls at potentials are some)"
            raise error("law", expected, tuple(y.shape))
        if not joined:
            continue
        twice = e.law(one + one, 2 * e.k) if e.inverse else e.law(one, 2 * e.k) / 2
        odd = e.axis is None or torch.equal(e.law(-one, e.k), -y)
        if not (odd and torch.allclose(twice, y, 1e-12, 0)):
            expected = "odd laws of edges, in proportion to k, where nodes are merged"
            raise error("law", expected, repr(e.law))


def _message(failed: Tensor, worst: Tensor, tol: float, max_steps: int) -> str:
    names = ", ".join(
        f"{tuple(at)} at {float(worst[tuple(at)]):.1e}" for at in failed.nonzero()[:5].tolist()
    )
    return (
        f"{int(failed.sum())} of {failed.numel()} networks (batch, channel) are above tol = "
        f"{tol:g} after {max_steps} steps: {names}. Give a `start`, more `max_steps` or a larger "
        "`tol`; a law has to increase with the drop; unconverged='nan' makes these networks NaN"
    )
