"""Navier-Stokes in vorticity form.

========== =====================================================================================
Equation   ``w_t + u . grad w = nu laplace w + f``, ``div u = 0``, ``w = curl u``, periodic, u
           without mean; learn earlier frames of w -> later ones
Domain     R x R points ``x_i = i / R``; t from 0 to 50
Input      at t = 0 a Gaussian field of mean zero, ``N(0, 7^(3/2) (-laplace + 49 I)^(-2.5))``; what
           FNO's published generator draws is 6.1 times as large
Forcing    ``f = 0.1 (sin(2 pi (x_1 + x_2)) + cos(2 pi (x_1 + x_2)))``
Parameters nu = 1e-3, R = 64, frames at t = 1, 2, ..., 50. The CHONN paper gives 3, 5 or 10 frames
           and predicts the next, over 40 steps, with 1,000 samples to train and 200 to validate and
           test: the first and the last ones of our 1,200
Seeds      samples are drawn one after the other from ``numpy.random.default_rng(seed)``, always on
           256 x 256: sample i is the same for every number of samples, batch, grid and device, but
           for modes that a coarse grid cannot carry
Generator  pseudo-spectral on 256 x 256, two-thirds dealiasing, Crank-Nicolson for viscosity and
           second-order Adams-Bashforth for transport, steps of 2.5e-3; every fourth point is stored
Cost       46 s a sample on 256 x 256 and one core, 0.5 s on 64 x 64 with steps of 1e-2; 1.0 GB
Layout     that of the published file as MATLAB 7.3, which is HDF5 with the axes reversed: ``a``
           (N, R, R) at t = 0, ``u`` (N, R, R, T), ``t`` (1, T). `read` takes the published files
           too, MATLAB 5 ones included
Official   FNO's ``ns_V1e-3_N5000_T50.mat``. We know no checksum
========== =====================================================================================

The papers' step is 1e-4. Steps of 1e-2 on 64 x 64 change the frame at t = 50 by 3.5e-5 (relative
L2) from those of 1e-4, and by 4.3e-5 from 2.5e-3 on 256 x 256, where 1e-2 is unstable, an error.
"""

from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from chonn_lab.problems import hdf5
from chonn_lab.problems.origin import stamp
from chonn_ops.checks import check_integer

RESOLUTION, SOLVER_RESOLUTION = 64, 256
N_SAMPLES, N_FRAMES = 1200, 50
STEP, NU = 2.5e-3, 1e-3
NOISE_RESOLUTION = 256
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


def angular_wavenumbers(n: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Angular wavenumbers of ``torch.fft.rfft2`` on an (n, n) grid, float64.

    The shapes are (n, 1) along the first axis and (1, n//2 + 1) along the second.
    """
    first = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64, device=device)
    second = torch.fft.rfftfreq(n, 1 / n, dtype=torch.float64, device=device)
    return 2 * torch.pi * first[:, None], 2 * torch.pi * second[None, :]


def solve(
    w0: torch.Tensor,
    forcing: torch.Tensor,
    n_frames: int,
    step: float,
    interval: float = 1.0,
    nu: float = NU,
) -> torch.Tensor:
    """Evolve ``w_t + u . grad w = nu laplace w + f``: (B, n_frames, n, n), w every `interval`.

    The stream function of ``-laplace psi = w`` gives the velocity ``u = (psi_y, -psi_x)``.
    Transport is computed in physical space from fields cut off at two thirds of the wavenumbers,
    so that products cannot alias onto the kept ones. Viscosity is treated by Crank-Nicolson,
    transport explicitly by the second-order Adams-Bashforth formula (the first step by Heun's).

    `w0` is (B, n, n), n even, and `forcing` (n, n); type and device of w0 are those of the
    computation, and its mean stays. `interval` is divided into equal steps of at most `step`. A
    ValueError if the flow is not finite any more: the step is too long.
    """
    n = w0.shape[-1]
    k1, k2 = (k.to(w0.dtype) for k in angular_wavenumbers(n, w0.device))
    square = k1**2 + k2**2
    inverse = torch.where(square > 0, 1 / square.clamp(min=1), 0)
    cut = 2 * torch.pi * (n // 3)
    kept = (k1.abs() < cut) & (k2.abs() < cut)
    velocity = 1j * kept * inverse * torch.stack([k2.expand_as(square), -k1.expand_as(square)])
    gradient = 1j * kept * torch.stack([k1.expand_as(square), k2.expand_as(square)])
    # One transform for the four factors of the transport term.
    factors = torch.cat([velocity, gradient])
    f = torch.fft.rfft2(forcing.to(w0.dtype))

    n_steps = max(1, -(-round(interval / step * 1e9) // 10**9))
    dt = interval / n_steps
    implicit, explicit = 1 / (1 + 0.5 * dt * nu * square), 1 - 0.5 * dt * nu * square

    def rate(w: torch.Tensor) -> torch.Tensor:
        u1, u2, w1, w2 = torch.fft.irfft2(factors * w[:, None], s=(n, n)).unbind(1)
        return f - kept * torch.fft.rfft2(u1 * w1 + u2 * w2)

    w = torch.fft.rfft2(w0)
    earlier = None
    frames = []
    for _ in range(n_frames):
        for _ in range(n_steps):
            now = rate(w)
            if earlier is None:
                guess = implicit * (explicit * w + dt * now)
                mean_rate = 0.5 * (now + rate(guess))
            else:
                mean_rate = 1.5 * now - 0.5 * earlier
            w = implicit * (explicit * w + dt * mean_rate)
            earlier = now
        frames.append(torch.fft.irfft2(w, s=(n, n)))
        if not frames[-1].isfinite().all():
            raise ValueError(f"the flow left the range of numbers: step {dt:g} is too long")
    return torch.stack(frames, dim=1)


def generate(
    output: Path | str = "",
    n_samples: int = N_SAMPLES,
    n_frames: int = N_FRAMES,
    resolution: int = RESOLUTION,
    solver_resolution: int = SOLVER_RESOLUTION,
    step: float = STEP,
    seed: int = 0,
    batch_size: int = 20,
    force: bool = False,
    progress: bool = True,
) -> Path:
    """Generate a data set in the layout of the published files.

    `resolution` are the points along an axis R that are stored, `solver_resolution` those of the
    solver, an even multiple of them, and `step` is its longest time step; a ValueError if that is
    too long. `batch_size` samples are solved together, on a CUDA device if there is one; the data
    depend on either to rounding only.
    """
    check_integer(1, n_samples=n_samples, n_frames=n_frames, batch_size=batch_size)
    check_integer(4, resolution=resolution)
    check_integer(0, seed=seed)
    if solver_resolution < resolution or solver_resolution % resolution or solver_resolution % 2:
        raise ValueError(
            f"solver_resolution: expected even and a multiple of resolution {resolution}, "
            f"got {solver_resolution}"
        )
    if not 0 < step <= 1:
        raise ValueError(f"step: expected above 0 and at most 1, got {step}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    path = Path(output or default_name(n_samples, n_frames))
    settings = {
        "n_samples": n_samples,
        "n_frames": n_frames,
        "resolution": resolution,
        "solver_resolution": solver_resolution,
        "step": step,
        "field": "paper",
        "batch_size": batch_size,
        "device": device.type,
    }
    rng = np.random.default_rng(seed)
    f = forcing(solver_resolution, device)
    every = solver_resolution // resolution
    # In MATLAB's axes, reversed; HDF5 would make a write of its own for every point and frame.
    fields = np.empty((1 + n_frames, resolution, resolution, n_samples), "f4")
    with (
        hdf5.create_hdf5(path, force, matlab=True) as file,
        tqdm(total=n_samples, unit="sample", disable=not progress) as bar,
    ):
        stamp(file, "navier_stokes", seed, settings)
        for start in range(0, n_samples, batch_size):
            n_batch = min(batch_size, n_samples - start)
            w0 = draw_vorticity(rng, n_batch, solver_resolution).to(device)
            frames = torch.cat([w0[:, None], solve(w0, f, n_frames, step)], dim=1)
            coarse = frames[..., ::every, ::every].float().cpu()
            fields[..., start : start + n_batch] = coarse.permute(1, 3, 2, 0)
            bar.update(n_batch)
        hdf5.create_array(file, "a", fields[0])
        hdf5.create_array(file, "u", fields[1:])
        hdf5.create_array(file, "t", np.arange(1.0, n_frames + 1)[:, None])
    return path


def read(path: Path | str, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Vorticity of samples of a generated or published file, (N, T, R, R), float32, from t = 1 on.

    The file may be one of MATLAB 5, too. FileNotFoundError or ValueError if it is missing, damaged
    or foreign, or lacks the samples.
    """
    with hdf5.matlab_arrays(path, "u") as (u,):
        if len(u.shape) != 4:
            raise ValueError(f"{path}: expected u of 4 axes, got shape {u.shape}")
        hdf5.check_range(path, u.shape[0], start, stop)
        every = slice(None)
        frames = u[slice(start, stop), every, every, every].transpose(0, 3, 1, 2)
        return np.ascontiguousarray(frames, dtype=np.float32)
