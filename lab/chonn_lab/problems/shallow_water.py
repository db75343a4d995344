"""Radial dam break of PDEBench.

========== =====================================================================================
Equation   shallow water over a flat bed: ``h_t + (hu)_x + (hv)_y = 0``,
           ``(hu)_t + (u^2 h + g h^2 / 2)_x + (u v h)_y = 0`` and the same for v; learn earlier
           frames of h -> later ones
Domain     ``[-2.5, 2.5]^2``, R x R cells, values at centres; t from 0 to 1. Lengths are in units of
           the outer depth, g = 1
Boundary   outflow (constant extrapolation). No wave arrives there before t = 1: mass is conserved
Input      at rest, depth 2 within the distance ``radius`` of the centre and 1 outside;
           ``radius ~ U(0.3, 0.7)``
Parameters R = 128, 101 frames 0.01 apart, the first at t = 0. The official file and the CHONN paper
           have 1,000 samples; 10 frames are given, training unrolls 20 more. PDEBench tests on the
           first tenth of the samples, the paper names no split
Seeds      sample i has the radius of ``numpy.random.RandomState(seed + i)``. With seed 0 these are
           PDEBench's: sample i is sample i of the official file, but for the PyClaw release
Generator  PyClaw (D. I. Ketcheson et al., SIAM Journal on Scientific Computing 34, 2012), ``make
           setup-pyclaw``: Roe's solver with entropy fix, monotonised central limiter, dimensional
           splitting, Courant number 0.9
Cost       0.6 s a sample and core; 6.6 GB for 1,000 samples
Layout     that of PDEBench: groups ``0000``, ``0001``, ... (the sample's seed) with ``data``
           (101, R, R, 1), ``grid/x``, ``grid/y`` (R,), ``grid/t`` (101,), axis 1 of the data is x;
           attribute ``config`` of each group, YAML
Official   ``2D_rdb_NA_NA.h5``, 6.6 GB, DaRUS data file 133021; `fetch` gets it
========== =====================================================================================
"""

import importlib.metadata
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np

from chonn_lab.problems.generation import Arrays, Recipe, make_files
from chonn_lab.problems.hdf5 import check_range, dataset, open_hdf5
from chonn_lab.problems.origin import download
from chonn_ops.checks import check_integer

OFFICIAL_NAME = "2D_rdb_NA_NA.h5"
HALF_WIDTH = 2.5
GRAVITY = 1.0
INNER_DEPTH, OUTER_DEPTH = 2.0, 1.0
RADII = (0.3, 0.7)
END_TIME, N_STEPS = 1.0, 100


def load_pyclaw() -> Any:
    """PyClaw and its Riemann solvers; ImportError if it is not installed."""
    try:
        # On import PyClaw takes over the root logger and opens a file pyclaw.log in the working
        # folder.
        with mock.patch("logging.config.fileConfig"):
            from clawpack import pyclaw, riemann  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "these data are computed by PyClaw, which is not installed: "
            "`make setup-pyclaw`, or a Fortran compiler and `pip install --no-deps clawpack`"
        ) from error
    return pyclaw, riemann


def draw_radius(seed: int) -> float:
    """Radius of the dam of one sample."""
    # PDEBench seeds NumPy's old generator; only the same one gives its samples.
    return np.random.RandomState(seed).uniform(*RADII)


def simulate(
    radius: float, resolution: int = 128, n_steps: int = N_STEPS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depths (n_steps + 1, R, R), float64, of a dam break up to t = 1, and cell centres x and y.

    ImportError if PyClaw is not installed.
    """
    pyclaw, riemann = load_pyclaw()
    solver = pyclaw.ClawSolver2D(riemann.shallow_roe_with_efix_2D)
    solver.limiters = pyclaw.limiters.tvd.MC
    solver.all_bcs = pyclaw.BC.extrap
    domain = pyclaw.Domain([-HALF_WIDTH] * 2, [HALF_WIDTH] * 2, [resolution] * 2)
    state = pyclaw.State(domain, solver.num_eqn)
    state.problem_data["grav"] = GRAVITY
    x, y = state.p_centers
    state.q[0] = np.where(np.sqrt(x**2 + y**2) <= radius, INNER_DEPTH, OUTER_DEPTH)
    state.q[1:] = 0
    solution = pyclaw.Solution(state, domain)
    frames = [solution.state.q[0].copy()]
    for step in range(1, n_steps + 1):
        # As PDEBench computes it: another rounding of the time is another last step.
        solver.evolve_to_time(solution, step * (END_TIME / n_steps))
        frames.append(solution.state.q[0].copy())
    return np.stack(frames), x[:, 0], y[0]


def generate(
    output: Path | str = OFFICIAL_NAME, n_samples: int = 1000, resolution: int = 128, **options: Any
) -> Path:
    """Generate a file in PDEBench's layout; ImportError without PyClaw."""
    check_integer(2, resolution=resolution)
    load_pyclaw()
    release = importlib.metadata.version("clawpack")
    settings = {"n_samples": n_samples, "resolution": resolution, "clawpack": release}
    recipe = Recipe(_sample, settings, store=_store)
    return make_files({Path(output): recipe}, **options)[0]


def _sample(seed: int, i: int, resolution: int, **_: Any) -> Arrays:
    h, x, y = simulate(draw_radius(seed + i), resolution)
    return {"seed": seed + i, "h": h.astype("f4"), "x": x, "y": y}


def _store(file: h5py.File, part: range, arrays: Arrays) -> None:
    t = np.linspace(0, END_TIME, N_STEPS + 1)
    for i in range(len(part)):
        seed, h = int(arrays["seed"][i]), arrays["h"][i]
        group = file.create_group(f"{seed:04d}")
        group.attrs["config"] = _config(seed, draw_radius(seed), h.shape[-1])
        group["data"] = h[..., None]
        for name, values in (("x", arrays["x"][i]), ("y", arrays["y"][i]), ("t", t)):
            group[f"grid/{name}"] = values.astype("f4")


def fetch(folder: Path | str = ".", force: bool = False, progress: bool = True) -> bool:
    """Download PDEBench's official file (6.6 GB); see `chonn_lab.problems.origin.download`."""
    return download(133021, OFFICIAL_NAME, folder, force, progress)


def read(path: Path | str, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Depths of samples of a generated or official file, (N, 101, R, R)."""
    with open_hdf5(path) as file:
        names = sorted(file)
        check_range(path, len(names), start, stop)
        depths = [dataset(file, f"{name}/data", 4)[..., 0] for name in names[start:stop]]
        return np.stack(depths).astype(np.float32, copy=False)


def _config(seed: int, radius: float, resolution: int) -> str:
    """The settings of a sample as PDEBench's YAML, which its readers do not use."""
    settings = {
        "T_end": END_TIME,
        "n_time_steps": N_STEPS,
        "xdim": resolution,
        "ydim": resolution,
        "gravity": GRAVITY,
        "dam_radius": radius,
        "inner_height": INNER_DEPTH,
        "x_left": -HALF_WIDTH,
        "x_right": HALF_WIDTH,
        "y_bottom": -HALF_WIDTH,
        "y_top": HALF_WIDTH,
        "seed": seed,
    }
    return "sim:\n" + "".join(f"  {name}: {value!r}\n" for name, value in settings.items())
