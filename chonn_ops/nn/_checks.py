"""Checks of constructor arguments and settings."""

from __future__ import annotations


def check_least(least: int, /, **sizes: float) -> None:
    """Raise a ValueError for the first size below `least`."""
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name}: expected at least {least}, got {size}")
