r"""Priors of unknown fields. Both are Gaussian Markov fields whose precision is made of a network.

- `Smoothness`: with A the nodal matrix of -laplace + kappa^2 and V the volumes of the cells, the
  field D A^-1 V^(1/2) noise has the covariance D A^-1 V A^-1 D of a Matern field. The diagonal D
  sets its deviation, which boundaries would otherwise raise.
- `TotalVariation`: around a field x the norm of the gradient has the quadratic majorant
  (|grad y|^2 / |grad x| + |grad x|) / 2, which is the power of a network with the conductances
  1 / |grad x| (lagged diffusivity). The price of an area, log(1 + x^2 / e^2) / 2, has the majorant
  y^2 / (2 (x^2 + e^2)) and a constant: the power of a leak.

Source: that of each class; S. Geman, D. McClure, Bull. Int. Stat. Inst. 52 (1987) 5, for penalties
that grow slowly; D. Hunter, K. Lange, Am. Stat. 58 (2004) 30, for majorants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_ops.checks import check_above, check_integer, check_number, error
from chonn_ops.inverse.domain import Domain, domain_of, domain_on, eliminate, solve_on
from chonn_ops.network import Factorization
from chonn_ops.network.discretise.volumes import FiniteVolumes

# Difference of neighbours, in the unit of x, below which the total variation is quadratic. In
# tomography of a disc, 0.01 took more steps and lowered the error of the image by 1 %.
FLAT = 3e-2
# Deviation from the mean, in the unit of x, below which the price of an area is quadratic.
SAME = 0.1
# Deviation of the mean level under `TotalVariation`, which says nothing about it.
LEVEL = 10.0
# Relative step of the derivative by kappa^2 from four values. It leaves relative errors of about
# 1e-11.
STEP = 5e-4


class Gaussian:
    """The Gaussian field D F D, where F is either A^-1 V A^-1 or A^-1, on flattened grids.

    `squared` tells which one; D is `scale`, V is `volume`.
    """

    def __init__(
        self,
        domain: Domain,
        network: Factorization,
        scale: Tensor | None = None,
        volume: Tensor | None = None,
        variance: Tensor | None = None,
    ) -> None:
        self.domain, self.network = domain, network
        self.scale, self.volume, self._variance = scale, volume, variance

    def variance(self) -> Tensor:
        """Pointwise variance (n,), computed from the network where it was not given."""
        if self._variance is not None:
            return self._variance
        return self.network.diagonal_of_inverse().flatten()

    def _solve(self, fields: Tensor) -> Tensor:
        return solve_on(self.domain, self.network, fields)

    def times(self, fields: Tensor) -> Tensor:
        """Covariance times each of (K, n)."""
        if self.scale is None or self.volume is None:
            return self._solve(fields)
        return self._solve(self.volume * self._solve(fields * self.scale)) * self.scale

    def sample(self, noise: Tensor) -> Tensor:
        """Fields (K, n) of mean 0 from standard normal noise (K, n)."""
        if self.scale is None or self.volume is None:
            return self.network.sample(self.domain.field(noise))[0, ..., 0].flatten(1)
        return self._solve(self.volume.sqrt() * noise) * self.scale


def _checked_mean(mean: Any) -> None:
    if mean is None or isinstance(mean, (Tensor, np.ndarray, list, tuple)):
        return
    if isinstance(mean, bool) or not isinstance(mean, Real) or not math.isfinite(mean):
        raise error("mean", "None, a finite number or an array of the grid's shape", repr(mean))


@dataclass(frozen=True, eq=False)
class Smoothness:
    r"""A Matern field: neighbouring nodes have similar values.

    .. math::

        (\kappa^2 - \Delta) \, u = \text{white noise}, \qquad \kappa = \sqrt{8 \nu} / \text{length},
        \qquad \nu = 2 - d / 2

    for d grid axes, with no flux through the boundary, scaled so that the deviation is the same at
    every node.

    Parameters
    ----------
    length : float
        Distance at which the correlation has fallen to about 0.14, in the unit of the spacing.
    deviation : float
        Standard deviation at every node: of the field's natural logarithm for a conductivity or a
        leak, of the field itself for a source. 1 means that two thirds of the nodes lie between
        mean / e and mean * e.
    mean : float or array_like, shape (\*grid), optional
        Mean of a source; for a conductivity or a leak the exponential of the logarithm's mean.
        In the field's unit. Default: the constant that fits the measurements best; 0 for a source.

    Raises
    ------
    ValueError
        A length or deviation that is not above 0; a mean that is no number.

    References
    ----------
    F. Lindgren, H. Rue, J. Lindstrom, "An explicit link between Gaussian fields and Gaussian
    Markov random fields", J. R. Stat. Soc. B 73 (2011).
    """

    length: float
    deviation: float = 1.0
    mean: Any = None

    def __post_init__(self) -> None:
        check_above(0, length=self.length, deviation=self.deviation)
        _checked_mean(self.mean)

    def on(self, domain: Domain) -> BoundSmoothness:
        """The prior on a domain."""
        return BoundSmoothness(self, domain)

    def sample(
        self,
        grid: tuple[int, ...] | FiniteVolumes,
        spacing: Any = 1.0,
        *,
        count: int = 1,
        mask: Tensor | None = None,
        boundary: Any = "neumann",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Draw fields of mean 0, for synthetic truths; a conductivity is mean * exp(sample).

        Parameters
        ----------
        grid : tuple of int, or FiniteVolumes
            On a mesh \*grid is (N,), and `spacing`, `mask` and `boundary` do not count.
        spacing, mask, boundary
            As in `reconstruct`.
        count : int
        generator : torch.Generator, optional

        Returns
        -------
        Tensor, shape (count, \*grid)
            float64.

        Raises
        ------
        ValueError
            A grid of no or more than 3 axes; a count that is no integer of at least 0.
        """
        check_integer(0, count=count)
        device = torch.device("cpu")
        if isinstance(grid, FiniteVolumes):
            domain = domain_on(grid, "neumann", device)
        else:
            domain = domain_of(grid, spacing, mask, boundary, device)
        noise = torch.randn(count, math.prod(domain.grid), dtype=torch.float64, generator=generator)
        return self.on(domain).gaussian.sample(noise).reshape(count, *domain.grid)


class BoundSmoothness:
    """`Smoothness` on a domain."""

    def __init__(self, prior: Smoothness, domain: Domain) -> None:
        volume, edges = domain.field(domain.volume)[0], domain.insulated()
        kappa2 = 8 * (2 - domain.dimensions / 2) / prior.length**2
        # diag(A^-1 V A^-1) is minus the derivative of diag(A^-1) by kappa^2.
        at = 1 + STEP * torch.tensor([-2, -1, 1, 2]).to(volume)
        leaks = kappa2 * volume * at.reshape(4, *[1] * (volume.dim() - 1))
        networks = eliminate(domain, [g.expand(4, *g.shape[1:]) for g in edges], leaks)
        a, b, c, d = networks.diagonal_of_inverse()[..., 0].flatten(1)
        variance = (8 * (b - c) - (a - d)) / (12 * STEP * kappa2)
        inside = domain.mask.flatten()
        scale = torch.where(inside, prior.deviation / variance.sqrt(), 0)
        network = eliminate(domain, edges, kappa2 * volume)
        variance = prior.deviation**2 * inside.to(volume)
        self.gaussian = Gaussian(domain, network, scale, volume.flatten(), variance)

    def around(self, offset: Tensor) -> Gaussian:  # noqa: ARG002 - the same everywhere
        """The Gaussian field that the prior is, around any field less the mean."""
        return self.gaussian

    def energy(self, offset: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Minus the log-density of a field less the mean (n,), and its gradient; `dual` is the
        precision times the field."""
        return offset @ dual / 2, dual


@dataclass(frozen=True, eq=False)
class TotalVariation:
    r"""Piecewise constant fields: jumps cost their height times the length of their edge.

    .. math::

        -\log p(x) = \text{weight} \int \sqrt{|\nabla x|^2 + \epsilon^2}
        + \frac{\text{area}}{2} \int \log\left(1 + \frac{(x - \mu)^2}{0.1^2}\right)

    for the logarithm x of a conductivity or a leak, or for a source x, with the mean
    :math:`\mu`. The first integral is quadratic, by :math:`\epsilon`, where neighbours differ by
    less than 0.03. Give a source in a unit in which it is about 1: 0.03 and 0.1 are in the unit of
    x, so that the jumps of one of 1e-3 are smoothed, and one of 1e3 is held to its mean. Error bars
    linearise the prior: they take the network of conductances :math:`\text{weight} / |\nabla x|`
    and its leaks at the solution for its precision, and are narrow inside of pieces and wide at
    their edges.

    The second integral is for small inclusions in a known background. Measurements from afar
    determine the product of size and contrast only, and the first integral prefers a wide and
    faint inclusion. The price of an area grows slowly with the contrast, so it prefers a small and
    strong one. It is not convex: the search goes to a minimum near the mean, and may take more
    than 50 steps.

    Parameters
    ----------
    weight : float
        In the unit of the spacing to the power 1 - d, for d grid axes: a contour of that length
        around a jump of 1 costs weight * length. Larger means fewer and lower jumps.
    area : float
        In the unit of the spacing to the power -d. An inclusion of contrast 2 costs 2 times area
        times its area, of contrast 10 3.1 times. 0, the default, is total variation alone.
    mean : float or array_like, optional
        As in `Smoothness`. Without `area` the prior holds the field to it only weakly.

    Raises
    ------
    ValueError
        A weight that is not above 0; an area below 0; a mean that is no number.

    References
    ----------
    L. Rudin, S. Osher, E. Fatemi, Physica D 60 (1992); C. R. Vogel, M. E. Oman, "Iterative methods
    for total variation denoising", SIAM J. Sci. Comput. 17 (1996).
    """

    weight: float
    mean: Any = None
    area: float = 0.0

    def __post_init__(self) -> None:
        check_above(0, weight=self.weight)
        check_number(area=self.area)
        if not 0 <= self.area < math.inf:
            raise error("area", "a finite number >= 0", self.area)
        _checked_mean(self.mean)

    def on(self, domain: Domain) -> BoundTotalVariation:
        """The prior on a domain."""
        return BoundTotalVariation(self, domain)


class BoundTotalVariation:
    """`TotalVariation` on a domain."""

    def __init__(self, prior: TotalVariation, domain: Domain) -> None:
        self.domain, self.prior = domain, prior
        self.volume = torch.where(domain.mask, domain.volume, 0)
        self.edges = [g[0, ..., 0] for g in domain.insulated()]
        exists = domain.mask.double()
        self.leak = exists / (exists.sum() * LEVEL**2)

    def _slope(self, offset: Tensor) -> Tensor:
        """|grad x| at each corner of the nodes' cells, (K, \\*grid): by the differences to the
        neighbours along the edges that meet there. The mean over the corners treats both directions
        of an axis alike, and a jump costs its height once."""
        x = offset.reshape(1, *self.domain.grid, 1)
        drops = self.domain.layout.drops(x)
        squares = [g * d[0, ..., 0].square() for g, d in zip(self.edges, drops, strict=True)]
        mean = self.domain.at_corners(squares) / self.domain.volume
        return (mean + (FLAT / self.domain.step) ** 2).sqrt()

    def around(self, offset: Tensor) -> Gaussian:
        """The Gaussian field with the precision of the majorant at a field less the mean."""
        means = self.domain.at_edges(self.prior.weight / self._slope(offset))
        pairs = zip(means, self.edges, strict=True)
        edges = [(mean * g)[None, ..., None] for mean, g in pairs]
        away = offset.reshape(self.domain.grid).square() + SAME**2
        leak = self.leak + self.volume * self.prior.area / away
        return Gaussian(self.domain, eliminate(self.domain, edges, leak[None, ..., None]))

    def energy(self, offset: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Minus the log-density of a field less the mean (n,), and its gradient."""

        def total(x: Tensor) -> Tensor:
            slope = self._slope(x)
            leaks = (self.leak.flatten() * x * x).sum() / 2
            pieces = ((x.square() / SAME**2).log1p() * self.volume.flatten()).sum()
            jumps = (slope.mean(0) * self.volume).sum()
            return self.prior.weight * jumps + leaks + self.prior.area / 2 * pieces

        gradient, energy = torch.func.grad_and_value(total)(offset.detach())
        return energy, gradient
