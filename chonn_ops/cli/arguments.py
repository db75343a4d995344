"""Arguments that several commands share."""

import argparse
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


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``, without which no file is replaced."""
    parser.add_argument("--force", action="store_true", help="replace an existing output file")
