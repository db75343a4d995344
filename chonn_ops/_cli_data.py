"""The ``chonn data`` commands."""

import argparse
import os
from typing import Any

from chonn_ops._cli_arguments import (
    add_count,
    add_domain,
    add_force,
    add_medium,
    add_output,
    add_problem,
    add_resolution,
    add_seed,
    add_workers,
    distance,
    integer,
    positive,
)
from chonn_ops._cli_elliptic import add_elliptic_problems
from chonn_ops._cli_lines import add_line_problems


def add_data_commands(commands: Any) -> None:
    """Add ``data`` to the subparsers of ``chonn``."""
    data = commands.add_parser("data", help="generate, fetch, convert or identify benchmark data")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    generate = actions.add_parser("generate", help="compute a data set")
    problems = generate.add_subparsers(metavar="PROBLEM", required=True)
    for add in (_add_order1d, _add_darcy, _add_poisson, _add_shallow_water, _add_navier_stokes):
        add(problems)
    add_elliptic_problems(problems)
    add_line_problems(problems)
    _add_fetch(actions.add_parser("fetch", help="download an official data set"))
    _add_convert(actions.add_parser("convert", help="neuraloperator Darcy .pt to PDEBench HDF5"))
    info = actions.add_parser("info", help="where data files come from: generated or official")
    info.add_argument("files", metavar="FILE", nargs="+", help="data file of any kind")
    info.set_defaults(command=_info)


def _add_order1d(problems: Any) -> None:
    parser = add_problem(problems, "order1d", "order-defined 1-D benchmark", _generate_order1d)
    add_count(parser, "--train", 12_000, "signals to train")
    add_count(parser, "--validation", 2_000, "signals to validate")
    add_count(parser, "--test", 2_000, "signals to test")
    add_seed(parser, 42, "seed of the first split; the next two follow")
    add_output(parser, "order1d.hdf5")


def _add_darcy(problems: Any) -> None:
    parser = add_problem(problems, "darcy", "Darcy flow in PDEBench's layout", _generate_darcy)
    add_count(parser, "--n", 1000, "samples")
    add_resolution(parser, 2, 128)
    parser.add_argument("--beta", type=positive, default=1.0, help="forcing")
    add_medium(parser)
    add_domain(parser)
    parser.add_argument(
        "--margin",
        type=distance,
        metavar="M",
        default=argparse.SUPPRESS,
        help="distance outside the domain at which u = 0 (default: half a cell, as PDEBench); "
        "that of a coarser grid asks its problem on a finer one",
    )
    add_seed(parser)
    add_workers(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="HDF5 file (default: 2D_DarcyFlow_beta<BETA>_Train[_<DOMAIN>][_<COEFFICIENT>]"
        "[_contrast<C>].hdf5)",
    )


def _add_poisson(problems: Any) -> None:
    parser = add_problem(problems, "poisson", "Poisson in CNO's layout", _generate_poisson)
    add_count(parser, "--n", 1408, "samples of the file IN: 1024 + 128 + 256")
    add_count(parser, "--n-out", 256, "samples of the file OUT")
    parser.add_argument(
        "--resolution", type=integer(3), default=64, metavar="R", help="nodes along an axis"
    )
    add_domain(parser)
    add_seed(parser)
    parser.add_argument("--output", metavar="FOLDER", default=".", help="folder of the two files")


def _add_shallow_water(problems: Any) -> None:
    parser = add_problem(
        problems,
        "shallow_water",
        "PDEBench's radial dam break; needs PyClaw",
        _generate_shallow_water,
    )
    add_count(parser, "--n", 1000, "samples")
    add_resolution(parser, 2, 128)
    add_seed(parser, 0, "seed of the first sample; with 0 the samples are PDEBench's")
    add_workers(parser)
    add_output(parser, "2D_rdb_NA_NA.h5")


def _add_navier_stokes(problems: Any) -> None:
    parser = add_problem(
        problems, "navier_stokes", "vorticity, in FNO's layout", _generate_navier_stokes
    )
    add_count(parser, "--n", 1200, "samples")
    add_count(parser, "--frames", 50, "frames, one time unit apart")
    parser.add_argument(
        "--resolution", type=integer(4), default=64, metavar="R", help="points along an axis"
    )
    parser.add_argument(
        "--solver-resolution", type=integer(4), default=256, metavar="R", help="of the solver"
    )
    parser.add_argument("--step", type=positive, default=2.5e-3, help="longest time step")
    parser.add_argument(
        "--field", choices=["paper", "fno-code"], default="paper", help="law of the first frame"
    )
    add_seed(parser)
    add_count(parser, "--batch-size", 20, "samples solved together")
    parser.add_argument(
        "--device", metavar="D", default=argparse.SUPPRESS, help="default: cuda if there is one"
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="MATLAB 7.3 (HDF5) file (default: ns_V1e-3_N<N>_T<FRAMES>.mat)",
    )


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    problems = parser.add_subparsers(metavar="PROBLEM", required=True)
    for name, text, command in (
        ("darcy", "PDEBench's 2D_DarcyFlow_beta1.0_Train.hdf5 (1.3 GB)", _fetch_darcy),
        ("shallow_water", "PDEBench's 2D_rdb_NA_NA.h5 (6.6 GB)", _fetch_shallow_water),
    ):
        problem = problems.add_parser(name, help=f"{text}; resumes")
        problem.add_argument("--output", metavar="FILE", help="default: its official name")
        add_force(problem)
        problem.set_defaults(command=command)
    poisson = problems.add_parser(
        "poisson", help="CNO's PoissonData_64x64_{IN,OUT}.h5, out of 2.4 GB; resumes"
    )
    poisson.add_argument("--output", metavar="FOLDER", default=".", help="default: this one")
    add_force(poisson)
    poisson.set_defaults(command=_fetch_poisson)


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN.pt", help="neuraloperator Darcy file")
    parser.add_argument("output", metavar="OUT.hdf5", help="file to write")
    add_force(parser)
    parser.set_defaults(command=_convert)


def _generate_order1d(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import order1d

    sizes = {split: getattr(arguments, split) for split in order1d.SIZES}
    order1d.generate(arguments.output, sizes, seed=arguments.seed, force=arguments.force)
    print(f"wrote {arguments.output}: {sum(sizes.values())} samples")


def _generate_darcy(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import darcy

    output = getattr(
        arguments,
        "output",
        darcy.default_name(
            arguments.beta, arguments.domain, arguments.coefficient, arguments.contrast
        ),
    )
    darcy.generate(
        output,
        n_samples=arguments.n,
        resolution=arguments.resolution,
        beta=arguments.beta,
        seed=arguments.seed,
        workers=arguments.workers,
        force=arguments.force,
        domain=arguments.domain,
        margin=getattr(arguments, "margin", None),
        coefficient=arguments.coefficient,
        contrast=arguments.contrast,
    )
    print(f"wrote {output}: {arguments.n} samples")


def _generate_poisson(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import poisson

    found = [
        os.path.exists(
            os.path.join(
                arguments.output,
                poisson.file_name(kind, arguments.resolution, arguments.domain),
            )
        )
        and not arguments.force
        for kind in ("IN", "OUT")
    ]
    paths = poisson.generate(
        arguments.output,
        n_in=arguments.n,
        n_out=arguments.n_out,
        resolution=arguments.resolution,
        seed=arguments.seed,
        force=arguments.force,
        domain=arguments.domain,
    )
    for path, count, there in zip(paths, (arguments.n, arguments.n_out), found, strict=True):
        print(f"{path} is there already" if there else f"wrote {path}: {count} samples")


def _generate_shallow_water(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import shallow_water

    shallow_water.generate(
        arguments.output,
        n_samples=arguments.n,
        resolution=arguments.resolution,
        seed=arguments.seed,
        workers=arguments.workers,
        force=arguments.force,
    )
    print(f"wrote {arguments.output}: {arguments.n} samples")


def _generate_navier_stokes(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import navier_stokes

    path = navier_stokes.generate(
        getattr(arguments, "output", None),
        n_samples=arguments.n,
        n_frames=arguments.frames,
        resolution=arguments.resolution,
        solver_resolution=arguments.solver_resolution,
        step=arguments.step,
        field=arguments.field,
        seed=arguments.seed,
        batch_size=arguments.batch_size,
        device=getattr(arguments, "device", None),
        force=arguments.force,
    )
    print(f"wrote {path}: {arguments.n} samples")


def _fetch_darcy(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import darcy

    output = arguments.output or darcy.OFFICIAL_NAME
    _report_fetched(output, darcy.fetch(output, force=arguments.force))


def _fetch_shallow_water(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import shallow_water

    output = arguments.output or shallow_water.OFFICIAL_NAME
    _report_fetched(output, shallow_water.fetch(output, force=arguments.force))


def _report_fetched(output: str, downloaded: bool) -> None:
    if downloaded:
        print(f"wrote {output}: checksum verified")
    else:
        print(f"{output} is there already: checksum verified")


def _fetch_poisson(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import poisson

    names = " and ".join(
        os.path.join(arguments.output, poisson.file_name(kind)) for kind in ("IN", "OUT")
    )
    if poisson.fetch(arguments.output, force=arguments.force):
        print(f"wrote {names}: archive verified against the record's checksum")
    else:
        print(f"{names} are there already: not checked, no checksum of them is known")


def _convert(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems.convert import convert

    n_samples = convert(arguments.source, arguments.output, force=arguments.force)
    print(f"wrote {arguments.output}: {n_samples} samples")


def _info(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import origin

    for path in arguments.files:
        print(origin.identify(path))
