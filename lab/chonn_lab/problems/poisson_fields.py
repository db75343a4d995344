"""Poisson's equation: its fields, and files of them in CNO's layout.

On the square the fields are the exact series, on a part of it made from the same. With u the
square's solution of a source, u - w solves the same equation on a part of the square where w is
harmonic and has the values of u on the walls inside. No source is discretised: what the grid gets
wrong is the smooth w alone.

HDF5: groups ``Sample_{i}`` with ``input`` and ``output`` (R, R); the file IN also has the scalars
`RANGES`, the range of the training samples.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from chonn_lab.problems.darcy_solver import conductance_matrix, factorise
from chonn_lab.problems.domains import SQUARE, check_domain, domain_mask, suffix
from chonn_lab.problems.hdf5 import check_mask, dataset, open_hdf5

R_EXPONENT = -0.5
RESOLUTION = 64
RANGES = ("min_inp", "max_inp", "min_out", "max_out")
N_TRAIN = 1024
SPLITS = MappingProxyType(
    {
        "train": ("IN", range(1024)),
        "validation": ("IN", range(1024, 1152)),
        "test": ("IN", range(1152, 1408)),
        "out_of_distribution": ("OUT", range(256)),
    }
)


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
        inner, self._shape = (slice(1, -1),) * 2, exists.shape
        self._unknown = np.zeros_like(exists)
        self._unknown[inner] = exists[inner]
        # Faces of the nodes inside: those along axis 0, then along axis 1.
        sides = (exists[:, 1:-1], exists[1:-1].T)
        walls = [side[1:] != side[:-1] for side in sides]
        faces = [1.0 + wall for wall in walls]
        kept = np.flatnonzero(exists[inner])
        matrix = conductance_matrix([faces[0], faces[1].T])[kept][:, kept]
        self._factors = factorise(matrix)
        self._walls = [2.0 * walls[0], 2.0 * walls[1].T]

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
        x = on_faces[0][:, 1:-1] * self._walls[0]
        y = on_faces[1][1:-1] * self._walls[1]
        given = x[:-1] + x[1:] + y[:, :-1] + y[:, 1:]
        w = np.zeros(self._shape)
        w[self._unknown] = self._factors.solve(given[self._unknown[1:-1, 1:-1]])
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
        See `chonn_lab.problems.domains`.
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


@dataclass(frozen=True)
class Normalization:
    """Ranges of the training samples; `input` and `output` map them to [0, 1].

    Parameters
    ----------
    min_inp, max_inp, min_out, max_out : float
        As in the file IN.
    """

    min_inp: float
    max_inp: float
    min_out: float
    max_out: float

    def input(self, f: np.ndarray) -> np.ndarray:
        """Normalised source."""
        return (f - self.min_inp) / (self.max_inp - self.min_inp)

    def output(self, u: np.ndarray) -> np.ndarray:
        """Normalised solution."""
        return (u - self.min_out) / (self.max_out - self.min_out)


def file_name(kind: str, resolution: int = RESOLUTION, domain: str = SQUARE) -> str:
    """CNO's file name, with the domain if not the square; `kind` is "IN" or "OUT"."""
    return f"PoissonData_{resolution}x{resolution}{suffix(domain)}_{kind}.h5"


def read_normalization(
    folder: "str | os.PathLike[str]", resolution: int = RESOLUTION, domain: str = SQUARE
) -> Normalization:
    """Ranges of the training samples, from the file IN."""
    return read_ranges(Path(folder) / file_name("IN", resolution, domain))


def read_ranges(path: "str | os.PathLike[str]") -> Normalization:
    """Ranges of the training samples, from a file IN of any name."""
    with open_hdf5(path) as file:
        return Normalization(*(float(dataset(file, name)[()]) for name in RANGES))


def read(
    folder: "str | os.PathLike[str]",
    split: str,
    n_samples: "int | None" = None,
    resolution: int = RESOLUTION,
    domain: str = SQUARE,
) -> tuple[np.ndarray, np.ndarray]:
    """Normalised inputs and outputs of one split, from generated or published files.

    Parameters
    ----------
    folder : path
        Holds the files IN and OUT.
    split : str
        "train", "validation", "test" or "out_of_distribution".
    n_samples : int, optional
        Only the first ones.
    resolution, domain
        Those of the files.

    Returns
    -------
    f, u : ndarray
        (N, R, R), float32, normalised with the training ranges: `read_normalization`. Nodes that do
        not exist have what 0 becomes.

    Raises
    ------
    FileNotFoundError, ValueError
        If a file is missing or damaged, of another domain, or holds fewer samples; if the split is
        unknown.
    """
    if split not in SPLITS:
        raise ValueError(f"expected a split of {list(SPLITS)}, got {split!r}")
    normalization = read_normalization(folder, resolution, domain)
    kind, samples = SPLITS[split]
    if n_samples is not None and not 1 <= n_samples <= len(samples):
        raise ValueError(f"n_samples: expected 1 to {len(samples)} for {split}, got {n_samples}")
    path = Path(folder) / file_name(kind, resolution, domain)
    return read_samples(path, samples[:n_samples], normalization, domain)


def read_samples(
    path: "str | os.PathLike[str]",
    samples: range,
    normalization: Normalization,
    domain: str = SQUARE,
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs of some samples of one file, normalised as one pleases.

    Parameters
    ----------
    path : path
        Generated or published.
    samples : range
        Numbers of the samples.
    normalization : Normalization
        Ranges, of another file if the training was on another grid.
    domain : str
        That of the file.

    Returns
    -------
    f, u : ndarray
        (N, R, R), float32.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or damaged, of another domain, or lacks a sample.
    """
    with open_hdf5(path) as file:
        pairs = [
            [dataset(file, f"Sample_{i}/{name}", 2)[...] for name in ("input", "output")]
            for i in samples
        ]
        check_mask(file, domain, domain_mask(domain, nodes(len(pairs[0][0]))))
        f, u = (np.stack(fields) for fields in zip(*pairs, strict=True))
    f, u = normalization.input(f), normalization.output(u)
    return f.astype(np.float32), u.astype(np.float32)
