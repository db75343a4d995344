"""What is computed again in the backward pass, because keeping it would take too much memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Below so many elements recomputation is switched off: a batch keeps a few MiB at most. On a GPU
# recomputation also launches kernels again, and a launch takes as long as many elements.
RECOMPUTE_FROM, ON_GPU = 2**19, 2**5


def is_large(field: Tensor) -> bool:
    """Whether to compute again in the backward pass what would take as much memory as a field."""
    return field.numel() >= RECOMPUTE_FROM * (1 if field.device.type == "cpu" else ON_GPU)


def recomputed(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function; for large fields autograd keeps its arguments only and calls it again in the
    backward pass.

    Everything the function depends on must be an argument: a module's attributes may have other
    values in the backward pass (`torch.func.functional_call`).

    Compilers choose themselves what to keep, and reverse mode under `torch.func` does not support
    checkpoints: there this is a plain call.
    """
    if (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or not torch.is_grad_enabled()
        or not is_large(args[0])
    ):
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
