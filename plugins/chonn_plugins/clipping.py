"""Clips spikes of gradients, in the optimiser and nowhere in a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

# Limits of 1 to 1.5 and longer memories trained no better at 1e-2 and 2e-2.
MOST, MEMORY = 2.0, 0.9
USUAL = "usual_norm"


def clip_gradients(optimizer: Optimizer) -> None:
    """Let every step of an optimiser clip the gradient of each parameter to twice its usual norm.

    The first steps at a large rate overshoot, and gradients are a hundred times as large as later.
    Adam divides its steps by a mean that remembers them for a thousand steps, often for the rest of
    the training (adaptive clipping: Seetharaman et al., "AutoClip", MLSP 2020).

    The step clips the gradients that it is about to use: those of several processes are averaged by
    then, those of several backward passes summed, those of a `GradScaler` unscaled. The usual norm
    is the running mean over the last ten steps or so. It is part of the optimiser's state, so
    a training that loads the optimiser's state dict continues with it.

    Parameters
    ----------
    optimizer : Optimizer
        Each call registers two hooks on it; models are left unchanged. PyTorch copies and pickles
        optimisers without their hooks.

    Raises
    ------
    ValueError
        By a step that has no gradients to clip when it begins: one with a closure, and that of a
        fused optimiser with a `GradScaler`, unless the scaler's ``unscale_`` was called before.

    Examples
    --------
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    >>> clip_gradients(optimizer)
    """
    optimizer.register_step_pre_hook(_clip)
    # Adam takes a parameter that has any state for one that it has initialised, so the norm of the
    # first gradient is stored after the first step.
    optimizer.register_step_post_hook(_remember)


@torch.no_grad()
def _clip(optimizer: Optimizer, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    if any(callable(word) for word in (*args[1:], keywords.get("closure"))):
        raise ValueError("clip_gradients: expected gradients before the step, got a closure")
    # A `GradScaler` sets this for an optimiser that unscales inside the step.
    if getattr(optimizer, "grad_scale", None) is not None:
        raise ValueError(
            "clip_gradients: expected unscaled gradients; call the scaler's unscale_(optimizer) "
            "before its step, since this optimizer is fused"
        )
    for gradient, state in _gradients(optimizer):
        if USUAL not in state:
            continue
        norm, most = _norm(gradient), MOST * state[USUAL]
        # A usual norm of 0 is that of a parameter which nothing depended on so far.
        large = (norm > most) & (most > 0) & norm.isfinite()
        part: Tensor = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        part.mul_(torch.where(large, most / norm, 1).to(part.dtype))


@torch.no_grad()
def _remember(optimizer: Optimizer, *_: Any) -> None:
    for gradient, state in _gradients(optimizer):
        norm = _norm(gradient)
        usual = state.get(USUAL, torch.zeros_like(norm))
        mean = torch.where(usual > 0, MEMORY * usual + (1 - MEMORY) * norm, norm)
        state[USUAL] = torch.where(norm.isfinite(), mean, usual)


def _gradients(optimizer: Optimizer) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield parameter.grad, optimizer.state[parameter]


def _norm(gradient: Tensor) -> Tensor:
    size = gradient.abs() if gradient.is_complex() else gradient
    precise = torch.promote_types(size.dtype, torch.float32)
    norm = torch.linalg.vector_norm(size, dtype=precise)
    # FSDP2 leaves each process a shard of the gradient; all of them need the norm of the whole.
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
