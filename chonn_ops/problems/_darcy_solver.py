"""Steady Darcy flow on PDEBench's grid: 5-point finite volumes and a direct sparse solve."""

from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

NU_LOW, NU_HIGH = 0.1, 1.0


def darcy_matrix(
    nu: np.ndarray, exists: "np.ndarray | None" = None, margin: "float | None" = None
) -> scipy.sparse.csc_matrix:
    """Matrix of ``-div(nu grad u)`` on the cell centres of the unit square, or of a part of it.

    A face has the mean nu of its two cells; towards a cell that does not exist, nu continues
    unchanged up to the place where u = 0.

    Parameters
    ----------
    nu : ndarray
        (R, R), positive where a cell exists.
    exists : ndarray, optional
        (R, R) bool; all cells by default.
    margin : float, optional
        Distance outside the domain at which u = 0; half a cell by default, so that u vanishes at
        the centres of the cells outside. What lies between has no forcing.

    Returns
    -------
    csc_matrix
        (M, M) for M cells that exist, symmetric positive definite.
    """
    n = len(nu)
    # Conductance of a face to the outside over that of one inside: a cell over the distance.
    wall = 1.0 if margin is None else 1 / (0.5 + n * margin)
    padded = np.pad(nu, 1, mode="edge")
    inside = np.pad(np.ones_like(nu, dtype=bool) if exists is None else exists, 1)

    def faces(low: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
        """Conductances of the faces between two sides, and which have a cell on both."""
        between = inside[low] & inside[high]
        own = wall * np.where(inside[low], padded[low], padded[high])
        some = inside[low] | inside[high]
        mean = 0.5 * (padded[high] + padded[low])
        return np.where(between, mean, np.where(some, own, 0.0)), between

    middle, lower, upper = slice(1, -1), slice(None, -1), slice(1, None)
    face_x, between_x = faces((lower, middle), (upper, middle))
    face_y, between_y = faces((middle, lower), (middle, upper))
    diagonal = face_x[1:] + face_x[:-1] + face_y[:, 1:] + face_y[:, :-1]
    along_x = -(face_x * between_x)[1:-1].ravel()
    # The last cell of a row and the first of the next are neighbours in memory only: no face.
    along_y = -(face_y * between_y)[:, 1:].ravel()[:-1]
    bands = [diagonal.ravel(), along_x, along_x, along_y, along_y]
    offsets: Any = [0, n, -n, 1, -1]  # Annotated as a single int in SciPy.
    matrix = scipy.sparse.csc_matrix(scipy.sparse.diags(bands, offsets) * n**2)
    if exists is None:
        return matrix
    kept = np.flatnonzero(exists)
    return scipy.sparse.csc_matrix(matrix[kept][:, kept])


def solve_steady(
    nu: np.ndarray,
    forcing: "np.ndarray | float",
    exists: "np.ndarray | None" = None,
    margin: "float | None" = None,
) -> np.ndarray:
    """Solve ``-div(nu grad u) = forcing``.

    Parameters
    ----------
    nu, exists, margin
        As in `darcy_matrix`.
    forcing : ndarray or float
        (R, R) or one value.

    Returns
    -------
    ndarray
        (R, R), float64; 0 where no cell exists.
    """
    # A symmetric positive definite matrix needs no pivoting, which leaves less fill-in.
    factors = scipy.sparse.linalg.splu(
        darcy_matrix(nu, exists, margin),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    forcing = np.broadcast_to(forcing, nu.shape)
    if exists is None:
        return factors.solve(forcing.ravel()).reshape(nu.shape)
    u = np.zeros(nu.shape)
    u[exists] = factors.solve(forcing[exists])
    return u


def solve_samples(
    is_high: np.ndarray,
    beta: float,
    exists: "np.ndarray | None" = None,
    margin: "float | None" = None,
) -> np.ndarray:
    """Solve several two-phase samples: the work of one task.

    Parameters
    ----------
    is_high : ndarray
        (M, R, R) bool: nu is 1 where true and 0.1 elsewhere.
    beta : float
        Constant forcing.
    exists, margin
        As in `darcy_matrix`.

    Returns
    -------
    ndarray
        (M, R, R), float32; 0 where no cell exists.
    """
    nu = np.where(is_high, NU_HIGH, NU_LOW)
    return np.stack([solve_steady(sample, beta, exists, margin) for sample in nu]).astype(
        np.float32
    )
