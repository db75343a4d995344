"""Memory for time: values that the backward pass computes again instead of keeping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

# Elements from which memory is worth the time: below, all that a batch keeps is a few MiB.
LEAST = 2**19


def recomputed(function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns; of large fields autograd keeps the arguments alone.

    All that it depends on is an argument: attributes of a module may be others in the backward
    (`torch.func.functional_call`).

    Compilers choose themselves what to keep, and reverse mode under `torch.func` has no hooks for
    it: there it is a plain call.
    """
    if (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or not torch.is_grad_enabled()
        or args[0].numel() < LEAST
    ):
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
