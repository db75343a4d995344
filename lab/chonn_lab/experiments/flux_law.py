"""Flow by an unknown law of the flux: the problem, and the circuit that learns the law."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Untrained
from chonn_lab.experiments.fields import Steady
from chonn_lab.experiments.solvers import Physics, check_input
from chonn_lab.problems import flux_law
from chonn_ops import Mesh
from chonn_ops.checks import check_choice

NOISE = 0.01
KINDS = ("learned", "linear", "known")
FITTED = 16  # samples to which a law is fitted
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
        if isinstance(model, LawOnMesh):
            u = data.tests["test"].tensors[1][:, 0].double().numpy()
            step = 1 / (self.resolution - 1)
            fields = np.hypot(*np.gradient(u, step, axis=(1, 2)))
            low, high = np.quantile(fields, (0.01, 0.99))
            e = torch.linspace(low, high, 100, dtype=torch.float64)
            true, found = flux_law.LAWS[self.flux](e), model.law(e)
            error = (found - true).abs().max() / true.max()
            evaluation["metrics"]["law"] = {self.error: float(error)}
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
        self.level = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.bends = nn.Parameter(torch.full((knots,), 1.0, dtype=torch.float64).expm1().log())

    def forward(self, e: Tensor) -> Tensor:
        p = F.softplus(self.bends)
        x = (e.log() - self.low) / self.step
        at = x.clamp(0, len(p) - 1)
        cell = at.detach().floor().clamp(max=len(p) - 2).long()
        rise = torch.cat([p.new_zeros(1), ((p[1:] + p[:-1]) / 2).cumsum(0)])
        t, first, second = at - cell, p[cell], p[cell + 1]
        inside = rise[cell] + t * first + t.square() * (second - first) / 2
        beyond = (x - at) * torch.where(x < 0, 1.0, p[-1])  # a resistor below the knots
        return (self.level + self.step * (inside + beyond - rise[len(p) // 2])).exp()

    def roughness(self) -> Tensor:
        return F.softplus(self.bends).diff().square().sum()


class Linear(nn.Module):
    """One number."""

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, e: Tensor) -> Tensor:
        return self.level.exp() * e

    def roughness(self) -> Tensor:
        return 0 * self.level


class LawOnMesh(Untrained):
    """A circuit of linear elements with a law of the flux, which is fitted to training samples."""

    in_data_units = True

    def __init__(self, law: Flux) -> None:
        super().__init__()
        self.law = law

    def forward(self, x: Tensor) -> Tensor:
        mesh, k, f = parts(x)
        return solve(self.law, mesh, k, f).reshape(len(x), 1, *x.shape[2:]).to(x.dtype)

    def fit(self, train: TensorDataset) -> None:
        """Least squares of all nodes, with a prior of smooth exponents."""
        weights = list(self.parameters())
        if not weights:
            return
        x, u = train[:FITTED]
        (mesh, k, f), u = parts(x), u.double().reshape(len(x), -1, 1)
        size, last = u.square().mean((1, 2), keepdim=True), [None]
        optimizer = torch.optim.LBFGS(weights, max_iter=60, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            v = solve(self.law, mesh, k, f, last[0])
            last[0] = v.detach()
            error = ((v - u).square() / size).mean()
            # As many nats as for a deviation of 0.1 between exponents.
            total = error.log() + self.law.roughness() / 0.01 / (u.numel() / 2)
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(loss)


def flux_model(problem: Any, kind: str) -> nn.Module:
    """The circuit that learns the law, fits one number in its place, or is told it."""
    check_input(problem, "flux_law", "law of the flux")
    check_choice("kind", kind, KINDS)
    true: Any = flux_law.LAWS[problem.flux]
    return LawOnMesh(Exponents() if kind == "learned" else Linear() if kind == "linear" else true)


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


def parts(x: Tensor) -> tuple[Mesh, Tensor, Tensor]:
    """The mesh of fields (B, 2, \\*grid), k of its cells (B, M, 1) and f of its nodes (B, N, 1)."""
    mesh = triangles(*x.shape[2:])
    k, f = x.double().flatten(2)[..., None].unbind(1)
    return mesh, k[:, mesh.cells].mean(2), f


def solve(law: Flux, mesh: Mesh, k: Tensor, f: Tensor, start: Tensor | None = None) -> Tensor:
    """v (B, N, 1) of -div(k phi(|grad v|) grad v / |grad v|) = f, 0 at the boundary, by Newton's
    method with a line search. The last step has the derivatives by the parameters of the law."""
    volume, (corners, sizes) = mesh.volume[:, None], mesh._elements
    inner = torch.ones(len(volume), 1, dtype=torch.bool)
    inner[mesh.sets["boundary"]] = False
    eye, most = torch.eye(2, dtype=torch.float64), (f * volume).abs().amax((1, 2), keepdim=True)

    def field(v: Tensor) -> tuple[Tensor, Tensor]:
        slopes = mesh.gradient(v)
        return slopes, (slopes.square().sum(-1) + 1e-20).sqrt()

    def residual(v: Tensor) -> Tensor:
        slopes, e = field(v)
        flux = (k * law(e) / e * sizes[:, None])[..., None] * slopes
        parts = (corners[:, :, None] * flux[:, :, None]).sum(-1).flatten(1, 2)
        out = torch.zeros_like(v).index_add(1, mesh.cells.flatten(), parts)
        return torch.where(inner, f * volume - out, 0)

    def newton(v: Tensor, left: Tensor) -> Tensor:
        slopes, e = field(v)
        along, across = torch.func.grad(lambda e: law(e).sum())(e), law(e) / e
        along, across = (x.detach().clamp(1e-9, 1e9)[..., None, None] for x in (along, across))
        unit = (slopes / e[..., None])[..., None]
        tensor = k[..., None, None] * (across * eye + (along - across) * unit * unit.mT)
        return mesh.diffusion(tensor, boundary="dirichlet").solve(left / volume)

    with torch.no_grad():
        v = mesh.diffusion(k, boundary="dirichlet").solve(f) if start is None else start
        left = residual(v)
        for _ in range(flux_law.STEPS):
            done = left.abs().amax((1, 2), keepdim=True) <= 1e-9 * most
            if bool(done.all()):
                break
            change = newton(v, left)
            slope, size = (left * change).sum((1, 2), keepdim=True), (~done).double()
            for _ in range(20):
                left = residual(v + size * change)
                far = ~done & ((left * change).sum((1, 2), keepdim=True) < -slope / 2)
                if not bool(far.any()):
                    break
                size = torch.where(far, size / 2, size)
            v = v + size * change
    return v + newton(v.detach(), residual(v))
