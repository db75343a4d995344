"""Pressure from porosity, by an unknown law.

========== =====================================================================================
Equation   ``-div(k grad u) = 1``, u = 0 at the walls; learn the porosity ``p -> u``. k is not given
Input      ``p = 0.05 + 0.35 F((g + h) / sqrt(2))`` at the centres of R x R cells, F the normal
           distribution function, g and h Gaussian fields with squared exponential covariance of
           lengths 0.15 and 1/64
Law        ``k = t^3 / (1 - t)^2 / 0.0125 exp(0.2 z)``: Kozeny and Carman's law of the porosity
           ``t = (p + q) / 2`` of throats, q the least p of a cell and its four neighbours; z is
           standard normal in each cell, and nobody's input
Parameters R = 64; 256 samples to train, 32 to validate, 64 to test, ``spawn_key=(split, i)``
Generator  finite volumes with harmonic means at the faces, `chonn_ops.diffusion`, eliminated
Cost       ten seconds on one core a file
Layout     a group a split: ``porosity``, ``k`` and ``u`` (S, R, R), float64
========== =====================================================================================

No model of p alone reaches an error of 0: `law` without z has the least that one can hope for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import minimum_filter
from scipy.special import ndtr

from chonn_lab.problems.generation import stream, write_groups
from chonn_lab.problems.grids import cell_centres
from chonn_lab.problems.hdf5 import read_group
from chonn_lab.problems.upscaling import SPLITS, gaussian_field, solve
from chonn_ops.checks import check_integer

RESOLUTION = 64
LEAST, MOST = 0.05, 0.4  # porosity
NOISE = 0.2
_CROSS = np.array([[[0, 1, 0], [1, 1, 1], [0, 1, 0]]], bool)


class Samples(NamedTuple):
    """Porosity, conductivity and pressure, (S, R, R) each."""

    porosity: np.ndarray
    k: np.ndarray
    u: np.ndarray


def generate(
    path: Path | str = "unknown_law.h5",
    seed: int = 0,
    resolution: int = RESOLUTION,
    n_train: int = 256,
    n_validation: int = 32,
    n_test: int = 64,
    force: bool = False,
) -> Path:
    """Solve all samples, on R x R cells, R at least 8.

    Errors: `chonn_lab.problems.generation.write_groups`.
    """
    check_integer(8, resolution=resolution)

    def groups(split: int, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
        fields = []
        for i in range(count):
            rng = stream(seed, split, i)
            p = porosity(rng, cell_centres(resolution))
            fields.append((p, np.exp(NOISE * rng.standard_normal(p.shape))))
        p, noise = map(np.stack, zip(*fields, strict=True))
        k = law(p) * noise
        yield SPLITS[split], Samples(p, k, solve(k))._asdict()

    sizes = {"n_train": n_train, "n_validation": n_validation, "n_test": n_test}
    return write_groups(path, "unknown_law", {"resolution": resolution}, groups, sizes, seed, force)


def read(path: Path | str, split: str) -> Samples:
    """The samples of a split; see `chonn_lab.problems.hdf5.read_group`."""
    return read_group(path, split, Samples)


def porosity(rng: np.random.Generator, place: np.ndarray) -> np.ndarray:
    """p of each cell (R, R), see the card."""
    field = gaussian_field(rng, place, 0.15) + gaussian_field(rng, place, 1 / 64)
    return LEAST + (MOST - LEAST) * ndtr(field / np.sqrt(2))


def law(p: np.ndarray) -> np.ndarray:
    """k (S, R, R) of a porosity (S, R, R), without noise."""
    throat = (p + minimum_filter(p, footprint=_CROSS, mode="nearest")) / 2
    return throat**3 / (1 - throat) ** 2 / 0.0125
