r"""`Factorization`: networks eliminated once, for many sources, determinants, inverses and samples.

With A v = s the nodal equations and Z = A^-1, the gradient of a solve is another solve
(`chonn_ops.network.solve.derivatives.adjoint`); that of the log-determinant is Z_pp for the leak
and Z_pp + Z_qq - 2 Z_pq for an edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from chonn_ops._dtypes import (
    compute_dtype,
    potential_dtype,
    to_dtype_of,
    widest_dtype,
    without_autocast,
)
from chonn_ops._in_graph import uncompiled
from chonn_ops._pytorch import has_tangents
from chonn_ops.checks import (
    NETWORK_DTYPES,
    check_choice,
    check_sources,
    error,
    recording,
    refuse_trace,
    refuse_transforms,
)
from chonn_ops.network.direct.cpu import Factors as CompiledFactors
from chonn_ops.network.direct.elimination import Elimination
from chonn_ops.network.layout import Layout, beside, currents_of
from chonn_ops.network.solve.autograd import solve_network
from chonn_ops.network.solve.ground import (
    Ungrounded,
    check_sources_have_ground,
    cut_off,
    lost_networks,
    ungrounded_error,
)
from chonn_ops.network.solve.methods import SIGNED, Networks, with_signs
from chonn_ops.network.solve.operator import direct_backend, forced_backend


class _LogDet(torch.autograd.Function):
    """Log-determinants (B, C), from leak and conductances."""

    @staticmethod
    def forward(ctx: Any, elimination: Any, layout: Any, leak: Any, *g: Any) -> Tensor:
        ctx.elimination, ctx.layout = elimination, layout
        ctx.save_for_backward(leak, *g)
        return elimination.logdet().to(elimination.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        leak, *g = ctx.saved_tensors
        elimination, layout = ctx.elimination, ctx.layout
        # Across an edge entries of the inverse are nearly equal where leaks are small.
        with without_autocast(leak):
            if torch.is_grad_enabled():  # this gradient is differentiated, too
                wide = widest_dtype(elimination.dtype, leak.device)
                elimination = Elimination(g, leak, layout, dtype=wide, backend="torch")
            else:
                elimination = elimination.wide(g, leak)
            diagonal, entries = elimination.inverse_entries()
        grad = grad_outputs[0].reshape(leak.shape[0], *[1] * (leak.dim() - 2), leak.shape[-1])
        pairs = zip(layout.sums_at_edges(diagonal), entries, strict=True)
        resistances = layout.edges([both - 2 * entry for both, entry in pairs])
        fields = zip((diagonal, *resistances), (leak, *g), ctx.needs_input_grad[2:], strict=True)
        grads = (to_dtype_of(grad * x.conj(), like) if need else None for x, like, need in fields)
        return None, None, *grads


class Factorization:
    """Networks eliminated once, for any number of results: what `Circuit.factorize` returns.

    All results are differentiable any number of times with respect to what the networks were made
    of, and `solve` and `sample` with respect to sources and noise.

    Attributes
    ----------
    shape : torch.Size
        (B, \\*grid, C).
    dtype : torch.dtype
        What the networks were eliminated in.
    """

    def __init__(
        self,
        conductance: Sequence[Tensor],
        leak: Tensor,
        layout: Layout,
        volume: float | Tensor = 1.0,
        current: Tensor | None = None,
        held: Tensor | None = None,
        rates: Tensor | None = None,
    ) -> None:
        refuse_trace("factorize")
        self._layout = layout
        refuse_transforms("factorize", leak, *conductance)
        networks, _ = with_signs(Networks(conductance, leak, layout))
        # Copies: refinement and derivatives need the networks as they were eliminated.
        fields = networks.leak, *networks.conductance
        self._given = leak, *conductance = tuple(x.clone() for x in fields)
        self._volume, self._current, self._rates = volume, current, rates
        self._held = held  # nodes at given potentials, which have no variance
        backend = direct_backend(forced_backend(), leak.device)
        with torch.no_grad(), without_autocast(leak):
            self._elimination = Elimination(conductance, leak, layout, backend=backend)
        if networks.method == SIGNED:
            with torch.no_grad():
                self._elimination.require_definite(conductance, leak)
        backend = self._elimination.backend
        self._networks = Networks(conductance, leak, layout, backend=backend, method="direct")
        self.shape = self._elimination.shape
        self.dtype = compute_dtype(leak, *conductance)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what is read from a file, is eliminated anew."""
        # PyTorch copies leaves of a graph only.
        copies = [
            None if x is None else x.detach().requires_grad_(x.requires_grad)
            for x in (*self._given, self._current)
        ]
        leak, *conductance, current = copies
        options = self._layout, self._volume, current, self._held, self._rates
        return type(self), (tuple(conductance), leak, *options)

    @cached_property
    def _label(self) -> Tensor | None:
        leak, *g = (x.detach() for x in self._given)
        return None if recording(leak) else cut_off(g, leak, self._layout)

    @cached_property
    def _cut_off(self) -> Tensor | None:
        """Which nodes are in a part without ground, those left out that do not exist: a mask of
        `diffusion` gives these no volume. None where there are none."""
        if self._label is None:
            return None
        off = self._label >= 0
        if isinstance(self._volume, Tensor):
            off = off & (self._volume != 0)
        return off if bool(off.any()) else None

    def _require_ground(self, what: str) -> None:
        if self._cut_off is not None:
            where = tuple(self._cut_off.nonzero()[0].tolist())
            raise ungrounded_error((where[0], where[-1]), where[1:-1], what)

    @uncompiled
    def solve(self, source: Tensor, *, ungrounded: Ungrounded = "error") -> Tensor:
        """Potentials.

        Parameters
        ----------
        source : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
            One current into each node, or S of them for the same networks.
        ungrounded : {"error", "nan"}
            As in `Circuit.solve`.

        Returns
        -------
        Tensor, shape and dtype of `source`

        Raises
        ------
        ValueError
            Another shape, dtype or device; a source in a connected part without leak, which is
            named.
        """
        check_sources("source", source, self._given[0], NETWORK_DTYPES)
        check_choice("ungrounded", ungrounded, ("error", "nan"))
        s = currents_of(source, self._volume, self._current, self.dtype)
        lost = None
        if self._label is not None and ungrounded == "nan":
            lost = lost_networks(s, self._networks)
            s = torch.where(lost, 0, s)
        elif self._label is not None:
            check_sources_have_ground(s, self._label)
        options: Any = {"check": False, "elimination": self._elimination, "rates": self._rates}

        def potentials(s: Tensor) -> Tensor:
            return solve_network(s.to(self._elimination.dtype), self._networks, **options)[0]

        if s.is_complex() and not self.dtype.is_complex:
            v = torch.complex(potentials(s.real), potentials(s.imag))
        else:
            v = potentials(s)
        v = v if lost is None else torch.where(lost, math.nan, v)
        return v.to(potential_dtype(source, v.dtype))

    @uncompiled
    def logdet(self) -> Tensor:
        """Logarithm of the determinant of each network's matrix, (B, C), in `dtype`.

        -inf where a part has no leak, such as a node with neither edge nor leak; nodes that do not
        exist are no part of it. The gradient is computed in float64.
        """
        leak, *g = self._given
        if has_tangents(leak, *g):
            wide = widest_dtype(self.dtype, leak.device)
            with without_autocast(leak):
                out = Elimination(g, leak, self._layout, dtype=wide, backend="torch").logdet()
        else:
            out: Any = _LogDet.apply(self._elimination, self._layout, leak, *g)
        if self._cut_off is not None:
            out = torch.where(self._cut_off.flatten(1, -2).any(1), -math.inf, out)
        return out.to(self.dtype)

    def _differentiable(self) -> Elimination:
        """An elimination of these networks that PyTorch differentiates through."""
        leak, *g = self._given
        wide = widest_dtype(self.dtype, leak.device)
        dtype = wide if wide.is_complex else self.dtype
        return Elimination(g, leak, self._layout, dtype=dtype, backend="torch")

    def _wanted(self) -> bool:
        """Whether a derivative with respect to the networks is wanted, in either mode."""
        needed = torch.is_grad_enabled() and any(x.requires_grad for x in self._given)
        return needed or has_tangents(*self._given)

    def _resistances(self, pairs: Tensor) -> Tensor | None:
        """Effective resistances between pairs of nodes (P, 2), (B, P, C), by half of a solve each;
        None where they need a gradient, or no kernel has them."""
        factors = None if self._wanted() else getattr(self._elimination, "factors", None)
        return factors.resistances(pairs) if isinstance(factors, CompiledFactors) else None

    @uncompiled
    def diagonal_of_inverse(self) -> Tensor:
        """Potential of each node for a unit current into that node alone, (B, \\*grid, C).

        For a Gaussian Markov field whose precision is the matrix, these are the variances: 0 of
        nodes that `Circuit.hold` holds. If a gradient is needed, PyTorch eliminates the networks
        again and keeps every front. 0 where no node exists. A connected part without leak is a
        `ValueError` that names it, a complex network at a resonance a `RuntimeError`.
        """
        self._require_ground("the inverse is asked for")
        wanted = self._wanted()
        with without_autocast(self._given[0]):
            elimination = self._differentiable() if wanted else self._elimination
            diagonal, _ = elimination.inverse_entries()
        return self._unless_held(diagonal).to(self.dtype)

    def _unless_held(self, field: Tensor) -> Tensor:
        """0 at nodes that are held."""
        return field if self._held is None else torch.where(beside(self._held, field), 0, field)

    @uncompiled
    def sample(self, noise: Tensor) -> Tensor:
        """A Gaussian Markov field with the networks' matrices as precision.

        Parameters
        ----------
        noise : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
            Independent standard normal numbers.

        Returns
        -------
        Tensor, shape and dtype of `noise`
            With covariance A^-1 exactly, 0 at held nodes. Which of its square roots is applied
            depends on the order of elimination, which follows the numbers of networks and of
            threads. If a gradient is needed, PyTorch eliminates the networks again and keeps every
            front.

        Raises
        ------
        ValueError
            Another shape, dtype or device; complex networks; a connected part without leak, which
            is named.
        """
        if self.dtype.is_complex:
            raise error("conductance", "real networks to sample from", self.dtype)
        check_sources("noise", noise, self._given[0])
        self._require_ground("a sample is asked for")
        needed = torch.is_grad_enabled() and noise.requires_grad
        wanted = self._wanted() or needed or has_tangents(noise)
        with without_autocast(noise):
            elimination = self._differentiable() if wanted else self._elimination
            return self._unless_held(elimination.sample(noise)).to(noise.dtype)
