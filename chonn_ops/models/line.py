"""Lines of resistors whose conductances are constant, without what `Circuit.solve` has to ask: on
small batches of `CHONNStep1d` that took more than half of a solve."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from chonn_ops._pytorch import are_plain
from chonn_ops.models.carry import takes_kernels
from chonn_ops.network.circuit import solve_checked
from chonn_ops.network.layout import Grid
from chonn_ops.network.solve import cpu
from chonn_ops.network.solve.methods import AUTO
from chonn_ops.network.solve.operator import forced_backend


def is_line(source: Tensor, leak: Tensor, conductance: Tensor) -> bool:
    """Whether `Line` solves networks (B, n, C) with these fields."""
    plain = takes_kernels(source, leak, conductance) and not conductance.requires_grad
    return plain and not forced_backend() and cpu.kernel() is not None


def _solved(source: Tensor, leak: Tensor, conductance: Tensor, layout: Grid) -> Tensor:
    """What `solve_checked` returns, which solves where the kernel may not have."""
    v, _, residual = cpu.solve(source, (conductance,), leak, layout, AUTO.tol, 1)
    least = torch.finfo(leak.dtype).eps * conductance.amax()
    if bool((residual <= AUTO.tol).all() & (leak.amin() >= least)):
        return v
    return solve_checked(source, (conductance,), leak, layout, AUTO)[0]


class Line(torch.autograd.Function):
    """Potentials of networks with these sources, leaks (B, n, C), conductances and layout."""

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, leak: Tensor, conductance: Tensor, layout: Grid
    ) -> Tensor:
        v = _solved(source, leak, conductance, layout)
        ctx.save_for_backward(source, leak, v)
        ctx.network = conductance, layout
        return v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (source, leak, v), (g, layout), (grad,) = ctx.saved_tensors, ctx.network, grads
        if torch.is_grad_enabled() or not are_plain(grad):
            w, v = (solve_checked(x, (g,), leak, layout, AUTO)[0] for x in (grad, source))
        else:
            w = _solved(grad, leak, g, layout)
        return w, -w * v, None, None
