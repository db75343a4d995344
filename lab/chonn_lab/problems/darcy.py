"""Darcy flow of PDEBench, and in harder media.

========== =====================================================================================
Equation   ``div(nu grad u) + beta = 0``; learn ``nu -> u``
Domain     R x R cells, values at centres ``(i + 1/2) / R``
Boundary   ``u = 0`` in the ghost cells, that is at ``-1/(2R)`` and ``1 + 1/(2R)``: half a cell
           outside the unit square, as in PDEBench. Solutions on two grids therefore differ by
           O(1/R): those of R = 64 and 256 by 5% (relative L1). `margin` sets another distance m,
           ``u + m du/dn = 0`` at the walls. With m = 1/128 on both grids, these solutions differ
           by 1.5%
Input      ``nu``: 1 where ``sum_{j=1..5} exp(-|x - c_j|^2 / s_j)`` is above its mean over all
           cells of a batch of 200 samples, else 0.1; centres ``c_j ~ U(0, 1)^2``, squared widths
           ``s_j ~ U(0, 1/2]``. Ours: with `contrast` c, 1 / c instead of 0.1; with the coefficient
           "log-normal" ``nu = exp(s g)``, g a sample of ``N(0, (-laplace + 9)^-2)`` with zero
           Neumann conditions and no mean, of 64 x 64 modes, s such that c = 10 by default lies
           between the values two standard deviations above and below the median; with
           "log-uniform" ``nu = c^(F(g / d) - 1/2)``, F the normal distribution function and d the
           deviation of g over the square
Parameters ``beta = 1``, to which ``u`` is proportional; R = 128. The official file has 10,000
           samples; the CHONN paper uses 800 to train, 100 to validate and 100 to test
Generator  faces with the arithmetic mean of nu, nu constant beyond the edge
Seeds      batch b of 200 samples draws from ``SeedSequence(seed, spawn_key=(b,))``, always whole.
           One seed gives the same samples on every grid, the same phases at every contrast, and
           log-normal fields that are powers of each other
Cost       about 0.035 s a sample and core at 128 x 128
Layout     ``tensor`` (N, 1, R, R), ``nu`` (N, R, R), ``x-coordinate``, ``y-coordinate`` (R,),
           attribute ``beta``, and ``margin`` if it was given
Official   ``2D_DarcyFlow_beta1.0_Train.hdf5``, 1.3 GB, DaRUS data file 133219; `fetch` gets it
========== =====================================================================================

The official data differ. PDEBench evolves ``u_t = div(nu grad u) + beta`` from a random field and
stores t = 1.75, when a transient is left: `chonn_lab.problems.darcy_pdebench` says how much. The
random numbers come from JAX there and from NumPy here: the same distribution, other samples.
"""

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from chonn_lab.problems.darcy_solver import solve_steady
from chonn_lab.problems.generation import Arrays, Recipe, make_files, single, stream
from chonn_lab.problems.grids import cell_centres, coordinates
from chonn_lab.problems.hdf5 import read_rows
from chonn_lab.problems.origin import download
from chonn_lab.problems.random_fields import BATCH, TWO_PHASE, check_medium, draw_batch, medium
from chonn_ops.checks import check_integer

OFFICIAL_NAME = "2D_DarcyFlow_beta1.0_Train.hdf5"
N_MODES = 64
BETA = 1.0
CONTRAST = 10.0


def default_name(coefficient: str = TWO_PHASE, contrast: float = CONTRAST) -> str:
    """PDEBench's file name, with whatever is not PDEBench's."""
    kind = "" if coefficient == TWO_PHASE else f"_{coefficient}"
    if contrast != CONTRAST:
        kind += f"_contrast{float(contrast):g}"
    return f"2D_DarcyFlow_beta{BETA}_Train{kind}.hdf5"


def generate(
    output: Path | str = "",
    n_samples: int = 1000,
    resolution: int = 128,
    margin: float | None = None,
    first: int = 0,
    coefficient: str = TWO_PHASE,
    contrast: float = CONTRAST,
    **options: Any,
) -> Path:
    """Generate a file from the sample `first` on; contrasts are 1 to 10^6.

    u = 0 at a `margin` outside the square, by default ``1 / (2 * resolution)``: with that of a
    coarser grid, this is its problem on a finer one.
    """
    check_integer(2, resolution=resolution)
    check_medium(coefficient, contrast)
    if margin is not None and not 0 <= margin < math.inf:
        raise ValueError(f"margin: expected at least 0 and finite, got {margin}")
    settings = {"n_samples": n_samples, "resolution": resolution, "beta": BETA, "margin": margin}
    settings |= {"first": first, "coefficient": coefficient, "contrast": contrast}
    attributes = {"beta": BETA} | ({} if margin is None else {"margin": float(margin)})
    recipe = Recipe(_sample, settings, fixed=coordinates(resolution), attributes=attributes)
    path = Path(output or default_name(coefficient, contrast))
    return make_files({path: recipe}, **options)[0]


def read(
    path: Path | str, start: int = 0, stop: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Samples of a file: nu and u, (N, R, R), float32; see `read_rows`."""
    nu, u = read_rows(path, start, stop, nu=3, tensor=4)
    if u.shape[1] != 1:
        raise ValueError(f"{path}: expected tensor (N, 1, R, R), got {u.shape}")
    return nu, u[:, 0]


def fetch(folder: Path | str = ".", force: bool = False, progress: bool = True) -> bool:
    """Download PDEBench's official file (1.3 GB); see `chonn_lab.problems.origin.download`."""
    return download(133219, OFFICIAL_NAME, folder, force, progress)


def _sample(
    seed: int,
    i: int,
    resolution: int,
    beta: float,
    margin: float | None,
    coefficient: str,
    contrast: float,
) -> Arrays:
    batch, place = divmod(i, BATCH)
    if coefficient == TWO_PHASE:
        nu = np.where(_phases(seed, batch, resolution)[place], 1.0, 1 / contrast)
    else:
        nu = medium(_noise(seed, batch)[place], cell_centres(resolution), coefficient, contrast)
    return single(tensor=solve_steady(nu, beta, margin)[None], nu=nu)


# Whole batches are drawn, of which a process takes one sample after the other.
@functools.lru_cache(1)
def _phases(seed: int, batch: int, resolution: int) -> np.ndarray:
    return draw_batch(stream(seed, batch), resolution)


@functools.lru_cache(1)
def _noise(seed: int, batch: int) -> np.ndarray:
    return stream(seed, batch).standard_normal((BATCH, N_MODES, N_MODES))
