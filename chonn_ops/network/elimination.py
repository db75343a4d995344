"""Star-mesh elimination: eliminating a node of a resistor network leaves a resistor network.

Let a node have conductances g_q to its neighbours, a leak l and a source s, and let
``t = l + sum g``. Eliminating the node adds a conductance ``g_q g_r / t`` between every two
neighbours, ``g_q l / t`` to their leaks and ``g_q s / t`` to their sources. All terms are positive,
so that conductances over any number of decades and leaks of any size keep all their digits. An LU
factorisation subtracts, and loses small leaks.

Source: the star-mesh transform (Rosen, 1924); its accuracy: Grassmann, Taksar & Heyman, Oper. Res.
33 (1985) 1107; cyclic reduction, which eliminates every other node: Hockney, J. ACM 12 (1965) 95.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chonn_ops.network.grid import Network


def reciprocal(total: Tensor) -> Tensor:
    """1 / t, or 0 where t is 0: a node without edges and leak has the potential 0."""
    return torch.where(total > 0, total.reciprocal(), 0)


def solve_lines(source: Tensor, conductance: Tensor, leak: Tensor) -> Tensor:
    """Potentials of lines (M, N) by cyclic reduction, in log2 N steps and O(M N) memory.

    Entry p of `conductance` (M, N) joins nodes p and p + 1. The last entry joins the last node and
    the first of a periodic line; it is 0 on other lines.
    """
    nodes = source.shape[1]
    if nodes == 1:
        return source * reciprocal(leak)
    down, up = conductance[:, 0 : nodes - 1 : 2], conductance[:, 1::2]
    share = reciprocal(leak[:, 1::2] + down + up)
    to_lower, to_upper = down * share, up * share
    # With an even number of nodes the last node is eliminated; its upper neighbour is the first.
    seam = nodes % 2 == 0
    uppers = nodes // 2 - seam

    def eliminate(field: Tensor) -> Tensor:
        kept, gone = field[:, 0::2].clone(), field[:, 1::2]
        kept[:, : nodes // 2].addcmul_(to_lower, gone)
        kept[:, 1:].addcmul_(to_upper[:, :uppers], gone[:, :uppers])
        if seam:
            kept[:, 0].addcmul_(to_upper[:, -1], gone[:, -1])
        return kept

    edges = to_lower * up
    if not seam:
        edges = torch.cat([edges, conductance[:, -1:]], 1)
    even = solve_lines(eliminate(source), edges, eliminate(leak))
    above = torch.cat([even[:, 1:], even[:, :1]], 1) if seam else even[:, 1:]
    odd = source[:, 1::2] * share
    odd.addcmul_(to_lower, even[:, : nodes // 2]).addcmul_(to_upper, above)
    potential = torch.empty_like(source)
    potential[:, 0::2], potential[:, 1::2] = even, odd
    return potential


def inverse_factors(network: Network) -> Tensor:
    """W (M, N, N) with ``W^T W = A^-1``, for small networks of N nodes in row-major order.

    Multiplying by W and then by its transpose keeps the digits of sources that sum to zero. A
    product with A^-1 would lose them, because a small leak adds a large constant to all entries of
    A^-1.
    """
    grid = network.grid
    leak = grid.inside(network.leak).flatten(1).clone()
    g = leak.new_zeros(leak.shape[0], grid.nodes, grid.nodes)
    nodes = torch.arange(grid.nodes, device=leak.device).reshape(grid.sizes)
    axes = tuple(range(nodes.ndim))
    for offset, conductance in network.edges.items():
        # Every axis is rolled: across the faces of an axis that is not periodic g is 0.
        neighbours = nodes.roll([-o for o in offset], axes).flatten()
        g[:, nodes.flatten(), neighbours] += grid.inside(conductance).flatten(1)
    g += g.mT.clone()
    # The bandwidth of the matrix, which elimination does not increase.
    reach = max((grid.span(offset) for offset in network.edges), default=0)
    factor = torch.zeros_like(g)
    totals = leak.clone()
    for k in range(grid.nodes):
        ahead = slice(k + 1, k + 1 + reach)
        edges = g[:, k, ahead]
        total = leak[:, k] + edges.sum(1)
        # A total of rounding size: the node is the last one of a part without leak.
        total = torch.where(total > torch.finfo(g.dtype).eps * edges.abs().sum(1), total, 0)
        totals[:, k] = total
        share = edges * reciprocal(total)[:, None]
        g[:, ahead, ahead].addcmul_(edges[:, :, None], share[:, None, :])
        leak[:, ahead].addcmul_(share, leak[:, k, None])
        factor[:, ahead, k] = share.neg_()
    one = torch.eye(grid.nodes, dtype=g.dtype, device=g.device)
    lower = torch.linalg.solve_triangular(factor, one, upper=False, unitriangular=True)
    return lower.mul_(reciprocal(totals).sqrt()[:, :, None])
