"""``chonn data generate`` of FNO's Darcy flow, Darcy flow in three dimensions and Helmholtz."""

import argparse
import os
from typing import Any

from chonn_ops._cli_arguments import (
    add_count,
    add_medium,
    add_problem,
    add_resolution,
    add_seed,
    add_workers,
    positive,
)


def add_elliptic_problems(problems: Any) -> None:
    """Add the problems to the subparsers of ``chonn data generate``."""
    _add_fno_darcy(problems)
    _add_darcy3d(problems)
    _add_helmholtz(problems)


def _add_fno_darcy(problems: Any) -> None:
    parser = add_problem(
        problems,
        "fno_darcy",
        "the FNO paper's Darcy flow on 421 x 421, in its layout; resumes",
        _generate_fno_darcy,
    )
    add_count(parser, "--n", 1000, "samples to train, smooth1")
    add_count(parser, "--n-test", 200, "samples to test, smooth2")
    add_resolution(parser, 3, 421, "nodes")
    add_seed(parser)
    add_workers(parser)
    parser.add_argument("--output", metavar="FOLDER", default=".", help="folder of the two files")


def _add_darcy3d(problems: Any) -> None:
    parser = add_problem(
        problems, "darcy3d", "Darcy flow in three dimensions; resumes", _generate_darcy3d
    )
    add_count(parser, "--n", 1000, "samples")
    add_resolution(parser, 2, 32)
    add_medium(parser)
    parser.add_argument("--beta", type=positive, default=1.0, help="forcing")
    add_seed(parser)
    add_workers(parser)
    _add_named_output(parser, "3D_DarcyFlow_<COEFFICIENT>_contrast<C>_r<R>.hdf5")


def _add_helmholtz(problems: Any) -> None:
    parser = add_problem(
        problems,
        "helmholtz",
        "Helmholtz with two wave numbers, indefinite; resumes",
        _generate_helmholtz,
    )
    add_count(parser, "--n", 1000, "samples")
    add_resolution(parser, 2, 64)
    parser.add_argument(
        "--wavenumber", type=positive, default=12.0, metavar="K", help="the lower one"
    )
    parser.add_argument("--ratio", type=positive, default=1.5, help="of the higher to the lower")
    add_seed(parser)
    add_workers(parser)
    _add_named_output(parser, "2D_Helmholtz_k<K>_ratio<RATIO>_r<R>.hdf5")


def _add_named_output(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help=f"HDF5 file (default: {default})",
    )


def _generate_fno_darcy(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import fno_darcy

    counts = (arguments.n, arguments.n_test)
    there = [
        not arguments.force
        and os.path.exists(
            os.path.join(arguments.output, fno_darcy.file_name(split, count, arguments.resolution))
        )
        for split, count in zip(fno_darcy.SPLITS, counts, strict=True)
    ]
    paths = fno_darcy.generate(
        arguments.output,
        n_train=arguments.n,
        n_test=arguments.n_test,
        resolution=arguments.resolution,
        seed=arguments.seed,
        workers=arguments.workers,
        force=arguments.force,
    )
    for path, count, was_there in zip(paths, counts, there, strict=True):
        print(f"{path} is there already" if was_there else f"wrote {path}: {count} samples")


def _generate_darcy3d(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import darcy3d

    path = darcy3d.generate(
        getattr(arguments, "output", None),
        n_samples=arguments.n,
        resolution=arguments.resolution,
        coefficient=arguments.coefficient,
        contrast=arguments.contrast,
        beta=arguments.beta,
        seed=arguments.seed,
        workers=arguments.workers,
        force=arguments.force,
    )
    print(f"wrote {path}: {arguments.n} samples")


def _generate_helmholtz(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import helmholtz

    path = helmholtz.generate(
        getattr(arguments, "output", None),
        n_samples=arguments.n,
        resolution=arguments.resolution,
        wavenumber=arguments.wavenumber,
        ratio=arguments.ratio,
        seed=arguments.seed,
        workers=arguments.workers,
        force=arguments.force,
    )
    print(f"wrote {path}: {arguments.n} samples")
