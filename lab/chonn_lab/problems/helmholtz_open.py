"""Time-harmonic waves of a point source in an open medium, after WaveBench.

========== =====================================================================================
Equation   ``-laplace u - k^2 u = f``, outgoing waves; learn ``(k, f) -> u``. Time goes as
           ``exp(-i omega t)``: an outgoing wave is ``exp(+i k r)``
Domain     R x R cells, values at centres ``(i + 1/2) / R``
Boundary   open: the medium goes on for 3/4 on every side, with the wave number of the square's
           edge, and absorbs more and more (`chonn_ops.absorbing_layer`, attenuation 0.01); u = 0
           behind. Less than 1 % of a wave comes back at a right angle
Input      ``k``: `wavenumber` times ``2.25^(g / 4)``, where g is a sample of
           ``N(0, (-laplace + 9)^-2)`` over its standard deviation, cut off at -2 and 2; it is omega
           over the speed of waves, whose highest and lowest value have the ratio 2.25.
           ``f``: a Gaussian of standard deviation 1/32 and integral 1 around a point of
           ``[0.2, 0.8]^2``. A sample is the same on every grid and at every wave number
Parameters wave number 20, R = 64: wave numbers of 13 to 30, 2 to 5 waves across. Of 1,000
           samples we use 800 to train, 100 to validate and 100 to test, in this order
Generator  five-point finite volumes, at least 10 cells a wavelength, complex128
Cost       1 s a sample and core at R = 64
Layout     ``k``, ``f`` (N, R, R), ``tensor`` (N, 2, R, R): real and imaginary part of u, and the
           coordinates
========== =====================================================================================

The problem of WaveBench (T. Liu et al., "WaveBench: Benchmarking data-driven solvers for linear
wave propagation PDEs", TMLR, 2024) has a free surface on one side and absorbing conditions on the
others, a Dirac pulse at one place near that surface, so that the wave speed is the only input,
other Gaussian random fields, and finite elements of order 4 to 7 on triangles.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from chonn_lab.problems.darcy_solver import factorise, laplace_matrix
from chonn_lab.problems.generation import Arrays, Recipe, make_files, single, stream
from chonn_lab.problems.grids import cell_centres, coordinates
from chonn_lab.problems.hdf5 import read_rows
from chonn_lab.problems.random_fields import LOG_NORMAL, medium

RESOLUTION, N_MODES = 64, 64
WAVENUMBER, CONTRAST = 20.0, 2.25
CELLS_PER_WAVELENGTH = 10
SOURCE_WIDTH = 1 / 32
SOURCE_PLACES = (0.2, 0.8)
# The layer around the square: its thickness, and the amplitude that crosses it twice.
LAYER, ATTENUATION = 0.75, 0.01


def default_name(resolution: int = RESOLUTION, wavenumber: float = WAVENUMBER) -> str:
    """File name that says what is in it."""
    return f"2D_HelmholtzOpen_k{float(wavenumber):g}_contrast{CONTRAST:g}_r{resolution}.hdf5"


def solve(k: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Outgoing waves of a source f (R, R) in the unit square, (R, R), complex128."""
    n = len(k)
    pad = math.ceil(LAYER * n)
    wide = np.pad(k, pad, mode="edge")
    depth = np.maximum((pad - 0.5 - np.arange(len(wide))) / pad, 0)
    depth = np.maximum(depth, depth[::-1])
    strength = 3 * math.log(1 / ATTENUATION) / LAYER * np.maximum.outer(depth, depth) ** 2
    laplace = laplace_matrix(len(wide)) * (n / len(wide)) ** 2
    matrix = laplace - scipy.sparse.diags((wide**2 + 1j * wide * strength).ravel())
    factors = factorise(matrix.tocsc(), threshold=0.01)
    u = factors.solve(np.pad(f, pad).astype(complex).ravel()).reshape(wide.shape)
    return u[pad:-pad, pad:-pad]


def generate(
    output: Path | str = "",
    n_samples: int = 1000,
    resolution: int = RESOLUTION,
    wavenumber: float = WAVENUMBER,
    first: int = 0,
    **options: Any,
) -> Path:
    """Generate a file from the sample `first` on; `wavenumber` is that of the medium's median."""
    if not 0 < wavenumber < math.inf:
        raise ValueError(f"wavenumber: expected above 0 and finite, got {wavenumber}")
    shortest = wavenumber * math.sqrt(CONTRAST)
    needed = math.ceil(CELLS_PER_WAVELENGTH * shortest / (2 * math.pi))
    if resolution < needed:
        raise ValueError(
            f"resolution: expected at least {needed} for {CELLS_PER_WAVELENGTH} cells a wavelength "
            f"at the wave number {shortest:g}, got {resolution}"
        )
    law = {"wavenumber": float(wavenumber), "contrast": CONTRAST}
    settings = {"n_samples": n_samples, "resolution": resolution, **law, "first": first}
    recipe = Recipe(_sample, settings, fixed=coordinates(resolution))
    return make_files({Path(output or default_name(resolution, wavenumber)): recipe}, **options)[0]


def read(
    path: Path | str, start: int = 0, stop: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples of a file, (N, 2, R, R) each, float32; see `read_rows`.

    k with f, and the real and imaginary part of the waves.
    """
    k, f, waves = read_rows(path, start, stop, k=3, f=3, tensor=4)
    return torch.from_numpy(np.stack((k, f), 1)), torch.from_numpy(waves)


def _sample(seed: int, i: int, resolution: int, wavenumber: float, contrast: float) -> Arrays:
    rng = stream(seed, i)
    cells = cell_centres(resolution)
    noise, place = rng.standard_normal((N_MODES, N_MODES)), rng.uniform(*SOURCE_PLACES, 2)
    most = math.sqrt(contrast)
    k = wavenumber * np.clip(medium(noise, cells, LOG_NORMAL, contrast), 1 / most, most)
    x, y = (np.exp(-((cells - p) ** 2) / (2 * SOURCE_WIDTH**2)) for p in place)
    f = np.outer(x, y) / (2 * math.pi * SOURCE_WIDTH**2)
    u = solve(k, f)
    return single(k=k, f=f, tensor=(np.real(u), np.imag(u)))
