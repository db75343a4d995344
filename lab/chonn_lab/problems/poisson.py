"""Poisson's equation with sine-series sources: data set card, generator, download and reader.

========== =====================================================================================
Equation   ``-laplace u = f``; learn ``f -> u``
Domain     unit square, R x R nodes ``x_p = p / (R - 1)`` with the boundary among them,
           dimensionless. Axis 0 is x, axis 1 is y. Ours: also an l-shape, or a square with holes,
           see `chonn_lab.problems.domains`; f and u are 0 at nodes that do not exist
Boundary   ``u = 0``; on the square f vanishes there too. The walls inside the square are on the
           faces half-way to nodes that do not exist
Input      ``f = pi / K^2 sum_{i,j=1..K} a_ij (i^2 + j^2)^(-r) sin(pi i x) sin(pi j y)`` with
           ``r = -0.5`` and ``a_ij ~ U[-1, 1]``
Solution   ``u = 1 / (pi K^2) sum a_ij (i^2 + j^2)^(-r-1) sin(pi i x) sin(pi j y)``: exact. On other
           domains, the harmonic function that has these values on the walls is subtracted; it comes
           from a direct sparse solve in float64 of five-point finite volumes on the grid itself
Parameters K = 16, out of distribution K = 20; R = 64
Splits     of the file IN: samples 0-1023 train, 1024-1151 validation, 1152-1407 test; of the file
           OUT (K = 20): 0-255
Seeds      IN draws from child 0 and OUT from child 1 of ``numpy.random.SeedSequence(seed)``, sample
           after sample: sample i is the same for every number of samples and on every grid
Generator  the two sums in float64, stored as float32
Cost       1 s for both files on one core, 60 MB; 4 s on other domains
Layout     that of CNO: HDF5, groups ``Sample_{i}`` with ``input`` and ``output`` (R, R). IN also
           has the scalars ``min_inp``, ``max_inp``, ``min_out``, ``max_out``, the range of the
           training samples; every split is normalised with them. Ours also have the attributes of
           `chonn_lab.problems.origin`, domains other than the square ``mask`` (R, R) bool and the
           attribute ``domain``
Official   ``PoissonData_64x64_IN.h5`` and ``PoissonData_64x64_OUT.h5`` in ``data.zip`` (2.4 GB) of
           Zenodo record 10406879; `fetch` gets them. We know no published checksum: `fetch` asks
           the record itself for the archive's md5, and the zip has a CRC of each file
========== =====================================================================================

Neither the CNO paper nor its code says where the nodes of the published files lie. Nodes on the
boundary agree with the coordinates that CNO's code hands its models, ``linspace(0, 1, 64)``.

On the square the fields are the exact series, on a part of it made from the same. With u the
square's solution of a source, u - w solves the same equation on a part of the square where w is
harmonic and has the values of u on the walls inside. No source is discretised: what the grid gets
wrong is the smooth w alone.

References
----------
.. [1] B. Raonic et al., "Convolutional Neural Operators for robust and accurate learning of PDEs",
   NeurIPS 2023. Data: https://zenodo.org/records/10406879
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import h5py
import numpy as np

from chonn_lab.problems.darcy_solver import conductance_matrix, factorise
from chonn_lab.problems.domains import SQUARE, check_domain, domain_mask, nodes, suffix
from chonn_lab.problems.download import fetch_members
from chonn_lab.problems.generation import ProgressBar, Recipe
from chonn_lab.problems.hdf5 import check_mask, create_hdf5, dataset, open_hdf5, write_mask
from chonn_ops.checks import check_least
from chonn_ops.files import clear_remains, refuse_existing

K_IN, K_OUT = 16, 20
N_IN, N_OUT = 1408, 256
# Increased when the same settings give other data, see `chonn_lab.problems.origin`.
GENERATOR_VERSION = 1
ARCHIVE_DOI, ARCHIVE_NAME = "10.5281/zenodo.10406879", "data.zip"
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
_CHILDREN = MappingProxyType({"IN": (0, K_IN), "OUT": (1, K_OUT)})


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


def generate(
    folder: "str | os.PathLike[str]" = ".",
    n_in: int = N_IN,
    n_out: int = N_OUT,
    resolution: int = RESOLUTION,
    seed: int = 0,
    force: bool = False,
    progress: bool = True,
    domain: str = SQUARE,
) -> tuple[Path, Path]:
    """Generate both files in CNO's layout.

    Parameters
    ----------
    folder : path
        Existing folder for the files, which appear when both are complete. If one of them is there
        already, from a call with the same arguments, only the other one is made.
    n_in, n_out : int
        Samples with K = 16 and with K = 20. With fewer than 1024 of the first, the ranges are
        those of all of them.
    resolution, seed : int
        R and the seed.
    force : bool
        Replace existing files.
    progress : bool
        Show a progress bar.
    domain : {"square", "l-shape", "holes"}
        See `chonn_lab.problems.domains`. The sources are those of the square, cut off.

    Returns
    -------
    tuple of Path
        The files IN and OUT.

    Raises
    ------
    ValueError
        If an argument is out of range, or the grid too coarse for the domain.
    FileExistsError
        If both files exist, or one that another call or somebody else made, and `force` is not set.
    """
    check_least(1, n_in=n_in, n_out=n_out)
    check_least(3, resolution=resolution)
    check_least(0, seed=seed)
    check_domain(domain, resolution)
    recipes = {
        Path(folder) / file_name(kind, resolution, domain): _recipe(
            kind, range(n_samples), resolution, domain, seed
        )
        for kind, n_samples in (("IN", n_in), ("OUT", n_out))
    }
    missing = [path for path in recipes if force or not recipes[path].made(path)] or list(recipes)
    for path in recipes:
        clear_remains(path)
    for path in missing:
        refuse_existing(path, force)
    compute = DomainFields(domain, resolution)
    total = sum(recipes[path].settings["n_samples"] for path in missing)
    with (
        ProgressBar(total=total, unit="sample", disable=not progress) as bar,
        contextlib.ExitStack() as outputs,
    ):
        for path in missing:
            # Neither file appears if one of them cannot be written.
            file = outputs.enter_context(create_hdf5(path, force))
            ranges = _write(file, compute, recipes[path], bar)
            if recipes[path].settings["kind"] == "IN":
                for name, value in zip(RANGES, ranges, strict=True):
                    file[name] = value
            file.flush()
    inside, outside = recipes
    return inside, outside


def generate_samples(
    path: "str | os.PathLike[str]",
    kind: str,
    samples: range,
    resolution: int,
    progress: bool = True,
    domain: str = SQUARE,
) -> None:
    """Generate some of the samples of one file of seed 0, such as those of a test on a finer grid.

    Parameters
    ----------
    path : path
        HDF5 file in the same layout, without ranges; it appears when it is complete.
    kind : {"IN", "OUT"}
    samples : range
        Numbers of the samples.
    resolution, progress, domain
        As for `generate`.

    Raises
    ------
    ValueError, FileExistsError
        As `generate`.
    """
    if kind not in _CHILDREN:
        raise ValueError(f"kind: expected one of {', '.join(_CHILDREN)}, got {kind!r}")
    check_least(1, **{"number of samples": len(samples)})
    check_least(0, **{"first sample": samples.start})
    check_least(3, resolution=resolution)
    compute = DomainFields(domain, resolution)
    with (
        create_hdf5(Path(path), False) as file,
        ProgressBar(total=len(samples), unit="sample", disable=not progress) as bar,
    ):
        _write(file, compute, _recipe(kind, samples, resolution, domain, 0), bar)


def fetch(folder: "str | os.PathLike[str]" = ".", force: bool = False) -> bool:
    """Download CNO's archive (2.4 GB) and keep its two Poisson files.

    Parameters
    ----------
    folder : path
        Existing folder for the files and, until they are taken out of it, for the archive.
    force : bool
        Download again and replace existing files.

    Returns
    -------
    bool
        False if both files were there already. They are not compared with anything.

    Raises
    ------
    OSError, ValueError
        If the download fails; if the archive is damaged or does not hold the files.
    """
    paths = [Path(folder) / file_name(kind) for kind in ("IN", "OUT")]
    if not force and all(path.is_file() for path in paths):
        return False
    fetch_members(ARCHIVE_DOI, ARCHIVE_NAME, paths, force)
    return True


def read_normalization(
    folder: "str | os.PathLike[str]", resolution: int = RESOLUTION, domain: str = SQUARE
) -> Normalization:
    """Ranges of the training samples, from the file IN."""
    with open_hdf5(Path(folder) / file_name("IN", resolution, domain)) as file:
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


def _recipe(kind: str, samples: range, resolution: int, domain: str, seed: int) -> Recipe:
    settings = {
        "kind": kind,
        "n_samples": len(samples),
        "first": samples.start,
        "resolution": resolution,
        "domain": domain,
    }
    return Recipe("poisson", GENERATOR_VERSION, seed, settings, f"Poisson generator, seed {seed}")


def _write(
    file: h5py.File, compute: DomainFields, recipe: Recipe, bar: ProgressBar
) -> tuple[float, float, float, float]:
    """Write source, mask and samples; the ranges of the training samples among them."""
    recipe.stamp(file)
    if compute.mask is not None:
        write_mask(file, compute.domain, compute.mask)
    child, k = _CHILDREN[recipe.settings["kind"]]
    first, n_samples = recipe.settings["first"], recipe.settings["n_samples"]
    rng = np.random.default_rng(np.random.SeedSequence(recipe.seed).spawn(2)[child])
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    for index in range(first + n_samples):
        a = rng.uniform(-1, 1, (k, k))
        if index < first:
            continue
        pair = compute(a)
        for name, field in zip(("input", "output"), pair, strict=True):
            file[f"Sample_{index}/{name}"] = field.astype("f4")
        if index < N_TRAIN:
            low = np.minimum(low, [field.min() for field in pair])
            high = np.maximum(high, [field.max() for field in pair])
        bar.update()
    return low[0], high[0], low[1], high[1]
