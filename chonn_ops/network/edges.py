"""Kirchhoff's law in PyTorch operations: what potentials leave over of their sources, and how good
they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from chonn_ops._dtypes import real_dtype, widened
from chonn_ops._library import CONSTANTS
from chonn_ops.checks import error
from chonn_ops.network.layout import Layout


def pad(field: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Zeros before and after the entries along a grid axis."""
    return F.pad(field, [0, 0] * (field.dim() - axis - 2) + [before, after])


def beside(field: Tensor, other: Tensor) -> Tensor:
    """A field (B, ...) of networks, in a shape that broadcasts with one of theirs that may have an
    entry for each of several sources, (B, S, ...)."""
    return field[:, None] if other.dim() > field.dim() else field


def indices(field: Tensor, axis: int) -> Tensor:
    """Indices along a grid axis, in a shape that broadcasts with the field."""
    n = field.shape[axis + 1]
    return torch.arange(n, device=field.device).reshape([n] + [1] * (field.dim() - axis - 2))


def currents_along(conductance: Sequence[Tensor], drops: Sequence[Tensor]) -> list[Tensor]:
    """The current along each edge, of networks (B, ...) and drops (B, ...) or (B, S, ...)."""
    return [beside(g, drop) * drop for g, drop in zip(conductance, drops, strict=True)]


def currents_of(
    density: Tensor, volume: float | Tensor, current: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Currents into nodes for a source per unit volume, and `current` from elsewhere; in the
    precision of `dtype` or wider, as a volume may be beyond half precision."""
    wide = torch.promote_types(density.dtype, real_dtype(dtype))
    fed = density.to(wide if current is None else torch.promote_types(wide, current.dtype))
    if isinstance(volume, Tensor):
        fed = fed * beside(volume, density)
    elif not isinstance(volume, float) or volume != 1:
        fed = fed * volume
    return fed if current is None else fed + current_beside("source", current, density)


def current_beside(name: str, current: Tensor, field: Tensor) -> Tensor:
    """The current of a circuit in a shape that broadcasts with `field`, which messages call `name`.
    Where it has one for each of S sources, the field has to have S, too."""
    current = beside(current, field)
    if current.dim() > field.dim() or current.shape[1] not in (1, field.shape[1]):
        expected = f"shape (B, S, *grid, C) = {tuple(current.shape)}, as the circuit's currents"
        raise error(name, expected, tuple(field.shape))
    return current


def is_tied(conductance: Sequence[Tensor], leak: Tensor, layout: Layout) -> Tensor:
    """Which nodes are part of their network: those with an edge or a leak. The potential of others
    is 0, whatever their source."""
    edges = [(edge != 0).float() for edge in layout.edges(conductance)]
    return ((leak != 0).float() + layout.at_both_ends(edges)) != 0


def excess(
    v: Tensor, source: Tensor, conductance: Sequence[Tensor], leak: Tensor, layout: Layout
) -> Tensor:
    """Residuals s - A v, (B, \\*grid, C), or (B, S, \\*grid, C) of S sources."""
    flows = currents_along(layout.edges(conductance), layout.drops(v))
    return source - beside(leak, v) * v - layout.outflow(flows)


def sizes_of(size: Tensor, conductance: Sequence[Tensor], leak: Tensor, layout: Layout) -> Tensor:
    """(|A| size) of nodes: l_p size_p and g_pq (size_p + size_q) of each edge, added up."""
    edges = currents_along(layout.edges(conductance), layout.sums_of_ends(size))
    return beside(leak, size) * size + layout.at_both_ends(edges)


def relative_residual(
    v: Tensor, source: Tensor, conductance: Sequence[Tensor], leak: Tensor, layout: Layout
) -> Tensor:
    """Residuals |s - A v| / |s|, (B, C), and 0 where rounding v alone may leave that much.

    Eliminations are judged by it, because their rounding may leave more than any `tol`.
    """
    # Where potentials underflow, they have no digits to be right in.
    info = torch.finfo(v.dtype)
    least = info.tiny / info.eps
    sizes = sizes_of(v.abs() + least, conductance, leak, layout) + least
    # A NaN in the source of a node outside of the network still counts.
    tied = is_tied(conductance, leak, layout)
    left = excess(v, source, conductance, leak, layout)
    left, norm = (norm_of(torch.where(tied, x, 0 * x)) for x in (left, source))
    relative = left / torch.where(norm > 0, norm, 1)
    rounding = CONSTANTS["NETWORK_ROUNDING"] * info.eps * norm_of(sizes)
    return torch.where(left <= rounding, 0, relative).to(v.dtype)


@torch.no_grad()
def backward_error(
    v: Tensor, source: Tensor, conductance: Sequence[Tensor], leak: Tensor, layout: Layout
) -> Tensor:
    """Backward errors as in `NetworkInfo`: (B, C), or (B, S, C) for S sources."""
    v, source, leak, *conductance = (widened(x.detach()) for x in (v, source, leak, *conductance))
    left = excess(v, source, conductance, leak, layout).abs()
    sizes = sizes_of(v.abs(), [g.abs() for g in conductance], leak.abs(), layout)
    error = torch.where(left != 0, left / (source.abs() + sizes), 0 * left)
    return error.flatten(1 + v.dim() - leak.dim(), -2).amax(-2)


def norm_of(field: Tensor) -> Tensor:
    """Norms of the fields of networks, (B, C), in the widest dtype."""
    return torch.linalg.vector_norm(widened(field).flatten(1, -2), dim=1)
