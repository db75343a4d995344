"""Functions that `torch.compile` puts into graphs whole, because it does not trace forward mode.

``_in_graph.apply_network`` is `apply_network`, allowed in graphs. To allow it imports PyTorch's
compiler, which takes a second, so this happens when a compiler looks the name up.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

_HOMES = {
    "apply_network": "chonn_ops.network.solve.autograd",
    "apply_potentials": "chonn_ops.network.solve.derivatives",
}


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(importlib.import_module(_HOMES[name]), name)
    return torch.compiler.allow_in_graph(function)  # pyright: ignore[reportReturnType]
