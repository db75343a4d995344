"""The ``chonn`` command.

``chonn inspect`` shows the circuits in a checkpoint, ``chonn info`` describes the installation.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted, 143 terminated.
"""

import argparse
import importlib.metadata
import os
import platform
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor
from types import FrameType
from typing import NoReturn

from chonn_ops import __version__
from chonn_ops.cli.inspect import add_inspect_command

INFO_PACKAGES = ("torch", "numpy", "scipy", "h5py", "pdebench", "neuraloperator", "timm")


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run the command line, by default with the arguments of the process; returns the exit code.
    Wrong usage raises SystemExit(2), as argparse does."""
    return execute(_parser(), argv, {})


def execute(
    parser: argparse.ArgumentParser, argv: "Sequence[str] | None", extras: Mapping[str, str]
) -> int:
    """Run the command that a parser finds, and turn errors into one line and an exit code.

    The parser sets ``command``, a function of the parsed arguments; `argv` as in `main`. `extras`
    says what to install in a clone, by the name of a module that an optional part needs.
    """
    arguments = parser.parse_args(argv)
    # Without a handler SIGTERM ends the process before temporary files are removed.
    earlier = signal.signal(signal.SIGTERM, _terminate)
    try:
        arguments.command(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. What is left in the buffer has nowhere
        # to go, and the interpreter would complain when it flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ImportError, OSError, ValueError, MemoryError, BrokenExecutor) as error:
        print(f"{parser.prog}: error: {_one_line(error, extras)}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, earlier)
    return 0


def _terminate(signum: int, _frame: "FrameType | None") -> NoReturn:
    raise SystemExit(128 + signum)


def _one_line(error: BaseException, extras: Mapping[str, str]) -> str:
    if isinstance(error, ImportError):
        module = (error.name or "").partition(".")[0]
        if module in extras:
            return f"this needs {module}: pip install '{extras[module]}' in a clone of chonn-ops"
    return " ".join(str(error).split()) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chonn", description="Circuit layers for PyTorch.")
    parser.add_argument("--version", action="version", version=f"chonn-ops {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    info = commands.add_parser("info", help="versions, threads and backends")
    info.set_defaults(command=_info)

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
    """Whether `import torch` installs the import hook of the integrations, and if not, why."""
    for switch in ("CHONN_AUTOLOAD", "TORCH_DEVICE_BACKEND_AUTOLOAD"):
        if os.environ.get(switch) == "0":
            return f"no, {switch}=0 is set"
    if not importlib.metadata.entry_points(group="torch.backends", name="chonn_ops"):
        return "no, its entry point is missing: install chonn-ops again"
    return "yes"


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
