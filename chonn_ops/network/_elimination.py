"""Star-mesh elimination: a node is taken out of a network, and what is left is a network.

Taking out a node with conductances g_q to its neighbours and a leak l joins every two neighbours by
``g_q g_r / t`` and adds ``g_q l / t`` to their leaks and ``g_q s / t`` to their sources, where
``t = l + sum g``. Only positive numbers are added, so that conductances over any number of decades
and leaks of any size keep all their digits; an LU factorisation subtracts, and loses small leaks.

Source: the star-mesh transform (Rosen, 1924); its accuracy: Grassmann, Taksar & Heyman, Oper. Res.
33 (1985) 1107; taking out every other node: cyclic reduction (Hockney, J. ACM 12 (1965) 95).
"""

from __future__ import annotations

import torch
from torch import Tensor

from chonn_ops.network._halo import Network


def reciprocal(total: Tensor) -> Tensor:
    """1 / t, and zero for a node that nothing is tied to: its potential is zero."""
    return torch.where(total > 0, total.reciprocal(), 0)


def solve_lines(source: Tensor, conductance: Tensor, leak: Tensor) -> Tensor:
    """Potentials of lines (M, N), every other node taken out at a time: cyclic reduction.

    `conductance` (M, N) at p joins p and p + 1, its last entry the seam of a ring, else zero.
    Exact up to rounding, in log2 N steps and O(M N) memory.
    """
    nodes = source.shape[1]
    if nodes == 1:
        return source * reciprocal(leak)
    down, up = conductance[:, 0 : nodes - 1 : 2], conductance[:, 1::2]
    share = reciprocal(leak[:, 1::2] + down + up)
    to_lower, to_upper = down * share, up * share
    # Of an even number of nodes, the last is odd and its upper neighbour is the first, of a ring.
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
    """W (M, N, N), ``W^T W = A^-1``, of small networks of N nodes, in row-major order of the grid.

    Rows of W are weighted sums of sources. To apply W and then its transpose keeps the digits of
    sources that sum to zero, of which a large constant would drown in A^-1 itself.
    """
    grid = network.grid
    leak = grid.inside(network.leak).flatten(1).clone()
    g = leak.new_zeros(leak.shape[0], grid.nodes, grid.nodes)
    nodes = torch.arange(grid.nodes, device=leak.device).reshape(grid.sizes)
    axes = tuple(range(nodes.ndim))
    for offset, conductance in network.edges.items():
        # Round every axis: across open ends there is nothing to add.
        neighbours = nodes.roll([-o for o in offset], axes).flatten()
        g[:, nodes.flatten(), neighbours] += grid.inside(conductance).flatten(1)
    g += g.mT.clone()
    # Edges reach so far in this order, and those that elimination adds no further.
    reach = max((grid.span(offset) for offset in network.edges), default=0)
    factor = torch.zeros_like(g)
    totals = leak.clone()
    for k in range(grid.nodes):
        ahead = slice(k + 1, k + 1 + reach)
        edges = g[:, k, ahead]
        total = leak[:, k] + edges.sum(1)
        # Nothing but rounding: a part without leak hangs together by this node alone.
        total = torch.where(total > torch.finfo(g.dtype).eps * edges.abs().sum(1), total, 0)
        totals[:, k] = total
        share = edges * reciprocal(total)[:, None]
        g[:, ahead, ahead].addcmul_(edges[:, :, None], share[:, None, :])
        leak[:, ahead].addcmul_(share, leak[:, k, None])
        factor[:, ahead, k] = share.neg_()
    one = torch.eye(grid.nodes, dtype=g.dtype, device=g.device)
    lower = torch.linalg.solve_triangular(factor, one, upper=False, unitriangular=True)
    return lower.mul_(reciprocal(totals).sqrt()[:, :, None])
