"""PyClaw, a Fortran package built on installation, for the generators that need it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from typing import Any
from unittest import mock

import numpy as np


def load_pyclaw() -> Any:
    """PyClaw and its Riemann solvers; ImportError if it is not installed."""
    try:
        # On import PyClaw takes over the root logger and opens a file pyclaw.log in the working
        # folder.
        with mock.patch("logging.config.fileConfig"):
            from clawpack import pyclaw, riemann  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "these data are computed by PyClaw, which is not installed: "
            "`make setup-pyclaw`, or a Fortran compiler and `pip install --no-deps clawpack`"
        ) from error
    return pyclaw, riemann


def clawpack_version() -> str:
    """Release of PyClaw; ImportError if it is not installed."""
    load_pyclaw()
    return importlib.metadata.version("clawpack")


def evolved(solver: Any, solution: Any, times: Iterable[float]) -> np.ndarray:
    """The first field at t = 0 and at these times, (T, R, R), float64."""
    frames = [solution.state.q[0].copy()]
    for time in times:
        solver.evolve_to_time(solution, time)
        frames.append(solution.state.q[0].copy())
    return np.stack(frames)
