"""The ``chonn-lab`` command.

``chonn-lab run`` trains and scores models, ``chonn-lab search`` chooses their settings, both by
Hydra; ``chonn-lab report`` draws tables and figures of results, ``chonn-lab data`` generates,
fetches and identifies data files, ``chonn-lab bench`` times the operators and models beside their
peers.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted, 143 terminated.
"""

import argparse
import sys
from collections.abc import Sequence

from chonn_lab import __version__
from chonn_lab.cli.bench import add_bench_command
from chonn_lab.cli.data import add_data_commands
from chonn_lab.cli.report import add_report_command
from chonn_lab.cli.run import run, search
from chonn_ops import cli

_MODULES = (
    *("filelock", "h5py", "hydra", "jinja2", "joblib", "matplotlib", "neuralop", "omegaconf"),
    *("optuna", "pandas", "pooch", "scipy", "tqdm", "yaml"),
)
EXTRAS = dict.fromkeys(_MODULES, "./lab") | {
    "physicsnemo": ".[physicsnemo]",
    "ray": "./lab[clusters]",
}
# Their arguments are Hydra's.
HYDRA = {
    "run": (run, "train and score models; --help lists problems, models and settings"),
    "search": (search, "choose the settings of a model by Optuna"),
}


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run the command line, by default that of the process, for its exit code. Wrong usage raises
    SystemExit(2), as argparse does."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="chonn-lab", description="Experiments with chonn-ops.")
    parser.add_argument("--version", action="version", version=f"chonn-lab {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (command, text) in HYDRA.items():
        commands.add_parser(name, help=text).set_defaults(
            command=lambda _, command=command: command(given[1:])
        )
    add_report_command(commands)
    add_data_commands(commands)
    add_bench_command(commands)
    return cli.execute(parser, given[:1] if given[:1] and given[0] in HYDRA else given, EXTRAS)
