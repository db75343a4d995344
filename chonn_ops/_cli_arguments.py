"""Arguments that the ``chonn data`` commands share."""

import argparse
import math
from collections.abc import Callable
from typing import Any

from chonn_ops.problems._random_fields import COEFFICIENTS, TWO_PHASE
from chonn_ops.problems._workers import usable_cores
from chonn_ops.problems.domains import DOMAINS, SQUARE


def integer(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    # argparse names the type in its message about text that is no number.
    parse.__name__ = "integer"
    return parse


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be positive and finite, got {text}")
    return value


def distance(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be at least 0 and finite, got {text}")
    return value


def add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace an existing output file")


def add_problem(
    problems: Any, name: str, summary: str, command: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    parser = problems.add_parser(
        name, help=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.set_defaults(command=command)
    add_force(parser)
    return parser


def add_seed(parser: argparse.ArgumentParser, default: int = 0, text: str = "random seed") -> None:
    parser.add_argument("--seed", type=integer(0), default=default, help=text)


def add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=integer(1),
        default=usable_cores(),
        metavar="W",
        help="processes; the data do not depend on it",
    )


def add_count(parser: argparse.ArgumentParser, name: str, default: int, text: str) -> None:
    parser.add_argument(name, type=integer(1), default=default, metavar="N", help=text)


def add_domain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--domain", choices=DOMAINS, default=SQUARE, help="part of the unit square that exists"
    )


def add_output(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--output", metavar="FILE", default=default, help="HDF5 file")


def add_resolution(
    parser: argparse.ArgumentParser, least: int, default: int, points: str = "cells"
) -> None:
    parser.add_argument(
        "--resolution",
        type=integer(least),
        default=default,
        metavar="R",
        help=f"{points} along an axis",
    )


def add_medium(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--coefficient", choices=COEFFICIENTS, default=TWO_PHASE, help="kind of medium"
    )
    parser.add_argument(
        "--contrast",
        type=positive,
        default=10.0,
        metavar="C",
        help="of the phases; of the values two standard deviations above and below the median",
    )
