"""Kirchhoff's law in PyTorch operations: edges, differences of potentials along them, net
currents out of nodes, and what potentials leave over of their sources."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from chonn_ops._dtypes import widened
from chonn_ops._library import CONSTANTS
from chonn_ops.network.graph import Graph, Joined


def pad(field: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Zeros before and after the entries along a grid axis."""
    return F.pad(field, [0, 0] * (field.dim() - axis - 2) + [before, after])


def beside(field: Tensor, other: Tensor) -> Tensor:
    """A field (B, ...) of networks, in a shape that broadcasts with one of theirs that may have an
    entry for each of several sources, (B, S, ...)."""
    return field[:, None] if other.dim() > field.dim() else field


def used_edges(g: Tensor, axis: int, joined: Joined) -> Tensor:
    """The entries along a grid axis that are edges: all if periodic, otherwise all but the last.
    All entries of a graph are."""
    n = g.shape[axis + 1]
    return g if (joined and n > 1) or isinstance(joined, Graph) else g.narrow(axis + 1, 0, n - 1)


def edges_by_axis(conductance: Sequence[Tensor], periodic: Sequence[Joined]) -> list[Tensor]:
    """`used_edges` of each axis."""
    pairs = enumerate(zip(conductance, periodic, strict=True))
    return [used_edges(g, axis, joined) for axis, (g, joined) in pairs]


def indices(field: Tensor, axis: int) -> Tensor:
    """Indices along a grid axis, in a shape that broadcasts with the field."""
    n = field.shape[axis + 1]
    return torch.arange(n, device=field.device).reshape([n] + [1] * (field.dim() - axis - 2))


def edges_alone(g: Tensor, axis: int, joined: Joined) -> Tensor:
    """Set the last entry along an axis, which is no edge, to 0, unless periodic or of one node."""
    n = g.shape[axis + 1]
    if joined or n == 1:
        return g
    return torch.where(indices(g, axis) < n - 1, g, 0)


def _ends(field: Tensor, dim: int, graph: Graph) -> tuple[Tensor, Tensor]:
    """The values at the first and the second node of each edge of a graph."""
    start, end = graph.ends.to(field.device)
    return field.index_select(dim, start), field.index_select(dim, end)


def _to_ends(start: Tensor, end: Tensor, dim: int, graph: Graph) -> Tensor:
    """Add values of edges at their first nodes, and others at their second ones."""
    shape = list(start.shape)
    shape[dim] = graph.num_nodes
    first, second = graph.ends.to(start.device)
    return start.new_zeros(shape).index_add(dim, first, start).index_add(dim, second, end)


def drops_along(v: Tensor, axis: int, joined: Joined) -> Tensor:
    """The potential at the start of each edge of an axis minus that at its end."""
    dim, n = axis + 1, v.shape[axis + 1]
    if isinstance(joined, Graph):
        start, end = _ends(v, dim, joined)
        return start - end
    if joined:
        return v - v.roll(-1, dim)
    return v.narrow(dim, 0, n - 1) - v.narrow(dim, 1, n - 1)


def at_start(v: Tensor, axis: int, joined: Joined) -> Tensor:
    """The value at the start of each edge of an axis; of a grid at each node."""
    return _ends(v, axis + 1, joined)[0] if isinstance(joined, Graph) else v


def differences(v: Tensor, axis: int, joined: Joined) -> Tensor:
    """Potential of each node of (..., \\*grid, C) less the next one's along an axis counted from
    the last; 0 behind the last node where the axis is not periodic."""
    if isinstance(joined, Graph):
        return drops_along(v, v.dim() + axis - 1, joined)
    difference = v - v.roll(-1, axis)
    if joined and v.shape[axis] > 1:
        return difference
    inner = difference.narrow(axis, 0, v.shape[axis] - 1)
    return torch.cat([inner, torch.zeros_like(difference.narrow(axis, 0, 1))], axis)


def differences_by_axis(v: Tensor, periodic: Sequence[Joined]) -> list[Tensor]:
    """`differences` along each axis."""
    first = -1 - len(periodic)
    return [differences(v, axis, joined) for axis, joined in enumerate(periodic, first)]


def outflow(current: Tensor, axis: int, joined: Joined) -> Tensor:
    """The current that the edges of an axis carry out of each node; transposes `drops_along`."""
    if isinstance(joined, Graph):
        return _to_ends(current, -current, axis + 1, joined)
    if joined:
        return current - current.roll(1, axis + 1)
    return pad(current, axis, 0, 1) - pad(current, axis, 1, 0)


def sum_of_ends(size: Tensor, axis: int, joined: Joined) -> Tensor:
    """Add the values at both nodes of each edge of an axis."""
    dim, n = axis + 1, size.shape[axis + 1]
    if isinstance(joined, Graph):
        start, end = _ends(size, dim, joined)
        return start + end
    if joined:
        return size + size.roll(-1, dim)
    return size.narrow(dim, 0, n - 1) + size.narrow(dim, 1, n - 1)


def at_both_ends(value: Tensor, axis: int, joined: Joined) -> Tensor:
    """The transpose of `sum_of_ends`."""
    if isinstance(joined, Graph):
        return _to_ends(value, value, axis + 1, joined)
    if joined:
        return value + value.roll(1, axis + 1)
    return pad(value, axis, 0, 1) + pad(value, axis, 1, 0)


def sums_at_nodes(
    own: Tensor, values: Sequence[Tensor], periodic: Sequence[Joined], size: Tensor | None = None
) -> Tensor:
    """Values (B, \\*grid, C) of nodes plus those of the edges that they have, of each axis; these
    times the sum of `size` at both nodes where it is given."""
    for axis, (value, joined) in enumerate(zip(values, periodic, strict=True)):
        if own.shape[axis + 1] > 1:
            value = value if size is None else value * sum_of_ends(size, axis, joined)
            own = own + at_both_ends(value, axis, joined)
    return own


def rings(periodic: Sequence[Joined]) -> list[Joined]:
    """Axes as if all were periodic, so that each has as many edges as entries."""
    return [joined if isinstance(joined, Graph) else True for joined in periodic]


def connected_parts(
    conductance: Sequence[Tensor], grid: Sequence[int], periodic: Sequence[Joined]
) -> Tensor:
    """The largest node, in row-major order, that edges other than 0 connect each node to:
    (B, nodes, C)."""
    B, C, device = conductance[0].shape[0], conductance[0].shape[-1], conductance[0].device
    nodes = torch.arange(math.prod(grid), device=device).reshape(*grid, 1)
    part = nodes.expand(B, *grid, C)
    edges = [edge != 0 for edge in edges_by_axis(conductance, periodic)]
    before = torch.empty_like(part[:0])
    while not torch.equal(part, before):
        before = part
        for axis, (edge, joined) in enumerate(zip(edges, periodic, strict=True)):
            dim, n = axis + 1, grid[axis]
            if n == 1:
                continue
            if isinstance(joined, Graph):
                both = torch.where(edge, torch.maximum(*_ends(part, dim, joined)), -1)
                for end in joined.ends.to(device):
                    to = end[:, None].expand_as(both)
                    part = part.scatter_reduce(dim, to, both, "amax")
                continue
            low = part if joined else part.narrow(dim, 0, n - 1)
            high = part.roll(-1, dim) if joined else part.narrow(dim, 1, n - 1)
            both = torch.where(edge, torch.maximum(low, high), -1)
            part = torch.maximum(part, both if joined else pad(both, axis, 0, 1))
            part = torch.maximum(part, both.roll(1, dim) if joined else pad(both, axis, 1, 0))
        rows = part.flatten(1, -2)
        part = rows.gather(1, rows).reshape(part.shape)
    return part.flatten(1, -2)


def is_tied(conductance: Sequence[Tensor], leak: Tensor, periodic: Sequence[Joined]) -> Tensor:
    """Which nodes are part of their network: those with an edge or a leak. The potential of others
    is 0, whatever their source."""
    edges = [(edge != 0).float() for edge in edges_by_axis(conductance, periodic)]
    return sums_at_nodes((leak != 0).float(), edges, periodic) != 0


def excess(
    v: Tensor,
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[Joined],
) -> Tensor:
    """Residuals s - A v, (B, \\*grid, C), or (B, S, \\*grid, C) of S sources."""
    edges, several = edges_by_axis(conductance, periodic), v.dim() - conductance[0].dim()
    if several:
        leak, *edges = (x[:, None] for x in (leak, *edges))
    left = source - leak * v
    for axis, (edge, joined) in enumerate(zip(edges, periodic, strict=True), several):
        if v.shape[axis + 1] > 1:
            left = left - outflow(edge * drops_along(v, axis, joined), axis, joined)
    return left


def relative_residual(
    v: Tensor,
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[Joined],
) -> Tensor:
    """Residuals |s - A v| / |s|, (B, C), and 0 where rounding v alone may leave that much.

    Eliminations are judged by it, because their rounding may leave more than any `tol`.
    """
    # Where potentials underflow, they have no digits to be right in.
    info = torch.finfo(v.dtype)
    least = info.tiny / info.eps
    size = v.abs() + least
    edges = edges_by_axis(conductance, periodic)
    sizes = sums_at_nodes(leak * size + least, edges, periodic, size)
    # A NaN in the source of a node outside of the network still counts.
    tied = is_tied(conductance, leak, periodic)
    left = excess(v, source, conductance, leak, periodic)
    left, norm = (norm_of(torch.where(tied, x, 0 * x)) for x in (left, source))
    relative = left / torch.where(norm > 0, norm, 1)
    rounding = CONSTANTS["NETWORK_ROUNDING"] * info.eps * norm_of(sizes)
    return torch.where(left <= rounding, 0, relative).to(v.dtype)


@torch.no_grad()
def backward_error(
    v: Tensor,
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[Joined],
) -> Tensor:
    """Backward errors as in `NetworkInfo`: (B, C), or (B, S, C) for S sources."""
    if v.dim() > leak.dim():
        pairs = zip(v.unbind(1), source.unbind(1), strict=True)
        found = [backward_error(x, s, conductance, leak, periodic) for x, s in pairs]
        nothing = widened(leak.new_empty(len(v), 0, v.shape[-1])).abs()
        return torch.stack(found, 1) if found else nothing
    v, source, leak, *conductance = (widened(x.detach()) for x in (v, source, leak, *conductance))
    # All axes are closed, some by an edge of 0: `torch.export` refuses an axis of two nodes where
    # tensors have n - 1 entries.
    conductance = [edges_alone(g, axis, periodic[axis]) for axis, g in enumerate(conductance)]
    around = rings(periodic)
    left = excess(v, source, conductance, leak, around).abs()
    size = v.abs()
    edges = [g.abs() for g in conductance]
    sizes = sums_at_nodes(source.abs() + leak.abs() * size, edges, around, size)
    error = torch.where(left != 0, left / sizes, 0 * left)
    return error.flatten(1, -2).amax(1)


def norm_of(field: Tensor) -> Tensor:
    """Norms of the fields of networks, (B, C), in the widest dtype."""
    return torch.linalg.vector_norm(widened(field).flatten(1, -2), dim=1)
