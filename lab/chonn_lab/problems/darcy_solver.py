"""Steady Darcy flow on PDEBench's grid: 5-point finite volumes and a direct sparse solve."""

import numpy as np
import scipy.sparse
import scipy.sparse.linalg


def darcy_matrix(nu: np.ndarray, margin: float | None = None) -> scipy.sparse.csc_matrix:
    """Matrix of ``-div(nu grad u)`` on the cell centres of the unit square, (R^2, R^2), symmetric
    positive definite.

    A face has the mean of `nu` (R, R), positive, in its two cells; nu continues unchanged up to the
    place where u = 0. That is at the distance `margin` outside the square; half a cell by default,
    so that u vanishes at the centres of the cells outside. What lies between has no forcing.
    """
    n = len(nu)
    # Conductance of a face to the outside over that of one inside: a cell over the distance.
    wall = 1.0 if margin is None else 1 / (0.5 + n * margin)
    faces_x, faces_y = np.empty((n + 1, n)), np.empty((n, n + 1))
    for faces, along in ((faces_x, nu), (faces_y.T, nu.T)):
        faces[1:-1] = 0.5 * (along[1:] + along[:-1])
        faces[[0, -1]] = wall * along[[0, -1]]
    return conductance_matrix(faces_x, faces_y) * n**2


def conductance_matrix(faces_x: np.ndarray, faces_y: np.ndarray) -> scipy.sparse.csc_matrix:
    """Kirchhoff's law on a grid of R x S nodes, (R S, R S), with u = 0 beyond its outer faces.

    `faces_x` (R + 1, S) and `faces_y` (R, S + 1) are conductances of the faces across each axis;
    the first and the last of a line lead outside.
    """
    shape = faces_y.shape[0], faces_x.shape[1]
    number = np.arange(np.prod(shape)).reshape(shape)
    diagonal = np.zeros(shape)
    rows, columns, entries = [number.ravel()], [number.ravel()], [diagonal.ravel()]
    for axis, across in enumerate((faces_x, faces_y)):
        across, along = np.moveaxis(across, axis, 0), np.moveaxis(number, axis, 0)
        np.moveaxis(diagonal, axis, 0)[...] += across[1:] + across[:-1]
        low, high, inner = along[:-1].ravel(), along[1:].ravel(), -across[1:-1].ravel()
        rows += [low, high]
        columns += [high, low]
        entries += [inner, inner]
    places = np.concatenate(rows), np.concatenate(columns)
    return scipy.sparse.csc_matrix(scipy.sparse.coo_matrix((np.concatenate(entries), places)))


def factorise(matrix: scipy.sparse.csc_matrix) -> scipy.sparse.linalg.SuperLU:
    """LU factors of a symmetric positive definite matrix, which needs no pivoting."""
    return scipy.sparse.linalg.splu(
        matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )


def solve_steady(
    nu: np.ndarray, forcing: np.ndarray | float, margin: float | None = None
) -> np.ndarray:
    """u (R, R) of ``-div(nu grad u) = forcing``; see `darcy_matrix`."""
    factors = factorise(darcy_matrix(nu, margin))
    return factors.solve(np.broadcast_to(forcing, nu.shape).ravel()).reshape(nu.shape)
