"""Reconstructions of `chonn_ops.inverse`: tomography of a disc beside pyEIT, and wells in a medium.

images  pyEIT's own phantoms; needs pyEIT (``pip install pyeit``). "same mesh": data without noise
        of the mesh that pyEIT reconstructs on, so that its model has no error. "finer mesh": data
        of a mesh of half the size, with noise of 0.1 %. Ours reconstructs on a grid of 48 x 48
        nodes; data are scaled by the ratio of measured and modelled values of the homogeneous disc.
        The error is that of the conductivity in L2 over that of the homogeneous disc, both sides
        and the truth taken at the same 128 x 128 points: at each the value of the element, or of
        the cell, around it. pyEIT shows its best step of 20: the search knows the error. Ours has
        one setting for all, beside total variation alone.
wells   log-permeability drawn from the prior on 32 x 32 cells, 25 wells, five of which are pumped
        in turn, noise of 1 % of each pressure; error over that of the prior's mean, and coverage of
        90 % intervals
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import Row, Run, main_of, show
from chonn_ops import diffusion, kirchhoff_network
from chonn_ops.inverse import Smoothness, TotalVariation, reconstruct

# Circles (centre, radius, conductivity) on a background of 1: pyEIT's examples eit_static_jac
# and eit_dynamic_greit.
PHANTOMS = {
    "two circles": [((0.4, 0.4), 0.2, 10.0), ((-0.4, -0.4), 0.2, 0.1)],
    "four small circles": [
        ((0.4, 0.0), 0.1, 10.0),
        ((-0.4, 0.0), 0.1, 10.0),
        ((0.0, 0.5), 0.1, 0.1),
        ((0.0, -0.5), 0.1, 0.1),
    ],
}
# Electrodes, and the size of the mesh in pyEIT's examples with as many or more.
MESHES = ((16, 0.1), (32, 0.05))
GRID, POINTS = 48, 128
NOISE = 1e-3
# The nodes that a disc of radius 1 has lie within 1 + RIM steps of its centre. With 0.35 the values
# that grid and finer mesh compute for the phantoms differ half as much as with 0.
RIM = 0.35
# Of measured differences with 16 electrodes: what the two models differ by, and the noise. The
# models' difference is alike in neighbouring measurements. With n times as many it counts once, so
# that each one has a noise of sqrt(n) times as much: twice with 32 electrodes.
MISFIT, ELECTRODES = 0.01, 16
PRIOR = TotalVariation(2.0, mean=1.0, area=50.0)
PLAIN = TotalVariation(4.0, mean=1.0)


def centres(n: int) -> np.ndarray:
    return (np.arange(n) + 0.5) / n * 2 - 1


class Pyeit:
    """A disc, its mesh and its measurements in pyEIT."""

    def __init__(self, electrodes: int, size: float) -> None:
        import pyeit.eit.protocol as protocol  # pyright: ignore[reportMissingImports]
        import pyeit.mesh as mesh  # pyright: ignore[reportMissingImports]
        from matplotlib.tri import Triangulation
        from pyeit.eit.fem import EITForward  # pyright: ignore[reportMissingImports]

        np.random.seed(0)  # noqa: NPY002 - distmesh draws from it
        self.mesh = mesh.create(electrodes, h0=size)
        self.protocol = protocol.create(electrodes, dist_exc=1, step_meas=1, parser_meas="std")
        self.forward = EITForward(self.mesh, self.protocol)
        x, y = np.meshgrid(centres(POINTS), centres(POINTS), indexing="ij")
        triangles = Triangulation(self.mesh.node[:, 0], self.mesh.node[:, 1], self.mesh.element)
        element: Any = triangles.get_trifinder()(x, y)
        self.inside = (element >= 0) & (x**2 + y**2 < 0.98**2)
        self.element = element[self.inside]

    def phantom(self, name: str) -> np.ndarray:
        """Conductivity of the elements."""
        from pyeit.mesh import set_perm  # pyright: ignore[reportMissingImports]
        from pyeit.mesh.wrapper import PyEITAnomaly_Circle  # pyright: ignore[reportMissingImports]

        circles = [PyEITAnomaly_Circle(center=list(c), r=r, perm=k) for c, r, k in PHANTOMS[name]]
        return set_perm(self.mesh, anomaly=circles, background=1.0).perm

    def images(self, v1: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Every step of Gauss-Newton in two settings, and its conductivity at the points."""
        from pyeit.eit.jac import JAC  # pyright: ignore[reportMissingImports]

        ones = np.ones(self.mesh.n_elems)
        static = JAC(self.mesh, self.protocol)
        static.setup(p=0.25, lamb=1.0, method="lm", perm=ones)
        options = {"p": 0.5, "lamb": 1.0, "lamb_decay": 0.1, "lamb_min": 1e-5, "generator": True}
        for method in ("kotre", "lm"):
            for i, found in enumerate(static.gn(v1, ones, 10, method=method, **options)):
                yield f"GN {method}, step {i + 1}", np.real(found)[self.element]


class Disc:
    """The same disc on a grid: a mask, and electrodes that are points between nodes."""

    def __init__(self, n: int, peer: Pyeit) -> None:
        self.n, self.spacing, protocol = n, 2 / n, peer.protocol
        x = torch.from_numpy(centres(n))
        self.mask = x[:, None] ** 2 + x**2 < (1 + RIM * self.spacing) ** 2
        wanted = torch.from_numpy(peer.mesh.node[peer.mesh.el_pos][:, :2])
        one = torch.stack([self.electrode(at / at.norm()) for at in wanted])
        plus, minus = torch.from_numpy(protocol.ex_mat).T
        self.source, self.pairs = one[plus] - one[minus], one.roll(-1, 0) - one
        # The second electrode of a measured pair is its number in `pairs`.
        self.measured = torch.from_numpy(protocol.meas_mat[..., 1]).long()
        leak = torch.zeros(1, n, n, 1, dtype=torch.float64)
        leak[0, n // 2, n // 2] = 1  # any ground: these sources send no current there
        g = diffusion(torch.ones_like(leak), self.spacing, mask=self.mask).conductance
        v = kirchhoff_network(self.source[None, ..., None], g, leak, method="direct")
        self.homogeneous = v.reshape(len(one), -1) @ self.pairs.flatten(1).T

    def data(self, v0: np.ndarray, v1: np.ndarray) -> Tensor:
        """pyEIT's measurements for this grid (S, M), NaN where it has none."""
        ratio = torch.from_numpy(v1 / v0).reshape(self.measured.shape)
        full = torch.full_like(self.homogeneous, float("nan"))
        return self.homogeneous * full.scatter(1, self.measured, ratio)

    def electrode(self, at: Tensor) -> Tensor:
        """Weights (n, n), sum 1, of the point of a radius that is nearest to the rim between four
        nodes of the disc."""
        weights = torch.zeros(self.n, self.n, dtype=torch.float64)
        for radius in np.arange(1, 0, -0.1 * self.spacing):
            place = (radius * at + 1) / self.spacing - 0.5
            low = place.floor().long().clamp(0, self.n - 2)
            (i, j), (p, q) = low.tolist(), (place - low).tolist()
            if min(p, q) >= 0 and max(p, q) <= 1 and bool(self.mask[i : i + 2, j : j + 2].all()):
                sides = torch.tensor([[1 - p, p], [1 - q, q]], dtype=torch.float64)
                weights[i : i + 2, j : j + 2] = torch.outer(*sides)
                return weights
        raise ValueError(
            f"disc of {self.n} nodes: expected four nodes near {at.tolist()}, got none"
        )

    def image(self, data: Tensor, peer: Pyeit, prior: TotalVariation) -> np.ndarray:
        """Our conductivity at the points of the disc."""
        x, y = np.meshgrid(centres(POINTS), centres(POINTS), indexing="ij")
        at = tuple(((z + 1) / self.spacing).astype(int).clip(0, self.n - 1) for z in (x, y))
        found = reconstruct(
            data,
            self.pairs,
            self.source,
            prior=prior,
            noise=MISFIT * len(data) / ELECTRODES * data.abs(),
            mask=self.mask,
            spacing=self.spacing,
            max_iterations=100,
        )
        return found.field.nan_to_num(1.0).numpy()[at][peer.inside]


def images(run: Run) -> list[Row]:
    if importlib.util.find_spec("pyeit") is None:
        run.notes.append("images left out: pip install pyeit")
        return []
    rows = []
    for electrodes, size in ((16, 0.2),) if run.smoke else MESHES:
        peer = Pyeit(electrodes, size)
        finer = Pyeit(electrodes, size / 2)
        disc = Disc(16 if run.smoke else GRID, peer)
        for name in list(PHANTOMS)[: 1 if run.smoke else None]:
            for data in (peer, finer):
                v0 = data.forward.solve_eit(perm=np.ones(data.mesh.n_elems))
                v1 = data.forward.solve_eit(perm=data.phantom(name))
                noise = 0.0 if data is peer else NOISE
                draw = np.random.default_rng(0).standard_normal((2, len(v0)))
                v0, v1 = v0 * (1 + noise * draw[0]), v1 * (1 + noise * draw[1])
                truth = np.ones(peer.inside.shape)
                truth[data.inside] = data.phantom(name)[data.element]
                label = {"phantom": name, "electrodes": electrodes, "noise": noise}
                label["data"] = "same mesh" if data is peer else "finer mesh"
                rows.append(label | errors_of(peer, disc, v0, v1, truth[peer.inside]))
    show(rows)
    return rows


def errors_of(peer: Pyeit, disc: Disc, v0: np.ndarray, v1: np.ndarray, truth: np.ndarray) -> Row:
    """pyEIT's best setting, and ours, without the price of the area, too."""

    def error(image: np.ndarray) -> float:
        return float(np.linalg.norm(image - truth) / np.linalg.norm(1 - truth))

    theirs = [(error(x), setting) for setting, x in peer.images(v1)]
    their_error, their_setting = min(theirs)
    begin = time.process_time()
    ours = error(disc.image(disc.data(v0, v1), peer, PRIOR))
    return {
        "pyeit_error": their_error,
        "pyeit_setting": their_setting,
        "error": ours,
        "seconds": time.process_time() - begin,
        "plain_error": error(disc.image(disc.data(v0, v1), peer, PLAIN)),
    }


def experiment(n: int, a_side: int, pumped: int, seed: int) -> Row:
    """One medium: error over the prior's, coverage, seconds."""
    generator = torch.Generator().manual_seed(seed)
    prior = Smoothness(length=0.5, mean=1.0)
    x = prior.sample((n, n), 1 / n, generator=generator)[0]
    along = ((torch.arange(a_side) + 0.5) * n / a_side).long()
    wells = torch.cartesian_prod(along, along)
    some = wells[torch.linspace(0, len(wells) - 1, pumped).long()]
    source = torch.zeros(pumped, n, n, dtype=torch.float64)
    source[range(pumped), some[:, 0], some[:, 1]] = 1
    k = x.exp()[None, ..., None]
    network = diffusion(k, 1 / n, boundary="dirichlet").factorize()
    v = network.solve(source[None, ..., None] * n**2)[0, ..., 0][:, wells[:, 0], wells[:, 1]]
    noise = 0.01 * v.abs()
    measured = v + noise * torch.randn(v.shape, dtype=v.dtype, generator=generator)
    begin = time.process_time()
    found = reconstruct(
        measured, wells, source, prior=prior, noise=noise, spacing=1 / n, boundary="dirichlet"
    )
    took = time.process_time() - begin
    low, high = found.interval(0.9)
    truth = x.exp()
    return {
        "seed": seed,
        "grid": [n, n],
        "sources": pumped,
        "wells": len(wells),
        "error": float((found.field.log() - x).square().mean().sqrt()),
        "prior_error": float(x.square().mean().sqrt()),
        "ratio": float(((found.field.log() - x).square().mean() / x.square().mean()).sqrt()),
        "coverage": float(((low < truth) & (truth < high)).double().mean()),
        "iterations": found.iterations,
        "converged": found.converged,
        "seconds": took,
    }


def wells(run: Run) -> dict[str, Any]:
    n, seeds = (12, 3) if run.smoke else (32, 30)
    rows = [experiment(n, 5, 5, seed) for seed in range(seeds)]
    show(rows[:3])
    return {"rows": rows, "coverage": statistics.fmean(row["coverage"] for row in rows)}


main = main_of(
    __doc__, "inverse", {"images": images, "wells": wells}, ["scipy", "pyeit"], threads=1
)

if __name__ == "__main__":
    main()
