"""Reconstructions of `chonn_ops.inverse`: tomography of a disc beside pyEIT, and wells in a medium.

Sections: images, gradients (both need pyEIT: ``pip install pyeit``; they are left out with a note
where it is missing), wells, seconds. All on one thread, in user CPU time.

images     pyEIT's own phantoms. "same mesh": data without noise of the mesh that pyEIT reconstructs
           on, so that its model has no error. "finer mesh": data of a mesh of half the size, with
           noise of 0.1 %. Ours reconstructs on a grid of 48 x 48 nodes; data are scaled by the
           ratio of measured and modelled values of the homogeneous disc. The error is that of the
           conductivity in L2 over that of the homogeneous disc, both sides and the truth taken at
           the same 128 x 128 points: at each the value of the element, or of the cell, around it.
           pyEIT shows its best setting: the search knows the error. Ours has one setting for all,
           beside total variation alone.
gradients  of the misfit by all conductivities (ours), its Jacobian (both), at equal numbers of
           unknowns
wells      log-permeability drawn from the prior on 32 x 32 cells, 25 wells, five of which are
           pumped in turn, noise of 1 % of each pressure; error over that of the prior's mean, and
           coverage of 90 % intervals
seconds    reconstruction of 64 x 64 cells from 16 sources and 25 or 64 wells
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import arguments, environment, show, start, write_result
from chonn_ops import diffusion, factorize
from chonn_ops.inverse import Smoothness, TotalVariation, reconstruct
from chonn_ops.inverse.domain import domain_of
from chonn_ops.inverse.experiment import Experiment

SECTIONS = ("images", "gradients", "wells", "seconds")
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
PRIORS = {
    "total variation, weight 2, area 50": TotalVariation(2.0, mean=1.0, area=50.0),
    "total variation, weight 4": TotalVariation(4.0, mean=1.0),
}


def seconds(call: Callable[[], Any], least: int = 3) -> float:
    """User CPU seconds of a call, the median."""
    found = []
    for _ in range(least):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
    return statistics.median(found)


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
        element = triangles.get_trifinder()(x, y)
        self.inside = (element >= 0) & (x**2 + y**2 < 0.98**2)
        self.element = element[self.inside]

    def phantom(self, name: str) -> np.ndarray:
        """Conductivity of the elements."""
        from pyeit.mesh import set_perm  # pyright: ignore[reportMissingImports]
        from pyeit.mesh.wrapper import PyEITAnomaly_Circle  # pyright: ignore[reportMissingImports]

        circles = [PyEITAnomaly_Circle(center=list(c), r=r, perm=k) for c, r, k in PHANTOMS[name]]
        return set_perm(self.mesh, anomaly=circles, background=1.0).perm

    def images(self, v0: np.ndarray, v1: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Every setting and the conductivity at the points of the disc."""
        from pyeit.eit.greit import GREIT  # pyright: ignore[reportMissingImports]
        from pyeit.eit.jac import JAC  # pyright: ignore[reportMissingImports]

        J, _ = self.forward.compute_jac(perm=np.ones(self.mesh.n_elems))
        size = np.abs(v0)
        for normalised in (False, True):
            rows, change = (J / size[:, None], (v1 - v0) / size) if normalised else (J, v1 - v0)
            for method, p in (
                *(("kotre", p) for p in (0.25, 0.5, 0.75)),
                ("lm", 1),
                ("dgn", 0),
            ):
                # JAC.solve with its matrix (J^T J + lamb R)^-1 J^T in the smaller of its two forms.
                weighted = rows / (rows**2).sum(0) ** p
                for lamb in 10.0 ** np.arange(-7, 2):
                    inner = rows @ weighted.T + lamb * np.eye(len(rows))
                    found = -weighted.T @ np.linalg.solve(inner, change)
                    text = f"JAC {method} p={p} lamb={lamb:g} normalised={normalised}"
                    yield text, (1 + found)[self.element]
                    yield f"{text} log", np.exp(np.clip(found, -9, 9))[self.element]
        static = JAC(self.mesh, self.protocol)
        static.setup(p=0.25, lamb=1.0, method="lm", perm=np.ones(self.mesh.n_elems))
        for method in ("kotre", "lm"):
            options = {"p": 0.5, "lamb": 1.0, "lamb_decay": 0.1, "lamb_min": 1e-5}
            steps = static.gn(
                v1, np.ones(self.mesh.n_elems), 10, method=method, generator=True, **options
            )
            for i, found in enumerate(steps):
                yield f"GN {method}, step {i + 1}", np.real(found)[self.element]
        grid = GREIT(self.mesh, self.protocol)
        x, y = np.meshgrid(centres(POINTS), centres(POINTS), indexing="ij")
        for p, lamb in ((0.5, 0.01), (0.5, 0.001)):
            grid.setup(p=p, lamb=lamb, perm=np.ones(self.mesh.n_elems), jac_normalized=True)
            _, _, found = grid.mask_value(grid.solve(v1, v0, normalize=True), mask_value=0.0)
            side = np.asarray(found).reshape(32, 32)  # rows are y
            at = ((np.stack([x, y]) + 1) * 16).astype(int).clip(0, 31)
            yield f"GREIT p={p} lamb={lamb}", (1 + np.real(side[at[1], at[0]]))[self.inside]


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
        domain = domain_of((n, n), self.spacing, self.mask, "neumann", torch.device("cpu"))
        zeros = torch.zeros(n, n, dtype=torch.float64)
        self.experiment = Experiment(
            domain, "conductivity", None, zeros, self.source, self.pairs.flatten(1)
        )
        self.flat = torch.zeros(n * n, dtype=torch.float64)
        network = self.experiment.factorize(self.flat)
        self.homogeneous = self.experiment.predict(self.experiment.potentials(network, self.flat))

    def rows(self) -> Tensor:
        sources = torch.arange(len(self.measured))[:, None].expand_as(self.measured)
        return torch.stack([sources, self.measured], -1).reshape(-1, 2)

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

    def images(self, data: Tensor, peer: Pyeit) -> Iterator[tuple[str, np.ndarray, float]]:
        x, y = np.meshgrid(centres(POINTS), centres(POINTS), indexing="ij")
        at = tuple(((z + 1) / self.spacing).astype(int).clip(0, self.n - 1) for z in (x, y))
        for name, prior in PRIORS.items():
            begin = time.process_time()
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
            took = time.process_time() - begin
            yield name, found.field.nan_to_num(1.0).numpy()[at][peer.inside], took


def images(small: bool) -> list[dict[str, Any]]:
    rows = []
    # With 32 electrodes the search among pyEIT's settings takes a minute a phantom.
    for electrodes, size in ((16, 0.2),) if small else MESHES:
        peer = Pyeit(electrodes, size)
        finer = Pyeit(electrodes, size / 2)
        disc = Disc(16 if small else GRID, peer)
        for name in list(PHANTOMS)[: 1 if small else None]:
            for data in (peer, finer):
                v0 = data.forward.solve_eit(perm=np.ones(data.mesh.n_elems))
                v1 = data.forward.solve_eit(perm=data.phantom(name))
                noise = 0.0 if data is peer else NOISE
                draw = np.random.default_rng(0).standard_normal((2, len(v0)))
                v0, v1 = v0 * (1 + noise * draw[0]), v1 * (1 + noise * draw[1])
                truth = np.ones(peer.inside.shape)
                truth[data.inside] = data.phantom(name)[data.element]
                rows.append(image_errors(peer, disc, v0, v1, truth[peer.inside]))
                rows[-1] |= {
                    "phantom": name,
                    "electrodes": electrodes,
                    "data": "same mesh" if data is peer else "finer mesh",
                    "noise": noise,
                }
                keys = ("data", "pyeit_error", "pyeit_setting", "error", "seconds")
                show(rows[-1:], "phantom", "electrodes", *keys)
    return rows


def image_errors(
    peer: Pyeit, disc: Disc, v0: np.ndarray, v1: np.ndarray, truth: np.ndarray
) -> dict[str, Any]:
    """pyEIT's best setting, and ours."""

    def error(image: np.ndarray) -> float:
        return float(np.linalg.norm(image - truth) / np.linalg.norm(1 - truth))

    theirs = [(error(x), setting) for setting, x in peer.images(v0, v1)]
    ours = {s: (error(x), t) for s, x, t in disc.images(disc.data(v0, v1), peer)}
    their_error, their_setting = min(theirs)
    setting, plain = PRIORS
    return {
        "elements": peer.mesh.n_elems,
        "cells": int(disc.mask.sum()),
        "pyeit_error": their_error,
        "pyeit_setting": their_setting,
        "pyeit_settings": len(theirs),
        "error": ours[setting][0],
        "setting": setting,
        "seconds": ours[setting][1],
        "plain_error": ours[plain][0],
        "plain_setting": plain,
    }


def smallest(peer: Pyeit) -> Disc:
    """The coarsest grid with as many cells in the disc as the mesh has elements."""
    n = int(np.sqrt(peer.mesh.n_elems))
    while (disc := Disc(n, peer)).mask.sum() < peer.mesh.n_elems:
        n += 1
    return disc


def gradients(small: bool) -> list[dict[str, Any]]:
    rows = []
    for electrodes, size in ((16, 0.2),) if small else MESHES:
        peer = Pyeit(electrodes, size)
        disc = smallest(peer)
        x, ones = disc.flat, np.ones(peer.mesh.n_elems)
        target = disc.rows()
        leaf = torch.ones(1, disc.n, disc.n, 1, dtype=torch.float64, requires_grad=True)
        ground = disc.experiment.ground[None, ..., None]
        source = disc.source[None, ..., None]

        def gradient() -> Tensor:
            medium = diffusion(leaf, disc.spacing, mask=disc.mask)  # noqa: B023
            v = factorize(medium.conductance, ground).solve(source)[0, ..., 0].flatten(1)  # noqa: B023
            values = (v @ disc.experiment.weights.T)[target[:, 0], target[:, 1]]  # noqa: B023
            return torch.autograd.grad(values.square().sum() / 2, leaf)[0]  # noqa: B023

        def jacobian() -> Tensor:
            network = disc.experiment.factorize(x)  # noqa: B023
            v = disc.experiment.potentials(network, x)  # noqa: B023
            return disc.experiment.jacobian(network, x, v, target)  # noqa: B023

        times = {
            "gradient_s": seconds(gradient, 9),
            "jacobian_s": seconds(jacobian, 5),
            "pyeit_jacobian_s": seconds(lambda: peer.forward.compute_jac(perm=ones)),  # noqa: B023
        }
        rows.append(
            {
                "electrodes": electrodes,
                "elements": peer.mesh.n_elems,
                "cells": int(disc.mask.sum()),
                "measurements": len(target),
                **times,
                "ratio": times["pyeit_jacobian_s"] / times["gradient_s"],
            }
        )
        show(rows[-1:], "electrodes", "elements", "cells", *times, "ratio")
    return rows


def experiment(n: int, a_side: int, pumped: int, seed: int) -> dict[str, Any]:
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
        "fit": found.fit,
        "seconds": took,
    }


def wells(small: bool) -> dict[str, Any]:
    rows = [experiment(12 if small else 32, 5, 5, seed) for seed in range(3 if small else 30)]
    show(rows[:3], "seed", "error", "prior_error", "ratio", "coverage", "iterations", "seconds")
    coverage = statistics.fmean(row["coverage"] for row in rows)
    print(f"coverage over {len(rows)} media: {coverage:.4f}\n")
    return {"rows": rows, "coverage": coverage}


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "inverse", SECTIONS), given)
    torch.set_num_threads(1)
    small: bool = options.smoke
    result: dict[str, Any] = {"environment": environment(options, ("scipy", "pyeit"))}
    chosen = options.only or SECTIONS
    try:
        import pyeit  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ImportError as failure:
        print(f"images and gradients left out: pip install pyeit ({failure})")
        chosen = [name for name in chosen if name in ("wells", "seconds")]
    for name in chosen:
        if name == "seconds":
            sizes = ((16, 3, 4),) if small else ((64, 5, 16), (64, 8, 16))
            result[name] = [experiment(*size, seed=0) for size in sizes]
            show(result[name], "grid", "sources", "wells", "ratio", "iterations", "seconds")
        else:
            result[name] = {"images": images, "gradients": gradients, "wells": wells}[name](small)
    write_result(options.output, result)


if __name__ == "__main__":
    main()
