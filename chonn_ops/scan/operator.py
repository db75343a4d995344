"""The `torch.library` operators of the scans, forward and backward, for all backends.

A backend has these two functions, on fields (B, P, C) with the grid flattened::

    forward(inputs, walks, boundary, checkpoints) -> (y, state)
    backward(grad_y, grad_state, inputs, walks, boundary, checkpoints)
        -> gradients of the seven inputs (None: absent)

`inputs` is defined in `chonn_ops.scan.arguments` and `walks` in `chonn_ops.scan.walks`. `y` is the
mean of the walks' readouts plus ``d * u``. `checkpoints` is None where no backward follows. Inputs
have the caller's dtypes; results may have any dtype. `initial_state` and `grad_state` are passed
with one-walk plans only.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import Backends, KernelError
from chonn_ops._dtypes import compute_dtype, without_autocast
from chonn_ops.checks import check_not_negative
from chonn_ops.scan import cpu
from chonn_ops.scan._lines import OverLines
from chonn_ops.scan.arguments import Inputs, Modes, check_decay, split
from chonn_ops.scan.walks import checkpoint_numel, checkpoint_steps, walks_of, walks_whole_lines


def _small_results(backend: Any, device: torch.device) -> tuple[Tensor, ...]:
    """Outputs and gradients of a small scan along both axes of a plane."""
    B, H, W, D, N = 2, 5, 20, 40, 16

    def wave(*shape: int) -> Tensor:
        numbers = torch.linspace(1, 7, math.prod(shape), dtype=torch.float32, device=device)
        return numbers.reshape(shape).sin()

    inputs = Inputs(
        wave(B, H * W, D),
        0.3 + wave(B, H * W, D).square(),
        0.2 + wave(D, N).square(),
        wave(B, H * W, N),
        wave(B, H * W, N).flip(1),
        wave(D),
        None,
    )
    walks = walks_of((H, W), "axial", False)
    size = checkpoint_numel(B, (H, W), "axial", D, N, checkpoint_steps(device.type))
    checkpoints = inputs.u.new_empty(size)
    y, _ = backend.forward(inputs, walks, "matched", checkpoints)
    grads = backend.backward(wave(*y.shape), None, inputs, walks, "matched", checkpoints)
    return (y, *(grad for grad in grads if grad is not None))


BACKENDS = Backends(
    "chonn_ops.scan",
    "CHONN_SCAN_BACKEND",
    made_of={"reference": partial(OverLines, truth=True), "torch": OverLines},
    names=("reference", "torch", "cpu", "cuda"),
    results_on=_small_results,
)

_INPUTS = (
    "Tensor u, Tensor delta, Tensor decay, Tensor b, Tensor c, Tensor? d, Tensor? initial_state, "
    "SymInt[] grid, str directions, bool reverse, str boundary, str backend"
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
    """The names that `backend` accepts on this machine.

    "cpu" needs the compiled kernel. "cuda" needs a CUDA device and NVRTC, which comes with PyTorch.
    """
    return BACKENDS.available()


def _plan(u: Tensor, modes: Modes) -> tuple[Any, ...]:
    """The walks, after a check that their positions are in u; backends do not check addresses."""
    if math.prod(modes.grid) != u.shape[1]:
        raise ValueError(f"grid: expected a product of {u.shape[1]}, got {tuple(modes.grid)}")
    return walks_of(tuple(modes.grid), modes.directions, modes.reverse)


def _checkpoint_numel(u: Tensor, decay: Tensor, modes: Modes) -> int:
    every, (D, N) = checkpoint_steps(u.device.type), decay.shape
    return checkpoint_numel(u.shape[0], modes.grid, modes.directions, D, N, every)


def _kept(u: Tensor, decay: Tensor, modes: Modes) -> int:
    """The number of elements of the checkpoints.

    It depends on the device and not on the backend, which is selected at run time. The compiled
    kernel needs no checkpoints for short lines; on the CPU the other backends then recompute theirs
    in the backward.
    """
    on_cpu = u.device.type == "cpu"
    if not modes.keep or (on_cpu and walks_whole_lines(modes.grid, modes.directions)):
        return 0
    return _checkpoint_numel(u, decay, modes)


def _implementation(u: Tensor, decay: Tensor, modes: Modes) -> Any:
    """The backend: the requested one, else the device's, or PyTorch if that takes fewer states."""
    found = BACKENDS[BACKENDS.name_for(modes.backend, u.device)]
    if not modes.backend and decay.shape[1] > getattr(found, "MOST_STATES", decay.shape[1]):
        return BACKENDS["torch"]
    return found


def _scan(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Output (B, P, D), final state (B, D, N) and checkpoints.

    The state is empty unless the directions are "raster"; the checkpoints are empty unless `keep`.
    """
    inputs, modes = split(arguments)
    u, decay = inputs.u, inputs.decay
    if u.is_cpu:  # elsewhere no values are read
        check_not_negative("delta", inputs.delta)
        if modes.passive:
            check_decay(decay)
    walks = _plan(u, modes)
    dtype = compute_dtype(*inputs)
    size = _kept(u, decay, modes)
    checkpoints = u.new_empty(size, dtype=dtype)
    kept = checkpoints if size else None
    with without_autocast(u):
        try:
            y, state = _implementation(u, decay, modes).forward(inputs, walks, modes.boundary, kept)
        except KernelError as failure:
            BACKENDS.give_up(modes.backend, u.device, failure)
            y, state = BACKENDS["torch"].forward(inputs, walks, modes.boundary, kept)
    if modes.directions != "raster":
        state = u.new_empty(0)
    y = y if y.dtype == u.dtype else y.to(u.dtype)
    return y, state if state.dtype == dtype else state.to(dtype), checkpoints


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
    inputs, modes = split(arguments)
    u, decay = inputs.u, inputs.decay
    walks = _plan(u, modes)
    implementation = _implementation(u, decay, modes)
    needless = implementation is cpu and walks_whole_lines(modes.grid, modes.directions)
    with without_autocast(u):
        if not checkpoints.numel() and not needless:
            checkpoints = checkpoints.new_empty(_checkpoint_numel(u, decay, modes))
            implementation.forward(inputs, walks, modes.boundary, checkpoints)
        grads = implementation.backward(
            grad_y, grad_state, inputs, walks, modes.boundary, checkpoints
        )
    return tuple(
        u.new_empty(0) if x is None else grad.to(x.dtype)
        for grad, x in zip(grads, inputs, strict=True)
    )


torch.library.impl(_SCAN_BACKWARD, "default", _scan_backward)


@torch.library.register_fake(_SCAN_BACKWARD)
def _(*arguments: Any) -> tuple[Tensor, ...]:
    inputs, _ = split(arguments[3:])  # after grad_y, grad_state and checkpoints
    return tuple(inputs.u.new_empty(0) if x is None else x.new_empty(x.shape) for x in inputs)
