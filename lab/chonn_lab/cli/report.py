"""The ``chonn-lab report`` command."""

import argparse
from pathlib import Path
from typing import Any


def add_report_command(commands: Any) -> None:
    """Add ``report`` to the subparsers of ``chonn-lab``."""
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
    report.add_argument(
        "--mixed",
        action="store_true",
        help="accept results of different data or settings in one table, and say so there",
    )
    report.add_argument(
        "--keep",
        nargs="+",
        type=Path,
        metavar="RUNS",
        help="write no page, but these folders <results>/<problem>/<scale> into one file each in "
        "lab/results/runs; models that were not run again stay there",
    )


def _report(arguments: argparse.Namespace) -> None:
    from chonn_lab.report.keep import keep
    from chonn_lab.report.page import write_report

    for folder in arguments.keep or ():
        print(f"wrote {keep(folder, arguments.mixed)}")
    if not arguments.keep:
        print(f"wrote {write_report(arguments.results, arguments.output, arguments.mixed)}")
