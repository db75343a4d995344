"""Advection on a line, PDEBench's smallest problem, exactly: card, generator and reader.

========== =====================================================================================
Equation   ``u_t + beta u_x = 0``; learn earlier frames of u -> later ones
Domain     periodic unit interval, R cells, values at cell centres ``(i + 1/2) / R``; t from 0 to 2
Boundary   periodic
Input      a wave of PDEBench's law: a sum of two sines of 1 to 4 periods and a constant, one in
           ten an absolute value, one in ten within a window, see `_line_data.draw_wave`.
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
           `chonn_ops.problems.origin`
Official   ``1D_Advection_Sols_beta<BETA>.hdf5`` of DaRUS, 10,000 samples for each of eight beta
========== =====================================================================================

References
----------
.. [1] M. Takamoto et al., "PDEBench: An Extensive Benchmark for Scientific Machine Learning",
   NeurIPS Datasets and Benchmarks, 2022. Data: https://doi.org/10.18419/darus-2986
"""

import os
from pathlib import Path
from types import MappingProxyType

import numpy as np

from chonn_ops.problems._line_data import (
    N_FRAMES,
    N_SAMPLES,
    RESOLUTION,
    Wave,
    check_parameter,
    frame_times,
    read,
    write_line_data,
)
from chonn_ops.problems.domains import cell_centres

__all__ = ["BETA", "OFFICIAL_HASHES", "file_name", "generate", "read", "solve"]

# Of PDEBench's config_Adv.yaml.
BETA = 4.0
# MD5 of the published files.
OFFICIAL_HASHES = MappingProxyType(
    {
        0.1: "b4be2fc3383f737c76033073e6d2ccfb",
        0.2: "d47b52c1be4b6bcaa8748a8df2f5fbb8",
        0.4: "d595bbfd2c659df995a93cd40d6ea568",
        0.7: "f89030c240a1e90b55649776854a84c2",
        1.0: "1fe41923a4123db55bf4e89bea32e142",
        2.0: "0e9beff98693089c38e213a1f2b9ac43",
        4.0: "a87b03ff425496360e2732921805f47d",
        7.0: "72a286ad2fcba574bd20bc045ba82d58",
    }
)
# See `chonn_ops.problems.origin`.
GENERATOR_VERSION = 1


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
    """Generate a data set in PDEBench's layout; what was interrupted or killed goes on.

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
    seed : int
        The data depend on it and the parameters above, not on `workers`.
    workers : int
        Processes. With more than one, a script that calls this needs the usual
        ``if __name__ == "__main__"`` guard.
    force : bool
        Replace an existing file, and samples of an interrupted call with other settings.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If an argument is out of range.
    FileExistsError
        If the file exists, or samples of an interrupted call with other settings, and `force` is
        not set.
    """
    check_parameter("beta", beta)
    return write_line_data(
        Path(output or file_name(beta)),
        "advection",
        GENERATOR_VERSION,
        ("beta", float(beta)),
        solve,
        n_samples,
        resolution,
        n_frames,
        seed,
        workers,
        force,
        progress,
    )
