"""The ``chonn`` command.

``chonn data generate|fetch|convert`` makes data files, ``chonn info`` describes the installation.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted, 143 terminated.
"""

import argparse
import importlib.metadata
import math
import os
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from types import FrameType
from typing import NoReturn

from chonn_ops import __version__

EXPERIMENTS_MODULES = ("h5py", "pooch", "requests", "scipy", "tqdm")
INFO_PACKAGES = ("torch", "numpy", "scipy", "h5py", "pdebench", "neuraloperator", "timm")


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments, by default those of the process.

    Returns
    -------
    int
        Exit code. Wrong usage raises SystemExit(2), as argparse does.
    """
    arguments = _parser().parse_args(argv)
    # Without a handler SIGTERM ends the process before temporary files are removed.
    earlier = signal.signal(signal.SIGTERM, _terminate)
    try:
        arguments.command(arguments)
    except KeyboardInterrupt:
        print("chonn: interrupted", file=sys.stderr)
        return 130
    except (ImportError, OSError, ValueError, MemoryError, BrokenExecutor) as error:
        print(f"chonn: error: {_one_line(error)}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, earlier)
    return 0


def _terminate(signum: int, _frame: "FrameType | None") -> NoReturn:
    raise SystemExit(128 + signum)


def _one_line(error: BaseException) -> str:
    if isinstance(error, ImportError):
        module = (error.name or "").partition(".")[0]
        if module in EXPERIMENTS_MODULES:
            return f"this needs {module}: pip install 'chonn-ops[experiments]'"
    return " ".join(str(error).split()) or type(error).__name__


def _integer(least: int) -> Callable[[str], int]:
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


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chonn", description="High-order circuit layers.")
    parser.add_argument("--version", action="version", version=f"chonn-ops {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    info = commands.add_parser("info", help="versions, threads and scan backends")
    info.set_defaults(command=_info)

    data = commands.add_parser("data", help="generate, fetch or convert benchmark data")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    _add_generate(actions.add_parser("generate", help="compute a data set"))
    _add_fetch(actions.add_parser("fetch", help="download an official data set"))
    _add_convert(actions.add_parser("convert", help="neuraloperator Darcy .pt to PDEBench HDF5"))
    return parser


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace an existing output file")


def _add_generate(parser: argparse.ArgumentParser) -> None:
    problems = parser.add_subparsers(metavar="PROBLEM", required=True)
    darcy = problems.add_parser(
        "darcy",
        help="Darcy flow in PDEBench's layout",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    darcy.add_argument("--n", type=_integer(1), default=1000, metavar="N", help="samples")
    darcy.add_argument(
        "--resolution", type=_integer(2), default=128, metavar="R", help="cells along an axis"
    )
    darcy.add_argument("--beta", type=_positive, default=1.0, help="forcing")
    darcy.add_argument("--seed", type=_integer(0), default=0, help="random seed")
    darcy.add_argument(
        "--workers",
        type=_integer(1),
        default=_usable_cores(),
        metavar="W",
        help="processes; the data do not depend on it",
    )
    darcy.add_argument(
        "--output",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="HDF5 file (default: 2D_DarcyFlow_beta<BETA>_Train.hdf5)",
    )
    _add_force(darcy)
    darcy.set_defaults(command=_generate_darcy)


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    problems = parser.add_subparsers(metavar="PROBLEM", required=True)
    darcy = problems.add_parser(
        "darcy", help="PDEBench's 2D_DarcyFlow_beta1.0_Train.hdf5 (1.3 GB); resumes"
    )
    darcy.add_argument("--output", metavar="FILE", help="default: its official name")
    _add_force(darcy)
    darcy.set_defaults(command=_fetch_darcy)


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN.pt", help="neuraloperator Darcy file")
    parser.add_argument("output", metavar="OUT.hdf5", help="file to write")
    _add_force(parser)
    parser.set_defaults(command=_convert)


def _generate_darcy(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import darcy

    output = getattr(arguments, "output", darcy.default_name(arguments.beta))
    darcy.generate(
        output,
        n_samples=arguments.n,
        resolution=arguments.resolution,
        beta=arguments.beta,
        seed=arguments.seed,
        workers=arguments.workers,
        force=arguments.force,
    )
    print(f"wrote {output}: {arguments.n} samples")


def _fetch_darcy(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems import darcy

    output = arguments.output or darcy.OFFICIAL_NAME
    if darcy.fetch(output, force=arguments.force):
        print(f"wrote {output}: checksum verified")
    else:
        print(f"{output} is there already: checksum verified")


def _convert(arguments: argparse.Namespace) -> None:
    from chonn_ops.problems.convert import convert

    n_samples = convert(arguments.source, arguments.output, force=arguments.force)
    print(f"wrote {arguments.output}: {n_samples} samples")


def _info(_arguments: argparse.Namespace) -> None:
    import torch

    from chonn_ops import scan

    print(f"chonn-ops {__version__}, Python {platform.python_version()}, {platform.platform()}")
    print(", ".join(f"{name} {_version_of(name)}" for name in INFO_PACKAGES))
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    print(f"torch threads: {torch.get_num_threads()}; CUDA device: {cuda}")
    print(f"timm and neuraloperator know chonn-ops after `import torch`: {_autoload_state()}")
    backends = scan.available_backends()
    print(f"scan backends: {', '.join(backends)}")
    if "cpu" in backends:
        print("C kernel: built")
    else:
        print("C kernel: not built, CPU scans use the slower torch backend")


def _autoload_state() -> str:
    """Whether `import torch` arms the integrations, and if not, why."""
    for switch in ("CHONN_AUTOLOAD", "TORCH_DEVICE_BACKEND_AUTOLOAD"):
        if os.environ.get(switch) == "0":
            return f"no, {switch}=0; after `import chonn_ops`, yes"
    if not importlib.metadata.entry_points(group="torch.backends", name="chonn_ops"):
        return "no, installed before it could: install chonn-ops again"
    return "yes"


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
