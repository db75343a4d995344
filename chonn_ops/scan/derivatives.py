"""The scan in PyTorch operations, for all derivatives but the first one in reverse mode.

PyTorch differentiates it to any order. It stores all states, (B, L, D, N) a walk, so it costs the
memory and time that the kernels save.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from chonn_ops._dtypes import compute_dtype, without_autocast
from chonn_ops.scan._lines import scan_fields
from chonn_ops.scan.arguments import Inputs, Modes
from chonn_ops.scan.walks import walks_of

_GROUP = 8  # steps of a group; a group's steps are sequential, the groups run in parallel
_GAUSS = [((x + 1) / 2, w / 2) for x, w in np.stack(np.polynomial.legendre.leggauss(8), 1).tolist()]


def _weight(delta: Tensor, decay: Tensor) -> Tensor:
    r"""``(1 - exp(-z)) / decay = delta \int_0^1 exp(-z s) ds``, ``z = delta * decay``.

    Derivatives of the closed form cancel at small z, the more the higher their order; those of the
    integral do not. Gauss' rule has an error of 1e-16 at the z where it is used.
    """
    z = delta * decay
    small = z.abs() < 2
    near = torch.where(small, z, 0.0)
    integral = sum(share * torch.exp(near * -node) for node, share in _GAUSS)
    # The branch that is not selected needs a finite slope: 0 times infinity is NaN. PyTorch's
    # derivative of `expm1` is the rounded result plus 1.
    rate = torch.where(small, 1.0, decay)
    return torch.where(small, delta * integral, (1 - torch.exp(-delta * rate)) / rate)


def _recurrence(a: Tensor, x: Tensor, start: Tensor, group: int) -> Tensor:
    """``v_k = a_k v_{k-1} + x_k`` along dim 1 from `start`.

    Groups of steps run in parallel from rest. The states that enter the groups follow from a
    recurrence over groups.
    """
    steps = x.shape[1]
    if steps <= group:
        v, states = start, []
        for a_k, x_k in zip(a.unbind(1), x.unbind(1), strict=True):
            v = torch.addcmul(x_k, a_k, v)
            states.append(v)
        return torch.stack(states, 1)
    rest = (0, 0, 0, 0, 0, -steps % group)
    a = F.pad(a, rest, value=1.0).unflatten(1, (-1, group))
    x = F.pad(x, rest).unflatten(1, (-1, group))
    from_rest, shares = [x[:, :, 0]], [a[:, :, 0]]
    for a_k, x_k in zip(a.unbind(2)[1:], x.unbind(2)[1:], strict=True):
        from_rest.append(torch.addcmul(x_k, a_k, from_rest[-1]))
        shares.append(a_k * shares[-1])
    ends = _recurrence(shares[-1], from_rest[-1], start, group)
    entering = torch.cat([start[:, None], ends[:, :-1]], 1)[:, :, None]
    v = torch.addcmul(torch.stack(from_rest, 2), torch.stack(shares, 2), entering)
    return v.flatten(1, 2)[:, :steps]


def _scan_lines(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    reverse: bool,
    checkpoints: None,  # noqa: ARG001 - autograd stores what it needs
    *,
    group: int,
) -> tuple[Tensor, Tensor]:
    """Output (M, L, D) and final state (M, D, N)."""
    if reverse:
        u, delta, b, c = (x.flip(1) for x in (u, delta, b, c))
    steps, rates = torch.broadcast_tensors(delta[..., None], decay)
    inflow = _weight(steps, rates) * b[:, :, None, :] * u[..., None]
    start = torch.zeros_like(inflow[:, 0]) if initial_state is None else initial_state
    v = _recurrence(torch.exp(-steps * rates), inflow, start, group)
    y = (v @ c[..., None]).squeeze(-1)
    if d is not None:
        y = y + d * u
    return y.flip(1) if reverse else y, v[:, -1]


def scan(modes: Modes, *inputs: Tensor | None) -> tuple[Tensor, Tensor]:
    """The operator's output (B, P, D) and final state, empty but for "raster"."""
    given = Inputs(*inputs)  # pyright: ignore[reportArgumentType]
    dtype = compute_dtype(*given)
    # In an active circuit the product of a group's retentions can overflow where no state does.
    group = _GROUP if modes.passive else math.prod(modes.grid)
    walks = walks_of(tuple(map(int, modes.grid)), modes.directions, modes.reverse)
    with without_autocast(given.u):
        y, state = scan_fields(
            partial(_scan_lines, group=group), given.to(dtype), walks, modes.boundary
        )
    return y.to(given.u.dtype), state if modes.directions == "raster" else state.new_empty(0)


def gradients(
    modes: Modes, grad_y: Tensor, grad_state: Tensor | None, *inputs: Tensor | None
) -> tuple[Tensor, ...]:
    """The gradients that the operator's backward returns, by differentiable operations."""
    grads = pull(partial(scan, modes), inputs, (grad_y, grad_state))
    return tuple(grad_y.new_empty(0) if grad is None else grad for grad in grads)


def _function_of(
    chosen: Sequence[int], function: Callable[..., Any], given: Sequence[Any]
) -> Callable[..., tuple[Tensor, ...]]:
    """A function of the chosen arguments alone, which passes `given` for the others."""

    def of_chosen(*tensors: Tensor) -> tuple[Tensor, ...]:
        arguments = dict(enumerate(given)) | dict(zip(chosen, tensors, strict=True))
        return function(*arguments.values())

    return of_chosen


def pull(
    function: Callable[..., Any], inputs: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[Tensor | None, ...]:
    """Gradients of `inputs` (None where they are) for `cotangents` of the outputs (None: zero)."""
    chosen = [i for i, x in enumerate(inputs) if x is not None]
    seeded = [i for i, cotangent in enumerate(cotangents) if cotangent is not None]
    if not seeded:
        return (None,) * len(inputs)
    of_chosen = _function_of(chosen, function, inputs)
    pulled: Any = torch.func.vjp(
        lambda *tensors: [of_chosen(*tensors)[i] for i in seeded], *(inputs[i] for i in chosen)
    )
    grads = iter(pulled[1]([cotangents[i] for i in seeded]))
    return tuple(None if x is None else next(grads) for x in inputs)


def push(
    function: Callable[..., Any], inputs: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Tangents of the outputs for `tangents` of `inputs` (None: zero).

    PyTorch refuses `torch.func.jvp` inside a Function's `jvp`. The pullback is linear, so the
    pullback of the pullback is the pushforward.
    """
    chosen = [i for i, tangent in enumerate(tangents) if tangent is not None]
    of_chosen = _function_of(chosen, function, inputs)
    pulled: Any = torch.func.vjp(of_chosen, *(inputs[i] for i in chosen))
    zero = tuple(torch.zeros_like(y) for y in pulled[0])
    return torch.func.vjp(pulled[1], zero)[1](tuple(tangents[i] for i in chosen))[0]
