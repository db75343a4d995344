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

References
----------
.. [1] B. Raonic et al., "Convolutional Neural Operators for robust and accurate learning of PDEs",
   NeurIPS 2023. Data: https://zenodo.org/records/10406879
"""

import contextlib
import os
from pathlib import Path
from types import MappingProxyType

import h5py
import numpy as np

from chonn_lab.problems.domains import SQUARE, check_domain
from chonn_lab.problems.download import fetch_members
from chonn_lab.problems.generation import ProgressBar, Recipe
from chonn_lab.problems.hdf5 import create_hdf5, write_mask
from chonn_lab.problems.poisson_fields import (
    N_TRAIN,
    RANGES,
    RESOLUTION,
    SPLITS,
    DomainFields,
    Normalization,
    fields,
    file_name,
    nodes,
    read,
    read_normalization,
    read_samples,
)
from chonn_ops.checks import check_least
from chonn_ops.files import clear_remains, refuse_existing

__all__ = [
    "SPLITS",
    "Normalization",
    "fetch",
    "fields",
    "file_name",
    "generate",
    "generate_samples",
    "nodes",
    "read",
    "read_normalization",
    "read_samples",
]

K_IN, K_OUT = 16, 20
N_IN, N_OUT = 1408, 256
# Increased when the same settings give other data, see `chonn_lab.problems.origin`.
GENERATOR_VERSION = 1
ARCHIVE_DOI, ARCHIVE_NAME = "10.5281/zenodo.10406879", "data.zip"


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
    seed: int = 0,
    force: bool = False,
    progress: bool = True,
    domain: str = SQUARE,
) -> None:
    """Generate some of the samples of one file, such as those of a test on a finer grid.

    Parameters
    ----------
    path : path
        HDF5 file in the same layout, without ranges; it appears when it is complete.
    kind : {"IN", "OUT"}
    samples : range
        Numbers of the samples.
    resolution, seed, force, progress, domain
        As for `generate`.

    Raises
    ------
    ValueError, FileExistsError
        As `generate`.
    """
    if kind not in _CHILDREN:
        raise ValueError(f"kind: expected one of {', '.join(_CHILDREN)}, got {kind!r}")
    check_least(1, **{"number of samples": len(samples)})
    check_least(0, **{"first sample": samples.start}, seed=seed)
    check_least(3, resolution=resolution)
    compute = DomainFields(domain, resolution)
    with (
        create_hdf5(Path(path), force) as file,
        ProgressBar(total=len(samples), unit="sample", disable=not progress) as bar,
    ):
        _write(file, compute, _recipe(kind, samples, resolution, domain, seed), bar)


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


_CHILDREN = MappingProxyType({"IN": (0, K_IN), "OUT": (1, K_OUT)})


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
