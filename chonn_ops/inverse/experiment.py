r"""Potentials measured at nodes as a function of an unknown field, with its Jacobian.

With A v_s = f_s the nodal equations of source s and b_i the weights of measurement i, the measured
value is b_i . v_s. The matrix is symmetric, so that one solve A w_i = b_i a measurement, whatever
the number of sources, gives all derivatives: -w_i v_s by a leak, -(w_p - w_q)_i (v_p - v_q)_s by an
edge, w_i by the source. `torch.func` pulls them back from edges and leaks to the field.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops.checks import check_each, error, numbers_of
from chonn_ops.inverse.domain import Domain, eliminate, solve_on
from chonn_ops.network import Factorization

UNKNOWNS = ("conductivity", "leak", "source")
# Fields that are pulled back or solved for at once.
ROWS = 128
# Sums of sources or of weights that are this part of their size count as zero.
BALANCED = 1e-6
# Leaks of a part count as none if they change its differences of potentials by less than this part.
NEGLIGIBLE = 1e-12
# Powers of 10 in which a constant field is searched. SI units reach from the permeability of shale,
# 1e-20 m^2, to the conductance of silver.
DECADES = range(-24, 13)
# Misfits that differ by less than this part of them are alike.
ALIKE = 1e-6


def weights_of(nodes: Any, domain: Domain) -> Tensor:
    """Weights (M, n) of measured potentials from indices, a mask of nodes, or weights."""
    places = numbers_of("nodes", nodes, domain.mask.device)
    if places.is_complex():
        raise error("nodes", "indices, a mask or real weights", places.dtype)
    grid, axes = domain.grid, len(domain.grid)
    count, inside = domain.mask.numel(), domain.mask.flatten()
    if places.dtype == torch.bool:
        if tuple(places.shape) != grid:
            raise error("nodes", f"a mask of shape (*grid) = {grid}", tuple(places.shape))
        flat = places.flatten().nonzero()[:, 0]
    elif places.is_floating_point():
        if places.dim() != axes + 1 or tuple(places.shape[1:]) != grid:
            expected = (
                f"weights of shape (M, *grid) = (M, {', '.join(map(str, grid))}), or indices, "
                "which are integers"
            )
            raise error("nodes", expected, f"{places.dtype} of shape {tuple(places.shape)}")
        weights = places.detach().double()
        check_each("nodes", weights, weights.isfinite(), "finite weights")
        allowed = domain.mask | (weights == 0)
        check_each("nodes", weights, allowed, "weights of 0 at missing nodes")
        return weights.flatten(1)
    else:
        places = places[:, None] if places.dim() == 1 == axes else places
        if places.dim() != 2 or places.shape[1] != axes:
            expected = (
                f"indices of shape (M, {axes}) for the grid {grid}, which is that of source, "
                "(S, *grid) where measured is (S, M), else (*grid), without channels"
            )
            raise error("nodes", expected, tuple(places.shape))
        sizes = torch.tensor(grid, device=places.device)
        if places.numel() and not bool(((places >= 0) & (places < sizes)).all()):
            expected = f"indices of the grid {grid}, from 0"
            raise error("nodes", expected, f"{places.amin().item()} to {places.amax().item()}")
        flat = torch.zeros(len(places), dtype=torch.long, device=places.device)
        for axis, size in enumerate(grid):
            flat = flat * size + places[:, axis].long()
    if not bool(inside[flat].all()):
        first = int(flat[~inside[flat]][0])
        raise error(
            "nodes", "nodes that exist", f"a missing one, number {first} in row-major order"
        )
    weights = torch.zeros(len(flat), count, dtype=torch.float64, device=places.device)
    weights[torch.arange(len(flat), device=places.device), flat] = 1
    return weights


class Experiment:
    """What was measured, by weights (M, n), on which network, and which of its fields is unknown:
    conductivity or leak (\\*grid), or source (S, \\*grid). The unknown one is None."""

    def __init__(
        self,
        domain: Domain,
        unknown: str,
        conductivity: Tensor | None,
        leak: Tensor | None,
        source: Tensor | None,
        weights: Tensor,
    ) -> None:
        self.domain, self.unknown, self.weights = domain, unknown, weights
        self.conductivity, self.leak, self.source = conductivity, leak, source
        self.ground = torch.zeros(domain.grid, dtype=torch.float64, device=weights.device)
        self._fixed: Factorization | None = None
        self._ground_what_floats()

    @property
    def logarithmic(self) -> bool:
        """Whether x is the field's logarithm."""
        return self.unknown != "source"

    def circuit(self, x: Tensor) -> tuple[Tensor, ...]:
        """Leak (1, \\*grid, 1) with all conductances to ground, then the conductances."""
        domain = self.domain
        field = torch.where(domain.mask, x.exp() if self.logarithmic else x, 0)
        k = field if self.unknown == "conductivity" else self.conductivity
        leak = field if self.unknown == "leak" else self.leak
        assert k is not None
        assert leak is not None
        k, leak = (y[None, ..., None] for y in (k, leak))
        circuit = domain.circuit(k)
        leak = torch.where(domain.mask[..., None], leak, 0) + self.ground[None, ..., None]
        return circuit.leak + leak, *circuit.conductance

    def factorize(self, x: Tensor) -> Factorization:
        """The network of a field (n,), eliminated."""
        if self._fixed is not None:
            return self._fixed
        leak, *g = self.circuit(x.reshape(self.domain.grid))
        network = eliminate(self.domain, g, leak + self._ground_of_lifted_parts(leak, g))
        if self.unknown == "source":
            self._fixed = network
        return network

    def potentials(self, network: Factorization, x: Tensor) -> Tensor:
        """(S, n)."""
        sources = x[None] if self.source is None else self.source.flatten(1)
        return solve_on(self.domain, network, sources)

    def predict(self, potentials: Tensor) -> Tensor:
        """Measured values (S, M)."""
        return potentials @ self.weights.T

    def jacobian(
        self, network: Factorization, x: Tensor, potentials: Tensor, rows: Tensor
    ) -> Tensor:
        """Derivatives (m, n) of the values `rows` (m, 2): source and measurement of each."""
        w = solve_on(self.domain, network, self.weights)
        if self.unknown == "source":
            return w[rows[:, 1]]
        grid = self.domain.grid
        linearised: Any = torch.func.vjp(self.circuit, x.reshape(grid))
        pullback = linearised[1]
        w, v = w.reshape(-1, *grid), potentials.reshape(-1, *grid)

        def along(fields: Tensor) -> list[Tensor]:
            return [x[..., 0] for x in self.domain.layout.drops(fields[..., None])]

        jacobian = torch.empty(len(rows), x.numel(), dtype=x.dtype, device=x.device)
        for some in torch.arange(len(rows), device=x.device).split(ROWS):
            s, i = rows[some].T
            a, b = w[i], v[s]
            products = [a * b, *(p * q for p, q in zip(along(a), along(b), strict=True))]
            cotangents = tuple(-y[:, None, ..., None] for y in products)
            jacobian[some] = torch.func.vmap(pullback)(cotangents)[0].flatten(1)
        return jacobian

    def _ground_what_floats(self) -> None:
        """Find the connected parts, and connect a node of each one without leak to ground, which
        carries no current where the sources sum to zero in each part, and shifts no difference of
        potentials."""
        leak, *g = self.circuit(torch.zeros_like(self.ground))
        label = self.domain.layout.connected_parts(g)[0, ..., 0].flatten()
        self._nodes, self._part = label.unique(return_inverse=True)
        source = self.weights.new_ones(1, len(label)) if self.source is None else self.source
        rows = source.flatten(1), self.weights
        loaded = _unbalanced(rows[0], self._part) | _unbalanced(rows[1], self._part)
        self._balanced = ~loaded
        total, _, most = self._conductances(leak, g)
        # Elimination takes the potential of a missing node for 0.
        floating = (total == 0) & self.domain.mask.flatten()[self._nodes]
        if bool((floating & loaded).any()):
            first = int(self._nodes[floating & loaded][0])
            raise error(
                "leak",
                "a leak or a 'dirichlet' face in every connected part, or sources that sum to "
                "zero and measured differences of potentials (weights that sum to zero) in it",
                f"a part without ground at node {first} in row-major order",
            )
        self.ground.view(-1)[self._nodes[floating]] = torch.where(most > 0, most, 1)[floating]

    def _conductances(self, leak: Tensor, g: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the leaks of each connected part, and its least and largest edge."""
        total = torch.zeros(len(self._nodes)).to(leak).index_add(0, self._part, leak.flatten())
        least, most = torch.full_like(total, math.inf), torch.zeros_like(total)
        field = self._part.reshape(1, *self.domain.grid, 1)
        for edges, start in zip(g, self.domain.layout.starts(field), strict=True):
            values, part = edges.flatten(), start.flatten()
            positive = torch.where(values > 0, values, math.inf)
            least = least.scatter_reduce(0, part, positive, "amin")
            most = most.scatter_reduce(0, part, values, "amax")
        return total, least, most

    def _ground_of_lifted_parts(self, leak: Tensor, g: Sequence[Tensor]) -> Tensor:
        """Conductances to ground at a node of each part in which sources and weights sum to zero,
        where its leaks are so small that they do nothing but lift its potentials, by the rounding
        of the sources over them."""
        total, least, most = self._conductances(leak, g)
        # No path of a part has a larger resistance than all of its nodes in series.
        longest = self._part.bincount(minlength=len(total))
        lifted = self._balanced & (total > 0) & (total * longest < NEGLIGIBLE * least)
        ground = torch.zeros_like(leak)
        ground.view(-1)[self._nodes[lifted]] = most[lifted]
        return ground


def _unbalanced(rows: Tensor, parts: Tensor) -> Tensor:
    """Return for each part whether any row (K, n) has a sum other than zero in it."""

    def sums(values: Tensor) -> Tensor:
        return values.new_zeros(len(rows), int(parts.max()) + 1).index_add_(1, parts, values)

    return (sums(rows).abs() > BALANCED * sums(rows.abs())).any(0)


def best_constant(
    experiment: Experiment, measured: Tensor, noise: Tensor, rows: Sequence[Tensor]
) -> tuple[float, bool]:
    """Logarithm of the constant field whose potentials fit best: a search by decades, refined.

    Also whether the best decade is better than the ends of the search. Where it is not, no constant
    field explains anything: a wrong sign drives potentials to 0, and from some decade on they all
    fit alike.
    """
    s, i = rows

    def misfit(x: float) -> float:
        field = torch.full((experiment.weights.shape[1],), x, dtype=torch.float64)
        field = field.to(measured.device)
        predicted = experiment.predict(experiment.potentials(experiment.factorize(field), field))
        total = float((((predicted - measured) / noise)[s, i] ** 2).sum())
        return total if total == total else float("inf")

    decade = 2.302585092994046
    trials = [k * decade for k in DECADES]
    misfits = [misfit(x) for x in trials]
    least = min(misfits)
    middle, step = trials[misfits.index(least)], decade
    for _ in range(2):
        middle = min((middle + k * step / 8 for k in range(-8, 9)), key=misfit)
        step /= 8
    return middle, least < (1 - ALIKE) * min(misfits[0], misfits[-1])
