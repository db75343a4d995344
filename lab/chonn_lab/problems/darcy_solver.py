"""Steady Darcy flow on PDEBench's grid: 5-point finite volumes and a direct sparse solve."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse
import scipy.sparse.linalg


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
    middle, lower, upper = slice(1, -1), slice(None, -1), slice(1, None)
    faces = []
    for low, high in (((lower, middle), (upper, middle)), ((middle, lower), (middle, upper))):
        mean = 0.5 * (padded[high] + padded[low])
        own = wall * np.where(inside[low], padded[low], padded[high])
        # Cells that do not exist, and the faces between them, are left out below.
        faces.append(np.where(inside[low] & inside[high], mean, own))
    matrix = conductance_matrix(faces) * n**2
    if exists is None:
        return matrix
    kept = np.flatnonzero(exists)
    return scipy.sparse.csc_matrix(matrix[kept][:, kept])


def conductance_matrix(faces: Sequence[np.ndarray]) -> scipy.sparse.csc_matrix:
    """Kirchhoff's law on a box of nodes, with u = 0 beyond its outer faces.

    Parameters
    ----------
    faces : sequence of ndarray
        Conductances of the faces across every axis: those across axis d have one more along it than
        there are nodes, the first and the last lead outside.

    Returns
    -------
    csc_matrix
        (M, M) for M nodes in the order of their memory, symmetric.
    """
    shape = tuple(length - (axis == 0) for axis, length in enumerate(faces[0].shape))
    number = np.arange(np.prod(shape)).reshape(shape)
    diagonal = np.zeros(shape)
    rows, columns, entries = [number.ravel()], [number.ravel()], [diagonal.ravel()]
    for axis, across in enumerate(faces):
        across = np.moveaxis(across, axis, 0)
        along = np.moveaxis(number, axis, 0)
        np.moveaxis(diagonal, axis, 0)[...] += across[1:] + across[:-1]
        low, high, inner = along[:-1].ravel(), along[1:].ravel(), -across[1:-1].ravel()
        rows += [low, high]
        columns += [high, low]
        entries += [inner, inner]
    entries = np.concatenate(entries)
    matrix = scipy.sparse.coo_matrix((entries, (np.concatenate(rows), np.concatenate(columns))))
    return scipy.sparse.csc_matrix(matrix)


def cell_faces(nu: np.ndarray) -> list[np.ndarray]:
    """Faces of the cells of the unit box for `conductance_matrix`, walls with u = 0 around it.

    Parameters
    ----------
    nu : ndarray
        (R,) * d, positive.

    Returns
    -------
    list of ndarray
        Arithmetic means of two cells, over the spacing squared; at the walls, half a cell from a
        centre, twice the cell's own.
    """
    faces = []
    for axis in range(nu.ndim):
        across = np.moveaxis(nu, axis, 0)
        inner = 0.5 * (across[1:] + across[:-1])
        both = np.concatenate([2 * across[:1], inner, 2 * across[-1:]])
        faces.append(np.moveaxis(both, 0, axis) * len(nu) ** 2)
    return faces


def factorise(matrix: scipy.sparse.csc_matrix) -> "scipy.sparse.linalg.SuperLU":
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
    factors = factorise(darcy_matrix(nu, exists, margin))
    forcing = np.broadcast_to(forcing, nu.shape)
    if exists is None:
        return factors.solve(forcing.ravel()).reshape(nu.shape)
    u = np.zeros(nu.shape)
    u[exists] = factors.solve(forcing[exists])
    return u
