r"""Burgers' equation on a line, of PDEBench, without discretisation in time.

========== =====================================================================================
Equation   ``u_t + (u^2 / 2)_x = (Nu / pi) u_xx``; otherwise as `chonn_lab.problems.advection`
Parameters ``Nu``, at least 0.001 (PDEBench's smallest)
Generator  the transform of Cole and Hopf, by quadrature on at least 2,048 points; shocks thinner
           than a cell are sampled, not smeared
Cost       0.03 s (Nu = 0.001) to 2 s (Nu = 4) a sample and core
Layout     as there, attribute ``Nu``
Official   ``1D_Burgers_Sols_Nu<NU>.hdf5``, 10,000 samples for each of twelve Nu
========== =====================================================================================

The transform of Cole and Hopf (E. Hopf, Comm. Pure Appl. Math. 3, 1950): with
:math:`u = -2 d \, (\log \varphi)_x`, :math:`u_t + u u_x = d u_{xx}` is the heat equation
:math:`\varphi_t = d \varphi_{xx}`, so a step is a convolution with a Gaussian. Its integrand is
positive, so nothing cancels, whatever :math:`\varphi`'s range, if that is carried as a logarithm
and each sum is scaled by its own largest term. The trapezoidal rule for a smooth integrand of a
Gaussian's decay is exact up to :math:`\exp(-2 \pi^2 \sigma^2 / h^2)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from chonn_lab.problems import advection
from chonn_lab.problems.advection import Wave, draw_wave, read
from chonn_lab.problems.generation import Arrays, make_files, single
from chonn_lab.problems.grids import cell_centres

__all__ = ["NU", "file_name", "generate", "read", "solve"]

# Of PDEBench's config_Bgs.yaml.
NU = 1.0
LEAST_NU = 1e-3
# Points of the fine grid: at least this many, and this many a standard deviation of the kernel.
LEAST_POINTS, POINTS_PER_DEVIATION = 2048, 3.0
# Standard deviations at which the Gaussian is cut off.
REACH = 8.0
LONGEST_STEP = 0.01
# Natural logarithm of the largest ratio within a sum; float64 ends at 700.
LARGEST_RANGE = 500.0
BLOCK = 32


def file_name(nu: float = NU) -> str:
    """PDEBench's name of the file."""
    return f"1D_Burgers_Sols_Nu{float(nu)}.hdf5"


def generate(
    output: Path | str = "",
    n_samples: int = advection.N_SAMPLES,
    resolution: int = advection.RESOLUTION,
    nu: float = NU,
    n_frames: int = advection.N_FRAMES,
    **options: Any,
) -> Path:
    """Generate a file; `nu` is PDEBench's, pi times the diffusivity."""
    if not LEAST_NU <= nu < math.inf:
        raise ValueError(f"nu: expected at least {LEAST_NU:g} and finite, got {nu}")
    settings = {"n_samples": n_samples, "resolution": resolution, "n_frames": n_frames}
    recipe = advection.lines(_sample, {**settings, "Nu": float(nu)})
    return make_files({Path(output or file_name(nu)): recipe}, **options)[0]


def _sample(seed: int, i: int, resolution: int, n_frames: int, Nu: float) -> Arrays:
    return single(tensor=solve(draw_wave(seed, i), Nu, resolution, n_frames))


def solve(wave: Wave, nu: float, resolution: int, n_frames: int) -> np.ndarray:
    """Values at the cell centres by the transform of Cole and Hopf, (n_frames, R), float64."""
    diffusivity, interval = nu / math.pi, advection.END_TIME / (n_frames - 1)
    largest = np.abs(wave(cell_centres(LEAST_POINTS))).max()
    steps = _steps(diffusivity, interval, 1.1 * largest)
    dt = interval / steps
    deviation = math.sqrt(2 * diffusivity * dt)
    needed = max(LEAST_POINTS, POINTS_PER_DEVIATION / deviation)
    # Odd: the centres of the coarse cells are those of fine ones.
    every = max(2 * math.ceil((needed / resolution - 1) / 2) + 1, 1)
    n = every * resolution
    log_phi, turn = _initial_logarithm(wave, n, diffusivity)
    kernel = _kernel(n, dt, deviation, REACH * deviation + 1.1 * largest * dt, turn)
    frames = np.empty((n_frames, resolution))
    frames[0] = u = wave(cell_centres(resolution))
    for frame in range(1, n_frames):
        for _ in range(steps):
            log_phi, u = kernel(log_phi)
        frames[frame] = u[(every - 1) // 2 :: every]
    return frames


def _steps(diffusivity: float, interval: float, largest: float) -> int:
    """Steps to a frame, so short that the terms of a sum stay within the range of float64."""
    steps = math.ceil(interval / LONGEST_STEP - 1e-9)
    while True:
        dt = interval / steps
        width = 2 * (REACH * math.sqrt(2 * diffusivity * dt) + largest * dt)
        if largest * width / (2 * diffusivity) <= LARGEST_RANGE:
            return steps
        steps *= 2


def _initial_logarithm(wave: Wave, n: int, diffusivity: float) -> tuple[np.ndarray, float]:
    """log phi at the centres of n cells, and what it gains in one turn around the interval."""
    nodes, weights = np.polynomial.legendre.leggauss(5)
    # From each centre to the next one.
    places = (np.arange(n)[:, None] + 1 + nodes / 2) / n
    integral = np.cumsum(wave(places) @ weights / (2 * n))
    turn = -integral[-1] / (2 * diffusivity)
    return np.concatenate(([0.0], integral[:-1])) / (-2 * diffusivity), turn


def _kernel(
    n: int, dt: float, deviation: float, reach: float, turn: float
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """One step, from log phi to log phi and u, which is the mean distance travelled over the time:
    the Gaussian, and what gives u, as one matrix for blocks of neighbours."""
    radius = math.ceil(reach * n)
    window = np.arange(BLOCK + 2 * radius) - radius
    places = np.arange(0, n, BLOCK)[:, None] + window
    at, turns = places % n, turn * (places // n)
    distance = (np.arange(BLOCK) - window[:, None]) / n
    weights = np.exp(-0.5 * (distance / deviation) ** 2)
    weights /= n * deviation * math.sqrt(2 * math.pi)
    matrix = np.concatenate((weights, weights * distance / dt), axis=1)

    def step(log_phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        terms = log_phi[at] + turns
        scale = terms.max(axis=1, keepdims=True)
        phi, moment = np.split(np.exp(terms - scale) @ matrix, 2, axis=1)
        return (np.log(phi) + scale).ravel()[:n], (moment / phi).ravel()[:n]

    return step
