"""Navier-Stokes in vorticity form: data set card, generator and reader.

========== =====================================================================================
Equation   ``w_t + u . grad w = nu laplace w + f``, ``div u = 0``, ``w = curl u``; learn earlier
           frames of w -> later ones
Domain     periodic unit square, R x R points ``x_i = i / R``, axis 0 is x_1; t from 0 to 50
Boundary   periodic; u has no mean
Input      at t = 0 a Gaussian field of mean zero, ``N(0, 7^(3/2) (-laplace + 49 I)^(-2.5))``; what
           FNO's published generator draws is 6.1 times as large
Forcing    ``f = 0.1 (sin(2 pi (x_1 + x_2)) + cos(2 pi (x_1 + x_2)))``
Parameters nu = 1e-3, R = 64, frames at t = 1, 2, ..., 50. The CHONN paper gives 3, 5 or 10 frames
           and predicts the next, over 40 steps
Splits     the CHONN paper has 1,000 samples to train and 200 to validate and test: the first and
           the last ones of our 1,200
Seeds      samples are drawn one after the other from ``numpy.random.default_rng(seed)``, always on
           256 x 256: sample i is the same for every number of samples, batch, grid and device, but
           for modes that a coarse grid cannot carry
Generator  pseudo-spectral on 256 x 256, two-thirds dealiasing, Crank-Nicolson for viscosity and
           second-order Adams-Bashforth for transport, steps of 2.5e-3; every fourth point is stored
Cost       46 s a sample on 256 x 256 and one core, 0.5 s on 64 x 64 with steps of 1e-2: 10 minutes
           for all 1,200 samples; 1.0 GB
Layout     that of ``ns_V1e-3_N5000_T50.mat``: MATLAB 7.3, which is HDF5 with the axes reversed.
           ``a`` (N, R, R) at t = 0, ``u`` (N, R, R, T), ``t`` (1, T), float32. `read`
           takes the published files too, MATLAB 5 ones included
Official   FNO's ``ns_V1e-3_N5000_T50.mat``, in a Google Drive folder without a stable address: to
           be downloaded by hand. We know no checksum
========== =====================================================================================

The papers' step is 1e-4. Longer steps and a coarser grid of the solver change the frame at t by
these relative L2 differences, the largest of 1 to 4 samples:

======================================== ============ ============ ============
difference                               t = 1        t = 30       t = 50
======================================== ============ ============ ============
64 x 64, step 1e-2 against 1e-4          6.0e-07      5.9e-06      3.5e-05
64 x 64, 1e-2 against 256 x 256, 2.5e-3  7.7e-07      2.7e-06      4.3e-05
64 x 64 against 128 x 128                4.7e-10      1.4e-11      2.2e-08
======================================== ============ ============ ============

On 256 x 256 steps of 1e-2 are unstable, which ends in an error.

References
----------
.. [1] Z. Li et al., "Fourier Neural Operator for Parametric Partial Differential Equations",
   ICLR 2021. Data: https://drive.google.com/drive/folders/1UnbQh2WWc6knEHbLn-ZaXrKUZhp7pjt-
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from chonn_lab.problems.generation import ProgressBar, stamp
from chonn_lab.problems.hdf5 import (
    MAT_BLOCK,
    check_range,
    create_array,
    create_hdf5,
    dataset,
    matlab_arrays,
)
from chonn_lab.problems.vorticity_solver import angular_wavenumbers, solve
from chonn_ops.checks import check_least

RESOLUTION, SOLVER_RESOLUTION = 64, 256
N_SAMPLES, N_FRAMES = 1200, 50
STEP = 2.5e-3
NOISE_RESOLUTION = 256
# Numbers, as far as memory allows: HDF5 makes a write of its own for every point and frame.
WRITTEN_TOGETHER = 1 << 24
OFFICIAL_NAME = "ns_V1e-3_N5000_T50.mat"


def default_name(n_samples: int = N_SAMPLES, n_frames: int = N_FRAMES) -> str:
    """File name in the style of the published files."""
    return f"ns_V1e-3_N{n_samples}_T{n_frames}.mat"


def forcing(n: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """(n, n) forcing ``0.1 (sin z + cos z)``, ``z = 2 pi (x_1 + x_2)``, float64."""
    x = torch.arange(n, dtype=torch.float64, device=device) / n
    z = 2 * torch.pi * (x[:, None] + x)
    return 0.1 * (z.sin() + z.cos())


def draw_vorticity(rng: np.random.Generator, n_samples: int, n: int) -> torch.Tensor:
    """Initial vorticity, the next samples of a stream: (n_samples, n, n), float64, n even."""
    noise = rng.standard_normal((n_samples, NOISE_RESOLUTION, NOISE_RESOLUTION))
    # Independent complex coefficients of unit variance, those of a real field.
    white = torch.fft.rfft2(torch.from_numpy(noise)) / NOISE_RESOLUTION
    k1, k2 = angular_wavenumbers(NOISE_RESOLUTION, white.device)
    variance = 7**1.5 * (k1**2 + k2**2 + 49) ** -2.5
    variance[0, 0] = 0
    coefficients = white * variance.sqrt()
    # Both grids' modes, without the ambiguous highest one.
    half = min(n, NOISE_RESOLUTION) // 2
    spectrum = torch.zeros(n_samples, n, n // 2 + 1, dtype=white.dtype)
    spectrum[:, :half, :half] = coefficients[:, :half, :half]
    spectrum[:, 1 - half :, :half] = coefficients[:, 1 - half :, :half]
    return torch.fft.irfft2(spectrum, s=(n, n), norm="forward")


def generate(
    output: Path | str = "",
    n_samples: int = N_SAMPLES,
    n_frames: int = N_FRAMES,
    resolution: int = RESOLUTION,
    solver_resolution: int = SOLVER_RESOLUTION,
    step: float = STEP,
    seed: int = 0,
    batch_size: int = 20,
    device: str = "",
    force: bool = False,
    progress: bool = True,
) -> Path:
    """Generate a data set in the layout of the published files.

    Parameters
    ----------
    output : path
        File to write, by default `default_name`; it appears when it is complete.
    n_samples, n_frames : int
        N and T.
    resolution, solver_resolution : int
        Points along an axis R that are stored, and those of the solver, an even multiple of them.
    step : float
        Longest time step.
    seed : int
        The data depend on it and the parameters above; on the next two to rounding only.
    batch_size : int
        Samples solved together.
    device : str
        Where they are solved, by default a CUDA device if there is one.
    force, progress : bool
        Replace an existing file; show a progress bar.

    Raises
    ------
    ValueError
        If an argument is out of range, or the step too long.
    FileExistsError
        If the file exists and `force` is not set.
    """
    check_least(1, n_samples=n_samples, n_frames=n_frames, batch_size=batch_size)
    check_least(4, resolution=resolution)
    check_least(0, seed=seed)
    if solver_resolution < resolution or solver_resolution % resolution or solver_resolution % 2:
        raise ValueError(
            f"solver_resolution: expected even and a multiple of resolution {resolution}, "
            f"got {solver_resolution}"
        )
    if not 0 < step <= 1:
        raise ValueError(f"step: expected above 0 and at most 1, got {step}")
    where = _usable_device(device)
    path = Path(output or default_name(n_samples, n_frames))
    settings = {
        "n_samples": n_samples,
        "n_frames": n_frames,
        "resolution": resolution,
        "solver_resolution": solver_resolution,
        "step": step,
        "field": "paper",
        "batch_size": batch_size,
        "device": where.type,
    }
    source = f"seed {seed}, field paper, solver {solver_resolution}, step {step:g}"
    rng = np.random.default_rng(seed)
    f = forcing(solver_resolution, where)
    every = solver_resolution // resolution
    together = max(1, WRITTEN_TOGETHER // (n_frames * resolution**2 * batch_size)) * batch_size

    with (
        create_hdf5(path, force, MAT_BLOCK) as file,
        ProgressBar(total=n_samples * n_frames, unit="frame", disable=not progress) as bar,
    ):
        stamp(file, "navier_stokes", 1, seed, f"Navier-Stokes generator, {source}", settings)
        shape = (resolution, resolution, n_samples)
        create_array(file, "a", shape)
        create_array(file, "u", (n_frames, *shape))
        create_array(file, "t", (n_frames, 1))[:, 0] = np.arange(1, n_frames + 1)
        for start in range(0, n_samples, together):
            fields = []
            stop = min(start + together, n_samples)
            for first in range(start, stop, batch_size):
                n_batch = min(batch_size, stop - first)
                w0 = draw_vorticity(rng, n_batch, solver_resolution).to(where)
                frames = solve(w0, f, n_frames, step, on_frame=lambda n=n_batch: bar.update(n))
                coarse = [field[..., ::every, ::every] for field in (w0[:, None], frames)]
                fields.append(torch.cat(coarse, dim=1).float().cpu())
            # MATLAB's axes in reverse.
            reverse = torch.cat(fields).permute(1, 3, 2, 0).numpy()
            dataset(file, "a")[..., start:stop] = reverse[0]
            dataset(file, "u")[..., start:stop] = reverse[1:]
    return path


def read(path: Path | str, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Vorticity of samples of a generated or published file, (N, T, R, R), float32, from t = 1 on.

    The file may be one of MATLAB 5, too. FileNotFoundError or ValueError if it is missing, damaged
    or foreign, or lacks the samples.
    """
    with matlab_arrays(path, "u") as (u,):
        if len(u.shape) != 4:
            raise ValueError(f"{path}: expected u of 4 axes, got shape {u.shape}")
        check_range(path, u.shape[0], start, stop)
        every = slice(None)
        frames = u[slice(start, stop), every, every, every].transpose(0, 3, 1, 2)
        return np.ascontiguousarray(frames, dtype=np.float32)


def _usable_device(device: str) -> torch.device:
    name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, dtype=torch.float64, device=name).device
    # What PyTorch raises depends on how it was built and on the device.
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {name!r} cannot compute in float64: {reason}") from error
