"""The ``chonn-lab`` command.

``chonn-lab run`` trains and scores the models of an experiment, ``chonn-lab list`` names the
experiments, ``chonn-lab report`` draws tables and figures of results, ``chonn-lab data`` generates,
fetches and identifies data files, ``chonn-lab bench`` times the operators and models beside their
peers.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted, 143 terminated.
"""

import argparse
from collections.abc import Sequence

from chonn_lab import __version__
from chonn_lab.cli.bench import add_bench_command
from chonn_lab.cli.data import add_data_commands
from chonn_lab.cli.run import add_run_commands
from chonn_ops import cli

_MODULES = ("filelock", "h5py", "matplotlib", "neuralop", "pooch", "requests", "scipy", "tqdm")
EXTRAS: dict[str, str] = dict.fromkeys(_MODULES, "./lab")


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
    parser = argparse.ArgumentParser(prog="chonn-lab", description="Experiments with chonn-ops.")
    parser.add_argument("--version", action="version", version=f"chonn-lab {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_run_commands(commands)
    add_data_commands(commands)
    add_bench_command(commands)
    return cli.execute(parser, argv, EXTRAS)
