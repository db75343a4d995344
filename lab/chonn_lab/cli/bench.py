"""The ``chonn-lab bench`` command."""

import argparse
import importlib
import sys
from typing import Any

PROGRAMS = {
    "scan": "kirchhoff_scan beside mambapy and a loop",
    "network": "kirchhoff_network beside spsolve, pyamg and torch-sla; its methods",
    "graphs": "circuits on graphs beside CHOLMOD and SciPy's sparse LU",
    "accuracy": "errors of kirchhoff_network and spsolve on hard media",
    "inverse": "reconstructions from measured potentials beside pyEIT",
    "models": "training steps of the models beside PDEBench's",
    "vision": "inference and training steps of the timm models",
    "gpu": "the kernels for GPUs; needs CUDA",
    "gpu_predicted": "what an H100 is expected to take, from counts; needs no GPU",
}


def add_bench_command(commands: Any) -> None:
    """Add ``bench`` to the subparsers of ``chonn-lab``."""
    bench = commands.add_parser(
        "bench",
        help="time operators and models beside their peers",
        description="\n".join(f"{name:14} {text}" for name, text in PROGRAMS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.set_defaults(command=_bench)
    bench.add_argument("program", choices=tuple(PROGRAMS), metavar="PROGRAM", help="one of these")
    bench.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="its own options; --help lists them"
    )


def _bench(arguments: argparse.Namespace) -> None:
    sys.argv = [f"chonn-lab bench {arguments.program}", *arguments.rest]
    raise SystemExit(importlib.import_module(f"chonn_lab.benchmarks.{arguments.program}").main())
