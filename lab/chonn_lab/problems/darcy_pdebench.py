"""Darcy flow as PDEBench stores it, a late frame of a transient, by PDEBench's own generator.

========== =====================================================================================
Equation   ``u_t = div(nu grad u) + 1`` from a random start, over 0 <= t <= 2; learn ``nu`` to u at
           t = 1.75, the last frame but one
Domain     R x R cells, values at centres ``(i + 1/2) / R``
Boundary   ``u = 0`` half a cell outside the unit square
Input      ``nu`` is 1 or 0.1, as in `chonn_lab.problems.darcy`. The start, waves about a level
           between 0.1 and 10, is no input
Parameters R = 48
Generator  PDEBench's in JAX, run as `chonn_lab.problems.pdebench_series` says; explicit steps at a
           quarter of their stability limit
Licence    noncommercial research use only, as `chonn_lab.problems.pdebench_series` says
Seeds      batch b of 200 samples has JAX's key ``seed + b``, always whole
Layout     that of `chonn_lab.problems.darcy`
========== =====================================================================================

The published file has the same frame of other random numbers on 128 x 128 cells. The frame has a
rest of the start, which decays slowest where nu is 0.1 over large regions, and the start is no
input. So no model that sees nu alone avoids an error. On 384 samples of seed 0 the steady state
differs from the frame by 2.5 % (mean relative L1 error; median 0.2 %), by more than 10 % on one
sample in twelve, and by 37 % at most.
"""

from pathlib import Path

import numpy as np

from chonn_lab.problems import origin
from chonn_lab.problems.darcy import read as read
from chonn_lab.problems.hdf5 import create_hdf5
from chonn_lab.problems.pdebench_series import run_with_jax
from chonn_ops.checks import check_integer
from chonn_ops.files import refuse_existing

BATCH = 200
SETTINGS = {
    "xL": 0.0, "xR": 1.0, "yL": 0.0, "yR": 1.0, "ini_time": 0.0, "fin_time": 2.0,
    "dt_save": 0.25, "show_steps": 100, "CFL": 0.25, "beta": 1.0, "save": ".",
}  # fmt: skip
FRAME = -2  # t = 1.75
SCRIPT = "ReactionDiffusionEq/reaction_diffusion_2D_multi_solution_Hydra.py"
FILES = "nu*key*.npy", "2D*key*.npy"


def generate(
    output: Path | str = "2D_DarcyFlow_beta1.0_Train_transient.hdf5",
    n_samples: int = 400,
    resolution: int = 48,
    seed: int = 0,
    python: str = "",
    force: bool = False,
) -> Path:
    """Run PDEBench's generator by the interpreter `python`, or that which CHONN_JAX names.

    A ValueError without one, if it fails, or for numbers out of range; a FileExistsError if the
    file exists and `force` is not set; a ModuleNotFoundError without PDEBench.
    """
    path = Path(output)
    check_integer(1, n_samples=n_samples)
    check_integer(4, resolution=resolution)
    check_integer(0, seed=seed)
    refuse_existing(path, force)
    multi = {**SETTINGS, "nx": resolution, "ny": resolution, "numbers": BATCH}
    batches = [
        run_with_jax(SCRIPT, {"multi": {**multi, "init_key": seed + b}}, FILES, python)
        for b in range(-(-n_samples // BATCH))
    ]
    nu, u = (np.concatenate(fields)[:n_samples] for fields in zip(*batches, strict=True))
    x = (np.arange(resolution, dtype="f4") + 0.5) / resolution
    with create_hdf5(path, force) as file:
        settings = {"n_samples": n_samples, "resolution": resolution}
        origin.stamp(file, "darcy_pdebench", seed, settings)
        file.attrs["beta"] = SETTINGS["beta"]
        file["nu"], file["tensor"] = nu.astype("f4"), u[:, FRAME, None].astype("f4")
        file["x-coordinate"], file["y-coordinate"] = x, x
    return path
