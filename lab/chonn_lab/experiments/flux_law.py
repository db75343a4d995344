"""Flow by an unknown law of the flux: the problem, and the circuit that learns the law."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Untrained
from chonn_lab.experiments.fields import Steady
from chonn_lab.experiments.solvers import Physics, check_input
from chonn_lab.problems import flux_law
from chonn_ops import Circuit, Mesh, NonlinearCircuit
from chonn_ops.checks import check_choice

NOISE = 0.01
STEPS, PRIOR = 40, 0.1  # of a fit, and the deviation of neighbouring exponents
KINDS = ("learned", "linear", "known")
FITTED = 16  # samples, drawn by the seed, to which a law is fitted
Flux = Callable[[Tensor], Tensor]  # phi(E) of fields E > 0


@dataclasses.dataclass(kw_only=True)
class FluxLaw(Steady):
    """k and f to u, where training and validation data have a noise of `NOISE` times the root mean
    square of each field, away from the walls."""

    flux: str  # of `flux_law.LAWS`

    generator: ClassVar[Any] = flux_law
    in_channels: ClassVar[int] = 2
    physics: ClassVar[Physics] = Physics("law of the flux", "corners")
    metrics: ClassVar[tuple[str, ...]] = ("relative_l1", "relative_l1_median")

    @property
    def law(self) -> dict[str, Any]:
        return {"flux": self.flux}

    def further(self) -> dict[str, dict[str, Any]]:
        others = {"source_4": {"source": 4.0}, "rectangle": {"shape": "rectangle"}}
        return super().further() | {name: {**self.law, **other} for name, other in others.items()}

    def read(self, path: Path, n_samples: int) -> tuple[Tensor, ...]:
        k, f, u = map(torch.from_numpy, flux_law.read(path, 0, n_samples))
        return torch.stack([k, f], 1), u[:, None]

    def load(self, folder: Path) -> Data:
        data, generator = super().load(folder), torch.Generator().manual_seed(0)

        def noisy(split: TensorDataset) -> TensorDataset:
            x, u = split.tensors
            size = NOISE * u.square().mean((1, 2, 3), keepdim=True).sqrt() * (u != 0)
            return TensorDataset(x, u + size * torch.randn(u.shape, generator=generator))

        return dataclasses.replace(data, train=noisy(data.train), validation=noisy(data.validation))

    def evaluate(self, model: nn.Module, data: Data) -> dict[str, Any]:
        """The largest error of the law over its largest value, between the 1 % and 99 % quantiles
        of the fields |grad u| of the test split, is a score, too."""
        evaluation = super().evaluate(model, data)
        if isinstance(model, LawOnMesh) and isinstance(model.law, nn.Module):
            u = data.tests["test"].tensors[1][:, 0].double().numpy()
            step = 1 / (self.resolution - 1)
            fields = np.hypot(*np.gradient(u, step, axis=(1, 2)))
            low, high = np.quantile(fields, (0.01, 0.99))
            e = torch.linspace(low, high, 100, dtype=torch.float64)
            true, found = flux_law.LAWS[self.flux](e), model.law(e)
            error = (found - true).abs().max() / true.max()
            evaluation["metrics"]["law"] = {self.error: float(error)}
            if isinstance(model.law, Exponents):
                curves = {"law_input": e, "law_true": true, "law": found}
                evaluation["curves"] |= {name: values.tolist() for name, values in curves.items()}
        return evaluation


class Exponents(nn.Module):
    """phi whose logarithm increases with log E by exponents that are linear between knots.

    Beyond the knots the law is a power, so that what is not seen continues what is.
    """

    def __init__(self, knots: int = 25, low: float = -4.0, high: float = 4.0) -> None:
        super().__init__()
        self.low, self.step = low, (high - low) / (knots - 1)
        # The logarithm at the middle knot, and of the exponents less their smallest value.
        start = torch.ones(knots + 1, dtype=torch.float64).expm1().log()
        self.weights = nn.Parameter(start.index_fill(0, torch.tensor(0), 0.0))

    def forward(self, e: Tensor, weights: Tensor | None = None) -> Tensor:
        weights = self.weights if weights is None else weights
        p = F.softplus(weights[1:])
        x = (e.log() - self.low) / self.step
        at = x.clamp(0, len(p) - 1)
        cell = at.detach().floor().clamp(max=len(p) - 2).long()
        rise = torch.cat([p.new_zeros(1), ((p[1:] + p[:-1]) / 2).cumsum(0)])
        t, first, second = at - cell, p[cell], p[cell + 1]
        inside = rise[cell] + t * first + t.square() * (second - first) / 2
        beyond = (x - at) * torch.where(x < 0, 1.0, p[-1])  # a resistor below the knots
        return (weights[0] + self.step * (inside + beyond - rise[len(p) // 2])).exp()

    def bends(self, weights: Tensor) -> Tensor:
        """Differences of neighbouring exponents."""
        return F.softplus(weights[1:]).diff()


class Linear(nn.Module):
    """phi(E) = e^w E, one number."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, e: Tensor, weights: Tensor | None = None) -> Tensor:
        return (self.weights if weights is None else weights).exp() * e

    def bends(self, weights: Tensor) -> Tensor:
        return 0 * weights


class LawOnMesh(Untrained):
    """A circuit of linear elements with a law of the flux, which is fitted to training samples."""

    in_data_units = True

    def __init__(self, law: Any) -> None:
        super().__init__()
        self.law = law

    def forward(self, x: Tensor) -> Tensor:
        return Flow.of(x).solve(self.law).reshape(len(x), 1, *x.shape[2:]).to(x.dtype)

    @torch.no_grad()
    def fit(self, train: TensorDataset) -> None:
        """Least squares of all nodes, with a prior of smooth exponents, by the method of Levenberg
        and Marquardt."""
        if not isinstance(self.law, nn.Module):
            return
        law: Any = self.law
        x, u = train[torch.randperm(len(train))[:FITTED]]
        flow, u = Flow.of(x), u.double().reshape(len(x), -1, 1)
        size, w, damping = u.square().mean((1, 2), keepdim=True).sqrt(), law.weights, 1e-2

        def flux(w: Tensor) -> Flux:
            return functools.partial(law, weights=w)

        def bends(w: Tensor) -> Tensor:
            return law.bends(w) / PRIOR

        def state(w: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
            """Potentials, their distance from the data, and twice the logarithm of the density."""
            try:
                v = flow.solve(flux(w), start)
            except ValueError:  # a law so steep that rounding leaves no positive pivot
                return u, u, u.new_tensor(torch.inf)
            off = (v - u) / size
            return v, off, u.numel() * off.square().mean().log() + bends(w).square().sum()

        v, off, value = state(w, None)
        for _ in range(STEPS):
            of_weights = torch.func.jacfwd(lambda w, v=v: flow.residual(flux(w), v))(w)
            sources = (of_weights / flow.mesh.volume[:, None, None]).movedim(-1, 1)
            rows = (flow.tangent(flux(w), v).solve(sources) / size[:, None]).transpose(0, 1)
            rows, noise, prior = rows.flatten(1), off.square().mean(), torch.func.jacrev(bends)(w)
            curvature = rows @ rows.T / noise + prior.T @ prior
            slope = rows @ off.flatten() / noise + prior.T @ bends(w)
            while True:
                # The least damping is for exponents near 0, which neither data nor prior hold.
                damped = curvature + (damping * curvature.diagonal() + 1e-3).diag()
                moved = w - torch.linalg.solve(damped, slope)
                after = state(moved, v)
                if after[-1] < value or damping > 1e6:
                    break
                damping *= 10
            gain = value - after[-1]
            if not gain > 0:
                break
            w, (v, off, value), damping = moved, after, damping / 10
            if gain < 0.1:
                break
        law.weights.copy_(w)


def flux_model(problem: Any, kind: str) -> nn.Module:
    """The circuit that learns the law, fits one number in its place, or is told it."""
    check_input(problem, "flux_law", "law of the flux")
    check_choice("kind", kind, KINDS)
    true = flux_law.LAWS[problem.flux]
    return LawOnMesh(Exponents() if kind == "learned" else Linear() if kind == "linear" else true)


class Flow(NamedTuple):
    """-div(k phi(|grad v|) grad v / |grad v|) = f with v = 0 at the boundary, of linear elements: k
    (B, M, 1) of the cells and f (B, N, 1) at the nodes of a mesh."""

    mesh: Mesh
    k: Tensor
    f: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Flow:
        r"""The flow of fields k and f, (B, 2, \*grid)."""
        mesh = triangles(*x.shape[2:])
        k, f = x.double().flatten(2)[..., None].unbind(1)
        return cls(mesh, k[:, mesh.cells].mean(2), f)

    def field(self, v: Tensor) -> tuple[Tensor, Tensor]:
        slopes = self.mesh.gradient(v)
        return slopes, (slopes.square().sum(-1) + 1e-20).sqrt()

    def residual(self, law: Flux, v: Tensor) -> Tensor:
        """What flows into nodes and not out of them."""
        slopes, e = self.field(v)
        size = self.mesh.volume.sum() / len(self.mesh.cells)  # all cells are alike
        flux = (size * self.k * law(e) / e)[..., None] * slopes
        (out,) = torch.func.vjp(self.mesh.gradient, v)[1](flux)
        left = self.f * self.mesh.volume[:, None] - out
        return left.index_fill(1, self.mesh.sets["boundary"], 0.0)

    def tangent(self, law: Flux, v: Tensor) -> Circuit:
        """The linear circuit of small changes of v."""
        slopes, e = self.field(v)
        y, along, *_ = torch.func.jvp(law, (e,), (torch.ones_like(e),))
        along, across = (x.clamp(1e-9, 1e9)[..., None, None] for x in (along, y / e))
        unit = (slopes / e[..., None])[..., None]
        tensor = across * torch.eye(2, dtype=e.dtype) + (along - across) * unit * unit.mT
        return self.mesh.diffusion(self.k[..., None, None] * tensor, boundary="dirichlet")

    def solve(self, law: Flux, start: Tensor | None = None) -> Tensor:
        """v; NaN where Newton's method has not converged."""

        def flux(e: Tensor, k: Tensor) -> Tensor:  # odd, with logarithms that are finite
            return k * law(e.abs().clamp(min=1e-12)) * e.sign()

        linear = self.mesh.diffusion(self.k, boundary="dirichlet")
        circuit = NonlinearCircuit(linear, flux)
        return circuit.solve(self.f, start=start, unconverged="nan")


@functools.cache
def triangles(rows: int, columns: int) -> Mesh:
    """Two triangles a square between nodes at distances 1 / (rows - 1), in turns one way and the
    other."""
    place = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
    number = torch.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = (
        x.flatten() for x in (number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:])
    )
    odd = (place[a].sum(1) % 2 == 1)[:, None]
    pair = [((a, b, c), (a, b, d)), ((a, c, d), (b, c, d))]
    cells = [torch.where(odd, torch.stack(y, 1), torch.stack(x, 1)) for x, y in pair]
    return Mesh(place / (rows - 1), torch.cat(cells), elements=True)
