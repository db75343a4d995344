"""Darcy flow in three dimensions: data set card, generator and reader.

========== =====================================================================================
Equation   ``-div(nu grad u) = beta``; learn ``nu -> u``
Domain     unit cube, R x R x R cells, dimensionless; values at cell centres ``(i + 1/2) / R``
Boundary   ``u = 0`` on the six walls, half a cell from the outermost centres
Input      made of a sample g of ``N(0, (-laplace + 9)^-2)`` with zero Neumann conditions and no
           mean, the cosine series of 24^3 modes. Coefficient "two-phase": nu is 1 where g is at
           least 0, else 1 / contrast. "log-normal": ``nu = exp(s g)``, s such that the contrast
           lies between the values two standard deviations above and below the median
Parameters ``beta = 1``, R = 32, two-phase with contrast 10
Splits     none given; of 1,000 we use 800 to train, 100 to validate and 100 to test, in this order
Seeds      sample i draws from ``numpy.random.SeedSequence(seed, spawn_key=(i,))``: it is the same
           for every number of samples and of workers, and g the same function on every grid
Generator  finite volumes, faces with the arithmetic mean of nu, direct sparse solve in float64,
           stored as float32. The matrix is an M-matrix: a Kirchhoff network's
Cost       3.5 s a sample and core at R = 32 and 1 GB a process, 0.6 s at 24, 0.1 s at 16; 0.26 GB
           for 1,000 samples at 32. Solved samples are kept beside the file in parts of 4: the same
           call goes on after an interruption
Layout     HDF5, PDEBench's names: ``nu`` (N, R, R, R), ``tensor`` (N, 1, R, R, R), axes x, y, z,
           ``x-coordinate``, ``y-coordinate``, ``z-coordinate`` (R,), float32. Attributes of
           `chonn_lab.problems.origin`
Official   none: ours
========== =====================================================================================
"""

import os
from pathlib import Path

import numpy as np
import torch

from chonn_lab.problems.darcy_solver import cell_faces, conductance_matrix, factorise
from chonn_lab.problems.domains import cell_centres
from chonn_lab.problems.generation import Recipe, check_forcing, check_sizes, write_box
from chonn_lab.problems.hdf5 import read_box
from chonn_lab.problems.random_fields import TWO_PHASE, check_medium, medium

RESOLUTION = 32
N_MODES = 24
CONTRAST = 10.0
SAMPLES_PER_PART = 4
NAMES = ("nu", "tensor")
# Increased when the same settings give other data, see `chonn_lab.problems.origin`.
GENERATOR_VERSION = 1


def default_name(
    resolution: int = RESOLUTION, coefficient: str = TWO_PHASE, contrast: float = CONTRAST
) -> str:
    """File name that says what is in it."""
    return f"3D_DarcyFlow_{coefficient}_contrast{float(contrast):g}_r{resolution}.hdf5"


def solve(nu: np.ndarray, f: "np.ndarray | float" = 1.0) -> np.ndarray:
    """Solve ``-div(nu grad u) = f`` with u = 0 on the walls of the unit cube.

    Parameters
    ----------
    nu : ndarray
        (R, R, R), positive.
    f : ndarray or float
        (R, R, R) or one value.

    Returns
    -------
    ndarray
        (R, R, R), float64.
    """
    factors = factorise(conductance_matrix(cell_faces(nu)))
    return factors.solve(np.broadcast_to(f, nu.shape).ravel()).reshape(nu.shape)


def generate(
    output: "str | os.PathLike[str] | None" = None,
    n_samples: int = 1000,
    resolution: int = RESOLUTION,
    coefficient: str = TWO_PHASE,
    contrast: float = CONTRAST,
    beta: float = 1.0,
    seed: int = 0,
    workers: int = 1,
    force: bool = False,
    progress: bool = True,
) -> Path:
    """Generate a data set; an interrupted call is resumed by the next one.

    Parameters
    ----------
    output, n_samples, resolution, seed, workers, force, progress
        As for `chonn_lab.problems.helmholtz.generate`, and so are results and errors.
    coefficient : {"two-phase", "log-normal"}
        See the card.
    contrast : float
        1 to 10^6.
    beta : float
        Forcing, positive.
    """
    check_sizes(n_samples, resolution, 2, seed, workers)
    check_medium(coefficient, contrast)
    check_forcing(beta)
    path = Path(output or default_name(resolution, coefficient, contrast))
    settings = {
        "n_samples": n_samples,
        "resolution": resolution,
        "coefficient": coefficient,
        "contrast": float(contrast),
        "beta": float(beta),
    }
    recipe = Recipe("darcy3d", GENERATOR_VERSION, seed, settings)
    return write_box(
        path, recipe, _solve_part, NAMES, 3, SAMPLES_PER_PART, workers, force, progress
    )


def read(
    path: "str | os.PathLike[str]", start: int = 0, stop: "int | None" = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients and solutions of some samples, (N, R, R, R) float32 each.

    Parameters and errors are those of `chonn_lab.problems.helmholtz.read`.
    """
    return read_box(path, NAMES, 3, start, stop)


def _solve_part(
    samples: range, seed: int, resolution: int, coefficient: str, contrast: float, beta: float
) -> dict[str, np.ndarray]:
    cells = cell_centres(resolution)
    nu = []
    for sample in samples:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(sample,)))
        nu.append(medium(rng.standard_normal((N_MODES,) * 3), cells, coefficient, contrast))
    u = [solve(sample, beta) for sample in nu]
    return {"nu": np.stack(nu).astype(np.float32), "tensor": np.stack(u).astype(np.float32)}
