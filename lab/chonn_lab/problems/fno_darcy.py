"""Darcy flow of the FNO paper, 421 x 421: data set card, generator and reader.

========== =====================================================================================
Equation   ``-div(a grad u) = 1``; learn ``a -> u``
Domain     unit square, R x R nodes ``x_p = p / (R - 1)`` with the walls among them, dimensionless.
           Axis 0 is x, axis 1 is y
Boundary   ``u = 0``; the stored u is 0 at all nodes of the walls
Input      ``a``: 12 where a Gaussian field is at least 0, else 3. The field is a sample of
           ``N(0, (-laplace + 9)^-2)`` with zero Neumann conditions and no mean: the cosine series
           of 421 x 421 modes k of standard deviation ``1 / (pi^2 |k|^2 + 9)``
Parameters R = 421, in the papers' tables every fifth node: 85
Splits     1,000 samples to train, ``smooth1``, and 200 to test, ``smooth2``: a file each
Seeds      sample i draws from ``numpy.random.SeedSequence(seed, spawn_key=(split, i))``, split 0 to
           train and 1 to test: it is the same for every number of samples and of workers, and its
           ``a`` the same at the common nodes of other grids
Generator  second-order finite differences, a between two nodes their arithmetic mean, direct sparse
           solve in float64, stored as float32
Cost       1.3 s a sample and core at R = 421: 25 minutes for all 1,200 on one; 0.9 GB, twice that
           while it runs. Solved samples are kept beside the file in parts of 4: the same call goes
           on after an interruption
Layout     that of ``piececonst_r421_N1024_smooth1.mat``, as MATLAB 7.3, which is HDF5 with the axes
           reversed: ``coeff`` (N, R, R) and ``sol`` (N, R, R), float32, in h5py (R, R, N). The
           published files' smoothed coefficients and derivatives are left out. Attributes of
           `chonn_lab.problems.origin`. `read` takes the published files too, MATLAB 5 included
Official   FNO's ``piececonst_r421_N1024_smooth1.mat`` and ``piececonst_r421_N1024_smooth2.mat``, in
           a Google Drive folder without a stable address: to be downloaded by hand. We know no
           checksum
========== =====================================================================================

These data follow the paper. FNO's published MATLAB script differs from the paper: the field lies at
cell centres; a and u are interpolated from there to the nodes and back by splines; the field is
three times as large, which does not change its sign; the low value of a is 4.

References
----------
.. [1] Z. Li et al., "Fourier Neural Operator for Parametric Partial Differential Equations",
   ICLR 2021, appendix A.3.2. Data:
   https://drive.google.com/drive/folders/1UnbQh2WWc6knEHbLn-ZaXrKUZhp7pjt-
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from chonn_lab.problems.darcy_solver import conductance_matrix, factorise
from chonn_lab.problems.domains import nodes
from chonn_lab.problems.generation import Arrays, Recipe
from chonn_lab.problems.hdf5 import MAT_BLOCK, check_range, create_array, dataset, matlab_arrays
from chonn_lab.problems.random_fields import cosine_series
from chonn_ops.checks import check_least
from chonn_ops.files import refuse_existing

RESOLUTION, SUBSAMPLED = 421, 85
N_TRAIN, N_TEST = 1000, 200
SPLITS: tuple[str, ...] = ("train", "test")
A_LOW, A_HIGH = 3.0, 12.0
N_MODES = 421
SAMPLES_PER_PART = 4
# Increased when the same settings give other data, see `chonn_lab.problems.origin`.
GENERATOR_VERSION = 1


def file_name(split: str, n_samples: int, resolution: int = RESOLUTION) -> str:
    """File name in the style of the published files, whose N is 1024."""
    if split not in SPLITS:
        raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {split!r}")
    return f"piececonst_r{resolution}_N{n_samples}_smooth{1 + SPLITS.index(split)}.mat"


OFFICIAL_NAMES = tuple(file_name(split, 1024) for split in SPLITS)


def draw(seed: int, split: str, sample: int, resolution: int = RESOLUTION) -> np.ndarray:
    """(R, R) bool, true where a is high: one sample of the card's law."""
    sequence = np.random.SeedSequence(seed, spawn_key=(SPLITS.index(split), sample))
    noise = np.random.default_rng(sequence).standard_normal((N_MODES, N_MODES))
    return cosine_series(noise, nodes(resolution)) >= 0


def solve(a: np.ndarray, f: "np.ndarray | float" = 1.0) -> np.ndarray:
    """Solve ``-div(a grad u) = f`` with u = 0 on the walls.

    Parameters
    ----------
    a : ndarray
        (R, R) at the nodes, positive.
    f : ndarray or float
        (R, R) at the nodes, or one value; what it is on the walls does not matter.

    Returns
    -------
    ndarray
        (R, R), float64.
    """
    n = len(a)
    faces_x = 0.5 * (a[1:, 1:-1] + a[:-1, 1:-1]) * (n - 1) ** 2
    faces_y = 0.5 * (a[1:-1, 1:] + a[1:-1, :-1]) * (n - 1) ** 2
    u = np.zeros((n, n))
    inner = np.broadcast_to(f, (n, n))[1:-1, 1:-1]
    factors = factorise(conductance_matrix([faces_x, faces_y]))
    u[1:-1, 1:-1] = factors.solve(inner.ravel()).reshape(inner.shape)
    return u


def generate(
    folder: "str | os.PathLike[str]" = ".",
    n_train: int = N_TRAIN,
    n_test: int = N_TEST,
    resolution: int = RESOLUTION,
    seed: int = 0,
    workers: int = 1,
    force: bool = False,
    progress: bool = True,
) -> tuple[Path, Path]:
    """Generate both files; an interrupted call is resumed by the next one.

    Parameters
    ----------
    folder : path
        Existing folder for the files; each appears when it is complete. If one of them is there
        already, from a call with the same arguments, only the other one is made.
    n_train, n_test, resolution : int
        Samples of the two files, and R.
    seed, workers, force, progress
        As for `chonn_lab.problems.helmholtz.generate`, for each file.

    Returns
    -------
    tuple of Path
        The files to train and to test.

    Raises
    ------
    ValueError
        If an argument is out of range.
    FileExistsError
        If both files exist, or one that another call or somebody else made, or samples of an
        interrupted call with other settings, and `force` is not set.
    """
    check_least(1, n_train=n_train, n_test=n_test, workers=workers)
    check_least(3, resolution=resolution)
    check_least(0, seed=seed)
    sizes: dict[str, int] = {"train": n_train, "test": n_test}
    paths = {split: Path(folder) / file_name(split, n, resolution) for split, n in sizes.items()}
    recipes = {split: _recipe(split, n, resolution, seed) for split, n in sizes.items()}
    missing = [split for split in SPLITS if force or not recipes[split].made(paths[split])]
    for split in missing or SPLITS:
        refuse_existing(paths[split], force)
    for split in missing:
        store = partial(_store, n_samples=sizes[split])
        options: Any = {"store": store, "user_block": MAT_BLOCK}
        recipes[split].write(
            paths[split], _solve_part, SAMPLES_PER_PART, workers, force, progress, **options
        )
    return paths["train"], paths["test"]


def _recipe(split: str, n_samples: int, resolution: int, seed: int) -> Recipe:
    settings = {"split": split, "n_samples": n_samples, "resolution": resolution}
    source = f"generator of FNO's Darcy flow, seed {seed}, {split}"
    return Recipe("fno_darcy", GENERATOR_VERSION, seed, settings, source)


def read(
    path: "str | os.PathLike[str]",
    resolution: int = SUBSAMPLED,
    start: int = 0,
    stop: "int | None" = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients and solutions of some samples, of a generated or published file.

    Parameters
    ----------
    path : path
        MATLAB file of version 5 or 7.3 (HDF5).
    resolution : int
        Nodes along an axis, both walls among them: every fifth of 421 for 85.
    start, stop : int
        First sample and the one after the last, by default the number of samples.

    Returns
    -------
    a, u : torch.Tensor
        (N, resolution, resolution), float32.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or damaged, lacks the samples, or its nodes do not contain those of
        this resolution.
    """
    with matlab_arrays(path, "coeff", "sol") as fields:
        shape = fields[0].shape
        if len(shape) != 3 or shape[1] != shape[2] or fields[1].shape != shape:
            raise ValueError(
                f"{path}: expected coeff and sol of one shape (N, R, R), got {shape} and "
                f"{fields[1].shape}"
            )
        check_range(path, shape[0], start, stop)
        every, rest = divmod(shape[1] - 1, max(resolution - 1, 1))
        if resolution < 2 or rest or not every:
            raise ValueError(
                f"{path}: expected a resolution of 1 + a divisor of {shape[1] - 1}, "
                f"got {resolution}"
            )
        samples = range(start, shape[0] if stop is None else stop)
        a, u = torch.empty(2, len(samples), resolution, resolution)
        for place, sample in enumerate(samples):
            for target, field in zip((a, u), fields, strict=True):
                coarse = field[sample][::every, ::every]
                target[place] = torch.from_numpy(np.ascontiguousarray(coarse, dtype=np.float32))
    return a, u


def _store(file: h5py.File, rows: slice, part: Arrays, n_samples: int) -> None:
    a, u = np.where(part["is_high"], A_HIGH, A_LOW).T, part["u"].T
    for name, values, compression in (("coeff", a, "gzip"), ("sol", u, None)):
        if name not in file:
            shape, chunks = (*values.shape[:2], n_samples), (*values.shape[:2], 1)
            create_array(file, name, shape, chunks=chunks, compression=compression)
        dataset(file, name)[..., rows] = values


def _solve_part(samples: range, seed: int, split: str, resolution: int) -> Arrays:
    is_high = np.stack([draw(seed, split, sample, resolution) for sample in samples])
    u = [solve(np.where(high, A_HIGH, A_LOW)) for high in is_high]
    return {"is_high": is_high, "u": np.stack(u).astype(np.float32)}
