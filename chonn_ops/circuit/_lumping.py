"""Kron reduction: nodes taken out of a nodal matrix, for good."""

from __future__ import annotations

from typing import Any

import numpy as np

from chonn_ops.circuit._checks import Array


def kron_reduction(matrix: Any, kept: Array) -> tuple[Array, Array, Array]:
    """What the kept nodes see of a network.

    Parameters
    ----------
    matrix : sparse array, shape (n, n)
        Nodal matrix.
    kept : ndarray of int, shape (k,)

    Returns
    -------
    edges : ndarray of int, shape (E, 2)
        Pairs of kept nodes that conduct.
    conductance : ndarray, shape (E,)
    gather : ndarray, shape (k, n)
        Share of each kept node in a current into each node.

    Raises
    ------
    ValueError
        For a part without leak that no kept node is in.
    """
    dropped = np.setdiff1d(np.arange(matrix.shape[0]), kept)
    gather = np.zeros((len(kept), matrix.shape[0]))
    gather[np.arange(len(kept)), kept] = 1
    reduced = matrix[kept][:, kept].toarray()
    if dropped.size:
        between = matrix[kept][:, dropped]
        gather[:, dropped] = _shares(matrix[dropped][:, dropped], between)
        reduced = reduced + between @ gather[:, dropped].T
    p, q = np.triu_indices(len(kept), 1)
    conductance = np.maximum(-reduced[p, q], 0)
    some = conductance > 0
    return np.stack((p[some], q[some]), 1), conductance[some], gather


def _shares(inside: Any, between: Any) -> Array:
    """Share of each kept node in a current into each dropped one, (k, d), of the matrix of the
    dropped nodes and its rows of the kept ones."""
    from scipy.sparse.linalg import splu

    try:
        shares = splu(inside).solve(-between.T.toarray()).T
    except RuntimeError:  # SuperLU's word for a singular matrix
        raise ValueError(
            "keep: expected a leak or a kept node in every connected part, got a part with neither"
        ) from None
    return np.maximum(shares, 0)
