"""Advection on a line, PDEBench's smallest problem, exactly.

========== =====================================================================================
Equation   ``u_t + beta u_x = 0``, periodic; learn earlier frames of u -> later ones
Domain     R cells, values at centres ``(i + 1/2) / R``; t from 0 to 2
Input      a wave of PDEBench's law: a sum of two sines of 1 to 4 periods and a constant, one in
           ten an absolute value, one in ten within a window, see `draw_wave`.
           PDEBench's periods are ``1 - 1/R``, so that its waves have a kink or a step at the ends
           of the interval; ours are 1. A sample is the same on every grid
Parameters ``beta``; R = 1024, 201 frames 0.01 apart, the first at t = 0. PDEBench trains on every
           fourth cell and fifth frame, from 10 frames on, and tests on the first tenth of samples
Generator  the initial wave at ``x - beta t``. PDEBench's files have the numerical diffusion of a
           second-order upwind scheme
Cost       0.05 s a sample and core; 8.2 GB for 10,000
Layout     that of PDEBench: ``tensor`` (N, 201, R), ``x-coordinate`` (R,), ``t-coordinate`` (202,),
           attribute ``beta``
Official   ``1D_Advection_Sols_beta<BETA>.hdf5``, 10,000 samples for each of eight beta
========== =====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from chonn_lab.problems.generation import Arrays, Recipe, make_files, single, stream
from chonn_lab.problems.grids import cell_centres
from chonn_lab.problems.hdf5 import read_rows
from chonn_ops.checks import check_least

N_SAMPLES, N_FRAMES, RESOLUTION = 10_000, 201, 1024
END_TIME = 2.0
N_WAVENUMBERS = 4
# Each with this probability, as in PDEBench.
RARE = 0.1
EDGE = 0.01
# Of PDEBench's config_Adv.yaml.
BETA = 4.0


class Wave(NamedTuple):
    """A function of period 1: `sign` times the sum of ``A sin(2 pi n x + phase)``, n = 0 for a
    constant, perhaps its absolute value, perhaps between the two places of a window alone, whose
    edges are ``tanh(distance / 0.01)``."""

    wavenumbers: np.ndarray
    amplitudes: np.ndarray
    phases: np.ndarray
    absolute: bool = False
    sign: float = 1.0
    window: tuple[float, float] | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Values at any places, of the shape of `x`."""
        angles = 2 * np.pi * np.multiply.outer(x, self.wavenumbers) + self.phases
        u = np.sin(angles) @ self.amplitudes
        u = self.sign * (np.abs(u) if self.absolute else u)
        if self.window is not None:
            low, high = self.window
            place = x % 1.0
            u = u * (np.tanh((place - low) / EDGE) - np.tanh((place - high) / EDGE)) / 2
        return u


def draw_wave(seed: int, sample: int) -> Wave:
    """The wave of one sample, the same on every grid.

    The law is that of PDEBench's generator (``init_multi``), with period 1: of the wavenumbers
    n = 1 to 4, two are drawn, which may be the same one and then is doubled; those not drawn become
    constants ``A sin(phase)``. Amplitudes ~ U(0, 1), phases ~ U(0, 2 pi), either sign; one in ten
    is an absolute value, one in ten has a window from U(0.1, 0.45) to U(0.55, 0.9).
    """
    rng = stream(seed, sample)
    drawn = rng.integers(1, N_WAVENUMBERS + 1, 2)
    n = np.arange(1, N_WAVENUMBERS + 1)
    # All are drawn for every sample, so that none depends on whether another one is used.
    amplitudes, phases = rng.random(N_WAVENUMBERS), 2 * np.pi * rng.random(N_WAVENUMBERS)
    absolute, windowed = rng.random(2) < RARE
    sign = float(rng.choice((-1.0, 1.0)))
    window = (rng.uniform(0.1, 0.45), rng.uniform(0.55, 0.9)) if windowed else None
    numbers = n * (n[:, None] == drawn).sum(axis=1)
    return Wave(numbers, amplitudes, phases, bool(absolute), sign, window)


def file_name(beta: float = BETA) -> str:
    """PDEBench's name of the file."""
    return f"1D_Advection_Sols_beta{float(beta)}.hdf5"


def frame_times(n_frames: int) -> np.ndarray:
    """(n_frames,) from 0 to the end."""
    return np.linspace(0, END_TIME, n_frames)


def solve(wave: Wave, beta: float, resolution: int, n_frames: int) -> np.ndarray:
    """Exact values at the cell centres, (n_frames, R), float64."""
    return wave(cell_centres(resolution) - beta * frame_times(n_frames)[:, None])


def generate(
    output: Path | str = "",
    n_samples: int = N_SAMPLES,
    resolution: int = RESOLUTION,
    beta: float = BETA,
    n_frames: int = N_FRAMES,
    **options: Any,
) -> Path:
    """Generate a file: R of at least 16, beta > 0, 2 or more frames."""
    if not 0 < beta < math.inf:
        raise ValueError(f"beta: expected positive and finite, got {beta}")
    settings = {"n_samples": n_samples, "resolution": resolution, "n_frames": n_frames}
    recipe = lines(_sample, {**settings, "beta": float(beta)})
    return make_files({Path(output or file_name(beta)): recipe}, **options)[0]


def _sample(seed: int, i: int, resolution: int, n_frames: int, beta: float) -> Arrays:
    return single(tensor=solve(draw_wave(seed, i), beta, resolution, n_frames))


def lines(sample: Callable[..., Arrays], settings: dict[str, Any]) -> Recipe:
    """A file of such waves; the last setting is the equation's parameter by PDEBench's name."""
    check_least(16, resolution=settings["resolution"])
    check_least(2, n_frames=settings["n_frames"])
    times = frame_times(settings["n_frames"])
    fixed = {
        "x-coordinate": cell_centres(settings["resolution"]),
        # One more than there are frames, as in PDEBench's files.
        "t-coordinate": np.append(times, 2 * times[-1] - times[-2]),
    }
    parameter = dict([list(settings.items())[-1]])
    return Recipe(sample, settings, fixed=fixed, attributes=parameter)


def read(path: Path | str, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Samples of a generated or published file, (N, T, R), float32; see `read_rows`."""
    return read_rows(path, start, stop, tensor=3)[0]
