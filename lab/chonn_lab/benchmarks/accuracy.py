"""Errors of `kirchhoff_network` and of SciPy's sparse LU on hard media, in one run.

The truth is star-mesh elimination in extended precision, one node after another: an order and a
program of its own, which takes no difference.

Sections: media (five kinds of conductances at contrasts up to 1e12, with leaks of 1e-2 to 1e-12 of
the smallest conductance, every boundary, a mask, grids of one to three axes, batches of 1, 3 and
17), complex (waves and admittances).

Contenders
    float32, float64        `kirchhoff_network` with method="direct"
    auto                    float32 with the automatic rule at its default tolerance
    complex64, complex128   `kirchhoff_network` of complex numbers
    spsolve                 SciPy's sparse LU in float64 or complex128; a gradient is one more
                            solution and products

Columns, the worst of a medium and contrast
    potential   largest error of a potential. Sources are positive: of "float32", "float64" and
                "spsolve" relative to that potential itself, of others to the largest one
    gradient    largest error of a gradient by source, leak or one axis's conductances, relative to
                the largest number of that gradient
    unsolved    calls, forward or backward, that raised or left a number that is not finite
    calls       all of them
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import Row, Run, main_of, show
from chonn_lab.benchmarks.network import (
    Array,
    Networks,
    conductivity,
    factors,
)
from chonn_ops import diffusion, kirchhoff_network
from chonn_ops.boundary import Robin, conditions
from chonn_ops.network.grids import walls_of

MEDIA = ("smooth", "channels", "stripes", "binary noise", "log-uniform noise")
CONTRASTS = (1e4, 1e12)
LEAKS = (1e-2, 1e-12)
FILM = Robin(0.5)
BOUNDARIES: tuple[Any, ...] = (
    *("neumann", "dirichlet", "periodic", "matched", FILM),
    (("matched", "neumann"), "periodic", (FILM, "dirichlet")),
)
# Networks of a batch; the first of them are batches of their own.
BATCHES = (1, 3, 17)
COUNT = 3  # different ones
GRIDS = ((40,), (1, 9), (24, 20), (5, 1, 6), (6, 5, 7))
SMOKE_GRIDS = ((5, 1, 6), (5, 5, 5))
COMPONENTWISE = ("float32", "float64", "spsolve")


def disc(grid: Sequence[int]) -> Array:
    """Which nodes lie in a disc with a slit, which is one part."""
    x = np.meshgrid(*[(np.arange(n) + 0.5) / n - 0.5 for n in grid], indexing="ij")
    inside = np.square(x).sum(0) < 0.24
    if len(grid) > 1 and min(grid) > 3:
        inside &= ~((np.abs(x[0]) < 0.6 / grid[0]) & (x[1] > 0))
    return inside


def rounded(
    source: Array | Tensor,
    leak: Array | Tensor,
    g: Sequence[Array | Tensor],
    periodic: Sequence[Any],
    narrow: torch.dtype,
) -> Networks:
    """Networks of numbers that the narrow dtype holds, in the wide one."""
    wide = torch.complex128 if narrow.is_complex else torch.float64
    fields = [torch.as_tensor(x).to(narrow).to(wide) for x in (source, leak, *g)]
    return Networks(fields[0], tuple(fields[2:]), fields[1], tuple(periodic))


def resistors(
    medium: str, contrast: float, grid: Sequence[int], leak: float, boundary: Any, masked: bool
) -> Networks:
    """Networks of one medium with positive sources and leaks of `leak` at every node."""
    k = conductivity(medium, contrast, COUNT, grid)
    inside = disc(grid) if masked else np.ones(grid, bool)
    walls: Any = {"boundary": boundary, "mask": torch.from_numpy(inside), "inner": "neumann"}
    circuit = diffusion(torch.from_numpy(k)[..., None], absorption=leak, **walls)
    leaks, *g = (x[..., 0] for x in (circuit.leak, *circuit.conductance))
    source = np.random.default_rng(1).random(k.shape) * inside
    return rounded(source, leaks, g, circuit.periodic, torch.float32)


def alternating(
    kind: str, loss: float, grid: Sequence[int], boundary: Any, masked: bool
) -> Networks:
    """Waves in a random medium or coils, resistors and capacitors; a relative `loss`."""
    rng = np.random.default_rng(0)
    k = conductivity("log-uniform noise", 4.0, COUNT, grid)
    inside = disc(grid) if masked else np.ones(grid, bool)
    if kind == "waves":  # -laplace u - (omega / c)^2 (1 + i loss) u, 8 to 16 nodes a wave
        g: list[Array] = [np.ones(k.shape) + 0j for _ in grid]
        leak = -((2 * np.pi / 16) ** 2) * k * (1 + 1j * loss)
        medium = g[0]
    else:  # g = 1 / (R + i omega L), l = G + i omega C
        g = [1 / (k * (loss + 1j) * (1 + rng.random(k.shape))) for _ in grid]
        medium = 1 / (k * (loss + 1j))
        leak = 0.3 * (loss + 1j) * (1 + rng.random(k.shape))
    g = [x * inside * np.roll(inside, -1, axis) for axis, x in enumerate(g)]
    source = (rng.standard_normal(k.shape) + 1j * rng.standard_normal(k.shape)) * inside
    faces = conditions(boundary, len(grid))
    beside, leaks = (torch.from_numpy(x * inside)[..., None] for x in (medium, leak))
    wall = walls_of(beside, [1.0] * len(grid), faces, leaks).conductance
    grounded = leaks if wall is None else leaks + wall
    periodic = [low.periodic for low, _ in faces]
    return rounded(source, grounded[..., 0], g, periodic, torch.complex64)


def weight_of(networks: Networks) -> Tensor:
    """What potentials are multiplied by for a loss; 0 outside a mask, as sources are."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.rand(networks.source.shape, generator=generator).to(networks.source)
    return drawn * (networks.source != 0)


def eliminate(networks: Networks, sources: Array) -> Array:
    """Potentials for sources (count, S, nodes) in extended precision, by star-mesh elimination."""
    wide: Any = np.clongdouble if networks.leak.is_complex() else np.longdouble
    x = sources.astype(wide)
    ground = networks.leak.flatten(1).numpy().astype(wide)
    count, nodes = ground.shape
    mesh = np.zeros((count, nodes, nodes), wide)
    for p, q, g in networks.edges():
        for ends in ((p, q), (q, p)):
            index: Any = (slice(None), *ends)
            np.add.at(mesh, index, g)
    shares = []
    for i in range(nodes):
        later = mesh[:, i, i + 1 :]
        total = ground[:, i] + later.sum(1)
        part = np.where(total != 0, 1 / np.where(total != 0, total, 1), 0)
        share = later * part[:, None]
        mesh[:, i + 1 :, i + 1 :] += share[:, :, None] * later[:, None, :]
        ground[:, i + 1 :] += share * ground[:, i, None]
        x[:, :, i + 1 :] += share[:, None] * x[:, :, i, None]
        x[:, :, i] *= part[:, None]
        shares.append(share)
    for i in reversed(range(nodes)):
        x[:, :, i] += (x[:, :, i + 1 :] * shares[i][:, None]).sum(2)
    return x


def assembled(networks: Networks, v: Array, w: Array, shifted: Sequence[Array]) -> list[Tensor]:
    """Potentials and gradients from the potentials `v`, the conjugate `w` of the adjoint's, and the
    products of their differences; 0 for conductances that a mask multiplies with 0."""
    kept = [
        np.where(g.numpy() != 0, -x, 0) for g, x in zip(networks.conductance, shifted, strict=True)
    ]
    return [
        torch.from_numpy(x.astype(np.complex128 if np.iscomplexobj(x) else np.float64))
        for x in (v, w, -w * v.conj(), *kept)
    ]


def truth(networks: Networks) -> list[Tensor]:
    """Potentials and gradients by `eliminate`.

    Real potentials are those for currents s - l V, and V, the sum of s over that of l. A constant
    that lifts all of them costs their differences no digits then.
    """
    source, weight = networks.source, weight_of(networks)
    sources = torch.stack([source, weight.conj()], 1).flatten(2).resolve_conj().numpy()
    leak = networks.leak.flatten(1).numpy()
    level: Any = np.zeros(())
    if not networks.leak.is_complex():
        sources, leak = sources.astype(np.longdouble), leak.astype(np.longdouble)
        level = (sources.sum(2) / leak.sum(1)[:, None])[..., None]
        sources = sources - leak[:, None] * level
    u = eliminate(networks, sources)
    # A node that a mask removed has no leak, and the potential 0.
    lifted = u + level * (leak != 0)[:, None]
    shape = (-1, *networks.grid)
    v, w = (lifted[:, i].reshape(shape) for i in range(2))
    a, b = (u[:, i].reshape(shape) for i in range(2))
    return assembled(networks, v, w.conj(), networks.products(a, b.conj()))


def ours(networks: Networks, dtype: torch.dtype, method: Any, batch: int) -> list[Tensor]:
    """Potentials and gradients of the networks, repeated to a `batch`."""
    rows = torch.arange(batch) % COUNT
    fields = (networks.source, networks.leak, *networks.conductance)
    leaves = [x[rows, ..., None].to(dtype).requires_grad_() for x in fields]
    source, leak, *g = leaves
    options: Any = {"periodic": networks.periodic, "method": method, "backend": "cpu"}
    v = kirchhoff_network(source, g, leak, **options)
    weight = weight_of(networks)[rows, ..., None].to(dtype)
    found = [x[..., 0] for x in (v.detach(), *torch.autograd.grad(v, leaves, weight))]
    edges = zip(found[3:], networks.conductance, strict=True)
    return [*found[:3], *(torch.where(g[rows] != 0, x, 0) for x, g in edges)]


def theirs(networks: Networks) -> list[Tensor]:
    """The same by SciPy."""
    solve = factors(networks)()
    v, w = (solve(x).numpy() for x in (networks.source, weight_of(networks).conj()))
    return assembled(networks, v, w.conj(), networks.products(v, w.conj()))


def judge(name: str, expected: Sequence[Tensor], call: Callable[[], Sequence[Tensor]]) -> Row:
    """The errors of what a contender's `call` returns: potentials and gradients."""
    row: Row = {"name": name, "potential": 0.0, "gradient": 0.0, "unsolved": 1, "calls": 1}
    try:
        actual = call()
    except (RuntimeError, ValueError) as failure:
        print(f"{name}: {failure}")
        return row
    if not all(bool(x.isfinite().all()) for x in actual):
        return row
    errors = []
    for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
        wanted = y[torch.arange(len(x)) % len(y)]
        size = wanted.abs()
        if i or name not in COMPONENTWISE:
            size = size.flatten(1).amax(1).reshape(-1, *[1] * (x.dim() - 1))
        error = (x.to(wanted.dtype) - wanted).abs()
        errors.append(float(torch.where(error > 0, error / size, 0).amax()))
    return {**row, "potential": errors[0], "gradient": max(errors[1:]), "unsolved": 0}


def judged(
    cases: Iterator[Networks], contenders: dict[str, tuple[torch.dtype, str]], **label: Any
) -> Row:
    """The worst of each contender over all networks and batches."""
    found = []
    for networks in cases:
        expected = truth(networks)
        for (name, given), batch in itertools.product(contenders.items(), BATCHES):
            call = functools.partial(ours, networks, *given, batch)
            found.append(judge(name, [x[:batch] for x in expected], call))
        found.append(judge("spsolve", expected, functools.partial(theirs, networks)))
    worst = {"potential": "max", "gradient": "max", "unsolved": "sum", "calls": "sum"}
    frame = pd.DataFrame(found).groupby("name", sort=False).agg(worst)
    rows = frame.reset_index().to_dict("records")
    show(rows, **label)
    return {**label, "rows": rows}


def places(smoke: bool) -> Iterator[tuple[Any, Any, bool]]:
    """Grids, boundaries, and whether a mask."""
    for boundary in BOUNDARIES:
        for grid in SMOKE_GRIDS if smoke else GRIDS:
            for masked in (False, True)[: 1 + (min(grid) > 4 and len(grid) > 1)]:
                faces = boundary[: len(grid)] if isinstance(boundary, tuple) else boundary
                yield grid, faces, masked


def media(run: Run) -> list[Row]:
    contenders = {
        "float32": (torch.float32, "direct"),
        "float64": (torch.float64, "direct"),
        "auto": (torch.float32, "auto"),
    }
    rows = []
    for medium in MEDIA[3:] if run.smoke else MEDIA:
        for contrast in CONTRASTS:
            cases = (
                resistors(medium, contrast, grid, leak, boundary, masked)
                for leak in (LEAKS[1:] if run.smoke else LEAKS)
                for grid, boundary, masked in places(run.smoke)
            )
            rows.append(judged(cases, contenders, medium=medium, contrast=contrast))
    return rows


def complex_networks(run: Run) -> list[Row]:
    contenders = {name: (getattr(torch, name), "auto") for name in ("complex64", "complex128")}
    rows = []
    for kind in ("waves", "admittances"):
        for loss in (0.02, 0.0):
            cases = (alternating(kind, loss, *place) for place in places(run.smoke))
            rows.append(judged(cases, contenders, medium=kind, loss=loss))
    return rows


SECTIONS = {"media": media, "complex": complex_networks}
main = main_of(__doc__, "accuracy", SECTIONS, ["scipy"])

if __name__ == "__main__":
    main()
