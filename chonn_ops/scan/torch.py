"""The scan in plain PyTorch for any device, a chunk of steps at a time.

The coefficients of a chunk are computed together; the recurrence then takes one fused multiply-add
a step. Chunks of `CHUNK` steps and slices of `_SLICE` states bound the extra memory, but for
checkpoints, by O(B L D) for any N. The backward starts from the forward's checkpoints and
recomputes the other states. `reverse` flips inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from chonn_ops.scan.reference import retention_and_weight, weight_slope
from chonn_ops.scan.walks import CHUNK

_SLICE = 16


def _chunks(steps: int) -> list[slice]:
    return [slice(k, min(k + CHUNK, steps)) for k in range(0, steps, CHUNK)]


def _slices(states: int) -> Iterator[slice]:
    return (slice(n, min(n + _SLICE, states)) for n in range(0, states, _SLICE))


def _flip(*tensors: Tensor) -> list[Tensor]:
    return [tensor.flip(1) for tensor in tensors]


def _solve(a: Tensor, x: Tensor, start: Tensor) -> Tensor:
    """``v_k = a_k v_{k-1} + x_k`` along dim 1 from `start`; overwrites `x`."""
    v = start
    for k in range(x.shape[1]):
        v = x[:, k].addcmul_(a[:, k], v)
    return x


def _advance(
    u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """States (B, S, D, n) of one chunk, with its retentions and weights."""
    retention, weight = retention_and_weight(delta[..., None], decay)
    inflow = weight * b[:, :, None, :] * u[..., None]
    return _solve(retention, inflow, start), retention, weight


def forward(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    reverse: bool,
    checkpoints: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """y (B, L, D) and the final state (B, D, N); writes states to `checkpoints` if given."""
    if reverse:
        u, delta, b, c = _flip(u, delta, b, c)
    y = torch.zeros_like(u) if d is None else d * u
    state = u.new_empty(u.shape[0], *decay.shape)
    state.copy_(torch.zeros_like(state) if initial_state is None else initial_state)
    for n in _slices(decay.shape[1]):
        for index, k in enumerate(_chunks(u.shape[1])):
            if checkpoints is not None:
                checkpoints[:, index, n] = state[..., n].mT
            v, _, _ = _advance(u[:, k], delta[:, k], decay[:, n], b[:, k, n], state[..., n])
            y[:, k] += (c[:, k, None, n] * v).sum(-1)
            state[..., n] = v[:, -1]
    return (y.flip(1) if reverse else y), state


def backward(
    grad_y: Tensor,
    grad_state: Tensor | None,
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    reverse: bool,
    checkpoints: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of the seven inputs, None where there is no input."""
    if reverse:
        grad_y, u, delta, b, c = _flip(grad_y, u, delta, b, c)
    rest = u.new_zeros(u.shape[0], *decay.shape)
    carried = rest if grad_state is None else grad_state.clone()
    grad_u = torch.zeros_like(u) if d is None else d * grad_y
    grad_delta, grad_decay = torch.zeros_like(u), torch.zeros_like(decay)
    grad_b, grad_c = torch.empty_like(b), torch.empty_like(c)
    for n in _slices(decay.shape[1]):
        for index, k in reversed(list(enumerate(_chunks(u.shape[1])))):
            start = checkpoints[:, index, n].mT
            u_k, b_k, grad_y_k = u[:, k, :, None], b[:, k, None, n], grad_y[:, k, :, None]
            delta_k, rates = delta[:, k, :, None], decay[:, n]
            v, retention, weight = _advance(u[:, k], delta[:, k], rates, b[:, k, n], start)
            grad_c[:, k, n] = (grad_y_k * v).sum(2)
            before = torch.cat([start[:, None], v[:, :-1]], dim=1)
            # The adjoint runs backwards, and its retention is that of the step after.
            after = torch.cat([torch.ones_like(v[:, :1]), retention[:, 1:].flip(1)], dim=1)
            g = _solve(after, (c[:, k, None, n] * grad_y_k).flip(1), carried[..., n]).flip(1)
            g_before = retention * g
            carried[..., n] = g_before[:, 0]
            grad_b[:, k, n] = (g * weight * u_k).sum(2)
            grad_u[:, k] += (g * weight * b_k).sum(-1)
            grad_delta[:, k] += (g_before * (b_k * u_k - rates * before)).sum(-1)
            slope = weight_slope(delta_k, rates, retention, weight)
            grad_decay[:, n] -= (g_before * delta_k * before + g * b_k * u_k * slope).sum((0, 1))
    if reverse:
        grad_u, grad_delta, grad_b, grad_c = _flip(grad_u, grad_delta, grad_b, grad_c)
    return (
        *(grad_u, grad_delta, grad_decay, grad_b, grad_c),
        None if d is None else (grad_y * u).sum((0, 1)),
        None if initial_state is None else carried,
    )
