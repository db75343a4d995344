"""The ``chonn`` command.

``chonn run`` trains and scores the models of an experiment, ``chonn list`` names the experiments,
``chonn report`` draws tables and figures of results, ``chonn data generate|fetch|convert`` makes
data files, ``chonn data info`` says where they come from, ``chonn inspect`` shows the circuits in a
checkpoint, ``chonn info`` describes the installation.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted, 143 terminated.
"""

import argparse
import importlib.metadata
import os
import platform
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from types import FrameType
from typing import NoReturn

from chonn_ops import __version__
from chonn_ops.cli.data import add_data_commands
from chonn_ops.cli.inspect import add_inspect_command
from chonn_ops.cli.run import add_run_commands

EXPERIMENTS_MODULES = (
    "filelock",
    "h5py",
    "matplotlib",
    "pooch",
    "requests",
    "scipy",
    "tensorboard",
    "tqdm",
)
INFO_PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "h5py",
    "pdebench",
    "neuraloperator",
    "timm",
)


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chonn", description="High-order circuit layers.")
    parser.add_argument("--version", action="version", version=f"chonn-ops {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    info = commands.add_parser("info", help="versions, threads and scan backends")
    info.set_defaults(command=_info)

    add_run_commands(commands)
    add_data_commands(commands)
    add_inspect_command(commands)
    return parser


def _info(_arguments: argparse.Namespace) -> None:
    import torch

    from chonn_ops import _library, network, scan

    print(f"chonn-ops {__version__}, Python {platform.python_version()}, {platform.platform()}")
    print(", ".join(f"{name} {_version_of(name)}" for name in INFO_PACKAGES))
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    print(f"torch threads: {torch.get_num_threads()}; CUDA device: {cuda}")
    print(f"timm and neuraloperator know chonn-ops after `import torch`: {_autoload_state()}")
    print(f"scan backends: {', '.join(scan.available_backends())}")
    print(f"network backends: {', '.join(network.available_backends())}")
    print(f"C kernel: {_library.state()}")


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
