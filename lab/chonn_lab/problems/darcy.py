"""Darcy flow of PDEBench: data set card, generator, download and reader.

========== =====================================================================================
Equation   ``div(nu grad u) + beta = 0``; learn ``nu -> u``
Domain     unit square, R x R cells, dimensionless; values at cell centres ``(i + 1/2) / R``. We add
           an l-shape and a square with holes, see `chonn_lab.problems.domains`; ``nu`` and ``u``
           are 0 in cells outside of them
Boundary   ``u = 0`` in the ghost cells, that is at ``-1/(2R)`` and ``1 + 1/(2R)``: half a cell
           outside the unit square, as in PDEBench, and likewise at the walls of the other domains.
           Solutions on two grids therefore differ by O(1/R): those of R = 64 and 256 by 5%
           (relative L1). `margin` sets another distance m, ``u + m du/dn = 0`` at the walls. With
           m = 1/128 on both grids, these solutions differ by 1.5%
Input      ``nu``: 1 where ``sum_{j=1..5} exp(-|x - c_j|^2 / s_j)`` is above its mean over all
           cells of a batch of 200 samples, else 0.1; centres ``c_j ~ U(0, 1)^2``, squared widths
           ``s_j ~ U(0, 1/2]``. Ours: with `contrast` c, 1 / c instead of 0.1; with the coefficient
           "log-normal" ``nu = exp(s g)``, g a sample of ``N(0, (-laplace + 9)^-2)`` with zero
           Neumann conditions and no mean, of 64 x 64 modes, s such that c = 10 by default lies
           between the values two standard deviations above and below the median; with
           "log-uniform" ``nu = c^(F(g / d) - 1/2)``, F the normal distribution function and d the
           deviation of g over the square
Parameters ``beta = 1``, R = 128. The official file has 10,000 samples; the CHONN paper uses 800
           to train, 100 to validate and 100 to test. ``u`` is proportional to ``beta``
Generator  faces with the arithmetic mean of nu, nu constant beyond the edge, direct sparse solve
           in float64, stored as float32
Seeds      batch b of 200 samples draws from child b of ``numpy.random.SeedSequence(seed)``. A whole
           batch is always drawn, so sample i is the same for every number of samples and of
           workers. Centres, widths and the modes of log-normal fields do not depend on R: one seed
           gives the same samples on every grid. For one seed, the phases are the same at every
           contrast, and log-normal fields of two contrasts are powers of each other
Cost       about 0.035 s a sample and core at 128 x 128. Solved samples are kept beside the file in
           parts of 8: the same call goes on after an interruption
Layout     HDF5: ``tensor`` (N, 1, R, R), ``nu`` (N, R, R), ``x-coordinate``, ``y-coordinate`` (R,),
           float32, attribute ``beta``; ours also has the attributes of
           `chonn_lab.problems.origin`, domains other than the square ``mask`` (R, R) bool and the
           attribute ``domain``, files made with a `margin` that attribute
Official   ``2D_DarcyFlow_beta1.0_Train.hdf5``, 1.3 GB, DaRUS data file 133219,
           md5 81694ed31306ff2e5f6b76349b0b4389; `fetch` gets it
========== =====================================================================================

The official data differ. PDEBench evolves ``u_t = div(nu grad u) + beta`` from a random field and
stores t = 1.75, when a transient is left. On the same nu, its frame and the steady state differ by
3e-4 to 1.1e-2 (relative L2); the transient decays slowest where nu is 0.1 over large regions. The
random numbers come from JAX there and from NumPy here: the same distribution, other samples.

References
----------
.. [1] M. Takamoto et al., "PDEBench: An Extensive Benchmark for Scientific Machine Learning",
   NeurIPS Datasets and Benchmarks, 2022. Data: https://doi.org/10.18419/darus-2986
"""

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np

from chonn_lab.problems.darcy_solver import solve_steady
from chonn_lab.problems.domains import SQUARE, cell_centres, check_domain, domain_mask, suffix
from chonn_lab.problems.download import download
from chonn_lab.problems.generation import Arrays, Recipe, check_sizes
from chonn_lab.problems.hdf5 import (
    check_mask,
    check_range,
    dataset,
    open_hdf5,
)
from chonn_lab.problems.published import CHECKSUMS
from chonn_lab.problems.random_fields import BATCH, TWO_PHASE, check_medium, draw_batch, medium
from chonn_ops.checks import check_least

OFFICIAL_NAME = "2D_DarcyFlow_beta1.0_Train.hdf5"
OFFICIAL_URL = "https://darus.uni-stuttgart.de/api/access/datafile/133219"
OFFICIAL_HASH = f"md5:{CHECKSUMS[OFFICIAL_NAME]}"
# Increased when the same settings give other data, see `chonn_lab.problems.origin`.
GENERATOR_VERSION = 1

N_MODES = 64
SAMPLES_PER_PART = 8
CONTRAST = 10.0


def default_name(
    beta: float,
    domain: str = SQUARE,
    coefficient: str = TWO_PHASE,
    contrast: float = CONTRAST,
) -> str:
    """PDEBench's file name for a forcing, with whatever is not PDEBench's."""
    kind = "" if coefficient == TWO_PHASE else f"_{coefficient}"
    if contrast != CONTRAST:
        kind += f"_contrast{float(contrast):g}"
    return f"2D_DarcyFlow_beta{float(beta)}_Train{suffix(domain)}{kind}.hdf5"


def generate(
    output: "str | os.PathLike[str] | None" = None,
    n_samples: int = 1000,
    resolution: int = 128,
    beta: float = 1.0,
    seed: int = 0,
    workers: int = 1,
    force: bool = False,
    progress: bool = True,
    domain: str = SQUARE,
    margin: "float | None" = None,
    first: int = 0,
    coefficient: str = TWO_PHASE,
    contrast: float = CONTRAST,
) -> Path:
    """Generate a Darcy data set in PDEBench's layout.

    Parameters
    ----------
    output : path, optional
        HDF5 file to write, by default `default_name`; it appears when it is complete.
    n_samples, resolution, workers, progress
        As for `chonn_lab.problems.helmholtz.generate`.
    beta : float
        Forcing, positive.
    seed : int
        The data depend on it, `resolution`, `beta`, `domain`, `margin`, `first`, `coefficient` and
        `contrast`, not on `workers`.
    force : bool
        Replace an existing file.
    domain : {"square", "l-shape", "holes"}
        See `chonn_lab.problems.domains`. The media are those of the square.
    margin : float, optional
        Distance outside the domain at which u = 0, at least 0; by default ``1 / (2 * resolution)``.
        With that of a coarser grid, this is the problem of that grid on a finer one. What lies
        between conducts as the cell beside it, without forcing.
    first : int
        Number of the first sample, of those that the seed gives.
    coefficient : {"two-phase", "log-normal", "log-uniform"}
        See the card.
    contrast : float
        1 to 10^6: of the phases, of the values two standard deviations above and below the median,
        or of the largest and the smallest value.

    Raises
    ------
    ValueError, FileExistsError
        If an argument is out of range, or the grid too coarse for the domain; if the file exists
        and `force` is not set.
    """
    check_sizes(n_samples, resolution, 2, seed, workers)
    check_least(0, first=first)
    check_domain(domain, resolution)
    check_medium(coefficient, contrast)
    if not 0 < beta < float("inf"):
        raise ValueError(f"beta: expected positive and finite, got {beta}")
    if margin is not None and not 0 <= margin < float("inf"):
        raise ValueError(f"margin: expected at least 0 and finite, got {margin}")

    path = Path(output or default_name(beta, domain, coefficient, contrast))
    settings = {
        "n_samples": n_samples,
        "resolution": resolution,
        "beta": beta,
        "domain": domain,
        "margin": margin,
        "first": first,
        "coefficient": coefficient,
        "contrast": contrast,
    }
    recipe = Recipe("darcy", GENERATOR_VERSION, seed, settings, f"Darcy generator, seed {seed}")
    cells = cell_centres(resolution)
    fixed = {"x-coordinate": cells, "y-coordinate": cells}
    attributes: dict[str, Any] = {"beta": float(beta)}
    if domain != SQUARE:
        fixed["mask"], attributes["domain"] = domain_mask(domain, cells), domain
    if margin is not None:
        attributes["margin"] = float(margin)
    options: Any = {"fixed": fixed, "attributes": attributes}
    return recipe.write(path, _solve_part, SAMPLES_PER_PART, workers, force, progress, **options)


def read(
    path: "str | os.PathLike[str]",
    start: int = 0,
    stop: "int | None" = None,
    resolution: "int | None" = None,
    domain: str = SQUARE,
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and solutions of some samples of a generated or published file.

    Parameters
    ----------
    path : path
    start, stop : int
        First sample and the one after the last, by default the number of samples.
    resolution, domain
        R that the file must have, by default any; domain that it must have.

    Returns
    -------
    nu, u : ndarray
        (N, R, R), float32.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or damaged, of another resolution or domain, or lacks the samples.
    """
    with open_hdf5(path) as file:
        nu, u = dataset(file, "nu"), dataset(file, "tensor")
        n = nu.shape[-1] if resolution is None else resolution
        if nu.shape[1:] != (n, n) or u.shape != (len(nu), 1, n, n):
            raise ValueError(
                f"{path}: expected nu (N, {n}, {n}) and tensor (N, 1, {n}, {n}), "
                f"got {nu.shape} and {u.shape}"
            )
        check_range(path, len(nu), start, stop)
        check_mask(file, domain, domain_mask(domain, cell_centres(n)))
        return nu[start:stop].astype(np.float32), u[start:stop, 0].astype(np.float32)


def fetch(
    folder: "str | os.PathLike[str]" = ".", force: bool = False, progress: bool = True
) -> bool:
    """Download PDEBench's official file (1.3 GB).

    Parameters
    ----------
    folder : path
        Existing folder for the file, which has its official name.

    The other parameters, the result and the errors are those of
    `chonn_lab.problems.download.download`.
    """
    return download(OFFICIAL_URL, OFFICIAL_HASH, Path(folder) / OFFICIAL_NAME, force, progress)


def _solve_part(
    samples: range,
    seed: int,
    resolution: int,
    beta: float,
    domain: str,
    margin: "float | None",
    first: int,
    coefficient: str,
    contrast: float,
) -> Arrays:
    exists = None if domain == SQUARE else domain_mask(domain, cell_centres(resolution))
    media = [_medium(seed, first + i, resolution, coefficient, contrast) for i in samples]
    u = [solve_steady(nu, beta, exists, margin)[None] for nu in media]
    nu = media if exists is None else [np.where(exists, one, 0) for one in media]
    return {"tensor": np.array(u, "f4"), "nu": np.array(nu, "f4")}


def _medium(
    seed: int, sample: int, resolution: int, coefficient: str, contrast: float
) -> np.ndarray:
    batch, place = divmod(sample, BATCH)
    if coefficient == TWO_PHASE:
        return np.where(_phases(seed, batch, resolution)[place], 1.0, 1 / contrast)
    return medium(_noise(seed, batch)[place], cell_centres(resolution), coefficient, contrast)


# Whole batches are drawn, of which parts and their neighbours take a few samples each.
@functools.lru_cache(1)
def _phases(seed: int, batch: int, resolution: int) -> np.ndarray:
    return draw_batch(_child(seed, batch), resolution)


@functools.lru_cache(1)
def _noise(seed: int, batch: int) -> np.ndarray:
    return np.random.default_rng(_child(seed, batch)).standard_normal((BATCH, N_MODES, N_MODES))


def _child(seed: int, batch: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(batch,))
