"""Fields of Poisson's equation: on the square by the exact series, on a part of it from the same.

With u the square's solution of a source, u - w solves the same equation on a part of the square
where w is harmonic and has the values of u on the walls inside. No source is discretised: what the
grid gets wrong is the smooth w alone.
"""

import numpy as np
import scipy.sparse

from chonn_ops.problems._darcy_solver import factorise
from chonn_ops.problems.domains import SQUARE, check_domain, domain_mask

R_EXPONENT = -0.5
RESOLUTION = 64
# A node's neighbour one step back and one ahead, as a shift along the axis.
_WAYS = tuple((axis, step) for axis in (0, 1) for step in (-1, 1))


class HarmonicPart:
    """Harmonic functions with given values on the walls inside the square, 0 on its boundary.

    Five-point finite volumes between the nodes ``p / (R - 1)``: unit conductances, those towards
    the walls, which lie on the faces to missing nodes, twice as large. Factorised once.

    Parameters
    ----------
    exists : ndarray, shape (R, R)
        bool; the first and last nodes along each axis are the square's boundary.
    """

    def __init__(self, exists: np.ndarray) -> None:
        n = len(exists)
        self._unknown = exists.copy()
        self._unknown[[0, -1]] = False
        self._unknown[:, [0, -1]] = False
        number = np.full(exists.shape, -1)
        number[self._unknown] = np.arange(np.count_nonzero(self._unknown))
        rows, columns = [], []
        diagonal = np.zeros(exists.shape)
        self._walls: list[np.ndarray] = []
        for axis, step in _WAYS:
            # Rolled around the ends only for nodes on the boundary, which are not unknown.
            neighbour = np.roll(number, -step, axis)
            inside = self._unknown & (neighbour >= 0)
            wall = self._unknown & ~np.roll(exists, -step, axis)
            rows.append(number[inside])
            columns.append(neighbour[inside])
            self._walls.append(wall)
            diagonal += np.where(wall, 2, 1)
        of_row, of_column = np.concatenate(rows), np.concatenate(columns)
        size = np.count_nonzero(self._unknown)
        edges = scipy.sparse.csc_matrix((np.ones(len(of_row)), (of_row, of_column)), (size, size))
        matrix = scipy.sparse.diags(diagonal[self._unknown]) - edges
        self._factors = factorise(scipy.sparse.csc_matrix(matrix))
        self._n = n

    def solve(self, on_faces: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The function at the nodes.

        Parameters
        ----------
        on_faces : tuple of ndarray, shapes (R - 1, R) and (R, R - 1)
            Values half-way between neighbours along axis 0 and along axis 1; those on walls count.

        Returns
        -------
        ndarray, shape (R, R)
            float64, 0 at nodes that do not exist.
        """
        given = np.zeros((self._n, self._n))
        for (axis, step), wall in zip(_WAYS, self._walls, strict=True):
            # Face p lies between the nodes p and p + 1.
            pad = [(0, 0), (0, 0)]
            pad[axis] = (1, 0) if step < 0 else (0, 1)
            given += np.where(wall, 2 * np.pad(on_faces[axis], pad), 0)
        w = np.zeros_like(given)
        w[self._unknown] = self._factors.solve(given[self._unknown])
        return w


def nodes(resolution: int) -> np.ndarray:
    """(R,) nodes of the unit interval, its ends among them."""
    return np.linspace(0, 1, resolution)


def fields(a: np.ndarray, resolution: int = RESOLUTION) -> tuple[np.ndarray, np.ndarray]:
    """Source and exact solution of coefficients.

    Parameters
    ----------
    a : ndarray
        (..., K, K).
    resolution : int
        Nodes R along an axis.

    Returns
    -------
    f, u : ndarray
        (..., R, R), float64.
    """
    sine = _sines(a.shape[-1], nodes(resolution))
    of_f, of_u = _weights(a)
    return sine.T @ of_f @ sine, sine.T @ of_u @ sine


def _sines(k: int, points: np.ndarray) -> np.ndarray:
    """(K, R) modes at points of the unit interval."""
    sine = np.sin(np.pi * np.arange(1, k + 1)[:, None] * points)
    # sin(pi i) is not quite 0 in floating point, and the boundary value is.
    sine[:, points == 1] = 0
    return sine


def _weights(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(..., K, K) weights of the modes in f and in u."""
    number = np.arange(1, a.shape[-1] + 1)
    squares = (number**2)[:, None] + number**2
    weighted = np.pi / a.shape[-1] ** 2 * a * squares**-R_EXPONENT
    return weighted, weighted / (np.pi**2 * squares)


class DomainFields:
    """`fields` on a domain inside the square.

    Parameters
    ----------
    domain : {"square", "l-shape", "holes"}
        See `chonn_ops.problems.domains`.
    resolution : int
        Nodes R along an axis.

    Attributes
    ----------
    mask : ndarray, shape (R, R), or None
        bool, which nodes exist; None for the square.

    Raises
    ------
    ValueError
        If the domain is unknown, or the grid too coarse for it.
    """

    def __init__(self, domain: str, resolution: int = RESOLUTION) -> None:
        check_domain(domain, resolution)
        self.domain, self.resolution = domain, resolution
        self.mask: np.ndarray | None = None
        if domain != SQUARE:
            self.mask = domain_mask(domain, nodes(resolution))
            self._harmonic = HarmonicPart(self.mask)

    def __call__(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and solution of coefficients (K, K): both (R, R), float64, 0 outside."""
        f, u = fields(a, self.resolution)
        if self.mask is None:
            return f, u
        at_nodes = nodes(self.resolution)
        between = (at_nodes[1:] + at_nodes[:-1]) / 2
        sine, half = (_sines(a.shape[-1], points) for points in (at_nodes, between))
        _, of_u = _weights(a)
        w = self._harmonic.solve((half.T @ of_u @ sine, sine.T @ of_u @ half))
        return f * self.mask, (u - w) * self.mask
