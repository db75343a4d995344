"""Selection of an operator's backend: the requested one, else the fastest on this machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from chonn_ops._library import warn_of_fallback

_NAMES = ("reference", "torch", "cpu", "triton")
_GPU = ("triton", "cuda")  # the backends for CUDA devices, of which an operator has at most one
# For the A100 and the H100 all kernels compile by Triton 3.2 (of PyTorch 2.6) and 3.9; some were
# tried by 3.3 to 3.6. By 3.2 and 3.9 they were right in the interpreter.
_TRITON = (3, 2)

_AGREE = 1e-3  # of the largest value: far above rounding, far below what a wrong kernel gives


@cache
def _installed(package: str) -> bool:
    """Whether a package is installed; cached, because looking it up takes 0.1 ms."""
    return find_spec(package) is not None


@cache
def _lacks_triton() -> str:
    """Say which release of Triton the kernels are written for; empty if it is here."""
    installed = importlib.metadata.version("triton") if _installed("triton") else "none"
    if installed != "none" and tuple(map(int, installed.split(".")[:2])) >= _TRITON:
        return ""
    return f"Triton {'.'.join(map(str, _TRITON))} or later, got {installed}"


@cache
def _warn_without(package: str, needed: str) -> None:
    """Warn once an operator: without its kernels a GPU is tens of times slower."""
    warnings.warn(
        f"{package}: expected {needed}: on CUDA it runs on the slower PyTorch backend; "
        "the backend 'torch' is selected by its name without a warning",
        RuntimeWarning,
        stacklevel=2,
    )


def _interprets_triton() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def requested(backend: str | None) -> str:
    """The argument `backend` as the operators take it: an empty string for None."""
    if backend is not None and not isinstance(backend, str):
        raise ValueError(f"backend: expected a name of a backend or None, got {backend!r}")
    return backend or ""


class KernelError(RuntimeError):
    """A kernel could not be compiled or launched."""


class Backends:
    """The modules of an operator's `package`, `reference`, `torch`, `cpu` and so on, imported on
    first use; `names` are those that it has. "cuda" says by its function `lacks` what it needs.

    `variable` is the environment variable that forces one where the caller does not. `results_on`
    computes results of a small problem, (backend, device) -> tensors: before "triton" or "cuda" is
    selected for a device for the first time, its results there are compared with those of "torch".
    `made_of` has functions that turn a module into a backend, for modules that are not one
    themselves, and `needs` the optional package that a backend requires.
    """

    def __init__(
        self,
        package: str,
        variable: str,
        results_on: Callable[[Any, torch.device], Sequence[Tensor]],
        made_of: Mapping[str, Callable[[Any], Any]] | None = None,
        needs: Mapping[str, str] | None = None,
        names: Sequence[str] = _NAMES,
    ) -> None:
        self._package, self.variable, self._results_on = package, variable, results_on
        self._made_of, self._needs = made_of or {}, needs or {}
        self._loaded: dict[str, Any] = {}
        self._names = tuple(names)
        self._gpu = next((name for name in self._names if name in _GPU), "")
        self._passed: dict[torch.device, bool] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module = importlib.import_module(f"{self._package}.{name}")
            self._loaded[name] = self._made_of.get(name, lambda x: x)(module)
        return self._loaded[name]

    @cached_property
    def _compiled(self) -> bool:
        return self["cpu"].kernel() is not None

    def _lacks(self, name: str) -> str:
        """Say what a backend lacks on this machine; empty if it runs."""
        if name == "cpu":
            return "" if self._compiled else "the compiled kernel (see `chonn info`)"
        if name in _GPU:
            interpreted = name == "triton" and _interprets_triton()
            if not (torch.cuda.is_available() or interpreted):
                return "a CUDA device"
            return self._gpu_lacks()
        package = self._needs.get(name)
        return "" if package is None or _installed(package) else f"`pip install {package}`"

    def _gpu_lacks(self) -> str:
        """Say what the backend for CUDA devices lacks beside one; empty if it runs."""
        return _lacks_triton() if self._gpu == "triton" else self[self._gpu].lacks()

    def available(self) -> tuple[str, ...]:
        """Names of the backends that run on this machine."""
        return tuple(name for name in self._names if not self._lacks(name))

    def check(self, device: torch.device) -> bool:
        """Compare, once a device, whether the GPU's kernels give what PyTorch gives, with one
        RuntimeWarning where they do not. While a CUDA graph is recorded nothing can be compared,
        and an unchecked device gets PyTorch."""
        if device not in self._passed:
            if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                return False
            self._passed[device] = True
            if reason := self._difference(device):
                self._reject(
                    device, f"the kernels of backend {self._gpu!r} fail their check", reason
                )
        return self._passed[device]

    def _reject(self, device: torch.device, what: str, reason: object) -> None:
        """Select PyTorch on a device from now on, with a warning."""
        self._passed[device] = False
        warnings.warn(
            f"{self._package}: {what} on {device}, the torch backend runs instead: {reason}",
            RuntimeWarning,
            stacklevel=3,
        )

    def _difference(self, device: torch.device) -> str:
        """Why the GPU's results are not those of PyTorch, or an empty string."""
        try:
            results = self._results_on(self[self._gpu], device)
        except Exception as failure:  # a compiler or a driver may raise anything
            return f"{type(failure).__name__}: {failure}"
        expected = self._results_on(self["torch"], device)
        for actual, right in zip(results, expected, strict=True):
            error = float((actual - right).abs().amax() / right.abs().amax())
            if not error <= _AGREE:
                return f"results differ by {error:.1e} of the largest"
        return ""

    def give_up(self, name: str, device: torch.device, failure: KernelError) -> None:
        """Select PyTorch on a device from now on, with a RuntimeWarning; raises the failure, a
        KernelError, if the caller asked for the backend that failed."""
        if name or os.environ.get(self.variable):
            raise failure
        self._reject(device, f"backend {self._gpu!r} fails", failure)

    def name_for(self, name: str, device: torch.device) -> str:
        """The forced backend (argument, then environment), else the fastest for the device.

        Called when the operator runs, so that an exported program selects by the machine it runs
        on.
        """
        forced = name or os.environ.get(self.variable, "")
        if not forced:  # queries CUDA for CUDA tensors only: a query may start its driver
            if self._passed.get(device):
                return self._gpu
            if device.type == "cpu":
                if self._compiled:
                    return "cpu"
                warn_of_fallback()
            if not self._gpu or device.type != "cuda":
                return "torch"
            if needed := self._gpu_lacks():
                _warn_without(self._package, needed)
                return "torch"
            return self._gpu if self.check(device) else "torch"
        lacks = self._lacks(forced) if forced in self._names else ""
        if lacks or forced not in self._names:
            why = f", which needs {lacks}" if lacks else ""
            raise ValueError(f"backend: expected one of {self.available()}, got {forced!r}{why}")
        if forced == "cpu" and device.type != "cpu":
            raise ValueError(f"backend 'cpu': expected tensors on the CPU, got {device}")
        interpreted = forced == "triton" and _interprets_triton()
        if forced in _GPU and device.type != "cuda" and not interpreted:
            raise ValueError(f"backend {forced!r}: expected tensors on a CUDA device, got {device}")
        return forced
