"""The backend "cpu": the compiled kernel, with one call for each walk, which adds to the outputs.

One call scans short lines in both directions. The kernel widens bfloat16 and float16 streams as it
reads them, and writes float32 or float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.scan.arguments import Inputs
from chonn_ops.scan.cpu.binding import Call, available_isas
from chonn_ops.scan.walks import LINE, MIRROR, Walk, run_walks, split_checkpoints

__all__ = ["available_isas", "backward", "forward"]


def _mean_readout(c: Tensor, walks: tuple[Walk, ...], dtype: torch.dtype) -> Tensor:
    """c divided by the number of walks, so that the sum of the readouts is their mean."""
    return c if len(walks) == 1 else c.to(dtype) / len(walks)


def _pairs(walks: tuple[Walk, ...]) -> bool:
    """Whether the kernel scans each line in both directions at once: short lines only."""
    return len(walks) > 1 and max(walk.length for walk in walks) <= LINE


def forward(
    inputs: Inputs,
    walks: tuple[Walk, ...],
    boundary: str,
    checkpoints: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Output (B, P, D) and, for one-walk plans, the final states (B, D, N)."""
    u, delta, decay, b, c, d, initial_state = inputs
    dtype = compute_dtype(*inputs)
    call = Call(u, decay, d, dtype, walks)
    (B, _, D), N = u.shape, decay.shape[1]
    y = call.empty(*u.shape)
    call.stream(u=u, delta=delta, b=b, c=_mean_readout(c, walks, dtype), y=y)
    if _pairs(walks):
        call.run_pairs("forward", walks, boundary)
        return y, call.empty(0)
    parts = split_checkpoints(checkpoints, B, walks, D, N)

    def run(index: int, walk: Walk, start: Tensor | None) -> Tensor | None:
        wanted = index == len(walks) - 1 or boundary in MIRROR
        state = call.empty(B * walk.line_count, D, N) if wanted else None
        call.set(initial_state=start, state=state, checkpoints=parts[index])
        call.run("forward", walk, boundary, index > 0)
        return state

    return y, run_walks(walks, boundary, initial_state, run)


def backward(
    grad_y: Tensor,
    grad_state: Tensor | None,
    inputs: Inputs,
    walks: tuple[Walk, ...],
    boundary: str,
    checkpoints: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of the inputs (None where the input is)."""
    u, delta, decay, b, c, d, initial_state = inputs
    dtype = checkpoints.dtype
    call = Call(u, decay, d, dtype, walks)
    (B, P, D), N = u.shape, decay.shape[1]
    grad_u, grad_delta = call.empty(B, P, D), call.empty(B, P, D)
    # PyTorch refuses tangents of outputs that are parts of other tensors.
    groups = () if call.groups == 1 else (call.groups,)
    grad_b, grad_c = (call.empty(*groups, B, P, N) for _ in range(2))
    # Each thread has sums of its own, for each block of channels.
    grad_decay = torch.zeros(call.threads, call.blocks, N, call.lanes, dtype=dtype)
    grad_d = torch.zeros(call.threads, call.blocks, call.lanes, dtype=dtype)
    call.stream(u=u, delta=delta, b=b, c=_mean_readout(c, walks, dtype), grad_y=grad_y)
    call.stream(grad_u=grad_u, grad_delta=grad_delta, grad_b=grad_b, grad_c=grad_c)
    call.set(grad_decay=grad_decay, grad_d=grad_d)
    grad_start = None
    if _pairs(walks):
        call.run_pairs("backward", walks, boundary)
    else:
        parts = split_checkpoints(checkpoints, B, walks, D, N)

        def run(index: int, walk: Walk, grad_end: Tensor | None) -> Tensor:
            grad_start = call.empty(B * walk.line_count, D, N)
            call.set(grad_state=grad_end, grad_initial_state=grad_start, checkpoints=parts[index])
            call.run("backward", walk, boundary, index < len(walks) - 1)
            return grad_start

        grad_start = run_walks(walks, boundary, grad_state, run, adjoint=True)
    if groups:
        grad_b, grad_c = grad_b.sum(0), grad_c.sum(0)
    if len(walks) > 1:
        grad_c /= len(walks)
    return (
        *(grad_u, grad_delta),
        grad_decay.sum(0).mT.reshape(-1, N)[:D].clone(memory_format=torch.contiguous_format),
        *(grad_b, grad_c),
        None if d is None else grad_d.sum(0).flatten()[:D].clone(),
        None if initial_state is None else grad_start,
    )
