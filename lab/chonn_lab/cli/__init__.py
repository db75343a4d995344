"""The ``chonn-lab`` command.

``chonn-lab run`` trains and scores models, ``chonn-lab curves`` on more and more samples and for
longer and longer, ``chonn-lab search`` chooses their settings, all by Hydra; ``chonn-lab report``
draws tables and figures of results, ``chonn-lab data`` generates, fetches and identifies data
files, ``chonn-lab bench`` times the operators and models beside their peers.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joblib import cpu_count
from omegaconf import DictConfig

from chonn_lab import __version__
from chonn_ops import cli
from chonn_ops.cli.arguments import add_force

if TYPE_CHECKING:
    from chonn_lab.experiments.records import Run

log = logging.getLogger(__name__)
EXTRAS = {"physicsnemo": ".[physicsnemo]", "ray": "./lab[clusters]"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, by default that of the process, for its exit code. Wrong usage raises
    SystemExit(2), as argparse does."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="chonn-lab", description="Experiments with chonn-ops.")
    parser.add_argument("--version", action="version", version=f"chonn-lab {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (_, text) in HYDRA.items():
        command = commands.add_parser(name, help=text)
        command.set_defaults(command=lambda _, name=name: run_hydra(name, words[1:]))
    _add_report(commands)
    data = commands.add_parser("data", help="generate, fetch or identify benchmark data")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    generate = _of_modules(actions, "generate", "compute a data set", "problems", "generate")
    generate.set_defaults(command=_generate)
    fetch = _of_modules(actions, "fetch", "download a published data set", "problems", "fetch")
    fetch.set_defaults(command=_fetch)
    fetch.add_argument("--folder", default=".", help="existing folder, default: this one")
    add_force(fetch)
    info = actions.add_parser("info", help="where data files come from: generated or official")
    info.set_defaults(command=_info)
    info.add_argument("files", metavar="FILE", nargs="+", help="data file of any kind")
    text = "time operators and models beside their peers"
    bench = _of_modules(commands, "bench", text, "benchmarks", "main")
    bench.set_defaults(command=_bench)
    text = "its own options; --help lists them"
    for command in (generate, bench):
        command.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help=text)
    return cli.execute(parser, words[:1] if words[:1] and words[0] in HYDRA else words, EXTRAS)


def modules(folder: str, function: str) -> dict[str, str]:
    """First lines of their docstrings by the names of the modules in a folder that have a function.

    Nothing is imported.
    """
    paths = sorted((Path(__file__).parents[1] / folder).glob("*.py"))
    texts = {path.stem: path.read_text("utf-8") for path in paths}
    return {
        name: text.partition('"""')[2].partition("\n")[0]
        for name, text in texts.items()
        if re.search(rf"^(def )?{function}\b", text, flags=re.MULTILINE)
    }


def _of_modules(
    commands: Any, command: str, text: str, folder: str, function: str
) -> argparse.ArgumentParser:
    """A command on one of the `modules`, which its help lists."""
    names = modules(folder, function)
    parser = commands.add_parser(
        command,
        help=text,
        description="\n".join(f"{name:14} {what}" for name, what in names.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=tuple(names), metavar="NAME", help="one of these")
    return parser


def _bench(arguments: argparse.Namespace) -> None:
    sys.argv = [f"chonn-lab bench {arguments.name}", *arguments.rest]
    raise SystemExit(importlib.import_module(f"chonn_lab.benchmarks.{arguments.name}").main())


# Results -----------------------------------------------------------------------------------------


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="tables, figures and a page of results",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    report.set_defaults(command=_report)
    folder: Any = {"type": Path, "metavar": "FOLDER"}
    report.add_argument("--results", default="runs", help="of chonn-lab run", **folder)
    report.add_argument("--output", default="report", help="of the page", **folder)
    text = (
        "write no page, but the runs of these folders <results>/<problem>/<scale> into one file "
        "each in lab/results/runs; models that were not run again stay there"
    )
    report.add_argument("--keep", type=Path, metavar="RUNS", nargs="+", help=text)
    add_force(report)


def _report(arguments: argparse.Namespace) -> None:
    from chonn_lab.report.page import write_report
    from chonn_lab.report.runs import keep

    for folder in arguments.keep or ():
        for path in keep(folder):
            print(f"wrote {path}")
    if not arguments.keep:
        print(f"wrote {write_report(arguments.results, arguments.output, arguments.force)}")


# Data --------------------------------------------------------------------------------------------


def _generate(arguments: argparse.Namespace) -> None:
    """Call the problem's `generate`, whose parameters are the options."""
    problem = importlib.import_module(f"chonn_lab.problems.{arguments.name}")
    options = vars(options_of(arguments.name, problem).parse_args(arguments.rest))
    # The one of two files that an interrupted call has made is not made again.
    there = set() if options["force"] else set(Path(options.get("folder") or ".").glob("*"))
    paths = problem.generate(**options)
    for path in paths if isinstance(paths, tuple) else (paths,):
        print(f"{path} is there already" if path in there else f"wrote {path}")


def options_of(name: str, problem: Any) -> argparse.ArgumentParser:
    """Options from the signature of `generate`; the help is the data card."""
    from chonn_lab.problems import generation

    parser = argparse.ArgumentParser(
        prog=f"chonn-lab data generate {name}",
        description=f"{problem.__doc__}\n{inspect.getdoc(problem.generate)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parameters = dict(inspect.signature(problem.generate).parameters)
    if parameters.pop("options", None):
        parameters |= inspect.signature(generation.make_files).parameters
    for option, parameter in parameters.items():
        if option == "force":
            add_force(parser)
        elif option not in ("progress", "recipes"):
            default = cpu_count() if option == "workers" else parameter.default
            text = inspect.formatannotation(parameter.annotation)  # such as "float | None"
            kind = next(kind for kind in (int, float, str) if kind.__name__ in text)
            flag = f"--{option.replace('_', '-')}"
            parser.add_argument(flag, type=kind, default=default, help=f"[{default}]")
    return parser


def _fetch(arguments: argparse.Namespace) -> None:
    problem = importlib.import_module(f"chonn_lab.problems.{arguments.name}")
    done = problem.fetch(arguments.folder, force=arguments.force)
    print(f"{arguments.name}: {'downloaded, checksum verified' if done else 'is there already'}")


def _info(arguments: argparse.Namespace) -> None:
    from chonn_lab.problems import origin

    for path in arguments.files:
        facts = {"official": "unknown", **origin.identify(path)}
        print("\n".join([Path(path).name, *(f"  {name}: {x}" for name, x in facts.items())]))


# Runs and searches -----------------------------------------------------------------------------


@contextlib.contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Numbers below 1e-38 are zeros in this thread. A saturated SiLU gives many, with which
    products of matrices take ten times as long."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _run(config: DictConfig) -> None:
    from chonn_lab.experiments import runner

    _trained(lambda folder: [runner.run(config, folder)])


def _curves(config: DictConfig) -> None:
    from chonn_lab.experiments import curves

    _trained(lambda folder: curves.curves(config, folder))


def _trained(runs: Callable[[Path], Iterable[Run]]) -> None:
    """Print the results of the runs of a folder, Hydra's, as they end."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        with _denormals_flushed():
            for run in runs(folder):
                _print(run)
    except Exception as error:
        # Where several runs fail, Hydra raises only the first one's error.
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            log.error("%s: %s", folder, " ".join(str(error).split()))
        raise


def _print(run: Run) -> None:
    if run.diverged:
        text = f"diverged: {run.diverged}"
    else:
        scores = run.metrics["test"].items()
        texts = (f"{name} {'-' if v is None else format(v, '.4g')}" for name, v in scores)
        text = f"{', '.join(texts)}; {run.seconds:.0f} s of training"
    print(f"{run.experiment}, {run.variant} seed {run.seed}: {text}")


def _search(config: DictConfig) -> None:
    from chonn_lab.experiments.search import search

    with _denormals_flushed():
        path = search(config)
    print(f"wrote {path}")


# Their arguments are Hydra's.
HYDRA = {
    "run": (_run, "train and score models; --help lists problems, models and settings"),
    "curves": (_curves, "train a model on more and more samples, and for longer and longer"),
    "search": (_search, "choose the settings of a model by Optuna"),
}


def run_hydra(name: str, arguments: Sequence[str]) -> None:
    """The command of this name: train and score one model, or many with ``-m``, or choose the
    settings of one; the arguments are Hydra's."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from chonn_lab.experiments.configuration import CONF

    # Problems and models of your own are found beside your conf/, as `python -m` finds them.
    sys.path.insert(0, str(Path.cwd()))
    # Hydra's parser takes overrides on one side of -m only.
    words = sorted(arguments, key=lambda text: text not in ("-m", "--multirun"))
    # As ``--cfg job`` prints them, settings are values, not what chooses them.
    if "job" in words:
        words.append("--resolve")
    sys.argv = [f"chonn-lab {name}", *words]
    main: Any = hydra.main(version_base="1.3", config_path=f"pkg://{CONF}", config_name=name)(
        HYDRA[name][0]
    )
    # Errors are raised, which the command prints in a line, not printed with a part of their trace.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        main()
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(str(error)) from error
