"""Checks of constructor arguments, of settings and of the shapes that modules are called with."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

GRID = ("H", "W", "T")  # what messages call the axes of a field


def check_least(least: int, /, **sizes: float) -> None:
    """Raise a ValueError for the first size below `least`."""
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name}: expected at least {least}, got {size}")


def check_choice(name: str, value: object, known: Collection[object]) -> None:
    """ValueError unless the value is one of the known ones."""
    if value not in known:
        raise ValueError(f"{name}: expected one of {tuple(known)}, got {value!r}")


def check_shape(name: str, tensor: Tensor, *shape: str | int) -> None:
    """ValueError unless the shape has these numbers, and any size where it has a word."""
    sizes = tuple(tensor.shape)
    if len(sizes) != len(shape) or any(
        isinstance(wanted, int) and wanted != size
        for wanted, size in zip(shape, sizes, strict=True)
    ):
        expected = ", ".join(map(str, shape))
        raise ValueError(f"{name}: expected shape ({expected}), got {sizes}")
