"""The ``chonn data`` commands."""

import argparse
import math
import os
from collections.abc import Callable
from typing import Any

from chonn_ops.problems._workers import usable_cores
from chonn_ops.problems.domains import DOMAINS, SQUARE


def add_data_commands(commands: Any) -> None:
    """Add ``data`` to the subparsers of ``chonn``."""
    data = commands.add_parser("data", help="generate, fetch, convert or identify benchmark data")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    generate = actions.add_parser("generate", help="compute a data set")
    problems = generate.add_subparsers(metavar="PROBLEM", required=True)
    for add in (_add_order1d, _add_darcy, _add_poisson, _add_shallow_water, _add_navier_stokes):
        add(problems)
    _add_fetch(actions.add_parser("fetch", help="download an official data set"))
    _add_convert(actions.add_parser("convert", help="neuraloperator Darcy .pt to PDEBench HDF5"))
    info = actions.add_parser("info", help="where data files come from: generated or official")
    info.add_argument("files", metavar="FILE", nargs="+", help="data file of any kind")
    info.set_defaults(command=_info)


def integer(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    # argparse names the type in its message about text that is no number.
    parse.__name__ = "integer"
    return parse


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be positive and finite, got {text}")
    return value


def _distance(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be at least 0 and finite, got {text}")
    return value


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace an existing output file")


def _add_problem(
    problems: Any, name: str, summary: str, command: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    parser = problems.add_parser(
        name, help=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.set_defaults(command=command)
    _add_force(parser)
    return parser


def _add_seed(parser: argparse.ArgumentParser, default: int = 0, text: str = "random seed") -> None:
    parser.add_argument("--seed", type=integer(0), default=default, help=text)


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=integer(1),
        default=usable_cores(),
        metavar="W",
        help="processes; the data do not depend on it",
    )


def _add_count(parser: argparse.ArgumentParser, name: str, default: int, text: str) -> None:
    parser.add_argument(name, type=integer(1), default=default, metavar="N", help=text)


def _add_domain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--domain", choices=DOMAINS, default=SQUARE, help="part of the unit square that exists"
    )


def _add_output(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--output", metavar="FILE", default=default, help="HDF5 file")


def _add_order1d(problems: Any) -> None:
    parser = _add_problem(problems, "order1d", "order-defined 1-D benchmark", _generate_order1d)
    _add_count(parser, "--train", 12_000, "signals to train")
    _add_count(parser, "--validation", 2_000, "signals to validate")
    _add_count(parser, "--test", 2_000, "signals to test")
    _add_seed(parser, 42, "seed of the first split; the next two follow")
    _add_output(parser, "order1d.hdf5")


def _add_darcy(problems: Any) -> None:
    parser = _add_problem(problems, "darcy", "Darcy flow in PDEBench's layout", _generate_darcy)
    _add_count(parser, "--n", 1000, "samples")
    parser.add_argument(
        "--resolution", type=integer(2), default=128, metavar="R", help="cells along an axis"
    )
    parser.add_argument("--beta", type=_positive, default=1.0, help="forcing")
    _add_domain(parser)
    parser.add_argument(
        "--margin",
        type=_distance,
        metavar="M",
        default=argparse.SUPPRESS,
        help="distance outside the domain at which u = 0 (default: half a cell, as PDEBench); "
        "that of a coarser grid asks its problem on a finer one",
    )
    _add_seed(parser)
    _add_workers(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="HDF5 file (default: 2D_DarcyFlow_beta<BETA>_Train[_<DOMAIN>].hdf5)",
    )


def _add_poisson(problems: Any) -> None:
    parser = _add_problem(problems, "poisson", "Poisson in CNO's layout", _generate_poisson)
    _add_count(parser, "--n", 1408, "samples of the file IN: 1024 + 128 + 256")
    _add_count(parser, "--n-out", 256, "samples of the file OUT")
    parser.add_argument(
        "--resolution", type=integer(3), default=64, metavar="R", help="nodes along an axis"
    )
    _add_domain(parser)
    _add_seed(parser)
    parser.add_argument("--output", metavar="FOLDER", default=".", help="folder of the two files")


def _add_shallow_water(problems: Any) -> None:
    parser = _add_problem(
        problems,
        "shallow_water",
        "PDEBench's radial dam break; needs PyClaw",
        _generate_shallow_water,
    )
    _add_count(parser, "--n", 1000, "samples")
    parser.add_argument(
        "--resolution", type=integer(2), default=128, metavar="R", help="cells along an axis"
    )
    _add_seed(parser, 0, "seed of the first sample; with 0 the samples are PDEBench's")
    _add_workers(parser)
    _add_output(parser, "2D_rdb_NA_NA.h5")


def _add_navier_stokes(problems: Any) -> None:
    parser = _add_problem(
        problems, "navier_stokes", "vorticity, in FNO's layout", _generate_navier_stokes
    )
    _add_count(parser, "--n", 1200, "samples")
    _add_count(parser, "--frames", 50, "frames, one time unit apart")
    parser.add_argument(
        "--resolution", type=integer(4), default=64, metavar="R", help="points along an axis"
    )
    parser.add_argument(
        "--solver-resolution", type=integer(4), default=256, metavar="R", help="of the solver"
    )
    parser.add_argument("--step", type=_positive, default=2.5e-3, help="longest time step")
    parser.add_argument(
        "--field", choices=["paper", "fno-code"], default="paper", help="law of the first frame"
    )
    _add_seed(parser)
    _add_count(parser, "--batch-size", 20, "samples solved together")
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
        _add_force(problem)
        problem.set_defaults(command=command)
    poisson = problems.add_parser(
        "poisson", help="CNO's PoissonData_64x64_{IN,OUT}.h5, out of 2.4 GB; resumes"
    )
    poisson.add_argument("--output", metavar="FOLDER", default=".", help="default: this one")
    _add_force(poisson)
    poisson.set_defaults(command=_fetch_poisson)


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN.pt", help="neuraloperator Darcy file")
    parser.add_argument("output", metavar="OUT.hdf5", help="file to write")
    _add_force(parser)
    parser.set_defaults(command=_convert)


def _generate_order1d(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import order1d

    sizes = {split: getattr(arguments, split) for split in order1d.SIZES}
    order1d.generate(arguments.output, sizes, seed=arguments.seed, force=arguments.force)
    print(f"wrote {arguments.output}: {sum(sizes.values())} samples")


def _generate_darcy(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import darcy

    output = getattr(arguments, "output", darcy.default_name(arguments.beta, arguments.domain))
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
