"""Tiny files in PDEBench's layouts, and its real runner in a subprocess."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import h5py
import numpy as np
import pytest

from chonn_plugins.pdebench.job import Job, resolve

REPO = Path(__file__).parents[2]
SAMPLES = 20
POINTS = 16
# Every setting that makes a job small; PDEBench's configs supply the rest.
SMALL = {
    # 18 samples to train on and 2 to validate with: two steps an epoch.
    "batch_size": 16,
    "epochs": 1,
    "num_workers": 0,
    "reduced_resolution": 1,
    "reduced_resolution_t": 1,
    "modes": 4,
    "width": 6,
    "unroll_step": 1,
    "training_type": "autoregressive",
}
# What PDEBench's configs say of a job, for tests that make one without them.
BASE = {"initial_step": 1, "t_train": 2, "reduced_batch": 1}
BASE |= {"single_file": True, "if_training": True, "continue_training": False}
BASE |= {"ar_mode": False, "pushforward": False}
# Config, file, and what differs from it: one problem for each layout.
PROBLEMS = {
    "1d": ("Adv", "1D_Advection.hdf5", {"initial_step": 2, "t_train": 3}),
    "darcy": ("Darcy", "2D_Darcy.hdf5", {}),
    "3d": ("3DCFD", "3D_CFD.hdf5", {"initial_step": 1, "t_train": 2, "ar_mode": True}),
    "groups": (
        "rdb",
        "2D_rdb_NA_NA",
        {"initial_step": 2, "t_train": 3, "single_file": False, "if_training": True},
    ),
}


def smooth(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Positive fields of order one."""
    return (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)


def write_data(folder: Path) -> None:
    """One file for each of PDEBench's layouts."""
    rng = np.random.default_rng(0)
    centres = (np.arange(POINTS, dtype=np.float32) + 0.5) / POINTS
    with h5py.File(folder / "1D_Advection.hdf5", "w") as file:
        file["tensor"] = smooth(rng, SAMPLES, 5, 2 * POINTS)
        file["x-coordinate"] = np.linspace(0, 1, 2 * POINTS, dtype=np.float32)
        file["t-coordinate"] = np.linspace(0, 1, 6, dtype=np.float32)
    with h5py.File(folder / "2D_Darcy.hdf5", "w") as file:
        file["tensor"] = smooth(rng, SAMPLES, 1, POINTS, POINTS)
        file["nu"] = smooth(rng, SAMPLES, POINTS, POINTS)
        file["x-coordinate"] = file["y-coordinate"] = centres
    with h5py.File(folder / "3D_CFD.hdf5", "w") as file:
        for name in ("density", "pressure", "Vx", "Vy", "Vz"):
            file[name] = smooth(rng, SAMPLES, 3, POINTS, POINTS, POINTS)
        for axis in "xyz":
            file[f"{axis}-coordinate"] = centres
    with h5py.File(folder / "2D_rdb_NA_NA.h5", "w") as file:
        for sample in range(SAMPLES):
            group = file.create_group(f"{sample:04d}")
            group["data"] = smooth(rng, 5, POINTS, POINTS, 1)
            group["grid/x"] = group["grid/y"] = centres
            group["grid/t"] = np.linspace(0, 1, 5, dtype=np.float32)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture
def make_job(data: Path) -> Callable[..., Job]:
    """``make_job("darcy", family="unet", batch_size=3)``: a job of one of PDEBench's own models."""

    def make(problem: str, family: str = "fno", **args: object) -> Job:
        _, filename, settings = PROBLEMS[problem]
        channels = dict.fromkeys(
            ("num_channels", "in_channels", "out_channels"), 5 if problem == "3d" else 1
        )
        given = {**BASE, "data_path": data, "filename": filename, **SMALL, **channels}
        given.update({"model_name": {"fno": "FNO", "unet": "Unet"}[family], **settings, **args})
        return resolve(given)

    return make


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What to put on the path so that Hydra and the entry points see this tree."""
    tree = [str(REPO), str(REPO / "plugins")]
    names = {point.name for point in entry_points(group="pdebench.models")}
    if "chonn_network" in names:
        return os.pathsep.join(tree)
    folder = tmp_path_factory.mktemp("metadata")
    models = [
        f"chonn_{m} = chonn_plugins.pdebench.models:chonn_{m}" for m in ("unet", "fno", "network")
    ]
    write_dist_info(folder, "chonn-ops", models)
    return os.pathsep.join([str(folder), *tree])


def write_dist_info(folder: Path, name: str, models: list[str]) -> None:
    """Register models as an installed distribution does."""
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[pdebench.models]", *models, ""]))


@pytest.fixture(scope="session")
def environment(installed: str) -> Callable[..., dict[str, str]]:
    def make(*paths: str | Path, **variables: str) -> dict[str, str]:
        path = os.pathsep.join(str(p) for p in (*paths, installed) if p)
        env = {k: v for k, v in os.environ.items() if k != "CHONN_PDEBENCH"}
        env.update(OMP_NUM_THREADS="2", PYTHONPATH=path, MPLBACKEND="agg", **variables)
        return env

    return make


@pytest.fixture(scope="session")
def pdebench(data: Path, environment: Callable[..., dict[str, str]]) -> Callable[..., str]:
    """``pdebench(cwd, "darcy", model_name="chonn_unet", ...)`` runs PDEBench's own runner.

    Returns what it printed; ``fails=True`` expects a non-zero exit code, zero otherwise.
    """

    theirs = ("-m", "pdebench.models.train_models_forward")

    def run(cwd: Path, problem: str, *flags, fails=False, env=None, program=theirs, **args) -> str:
        config, filename, settings = PROBLEMS[problem]
        given = {"data_path": data, "filename": filename, **SMALL, **settings, **args}
        overrides = [f"++args.{key.replace('__', '.')}={value}" for key, value in given.items()]
        command = [sys.executable, *program, *flags, f"+args=config_{config}.yaml", *overrides]
        done = subprocess.run(
            command, cwd=cwd, env=env or environment(), capture_output=True, text=True, timeout=300
        )
        printed = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, printed
        return printed

    return run
