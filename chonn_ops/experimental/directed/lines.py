"""Elimination of directed lines: eliminating a node of a directed line leaves a directed line.

Node k receives the current f_qk v_q from each neighbour q and sends f_kr v_k to each neighbour r.
Let t be the sum of its leak and of all its conductances to neighbours. Eliminating node k adds the
conductance ``f_qk f_kr / t`` from q to r and adds ``f_qk l_k / t`` to the leak of q. All terms are
positive, so conductances over any number of decades and leaks of any size keep their digits.

Source: Grassmann, Taksar & Heyman, Oper. Res. 33 (1985) 1107; cyclic reduction, which eliminates
every other node: Hockney, J. ACM 12 (1965) 95.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chonn_ops.network.elimination import reciprocal


class DirectedLines:
    """The factors of lines along the first axis of fields (N, ...).

    Parameters
    ----------
    forward, backward : Tensor, shape (N, ...)
        Conductances from each node to the next one and back. The last entries join the last node
        and the first; they are 0 where the line is not periodic.
    leak : Tensor, shape (N, ...)
    """

    def __init__(self, forward: Tensor, backward: Tensor, leak: Tensor):
        # For each halving: 1 / t of the eliminated nodes, the fractions of their current that go
        # to the neighbours below and above, and those of the edges that lead to them.
        self.levels: list[tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]] = []
        while len(leak) > 1:
            n = len(leak)
            half, seam = n // 2, n % 2 == 0
            from_low, to_low = forward[0 : 2 * half : 2], backward[0 : 2 * half : 2]
            to_high, from_high = forward[1::2], backward[1::2]
            odd = leak[1::2]
            share = reciprocal(odd + to_low + to_high)
            feeds, fed = (to_low * share, to_high * share), (from_low * share, from_high * share)
            self.levels.append((share, feeds, fed))
            leak = _spread(leak[0::2].clone(), odd, fed, seam)
            forward, backward = (
                _with_seam(fed[0] * to_high, forward, seam),
                _with_seam(fed[1] * to_low, backward, seam),
            )
        self.last = reciprocal(leak)

    def solve(self, source: Tensor, transposed: bool) -> Tensor:
        """Potentials (N, ...) of the lines, or of the lines with the transposed matrix."""
        return self._solve(source, 0, transposed)

    def _solve(self, source: Tensor, level: int, transposed: bool) -> Tensor:
        if level == len(self.levels):
            return source * self.last
        share, feeds, fed = self.levels[level]
        if transposed:
            feeds, fed = fed, feeds
        half, seam = len(share), len(source) % 2 == 0
        odd = source[1::2]
        even = self._solve(_spread(source[0::2].clone(), odd, feeds, seam), level + 1, transposed)
        v = torch.empty_like(source)
        v[0::2] = even
        out = v[1::2]
        torch.mul(odd, share, out=out)
        out.addcmul_(fed[0], even[:half])
        if seam:
            out[:-1].addcmul_(fed[1][:-1], even[1:])
            out[-1].addcmul_(fed[1][-1], even[0])
        else:
            out.addcmul_(fed[1], even[1:])
        return v


def _spread(kept: Tensor, gone: Tensor, parts: tuple[Tensor, Tensor], seam: bool) -> Tensor:
    """Add fractions of the eliminated nodes' values to their neighbours, in place."""
    half = len(gone)
    kept[:half].addcmul_(parts[0], gone)
    if seam:  # the upper neighbour of the last node is the first
        kept[1:].addcmul_(parts[1][:-1], gone[:-1])
        kept[0].addcmul_(parts[1][-1], gone[-1])
    else:
        kept[1:].addcmul_(parts[1], gone)
    return kept


def _with_seam(edges: Tensor, before: Tensor, seam: bool) -> Tensor:
    """The edges of the halved line; an odd number of nodes keeps the edge from last to first."""
    return edges if seam else torch.cat((edges, before[-1:]))
