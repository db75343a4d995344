"""The ``chonn-lab report`` command."""

import argparse
import contextlib
import sys
import warnings
from collections.abc import Iterator
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


def _report(arguments: argparse.Namespace) -> None:
    from chonn_lab.report.page import write_report

    with _foreign_files_named():
        print(f"wrote {write_report(arguments.results, arguments.output, arguments.mixed)}")


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
