"""Directed networks by SciPy's direct solver in float64: the reference of the tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def solve_directed(
    source: Tensor,
    forward: Sequence[Tensor],
    backward: Sequence[Tensor],
    leak: Tensor,
    transposed: bool,
) -> Tensor:
    """Potentials (B, \\*grid, C) of directed networks (float64): see `directed_network`.

    Parameters
    ----------
    source, leak : Tensor, shape (B, \\*grid, C)
    forward, backward : sequence of Tensor, shape (B, \\*grid, C)
        One tensor an axis: the conductance from node p to the next one, and back. All axes are
        treated as periodic; the last entries are 0 on axes that are not.
    transposed : bool
        Whether to solve with the transposed matrix.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import splu

    s, l, *edges = (  # noqa: E741
        np.moveaxis(x.detach().cpu().double().numpy(), -1, 1)
        for x in (source, leak, *forward, *backward)
    )
    grid, axes = s.shape[2:], len(forward)
    nodes = np.arange(np.prod(grid)).reshape(grid)
    v = np.empty(s.shape)
    for b, c in np.ndindex(*s.shape[:2]):
        if not all(np.isfinite(x[b, c]).all() for x in (s, l, *edges)):
            v[b, c] = np.nan
            continue
        entries = [(nodes, nodes, l[b, c])]
        for axis in range(axes):
            here, there = nodes, np.roll(nodes, -1, axis)
            for f, p, q in ((edges[axis], here, there), (edges[axes + axis], there, here)):
                # The current that leaves p arrives at q.
                entries += [(p, p, f[b, c]), (q, p, -f[b, c])]
        rows, columns, values = (
            np.concatenate([x.ravel() for x in part]) for part in zip(*entries, strict=True)
        )
        a = coo_array((values, (rows, columns)), shape=(nodes.size, nodes.size)).tocsc()
        a = a.T.tocsc() if transposed else a
        alone = a.diagonal() == 0
        a = a + coo_array((alone * 1.0, (nodes.ravel(), nodes.ravel())), shape=a.shape)
        current = np.where(alone, 0, s[b, c].ravel())
        v[b, c] = np.where(alone, 0, splu(a.tocsc()).solve(current)).reshape(grid)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(v, 1, -1))).to(source.device)
