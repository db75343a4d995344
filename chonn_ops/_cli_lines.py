"""``chonn data generate`` of PDEBench's problems on a line."""

import argparse
from typing import Any

from chonn_ops._cli_arguments import (
    add_count,
    add_problem,
    add_resolution,
    add_seed,
    add_workers,
    integer,
    positive,
)


def add_line_problems(problems: Any) -> None:
    """Add the problems to the subparsers of ``chonn data generate``."""
    _add(problems, "advection", "1-D advection, exact", "--beta", 4.0, "velocity")
    _add(problems, "burgers", "1-D Burgers by Cole-Hopf", "--nu", 1.0, "pi times diffusivity")


def _add(
    problems: Any, name: str, summary: str, option: str, default: float, parameter: str
) -> None:
    summary = f"{summary}, in PDEBench's layout; resumes"
    parser = add_problem(problems, name, summary, _generate)
    add_count(parser, "--n", 10_000, "samples")
    add_resolution(parser, 16, 1024)
    parser.add_argument(option, type=positive, default=default, help=f"{parameter}, PDEBench's")
    parser.add_argument(
        "--frames", type=integer(2), default=201, metavar="T", help="from t = 0 to 2"
    )
    add_seed(parser)
    add_workers(parser)
    official = {"advection": "1D_Advection_Sols_beta<BETA>", "burgers": "1D_Burgers_Sols_Nu<NU>"}
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help=f"HDF5 file (default: {official[name]}.hdf5)",
    )
    parser.set_defaults(problem=name, parameter=option.lstrip("-"))


def _generate(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import advection, burgers

    generate: Any = {"advection": advection, "burgers": burgers}[arguments.problem].generate
    path = generate(
        getattr(arguments, "output", None),
        n_samples=arguments.n,
        resolution=arguments.resolution,
        n_frames=arguments.frames,
        seed=arguments.seed,
        workers=arguments.workers,
        force=arguments.force,
        **{arguments.parameter: getattr(arguments, arguments.parameter)},
    )
    print(f"wrote {path}: {arguments.n} samples")
