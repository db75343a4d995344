"""The selective Kirchhoff scan, step by step in float64: the reference for every backend.

============  ======================  ===========================================================
here          paper                   meaning
============  ======================  ===========================================================
``v``         :math:`v_k`             latent potential (state), one for each channel and state
``u``         :math:`u_k`             input of the cell
``y``         :math:`y_k`             output of the cell, eq. 32
``delta``     :math:`\\Delta_k`        time step, positive (softplus), eq. 33
``decay``     :math:`\\lambda`         decay rate, positive, eq. 34
``retention`` :math:`\\bar\\alpha_k`    exp(-Delta_k lambda), eq. 34
``weight``    :math:`\\bar\\beta_k/b_k` (1 - exp(-Delta_k lambda)) / lambda, same equation
``b``         :math:`b_k`             injection coefficient, eq. 33
``c``         :math:`c_k`             readout coefficient, eq. 33
``d``         :math:`d`               skip from input to output, eq. 32
============  ======================  ===========================================================

One step is eq. 32, with the N states of a channel summed in the readout::

    v_k = retention_k * v_{k-1} + weight_k * b_k * u_k
    y_k = sum_n c_k * v_k + d * u_k

Equation numbers are those of the CHONN paper. `forward` is plain differentiable PyTorch; `backward`
is its adjoint, written by hand because autograd of the weight cancels at small ``delta * decay``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_SMALL = 0.25
_SERIES = tuple((-1) ** k * (k + 1) / math.factorial(k + 2) for k in range(10))


def retention_and_weight(delta: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """``exp(-z)`` and ``(1 - exp(-z)) / decay`` for ``z = delta * decay``.

    ``expm1`` keeps the weight right from ``z`` = 1e-12, where it tends to `delta`, to 1e4, where
    it is ``1 / decay``.
    """
    z = delta * decay
    return torch.exp(-z), -torch.expm1(-z) / decay


def weight_slope(delta: Tensor, decay: Tensor, retention: Tensor, weight: Tensor) -> Tensor:
    """Minus the weight's derivative by `decay`: ``(weight - delta * retention) / decay``.

    Below ``|z| = |delta * decay| = 0.25`` that difference cancels, and the Taylor series of
    ``(1 - (1 + z) exp(-z)) / z**2`` times ``delta**2`` takes over (relative error below 1e-13).
    """
    z = delta * decay
    series = torch.full_like(z, _SERIES[-1])
    for coefficient in _SERIES[-2::-1]:
        series = series * z + coefficient
    return torch.where(
        z.abs() < _SMALL, delta * delta * series, (weight - delta * retention) / decay
    )


def _order(steps: int, reverse: bool) -> list[int]:
    return list(range(steps - 1, -1, -1)) if reverse else list(range(steps))


def _states(
    u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, initial_state: Tensor | None, reverse: bool
) -> tuple[Tensor, list[Tensor]]:
    """The initial state and the state after each step, in scan order."""
    start = u.new_zeros(u.shape[0], *decay.shape) if initial_state is None else initial_state
    v, states = start, []
    for k in _order(u.shape[1], reverse):
        retention, weight = retention_and_weight(delta[:, k, :, None], decay)
        v = retention * v + weight * b[:, k, None, :] * u[:, k, :, None]
        states.append(v)
    return start, states


def forward(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    initial_state: Tensor | None = None,
    reverse: bool = False,
    checkpoints: Tensor | None = None,  # noqa: ARG001 - the backward recomputes the states
) -> tuple[Tensor, Tensor]:
    """Output (B, L, D) and final state (B, D, N)."""
    _, states = _states(u, delta, decay, b, initial_state, reverse)
    order = _order(u.shape[1], reverse)
    y = [(c[:, k, None, :] * v).sum(-1) for k, v in zip(order, states, strict=True)]
    out = torch.stack(y[::-1] if reverse else y, dim=1)
    return out if d is None else out + d * u, states[-1].clone()


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
    checkpoints: Tensor | None = None,  # noqa: ARG001
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of u, delta, decay, b, c, d and initial_state (None where the input is)."""
    start, states = _states(u, delta, decay, b, initial_state, reverse)
    befores = [start, *states[:-1]]
    grad_u = torch.zeros_like(u) if d is None else d * grad_y
    grad_delta, grad_decay = torch.zeros_like(u), torch.zeros_like(decay)
    grad_b, grad_c = torch.zeros_like(b), torch.zeros_like(c)
    carried = torch.zeros_like(start) if grad_state is None else grad_state
    walk = list(zip(_order(u.shape[1], reverse), befores, states, strict=True))
    for k, before, v in reversed(walk):
        step, u_k, b_k = delta[:, k, :, None], u[:, k, :, None], b[:, k, None, :]
        retention, weight = retention_and_weight(step, decay)
        g = carried + c[:, k, None, :] * grad_y[:, k, :, None]
        carried = retention * g
        grad_c[:, k] = (grad_y[:, k, :, None] * v).sum(1)
        grad_b[:, k] = (g * weight * u_k).sum(1)
        grad_u[:, k] += (g * weight * b_k).sum(-1)
        grad_delta[:, k] = (carried * (b_k * u_k - decay * before)).sum(-1)
        slope = weight_slope(step, decay, retention, weight)
        grad_decay -= (carried * step * before + g * b_k * u_k * slope).sum(0)
    grad_d = None if d is None else (grad_y * u).sum((0, 1))
    return (
        *(grad_u, grad_delta, grad_decay, grad_b, grad_c, grad_d),
        None if initial_state is None else carried,
    )
