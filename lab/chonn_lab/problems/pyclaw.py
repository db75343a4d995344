"""PyClaw, a Fortran package built on installation, for the generators that need it."""

import contextlib
import importlib.metadata
from typing import Any
from unittest import mock


def load_pyclaw() -> Any:
    """PyClaw and its Riemann solvers.

    Raises
    ------
    ImportError
        If PyClaw is not installed.
    """
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


def clawpack_version() -> "str | None":
    """Release of PyClaw, None if it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("clawpack")
    return None
