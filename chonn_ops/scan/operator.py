"""The `torch.library` operators behind the scans: a forward, its backward, any backend.

A backend is anything with these two, on fields (B, P, C) with the grid flattened::

    forward(inputs, walks, termination, checkpoints) -> (y, state)
    backward(grad_y, grad_state, inputs, walks, termination, checkpoints)
        -> gradients of the seven inputs (None: absent)

with `inputs` of `chonn_ops.scan._arguments`, `walks` from `chonn_ops.scan._walks`, `y` the mean
over the walks of their readouts plus ``d * u``, and `checkpoints` None where no backward will come.
Inputs come in the caller's dtypes; results go out in any. `initial_state` and `grad_state` come
with one-walk plans only.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import Backends
from chonn_ops._dtypes import compute_dtype
from chonn_ops.scan import cpu
from chonn_ops.scan._arguments import Modes, split
from chonn_ops.scan._checks import check_decay, within_range
from chonn_ops.scan._lines import OverLines
from chonn_ops.scan._walks import checkpoint_numel, plan, walks_whole_lines

BACKENDS = Backends(
    "chonn_ops.scan",
    "CHONN_SCAN_BACKEND",
    made_of={"reference": partial(OverLines, truth=True), "torch": OverLines},
)

_INPUTS = (
    "Tensor u, Tensor delta, Tensor decay, Tensor b, Tensor c, Tensor? d, Tensor? initial_state, "
    "SymInt[] grid, str directions, bool reverse, str termination, str backend"
)

_SCAN, _SCAN_BACKWARD = "chonn_ops::kirchhoff_scan", "chonn_ops::kirchhoff_scan_backward"
torch.library.define(
    _SCAN,
    f"({_INPUTS}, bool passive=True, bool keep=False) -> (Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
torch.library.define(
    _SCAN_BACKWARD,
    f"(Tensor grad_y, Tensor? grad_state, Tensor checkpoints, {_INPUTS}, bool passive=True) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


def available_backends() -> tuple[str, ...]:
    """Names the scans take as `backend` here.

    "cpu" needs the compiled kernel; "triton" needs Triton with CUDA, or with its interpreter
    (``TRITON_INTERPRET=1``), which also takes tensors on the CPU.
    """
    return BACKENDS.available()


def _plan(u: Tensor, modes: Modes) -> tuple[Any, ...]:
    """Walks that stay within u: backends trust them with addresses."""
    if math.prod(modes.grid) != u.shape[1]:
        raise ValueError(f"grid: expected a product of {u.shape[1]}, got {tuple(modes.grid)}")
    return plan(tuple(modes.grid), modes.directions, modes.reverse)


def _kept(u: Tensor, decay: Tensor, modes: Modes) -> int:
    """Elements of the checkpoints: by device, not by backend, which is chosen only at run time.

    The compiled kernel has no use for those of short lines; on the CPU, other backends make their
    own when the backward comes.
    """
    on_cpu = u.device.type == "cpu"
    if not modes.keep or (on_cpu and walks_whole_lines(modes.grid, modes.directions)):
        return 0
    return checkpoint_numel(u.shape[0], modes.grid, modes.directions, *decay.shape)


def _scan(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Output (B, P, D), final state (B, D, N), and what the backward starts from.

    The state is empty but for "raster"; what the backward starts from is empty unless `keep`.
    """
    inputs, modes = split(arguments)
    u, decay = inputs.u, inputs.decay
    if modes.passive:
        check_decay(decay)
    walks = _plan(u, modes)
    dtype = compute_dtype(*inputs)
    inputs = inputs._replace(decay=within_range(decay, dtype))
    checkpoints = u.new_empty(_kept(u, decay, modes), dtype=dtype)
    with torch.autocast(u.device.type, enabled=False):
        y, state = BACKENDS.choose(modes.backend, u.device).forward(
            inputs, walks, modes.termination, checkpoints if checkpoints.numel() else None
        )
    if modes.directions != "raster":
        state = u.new_empty(0)
    return y.to(u.dtype), state.to(dtype), checkpoints


torch.library.impl(_SCAN, "default", _scan)


@torch.library.register_fake(_SCAN)
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs, modes = split(arguments)
    u, decay, dtype = inputs.u, inputs.decay, compute_dtype(*inputs)
    state = (u.shape[0], *decay.shape) if modes.directions == "raster" else (0,)
    return (
        u.new_empty(u.shape),
        u.new_empty(state, dtype=dtype),
        u.new_empty(_kept(u, decay, modes), dtype=dtype),
    )


def _scan_backward(
    grad_y: Tensor, grad_state: Tensor | None, checkpoints: Tensor, *arguments: Any
) -> tuple[Tensor, ...]:
    """Gradients of the seven inputs; empty for an absent d or initial_state."""
    given, modes = split(arguments)
    u, decay = given.u, given.decay
    walks = _plan(u, modes)
    inputs = given._replace(decay=within_range(decay, checkpoints.dtype))
    if modes.directions != "raster":  # the state that went out was empty
        grad_state = None
    implementation = BACKENDS.choose(modes.backend, u.device)
    with torch.autocast(u.device.type, enabled=False):
        if not checkpoints.numel() and implementation is not cpu:
            size = checkpoint_numel(u.shape[0], modes.grid, modes.directions, *decay.shape)
            checkpoints = checkpoints.new_empty(size)
            implementation.forward(inputs, walks, modes.termination, checkpoints)
        grads = implementation.backward(
            grad_y, grad_state, inputs, walks, modes.termination, checkpoints
        )
    return tuple(
        u.new_empty(0) if x is None else grad.to(x.dtype)
        for grad, x in zip(grads, given, strict=True)
    )


torch.library.impl(_SCAN_BACKWARD, "default", _scan_backward)


@torch.library.register_fake(_SCAN_BACKWARD)
def _(*arguments: Any) -> tuple[Tensor, ...]:
    inputs, _ = split(arguments[3:])  # behind grad_y, grad_state and checkpoints
    return tuple(inputs.u.new_empty(0) if x is None else x.new_empty(x.shape) for x in inputs)
