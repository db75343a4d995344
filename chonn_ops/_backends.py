"""Which backend an operator runs on: the one asked for, else the fastest that this machine has."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from chonn_ops._library import warn_of_fallback

_NAMES = ("reference", "torch", "cpu", "triton")
_TRITON = (3, 9)  # the kernels return tuples from helpers; older releases were not tried


@cache
def _has_triton() -> bool:
    if find_spec("triton") is None:
        return False
    version = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
    return version >= _TRITON


def _interprets_triton() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


class Backends:
    """The modules `reference`, `torch`, `cpu` and `triton` of an operator, imported when asked for.

    Parameters
    ----------
    package : str
        The operator's package, which holds them.
    variable : str
        Environment variable that forces one where the caller does not.
    made_of : mapping from name to callable, optional
        What makes a backend of a module that is none yet.
    needs : mapping from name to str, optional
        Packages that this package does not depend on.
    """

    def __init__(
        self,
        package: str,
        variable: str,
        made_of: Mapping[str, Callable[[Any], Any]] | None = None,
        needs: Mapping[str, str] | None = None,
    ) -> None:
        self._package, self._variable = package, variable
        self._made_of, self._needs = made_of or {}, needs or {}
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module = importlib.import_module(f"{self._package}.{name}")
            self._loaded[name] = self._made_of.get(name, lambda x: x)(module)
        return self._loaded[name]

    def _compiled(self) -> bool:
        return bool(self["cpu"].available_isas())

    def _runs(self, name: str) -> bool:
        if name == "cpu":
            return self._compiled()
        if name == "triton":
            return (torch.cuda.is_available() or _interprets_triton()) and _has_triton()
        return name not in self._needs or find_spec(self._needs[name]) is not None

    def available(self) -> tuple[str, ...]:
        """Names of those that this machine has what they need for."""
        return tuple(name for name in _NAMES if self._runs(name))

    def choose(self, name: str, device: torch.device) -> Any:
        """The forced backend (argument, then environment), else the fastest for the device.

        To be asked when the operator runs, so that an exported program picks the machine it runs
        on.
        """
        forced = name or os.environ.get(self._variable, "")
        if not forced:  # asks nothing about CUDA for tensors elsewhere: asking may start its driver
            if device.type == "cpu":
                if self._compiled():
                    return self["cpu"]
                warn_of_fallback()
            return self["triton" if device.type == "cuda" and _has_triton() else "torch"]
        known = self.available()
        if forced not in known:
            raise ValueError(f"backend: expected one of {known}, got {forced!r}")
        if forced == "cpu" and device.type != "cpu":
            raise ValueError(f"backend 'cpu': expected tensors on the CPU, got {device}")
        if forced == "triton" and device.type != "cuda" and not _interprets_triton():
            raise ValueError(f"backend 'triton': expected tensors on a CUDA device, got {device}")
        return self[forced]
