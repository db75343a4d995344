"""The scan in PyTorch operations, for all derivatives but the first one in reverse mode.

PyTorch differentiates it to any order, in forward mode and under `torch.func`. It stores all
states, (B, L, D, N) a walk, so it costs the memory and time that the kernels save.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from chonn_ops._dtypes import compute_dtype, without_autocast
from chonn_ops.scan.arguments import MIRROR, Inputs, Modes, check_decay, check_delta
from chonn_ops.scan.walks import axis_orders

_RADIX = 8  # steps of a group; a group's steps are sequential, the groups run in parallel
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
    # The branch that is not selected needs a finite slope: 0 times infinity is NaN.
    rate = torch.where(small, 1.0, decay)
    return torch.where(small, delta * integral, -torch.expm1(-delta * rate) / rate)


def _recurrence(a: Tensor, x: Tensor, start: Tensor, radix: int) -> Tensor:
    """``v_k = a_k v_{k-1} + x_k`` along dim 1 from `start`.

    Groups of `radix` steps run in parallel from rest. The states that enter the groups follow from
    a recurrence over groups.
    """
    steps = x.shape[1]
    if steps <= radix:
        v, states = start, []
        for a_k, x_k in zip(a.unbind(1), x.unbind(1), strict=True):
            v = torch.addcmul(x_k, a_k, v)
            states.append(v)
        return torch.stack(states, 1)
    rest = (0, 0, 0, 0, 0, -steps % radix)
    a = F.pad(a, rest, value=1.0).unflatten(1, (-1, radix))
    x = F.pad(x, rest).unflatten(1, (-1, radix))
    from_rest, shares = [x[:, :, 0]], [a[:, :, 0]]
    for a_k, x_k in zip(a.unbind(2)[1:], x.unbind(2)[1:], strict=True):
        from_rest.append(torch.addcmul(x_k, a_k, from_rest[-1]))
        shares.append(a_k * shares[-1])
    ends = _recurrence(shares[-1], from_rest[-1], start, radix)
    entering = torch.cat([start[:, None], ends[:, :-1]], 1)[:, :, None]
    v = torch.addcmul(torch.stack(from_rest, 2), torch.stack(shares, 2), entering)
    return v.flatten(1, 2)[:, :steps]


def _walk(
    line: Sequence[Tensor], decay: Tensor, start: Tensor | None, periodic: bool, radix: int
) -> tuple[Tensor, Tensor]:
    """Readout (M, L, D) and final state (M, D, N) of lines read forwards."""
    u, delta, b, c = line
    steps, rates = torch.broadcast_tensors(delta[..., None], decay)
    inflow = _weight(steps, rates) * b[:, :, None, :] * u[..., None]
    retention = torch.exp(-steps * rates)
    rest = torch.zeros_like(inflow[:, 0]) if start is None else start
    if periodic:
        turn = _recurrence(retention, inflow, rest, radix)[:, -1]
        rest = turn / -torch.expm1(-delta.sum(1)[..., None] * decay)
    v = _recurrence(retention, inflow, rest, radix)
    return (v @ c[..., None]).squeeze(-1), v[:, -1]


def scan(inputs: Inputs, modes: Modes) -> tuple[Tensor, Tensor]:
    """The operator's output (B, P, D) and final state, empty but for "raster"."""
    u, delta, decay, b, c, d, initial_state = inputs
    grid, directions, reverse, boundary, _, passive, _ = modes
    if not torch.compiler.is_compiling():
        check_delta(_bare(delta))
        if passive:
            check_decay(_bare(decay))
    dtype, kind = compute_dtype(*inputs), u.dtype
    # In an active circuit the product of a group's retentions can overflow where no state does.
    radix = _RADIX if passive else math.prod(grid)
    with without_autocast(u):
        fields = [x.to(dtype) for x in (u, delta, b, c)]
        decay = decay.to(dtype)
        start = None if initial_state is None else initial_state.to(dtype)
        orders = axis_orders(len(grid), directions)
        ways = (reverse,) if directions == "raster" else (False, True)
        total = state = None
        for order in orders:
            lines = [_to_lines(x, grid, order, directions == "axial") for x in fields]
            for way in ways:
                if way and boundary in MIRROR:
                    assert state is not None
                    start = MIRROR[boundary] * state
                elif len(ways) > 1:
                    start = None
                line = [x.flip(1) for x in lines] if way else lines
                y, state = _walk(line, decay, start, boundary == "periodic", radix)
                y = _to_field(y.flip(1) if way else y, grid, order)
                total = y if total is None else total + y
        assert total is not None
        assert state is not None
        y = total / (len(orders) * len(ways))
        if d is not None:
            y = y + d.to(dtype) * fields[0]
    return y.to(kind), state if directions == "raster" else state.new_empty(0)


def _to_lines(field: Tensor, grid: Sequence[int], order: tuple[int, ...], axial: bool) -> Tensor:
    """(B, P, C) -> (B * lines, length, C), the axes of the grid in `order`."""
    ordered = field.unflatten(1, tuple(grid)).permute(0, *(1 + axis for axis in order), -1)
    length = grid[order[-1]] if axial else math.prod(grid)
    return ordered.reshape(-1, length, field.shape[-1])


def _to_field(lines: Tensor, grid: Sequence[int], order: tuple[int, ...]) -> Tensor:
    ordered = lines.reshape(-1, *(grid[axis] for axis in order), lines.shape[-1])
    back = [1 + order.index(axis) for axis in range(len(grid))]
    return ordered.permute(0, *back, -1).flatten(1, -2)


def _bare(tensor: Tensor) -> Tensor:
    """The values under the wrappers of `torch.func`, whose batches have no `item`."""
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor.detach()


def _own(x: Tensor | None, further: bool) -> Tensor | None:
    """A tensor to differentiate by; with `further` derivatives flow through it to `x`."""
    if x is None:
        return None
    return x.view_as(x) if further and x.requires_grad else x.detach().requires_grad_()


def _pull(
    outputs: Sequence[Tensor | None],
    cotangents: Sequence[Tensor | None],
    inputs: Sequence[Tensor | None],
    further: bool,
) -> list[Tensor | None]:
    """Gradients of `inputs`, None for inputs that are None or that `outputs` do not depend on."""
    pairs = [
        (y, grad)
        for y, grad in zip(outputs, cotangents, strict=True)
        if y is not None and grad is not None and y.requires_grad
    ]
    present = [x for x in inputs if x is not None]
    grads = iter(
        torch.autograd.grad(
            [y for y, _ in pairs],
            present,
            [grad for _, grad in pairs],
            create_graph=further,
            allow_unused=True,
        )
    )
    return [None if x is None else next(grads) for x in inputs]


def gradients(
    grad_y: Tensor | None,
    grad_state: Tensor | None,
    inputs: Sequence[Tensor | None],
    modes: Modes,
) -> list[Tensor | None]:
    """Gradients of the seven `inputs`, equal to the operator's backward but differentiable."""
    with torch.enable_grad():
        owned: list[Any] = [_own(x, True) for x in inputs]
        return _pull(scan(Inputs(*owned), modes), (grad_y, grad_state), owned, True)


def gradients_of_gradients(
    cotangents: Sequence[Tensor | None],
    grad_y: Tensor | None,
    grad_state: Tensor | None,
    inputs: Sequence[Tensor | None],
    modes: Modes,
) -> list[Tensor | None]:
    """Gradients of grad_y, grad_state and `inputs`, for `cotangents` of `gradients`."""
    further = torch.is_grad_enabled()
    with torch.enable_grad():
        owned = [_own(x, further) for x in (grad_y, grad_state, *inputs)]
        grads = gradients(owned[0], owned[1], owned[2:], modes)
        return _pull(grads, cotangents, owned, further)
