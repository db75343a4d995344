"""PDEBench's families of time series, by PDEBench's own generators, small.

========== =====================================================================================
Equation   ``family``, and what differs from the published file, which has 1,000 to 10,000 samples
           of 1,024 cells along a line (compressible flow and reaction-diffusion too) or 128 along
           an axis of a plane; learn earlier frames -> later ones

           ===================== ==============================================================
           advection_B           ``u_t + B u_x = 0``, B = 0.1, 1, 4; t to 2
           burgers_E             ``u_t + (u^2 / 2)_x = E / pi u_xx``, E = 0.001, 0.01, 0.1; t to 2
           reaction_diffusion    ``u_t = 0.5 u_xx + u (1 - u)``; t to 1
           diffusion_sorption    ``R(u) u_t = 5e-4 u_xx``, R the retardation of Freundlich's
                                 isotherm, u = 1 at the left wall; t to 500
           compressible          density, velocity and pressure on a line, almost inviscid; t to 1
           diffusion_reaction    FitzHugh and Nagumo's, two channels, no flux through the walls;
                                 t to 2 and not to 5
           shallow_water         depth of the radial dam break; t to 1
           compressible_2d       density, both velocities, pressure; Mach number 0.1, viscosities
                                 0.01; t to 1
           ===================== ==============================================================
Domain     R cells along each axis, values at centres: the unit interval or square, but
           [-1, 1]^2 for diffusion_reaction and [-2.5, 2.5]^2 for shallow_water
Boundary   periodic but for diffusion and water
Input      the generator's random starts
Parameters R = 128 in 1-D and 32 in 2-D (shallow_water 64) unless given; 41 frames,
           of compressible_2d 21, at equal times, the first at t = 0
Seeds      sample i has NumPy's ``seed + i``; those of JAX are drawn together from the key ``seed``,
           so other numbers of samples are other data
Generator  the installed ``pdebench`` package's. diffusion_sorption and diffusion_reaction run in
           this process, shallow_water, too, with PyClaw; the others by an interpreter that has JAX,
           Hydra and OmegaConf. The waves of their random starts fit the distance of the outermost
           centres: periodic starts have a small jump, which the published 1,024 cells hide
Licence    the header of those in JAX allows noncommercial research use only, of them and of what is
           made by them. Nothing of them is in this package, which runs no test with them
Cost       seconds to two minutes for 96 samples
Layout     ``tensor`` (N, T, C, \\*grid); ``t-coordinate`` (T,)
========== =====================================================================================
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from chonn_lab.problems import origin
from chonn_lab.problems.hdf5 import check_range, create_hdf5, dataset, open_hdf5
from chonn_ops.checks import check_choice, check_integer
from chonn_ops.files import refuse_existing

# What the other interpreter runs, in an empty folder.
CALL = """
import importlib.util, json, os, sys
import hydra, omegaconf
folder, script, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
hydra.utils.get_original_cwd = os.getcwd
sys.path.insert(0, folder)
spec = importlib.util.spec_from_file_location("generator", folder + "/" + script)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.main.__wrapped__(omegaconf.OmegaConf.create(settings))
"""


@dataclasses.dataclass(frozen=True)
class Family:
    """A family: its frames, and for JAX the script, its settings and the files that it writes."""

    title: str
    end: float  # time of the last frame
    channels: int = 1
    axes: int = 1
    resolution: int = 128
    frames: int = 41
    script: str = ""
    files: Sequence[str] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# Settings of PDEBench's configurations, but for sizes.
LINE = {"ini_time": 0.0, "xL": 0.0, "xR": 1.0, "show_steps": 50, "save": "./"}
SCALAR = {**LINE, "CFL": 0.4, "if_rand_param": False, "if_second_order": 1.0}
SQUARE = {"yL": 0.0, "yR": 1.0, "zL": 0.0, "zR": 1.0, "nz": 1, "if_rand_param": False}
GAS = {**LINE, **SQUARE, "CFL": 0.3, "if_second_order": 1.0, "bc": "periodic", "p_floor": 1e-4}
GAS |= {"gamma": 5 / 3}
THIN = {"eta": 1e-8, "zeta": 1e-8, "M0": 0.0, "init_mode_Multi": "1D_rand", "ny": 1}
THICK = {"eta": 0.01, "zeta": 0.01, "M0": 0.1, "k_tot": 4, "init_mode_Multi": "2D_rand"}
FLOWS = "CompressibleFluid/CFD_multi_Hydra.py"
FAMILIES = {
    **{
        f"advection_{beta:g}": Family(
            f"Advection, beta {beta:g}",
            2.0,
            script="AdvectionEq/advection_multi_solution_Hydra.py",
            files=("1D_Advection*",),
            settings={**SCALAR, "beta": beta},
        )
        for beta in (0.1, 1.0, 4.0)
    },
    **{
        f"burgers_{epsilon:g}": Family(
            f"Burgers, epsilon {epsilon:g}",
            2.0,
            script="BurgersEq/burgers_multi_solution_Hydra.py",
            files=("1D_Burgers*",),
            settings={**SCALAR, "epsilon": epsilon},
        )
        for epsilon in (0.001, 0.01, 0.1)
    },
    "reaction_diffusion": Family(
        "Reaction-diffusion",
        1.0,
        script="ReactionDiffusionEq/reaction_diffusion_multi_solution_Hydra.py",
        files=("ReacDiff*",),
        settings={**SCALAR, "nu": 0.5, "rho": 1.0},
    ),
    "diffusion_sorption": Family("Diffusion-sorption", 500.0),
    "compressible": Family(
        "Compressible flow",
        1.0,
        channels=3,
        script=FLOWS,
        files=("*_D.npy", "*_Vx.npy", "*_P.npy"),
        settings={**GAS, **THIN},
    ),
    "diffusion_reaction": Family("Diffusion-reaction, 2-D", 2.0, channels=2, axes=2, resolution=32),
    "shallow_water": Family("Shallow water, 2-D", 1.0, axes=2, resolution=64),
    "compressible_2d": Family(
        "Compressible flow, 2-D",
        1.0,
        channels=4,
        axes=2,
        resolution=32,
        frames=21,
        script=FLOWS,
        files=("*_D.npy", "*_Vx.npy", "*_Vy.npy", "*_P.npy"),
        settings={**GAS, **THICK},
    ),
}


def generate(
    output: Path | str = "pdebench_series.hdf5",
    n_samples: int = 96,
    resolution: int | None = None,
    family: str = "diffusion_reaction",
    seed: int = 0,
    python: str = "",
    force: bool = False,
) -> Path:
    """Run PDEBench's generator of a family of `FAMILIES`.

    JAX runs by the interpreter `python`, or that which CHONN_JAX names; a ValueError without one,
    if it fails, or for numbers out of range; a FileExistsError if the file exists and `force` is
    not set; a ModuleNotFoundError without PDEBench, an ImportError without PyClaw.
    """
    path = Path(output)
    check_integer(1, n_samples=n_samples)
    check_integer(0, seed=seed)
    check_choice("family", family, FAMILIES)
    found = FAMILIES[family]
    resolution = resolution or found.resolution
    check_integer(4, resolution=resolution)
    refuse_existing(path, force)
    if found.script:
        fields = _with_jax(found, n_samples, resolution, seed, python)
    else:
        fields = np.stack([_alone(family, resolution, seed + i) for i in range(n_samples)])
    settings = {"family": family, "n_samples": n_samples, "resolution": resolution}
    with create_hdf5(path, force) as file:
        origin.stamp(file, "pdebench_series", seed, settings)
        file["tensor"] = fields.astype("f4")
        file["t-coordinate"] = np.linspace(0, found.end, found.frames, dtype="f4")
    return path


def read(path: Path | str, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Series of samples, (N, T, C, \\*grid), float32; errors as
    `chonn_lab.problems.hdf5.read_rows`."""
    with open_hdf5(path) as file:
        tensor = dataset(file, "tensor")
        check_range(path, len(tensor), start, stop)
        return tensor[start:stop].astype(np.float32, copy=False)


def run_with_jax(
    script: str, settings: Mapping[str, Any], files: Sequence[str], python: str
) -> list[np.ndarray]:
    """The arrays that a generator of PDEBench in JAX writes, by patterns of their file names.

    `script` is its path in the folder of such generators; `python` names the interpreter, or
    CHONN_JAX. ValueError without one, or if it fails; ModuleNotFoundError without PDEBench.
    """
    python = python or os.environ.get("CHONN_JAX", "")
    if not python:
        raise ValueError(
            "python: expected an interpreter with jax and hydra-core, or CHONN_JAX, got none"
        )
    spec = importlib.util.find_spec("pdebench")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'pdebench'", name="pdebench")
    place = Path(spec.submodule_search_locations[0], "data_gen", "data_gen_NLE")
    with tempfile.TemporaryDirectory() as folder:
        clean = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [python, "-c", CALL, str(place), script, json.dumps(settings)],
            cwd=folder, env=clean, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise ValueError(f"{python}: PDEBench's generator failed: {last}")
        return [np.load(next(Path(folder).glob(pattern))) for pattern in files]


def _with_jax(
    family: Family, n_samples: int, resolution: int, seed: int, python: str
) -> np.ndarray:
    """Series (N, T, C, \\*grid) of a generator in JAX."""
    settings = {**family.settings, "numbers": n_samples, "init_key": seed}
    settings |= {"fin_time": family.end, "dt_save": family.end / (family.frames - 1)}
    settings |= dict.fromkeys(("nx", "ny")[: family.axes], resolution)
    part = "args" if family.script == FLOWS else "multi"
    shape = n_samples, family.frames, *[resolution] * family.axes
    found = run_with_jax(family.script, {part: settings}, family.files, python)
    return np.stack([array.reshape(shape) for array in found], 2)


def _alone(family: str, resolution: int, seed: int) -> np.ndarray:
    """A series (T, C, \\*grid) of a generator that runs in this process."""
    found = FAMILIES[family]
    if family != "shallow_water":
        series = simulator(family, resolution, seed).generate_sample()
        return np.moveaxis(series, -1, 1)
    from pdebench.data_gen.src.sim_radial_dam_break import RadialDamBreak2D

    radius = np.random.RandomState(seed).uniform(0.3, 0.7)
    scenario = RadialDamBreak2D(resolution, resolution, dam_radius=radius)
    scenario.run(found.end, found.frames - 1)
    return np.stack(scenario.save_state["h"])[:, None]


def simulator(family: str, resolution: int, seed: int = 0, end: float | None = None) -> Any:
    """PDEBench's simulator of diffusion_sorption or diffusion_reaction."""
    from pdebench.data_gen.src import sim_diff_react, sim_diff_sorp

    found = FAMILIES[family]
    times = {"t": end or found.end, "tdim": found.frames, "seed": seed}
    if family == "diffusion_sorption":
        return sim_diff_sorp.Simulator(xdim=resolution, **times)
    return sim_diff_react.Simulator(xdim=resolution, ydim=resolution, **times)


def advanced(family: str, frames: np.ndarray) -> np.ndarray:
    """The next frames of frames (B, C, \\*grid) of a family that `simulator` has: its equation by
    SciPy's default method, as the generator solves it."""
    found = FAMILIES[family]
    equation = simulator(family, frames.shape[-1], end=1e-6)
    equation.generate_sample()  # makes its matrices
    times = 0.0, found.end / (found.frames - 1)
    after = [solve_ivp(equation.rc_ode, times, frame.ravel()).y[:, -1] for frame in frames]
    return np.stack(after).reshape(frames.shape)
