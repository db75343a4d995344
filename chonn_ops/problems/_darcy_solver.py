"""Steady Darcy flow on PDEBench's grid: 5-point finite volumes and a direct sparse solve."""

from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

NU_LOW, NU_HIGH = 0.1, 1.0


def darcy_matrix(nu: np.ndarray) -> scipy.sparse.csc_matrix:
    """Matrix of ``-div(nu grad u)`` on the cell centres of the unit square.

    A face has the mean nu of its two cells; nu continues unchanged beyond the edge. The cells
    outside hold u = 0, so u vanishes at their centres, half a cell outside the unit square.

    Parameters
    ----------
    nu : ndarray
        (R, R), positive.

    Returns
    -------
    csc_matrix
        (R*R, R*R), symmetric positive definite.
    """
    n = len(nu)
    padded = np.pad(nu, 1, mode="edge")
    face_x = 0.5 * (padded[1:, 1:-1] + padded[:-1, 1:-1])
    face_y = 0.5 * (padded[1:-1, 1:] + padded[1:-1, :-1])
    diagonal = face_x[1:] + face_x[:-1] + face_y[:, 1:] + face_y[:, :-1]
    along_x = -face_x[1:-1].ravel()
    along_y = -face_y[:, 1:].copy()
    # The last cell of a row and the first of the next are neighbours in memory only.
    along_y[:, -1] = 0
    along_y = along_y.ravel()[:-1]
    bands = [diagonal.ravel(), along_x, along_x, along_y, along_y]
    offsets: Any = [0, n, -n, 1, -1]  # Annotated as a single int in SciPy.
    return scipy.sparse.csc_matrix(scipy.sparse.diags(bands, offsets) * n**2)


def solve_steady(nu: np.ndarray, forcing: "np.ndarray | float") -> np.ndarray:
    """Solve ``-div(nu grad u) = forcing``.

    Parameters
    ----------
    nu : ndarray
        (R, R), positive.
    forcing : ndarray or float
        (R, R) or one value.

    Returns
    -------
    ndarray
        (R, R), float64.
    """
    # A symmetric positive definite matrix needs no pivoting, which leaves less fill-in.
    factors = scipy.sparse.linalg.splu(
        darcy_matrix(nu),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return factors.solve(np.broadcast_to(forcing, nu.shape).ravel()).reshape(nu.shape)


def solve_samples(is_high: np.ndarray, beta: float) -> np.ndarray:
    """Solve several two-phase samples: the work of one task.

    Parameters
    ----------
    is_high : ndarray
        (M, R, R) bool: nu is 1 where true and 0.1 elsewhere.
    beta : float
        Constant forcing.

    Returns
    -------
    ndarray
        (M, R, R), float32.
    """
    nu = np.where(is_high, NU_HIGH, NU_LOW)
    return np.stack([solve_steady(sample, beta) for sample in nu]).astype(np.float32)
