"""The conductances to ground that the boundary of a grid adds, in plain differentiable PyTorch.

The operator and its backends know two boundaries: no edge leaves an axis (neumann), or its last
node has an edge to its first (periodic). All other boundaries are conductances to ground, and are
added to the leak here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.network.edges import pad


def series(a: Tensor, b: Tensor) -> Tensor:
    """Two conductances in series, 1 / (1/a + 1/b), or 0 where both are 0.

    The order of operations forms no product that could overflow, and no derivative is a difference
    of nearly equal numbers: a quotient of the smaller over the larger one has neither.
    """
    # One of both where they are equal: second derivatives of `minimum` would be wrong there.
    first = a.abs() < b.abs() if a.is_complex() or b.is_complex() else a < b
    small, large = torch.where(first, a, b), torch.where(first, b, a)
    some = large != 0
    small = torch.where(some, small, 0)
    return small / (1 + small / torch.where(some, large, 1))


def _endless_line(g: Tensor, leak: Tensor) -> Tensor:
    """The input conductance of an endless line with edges g and leaks l.

    It is the positive root of G = g (l + G) / (g + l + G): an edge in series with a leak beside
    the rest of the line. The complex roots belong to waves in both directions. From node to node of
    the line potentials are multiplied by (r - 1) / (r + 1) with r = sqrt(l + 4 g) / sqrt(l); the
    root with Re r > 0 decays. Without loss Re r = 0: which wave goes out depends on the sign of
    time, see `kirchhoff_network`.
    """
    if leak.is_complex():
        some = leak != 0
        l = torch.where(some, leak, 1)  # noqa: E741
        r = (l + 4 * g).sqrt() / l.sqrt()
        # Re r may be below the rounding of Im r. Then the sign of Im r^2 says which root decays;
        # its two terms have one sign in networks that are passive.
        g0, l0, r0 = g.detach(), l.detach(), r.detach()
        imag = g0.imag * l0.real - g0.real * l0.imag
        outgoing = torch.where(imag == 0, g0.imag >= 0, imag > 0) == (r0.imag >= 0)
        keep = torch.where(r0.imag.abs() > r0.real.abs(), outgoing, r0.real >= 0)
        return torch.where(some, 2 * g / (1 + torch.where(keep, r, -r)), 0)
    some = leak > 0
    l = torch.where(some, leak, 1)  # noqa: E741
    return torch.where(some, 2 * g * (l / (l + l.sqrt() * (l + 4 * g).sqrt())), 0)


def _robin(half: Tensor, wall: Tensor) -> Tensor:
    """A wall's conductance, which may be infinite, in series with half an edge."""
    infinite = torch.isinf(wall)
    return torch.where(infinite, half, series(half, torch.where(infinite, 1, wall)))


def leak_with_boundary(
    conductance: Sequence[Tensor],
    leak: Tensor,
    faces: Sequence[tuple[str, str]],
    wall: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """The leak plus the conductances to ground that the boundary adds.

    Parameters
    ----------
    conductance : sequence of Tensor, shape (B, \\*grid, C)
        One an axis.
    leak : Tensor, shape (B, \\*grid, C)
    faces : sequence of pairs of str
        Boundary at the low and the high face of each axis.
    wall : Tensor, shape (C,) or (axes, 2, C), optional
        Conductance to ground behind the half edge of "robin" faces.
    dtype : torch.dtype
        Dtype of the solve.

    Returns
    -------
    Tensor, shape (B, \\*grid, C)
        `leak` itself where the boundary adds nothing, else of `dtype`.
    """
    total = leak
    if wall is not None:
        wall = wall.to(dtype).expand(len(faces), 2, wall.shape[-1])
    for axis, pair in enumerate(faces):
        dim, n = axis + 1, leak.shape[axis + 1]
        # The edge at the low face is entry 0, at the high face n - 2; one node has entry 0 only.
        for side, node, edge in ((0, 0, 0), (1, n - 1, max(n - 2, 0))):
            if pair[side] in ("neumann", "periodic"):
                continue
            g = conductance[axis].narrow(dim, edge, 1).to(dtype)
            if pair[side] == "dirichlet":
                added = 2 * g
            elif pair[side] == "matched":
                added = _endless_line(g, leak.narrow(dim, node, 1).to(dtype))
            else:
                assert wall is not None
                added = _robin(2 * g, wall[axis, side])
            total = total + pad(added, axis, node, n - 1 - node)
    return total
