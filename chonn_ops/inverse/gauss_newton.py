r"""`reconstruct`: the most probable field given measurements, and its error bars.

With r(x) the residuals in units of the noise, J their Jacobian at x, and a prior of mean mu whose
covariance around x is C, a Gauss-Newton step goes to

    x' = mu + C J^T alpha,   (I + J C J^T) alpha = J (x - mu) - r

which is exact algebra with one row a measurement (Woodbury): one elimination of the network, a
solve a source and a measured node, and solves with the prior's network. At the solution the same
matrices are the Laplace approximation: covariance C - C J^T (I + J C J^T)^-1 J C.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from chonn_ops.boundary import Boundary
from chonn_ops.checks import (
    check_above,
    check_bool,
    check_choice,
    check_each,
    check_integer,
    check_open_unit_interval,
    error,
    numbers_of,
)
from chonn_ops.inverse.domain import domain_of, domain_on
from chonn_ops.inverse.experiment import (
    DECADES,
    ROWS,
    UNKNOWNS,
    Experiment,
    best_constant,
    weights_of,
)
from chonn_ops.inverse.priors import Gaussian, Smoothness, TotalVariation
from chonn_ops.network.discretise.grids import Spacing
from chonn_ops.network.discretise.volumes import FiniteVolumes

Unknown = Literal["conductivity", "leak", "source"]

# Bytes that J and J C, (m, n) each, and three matrices (m, m) may take together.
MOST_BYTES = 2 * 2**30
# Where noise is unknown: its first value and its least one, over the measurements' size. J C J^T
# grows as the square of their inverse, and I + J C J^T has to keep the digits of I in float64.
FIRST_NOISE, LEAST_NOISE = 0.1, 1e-6
# A larger estimated noise is doubted: the field explains less than half of the measurements' mean
# square then.
MUCH_NOISE = 0.7
# Residuals are doubted where their root mean square is more than FAR times the noise, and a right
# noise would leave as large ones with a probability below CHANCE. At the true field the sum of
# squares has the chi-square distribution with a degree of freedom for each measurement; at the most
# probable field it is smaller on average. CHANCE decides up to 13 measurements (4.9 times the noise
# for one), FAR decides beyond: with a noise of half the true one, error bars are half as long as
# they should be.
FAR, CHANCE = 2.0, 1e-6
# A noise that is taken too large at first is divided by this after a whole step, and halved after a
# shortened one. With 5 all of 60 searches converged whose noise was 1e-6 to 0.1, with 10 all but
# one, and they took 6 % more steps.
REDUCED = 5.0
# Where measurements leave less than this part of the prior's variance, the errors of `priors.STEP`
# in it count: it is computed again, by a solve each.
LITTLE = 1e-8
# Relative change at which an estimated noise has settled.
SETTLED = 0.02
HALVINGS = 20


@dataclass(frozen=True, eq=False)
class _Posterior:
    """The Laplace approximation, in x: the field or its logarithm."""

    x: Tensor  # (n,)
    gaussian: Gaussian
    variance: Tensor  # (n,), of the prior
    jacobian: Tensor  # (m, n), in units of the noise
    gain: Tensor  # (m, n): J C
    triangle: Tensor  # (m, m): Cholesky factor of I + J C J^T


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A recovered field with its error bars: what `reconstruct` returns.

    Attributes
    ----------
    field : Tensor, shape (\\*grid)
        The most probable field, NaN at missing nodes.
    converged : bool
        Whether the last step was smaller than `tol`.
    iterations : int
        Gauss-Newton steps.
    fit : float
        Root mean square of the residuals over the value that it has on average if noise, prior and
        model are right. Far above 1, the field does not explain the measurements. Where the noise
        is estimated it is near 1 by construction and checks nothing: compare `noise` with the
        accuracy of your instrument.
    explained : bool
        Whether the field explains the measurements. False where residuals are more than twice the
        noise, in the root mean square, and a right noise makes them so large in less than one case
        of a million (chi-square): those of all measurements, of those under one source, or of one
        row of `nodes`. Also False where the estimated noise is as large as the measurements.
    residual : Tensor, shape of the measurements
        Measured less predicted potentials, NaN where nothing was measured.
    noise : Tensor, shape of the measurements
        Standard deviation of the noise, given or estimated.
    """

    field: Tensor
    converged: bool
    iterations: int
    fit: float
    explained: bool
    residual: Tensor
    noise: Tensor
    _posterior: _Posterior = dataclasses.field(repr=False)
    _mask: Tensor = dataclasses.field(repr=False)
    _logarithmic: bool = dataclasses.field(repr=False)

    def _shaped(self, x: Tensor) -> Tensor:
        shaped = x.reshape(*x.shape[:-1], *self._mask.shape)
        return torch.where(self._mask, shaped, math.nan).to(self.field.dtype)

    def _deviation(self) -> Tensor:
        p = self._posterior
        known = torch.linalg.solve_triangular(p.triangle, p.gain, upper=False).square().sum(0)
        variance = p.variance - known
        for few in (variance < LITTLE * p.variance).nonzero()[:, 0].split(ROWS):
            unit = variance.new_zeros(len(few), len(variance))
            at = torch.arange(len(few), device=variance.device), few
            unit[at] = 1
            variance[few] = p.gaussian.times(unit)[at] - known[few]
        return variance.clamp(min=0).sqrt()

    def deviation(self) -> Tensor:
        """Standard deviation at every node, (\\*grid): of the field's natural logarithm for a
        conductivity or a leak, of the field for a source. NaN at missing nodes."""
        return self._shaped(self._deviation())

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Ends (\\*grid) of the interval that holds the true value with this probability, node by
        node, in the field's unit.

        Raises
        ------
        ValueError
            A level not between 0 and 1.
        """
        check_open_unit_interval(level=level)
        half = math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
        reach, x = half * self._deviation(), self._posterior.x
        low, high = x - reach, x + reach
        if self._logarithmic:
            low, high = low.exp(), high.exp()
        return self._shaped(low), self._shaped(high)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Fields (count, \\*grid) that are as probable as the errors of prior and measurements make
        them, in the field's unit."""
        check_integer(0, count=count)
        p = self._posterior
        kind = {"dtype": p.x.dtype, "device": p.x.device, "generator": generator}
        # Matheron's rule: a sample of the prior, corrected by what it would have measured.
        prior = p.gaussian.sample(torch.randn(count, p.x.numel(), **kind))
        measured = prior @ p.jacobian.T + torch.randn(count, len(p.jacobian), **kind)
        x = p.x + prior - torch.cholesky_solve(measured.T, p.triangle).T @ p.gain
        return self._shaped(x.exp() if self._logarithmic else x)


def reconstruct(
    measured: Any,
    nodes: Any,
    source: Any = None,
    *,
    prior: Smoothness | TotalVariation,
    noise: Any = None,
    unknown: Unknown = "conductivity",
    conductivity: Any = None,
    leak: Any = None,
    spacing: Spacing = 1.0,
    mask: Any = None,
    boundary: Boundary = "neumann",
    volumes: FiniteVolumes | None = None,
    tol: float = 0.05,
    max_iterations: int = 50,
    progress: bool = False,
) -> Reconstruction:
    r"""Recover a field of a network from potentials measured at some nodes of a grid or mesh.

    .. math::

        -\nabla \cdot (k \nabla v_s) + c \, v_s = f_s, \qquad d_{si} = v_s(x_i) + \text{noise}

    One of k, c and f is unknown. The field of the largest posterior probability minimises half the
    sum of squared residuals, in units of the noise, plus the prior's energy. Gauss-Newton steps
    with a line search find it, with the exact Jacobian. k and c are positive: their logarithm is
    what is searched.

    All is computed in float64; results have the dtype of `measured` if it is a floating one.

    Parameters
    ----------
    measured : array_like, shape (S, M), or (M,) for one source
        Potentials under each source, in any unit; NaN where nothing was measured.
    nodes : array_like
        Where: indices (M, axes) of integers, on one axis or a mesh (M,), too; or a bool mask
        (\*grid) of the measured nodes, in row-major order; or weights (M, \*grid) of floats, where
        the i-th measured value is the sum of weights[i] times the potentials: the average over an
        electrode, a point between nodes, a difference of two electrodes.
    source : array_like, shape (S, \*grid) or (\*grid)
        Current into each node, the unit of conductance times potential: a rate of a well, a
        current of an electrode; a density f times the cell's volume. None where it is unknown.
    prior : Smoothness or TotalVariation
        What is known of the field without measurements.
    noise : array_like that broadcasts to (S, M), optional
        Standard deviation of the noise, in the unit of `measured`. Default: one number for all,
        estimated with the field. `Reconstruction.fit` then checks nothing; compare the estimate,
        `Reconstruction.noise`, with the accuracy of your instrument.
    unknown : {"conductivity", "leak", "source"}
    conductivity : array_like, shape (\*grid)
        Known k >= 0 of each cell, where another field is unknown. On two axes k is a conductance:
        conductivity times the thickness of the plane.
    leak : array_like, shape (\*grid), optional
        Known conductance to ground of each node, c times the cell's volume; 0 by default. The
        unknown leak is in this unit, too.
    spacing : float or sequence of float
        Distance between nodes along each axis.
    mask : array_like of bool, shape (\*grid), optional
        Which nodes exist. If all faces that are not "periodic" have one condition, it holds at the
        boundary of the mask, too; else edges to missing nodes conduct nothing.
    boundary : str, Condition, or a sequence
        As in `diffusion`, but not "matched", and without values and fluxes. A connected part
        without any path to ground takes sources that sum to zero in it and measured differences:
        weights that sum to zero in it.
    volumes : FiniteVolumes, optional
        A mesh instead of a grid, spacing and mask: \*grid is (N,) then, its nodes, and the boundary
        one word or condition, or one for each set of its walls.
    tol : float
        Largest last step, in posterior standard deviations.
    max_iterations : int
    progress : bool
        Whether to show each step on stderr.

    Returns
    -------
    Reconstruction

    Warns
    -----
    RuntimeWarning
        If the steps have not converged; if the residuals are far larger than the noise, or the
        estimated noise is as large as the measurements (`Reconstruction.explained`); if the prior
        has no mean and no constant field explains anything of the measurements.

    Raises
    ------
    ValueError
        Wrong shapes; no numbers, or complex ones; measurements or weights that are not finite;
        noise that is not above 0, or too small beside the prior for float64; nodes or currents
        outside of the mask; a field that is missing or given though unknown; a part of the network
        that nothing grounds; several sources where the source is unknown; more measurements than
        2 GiB hold.
    TypeError
        A prior of another class.

    References
    ----------
    A. Tarantola, "Inverse Problem Theory" (2005), sections 3.2 and 6.22; T. Bui-Thanh, O. Ghattas,
    J. Martin, G. Stadler, SIAM J. Sci. Comput. 35 (2013) A2494; the noise: D. MacKay, "Bayesian
    interpolation", Neural Computation 4 (1992).

    Examples
    --------
    A bar of 32 cells, potential 0 at both ends, a conductive piece in the middle. The potential is
    measured at every fourth node under two currents:

    >>> import torch
    >>> from chonn_ops import diffusion
    >>> from chonn_ops.inverse import Smoothness, reconstruct
    >>> k = torch.ones(32, dtype=torch.float64)
    >>> k[12:20] = 3.0
    >>> nodes = torch.arange(2, 32, 4)[:, None]
    >>> source = torch.zeros(2, 32, dtype=torch.float64)
    >>> source[0, 8] = source[1, 24] = 1.0
    >>> v = diffusion(k[None, :, None], boundary="dirichlet").solve(source[None, ..., None])
    >>> found = reconstruct(
    ...     v[0, :, nodes[:, 0], 0],
    ...     nodes,
    ...     source,
    ...     prior=Smoothness(length=10),
    ...     noise=0.01,
    ...     boundary="dirichlet",
    ... )
    >>> found.converged
    True
    >>> bool(found.field[16] > 2 * found.field[2])
    True
    """
    check_choice("unknown", unknown, UNKNOWNS)
    if not isinstance(prior, (Smoothness, TotalVariation)):
        kind = type(prior).__name__
        raise TypeError(f"prior: expected a Smoothness or a TotalVariation, got {kind}")
    check_above(0, tol=tol)
    check_integer(1, max_iterations=max_iterations)
    check_bool(progress=progress)
    data = numbers_of("measured", measured).detach()
    device = data.device
    fields = {"source": source, "conductivity": conductivity, "leak": leak}
    if fields[unknown] is not None:
        raise error(unknown, "None, because it is unknown", "a value")
    for name in ("source", "conductivity"):
        if name != unknown and fields[name] is None:
            raise error(name, f"values, because the unknown is the {unknown}", None)
    known = {name: None if x is None else _real(name, x, device) for name, x in fields.items()}
    if data.dim() not in (1, 2) or not data.numel():
        raise error("measured", "shape (S, M) or (M,), at least one value", tuple(data.shape))
    values = _real("measured", data, device).reshape(-1, data.shape[-1])
    grid = _grid(known, unknown, len(values), None if volumes is None else 1)
    if volumes is None:
        domain = domain_of(grid, spacing, mask, boundary, device)
    else:
        if mask is not None or spacing != 1:
            given = "a mask" if mask is not None else f"spacing {spacing}"
            raise error("mask, spacing", "none of them with volumes", given)
        domain = domain_on(volumes, boundary, device)
    for name, x in known.items():
        if x is not None:
            _check_known(name, x, domain.mask)
    lost = values.new_zeros(0)
    if known["source"] is not None:
        currents = known["source"].reshape(-1, *grid)
        known["source"] = torch.where(domain.mask, currents, 0)
        lost = (currents - known["source"]).nan_to_num().nonzero()
    if known["leak"] is None and unknown != "leak":
        known["leak"] = values.new_zeros(grid)
    weights = weights_of(nodes, domain)
    if len(lost):
        into = f"a current into {lost[0, 1:].tolist()}"
        raise error("source", "0 or NaN at missing nodes", into)
    if len(weights) != values.shape[1]:
        raise error("measured", f"{len(weights)} values a source, one a node", values.shape[1])
    rows = (~values.isnan()).nonzero()
    kept = values[rows[:, 0], rows[:, 1]]
    if not len(rows):
        raise error("measured", "finite values, NaN where nothing was measured", "NaN only")
    check_each("measured", values, ~values.isinf(), "finite values, NaN where nothing was measured")
    n = domain.mask.numel()
    most = int((math.sqrt(n**2 + 3 * MOST_BYTES / 8) - n) / 3)  # 2 m n + 3 m^2 numbers fit
    if len(rows) > most:
        raise error("measured", f"at most {most} values on the grid {grid}", len(rows))
    sigma, estimate = _noise(noise, values, kept)
    experiment = Experiment(domain, unknown, **known, weights=weights)
    search = _Search(experiment, prior, values, sigma, estimate, rows)
    search.run(tol, max_iterations, progress)
    if progress:
        print(file=sys.stderr)
    for doubt in search.doubts():
        warnings.warn(f"reconstruct: {doubt}", RuntimeWarning, stacklevel=2)
    return search.result(data)


def _real(name: str, values: Any, device: torch.device) -> Tensor:
    """Convert real numbers to float64; complex ones would lose their imaginary parts."""
    tensor = numbers_of(name, values, device)
    if tensor.is_complex():
        raise error(name, "real values, of a network of direct current", tensor.dtype)
    return tensor.detach().double()


def _grid(
    known: dict[str, Tensor | None], unknown: str, sources: int, axes: int | None
) -> tuple[int, ...]:
    """The grid, from the source, or from the conductivity where the source is unknown. `axes`:
    where they are known."""
    if unknown == "source":
        k = known["conductivity"]
        assert k is not None
        if sources != 1:
            raise error("measured", "one source's values where the source is unknown", sources)
        return tuple(k.shape)
    source = known["source"]
    assert source is not None
    k = known["conductivity"] if known["conductivity"] is not None else known["leak"]
    several = sources > 1 or (source.dim() > 1 and source.shape[0] == 1)
    axes = k.dim() if axes is None and k is not None else axes
    if axes is not None:
        several = source.dim() == axes + 1
    if several and source.shape[0] != sources:
        raise error("source", f"shape (S, *grid) with S = {sources}", tuple(source.shape))
    if not several and sources != 1:
        raise error("measured", "one source's values", sources)
    return tuple(source.shape[1:] if several else source.shape)


def _check_known(name: str, x: Tensor, mask: Tensor) -> None:
    grid = tuple(mask.shape)
    inner = x.shape[x.dim() - len(grid) :] if name == "source" else x.shape
    if tuple(inner) != grid:
        raise error(name, f"shape (*grid) = {grid}", tuple(x.shape))
    check_each(name, x, x.isfinite() | ~mask, "finite values at all nodes")
    if name != "source":
        check_each(name, x, (x >= 0) | ~mask, ">= 0 everywhere")


def _noise(noise: Any, values: Tensor, kept: Tensor) -> tuple[Tensor, bool]:
    """Standard deviations (S, M), and whether their size is to be estimated."""
    if noise is None:
        size = float(kept.square().mean().sqrt())
        if not size > 0:
            raise error("measured", "some value other than 0", "0 only")
        return torch.full_like(values, FIRST_NOISE * size), True
    sigma = _real("noise", noise, values.device)
    try:
        sigma = sigma.expand(values.shape)
    except RuntimeError:
        expected = f"a shape that broadcasts to {tuple(values.shape)}"
        raise error("noise", expected, tuple(sigma.shape)) from None
    right = (sigma.isfinite() & (sigma > 0)) | values.isnan()
    check_each("noise", sigma, right, "finite values > 0")
    return sigma, False


class _Search:
    """The state of the Gauss-Newton iterations."""

    def __init__(
        self,
        experiment: Experiment,
        prior: Smoothness | TotalVariation,
        values: Tensor,
        sigma: Tensor,
        estimate: bool,
        rows: Tensor,
    ) -> None:
        self.experiment, self.values, self.rows = experiment, values, rows
        self.s, self.i = rows.T
        self.sigma, self.estimate = sigma, estimate
        self.size = float(values[self.s, self.i].square().mean().sqrt())
        self.prior = prior.on(experiment.domain)
        self.constant_fits = True
        self.mean = self._mean(prior.mean)
        self.x, self.dual = self.mean.clone(), torch.zeros_like(self.mean)
        self.converged, self.iterations, self.reason = False, 0, ""

    def _mean(self, mean: Any) -> Tensor:
        experiment = self.experiment
        mask = experiment.domain.mask
        if mean is None:
            level = 0.0
            if experiment.logarithmic:
                level, self.constant_fits = best_constant(
                    experiment, self.values, self.sigma, (self.s, self.i)
                )
            return torch.full((mask.numel(),), level, dtype=torch.float64, device=mask.device)
        field = _real("mean", mean, mask.device)
        if field.dim() and field.shape != mask.shape:
            expected = f"a number or shape (*grid) = {tuple(mask.shape)}"
            raise error("mean", expected, tuple(field.shape))
        field = torch.where(mask, field, 1.0)
        check_each("mean", field, field.isfinite(), "finite values")
        if experiment.logarithmic:
            check_each("mean", field, field > 0, f"> 0 for a {experiment.unknown}")
            field = field.log()
        return field.flatten()

    def _residual(self, x: Tensor) -> tuple[Any, Tensor, Tensor]:
        """Eliminated network, potentials (S, n), and residuals (m,) in units of the noise."""
        network = self.experiment.factorize(x)
        v = self.experiment.potentials(network, x)
        r = ((self.experiment.predict(v) - self.values) / self.sigma)[self.s, self.i]
        return network, v, r

    def run(self, tol: float, max_iterations: int, progress: bool) -> None:
        """Iterate until the step is below `tol` posterior deviations."""
        network, v, r = self._residual(self.x)
        # Noise far below the misfit would make the first steps follow a linearisation that holds
        # nowhere near them: it starts as large as the misfit and is reduced to what was given.
        final, excess, t = self.sigma, 1.0, 1.0
        if not self.estimate and self.experiment.logarithmic:
            excess = max(1.0, REDUCED * float(r.square().mean().sqrt()))
            self.sigma, r = final * excess, r / excess
        while True:
            offset = self.x - self.mean
            noise = self.sigma[self.s, self.i][:, None]
            J = self.experiment.jacobian(network, self.x, v, self.rows) / noise
            gaussian = self.prior.around(offset)
            gain = gaussian.times(J)
            inner = J @ gain.T
            factor, settled = 1.0, True
            if self.estimate:
                least = LEAST_NOISE * self.size / float(self.sigma.nan_to_num().max())
                factor = max(_fit(r, _cholesky(inner)), least)
                settled = abs(factor - 1) < SETTLED
                self.sigma = self.sigma * factor
            elif excess > 1:
                last = self.iterations == max_iterations
                less = 1.0 if last else max(1.0, excess / (REDUCED if t == 1 else 2))
                factor, excess, settled = less / excess, less, less == 1
                self.sigma = final * excess
            if factor != 1:
                r, J, gain, inner = r / factor, J / factor, gain / factor, inner / factor**2
            triangle = _cholesky(inner)
            self.posterior = (gaussian, J, gain, triangle)
            self.residual = r
            alpha = torch.cholesky_solve((J @ offset - r)[:, None], triangle)[:, 0]
            step = alpha @ gain - offset
            change = alpha @ J - self.dual
            energy, gradient = self.prior.energy(offset, self.dual)
            slope = float(r @ (J @ step) + gradient @ step)
            size = math.sqrt(max(-slope, 0))
            if progress:
                done = f"step {self.iterations}/{max_iterations}, next {size:.2g} deviations"
                print(f"\rreconstruct: {done:<40}", end="", file=sys.stderr, flush=True)
            if slope > -(tol**2) and settled:
                self.converged = True
                return
            if self.iterations == max_iterations:
                self.reason = f"last step {size:.2g} deviations, tol {tol:g}"
                return
            self.iterations += 1
            before = float(r @ r / 2 + energy)
            for halving in range(HALVINGS):
                t = 0.5**halving
                x, dual = self.x + t * step, self.dual + t * change
                network, v, r_new = self._residual(x)
                energy, _ = self.prior.energy(x - self.mean, dual)
                after = float(r_new @ r_new / 2 + energy)
                if after <= before + 1e-4 * t * slope + 1e-12 * before:  # a NaN is refused
                    break
            else:
                if excess > 1:
                    network, v, r = self._residual(self.x)
                    continue
                self.reason = "no step along the Gauss-Newton direction improves the fit"
                return
            self.x, self.dual, r = x, dual, r_new

    def doubts(self) -> Iterator[str]:
        """Reasons not to trust what was found."""
        if not self.converged:
            yield f"not converged after {self.iterations} iterations, {self.reason}"
        if not self.constant_fits:
            yield (
                f"no constant {self.experiment.unknown} from 1e{DECADES[0]} to 1e{DECADES[-1]} "
                "fits the measurements better than these two do: check the signs of source and "
                "measured, or give the prior a mean"
            )
        far = self._far()
        if far is not None:
            check = "Check" if self.converged else "If it does not with more iterations, check"
            yield (
                f"the residuals{far[0]} are {far[1]:.3g} times the noise, as root mean squares: "
                f"the field does not explain the measurements. {check} signs and units of source "
                "and measured, the boundary and the noise"
            )
        if self._much_noise():
            noise = float(self.sigma.nan_to_num().max())
            yield (
                f"the estimated noise, {noise:.2g}, is as large as the measurements, whose root "
                f"mean square is {self.size:.2g}: the field explains little of them. Check signs "
                "and units of source and measured and the boundary, or give noise"
            )

    def _much_noise(self) -> bool:
        return self.estimate and float(self.sigma.nan_to_num().max()) > MUCH_NOISE * self.size

    def _far(self) -> tuple[str, float] | None:
        """Which residuals are far larger than the noise, and their ratio to it; None if none are.

        If they are not in the sum over all measurements, those under each source and those of each
        row of `nodes` are examined: many good ones hide a bad electrode or a wrong current.
        """
        groups = {"": torch.ones_like(self.s, dtype=torch.bool)}
        groups |= {f" under source {s}": self.s == s for s in self.s.unique().tolist()}
        groups |= {f" of measurement {i}": self.i == i for i in self.i.unique().tolist()}
        worst = None
        for name, group in groups.items():
            r = self.residual[group]
            half, total = torch.tensor([len(r) / 2, float(r @ r)], dtype=torch.float64)
            likely = torch.special.gammaincc(half, total / 2) >= CHANCE / len(groups)
            ratio = math.sqrt(total / len(r))
            # Written so that NaN is far.
            if not (ratio <= FAR or likely) and (worst is None or worst[1] < ratio):
                worst = name, ratio
                if not name:
                    break
        return worst

    def result(self, data: Tensor) -> Reconstruction:
        """Return what was found, in the dtype of the measurements."""
        dtype = data.dtype if data.is_floating_point() else torch.float64
        gaussian, J, gain, triangle = self.posterior
        posterior = _Posterior(self.x, gaussian, gaussian.variance(), J, gain, triangle)
        mask = self.experiment.domain.mask
        field = self.x.exp() if self.experiment.logarithmic else self.x
        residual = torch.full_like(self.values, math.nan)
        residual[self.s, self.i] = -self.residual * self.sigma[self.s, self.i]
        return Reconstruction(
            field=torch.where(mask, field.reshape(mask.shape), math.nan).to(dtype),
            converged=self.converged,
            iterations=self.iterations,
            fit=_fit(self.residual, triangle),
            explained=self._far() is None and not self._much_noise(),
            residual=residual.reshape(data.shape).to(dtype),
            noise=self.sigma.reshape(data.shape).to(dtype),
            _posterior=posterior,
            _mask=mask,
            _logarithmic=self.experiment.logarithmic,
        )


def _fit(r: Tensor, triangle: Tensor) -> float:
    """Size of the residuals of the most probable field over its expectation: its mean square is
    trace (I + J C J^T)^-1 / m in units of the noise."""
    return float((r @ r / torch.cholesky_inverse(triangle).diagonal().sum()).sqrt())


def _cholesky(inner: Tensor) -> Tensor:
    """Factor of I + J C J^T, which rounding may leave not quite symmetric."""
    identity = torch.eye(len(inner), dtype=inner.dtype, device=inner.device)
    triangle, failed = torch.linalg.cholesky_ex(identity + (inner + inner.T) / 2)
    if bool(failed):
        part = 1 / math.sqrt(float(inner.diagonal().max()))
        raise error(
            "noise",
            "at least 1e-7 of what the measurements vary by under the prior, for float64",
            f"{part:.1e} of it",
        )
    return triangle
