"""Helmholtz's equation with two wave numbers, an indefinite problem: card, generator and reader.

========== =====================================================================================
Equation   ``-laplace u - k^2 u = 1``; learn ``k -> u``
Domain     unit square, R x R cells, dimensionless; values at cell centres ``(i + 1/2) / R``. Axis 0
           is x, axis 1 is y
Boundary   ``u = 0`` on the walls, half a cell from the outermost centres
Input      ``k``: `ratio` times the wave number where a sample of ``N(0, (-laplace + 9)^-2)`` with
           zero Neumann conditions and no mean is at least 0, else the wave number. The sample is a
           cosine series of 64 x 64 modes
Resonance  samples with an eigenvalue of ``-laplace - k^2`` closer to 0 than 5 are drawn again: near
           a resonance u is a large multiple of one mode, and errors of the scheme are as large
Parameters wave number 12, ratio 1.5, R = 64: wavelengths of 0.52 and 0.35, about 8 to 25 negative
           eigenvalues
Splits     none given; of 1,000 we use 800 to train, 100 to validate and 100 to test, in this order
Seeds      sample i draws from ``numpy.random.SeedSequence(seed, spawn_key=(i,))``, and so do its
           further attempts: it is the same for every number of samples and of workers. The
           eigenvalues are the grid's, so on another grid it is the same with `drawn_at` alone
Generator  five-point finite volumes, direct sparse solve with pivoting in float64, stored as
           float32. At least 10 cells a wavelength are asked for
Cost       0.06 s a sample and core at R = 64; 33 MB for 1,000. Solved samples are kept beside the
           file in parts of 8: the same call goes on after an interruption
Layout     HDF5: ``k`` (N, R, R), ``tensor`` (N, 1, R, R), ``x-coordinate``, ``y-coordinate`` (R,),
           float32. Attributes of `chonn_lab.problems.origin`
Official   none: ours
========== =====================================================================================

No M-matrix can solve this problem. The inverse of an M-matrix has no negative entry, so a positive
source gives potentials of at least 0, as in every network of positive conductances. But the wave
numbers are above ``sqrt(2) pi``, the square's first resonance, so the lowest eigenvalue of
``-laplace - k^2`` is negative. Its eigenfunction v is positive, and the mean of ``u v`` is the mean
of v over the eigenvalue: every solution is negative somewhere. A network model can get negative
values only from the layers around its networks.
"""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch

from chonn_lab.problems.darcy_solver import cell_faces, conductance_matrix
from chonn_lab.problems.domains import cell_centres
from chonn_lab.problems.generation import Recipe, check_sizes
from chonn_lab.problems.hdf5 import read_rows
from chonn_lab.problems.random_fields import cosine_series
from chonn_ops.checks import check_least

RESOLUTION = 64
N_MODES = 64
WAVENUMBER, RATIO = 12.0, 1.5
# The square's first resonance.
LEAST_WAVENUMBER = math.sqrt(2) * math.pi
CELLS_PER_WAVELENGTH = 10
# From 0 to the nearest eigenvalue.
LEAST_DISTANCE = 5.0
MOST_ATTEMPTS = 100
SAMPLES_PER_PART = 8
# Increased when the same settings give other data, see `chonn_lab.problems.origin`.
GENERATOR_VERSION = 1


def default_name(
    resolution: int = RESOLUTION, wavenumber: float = WAVENUMBER, ratio: float = RATIO
) -> str:
    """File name that says what is in it."""
    return f"2D_Helmholtz_k{float(wavenumber):g}_ratio{float(ratio):g}_r{resolution}.hdf5"


def helmholtz_matrix(k: np.ndarray) -> scipy.sparse.csc_matrix:
    """Matrix of ``-laplace - k^2`` on the cells, u = 0 on the walls.

    Parameters
    ----------
    k : ndarray
        (R, R).

    Returns
    -------
    csc_matrix
        (R^2, R^2), symmetric, in general indefinite.
    """
    laplace = conductance_matrix(cell_faces(np.ones(k.shape)))
    return scipy.sparse.csc_matrix(laplace - scipy.sparse.diags(k.ravel() ** 2))


def solve(k: np.ndarray, f: "np.ndarray | float" = 1.0) -> tuple[np.ndarray, float]:
    """Solve ``-laplace u - k^2 u = f``, and find how far from a resonance that is.

    Parameters
    ----------
    k : ndarray
        (R, R), R at least 2.
    f : ndarray or float
        (R, R) or one value.

    Returns
    -------
    u : ndarray
        (R, R), float64.
    distance : float
        Distance of the nearest eigenvalue of ``-laplace - k^2`` from 0.

    Raises
    ------
    ValueError
        If the matrix is singular.
    """
    matrix = helmholtz_matrix(k)
    # SciPy's annotations are narrower than what it takes.
    linalg: Any = scipy.sparse.linalg
    try:
        factors = linalg.splu(matrix)
    except RuntimeError as error:
        raise ValueError(
            f"expected k away from resonance, got a singular matrix: {error}"
        ) from error
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
    output: "str | os.PathLike[str] | None" = None,
    n_samples: int = 1000,
    resolution: int = RESOLUTION,
    wavenumber: float = WAVENUMBER,
    ratio: float = RATIO,
    seed: int = 0,
    workers: int = 1,
    force: bool = False,
    progress: bool = True,
    *,
    first: int = 0,
    drawn_at: int | None = None,
) -> Path:
    """Generate a data set; an interrupted call is resumed by the next one.

    Parameters
    ----------
    output : path, optional
        HDF5 file to write, by default `default_name`; it appears when it is complete.
    n_samples, resolution : int
        N and R.
    wavenumber : float
        The lower one, above sqrt(2) pi: below, the problem would not be indefinite.
    ratio : float
        Higher wave number over the lower one, at least 1.
    seed : int
        The data depend on it and the parameters above, not on `workers`.
    workers : int
        Processes. With more than one, a script that calls this needs the usual
        ``if __name__ == "__main__"`` guard.
    force : bool
        Replace an existing file, and samples of an interrupted call with other settings.
    progress : bool
        Show a progress bar.
    first : int
        Number of the first sample.
    drawn_at : int, optional
        Points an axis of the grid whose eigenvalues decide what is drawn again, by default
        `resolution`: the samples of that grid, solved on this one.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If an argument is out of range, the grid is too coarse for the waves, or 100 attempts at a
        sample were all near a resonance.
    FileExistsError
        If the file exists, or samples of an interrupted call with other settings, and `force` is
        not set.
    """
    check_sizes(n_samples, resolution, 2, seed, workers)
    if not LEAST_WAVENUMBER < wavenumber < math.inf:
        raise ValueError(
            f"wavenumber: expected above sqrt(2) pi = {LEAST_WAVENUMBER:.6g}, where the problem "
            f"becomes indefinite, and finite, got {wavenumber}"
        )
    if not 1 <= ratio < math.inf:
        raise ValueError(f"ratio: expected at least 1 and finite, got {ratio}")
    check_resolved(wavenumber * ratio, resolution)
    drawn_at = resolution if drawn_at is None else drawn_at
    check_least(2, drawn_at=drawn_at)
    check_least(0, first=first)
    path = Path(output or default_name(resolution, wavenumber, ratio))
    settings = {
        "n_samples": n_samples,
        "resolution": resolution,
        "wavenumber": float(wavenumber),
        "ratio": float(ratio),
        "first": first,
        "drawn_at": drawn_at,
    }
    recipe = Recipe("helmholtz", GENERATOR_VERSION, seed, settings)

    cells = cell_centres(resolution)
    fixed = {"x-coordinate": cells, "y-coordinate": cells}
    return recipe.write(path, _solve_part, SAMPLES_PER_PART, workers, force, progress, fixed=fixed)


def read(
    path: "str | os.PathLike[str]", start: int = 0, stop: "int | None" = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Wave numbers and solutions of some samples.

    Parameters
    ----------
    path : path
    start, stop : int
        First sample and the one after the last, by default the number of samples.

    Returns
    -------
    k, u : torch.Tensor
        (N, R, R), float32.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, damaged or of another problem, or lacks the samples.
    """
    k, u = read_rows(path, start, stop, k=3, tensor=4)
    return torch.from_numpy(k), torch.from_numpy(u[:, 0])


def _solve_part(
    samples: range,
    seed: int,
    resolution: int,
    wavenumber: float,
    ratio: float,
    first: int,
    drawn_at: int,
) -> dict[str, np.ndarray]:
    pairs = [
        _draw(seed, first + sample, resolution, wavenumber, ratio, drawn_at) for sample in samples
    ]
    k, u = (np.stack(fields).astype(np.float32) for fields in zip(*pairs, strict=True))
    return {"k": k, "tensor": u[:, None]}


def _draw(
    seed: int, sample: int, resolution: int, wavenumber: float, ratio: float, drawn_at: int
) -> tuple[np.ndarray, np.ndarray]:
    """k and u of one sample, the first attempt away from resonance."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(sample,)))

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
        return k, u
    raise ValueError(
        f"wavenumber {wavenumber}, ratio {ratio}: {MOST_ATTEMPTS} attempts at sample {sample} were "
        f"all closer than {LEAST_DISTANCE:g} to a resonance"
    )
