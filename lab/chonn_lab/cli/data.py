"""The ``chonn-lab data`` commands."""

import argparse
import importlib
import os
from pathlib import Path
from typing import Any

from chonn_lab.problems.domains import DOMAINS, SQUARE
from chonn_lab.problems.random_fields import COEFFICIENTS, TWO_PHASE
from chonn_lab.problems.workers import usable_cores
from chonn_ops.cli.arguments import add_force, distance, integer, positive


def add_data_commands(commands: Any) -> None:
    """Add ``data`` to the subparsers of ``chonn``."""
    data = commands.add_parser("data", help="generate, fetch or identify benchmark data")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    _add_generate(actions.add_parser("generate", help="compute a data set"))
    _add_fetch(actions.add_parser("fetch", help="download an official data set"))
    info = actions.add_parser("info", help="where data files come from: generated or official")
    info.add_argument("files", metavar="FILE", nargs="+", help="data file of any kind")
    info.set_defaults(command=_info)


class _Problem:
    """Parser of a problem; an option's destination is the parameter of `generate`.

    Parameters
    ----------
    problems
        Subparsers of ``generate``.
    name : str
        Module of `chonn_lab.problems`.
    summary : str
        What it generates.
    counts : str
        Parameters that count the samples of the files it writes, one after the other.
    """

    def __init__(self, problems: Any, name: str, summary: str, *counts: str) -> None:
        self._parser = problems.add_parser(
            name, help=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        self.add = self._parser.add_argument
        self._parser.set_defaults(command=_generate, problem=name, counts=counts or ("n_samples",))
        add_force(self._parser)

    def count(self, option: str, default: int, text: str, parameter: "str | None" = None) -> None:
        self.add(option, type=integer(1), default=default, metavar="N", help=text, dest=parameter)

    def samples(self, default: int) -> None:
        self.count("--n", default, "samples", "n_samples")

    def resolution(self, least: int, default: int, points: str = "cells") -> None:
        self.add(
            "--resolution",
            type=integer(least),
            default=default,
            metavar="R",
            help=f"{points} along an axis",
        )

    def medium(self) -> None:
        self.add("--coefficient", choices=COEFFICIENTS, default=TWO_PHASE, help="kind of medium")
        self.add(
            "--contrast",
            type=positive,
            default=10.0,
            metavar="C",
            help="of the phases; of the values two standard deviations above and below the median",
        )

    def domain(self) -> None:
        self.add(
            "--domain", choices=DOMAINS, default=SQUARE, help="part of the unit square that exists"
        )

    def seed(self, default: int = 0, text: str = "random seed") -> None:
        self.add("--seed", type=integer(0), default=default, help=text)

    def workers(self) -> None:
        self.add(
            "--workers",
            type=integer(1),
            default=usable_cores(),
            metavar="W",
            help="processes; the data do not depend on it",
        )

    def output(self, text: str = "HDF5 file", default: str = argparse.SUPPRESS) -> None:
        """By default the problem's own name of the file."""
        self.add("--output", metavar="FILE", default=default, help=text)

    def folder(self) -> None:
        self.add(
            "--output", metavar="FOLDER", default=".", help="folder of the two files", dest="folder"
        )


def _add_generate(parser: argparse.ArgumentParser) -> None:
    problems = parser.add_subparsers(metavar="PROBLEM", required=True)

    order1d = _Problem(problems, "order1d", "order-defined 1-D benchmark", "sizes")
    order1d.count("--train", 12_000, "signals to train")
    order1d.count("--validation", 2_000, "signals to validate")
    order1d.count("--test", 2_000, "signals to test")
    order1d.seed(42, "seed of the first split; the next two follow")
    order1d.output(default="order1d.hdf5")

    darcy = _Problem(problems, "darcy", "Darcy flow in PDEBench's layout")
    darcy.samples(1000)
    darcy.resolution(2, 128)
    darcy.add("--beta", type=positive, default=1.0, help="forcing")
    darcy.medium()
    darcy.domain()
    darcy.add(
        "--margin",
        type=distance,
        metavar="M",
        default=argparse.SUPPRESS,
        help="distance outside the domain at which u = 0 (default: half a cell, as PDEBench); "
        "that of a coarser grid asks its problem on a finer one",
    )
    darcy.seed()
    darcy.workers()
    darcy.output(
        "HDF5 file (default: 2D_DarcyFlow_beta<BETA>_Train[_<DOMAIN>][_<COEFFICIENT>]"
        "[_contrast<C>].hdf5)"
    )

    poisson = _Problem(problems, "poisson", "Poisson in CNO's layout", "n_in", "n_out")
    poisson.count("--n", 1408, "samples of the file IN: 1024 + 128 + 256", "n_in")
    poisson.count("--n-out", 256, "samples of the file OUT")
    poisson.resolution(3, 64, "nodes")
    poisson.domain()
    poisson.seed()
    poisson.folder()

    shallow_water = _Problem(problems, "shallow_water", "PDEBench's radial dam break; needs PyClaw")
    shallow_water.samples(1000)
    shallow_water.resolution(2, 128)
    shallow_water.seed(0, "seed of the first sample; with 0 the samples are PDEBench's")
    shallow_water.workers()
    shallow_water.output(default="2D_rdb_NA_NA.h5")

    navier_stokes = _Problem(problems, "navier_stokes", "vorticity, in FNO's layout")
    navier_stokes.samples(1200)
    navier_stokes.count("--frames", 50, "frames, one time unit apart", "n_frames")
    navier_stokes.resolution(4, 64, "points")
    navier_stokes.add(
        "--solver-resolution", type=integer(4), default=256, metavar="R", help="of the solver"
    )
    navier_stokes.add("--step", type=positive, default=2.5e-3, help="longest time step")
    navier_stokes.add(
        "--field", choices=["paper", "fno-code"], default="paper", help="law of the first frame"
    )
    navier_stokes.seed()
    navier_stokes.count("--batch-size", 20, "samples solved together")
    navier_stokes.add(
        "--device", metavar="D", default=argparse.SUPPRESS, help="default: cuda if there is one"
    )
    navier_stokes.output("MATLAB 7.3 (HDF5) file (default: ns_V1e-3_N<N>_T<FRAMES>.mat)")

    fno_darcy = _Problem(
        problems,
        "fno_darcy",
        "the FNO paper's Darcy flow on 421 x 421, in its layout; resumes",
        "n_train",
        "n_test",
    )
    fno_darcy.count("--n", 1000, "samples to train, smooth1", "n_train")
    fno_darcy.count("--n-test", 200, "samples to test, smooth2")
    fno_darcy.resolution(3, 421, "nodes")
    fno_darcy.seed()
    fno_darcy.workers()
    fno_darcy.folder()

    darcy3d = _Problem(problems, "darcy3d", "Darcy flow in three dimensions; resumes")
    darcy3d.samples(1000)
    darcy3d.resolution(2, 32)
    darcy3d.medium()
    darcy3d.add("--beta", type=positive, default=1.0, help="forcing")
    darcy3d.seed()
    darcy3d.workers()
    darcy3d.output("HDF5 file (default: 3D_DarcyFlow_<COEFFICIENT>_contrast<C>_r<R>.hdf5)")

    helmholtz = _Problem(
        problems, "helmholtz", "Helmholtz with two wave numbers, indefinite; resumes"
    )
    helmholtz.samples(1000)
    helmholtz.resolution(2, 64)
    helmholtz.add("--wavenumber", type=positive, default=12.0, metavar="K", help="the lower one")
    helmholtz.add("--ratio", type=positive, default=1.5, help="of the higher to the lower")
    helmholtz.seed()
    helmholtz.workers()
    helmholtz.output("HDF5 file (default: 2D_Helmholtz_k<K>_ratio<RATIO>_r<R>.hdf5)")

    open_space = _Problem(
        problems, "helmholtz_open", "waves of a point source in an open medium; resumes"
    )
    open_space.samples(1000)
    open_space.resolution(2, 64)
    open_space.add(
        "--wavenumber", type=positive, default=20.0, metavar="K", help="of the median medium"
    )
    open_space.add(
        "--contrast",
        type=positive,
        default=2.25,
        metavar="C",
        help="of the highest wave number to the lowest",
    )
    open_space.add("--first", type=integer(0), default=0, metavar="I", help="first sample")
    open_space.seed()
    open_space.workers()
    open_space.output("HDF5 file (default: 2D_HelmholtzOpen_k<K>_contrast<C>_r<R>.hdf5)")

    for name, summary, option, default, parameter, named in (
        ("advection", "1-D advection, exact", "--beta", 4.0, "velocity", "beta<BETA>"),
        ("burgers", "1-D Burgers by Cole-Hopf", "--nu", 1.0, "pi times diffusivity", "Nu<NU>"),
    ):
        line = _Problem(problems, name, f"{summary}, in PDEBench's layout; resumes")
        line.samples(10_000)
        line.resolution(16, 1024)
        line.add(option, type=positive, default=default, help=f"{parameter}, PDEBench's")
        line.add(
            "--frames",
            type=integer(2),
            default=201,
            metavar="T",
            help="from t = 0 to 2",
            dest="n_frames",
        )
        line.seed()
        line.workers()
        line.output(f"HDF5 file (default: 1D_{name.capitalize()}_Sols_{named}.hdf5)")


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    problems = parser.add_subparsers(metavar="PROBLEM", required=True)
    for name, text in (
        ("darcy", "PDEBench's 2D_DarcyFlow_beta1.0_Train.hdf5 (1.3 GB)"),
        ("shallow_water", "PDEBench's 2D_rdb_NA_NA.h5 (6.6 GB)"),
    ):
        problem = problems.add_parser(name, help=f"{text}; resumes")
        problem.add_argument("--output", metavar="FILE", help="default: its official name")
        add_force(problem)
        problem.set_defaults(command=_fetch, problem=name)
    poisson = problems.add_parser(
        "poisson", help="CNO's PoissonData_64x64_{IN,OUT}.h5, out of 2.4 GB; resumes"
    )
    poisson.add_argument("--output", metavar="FOLDER", default=".", help="default: this one")
    add_force(poisson)
    poisson.set_defaults(command=_fetch_poisson)


def _generate(arguments: argparse.Namespace) -> None:
    options = vars(arguments).copy()
    del options["command"]
    problem = _problem(options.pop("problem"))
    counted = options.pop("counts")
    if "sizes" in counted:
        options["sizes"] = {split: options.pop(split) for split in problem.SIZES}
    # One of the two files of a problem may exist after an interrupted call.
    there = set()
    if "folder" in options and not arguments.force:
        there = set(Path(options["folder"]).glob("*"))
    found = problem.generate(**options)
    paths = found if isinstance(found, tuple) else (found,)
    for path, name in zip(paths, counted, strict=True):
        count = sum(options[name].values()) if name == "sizes" else options[name]
        print(f"{path} is there already" if path in there else f"wrote {path}: {count} samples")


def _problem(name: str) -> Any:
    return importlib.import_module(f"chonn_lab.problems.{name}")


def _fetch(arguments: argparse.Namespace) -> None:
    problem = _problem(arguments.problem)
    output = arguments.output or problem.OFFICIAL_NAME
    downloaded = problem.fetch(output, force=arguments.force)
    done = f"wrote {output}" if downloaded else f"{output} is there already"
    print(f"{done}: checksum verified")


def _fetch_poisson(arguments: argparse.Namespace) -> None:
    from chonn_lab.problems import poisson

    names = " and ".join(
        os.path.join(arguments.output, poisson.file_name(kind)) for kind in ("IN", "OUT")
    )
    if poisson.fetch(arguments.output, force=arguments.force):
        print(f"wrote {names}: archive verified against the record's checksum")
    else:
        print(f"{names} are there already: not checked, no checksum of them is known")


def _info(arguments: argparse.Namespace) -> None:
    from chonn_lab.problems import origin

    for path in arguments.files:
        print(origin.identify(path))
