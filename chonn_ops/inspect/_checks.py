"""Checks of the numbers that circuits are made of."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def check_finite(**values: float) -> None:
    """ValueError for a number that is NaN or infinite."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"{name}: expected a finite number, got {value}")


def check_positive(**values: float) -> None:
    """ValueError for a number that is not finite and above 0."""
    for name, value in values.items():
        if not (isinstance(value, Real) and 0 < value < math.inf):
            raise ValueError(f"{name}: expected a finite number > 0, got {value}")


def finite_array(name: str, values: object, ndim: int | None = None) -> Array:
    """The values as a float64 array; ValueError for another number of axes, NaN or infinity."""
    array = np.asarray(values, dtype=np.float64)
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name}: expected {ndim} axes, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
    return array
