"""Pressure on a coarse grid from a fine medium.

========== =====================================================================================
Equation   ``-div(k grad u) = 1``, u = 0 at the walls; learn ``k`` on R x R cells ``-> u`` on
           R/4 x R/4, the mean over each block of 4 x 4 cells
Input      k of one of three kinds, in turn, over its own geometric mean. ``log-normal``: exp(2 g);
           ``two-phase``: 1,000 where g > 0, else 1; ``channels``: 1,000 in six meandering channels
           along x or y, 3 to 7 cells wide, else 1. g is a stationary Gaussian field with squared
           exponential covariance, of length 5/256 (``log-normal``) or 8/256. Media are functions of
           the position, the same on every grid
Parameters R = 256. A block of a coarse cell is half a length of the medium wide or wider, so no
           coarse conductivity is exact. 288 samples to train, 48 to validate, 96 to test,
           ``spawn_key=(split, i)``
Generator  finite volumes with harmonic means at the faces, `chonn_ops.diffusion`, eliminated; k is
           rounded to float32 before
Cost       about 0.03 s a sample and core
Layout     a group a split: ``k`` (S, R, R) float32, ``u`` (S, R/4, R/4) float64, ``kind`` (S,), the
           number in `KINDS`
========== =====================================================================================

Controls solve the equation on the coarse grid, with a conductivity an axis from each block's 16
values: `MEANS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chonn_lab.problems.domains import cell_centres
from chonn_lab.problems.generation import stream, write_groups
from chonn_lab.problems.hdf5 import read_group
from chonn_ops import Dirichlet, Neumann, diffusion
from chonn_ops.checks import check_choice, check_least

SPLITS, SIZES = ("train", "validation", "test"), (288, 48, 96)
KINDS = ("log-normal", "two-phase", "channels")
RESOLUTION, PATCH = 256, 4
CONTRAST = 1000.0
CHANNELS = 6


class Samples(NamedTuple):
    """k (S, R, R), u (S, R/4, R/4) and the number of the kind (S,)."""

    k: np.ndarray
    u: np.ndarray
    kind: np.ndarray


def generate(
    path: Path | str = "upscaling.h5",
    seed: int = 0,
    resolution: int = RESOLUTION,
    fraction: float = 1.0,
    force: bool = False,
) -> Path:
    """Solve all samples, on R x R cells, R a multiple of 4.

    `fraction` is that of the card's numbers of samples; there is at least one of each kind. Errors:
    `chonn_lab.problems.generation.write_groups`; ValueError for another R, or below 16.
    """
    check_least(16, resolution=resolution)
    if resolution % PATCH:
        raise ValueError(f"resolution: expected a multiple of {PATCH}, got {resolution}")

    def groups() -> Iterator[tuple[str, dict[str, Any]]]:
        for split, full in enumerate(SIZES):
            kind = np.arange(max(len(KINDS), round(full * fraction))) % len(KINDS)
            media = [
                medium(stream(seed, split, i), KINDS[which], resolution)
                for i, which in enumerate(kind)
            ]
            u = np.concatenate([blocks(solve(k[None])).mean(-1) for k in media])
            yield SPLITS[split], Samples(np.stack(media), u, kind)._asdict()

    settings = {"resolution": resolution, "fraction": fraction}
    return write_groups(Path(path), "upscaling", seed, settings, groups(), force)


def read(path: Path | str, split: str) -> Samples:
    """The samples of a split; see `chonn_lab.problems.hdf5.read_group`."""
    return read_group(path, split, Samples)


def medium(rng: np.random.Generator, kind: str, resolution: int) -> np.ndarray:
    """k of each cell, (R, R) float32, x along axis 0; see the card."""
    check_choice("kind", kind, KINDS)
    place = cell_centres(resolution)
    if kind == "channels":
        log = np.log(CONTRAST) * _channels(rng, place)
    elif kind == "two-phase":
        log = np.log(CONTRAST) * (gaussian_field(rng, place, 8 / 256) > 0)
    else:
        log = 2 * gaussian_field(rng, place, 5 / 256)
    return np.exp(log - log.mean()).astype(np.float32)


def gaussian_field(rng: np.random.Generator, place: np.ndarray, length: float) -> np.ndarray:
    """Field (R, R) of variance 1 and squared exponential covariance: a sum of 200 waves."""
    wave, phase = rng.standard_normal((2, 200)) / length, rng.uniform(0, 2 * np.pi, 200)
    along, across = np.exp(1j * np.multiply.outer(place, wave)).swapaxes(0, 1)
    return np.real((along * np.exp(1j * phase)) @ across.T) / 10


def _channels(rng: np.random.Generator, place: np.ndarray) -> np.ndarray:
    inside = np.zeros((len(place), len(place)), bool)
    for centre in (np.arange(CHANNELS) + rng.uniform(0.1, 0.9, CHANNELS)) / CHANNELS:
        reach, turns, phase = rng.uniform(0.01, 0.06), rng.uniform(1, 4), rng.uniform(0, 1)
        line = centre + reach * np.sin(2 * np.pi * (turns * place + phase))
        inside |= np.abs(place - line[:, None]) < rng.uniform(1.5, 3.5) / 256
    return inside if rng.random() < 0.5 else inside.T


def solve(k: np.ndarray) -> np.ndarray:
    """u of each cell (S, R, R) in float64, by the scheme of the card."""
    return solved(torch.tensor(k, dtype=torch.float64)).numpy()


def solved(*k: Tensor) -> Tensor:
    """u (S, R, R) with u = 0 at the walls and f = 1, for one k (S, R, R) or one an axis."""
    media = [one[..., None] for one in k]
    circuit = diffusion(media, 1 / k[0].shape[-1], boundary="dirichlet")
    return circuit.solve(torch.ones_like(media[0]), method="direct")[..., 0]


def blocks(field: np.ndarray) -> np.ndarray:
    """The values of each block (S, R/4, R/4, 16)."""
    s, n, _ = field.shape
    parts = field.reshape(s, n // PATCH, PATCH, n // PATCH, PATCH).swapaxes(2, 3)
    return parts.reshape(s, n // PATCH, n // PATCH, PATCH**2)


MEANS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "harmonic": lambda k: 1 / (1 / k).mean((-2, -1)),
    "geometric": lambda k: np.exp(np.log(k).mean((-2, -1))),
    "arithmetic": lambda k: k.mean((-2, -1)),
    "harmonic, then arithmetic": lambda k: (1 / (1 / k).mean(-2)).mean(-1),
    "arithmetic, then harmonic": lambda k: 1 / (1 / k.mean(-1)).mean(-1),
    "flow": lambda k: _flow(k),
}
"""Controls: the conductivity along axis -2 of blocks (..., 4, 4).

``harmonic <= harmonic, then arithmetic <= flow <= arithmetic, then harmonic <= arithmetic``, since
"harmonic, then arithmetic" insulates the lines along the axis from each other and "arithmetic, then
harmonic" joins the cells across it. "flow" solves the equation in the block between potentials 1
and 0 at two faces; the others are insulated.
"""


def coarse_conductivities(k: np.ndarray, mean: str) -> tuple[np.ndarray, np.ndarray]:
    """Conductivities of the blocks of k (S, R, R) along x and y, (S, R/4, R/4) each, by `MEANS`."""
    parts = blocks(np.asarray(k, np.float64))
    cells = parts.reshape(*parts.shape[:3], PATCH, PATCH)
    return MEANS[mean](cells), MEANS[mean](cells.swapaxes(-1, -2))


def _flow(cells: np.ndarray) -> np.ndarray:
    """Current through blocks (..., 4, 4) between potentials 1 and 0 at the ends of axis -2."""
    k = torch.tensor(cells.reshape(-1, PATCH, PATCH))[..., None]
    sides = (Dirichlet(1.0), Dirichlet(0.0)), (Neumann(), Neumann())
    circuit = diffusion(k, 1 / PATCH, boundary=sides)
    v = circuit.solve(torch.zeros_like(k), method="direct")[..., 0]
    # Half a cell lies between a face and the nodes beside it.
    out = (2 * k[:, -1, :, 0] * v[:, -1]).sum(-1)
    return out.numpy().reshape(cells.shape[:-2])


def coarse_solve(k: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """u (S, n, n) in float64 of conductivities along x and y."""
    return solved(*(torch.tensor(one, dtype=torch.float64) for one in k)).numpy()
