"""The elimination of one complex network with pivoting: its determinant and entries of its inverse.

Complex numbers may cancel in a pivot, of a single node or of a whole region, without the network
being singular. Solves raise such pivots and refine; a determinant cannot be refined. Here the nodes
of a region are eliminated together, by LAPACK's factorisation of their block. Where that block is
nearly singular, pivots of one and two nodes are chosen in it, the largest first, and nodes left
over wait for the region's parent. This runs region by region, in Python: networks that need it are
rare.

References: J. R. Bunch, B. N. Parlett, "Direct methods for solving symmetric indefinite systems of
linear equations", SIAM J. Numer. Anal. 8 (1971): the choice of pivots. I. S. Duff, J. K. Reid, "The
multifrontal solution of indefinite sparse symmetric linear equations", ACM Trans. Math. Softw. 9
(1983): nodes that wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chonn_ops.network.direct.plan import Array, Plan

# Bunch and Parlett's bound of growth: pivots of one node down to this part of the largest entry.
_ALPHA = (1 + 17**0.5) / 8
# Rounding that a block may multiply before its pivots are chosen one by one.
_ENOUGH = 1e2
# Entries below this part of their rows and columns are no pivots.
_LEAST = 1e-2
# An estimated relative error of the determinant, or an error of the inverse, above which these are
# made of rounding.
LOST = 1e-3


@dataclass
class _Front:
    """One region after its elimination, as back substitution needs it."""

    gone: Tensor  # positions in the front of the nodes eliminated
    rest: Tensor  # and of those that wait or lie on the boundary
    inverse: Tensor  # of the block of nodes eliminated
    shares: Tensor  # minus its product with the columns that are left
    edges: tuple[Tensor, Tensor, Tensor]  # entry of the conductances, its row and column
    nodes: Tensor  # positions of the front's first nodes, without the boundary's
    kids: list[tuple[int, Tensor]]  # and where their `rest` is in this front


class Pivoted:
    """One complex network eliminated with pivoting; all results have derivatives of any order by
    PyTorch's own rules.

    `conductance` (axis * nodes,) is 0 where no edge is, `leak` (nodes,) by position in the plan,
    both complex128. `logdet` leaves out nodes with neither edge nor leak. `loss` is the estimated
    relative error of the determinant, and `sound` whether that is small; if not, the network or a
    part of it is at a resonance.
    """

    def __init__(self, plan: Plan, conductance: Tensor, leak: Tensor) -> None:
        self._plan, self._g, device = plan, conductance, leak.device
        self._edge = torch.from_numpy(plan.edge.astype(np.int64)).to(device)
        ends, each = torch.from_numpy(plan.ends).to(device), conductance[self._edge]
        own = leak.index_add(0, ends[0], each).index_add(0, ends[1], each)
        with torch.no_grad():
            size = leak.abs().index_add(0, ends[0], each.abs()).index_add(0, ends[1], each.abs())
            self._alone = size == 0
        # A node that is no part of the network: a conductance of 1 to ground, its logarithm is 0.
        self._own = torch.where(self._alone, 1, own)
        self._size = torch.where(self._alone, 1, size)
        self.loss, self.logdet = 0.0, leak.new_zeros(())
        self._fronts: list[_Front] = []
        waiting: dict[int, tuple[Tensor, Tensor]] = {}
        for region in range(plan.regions):
            self._eliminate(region, waiting)
        self.sound = self.loss < LOST

    def _eliminate(self, region: int, waiting: dict[int, tuple[Tensor, Tensor]]) -> None:
        plan, device = self._plan, self._own.device
        pivots, width = int(plan.pivots[region]), int(plan.width[region])
        kids = [int(kid) for kid in plan.kids[region] if kid >= 0]
        late = [len(self._fronts[kid].rest) - int(plan.width[kid]) for kid in kids]
        inner = pivots + sum(late)  # nodes of this front that no later one has
        f = inner + width
        start = int(plan.first[region])
        nodes = [torch.arange(start, start + pivots, device=device)]
        places, begin = [], pivots
        for kid, count in zip(kids, late, strict=True):
            place = plan.place[plan.boundary_at[kid] : plan.boundary_at[kid + 1]]
            place = np.where(place < pivots, place, place + sum(late))
            joined = np.concatenate([np.arange(begin, begin + count), place]).astype(np.int64)
            places.append(torch.from_numpy(joined).to(device))
            front = self._fronts[kid]
            nodes.append(front.nodes[front.rest[:count]])
            begin += count
        here = slice(int(plan.edge_at[region]), int(plan.edge_at[region + 1]))
        ends = [
            torch.from_numpy(x[here].astype(np.int64)).to(device) for x in (plan.row, plan.column)
        ]
        row, column = (torch.where(x < pivots, x, x + sum(late)) for x in ends)
        edge = self._edge[here]

        diagonal = torch.arange(pivots, device=device) * (f + 1)
        at = torch.cat([diagonal, row * f + column, column * f + row])
        g, own = self._g[edge], slice(start, start + pivots)
        matrix = self._g.new_zeros(f * f).index_add(0, at, torch.cat([self._own[own], -g, -g]))
        size = self._size.new_zeros(f * f)
        with torch.no_grad():
            size.index_add_(0, at, torch.cat([self._size[own], g.abs(), g.abs()]))
        for kid, place in zip(kids, places, strict=True):
            update, rounding = waiting.pop(kid)
            at = (place[:, None] * f + place).flatten()
            matrix = matrix.index_add(0, at, update.flatten())
            size = size.index_add(0, at, rounding.flatten())
        matrix, size = matrix.reshape(f, f), size.reshape(f, f)

        gone = torch.arange(inner, device=device)
        inverse, lost = _inverse(matrix, size, gone)
        if width and not lost <= _ENOUGH * max(inner, 1):
            gone = torch.from_numpy(_choose(matrix[:inner, :inner], size[:inner, :inner])).to(
                device
            )
            inverse, lost = _inverse(matrix, size, gone)
        self.loss += lost * torch.finfo(torch.float64).eps
        kept = torch.ones(f, dtype=torch.bool, device=device)
        kept[gone] = False
        rest = kept.nonzero()[:, 0]
        block, columns = matrix[gone][:, gone], matrix[gone][:, rest]
        shares = -inverse @ columns
        sign, log = torch.linalg.slogdet(block)
        self.logdet = self.logdet + log + sign.log()
        with torch.no_grad():
            rounding = size[rest][:, rest] + size[gone][:, rest].mT @ shares.abs()
        waiting[region] = matrix[rest][:, rest] + columns.mT @ shares, rounding
        edges, where = (edge, row, column), list(zip(kids, places, strict=True))
        self._fronts.append(_Front(gone, rest, inverse, shares, edges, torch.cat(nodes), where))

    def inverse_entries(self) -> tuple[Tensor, Tensor]:
        """Entries of the inverse: its diagonal by position, (nodes,), and those of the nodes that
        an edge joins, (axes * nodes,); 0 where there is no edge or no network."""
        diagonal, entries = torch.zeros_like(self._own), torch.zeros_like(self._g)
        known = {self._plan.regions - 1: self._own.new_zeros(0, 0)}
        for region in reversed(range(self._plan.regions)):
            front = self._fronts[region]
            beyond = known.pop(region)
            across = front.shares @ beyond
            own = front.inverse + across @ front.shares.mT
            whole = torch.cat([torch.cat([own, across], 1), torch.cat([across.mT, beyond], 1)])
            order = torch.cat([front.gone, front.rest]).argsort()
            whole = whole[order][:, order]
            diagonal = diagonal.index_copy(0, front.nodes[front.gone], own.diagonal())
            edge, row, column = front.edges
            entries = entries.index_copy(0, edge, whole[row, column])
            for kid, place in front.kids:
                known[kid] = whole[place][:, place]
        return torch.where(self._alone, 0, diagonal), entries


def _inverse(matrix: Tensor, size: Tensor, nodes: Tensor) -> tuple[Tensor, float]:
    """The inverse of a block P, and how many units of rounding its determinant has lost: the trace
    of |P^-1| S, with S the sizes of what its entries are sums of. Infinite where P is singular."""
    inverse, failed = torch.linalg.inv_ex(matrix[nodes][:, nodes])
    lost = float((inverse.detach().abs() * size[nodes][:, nodes].mT).sum())
    return inverse, lost if int(failed) == 0 and lost == lost else float("inf")


def _choose(matrix: Tensor, size: Tensor) -> Array:
    """Nodes of a block that have pivots, ascending; others of the block wait."""
    scale = size.sum(1).rsqrt().cpu().numpy()
    left = matrix.detach().cpu().numpy() * scale[:, None] * scale
    rest, chosen = np.arange(len(left)), []
    while len(rest):
        block = np.abs(left[np.ix_(rest, rest)])
        one = int(block.diagonal().argmax())
        first, second = np.unravel_index(int(block.argmax()), block.shape)
        if not block.max() > _LEAST:
            break
        alone = block[one, one] >= _ALPHA * block.max()
        pivot = rest[[one]] if alone else rest[[first, second]]
        columns = left[:, pivot]
        left = left - columns @ np.linalg.solve(left[np.ix_(pivot, pivot)], columns.T)
        chosen.extend(pivot)
        rest = np.setdiff1d(rest, pivot)
    return np.sort(np.array(chosen, np.int64))
