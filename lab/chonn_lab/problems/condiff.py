"""Diffusion in rough log-normal media, after ConDiff: data set card, generator and reader.

========== =====================================================================================
Equation   ``-div(k grad u) = f``; learn ``(k, f) -> u``
Domain     unit square, dimensionless. ``k`` is constant in each of (R + 1) x (R + 1) equal cells;
           ``f`` and ``u`` lie at the R x R corners between them, ``x_i = i / (R + 1)`` for i = 1 to
           R. Axis 0 is x, axis 1 is y
Boundary   ``u = 0``
Input      ``k = exp(g)``, g a stationary Gaussian field at the cells' centres with mean 0 and the
           covariance ``variance * c(d / 0.05)`` at the distance d. ``c(h)`` is ``exp(-h)``
           (exponential), ``exp(-h^2)`` (gaussian), or ``1 - 7 h^2 + 35/4 h^3 - 7/2 h^5 + 3/4 h^7``
           up to h = 1 and 0 beyond (cubic). A field counts only if its contrast, max k / min k, is
           5 to 15 at variance 0.1, 50 to 250 at 0.4, 600 to 1,000 at 1 and 80,000 to 100,000 at 2.
           ``f``: an independent standard normal number at every corner
Parameters covariance cubic, exponential or gaussian; variance 0.1, 0.4, 1 or 2; R = 64 or 128. Each
           published set has 1,000 samples to train and 200 to test; the mean relative L2 error
           over the test samples is the score
Generator  finite volumes around the corners: half of the face between two corners lies in each of
           two cells, so it has their arithmetic mean. Direct sparse solve in float64, stored as
           float32. Fields by circulant embedding on a torus twice as wide, which has exactly this
           covariance; the real and the imaginary part of a transform are two fields
Seeds      sample i draws from ``numpy.random.SeedSequence(seed, spawn_key=(i,))``: it is the same
           for every number of samples and of workers. ``f`` is the same for every covariance and
           variance
Cost       0.04 (cubic), 0.07 (exponential) or 0.1 s (gaussian) a sample and core at R = 64 and
           variance 2, most of it for fields that do not count: 1 in 35, 70 or 150 does
Layout     HDF5: ``k`` (N, R + 1, R + 1), ``rhs`` and ``x`` (N, R^2), float32. As published, the
           corners in ``rhs`` and ``x`` have x for the fastest index. Attributes of
           `chonn_lab.problems.origin`
Official   ``condiff/ConDiff`` on the Hugging Face Hub, two files a set, such as
           ``cubic2.0_grid64_train.h5``. `read` takes them, too. We know no checksum
========== =====================================================================================

What differs from the published data: the random numbers come from NumPy (there from JAX's keys and
the library parafields, with the same embedding): the same distribution, other samples. One file
holds training, validation and test samples, in this order, for as many samples as are asked for; it
is in float32, there in float64. Its sets of Poisson's equation, k = 1, are left out.

ConDiff's notebooks train on ``k[:R, :R]`` beside ``rhs`` and ``x`` reshaped to R x R as if y were
the fastest index. Their k is therefore transposed relative to f and u. `read` aligns all three
axes. The experiment of this name crops k, too; at its small scale 256 samples train, not 1,000.

References
----------
.. [1] V. Trifonov, A. Rudikov, O. Iliev, Y. M. Laevsky, I. Oseledets, E. Muravleva, "ConDiff: A
   Challenging Dataset for Neural Solvers of Partial Differential Equations", arXiv 2406.04709,
   2024. Code: https://github.com/condiff-dataset/ConDiff, generator ``condiff.py``
.. [2] C. R. Dietrich, G. N. Newsam, "Fast and exact simulation of stationary Gaussian processes
   through circulant embedding of the covariance matrix", SIAM J. Sci. Comput. 18 (1997).
"""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from chonn_lab.problems.darcy_solver import conductance_matrix, factorise
from chonn_lab.problems.generation import Recipe, check_sizes
from chonn_lab.problems.hdf5 import check_range, dataset, open_hdf5
from chonn_ops.checks import check_choice

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
SAMPLES_PER_PART = 16
# Increased when the same settings give other data, see `chonn_lab.problems.origin`.
GENERATOR_VERSION = 1


def default_name(
    resolution: int = RESOLUTION, covariance: str = "cubic", variance: float = 2.0
) -> str:
    """File name in the style of the published files."""
    return f"condiff_{covariance}{float(variance)}_grid{resolution}.hdf5"


def check_medium(covariance: str, variance: float) -> None:
    """ValueError for a covariance or a variance that ConDiff does not have."""
    check_choice("covariance", covariance, tuple(CORRELATIONS))
    if variance not in CONTRASTS:
        known = ", ".join(f"{value:g}" for value in CONTRASTS)
        raise ValueError(f"variance: expected one of {known}, got {variance}")


def corners(resolution: int) -> np.ndarray:
    """(R,) places of f and u along an axis, the walls at 0 and 1 not among them."""
    return np.arange(1, resolution + 1) / (resolution + 1)


def draw(
    seed: int, sample: int, resolution: int, covariance: str, variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """One sample of the card's law.

    Returns
    -------
    k, f : ndarray
        (R + 1, R + 1) in the cells and (R, R) at the corners, float64.

    Raises
    ------
    ValueError
        If none of `MOST_DRAWS` fields has a contrast within the limits.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(sample,)))
    f = rng.standard_normal((resolution, resolution))
    low, high = np.log(CONTRASTS[variance])
    for _ in range(MOST_DRAWS // 2):
        for field in _two_fields(rng, covariance, resolution + 1):
            logs = np.sqrt(variance) * field
            if low <= np.ptp(logs) <= high:
                return np.exp(logs), f
    raise ValueError(
        f"resolution: expected a grid on which fields of variance {variance:g} have contrasts of "
        f"{CONTRASTS[variance][0]:,.0f} to {CONTRASTS[variance][1]:,.0f}, got {resolution}, on "
        f"which none of {MOST_DRAWS:,} fields has"
    )


def solve(k: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Solve ``-div(k grad u) = f`` with u = 0 on the walls.

    Parameters
    ----------
    k : ndarray
        (R + 1, R + 1) in the cells, positive.
    f : ndarray
        (R, R) at the corners between them.

    Returns
    -------
    ndarray
        (R, R), float64.
    """
    faces_x = 0.5 * (k[:, 1:] + k[:, :-1]) * len(k) ** 2
    faces_y = 0.5 * (k[1:] + k[:-1]) * len(k) ** 2
    factors = factorise(conductance_matrix([faces_x, faces_y]))
    return factors.solve(f.ravel()).reshape(f.shape)


def generate(
    output: "str | os.PathLike[str] | None" = None,
    n_samples: int = 1200,
    resolution: int = RESOLUTION,
    covariance: str = "cubic",
    variance: float = 2.0,
    seed: int = 0,
    workers: int = 1,
    force: bool = False,
    progress: bool = True,
) -> Path:
    """Generate a data set; an interrupted call is resumed by the next one.

    Parameters
    ----------
    output : path, optional
        HDF5 file to write, by default `default_name`; it appears when it is complete.
    n_samples, resolution, seed, workers, force, progress
        As for `chonn_lab.problems.helmholtz.generate`, and so are results and errors.
    covariance : {"cubic", "exponential", "gaussian"}
    variance : {0.1, 0.4, 1.0, 2.0}
        Of the logarithm of k. On a grid that is too coarse for its contrasts, no sample is found:
        a ValueError.
    """
    check_sizes(n_samples, resolution, 2, seed, workers)
    check_medium(covariance, variance)
    path = Path(output or default_name(resolution, covariance, variance))
    settings = {
        "n_samples": n_samples,
        "resolution": resolution,
        "covariance": covariance,
        "variance": float(variance),
    }

    recipe = Recipe("condiff", GENERATOR_VERSION, seed, settings)
    return recipe.write(path, _solve_part, SAMPLES_PER_PART, workers, force, progress)


def read(
    path: "str | os.PathLike[str]", start: int = 0, stop: "int | None" = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Coefficients, right-hand sides and solutions of a generated or published file.

    Parameters and errors are those of `chonn_lab.problems.helmholtz.read`.

    Returns
    -------
    k : torch.Tensor
        (N, R + 1, R + 1), float32.
    f, u : torch.Tensor
        (N, R, R), float32, with the axes of k.
    """
    with open_hdf5(path) as file:
        k = dataset(file, "k", 3)
        flat = [dataset(file, name, 2) for name in ("rhs", "x")]
        n_samples, cells, _ = k.shape
        n = cells - 1
        if k.shape[2] != cells or any(field.shape != (n_samples, n * n) for field in flat):
            raise ValueError(
                f"{path}: expected k (N, R + 1, R + 1), rhs and x (N, R^2), got {k.shape}, "
                f"{flat[0].shape} and {flat[1].shape}"
            )
        check_range(path, n_samples, start, stop)
        fields = (field[start:stop].reshape(-1, n, n).swapaxes(1, 2) for field in flat)
        f, u = (torch.from_numpy(np.ascontiguousarray(field, "f4")) for field in fields)
        return torch.from_numpy(k[start:stop].astype("f4")), f, u


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


def _solve_part(
    samples: range, seed: int, resolution: int, covariance: str, variance: float
) -> dict[str, np.ndarray]:
    media, sources, solutions = [], [], []
    for sample in samples:
        k, f = draw(seed, sample, resolution, covariance, variance)
        media.append(k)
        sources.append(f.ravel(order="F"))
        solutions.append(solve(k, f).ravel(order="F"))
    arrays = {"k": media, "rhs": sources, "x": solutions}
    return {name: np.array(values, "f4") for name, values in arrays.items()}
