"""Steady Darcy flow on PDEBench's grid: 5-point finite volumes and a direct sparse solve."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import scipy.sparse.linalg


def darcy_matrix(
    nu: np.ndarray, exists: np.ndarray | None = None, margin: float | None = None
) -> scipy.sparse.csc_matrix:
    """Matrix of ``-div(nu grad u)`` on the cell centres of the unit square, or of a part of it.

    It is (M, M) for M cells that exist, symmetric positive definite. A face has the mean nu of its
    two cells; towards a cell that does not exist, nu continues unchanged up to the place where u =
    0.

    `nu` and `exists` are (R, R), positive where a cell exists, and bool; all cells by default. u is
    0 at the distance `margin` outside the domain; half a cell by default, so that u vanishes at the
    centres of the cells outside. What lies between has no forcing.
    """
    n = len(nu)
    # Conductance of a face to the outside over that of one inside: a cell over the distance.
    wall = 1.0 if margin is None else 1 / (0.5 + n * margin)
    padded = np.pad(nu, 1, mode="edge")
    inside = np.pad(np.ones_like(nu, dtype=bool) if exists is None else exists, 1)
    middle, lower, upper = slice(1, -1), slice(None, -1), slice(1, None)
    faces = []
    for low, high in (((lower, middle), (upper, middle)), ((middle, lower), (middle, upper))):
        mean = 0.5 * (padded[high] + padded[low])
        own = wall * np.where(inside[low], padded[low], padded[high])
        # Cells that do not exist, and the faces between them, are left out below.
        faces.append(np.where(inside[low] & inside[high], mean, own))
    matrix = conductance_matrix(*faces) * n**2
    if exists is None:
        return matrix
    kept = np.flatnonzero(exists)
    return scipy.sparse.csc_matrix(matrix[kept][:, kept])


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


def laplace_matrix(n: int) -> scipy.sparse.csc_matrix:
    """``-laplace`` on n x n cells of the unit square, u = 0 at its walls, half a cell away."""
    faces = np.ones((n + 1, n))
    faces[[0, -1]] = 2
    return conductance_matrix(faces * n**2, faces.T * n**2)


def factorise(matrix: scipy.sparse.csc_matrix) -> scipy.sparse.linalg.SuperLU:
    """LU factors of a symmetric positive definite matrix."""
    # It needs no pivoting, which leaves less fill-in.
    return scipy.sparse.linalg.splu(
        matrix,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )


def solve_steady(
    nu: np.ndarray,
    forcing: np.ndarray | float,
    exists: np.ndarray | None = None,
    margin: float | None = None,
) -> np.ndarray:
    """u (R, R) of ``-div(nu grad u) = forcing``, 0 where no cell exists; see `darcy_matrix`."""
    factors = factorise(darcy_matrix(nu, exists, margin))
    kept = np.ones(nu.shape, bool) if exists is None else exists
    u = np.zeros(nu.shape)
    u[kept] = factors.solve(np.broadcast_to(forcing, nu.shape)[kept])
    return u
