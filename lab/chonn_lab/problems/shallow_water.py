"""Radial dam break of PDEBench: data set card, generator, download and reader.

========== =====================================================================================
Equation   shallow water over a flat bed: ``h_t + (hu)_x + (hv)_y = 0``,
           ``(hu)_t + (u^2 h + g h^2 / 2)_x + (u v h)_y = 0`` and the same for v; learn earlier
           frames of h -> later ones
Domain     ``[-2.5, 2.5]^2``, R x R cells, values at cell centres; t from 0 to 1. Lengths are in
           units of the outer depth, g = 1
Boundary   outflow (constant extrapolation). No wave arrives there before t = 1: mass is conserved
Input      at rest, depth 2 within the distance ``radius`` of the centre and 1 outside;
           ``radius ~ U(0.3, 0.7)``
Parameters R = 128, 101 frames 0.01 apart, the first at t = 0. The official file and the CHONN paper
           have 1,000 samples; 10 frames are given, training unrolls 20 more
Splits     PDEBench tests on the first tenth of the samples. The paper names no split
Seeds      sample i has the radius of ``numpy.random.RandomState(seed + i)``. With seed 0 these are
           PDEBench's: sample i is sample i of the official file, but for the PyClaw release
Generator  PyClaw: finite volumes, Roe's solver with entropy fix, monotonised central limiter,
           second order, dimensional splitting, Courant number 0.9; float64, stored as float32
Cost       0.6 s a sample and core; 6.6 GB for 1,000 samples, twice that while it runs. Solved
           samples are kept beside the file: the same call goes on after an interruption
Layout     that of PDEBench: HDF5, groups ``0000``, ``0001``, ... (the sample's seed) with ``data``
           (101, R, R, 1), ``grid/x``, ``grid/y`` (R,), ``grid/t`` (101,), float32, axis 1 of the
           data is x; attribute ``config`` of each group, YAML. Our files also have the attributes
           of `chonn_lab.problems.origin`
Official   ``2D_rdb_NA_NA.h5``, 6.6 GB, DaRUS data file 133021,
           md5 75d838c47aa410694bdc912ea7f22282; `fetch` gets it
========== =====================================================================================

Only `generate` needs PyClaw, a Fortran package built on installation: ``make setup-pyclaw``.

References
----------
.. [1] M. Takamoto et al., "PDEBench: An Extensive Benchmark for Scientific Machine Learning",
   NeurIPS Datasets and Benchmarks, 2022. Data: https://doi.org/10.18419/darus-2986
.. [2] D. I. Ketcheson et al., "PyClaw: Accessible, Extensible, Scalable Tools for Wave Propagation
   Problems", SIAM Journal on Scientific Computing 34, 2012.
"""

import functools
import os
from pathlib import Path

import h5py
import numpy as np

from chonn_lab.problems.download import download
from chonn_lab.problems.generation import Arrays, Recipe, check_sizes
from chonn_lab.problems.hdf5 import check_range, dataset, open_hdf5
from chonn_lab.problems.published import CHECKSUMS
from chonn_lab.problems.pyclaw import clawpack_version, load_pyclaw

OFFICIAL_NAME = "2D_rdb_NA_NA.h5"
OFFICIAL_URL = "https://darus.uni-stuttgart.de/api/access/datafile/133021"
OFFICIAL_HASH = f"md5:{CHECKSUMS[OFFICIAL_NAME]}"
# Increased when the same settings give other data, see `chonn_lab.problems.origin`.
GENERATOR_VERSION = 1

HALF_WIDTH = 2.5
GRAVITY = 1.0
INNER_DEPTH, OUTER_DEPTH = 2.0, 1.0
RADII = (0.3, 0.7)
END_TIME, N_STEPS = 1.0, 100


def draw_radius(seed: int) -> float:
    """Radius of the dam of one sample."""
    # PDEBench seeds NumPy's old generator; only the same one gives its samples.
    return np.random.RandomState(seed).uniform(*RADII)


def simulate(
    radius: float, resolution: int = 128, n_steps: int = N_STEPS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve one dam break.

    Parameters
    ----------
    radius : float
        Radius of the dam.
    resolution : int
        Cells R along an axis.
    n_steps : int
        Frames after the first one, up to t = 1.

    Returns
    -------
    h : ndarray
        (n_steps + 1, R, R), depth, float64.
    x, y : ndarray
        (R,), cell centres.

    Raises
    ------
    ImportError
        If PyClaw is not installed.
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
    h = np.empty((n_steps + 1, resolution, resolution))
    h[0] = state.q[0]
    for step in range(1, n_steps + 1):
        # As PDEBench computes it: another rounding of the time is another last step.
        solver.evolve_to_time(solution, step * (END_TIME / n_steps))
        h[step] = state.q[0]
    return h, x[:, 0], y[0]


def generate(
    output: "str | os.PathLike[str]" = OFFICIAL_NAME,
    n_samples: int = 1000,
    resolution: int = 128,
    seed: int = 0,
    workers: int = 1,
    force: bool = False,
    progress: bool = True,
) -> Path:
    """Generate a data set in PDEBench's layout.

    Parameters
    ----------
    output : path
        HDF5 file to write; it appears when it is complete.
    n_samples, resolution, workers, progress
        As for `chonn_lab.problems.helmholtz.generate`.
    seed : int
        Seed of the first sample; sample i has `seed` + i.
    force : bool
        Replace an existing file.

    Raises
    ------
    ImportError
        If PyClaw is not installed.
    ValueError
        If an argument is out of range.
    FileExistsError
        If the file exists and `force` is not set.
    """
    check_sizes(n_samples, resolution, 2, seed, workers)
    load_pyclaw()
    path = Path(output)
    settings = {
        "n_samples": n_samples,
        "resolution": resolution,
        "clawpack": clawpack_version(),
    }
    source = f"shallow-water generator, seed {seed}"
    recipe = Recipe("shallow_water", GENERATOR_VERSION, seed, settings, source)
    store = functools.partial(_store, first=seed)
    return recipe.write(path, _solve_part, 1, workers, force, progress, store=store)


def _solve_part(samples: range, seed: int, resolution: int, clawpack: "str | None") -> Arrays:  # noqa: ARG001 - a part of the record
    radii = [draw_radius(seed + i) for i in samples]
    solved = [simulate(radius, resolution) for radius in radii]
    h, x, y = zip(*solved, strict=True)
    return {"radius": radii, "h": np.array(h, "f4"), "x": x[0], "y": y[0]}


def _store(file: h5py.File, rows: slice, part: Arrays, first: int) -> None:
    t = np.linspace(0, END_TIME, N_STEPS + 1)
    for i, radius, h in zip(range(rows.start, rows.stop), part["radius"], part["h"], strict=True):
        group = file.create_group(f"{first + i:04d}")
        group.attrs["config"] = _config(first + i, radius, h.shape[-1])
        group["data"] = h[..., None]
        for name, values in (("x", part["x"]), ("y", part["y"]), ("t", t)):
            group[f"grid/{name}"] = values.astype("f4")


def fetch(
    folder: "str | os.PathLike[str]" = ".", force: bool = False, progress: bool = True
) -> bool:
    """Download PDEBench's official file (6.6 GB).

    Parameters
    ----------
    folder : path
        Existing folder for the file, which has its official name.

    The other parameters, the result and the errors are those of
    `chonn_lab.problems.download.download`.
    """
    return download(OFFICIAL_URL, OFFICIAL_HASH, Path(folder) / OFFICIAL_NAME, force, progress)


def read(path: "str | os.PathLike[str]", start: int = 0, stop: "int | None" = None) -> np.ndarray:
    """Depths of some samples of a generated or official file.

    Parameters and errors are those of `chonn_lab.problems.helmholtz.read`.

    Returns
    -------
    ndarray
        (N, 101, R, R), float32.
    """
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
