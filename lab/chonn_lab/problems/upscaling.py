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
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pixel_unshuffle

from chonn_lab.problems.generation import stream, write_groups
from chonn_lab.problems.grids import cell_centres
from chonn_lab.problems.hdf5 import read_group
from chonn_ops import Direct, diffusion
from chonn_ops.checks import check_choice, check_integer

SPLITS = ("train", "validation", "test")
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
    n_train: int = 288,
    n_validation: int = 48,
    n_test: int = 96,
    force: bool = False,
) -> Path:
    """Solve all samples, on R x R cells, R a multiple of 4.

    Errors: `chonn_lab.problems.generation.write_groups`; ValueError for another R, or below 16.
    """
    check_integer(16, resolution=resolution)
    if resolution % PATCH:
        raise ValueError(f"resolution: expected a multiple of {PATCH}, got {resolution}")

    def groups(split: int, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
        kind = np.arange(count) % len(KINDS)
        media = [
            medium(stream(seed, split, i), KINDS[which], resolution) for i, which in enumerate(kind)
        ]
        fine = [torch.from_numpy(solve(k[None])) for k in media]
        u = torch.cat([blocks(field).mean(1) for field in fine]).numpy()
        yield SPLITS[split], Samples(np.stack(media), u, kind)._asdict()

    sizes = {"n_train": n_train, "n_validation": n_validation, "n_test": n_test}
    return write_groups(path, "upscaling", {"resolution": resolution}, groups, sizes, seed, force)


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
    media = [conductivity[..., None] for conductivity in k]
    circuit = diffusion(media, 1 / k[0].shape[-1], boundary="dirichlet")
    return circuit.solve(torch.ones_like(media[0]), Direct())[..., 0]


def blocks(field: Tensor) -> Tensor:
    """The values of each block, row by row, (S, 16, R/4, R/4) of a field (S, R, R)."""
    return pixel_unshuffle(field[:, None], PATCH)
