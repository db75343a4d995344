"""Advection on a line, PDEBench's smallest problem, exactly: card, generator and reader.

========== =====================================================================================
Equation   ``u_t + beta u_x = 0``; learn earlier frames of u -> later ones
Domain     periodic unit interval, R cells, values at cell centres ``(i + 1/2) / R``; t from 0 to 2
Boundary   periodic
Input      a wave of PDEBench's law: a sum of two sines of 1 to 4 periods and a constant, one in
           ten an absolute value, one in ten within a window, see `draw_wave`.
           PDEBench's periods are ``1 - 1/R``, so that its waves have a kink or a step at the ends
           of the interval; ours are 1
Parameters ``beta``; R = 1024, 201 frames 0.01 apart, the first at t = 0. PDEBench trains on every
           fourth cell and fifth frame, from 10 frames on
Splits     PDEBench tests on the first tenth of the samples
Seeds      sample i draws from ``numpy.random.SeedSequence(seed, spawn_key=(i,))``: it is the same
           for every number of samples and of workers, and on every grid
Generator  exact: the initial wave at ``x - beta t``, float64, stored as float32. PDEBench's files
           have the numerical diffusion of a second-order upwind scheme
Cost       0.05 s a sample and core; 8.2 GB for 10,000. Solved samples are kept beside the file in
           parts of 16: the same call goes on after an interruption
Layout     that of PDEBench: HDF5, ``tensor`` (N, 201, R), ``x-coordinate`` (R,), ``t-coordinate``
           (202,), float32; attribute ``beta``. Ours also has the attributes of
           `chonn_lab.problems.origin`
Official   ``1D_Advection_Sols_beta<BETA>.hdf5`` of DaRUS, 10,000 samples for each of eight beta
========== =====================================================================================

References
----------
.. [1] M. Takamoto et al., "PDEBench: An Extensive Benchmark for Scientific Machine Learning",
   NeurIPS Datasets and Benchmarks, 2022. Data: https://doi.org/10.18419/darus-2986
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from chonn_lab.problems.domains import cell_centres
from chonn_lab.problems.generation import Arrays, Recipe, check_sizes
from chonn_lab.problems.hdf5 import read_rows
from chonn_ops.checks import check_least

N_SAMPLES, N_FRAMES, RESOLUTION = 10_000, 201, 1024
END_TIME = 2.0
SAMPLES_PER_PART = 16
N_WAVENUMBERS = 4
# Each with this probability, as in PDEBench.
RARE = 0.1
EDGE = 0.01
# Of PDEBench's config_Adv.yaml.
BETA = 4.0
# Increased when the same settings give other data, see `chonn_lab.problems.origin`.
GENERATOR_VERSION = 1


def frame_times(n_frames: int) -> np.ndarray:
    """(n_frames,) from 0 to the end."""
    return np.linspace(0, END_TIME, n_frames)


@dataclasses.dataclass(frozen=True)
class Wave:
    """A function of period 1: a sum of sines, perhaps its absolute value, perhaps windowed.

    Parameters
    ----------
    wavenumbers, amplitudes, phases : ndarray
        (K,): the sum of ``A sin(2 pi n x + phase)``; n = 0 is a constant.
    absolute : bool
        Take the absolute value of the sum.
    sign : float
        Factor of the result.
    window : tuple of float, optional
        Keep what is between these places of [0, 1), with edges ``tanh(distance / 0.01)``.
    """

    wavenumbers: np.ndarray
    amplitudes: np.ndarray
    phases: np.ndarray
    absolute: bool = False
    sign: float = 1.0
    window: "tuple[float, float] | None" = None

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
    """The wave of one sample, the same for every number of samples and on every grid.

    The law is that of PDEBench's generator (``init_multi``), with period 1: of the wavenumbers
    n = 1 to 4, two are drawn, which may be the same one and then is doubled; those not drawn become
    constants ``A sin(phase)``. Amplitudes ~ U(0, 1), phases ~ U(0, 2 pi), either sign; one in ten
    is an absolute value, one in ten has a window from U(0.1, 0.45) to U(0.55, 0.9).
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(sample,)))
    drawn = rng.integers(1, N_WAVENUMBERS + 1, 2)
    n = np.arange(1, N_WAVENUMBERS + 1)
    # All are drawn for every sample, so that none depends on whether another one is used.
    amplitudes, phases = rng.random(N_WAVENUMBERS), 2 * np.pi * rng.random(N_WAVENUMBERS)
    absolute, windowed = rng.random(2) < RARE
    sign = rng.choice((-1.0, 1.0))
    window = (rng.uniform(0.1, 0.45), rng.uniform(0.55, 0.9))
    return Wave(
        n * (n[:, None] == drawn).sum(axis=1),
        amplitudes,
        phases,
        bool(absolute),
        float(sign),
        window if windowed else None,
    )


def file_name(beta: float = BETA) -> str:
    """PDEBench's name of the file."""
    return f"1D_Advection_Sols_beta{float(beta)}.hdf5"


def solve(wave: Wave, beta: float, resolution: int, n_frames: int) -> np.ndarray:
    """Exact values at the cell centres, (n_frames, R), float64."""
    return wave(cell_centres(resolution) - beta * frame_times(n_frames)[:, None])


def generate(
    output: "str | os.PathLike[str] | None" = None,
    n_samples: int = N_SAMPLES,
    resolution: int = RESOLUTION,
    beta: float = BETA,
    n_frames: int = N_FRAMES,
    seed: int = 0,
    workers: int = 1,
    force: bool = False,
    progress: bool = True,
) -> Path:
    """Generate a data set in PDEBench's layout; an interrupted call is resumed by the next one.

    Parameters
    ----------
    output : path, optional
        HDF5 file to write, by default `file_name`; it appears when it is complete.
    n_samples, resolution : int
        N, and R of at least 16.
    beta : float
        Velocity, positive.
    n_frames : int
        Frames from t = 0 to 2, at least 2.
    seed, workers, force, progress
        As for `chonn_lab.problems.helmholtz.generate`, and so are results and errors.
    """
    check_parameter("beta", beta)
    settings = {"n_samples": n_samples, "resolution": resolution, "n_frames": n_frames}
    recipe = Recipe("advection", GENERATOR_VERSION, seed, {**settings, "beta": float(beta)})
    path = Path(output or file_name(beta))
    return write_lines(path, recipe, _solve_part, workers, force, progress)


def write_lines(
    path: Path,
    recipe: Recipe,
    solve_part: Callable[..., Arrays],
    workers: int,
    force: bool,
    progress: bool,
) -> Path:
    """`generate` for any equation of such waves.

    Parameters
    ----------
    path : Path
        HDF5 file.
    recipe : Recipe
        With the settings N, R, T and, named as PDEBench's attribute, the equation's parameter.
    solve_part : callable
        As `Recipe.write` takes it.
    workers, force, progress
        As for `generate`.
    """
    n_samples, resolution, n_frames, value = recipe.settings.values()
    check_sizes(n_samples, resolution, 16, recipe.seed, workers)
    check_least(2, n_frames=n_frames)
    times = frame_times(n_frames)

    name = list(recipe.settings)[-1]
    fixed = {
        "x-coordinate": cell_centres(resolution),
        # One more than there are frames, as in PDEBench's files.
        "t-coordinate": np.append(times, 2 * times[-1] - times[-2]),
    }
    options: Any = {"fixed": fixed, "attributes": {name: value}}
    return recipe.write(path, solve_part, SAMPLES_PER_PART, workers, force, progress, **options)


def _solve_part(samples: range, seed: int, resolution: int, n_frames: int, beta: float) -> Arrays:
    return stacked(solve(draw_wave(seed, i), beta, resolution, n_frames) for i in samples)


def stacked(fields: Iterable[np.ndarray]) -> Arrays:
    """What a part of such a file holds."""
    return {"tensor": np.stack(list(fields)).astype(np.float32)}


def check_parameter(name: str, value: float, least: float = 0.0) -> None:
    """ValueError unless finite and above 0, or at least `least`."""
    if not (math.isfinite(value) and value > 0 and value >= least):
        expected = f"at least {least:g}" if least else "positive"
        raise ValueError(f"{name}: expected {expected} and finite, got {value}")


def read(path: "str | os.PathLike[str]", start: int = 0, stop: "int | None" = None) -> np.ndarray:
    """Some samples of a generated or published file.

    Parameters and errors are those of `chonn_lab.problems.helmholtz.read`.

    Returns
    -------
    ndarray
        (N, T, R), float32.
    """
    return read_rows(path, start, stop, tensor=3)[0]
