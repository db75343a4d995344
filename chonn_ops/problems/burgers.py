"""Burgers' equation on a line, of PDEBench, without discretisation in time: card and generator.

========== =====================================================================================
Equation   ``u_t + (u^2 / 2)_x = (Nu / pi) u_xx``; learn earlier frames of u -> later ones
Domain     periodic unit interval, R cells, values at cell centres ``(i + 1/2) / R``; t from 0 to 2
Boundary   periodic
Input      a wave of PDEBench's law, as that of `chonn_ops.problems.advection`, of period 1
Parameters ``Nu``, at least 0.001 (PDEBench's smallest); R = 1024, 201 frames 0.01 apart, the first
           at t = 0. PDEBench trains on every fourth cell and fifth frame, from 10 frames on
Splits     PDEBench tests on the first tenth of the samples
Seeds      sample i draws from ``numpy.random.SeedSequence(seed, spawn_key=(i,))``: it is the same
           for every number of samples and of workers
Generator  the transform of Cole and Hopf, by quadrature on at least 2,048 points in float64,
           stored as float32; shocks thinner than a cell are sampled, not smeared. PDEBench's files
           have the numerical diffusion of a second-order upwind scheme
Cost       0.03 s (Nu = 0.001) to 2 s (Nu = 4) a sample and core; 8.2 GB for 10,000. Solved samples
           are kept beside the file in parts of 16: the same call goes on after an interruption
Layout     that of PDEBench: HDF5, ``tensor`` (N, 201, R), ``x-coordinate`` (R,), ``t-coordinate``
           (202,), float32; attribute ``Nu``. Ours also has the attributes of
           `chonn_ops.problems.origin`
Official   ``1D_Burgers_Sols_Nu<NU>.hdf5`` of DaRUS, 10,000 samples for each of twelve Nu
========== =====================================================================================

References
----------
.. [1] M. Takamoto et al., "PDEBench: An Extensive Benchmark for Scientific Machine Learning",
   NeurIPS Datasets and Benchmarks, 2022. Data: https://doi.org/10.18419/darus-2986
"""

import math
import os
from pathlib import Path
from types import MappingProxyType

import numpy as np

from chonn_ops.problems import _cole_hopf
from chonn_ops.problems._line_data import (
    END_TIME,
    N_FRAMES,
    N_SAMPLES,
    RESOLUTION,
    Wave,
    check_parameter,
    read,
    write_line_data,
)

__all__ = ["NU", "OFFICIAL_HASHES", "file_name", "generate", "read", "solve"]

# Of PDEBench's config_Bgs.yaml.
NU = 1.0
LEAST_NU = 1e-3
# MD5 of the published files.
OFFICIAL_HASHES = MappingProxyType(
    {
        0.001: "44cb784d5a07aa2b1c864cabdcf625f9",
        0.002: "edf1cd13622d151dfde3e4e5af7a95b4",
        0.004: "435e1fecb8a64a0b4563bb8d09f81c33",
        0.01: "e6d9a4f62baf9a29121a816b919e2770",
        0.02: "7c8c717a3a7818145877baa57106b090",
        0.04: "16f4c7afaf8c16238be157e54c9297c7",
        0.1: "660ba1008d3843bf4e28d2895eb607ce",
        0.2: "01d9333254dff2f3cad090b61f5cf695",
        0.4: "58327a6107e8f9defb5075677cc42533",
        1.0: "9021eba35332d127306f11ef84c1a60f",
        2.0: "70fe0c24d9313e70f6059e5212bdb3d7",
        4.0: "8af7f70166c00ffad377c80fa477d81f",
    }
)
# See `chonn_ops.problems.origin`.
GENERATOR_VERSION = 1


def file_name(nu: float = NU) -> str:
    """PDEBench's name of the file."""
    return f"1D_Burgers_Sols_Nu{float(nu)}.hdf5"


def solve(wave: Wave, nu: float, resolution: int, n_frames: int) -> np.ndarray:
    """Values at the cell centres, (n_frames, R), float64."""
    interval = END_TIME / (n_frames - 1)
    return _cole_hopf.burgers(wave, nu / math.pi, resolution, interval, n_frames)


def generate(
    output: "str | os.PathLike[str] | None" = None,
    n_samples: int = N_SAMPLES,
    resolution: int = RESOLUTION,
    nu: float = NU,
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
    nu : float
        PDEBench's Nu, pi times the diffusivity; at least 0.001.
    n_frames, seed, workers, force, progress
        As for `chonn_ops.problems.advection.generate`, and so are results and errors.
    """
    check_parameter("nu", nu, LEAST_NU)
    return write_line_data(
        Path(output or file_name(nu)),
        "burgers",
        GENERATOR_VERSION,
        ("Nu", float(nu)),
        solve,
        n_samples,
        resolution,
        n_frames,
        seed,
        workers,
        force,
        progress,
    )
