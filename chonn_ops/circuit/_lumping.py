"""What Kron reduction solves."""

from __future__ import annotations

from typing import Any

import numpy as np

from chonn_ops.circuit._checks import Array


def spread(inside: Any, between: Any) -> Array:
    """Share of each kept node in a current into each dropped one, (k, d).

    Parameters
    ----------
    inside : sparse array, shape (d, d)
        Nodal matrix of the dropped nodes.
    between : sparse array, shape (k, d)
        Its rows of the kept nodes.
    """
    from scipy.sparse.linalg import splu

    try:
        shares = splu(inside).solve(-between.T.toarray()).T
    except RuntimeError:  # SuperLU's word for a singular matrix
        raise ValueError(
            "keep: expected a leak or a kept node in every connected part, got a part with neither"
        ) from None
    return np.maximum(shares, 0)
