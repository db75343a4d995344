"""Packages that only some functions need, imported when one of these is called."""

from importlib import import_module
from typing import Any


def import_optional(module: str, extra: str) -> Any:
    """A module of a package that an extra of chonn-ops installs; an ImportError names the extra."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs {package}: pip install '.[{extra}]' in a clone of chonn-ops ({error})"
        ) from error
