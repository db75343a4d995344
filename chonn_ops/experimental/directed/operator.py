r"""Derivatives of directed networks. Each derivative is one more solve.

For A v = s, the solution of A^T w = grad_v gives grad_s = w, grad_l = -w v, and
grad_f = -v_p (w_p - w_q) for the edge from p to q. In the transposed network
v and w change places.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.experimental.directed import solver
from chonn_ops.network.operator import fold


def warn_of_residuals(
    name: str, residual: Tensor, iterations: Tensor, tol: float, grid: Sequence[int]
) -> None:
    """Warn once a call of networks above `tol`; not of eliminations (0 iterations) and of NaN."""
    if residual.is_cuda and torch.cuda.is_current_stream_capturing():
        return  # nothing may be read while a CUDA graph is being recorded
    late = (residual > tol) & (iterations > 0)
    count = int(late.sum())
    if count:
        size = " x ".join(str(n) for n in grid)
        warnings.warn(
            f"{name}: {count} of {late.numel()} networks above tol={tol:g} after "
            f"{int(iterations[late].max())} iterations, worst residual "
            f"{residual[late].max().item():.2e} (grid {size})",
            RuntimeWarning,
            stacklevel=2,
        )


def _edge_gradients(v: Tensor, w: Tensor, axes: int) -> list[Tensor]:
    """-v_p (w_p - w_q) of every edge from p to q: forward edges of all axes, then backward ones."""
    drops = [w - w.roll(-1, axis + 1) for axis in range(axes)]
    forward = [-v * drop for drop in drops]
    return forward + [v.roll(-1, axis + 1) * drop for axis, drop in enumerate(drops)]


def _matrix_times(leak: Tensor, edges: tuple[Tensor, ...], v: Tensor, transposed: bool) -> Tensor:
    """A v, or A^T v."""
    axes, total = len(edges) // 2, leak * v
    for axis, (f, b) in enumerate(zip(edges[:axes], edges[axes:], strict=True)):
        dim = axis + 1
        if transposed:
            drop = v - v.roll(-1, dim)
            total = total + f * drop - (b * drop).roll(1, dim)
        else:
            flow = f * v - b * v.roll(-1, dim)
            total = total + flow - flow.roll(1, dim)
    return total


class DirectedSolve(torch.autograd.Function):
    """Potentials, iterations and residuals of networks whose axes are all periodic."""

    @staticmethod
    def forward(
        source: Tensor,
        leak: Tensor,
        transposed: bool,
        tol: float,
        max_iterations: int,
        backend: str,
        *edges: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        axes = len(edges) // 2
        forward, backward = edges[:axes], edges[axes:]
        dtype = compute_dtype(source, leak, *edges)
        if source.shape[0] == 0:
            empty = source.new_empty((0, source.shape[-1]), dtype=dtype)
            return source.to(dtype, copy=True), empty.to(torch.int32), empty
        if backend == "reference":
            from chonn_ops.experimental.directed.reference import solve_directed

            v = solve_directed(source, forward, backward, leak, transposed).to(dtype)
            zero = v.new_zeros(v.shape[0], v.shape[-1])
            return v, zero.to(torch.int32), zero
        with torch.autocast(source.device.type, enabled=False):
            v, iterations, residual = solver.solve(
                source, forward, backward, leak, transposed, tol, max_iterations
            )
        warn_of_residuals("directed_network", residual, iterations, tol, source.shape[1:-1])
        return v, iterations, residual

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        source, leak, *options = inputs[:6]
        v, iterations, residual = output
        ctx.save_for_backward(leak, v, *inputs[6:])
        ctx.save_for_forward(leak, v, *inputs[6:])
        ctx.options, ctx.dtype = options, source.dtype
        ctx.mark_non_differentiable(iterations, residual)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_v = grad_outputs[0]
        leak, v, *edges = ctx.saved_tensors
        if grad_v is None:
            return (None,) * (6 + len(edges))
        transposed, *rest = ctx.options
        w = DirectedSolve.apply(grad_v, leak, not transposed, *rest, *edges)[0]
        start, fall = (w, v) if transposed else (v, w)
        grads = _edge_gradients(start, fall, len(edges) // 2)
        typed = [grad.to(edge.dtype) for grad, edge in zip(grads, edges, strict=True)]
        return (w.to(ctx.dtype), (-w * v).to(leak.dtype), *[None] * 4, *typed)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None, None]:
        leak, v, *edges = ctx.saved_tensors
        source = torch.zeros_like(v) if tangents[0] is None else tangents[0]
        inner = [torch.zeros_like(v) if t is None else t for t in (tangents[1], *tangents[6:])]
        transposed, *rest = ctx.options
        source = source - _matrix_times(inner[0], tuple(inner[1:]), v, transposed)
        return DirectedSolve.apply(source, leak, transposed, *rest, *edges)[0], None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        return fold(DirectedSolve.apply, info, in_dims, *inputs)
