"""Poisson's equation with sine-series sources, of CNO.

========== =====================================================================================
Equation   ``-laplace u = f``, u = 0 on the walls; learn ``f -> u``
Domain     R x R nodes ``x_p = p / (R - 1)`` with the boundary among them
Input      ``f = pi / K^2 sum_{i,j=1..K} a_ij (i^2 + j^2)^(-r) sin(pi i x) sin(pi j y)`` with
           ``r = -0.5`` and ``a_ij ~ U[-1, 1]``
Solution   ``u = 1 / (pi K^2) sum a_ij (i^2 + j^2)^(-r-1) sin(pi i x) sin(pi j y)``: exact
Parameters K = 16, out of distribution K = 20; R = 64
Splits     of the file IN: samples 0-1023 train, 1024-1151 validation, 1152-1407 test; of the file
           OUT (K = 20): 0-255
Seeds      IN draws from child 0 and OUT from child 1 of ``numpy.random.SeedSequence(seed)``, sample
           after sample, the same on every grid
Cost       3 s for both files on one core, 60 MB
Layout     that of CNO: groups ``Sample_{i}`` with ``input`` and ``output`` (R, R). IN also has the
           scalars ``min_inp``, ``max_inp``, ``min_out``, ``max_out``, the range of the training
           samples; every split is normalised with them
Official   ``PoissonData_64x64_IN.h5`` and ``PoissonData_64x64_OUT.h5`` in ``data.zip`` (2.4 GB) of
           https://zenodo.org/records/10406879. We know no checksum
========== =====================================================================================

Neither the CNO paper (B. Raonic et al., NeurIPS 2023) nor its code says where the nodes of the
published files lie. Nodes on the boundary agree with the coordinates that CNO's code hands its
models, ``linspace(0, 1, 64)``.
"""

from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import h5py
import numpy as np

from chonn_lab.problems.generation import Arrays, Recipe, make_files
from chonn_lab.problems.grids import nodes
from chonn_lab.problems.hdf5 import dataset, open_hdf5
from chonn_ops.checks import check_choice, check_integer

K_IN, K_OUT = 16, 20
N_IN, N_OUT = 1408, 256
R_EXPONENT = -0.5
RESOLUTION = 64
KINDS = ("IN", "OUT")
SPLITS = MappingProxyType(
    {
        "train": ("IN", range(1024)),
        "validation": ("IN", range(1024, 1152)),
        "test": ("IN", range(1152, 1408)),
        "out_of_distribution": ("OUT", range(256)),
    }
)


def fields(a: np.ndarray, resolution: int = RESOLUTION) -> tuple[np.ndarray, np.ndarray]:
    """Source and exact solution (..., R, R) of coefficients (..., K, K), float64."""
    k, points = a.shape[-1], nodes(resolution)
    number = np.arange(1, k + 1)
    sine = np.sin(np.pi * number[:, None] * points)
    # sin(pi i) is not quite 0 in floating point, and the boundary value is.
    sine[:, points == 1] = 0
    squares = (number**2)[:, None] + number**2
    of_f = np.pi / k**2 * a * squares**-R_EXPONENT
    of_u = of_f / (np.pi**2 * squares)
    return sine.T @ of_f @ sine, sine.T @ of_u @ sine


class Normalization(NamedTuple):
    """Ranges of the training samples, as in the file IN, which map fields to [0, 1]."""

    min_inp: float
    max_inp: float
    min_out: float
    max_out: float

    def __call__(self, f: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normalised source and solution."""
        return (
            (f - self.min_inp) / (self.max_inp - self.min_inp),
            (u - self.min_out) / (self.max_out - self.min_out),
        )


def file_name(kind: str, resolution: int = RESOLUTION) -> str:
    """CNO's file name; `kind` is "IN" or "OUT"."""
    return f"PoissonData_{resolution}x{resolution}_{kind}.h5"


def generate(
    folder: Path | str = ".",
    n_in: int = N_IN,
    n_out: int = N_OUT,
    resolution: int = RESOLUTION,
    **options: Any,
) -> tuple[Path, ...]:
    """Generate both files in CNO's layout, IN and OUT, in an existing folder.

    If one of them is there already, from a call with the same arguments, only the other one is
    made. With fewer than 1024 samples in IN, the ranges are those of all of them.
    """
    sizes = zip(KINDS, (n_in, n_out), strict=True)
    recipes = {
        Path(folder) / file_name(kind, resolution): _recipe(kind, range(n), resolution)
        for kind, n in sizes
    }
    return make_files(recipes, **options)


def generate_samples(
    path: Path, kind: str, samples: range, resolution: int, **options: Any
) -> None:
    """Generate some of the samples of one file, such as those of a test on a finer grid.

    The layout is the same, without ranges unless they are the first of the file IN.
    """
    make_files({path: _recipe(kind, samples, resolution)}, **options)


def _recipe(kind: str, samples: range, resolution: int) -> Recipe:
    check_integer(3, resolution=resolution)
    size = {"kind": kind, "n_samples": len(samples), "first": samples.start}
    settings = {**size, "resolution": resolution}
    ranges: list[np.ndarray] = []

    def store(file: h5py.File, part: range, arrays: Arrays) -> None:
        for i, f, u in zip(part, arrays["f"], arrays["u"], strict=True):
            file[f"Sample_{i}/input"], file[f"Sample_{i}/output"] = f, u
        ranges.extend(arrays["ranges"])
        if (kind, samples.start, part.stop) == ("IN", 0, samples.stop):
            training = np.array(ranges[: SPLITS["train"][1].stop])
            for j, name in enumerate(Normalization._fields):
                file[name] = (np.max if j % 2 else np.min)(training[:, j])

    return Recipe(_sample, settings, store=store)


def _sample(seed: int, i: int, kind: str, resolution: int) -> Arrays:
    child = KINDS.index(kind)
    k = (K_IN, K_OUT)[child]
    generator = np.random.PCG64(np.random.SeedSequence(seed).spawn(2)[child])
    # One stream a file: the numbers of earlier samples are skipped.
    a = np.random.Generator(generator.advance(i * k * k)).uniform(-1, 1, (k, k))
    f, u = fields(a, resolution)
    ranges = [f.min(), f.max(), u.min(), u.max()]
    return {"f": f.astype("f4"), "u": u.astype("f4"), "ranges": np.array(ranges)}


def read_normalization(folder: Path | str, resolution: int = RESOLUTION) -> Normalization:
    """Ranges of the training samples, from the file IN."""
    with open_hdf5(Path(folder) / file_name("IN", resolution)) as file:
        return Normalization(*(float(dataset(file, name)[()]) for name in Normalization._fields))


def read(
    folder: Path | str, split: str, n_samples: int | None = None, resolution: int = RESOLUTION
) -> tuple[np.ndarray, np.ndarray]:
    """Normalised inputs and outputs of one split, or of its first samples: (N, R, R), float32.

    FileNotFoundError or ValueError if a file is missing or damaged, or holds fewer samples; if the
    split is unknown.
    """
    check_choice("split", split, tuple(SPLITS))
    kind, samples = SPLITS[split]
    if n_samples is not None and not 1 <= n_samples <= len(samples):
        raise ValueError(f"n_samples: expected 1 to {len(samples)} for {split}, got {n_samples}")
    path = Path(folder) / file_name(kind, resolution)
    return read_samples(path, samples[:n_samples], read_normalization(folder, resolution))


def read_samples(
    path: Path, samples: range, normalization: Normalization
) -> tuple[np.ndarray, np.ndarray]:
    """`read` of numbered samples of one file, normalised as one pleases."""
    with open_hdf5(path) as file:
        pairs = [
            [dataset(file, f"Sample_{i}/{name}", 2)[...] for name in ("input", "output")]
            for i in samples
        ]
        f, u = normalization(*(np.stack(both) for both in zip(*pairs, strict=True)))
    return f.astype(np.float32), u.astype(np.float32)
