"""Residuals of potentials and their backward error."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops._library import CONSTANTS
from chonn_ops.network.edges import (
    at_both_ends,
    drops,
    edges_alone,
    outflow,
    sum_of_ends,
    used_edges,
)


def excess(
    v: Tensor,
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
) -> Tensor:
    """(B, \\*grid, C): s - A v."""
    left = source - leak * v
    for axis, (g, closed) in enumerate(zip(conductance, periodic, strict=True)):
        if v.shape[axis + 1] > 1:
            flow = used_edges(g, axis, closed) * drops(v, axis, closed)
            left = left - outflow(flow, axis, closed)
    return left


def relative_residual(
    v: Tensor,
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
) -> Tensor:
    """(B, C): |s - A v| / |s|, and 0 where that is what rounding v leaves: an elimination is judged
    by it, whose rounding may leave more than any `tol`."""
    # Where potentials underflow, they have no digits to be right in.
    info = torch.finfo(v.dtype)
    least = info.tiny / info.eps
    size = v.abs() + least
    sizes, tied = leak * size + least, leak != 0
    for axis, (g, closed) in enumerate(zip(conductance, periodic, strict=True)):
        if v.shape[axis + 1] == 1:
            continue
        edges = used_edges(g, axis, closed)
        strength = edges * sum_of_ends(size, axis, closed)
        sizes = sizes + at_both_ends(strength, axis, closed)
        tied = tied | (at_both_ends((edges != 0).to(v.dtype), axis, closed) != 0)
    # A node with neither edge nor leak is no part of the network; a NaN in its source still counts.
    left = excess(v, source, conductance, leak, periodic)
    left, norm = (norm_of(torch.where(tied, x, 0 * x)) for x in (left, source))
    relative = left / torch.where(norm > 0, norm, 1)
    rounding = CONSTANTS["NETWORK_ROUNDING"] * info.eps * norm_of(sizes)
    return torch.where(left <= rounding, 0, relative).to(v.dtype)


def widened(field: Tensor) -> Tensor:
    """In float64 or complex128, without a gradient; in the precision that there is on "mps"."""
    wide = torch.complex128 if field.is_complex() else torch.float64
    return field.detach() if field.device.type == "mps" else field.detach().to(wide)


@torch.no_grad()
def backward_error(
    v: Tensor,
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
) -> Tensor:
    """(B, C), or (B, S, C) of potentials (B, S, \\*grid, C): `NetworkInfo.backward_error`."""
    if v.dim() > leak.dim():
        pairs = zip(v.unbind(1), source.unbind(1), strict=True)
        found = [backward_error(x, s, conductance, leak, periodic) for x, s in pairs]
        nothing = widened(leak.new_empty(len(v), 0, v.shape[-1])).abs()
        return torch.stack(found, 1) if found else nothing
    v, source, leak, *conductance = (widened(x) for x in (v, source, leak, *conductance))
    # All axes closed, some by an edge of 0: tensors of n - 1 entries would let `torch.export` take
    # no axis of two nodes.
    conductance = [edges_alone(g, axis, periodic[axis]) for axis, g in enumerate(conductance)]
    left = excess(v, source, conductance, leak, [True] * len(conductance)).abs()
    size, tied = v.abs(), leak != 0
    sizes = source.abs() + leak.abs() * size
    for axis, g in enumerate(conductance):
        if v.shape[axis + 1] > 1:
            sizes = sizes + at_both_ends(g.abs() * sum_of_ends(size, axis, True), axis, True)
            tied = tied | (at_both_ends((g != 0).to(size.dtype), axis, True) != 0)
    # A node without edge and leak is no part of the network; a NaN in its source still counts.
    error = torch.where(tied & (left != 0), left / sizes, 0 * left)
    return error.flatten(1, -2).amax(1)


def norm_of(field: Tensor) -> Tensor:
    """(B, C), float64."""
    return torch.linalg.vector_norm(field.flatten(1, -2), dim=1, dtype=torch.float64)
