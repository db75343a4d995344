"""Helmholtz's equation with two wave numbers, an indefinite problem of ours.

========== =====================================================================================
Equation   ``-laplace u - k^2 u = 1``, u = 0 on the walls; learn ``k -> u``
Domain     R x R cells, values at centres ``(i + 1/2) / R``
Input      ``k``: 18 where a sample of ``N(0, (-laplace + 9)^-2)`` with zero Neumann conditions and
           no mean is at least 0, else 12. The sample is a cosine series of 64 x 64 modes
Resonance  samples with an eigenvalue of ``-laplace - k^2`` closer to 0 than 5 are drawn again: near
           a resonance u is a large multiple of one mode, and errors of the scheme are as large. The
           eigenvalues are the grid's, so on another grid a sample is the same with `drawn_at` alone
Parameters R = 64: wavelengths of 0.52 and 0.35, about 8 to 25 negative eigenvalues. Of 1,000
           samples we use 800 to train, 100 to validate and 100 to test, in this order
Generator  five-point finite volumes, at least 10 cells a wavelength, sparse LU with pivoting
Cost       0.06 s a sample and core at R = 64; 33 MB for 1,000
Layout     ``k`` (N, R, R), ``tensor`` (N, 1, R, R), ``x-coordinate``, ``y-coordinate`` (R,)
========== =====================================================================================

No M-matrix can solve this problem. The inverse of an M-matrix has no negative entry, so a positive
source gives potentials of at least 0, as in every network of positive conductances. But the wave
numbers are above ``sqrt(2) pi``, the square's first resonance, so the lowest eigenvalue of
``-laplace - k^2`` is negative. Its eigenfunction v is positive, and the mean of ``u v`` is the mean
of v over the eigenvalue: every solution is negative somewhere. A network model can get negative
values only from the layers around its networks.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch

from chonn_lab.problems.darcy_solver import laplace_matrix
from chonn_lab.problems.generation import Arrays, Recipe, make_files, single, stream
from chonn_lab.problems.grids import cell_centres, coordinates
from chonn_lab.problems.hdf5 import read_rows
from chonn_lab.problems.random_fields import cosine_series

RESOLUTION = 64
N_MODES = 64
WAVENUMBER, RATIO = 12.0, 1.5
CELLS_PER_WAVELENGTH = 10
# From 0 to the nearest eigenvalue.
LEAST_DISTANCE = 5.0
MOST_ATTEMPTS = 100


def default_name(resolution: int = RESOLUTION) -> str:
    """File name that says what is in it."""
    return f"2D_Helmholtz_k{WAVENUMBER:g}_ratio{RATIO:g}_r{resolution}.hdf5"


def helmholtz_matrix(k: np.ndarray) -> scipy.sparse.csc_matrix:
    """``-laplace - k^2`` on cells (R, R), u = 0 on the walls: symmetric, in general indefinite."""
    return scipy.sparse.csc_matrix(laplace_matrix(len(k)) - scipy.sparse.diags(k.ravel() ** 2))


def solve(k: np.ndarray, f: np.ndarray | float = 1.0) -> tuple[np.ndarray, float]:
    """u of ``-laplace u - k^2 u = f``, and how far the nearest eigenvalue is from 0.

    k, f and u are (R, R), f may be one value.
    """
    matrix = helmholtz_matrix(k)
    # SciPy's annotations are narrower than what it takes.
    linalg: Any = scipy.sparse.linalg
    factors = linalg.splu(matrix)
    inverse = linalg.LinearOperator(matrix.shape, factors.solve, dtype=float)
    # The inverse's eigenvalue of largest magnitude; the fixed start makes the result repeatable.
    start = np.random.default_rng(0).standard_normal(k.size)
    largest = linalg.eigsh(inverse, 1, which="LM", v0=start, tol=1e-6, return_eigenvectors=False)
    u = factors.solve(np.broadcast_to(f, k.shape).ravel()).reshape(k.shape)
    return u, float(1 / abs(largest[0]))


def check_resolved(wavenumber: float, resolution: int) -> None:
    """ValueError for a grid that is too coarse for the shortest waves."""
    needed = math.ceil(CELLS_PER_WAVELENGTH * wavenumber / (2 * math.pi))
    if resolution < needed:
        raise ValueError(
            f"resolution: expected at least {needed} for {CELLS_PER_WAVELENGTH} cells a wavelength "
            f"at the wave number {wavenumber:g}, got {resolution}"
        )


def generate(
    output: Path | str = "",
    n_samples: int = 1000,
    resolution: int = RESOLUTION,
    first: int = 0,
    drawn_at: int = 0,
    **options: Any,
) -> Path:
    """Generate a file from the sample `first` on.

    The eigenvalues of the grid of `drawn_at` points an axis, by default `resolution`, decide what
    is drawn again: these are the samples of that grid, solved on this one. A ValueError if the 100
    attempts at a sample were all near a resonance.
    """
    for points in (resolution, drawn_at or resolution):
        check_resolved(WAVENUMBER * RATIO, points)
    law = {"wavenumber": WAVENUMBER, "ratio": RATIO}
    place = {"first": first, "drawn_at": drawn_at or resolution}
    settings = {"n_samples": n_samples, "resolution": resolution, **law, **place}
    recipe = Recipe("helmholtz", _sample, settings, fixed=coordinates(resolution))
    return make_files({Path(output or default_name(resolution)): recipe}, **options)[0]


def read(
    path: Path | str, start: int = 0, stop: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Wave numbers and solutions of some samples, (N, R, R), float32; see `read_rows`."""
    k, u = read_rows(path, start, stop, k=3, tensor=4)
    return torch.from_numpy(k), torch.from_numpy(u[:, 0])


def _sample(
    seed: int, i: int, resolution: int, wavenumber: float, ratio: float, drawn_at: int
) -> Arrays:
    rng = stream(seed, i)

    def medium(modes: np.ndarray, n: int) -> np.ndarray:
        return wavenumber * np.where(cosine_series(modes, cell_centres(n)) >= 0, ratio, 1.0)

    for _ in range(MOST_ATTEMPTS):
        modes = rng.standard_normal((N_MODES, N_MODES))
        k = medium(modes, drawn_at)
        u, distance = solve(k)
        if distance < LEAST_DISTANCE:
            continue
        if drawn_at != resolution:
            k = medium(modes, resolution)
            u, _ = solve(k)
        return single(k=k, tensor=u[None])
    raise ValueError(
        f"resolution {drawn_at}: {MOST_ATTEMPTS} attempts at sample {i} were all closer than "
        f"{LEAST_DISTANCE:g} to a resonance"
    )
