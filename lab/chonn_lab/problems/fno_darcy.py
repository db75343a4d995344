"""Darcy flow of the FNO paper (appendix A.3.2), 421 x 421.

========== =====================================================================================
Equation   ``-div(a grad u) = 1``, u = 0 on the walls; learn ``a -> u``
Domain     R x R nodes ``x_p = p / (R - 1)`` with the walls among them
Input      ``a``: 12 where a Gaussian field is at least 0, else 3. The field is a sample of
           ``N(0, (-laplace + 9)^-2)`` with zero Neumann conditions and no mean: the cosine series
           of 421 x 421 modes k of standard deviation ``1 / (pi^2 |k|^2 + 9)``
Parameters R = 421, in the papers' tables every fifth node: 85
Splits     1,000 samples to train, ``smooth1``, and 200 to test, ``smooth2``: a file each, of
           ``spawn_key=(0, i)`` and ``(1, i)``. ``a`` is the same at the common nodes of all grids
Generator  second-order finite differences, a between two nodes their arithmetic mean
Cost       1.3 s a sample and core at R = 421: 25 minutes for all 1,200 on one; 0.9 GB
Layout     that of the published files as MATLAB 7.3, which is HDF5 with the axes reversed:
           ``coeff`` and ``sol`` (N, R, R), in h5py (R, R, N), without smoothed coefficients and
           derivatives. `read` takes the published files too, MATLAB 5 included
Official   ``piececonst_r421_N1024_smooth1.mat`` and ``piececonst_r421_N1024_smooth2.mat``. We know
           no checksum
========== =====================================================================================

These data follow the paper. FNO's published MATLAB script differs from the paper: the field lies at
cell centres; a and u are interpolated from there to the nodes and back by splines; the field is
three times as large, which does not change its sign; the low value of a is 4.
"""

import functools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from chonn_lab.problems.darcy_solver import conductance_matrix, factorise
from chonn_lab.problems.generation import Arrays, Recipe, make_files, stream
from chonn_lab.problems.grids import nodes
from chonn_lab.problems.hdf5 import check_range, create_array, dataset, matlab_arrays
from chonn_lab.problems.random_fields import cosine_series
from chonn_ops.checks import check_integer

RESOLUTION = 421
SPLITS: tuple[str, ...] = ("train", "test")
A_LOW, A_HIGH = 3.0, 12.0
N_MODES = 421


def file_name(split: str, n_samples: int, resolution: int = RESOLUTION) -> str:
    """File name in the style of the published files, whose N is 1024."""
    return f"piececonst_r{resolution}_N{n_samples}_smooth{1 + SPLITS.index(split)}.mat"


OFFICIAL_NAMES = tuple(file_name(split, 1024) for split in SPLITS)


def draw(seed: int, split: str, sample: int, resolution: int = RESOLUTION) -> np.ndarray:
    """(R, R) bool, true where a is high: one sample of the card's law."""
    noise = stream(seed, SPLITS.index(split), sample).standard_normal((N_MODES, N_MODES))
    return cosine_series(noise, nodes(resolution)) >= 0


def solve(a: np.ndarray, f: np.ndarray | float = 1.0) -> np.ndarray:
    """Solve ``-div(a grad u) = f`` with u = 0 on the walls; a, f and u at the nodes, (R, R)."""
    n = len(a)
    faces_x = 0.5 * (a[1:, 1:-1] + a[:-1, 1:-1]) * (n - 1) ** 2
    faces_y = 0.5 * (a[1:-1, 1:] + a[1:-1, :-1]) * (n - 1) ** 2
    inner = np.broadcast_to(f, (n, n))[1:-1, 1:-1]
    factors = factorise(conductance_matrix(faces_x, faces_y))
    return np.pad(factors.solve(inner.ravel()).reshape(inner.shape), 1)


def generate(
    folder: Path | str = ".",
    n_train: int = 1000,
    n_test: int = 200,
    resolution: int = RESOLUTION,
    **options: Any,
) -> tuple[Path, ...]:
    """Generate both files, to train and to test, in an existing folder.

    If one of them is there already, from a call with the same arguments, only the other one is
    made.
    """
    check_integer(3, resolution=resolution)
    recipes = {}
    for split, n in zip(SPLITS, (n_train, n_test), strict=True):
        recipes[Path(folder) / file_name(split, n, resolution)] = Recipe(
            _sample,
            {"split": split, "n_samples": n, "resolution": resolution},
            store=functools.partial(_store, n_samples=n),
            matlab=True,
        )
    return make_files(recipes, **options)


def read(
    path: Path | str, resolution: int, start: int = 0, stop: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """a and u (N, R, R), float32, of a generated or published file of MATLAB 5 or 7.3.

    R is `resolution`, the nodes along an axis, both walls among them: every fifth of 421 for 85.
    FileNotFoundError or ValueError if the file is missing, damaged or foreign, lacks samples from
    `start` to `stop`, or its nodes do not contain those of this resolution.
    """
    with matlab_arrays(path, "coeff", "sol") as fields:
        n_samples, *grid = fields[0].shape
        check_range(path, n_samples, start, stop)
        every, rest = divmod(grid[0] - 1, max(resolution - 1, 1))
        if resolution < 2 or rest or not every:
            raise ValueError(
                f"{path}: expected a resolution of 1 + a divisor of {grid[0] - 1}, got {resolution}"
            )
        some = slice(start, stop), slice(None, None, every), slice(None, None, every)
        a, u = (np.ascontiguousarray(field[some], "f4") for field in fields)
    return torch.from_numpy(a), torch.from_numpy(u)


def _store(file: h5py.File, part: range, arrays: Arrays, n_samples: int) -> None:
    a, u = np.where(arrays["is_high"], A_HIGH, A_LOW).T, arrays["u"].T
    for name, values, compression in (("coeff", a, "gzip"), ("sol", u, None)):
        if name not in file:
            shape, chunks = (*values.shape[:2], n_samples), (*values.shape[:2], 1)
            create_array(file, name, None, shape=shape, chunks=chunks, compression=compression)
        dataset(file, name)[..., part.start : part.stop] = values


def _sample(seed: int, i: int, split: str, resolution: int) -> Arrays:
    is_high = draw(seed, split, i, resolution)
    return {"is_high": is_high, "u": solve(np.where(is_high, A_HIGH, A_LOW)).astype("f4")}
