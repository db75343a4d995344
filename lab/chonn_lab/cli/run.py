"""The ``chonn-lab run``, ``chonn-lab list`` and ``chonn-lab report`` commands."""

import argparse
import contextlib
import dataclasses
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chonn_ops.cli.arguments import integer

SCALES = ("smoke", "small", "paper")
ACCELERATORS = ("auto", "cpu", "gpu")
FIGURES = "figures"


def add_run_commands(commands: Any) -> None:
    """Add ``run``, ``list`` and ``report`` to the subparsers of ``chonn``."""
    run = commands.add_parser(
        "run",
        help="train and score the models of an experiment",
        description=(
            "Train and score the models of an experiment, one after the other or side by side. "
            "Finished runs are not repeated, interrupted ones resume."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    run.set_defaults(command=_run)
    run.add_argument(
        "experiment", metavar="NAME", help="see chonn-lab list; or your own as module:attribute"
    )
    run.add_argument("--scale", choices=SCALES, default="small", help="size of data and models")
    run.add_argument("--seeds", type=integer(1), default=1, metavar="K", help="runs of each model")
    run.add_argument(
        "--variants",
        type=lambda text: text.split(","),
        default=argparse.SUPPRESS,
        metavar="A,B",
        help="models to run (default: all)",
    )
    run.add_argument(
        "--set",
        action="append",
        default=argparse.SUPPRESS,
        metavar="FIELD=VALUE",
        help="setting for all models, whatever they set themselves; repeatable, tuples as 10,5,3; "
        "the results get a folder of their own",
    )
    run.add_argument("--output", type=Path, default=Path("runs"), metavar="FOLDER", help="results")
    run.add_argument("--data", type=Path, default=Path("data"), metavar="FOLDER", help="data files")
    run.add_argument(
        "--jobs",
        type=integer(1),
        default=argparse.SUPPRESS,
        metavar="J",
        help="processes of one thread each; with 1, all threads go to one run at a time "
        "(default: one a core; on a GPU 1)",
    )
    run.add_argument("--accelerator", choices=ACCELERATORS, default="auto", help="device")
    _add_mixed(run)

    listing = commands.add_parser("list", help="experiments, their scales and models")
    listing.set_defaults(command=_list)
    listing.add_argument(
        "experiment",
        metavar="NAME",
        nargs="?",
        help="with its models, its settings and their sources",
    )

    report = commands.add_parser(
        "report",
        help="tables, figures and a page of results",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    report.set_defaults(command=_report)
    report.add_argument(
        "--results", type=Path, default=Path("runs"), metavar="FOLDER", help="of chonn-lab run"
    )
    report.add_argument(
        "--output", type=Path, default=Path("report"), metavar="FOLDER", help="of the page"
    )
    _add_mixed(report)


def _add_mixed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mixed",
        action="store_true",
        help="accept results of different data or settings in one table, and say so there",
    )


def _run(arguments: argparse.Namespace) -> None:
    _find_here(arguments.experiment)
    from chonn_lab.experiments import schedule
    from chonn_lab.report import figures
    from chonn_lab.report.tables import run_table

    jobs = schedule.plan(
        arguments.experiment,
        arguments.scale,
        output=arguments.output,
        data=arguments.data,
        seeds=arguments.seeds,
        variants=getattr(arguments, "variants", ()),
        assignments=getattr(arguments, "set", ()),
        accelerator=arguments.accelerator,
        mixed=arguments.mixed,
    )
    folder = jobs[0].folder.parent
    figures.refuse_foreign(jobs[0].experiment.name, folder / FIGURES)
    workers = getattr(arguments, "jobs", schedule.default_workers(arguments.accelerator))
    try:
        finished = schedule.run_all(jobs, workers)
    except (KeyboardInterrupt, SystemExit):
        print("chonn-lab: stopped; the same command goes on from here", file=sys.stderr)
        raise
    for job, reason in finished.failures.items():
        print(f"chonn-lab: error: {job.title}: {reason}", file=sys.stderr)
    if finished.runs:
        print(run_table(finished.runs, arguments.mixed))
        _draw(folder, arguments.mixed)
    if finished.failures:
        raise SystemExit(1)
    print(f"results in {folder}")


def _find_here(experiment: str) -> None:
    """Let modules in the working directory be found, as `python -m` does."""
    if ":" in experiment and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _draw(folder: Path, mixed: bool) -> None:
    """Draw the figures of a folder of results; a failure costs none of the results."""
    from chonn_lab.report import figures

    try:
        with _foreign_files_named():
            for path in figures.draw(folder, folder / FIGURES, mixed):
                print(f"wrote {path}")
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        print(
            f"chonn-lab: warning: no figures: {reason} (the results are not affected)",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _foreign_files_named() -> Iterator[None]:
    """Say in a line each which files among the results are none."""
    from chonn_lab.report.results import ForeignFile

    with warnings.catch_warnings():
        show = warnings.showwarning

        def say(message: Any, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, ForeignFile):
                print(f"chonn-lab: warning: {message}", file=sys.stderr)
            else:
                show(message, category, *rest, **named)

        warnings.showwarning = say
        warnings.simplefilter("always", ForeignFile)
        yield


def _list(arguments: argparse.Namespace) -> None:
    from chonn_lab.experiments import EXPERIMENTS, get

    only = arguments.experiment
    _find_here(only or "")
    for name in [only] if only else EXPERIMENTS:
        experiment = get(name)
        print(f"{name}: {experiment.title}")
        scales: dict[Any, list[str]] = {}
        for scale, config in experiment.scales.items():
            variants = experiment.variants(config)
            sizes = f"{config.n_train:,} samples, {config.epochs:,} epochs, {len(variants)} models"
            print(f"  {scale + ':':7}{sizes}")
            for variant in variants:
                scales.setdefault((variant.name, variant.label), []).append(scale)
        if only:
            width = max(len(name) for name, _ in scales)
            for (name, label), found in scales.items():
                print(f"  {name:{width}}  {label} ({', '.join(found)})")
            for settings, source in _by_source(experiment):
                print(f"  {settings}\n      {source}")


def _by_source(experiment: Any) -> Iterator[tuple[str, str]]:
    """Settings with their values at `paper` and `small`, by where the value at `paper` is from."""
    paper, small = experiment.scales["paper"], experiment.scales["small"]
    found: dict[str, list[str]] = {}
    for field in dataclasses.fields(paper):
        values = (str(getattr(config, field.name)) for config in (paper, small))
        text = f"{field.name}: {' / '.join(dict.fromkeys(values))}"
        source = experiment.sources.get(field.name, "no source given")
        found.setdefault(source, []).append(text)
    for source, texts in found.items():
        yield ", ".join(texts), source


def _report(arguments: argparse.Namespace) -> None:
    from chonn_lab.report.page import write_report

    with _foreign_files_named():
        print(f"wrote {write_report(arguments.results, arguments.output, arguments.mixed)}")
