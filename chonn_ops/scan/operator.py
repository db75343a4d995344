"""The `torch.library` operators behind the scans: a forward, its backward, any backend.

A backend is anything with these two, on fields (B, P, C) with the grid flattened::

    forward(u, delta, decay, b, c, d, initial_state, walks, termination, checkpoints) -> (y, state)
    backward(grad_y, grad_state, u, delta, decay, b, c, d, initial_state, walks, termination,
             checkpoints) -> gradients of u, delta, decay, b, c, d, initial_state (None: absent)

with `walks` from `chonn_ops.scan._walks`, `y` the mean over the walks of their readouts plus
``d * u``, and `checkpoints` None where no backward will come. Inputs come in the caller's dtypes;
results go out in any. `initial_state` and `grad_state` come with one-walk plans only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import Backends
from chonn_ops._dtypes import compute_dtype
from chonn_ops.scan import cpu
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


def _plan(u: Tensor, grid: Sequence[int], directions: str, reverse: bool) -> tuple[Any, ...]:
    """Walks that stay within u: backends trust them with addresses."""
    if math.prod(grid) != u.shape[1]:
        raise ValueError(f"grid: expected a product of {u.shape[1]}, got {tuple(grid)}")
    return plan(tuple(grid), directions, reverse)


def _kept(u: Tensor, decay: Tensor, grid: Sequence[int], directions: str) -> int:
    """Elements of the checkpoints: by device, not by backend, which is chosen only at run time.

    The compiled kernel has no use for those of short lines; on the CPU, other backends make their
    own when the backward comes.
    """
    if u.device.type == "cpu" and walks_whole_lines(grid, directions):
        return 0
    return checkpoint_numel(u.shape[0], grid, directions, *decay.shape)


def _scan(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    grid: Sequence[int],
    directions: str,
    reverse: bool,
    termination: str,
    backend: str,
    passive: bool = True,
    keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output (B, P, D), final state (B, D, N), and what the backward starts from.

    The state is empty but for "raster"; what the backward starts from is empty unless `keep`.
    """
    if passive:
        check_decay(decay)
    walks = _plan(u, grid, directions, reverse)
    dtype = compute_dtype(u, delta, decay, b, c, d, initial_state)
    inputs = (u, delta, within_range(decay, dtype), b, c, d, initial_state)
    checkpoints = u.new_empty(_kept(u, decay, grid, directions) if keep else 0, dtype=dtype)
    with torch.autocast(u.device.type, enabled=False):
        y, state = BACKENDS.choose(backend, u.device).forward(
            *inputs, walks, termination, checkpoints if checkpoints.numel() else None
        )
    if directions != "raster":
        state = u.new_empty(0)
    return y.to(u.dtype), state.to(dtype), checkpoints


torch.library.impl(_SCAN, "default", _scan)


@torch.library.register_fake(_SCAN)
def _(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    grid: Sequence[int],
    directions: str,
    reverse: bool,  # noqa: ARG001
    termination: str,  # noqa: ARG001
    backend: str,  # noqa: ARG001
    passive: bool = True,  # noqa: ARG001
    keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(u, delta, decay, b, c, d, initial_state)
    size = _kept(u, decay, grid, directions) if keep else 0
    return (
        u.new_empty(u.shape),
        u.new_empty((u.shape[0], *decay.shape) if directions == "raster" else (0,), dtype=dtype),
        u.new_empty(size, dtype=dtype),
    )


def _scan_backward(
    grad_y: Tensor,
    grad_state: Tensor | None,
    checkpoints: Tensor,
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    grid: Sequence[int],
    directions: str,
    reverse: bool,
    termination: str,
    backend: str,
    passive: bool = True,  # noqa: ARG001 - only derivatives of gradients ask
) -> tuple[Tensor, ...]:
    """Gradients of the seven inputs; empty for an absent d or initial_state."""
    walks = _plan(u, grid, directions, reverse)
    given = (u, delta, decay, b, c, d, initial_state)
    inputs = (u, delta, within_range(decay, checkpoints.dtype), b, c, d, initial_state)
    if directions != "raster":  # the state that went out was empty
        grad_state = None
    implementation = BACKENDS.choose(backend, u.device)
    with torch.autocast(u.device.type, enabled=False):
        if not checkpoints.numel() and implementation is not cpu:
            size = checkpoint_numel(u.shape[0], grid, directions, *decay.shape)
            checkpoints = checkpoints.new_empty(size)
            implementation.forward(*inputs, walks, termination, checkpoints)
        grads = implementation.backward(
            grad_y, grad_state, *inputs, walks, termination, checkpoints
        )
    return tuple(
        u.new_empty(0) if x is None else grad.to(x.dtype)
        for grad, x in zip(grads, given, strict=True)
    )


torch.library.impl(_SCAN_BACKWARD, "default", _scan_backward)


@torch.library.register_fake(_SCAN_BACKWARD)
def _(
    grad_y: Tensor,  # noqa: ARG001
    grad_state: Tensor | None,  # noqa: ARG001
    checkpoints: Tensor,  # noqa: ARG001
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    grid: Sequence[int],  # noqa: ARG001
    directions: str,  # noqa: ARG001
    reverse: bool,  # noqa: ARG001
    termination: str,  # noqa: ARG001
    backend: str,  # noqa: ARG001
    passive: bool = True,  # noqa: ARG001
) -> tuple[Tensor, ...]:
    return tuple(
        u.new_empty(0) if x is None else x.new_empty(x.shape)
        for x in (u, delta, decay, b, c, d, initial_state)
    )
