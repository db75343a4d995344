"""Time-harmonic waves of a point source in an open medium, after WaveBench.

========== =====================================================================================
Equation   ``-laplace u - k^2 u = f``, outgoing waves; learn ``(k, f) -> u``. Time goes as
           ``exp(-i omega t)``: an outgoing wave is ``exp(+i k r)``
Domain     R x R cells, values at centres ``(i + 1/2) / R``
Boundary   open: the medium goes on for 3/4 on every side, with the wave number of the square's
           edge, and absorbs more and more (`chonn_ops.absorbing_layer`, attenuation 0.01); u = 0
           behind. Less than 1 % of a wave comes back at a right angle
Input      ``k``: 20 times ``2.25^(g / 4)``, where g is a sample of ``N(0, (-laplace + 9)^-2)`` over
           its standard deviation, cut off at -2 and 2: 13 to 30, 2 to 5 waves across.
           ``f``: a Gaussian of standard deviation 1/32 and integral 1 around a point of
           ``[0.2, 0.8]^2``. A sample is the same on every grid
Generator  five-point finite volumes, at least 10 cells a wavelength; SciPy's sparse LU, complex128
Cost       0.5 s a sample and core at R = 64
Layout     ``k``, ``f`` (N, R, R), ``tensor`` (N, 2, R, R): real and imaginary part of u, and the
           coordinates
========== =====================================================================================

The problem of WaveBench (T. Liu et al., "WaveBench: Benchmarking data-driven solvers for linear
wave propagation PDEs", TMLR, 2024) has a free surface on one side, a Dirac pulse at one place near
it, so that the wave speed is the only input, other Gaussian random fields, and finite elements of
order 4 to 7 on triangles.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from chonn_lab.problems.darcy_solver import conductance_matrix
from chonn_lab.problems.generation import Arrays, Recipe, make_files, single, stream
from chonn_lab.problems.grids import cell_centres, coordinates
from chonn_lab.problems.hdf5 import read_rows
from chonn_lab.problems.random_fields import LOG_NORMAL, medium
from chonn_ops.checks import check_integer

RESOLUTION, N_MODES = 64, 64
WAVENUMBER, CONTRAST = 20.0, 2.25
CELLS_PER_WAVELENGTH = 10
SOURCE_WIDTH = 1 / 32
SOURCE_PLACES = (0.2, 0.8)
# The layer around the square: its thickness, and the amplitude that crosses it twice.
LAYER, ATTENUATION = 0.75, 0.01


def solve(k: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Outgoing waves of a source f (R, R) in the unit square, (R, R), complex128."""
    n = len(k)
    pad = math.ceil(LAYER * n)
    wide = np.pad(k, pad, mode="edge")
    depth = np.maximum((pad - 0.5 - np.arange(len(wide))) / pad, 0)
    depth = np.maximum(depth, depth[::-1])
    strength = 3 * math.log(1 / ATTENUATION) / LAYER * np.maximum.outer(depth, depth) ** 2
    faces = np.ones((len(wide) + 1, len(wide)))
    faces[[0, -1]] = 2  # half a cell away
    laplace = conductance_matrix(faces, faces.T) * n**2
    factors = scipy.sparse.linalg.splu(
        (laplace - scipy.sparse.diags((wide**2 + 1j * wide * strength).ravel())).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.01,
        options={"SymmetricMode": True},
    )
    u = factors.solve(np.pad(f, pad).astype(complex).ravel()).reshape(wide.shape)
    return u[pad:-pad, pad:-pad]


def generate(
    output: Path | str = "helmholtz.hdf5",
    n_samples: int = 1000,
    resolution: int = RESOLUTION,
    first: int = 0,
    **options: Any,
) -> Path:
    """Generate a file from the sample `first` on; R is at least 48, ten cells a wavelength."""
    shortest = 2 * math.pi / (WAVENUMBER * math.sqrt(CONTRAST))
    check_integer(math.ceil(CELLS_PER_WAVELENGTH / shortest), resolution=resolution)
    settings = {"n_samples": n_samples, "resolution": resolution, "first": first}
    recipe = Recipe(_sample, settings, fixed=coordinates(resolution))
    return make_files({Path(output): recipe}, **options)[0]


def read(
    path: Path | str, start: int = 0, stop: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Samples of a file, (N, 2, R, R) each, float32; see `read_rows`.

    k with f, and the real and imaginary part of the waves.
    """
    k, f, waves = read_rows(path, start, stop, k=3, f=3, tensor=4)
    return np.stack((k, f), 1), waves


def _sample(seed: int, i: int, resolution: int) -> Arrays:
    rng = stream(seed, i)
    cells, most = cell_centres(resolution), math.sqrt(CONTRAST)
    noise, place = rng.standard_normal((N_MODES, N_MODES)), rng.uniform(*SOURCE_PLACES, 2)
    k = WAVENUMBER * np.clip(medium(noise, cells, LOG_NORMAL, CONTRAST), 1 / most, most)
    x, y = (np.exp(-((cells - p) ** 2) / (2 * SOURCE_WIDTH**2)) for p in place)
    f = np.outer(x, y) / (2 * math.pi * SOURCE_WIDTH**2)
    u = solve(k, f)
    return single(k=k, f=f, tensor=(np.real(u), np.imag(u)))
