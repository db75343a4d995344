"""PDEBench's families of time series, by PDEBench's own generators, small.

========== =====================================================================================
Equation   Learn earlier frames -> later ones of a ``family``: advection_B ``u_t + B u_x = 0``, B =
           0.1, 1, 4; burgers_E ``u_t + (u^2)_x = E / pi u_xx``, E = 0.001, 0.01, 0.1;
           reaction_diffusion ``u_t = 0.5 u_xx + u (1 - u)``; diffusion_sorption ``R(u) u_t = 5e-4
           u_xx``, R the retardation of Freundlich's isotherm; compressible, density, velocity and
           pressure of a gas, almost inviscid; diffusion_reaction, FitzHugh and Nagumo's equations;
           shallow_water, the depth of the radial dam break; compressible_2d, density, velocities
           and pressure at a Mach number of 0.1, viscosities 0.01; incompressible, velocities v and
           particles p, ``v_t + v . grad v = 0.32 laplace v - grad q + p f``, ``p_t + v . grad p =
           0``, div v = 0, f a field of each sample that frames do not show
Domain     R cells along each axis, values at centres: the unit interval or square, [-1, 1] for
           compressible and diffusion_reaction, [-2.5, 2.5] for shallow_water, [0, R] for
           incompressible
Boundary   periodic, but insulated for diffusion_reaction, outflow for shallow_water, u = 1 at the
           left wall of diffusion_sorption, and v = 0 for incompressible
Parameters R = 128 in 1-D and 32 in 2-D (shallow_water 64) unless given; 41 frames, of
           compressible_2d 21, at equal times from 0 to the published last one, but 2 and not 5 for
           diffusion_reaction. Published files have 1,000 to 10,000 samples of 1,024 cells in 1-D
           and 128 along an axis in 2-D, and most have 101 or 201 frames
Seeds      sample i has NumPy's ``seed + i``; those of JAX are drawn together from the key ``seed``,
           so other numbers of samples are other data
Generator  the installed ``pdebench`` package's, but for shallow_water, where
           `chonn_lab.problems.shallow_water` has the same numbers. diffusion_sorption and
           diffusion_reaction run in this process, the others by an interpreter that has JAX, Hydra
           and OmegaConf. Their waves fit the outermost centres, so that starts have a small jump.
           They document Burgers' flux as u^2 / 2; some series of E = 0.01 oscillate by cells.
           incompressible needs phiflow 2.1.4, NumPy 1.23, SciPy 1.12, h5py, imageio, python-dotenv
           in the place of JAX; it refuses its released settings, as its cells have length 1
Licence    the header of those in JAX allows noncommercial research use only, of them and of what is
           made by them. Nothing of them is in this package, which runs no test with them
Cost       seconds to two minutes for 96 samples, compressible five
Layout     ``tensor`` (N, T, C, \\*grid), ``t-coordinate`` (T,)
========== =====================================================================================
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml
from omegaconf import OmegaConf
from scipy.integrate import solve_ivp
from torch import Tensor

from chonn_lab.problems import origin, shallow_water
from chonn_lab.problems.hdf5 import create_hdf5, read_rows
from chonn_ops.checks import check_choice, check_integer, error
from chonn_ops.files import refuse_existing

# What the other interpreter runs, in an empty folder.
CALL = """
import glob, importlib.util, json, os, sys
import hydra, numpy, omegaconf
folder, script, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
hydra.utils.get_original_cwd = os.getcwd
sys.path[:0] = [folder, os.path.dirname(folder)]
import src
# The generator of incompressible flow imports this module, which does not exist, and never uses it.
sys.modules["pdebench.data_gen.src"], src.image_processor = src, None
if script.startswith("CompressibleFluid"):
    # One sample after another. Together, all take as many steps as the fastest one, and the cache
    # holds few of their fields, which are 5 x 5 cells wide on a line: 19 minutes were too short for
    # 96 gases, which take five like this. The numbers are the same bit for bit.
    import jax
    jax.pmap = lambda evolve, **_: lambda starts: [
        x[None] for x in jax.lax.map(evolve.__wrapped__, starts[0])
    ]
spec = importlib.util.spec_from_file_location("generator", folder + "/" + script)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.main.__wrapped__(omegaconf.OmegaConf.create(settings))
for name in glob.glob("*.h5"):
    import h5py
    for key, x in h5py.File(name).items():
        for c in range(x.shape[-1]):
            numpy.save(f"{key}_{c}", x[..., c])
"""
ENTRIES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
FAMILIES = {
    name: SimpleNamespace(**{**ENTRIES["defaults"], **entry})
    for name, entry in ENTRIES["families"].items()
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
    entry = FAMILIES[family]
    size: int = resolution or entry.resolution
    check_integer(4, resolution=size)
    refuse_existing(path, force)
    if entry.script:
        fields = _with_jax(entry, n_samples, size, seed, python)
    else:
        fields = np.stack([_alone(family, size, seed + i) for i in range(n_samples)])
    settings = {"family": family, "n_samples": n_samples, "resolution": size}
    with create_hdf5(path, force) as file:
        origin.stamp(file, "pdebench_series", seed, settings)
        file["tensor"] = fields.astype("f4")
        file["t-coordinate"] = np.linspace(0, entry.end, entry.frames, dtype="f4")
    return path


def read(path: Path | str, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Series of samples, (N, T, C, \\*grid), float32; see `read_rows`."""
    return read_rows(path, start, stop, tensor=None)[0]


def run_with_jax(
    script: str, settings: Mapping[str, Any], files: Sequence[str], python: str
) -> list[np.ndarray]:
    """The arrays that a generator of PDEBench in JAX writes, by patterns of their file names.

    `script` is its path in the folder of such generators; `python` names the interpreter, or
    CHONN_JAX. ValueError without one, or if it fails; ModuleNotFoundError without PDEBench.
    """
    python = python or os.environ.get("CHONN_JAX", "")
    if not python:
        raise error("python", "an interpreter with jax and hydra-core, or CHONN_JAX", "none")
    import pdebench

    place = Path(pdebench.__file__).with_name("data_gen") / "data_gen_NLE"
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


def _with_jax(entry: Any, n_samples: int, resolution: int, seed: int, python: str) -> np.ndarray:
    """Series (N, T, C, \\*grid) of a generator in JAX."""
    values = {"samples": n_samples, "seed": seed, "cells": resolution, "end": entry.end}
    values |= {"dt": entry.end / (entry.frames - 1), "settings": entry.settings}
    settings: Any = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
    shape = n_samples, entry.frames, *[resolution] * entry.axes
    arrays = run_with_jax(entry.script, settings["settings"], entry.files, python)
    return np.stack([array.reshape(shape) for array in arrays], 2)


def _alone(family: str, resolution: int, seed: int) -> np.ndarray:
    """A series (T, C, \\*grid) of a generator that runs in this process."""
    if family == "shallow_water":
        frames, radius = FAMILIES[family].frames, shallow_water.draw_radius(seed)
        return shallow_water.simulate(radius, resolution, frames - 1)[0][:, None]
    return np.moveaxis(simulator(family, resolution, seed).generate_sample(), -1, 1)


def simulator(family: str, resolution: int, seed: int = 0, **others: float) -> Any:
    """PDEBench's simulator of diffusion_sorption or diffusion_reaction; `others`, its options."""
    from pdebench.data_gen.src import sim_diff_react, sim_diff_sorp

    entry = FAMILIES[family]
    options = {"t": entry.end, "tdim": entry.frames, "xdim": resolution, "seed": seed, **others}
    if family == "diffusion_sorption":
        return sim_diff_sorp.Simulator(**options)
    return sim_diff_react.Simulator(ydim=resolution, **options)


def advanced(family: str, frames: Tensor) -> Tensor:
    """The next frames of frames (B, C, \\*grid) of a family that `simulator` has: its equation by
    SciPy's default method, as the generator solves it."""
    entry = FAMILIES[family]
    equation = simulator(family, frames.shape[-1], t=1e-6)
    equation.generate_sample()  # makes its matrices
    times = 0.0, entry.end / (entry.frames - 1)
    after = [solve_ivp(equation.rc_ode, times, f.ravel()).y[:, -1] for f in frames.numpy()]
    return torch.from_numpy(np.stack(after)).view_as(frames)
