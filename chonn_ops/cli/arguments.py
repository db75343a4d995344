"""Arguments that several commands share."""

import argparse
import math
from collections.abc import Callable


def integer(least: int) -> Callable[[str], int]:
    """A type for argparse: integers from `least` on."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    # argparse names the type in its message about text that is no number.
    parse.__name__ = "integer"
    return parse


def positive(text: str) -> float:
    """A type for argparse: finite numbers above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be positive and finite, got {text}")
    return value


def distance(text: str) -> float:
    """A type for argparse: finite numbers from 0 on."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be at least 0 and finite, got {text}")
    return value


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``, without which no file is replaced."""
    parser.add_argument("--force", action="store_true", help="replace an existing output file")
