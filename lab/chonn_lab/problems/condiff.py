"""Diffusion in rough log-normal media, after ConDiff.

========== =====================================================================================
Equation   ``-div(k grad u) = f``, u = 0 on the walls; learn ``(k, f) -> u``
Domain     ``k`` is constant in each of (R + 1) x (R + 1) equal cells; ``f`` and ``u`` lie at the
           R x R corners between them, ``x_i = i / (R + 1)`` for i = 1 to R
Input      ``k = exp(g)``, g a stationary Gaussian field at the cells' centres with mean 0 and the
           covariance ``variance * c(d / 0.05)`` at the distance d. ``c(h)`` is ``exp(-h)``
           (exponential), ``exp(-h^2)`` (gaussian), or ``1 - 7 h^2 + 35/4 h^3 - 7/2 h^5 + 3/4 h^7``
           up to h = 1 and 0 beyond (cubic). A field counts only if its contrast, max k / min k, is
           5 to 15 at variance 0.1, 50 to 250 at 0.4, 600 to 1,000 at 1 and 80,000 to 100,000 at 2.
           ``f``: independent standard normal numbers, the same for every covariance and variance
Parameters covariance; variance; R = 64 or 128. Each published set has 1,000 samples to train and
           200 to test; the mean relative L2 error over the test samples is the score
Generator  finite volumes around the corners: half of the face between two corners lies in each of
           two cells, so it has their arithmetic mean. Fields by circulant embedding on a torus
           twice as wide, which has exactly this covariance (C. R. Dietrich, G. N. Newsam, SIAM J.
           Sci. Comput. 18, 1997); the real and the imaginary part of a transform are two fields
Cost       0.04 (cubic), 0.07 (exponential) or 0.1 s (gaussian) a sample and core at R = 64 and
           variance 2, most of it for fields that do not count: 1 in 35, 70 or 150 does
Layout     ``k`` (N, R + 1, R + 1), ``rhs`` and ``x`` (N, R^2), in which, as published, the corners
           have x for the fastest index
Official   ``condiff/ConDiff`` on the Hugging Face Hub, two files a set, such as
           ``cubic2.0_grid64_train.h5``. `read` takes them, too. We know no checksum
========== =====================================================================================

Published are other samples of the same law, in float64, training and test samples in two files.
ConDiff's notebooks train on ``k[:R, :R]`` beside ``rhs`` and ``x`` reshaped to R x R as if y were
the fastest index: their k is transposed relative to f and u. `read` aligns all three.

V. Trifonov, A. Rudikov, O. Iliev, Y. M. Laevsky, I. Oseledets, E. Muravleva, "ConDiff: A
Challenging Dataset for Neural Solvers of Partial Differential Equations", arXiv 2406.04709, 2024.
Code: https://github.com/condiff-dataset/ConDiff
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chonn_lab.problems.darcy_solver import conductance_matrix, factorise
from chonn_lab.problems.generation import Arrays, Recipe, make_files, single, stream
from chonn_lab.problems.hdf5 import read_rows
from chonn_ops.checks import check_choice, check_least

RESOLUTION = 64
LENGTH = 0.05
CORRELATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "cubic": lambda h: np.where(h < 1, 1 - 7 * h**2 + 8.75 * h**3 - 3.5 * h**5 + 0.75 * h**7, 0.0),
    "exponential": lambda h: np.exp(-h),
    "gaussian": lambda h: np.exp(-(h**2)),
}
# Limits of the contrast by variance.
CONTRASTS: Mapping[float, tuple[float, float]] = {
    0.1: (5.0, 15.0),
    0.4: (50.0, 250.0),
    1.0: (600.0, 1000.0),
    2.0: (80_000.0, 100_000.0),
}
# On grids that are too coarse no field has the contrast: extremes are too rare among few cells.
MOST_DRAWS = 50_000


def default_name(
    resolution: int = RESOLUTION, covariance: str = "cubic", variance: float = 2.0
) -> str:
    """File name in the style of the published files."""
    return f"condiff_{covariance}{float(variance)}_grid{resolution}.hdf5"


def draw(
    seed: int, sample: int, resolution: int, covariance: str, variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """One sample of the card's law: k (R + 1, R + 1) in cells, f (R, R) at corners, float64.

    ValueError if none of `MOST_DRAWS` fields has a contrast within the limits.
    """
    rng = stream(seed, sample)
    f = rng.standard_normal((resolution, resolution))
    limits = CONTRASTS[variance]
    for _ in range(MOST_DRAWS // 2):
        for field in _two_fields(rng, covariance, resolution + 1):
            logs = np.sqrt(variance) * field
            if np.log(limits[0]) <= np.ptp(logs) <= np.log(limits[1]):
                return np.exp(logs), f
    raise ValueError(
        f"resolution: expected a grid on which fields of variance {variance:g} have contrasts of "
        f"{limits[0]:,.0f} to {limits[1]:,.0f}, got {resolution}, on which none of "
        f"{MOST_DRAWS:,} fields has"
    )


def solve(k: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Solve ``-div(k grad u) = f`` with u = 0 on the walls.

    k is (R + 1, R + 1), in the cells, positive; f and u are (R, R), at the corners between them.
    """
    faces_x = 0.5 * (k[:, 1:] + k[:, :-1]) * len(k) ** 2
    faces_y = 0.5 * (k[1:] + k[:-1]) * len(k) ** 2
    factors = factorise(conductance_matrix(faces_x, faces_y))
    return factors.solve(f.ravel()).reshape(f.shape)


def generate(
    output: Path | str = "",
    n_samples: int = 1200,
    resolution: int = RESOLUTION,
    covariance: str = "cubic",
    variance: float = 2.0,
    **options: Any,
) -> Path:
    """Generate a file; a ValueError if the grid is too coarse for the contrasts of the variance."""
    check_least(2, resolution=resolution)
    check_choice("covariance", covariance, tuple(CORRELATIONS))
    if variance not in CONTRASTS:
        known = ", ".join(f"{value:g}" for value in CONTRASTS)
        raise ValueError(f"variance: expected one of {known}, got {variance}")
    law = {"covariance": covariance, "variance": float(variance)}
    settings = {"n_samples": n_samples, "resolution": resolution, **law}
    path = Path(output or default_name(resolution, covariance, variance))
    return make_files({path: Recipe(_sample, settings)}, **options)[0]


def read(
    path: Path | str, start: int = 0, stop: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Samples of a generated or published file: k, f and u, with the axes of k; see `read_rows`.

    k is (N, R + 1, R + 1), f and u are (N, R, R), float32.
    """
    k, *flat = read_rows(path, start, stop, k=3, rhs=2, x=2)
    n = k.shape[-1] - 1
    f, u = (np.ascontiguousarray(field.reshape(-1, n, n).swapaxes(1, 2)) for field in flat)
    return torch.from_numpy(k), torch.from_numpy(f), torch.from_numpy(u)


@functools.lru_cache
def _deviations(covariance: str, n: int) -> np.ndarray:
    """(2n, 2n) standard deviations of the Fourier modes of a field of variance 1 on a torus."""
    steps = np.minimum(np.arange(2 * n), 2 * n - np.arange(2 * n))
    distances = np.hypot(steps[:, None], steps) / (n * LENGTH)
    # Of the smooth covariance, the last eigenvalues are rounding errors of either sign.
    eigenvalues = np.fft.fft2(CORRELATIONS[covariance](distances)).real.clip(min=0)
    return np.sqrt(eigenvalues) / (2 * n)


def _two_fields(rng: np.random.Generator, covariance: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two independent fields (n, n) of variance 1."""
    real, imaginary = rng.standard_normal((2, 2 * n, 2 * n))
    fields = np.fft.fft2(_deviations(covariance, n) * (real + 1j * imaginary))[:n, :n]
    return fields.real, fields.imag


def _sample(seed: int, i: int, resolution: int, covariance: str, variance: float) -> Arrays:
    k, f = draw(seed, i, resolution, covariance, variance)
    return single(k=k, rhs=f.ravel(order="F"), x=solve(k, f).ravel(order="F"))
