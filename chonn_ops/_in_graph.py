"""Functions that `torch.compile` puts into graphs whole, because it does not trace forward mode, or
at which it breaks its graph.

``_in_graph.apply_network`` is `apply_network`, allowed in graphs. To allow it imports PyTorch's
compiler, which takes a second, so this happens when a compiler looks the name up.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])

_HOMES = {
    "apply_network": "chonn_ops.network.solve.autograd",
    "apply_potentials": "chonn_ops.network.solve.derivatives",
}


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(importlib.import_module(_HOMES[name]), name)
    return torch.compiler.allow_in_graph(function)  # pyright: ignore[reportReturnType]


def uncompiled(function: F) -> F:
    """Break the graph of `torch.compile` at a function that makes no tensors, or uses NumPy."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # As a decorator, `torch.compiler.disable` would import PyTorch's compiler with the module.
        disable: Any = torch.compiler.disable
        return (disable(function) if torch.compiler.is_compiling() else function)(*args, **kwargs)

    return call  # pyright: ignore[reportReturnType]
