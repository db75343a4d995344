"""PDEBench's problems on a periodic line: its waves, and trajectories in its layout.

HDF5: ``tensor`` (N, T, R), ``x-coordinate`` (R,) cell centres of [0, 1], ``t-coordinate`` (T + 1,),
one more than there are frames, as in PDEBench's files; all float32.
"""

import dataclasses
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from chonn_ops import __version__
from chonn_ops.problems._checks import check_least, check_sizes
from chonn_ops.problems._parts import Arrays, solved_parts
from chonn_ops.problems.domains import cell_centres
from chonn_ops.problems.hdf5 import check_range, create_hdf5, dataset, open_hdf5
from chonn_ops.problems.origin import stamp

N_SAMPLES, N_FRAMES, RESOLUTION = 10_000, 201, 1024
END_TIME = 2.0
SAMPLES_PER_PART = 16
N_WAVENUMBERS = 4
# Each with this probability, as in PDEBench.
RARE = 0.1
EDGE = 0.01


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


Solve = Callable[[Wave, float, int, int], np.ndarray]


def write_line_data(
    path: Path,
    generator: str,
    version: int,
    parameter: tuple[str, float],
    solve: Solve,
    n_samples: int,
    resolution: int,
    n_frames: int,
    seed: int,
    workers: int,
    force: bool,
    progress: bool,
) -> Path:
    """Solve and write all samples; what was interrupted or killed goes on with the next call.

    Parameters
    ----------
    path : Path
        HDF5 file; it appears when it is complete.
    generator, version, seed
        See `chonn_ops.problems.origin`.
    parameter : tuple of str and float
        Of the equation: PDEBench's attribute of the file.
    solve : callable
        Values (T, R) of a wave with the parameter, R and T; importable by name.
    n_samples, resolution, n_frames : int
        N, R and T.
    workers, force, progress
        As for `solved_parts`.

    Raises
    ------
    ValueError
        If an argument is out of range.
    FileExistsError
        As `solved_parts`.
    """
    check_sizes(n_samples, resolution, 16, seed, workers)
    check_least(("n_frames", n_frames, 2))
    name, value = parameter
    settings: dict[str, Any] = {"resolution": resolution, "n_frames": n_frames, name: value}
    record = {"generator": generator, "generator_version": version, "seed": seed, **settings}
    work = partial(
        _solve_part, solve=solve, seed=seed, value=value, resolution=resolution, n_frames=n_frames
    )
    times = frame_times(n_frames)
    with (
        solved_parts(
            path, record, work, n_samples, SAMPLES_PER_PART, workers, force, progress
        ) as solved,
        create_hdf5(path, force) as output,
    ):
        with output.writing() as file:
            file.attrs["source"] = f"chonn-ops {__version__} {generator} generator, seed {seed}"
            stamp(file, generator, version, seed, n_samples=n_samples, **settings)
            file.attrs[name] = value
            file.create_dataset("tensor", (n_samples, n_frames, resolution), "f4")
            file["x-coordinate"] = cell_centres(resolution).astype("f4")
            file["t-coordinate"] = np.append(times, 2 * times[-1] - times[-2]).astype("f4")
        for rows, part in solved:
            with output.writing() as file:
                dataset(file, "tensor")[rows] = part["tensor"]
    return path


def _solve_part(
    samples: range, solve: Solve, seed: int, value: float, resolution: int, n_frames: int
) -> Arrays:
    fields = [solve(draw_wave(seed, i), value, resolution, n_frames) for i in samples]
    return {"tensor": np.stack(fields).astype(np.float32)}


def read(path: "str | os.PathLike[str]", start: int = 0, stop: "int | None" = None) -> np.ndarray:
    """Some samples of a generated or published file.

    Parameters
    ----------
    path : path
        HDF5 file.
    start, stop : int
        First sample and the one after the last, by default the number of samples.

    Returns
    -------
    ndarray
        (N, T, R), float32.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or damaged, or lacks the samples.
    """
    with open_hdf5(path) as file:
        tensor = dataset(file, "tensor")
        if tensor.ndim != 3:
            raise ValueError(f"{path}: expected a tensor (N, T, R), got shape {tensor.shape}")
        check_range(path, len(tensor), start, stop)
        return tensor[start:stop].astype(np.float32)


def check_parameter(name: str, value: float, least: float = 0.0) -> None:
    """ValueError unless finite and above 0, or at least `least`."""
    if not (math.isfinite(value) and value > 0 and value >= least):
        expected = f"at least {least:g}" if least else "positive"
        raise ValueError(f"{name} must be {expected} and finite, got {value}")
