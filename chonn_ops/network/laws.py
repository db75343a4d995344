r"""Laws of circuits' elements: what current flows at what drop of the potential.

A law is a function of two tensors, ``law(drop, conductance) -> current``, that acts on each element
for itself and increases with the drop; a conductance of 0 is no element. In circuits of an equation
drop and conductance are those of a unit of length and area: a field E in volts per unit of length,
the conductivity k, and the result is a flux density. Any such function will do. Its parameters are
in the fields of a dataclass, the parameters of a `torch.nn.Module`, or the arguments of a
`functools.partial`, so that gradients find them.

A method ``tangent(drop, conductance)`` of a law, which returns it and its slope, saves time.

A law whose slope is infinite at some drop is given by its inverse, ``(current, conductance) ->
drop``, with the attribute ``inverse = True``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.checks import check_integer, error, is_real

Law = Callable[[Tensor, Tensor], Tensor]
Number = float | Tensor


def _per_unit(current: Tensor, k: Tensor) -> Tensor:
    """Current over conductance, 0 where there is no element."""
    some = k != 0
    return torch.where(some, current / torch.where(some, k, 1), 0)


def _power(x: Tensor, exponent: float) -> Tensor:
    """x |x|^exponent for an exponent >= 0, with derivatives of every order that are finite at 0."""
    if exponent == 0:
        return x
    some = x != 0
    return torch.where(some, x * torch.where(some, x, 1).abs() ** exponent, 0)


class _Known:
    """A law that its method `tangent` computes with its slope, and whose fields are above these
    numbers; tensors are not read."""

    _above: ClassVar[tuple[float, ...]] = ()

    def __post_init__(self) -> None:
        for (name, value), least in zip(vars(self).items(), self._above, strict=True):
            known = not isinstance(value, Tensor)
            if known and (not is_real(value) or not least < value < float("inf")):
                raise error(name, f"a number > {least:g}, or a Tensor", repr(value))

    def __call__(self, drop: Tensor, k: Tensor) -> Tensor:
        law: Any = self
        return law.tangent(drop, k)[0]


class Ohm(_Known):
    """i = k d: a resistor."""

    def tangent(self, drop: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return k * drop, k


@dataclasses.dataclass(frozen=True, eq=False)
class Power(_Known):
    r""":math:`i = k |d|^{p-2} d`: the p-Laplacian, Glen's law of ice, turbulent flow in pipes.

    Parameters
    ----------
    p : float
        Above 1. 2 is a resistor. Below 2, where the slope at d = 0 is infinite, the law is computed
        as its inverse; the porous medium's :math:`v^{1/m}` is p = 1 + 1/m.
    """

    _above = (1.0,)
    p: float

    def __post_init__(self) -> None:
        if isinstance(self.p, Tensor):
            raise error("p", "a number (a law of your own may have a Tensor)", "a Tensor")
        super().__post_init__()

    @property
    def inverse(self) -> bool:
        return self.p < 2

    def __call__(self, x: Tensor, k: Tensor) -> Tensor:
        if self.inverse:
            return _power(_per_unit(x, k), (2 - self.p) / (self.p - 1))
        return k * _power(x, self.p - 2)

    def tangent(self, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        exponent = (2 - self.p) / (self.p - 1) if self.inverse else self.p - 2
        x, factor = (x / k, 1 / k) if self.inverse else (x, k)
        power = x.abs() ** exponent
        if self.inverse:
            return x * power, power * factor * (exponent + 1)
        slope = k * power
        return x * slope, slope * (exponent + 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Forchheimer(_Known):
    r""":math:`i / k + \beta |i| i = d`: Darcy's law with the inertia of fast flow.

    Parameters
    ----------
    beta : float or Tensor that broadcasts with the elements
        :math:`\beta \ge 0`.
    """

    _above = (-1e-300,)
    beta: Number

    def tangent(self, drop: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        root = (1 + 4 * self.beta * k * (k * drop).abs()).sqrt()
        return 2 * k * drop / (1 + root), k / root


@dataclasses.dataclass(frozen=True, eq=False)
class Diode(_Known):
    r""":math:`i = k (e^{d / (n V_T)} - 1)`: Shockley's diode; k is its saturation current.

    Parameters
    ----------
    thermal : float or Tensor that broadcasts with the elements
        :math:`n V_T`, in the unit of the potentials: 0.02585 V at 300 K.
    """

    _above = (0.0,)
    thermal: Number = 0.02585

    def tangent(self, drop: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        i = k * torch.expm1(drop / self.thermal)
        return i, (i + k) / self.thermal


@dataclasses.dataclass(frozen=True, eq=False)
class Sinh(_Known):
    r""":math:`i = k V \sinh(d / V)`: charge in an electrolyte (Poisson and Boltzmann).

    Parameters
    ----------
    scale : float or Tensor that broadcasts with the elements
        V, in the unit of the potentials. Drops far below it see a resistor of conductance k.
    """

    _above = (0.0,)
    scale: Number = 1.0

    def tangent(self, drop: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        x = drop / self.scale
        return k * self.scale * torch.sinh(x), k * torch.cosh(x)


class Radiation(_Known):
    r""":math:`i = k |v|^3 v`: heat that a surface of temperature v radiates, as the law of leaks.

    k is :math:`\epsilon \sigma`. What surroundings of temperature :math:`v_0` send back is a source
    :math:`k v_0^4`.
    """

    def tangent(self, drop: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        slope = k * drop.abs() ** 3
        return slope * drop, 4 * slope


@dataclasses.dataclass(frozen=True, eq=False)
class Threshold(_Known):
    r""":math:`d = i / k + \tau\, i / \sqrt{i^2 + \epsilon^2}`: nothing flows below a drop of tau.

    Bingham's law, regularised: below the threshold flows a current of the order of `smoothing`.

    Parameters
    ----------
    threshold : float or Tensor that broadcasts with the elements
        :math:`\tau \ge 0`.
    smoothing : float or Tensor that broadcasts with the elements
        :math:`\epsilon > 0`, a small current.
    """

    inverse: ClassVar[bool] = True
    _above = (-1e-300, 0.0)
    threshold: Number
    smoothing: Number

    def __call__(self, current: Tensor, k: Tensor) -> Tensor:
        size = (current.square() + self.smoothing**2).sqrt()
        return torch.where(k != 0, _per_unit(current, k) + self.threshold * current / size, 0)

    def tangent(self, current: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        square = self.smoothing**2
        more = current.square() + square
        bent = self.threshold * more.rsqrt()
        return current / k + bent * current, 1 / k + bent * square / more


class Monotone(nn.Module):
    r"""A learned law, increasing in the drop for any parameters:

    .. math::

        i = k \Bigl( a_0 d + \sum_{j=1}^{n} a_j \, \frac{\tanh(b_j d + c_j) - \tanh c_j}{b_j}
        \Bigr), \qquad a, b > 0

    with all c = 0 for an odd law. The current is 0 at d = 0, and near i = k d at the start.

    Parameters
    ----------
    terms : int
        n.
    odd : bool
        Whether a drop of the opposite sign has the opposite current.
    scale : float
        The drops at which the law bends: the b are 1 / `scale` to 100 / `scale` at the start.
    features : Tensor, shape (..., m), optional
        Numbers of each element, on which a and b depend through a linear layer each; the shape
        before m broadcasts with the elements, (B, \*grid, C) or (B, E, C).
    """

    inverse = False

    def __init__(
        self,
        terms: int = 8,
        *,
        odd: bool = True,
        scale: float = 1.0,
        features: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, terms=terms)
        start = torch.full((terms + 1,), float(terms + 1)).reciprocal().expm1().log()
        self.weight = nn.Parameter(start)
        self.rate = nn.Parameter(torch.logspace(0, 2, terms).log() - torch.tensor(scale).log())
        self.shift = None if odd else nn.Parameter(torch.linspace(-1, 1, terms))
        self.features: Tensor
        self.register_buffer("features", features)
        self.of_features = None
        if features is not None:
            self.of_features = nn.Linear(features.shape[-1], 2 * terms + 1, bias=False)
            nn.init.zeros_(self.of_features.weight)

    def forward(self, drop: Tensor, k: Tensor) -> Tensor:
        weight, rate = self.weight.to(drop), self.rate.to(drop)
        if self.of_features is not None:
            w = self.of_features.weight.to(drop)
            more = F.linear(self.features.to(drop), w)
            weight, rate = weight + more[..., : len(weight)], rate + more[..., len(weight) :]
        weight, rate, x = F.softplus(weight), rate.exp(), drop[..., None]
        shift = 0 if self.shift is None else self.shift.to(drop)
        bent = (torch.tanh(rate * x + shift) - torch.tanh(shift + 0 * rate)) / rate
        return k * (weight[..., 0] * drop + (weight[..., 1:] * bent).sum(-1))


def tangent_of(law: Law, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """A law and its derivative at x, by its method `tangent` where it has one."""
    known: Any = getattr(law, "tangent", None)
    if known is not None:
        return known(x, k)
    y, back, *_ = torch.func.vjp(lambda x: law(x, k), x)
    return y, back(torch.ones_like(y))[0]


def takes_any(law: Law, k: Tensor) -> bool:
    """Whether a law takes any number of elements of k, so that no tensor belongs to some."""
    x = k.new_ones(1009)  # which no field has
    try:
        with torch.no_grad():
            return law(x, x).shape == x.shape
    except Exception:  # of any kind, by shapes that do not fit
        return False


def split(law: Law) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Law]]:
    """The tensors of a law, and what makes the law of others in their place."""
    if isinstance(law, nn.Module):
        both = {**dict(law.named_parameters()), **dict(law.named_buffers())}
        named = {name: value for name, value in both.items() if value.is_floating_point()}

        def with_tensors(tensors: Sequence[Tensor]) -> Law:
            state = dict(zip(named, tensors, strict=True))
            return lambda x, k: torch.func.functional_call(law, state, (x, k))

        return list(named.values()), with_tensors
    if isinstance(law, functools.partial):
        parts: dict[Any, Any] = {**dict(enumerate(law.args)), **law.keywords}
        count = len(law.args)

        def again(values: dict[Any, Any]) -> Law:
            args = [values.pop(i) for i in range(count)]
            return functools.partial(law.func, *args, **values)
    elif dataclasses.is_dataclass(law) and not isinstance(law, type):
        parts = {field.name: getattr(law, field.name) for field in dataclasses.fields(law)}
        again = functools.partial(_replaced, law)
    else:
        return [], lambda _: law
    names = [
        name
        for name, value in parts.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    ]
    return [parts[name] for name in names], lambda tensors: again(
        {**parts, **dict(zip(names, tensors, strict=True))}
    )


def _replaced(law: Any, values: dict[str, Any]) -> Law:
    return dataclasses.replace(law, **values)
