"""Poisson's data in CNO's layout: names, splits, normalisation and reading of its files.

HDF5: groups ``Sample_{i}`` with ``input`` and ``output`` (R, R); the file IN also has the scalars
`RANGES`, the range of the training samples.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from chonn_ops.problems._poisson_fields import RESOLUTION, nodes
from chonn_ops.problems.domains import SQUARE, domain_mask, suffix
from chonn_ops.problems.hdf5 import check_mask, dataset, open_hdf5

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

    def physical_output(self, u: np.ndarray) -> np.ndarray:
        """Solution from a normalised one."""
        return u * (self.max_out - self.min_out) + self.min_out


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
        Of the files.

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
        raise ValueError(f"n_samples must be 1 to {len(samples)} for {split}, got {n_samples}")
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
        Of another file, if these are samples of a training on another grid.
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
