"""Flow by an unknown law of the flux.

========== =====================================================================================
Equation   ``-div(k phi(|grad u|) grad u / |grad u|) = f``, u = 0 at the walls; learn ``k, f -> u``.
           phi is not given
Domain     R x R nodes of the unit square with the walls among them; ``shape="rectangle"``:
           R x 3 R / 2 nodes at the same distances, 1 / (R - 1)
Input      ``k = exp(g / 2)`` and ``f = 2 s exp(h / 2)``, g and h Gaussian fields with squared
           exponential covariance of lengths 0.2 and 0.3; log2 s is uniform from -1 to 1, and
           `source` multiplies f. Fields are functions of the position, the same on every grid
Law        ``flux``: "forchheimer", the E of ``phi + 2 phi^2 = E``; "power", ``phi = E^2``; or
           "threshold", where little flows below E = 1/2
Parameters R = 64
Generator  bilinear elements with 2 x 2 Gauss points, Newton's method with a line search, SciPy's
           sparse LU; the residual of every node is below 1e-10 of the largest source
Cost       0.3 s a sample and core at R = 64, 2 s at 128
Layout     ``k``, ``f`` and ``u`` (N, R, R)
========== =====================================================================================
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from chonn_lab.problems.darcy_solver import factorise
from chonn_lab.problems.generation import Arrays, Recipe, make_files, single, stream
from chonn_lab.problems.hdf5 import read_rows
from chonn_lab.problems.upscaling import gaussian_field
from chonn_ops.checks import check_choice, check_integer

TOLERANCE, STEPS = 1e-10, 60
SHAPES = ("square", "rectangle")
# The flux over k for arrays or tensors of fields E >= 0.
LAWS: dict[str, Callable[[Any], Any]] = {
    "forchheimer": lambda e: 2 * e / (1 + (1 + 8 * e) ** 0.5),
    "power": lambda e: e * e,
    "threshold": lambda e: (e - 0.5 + ((e - 0.5) ** 2 + 0.01) ** 0.5 + 0.5 - 0.26**0.5) / 2,
}
_GAUSS = [((1 + a / 3**0.5) / 2, (1 + b / 3**0.5) / 2) for a in (-1, 1) for b in (-1, 1)]
# Values (4, 4) and gradients (4, 2, 4) at the Gauss points of the corners' functions.
_VALUES = np.array([[(1 - a) * (1 - b), (1 - a) * b, a * (1 - b), a * b] for a, b in _GAUSS])
_GRADIENTS = np.array([[[b - 1, -b, 1 - b, b], [a - 1, 1 - a, -a, a]] for a, b in _GAUSS])


def solve(k: np.ndarray, f: np.ndarray, law: Callable[[Any], Any], step: float) -> np.ndarray:
    """u at nodes (R, S) at distances `step`; see the card."""
    number = np.arange(k.size).reshape(k.shape)
    corners = np.stack([number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]], -1)
    corners, inner = corners.reshape(-1, 4), number[1:-1, 1:-1].ravel()
    places = np.repeat(corners, 4, 1).ravel(), np.tile(corners, 4).ravel()
    gradients, part = _GRADIENTS / step, step**2 / 4
    conductivity = part * k.ravel()[corners] @ _VALUES.T

    def gathered(values: np.ndarray) -> np.ndarray:
        return np.bincount(corners.ravel(), values.ravel(), k.size)

    def field(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slopes = np.einsum("qdc,mc->mqd", gradients, u[corners])
        return slopes, np.sqrt((slopes**2).sum(-1) + 1e-24)

    def residual(u: np.ndarray) -> np.ndarray:
        slopes, size = field(u)
        flux = (conductivity * law(size) / size)[..., None] * slopes
        return (load - gathered(np.einsum("qdc,mqd->mc", gradients, flux)))[inner]

    load = gathered(part * f.ravel()[corners] @ _VALUES.T @ _VALUES)
    u, left, tensor = np.zeros(k.size), load[inner], conductivity[..., None, None] * np.eye(2)
    for _ in range(STEPS):
        blocks = np.einsum("qdc,mqde,qef->mcf", gradients, tensor, gradients, optimize=True)
        matrix = scipy.sparse.csc_matrix((blocks.ravel(), places), (k.size, k.size))
        change = factorise(matrix[inner][:, inner].tocsc()).solve(left)
        slope, size = left @ change, 1.0
        while True:  # until the energy no longer rises steeply at the end of the step
            moved = u.copy()
            moved[inner] += size * change
            left = residual(moved)
            if left @ change >= -slope / 2 or size < 1e-6:
                break
            size /= 2
        u = moved
        if np.abs(left).max() < TOLERANCE * np.abs(load).max():
            return u.reshape(k.shape)
        slopes, size = field(u)
        # A step into the complex plane gives the derivative to all digits.
        along, across = np.imag(law(size + 1e-30j)) / 1e-30, law(size) / size
        along, across = (np.maximum(x, 1e-9)[..., None, None] for x in (along, across))
        unit = (slopes / size[..., None])[..., None]
        outer = unit * unit.swapaxes(-1, -2)
        tensor = conductivity[..., None, None] * (across * np.eye(2) + (along - across) * outer)
    raise RuntimeError(f"no solution to {TOLERANCE:g} in {STEPS} steps of Newton's method")


def generate(
    output: Path | str = "flux_law.hdf5",
    n_samples: int = 112,
    resolution: int = 64,
    flux: str = "forchheimer",
    source: float = 1.0,
    shape: str = "square",
    first: int = 0,
    **options: Any,
) -> Path:
    """Generate a file from the sample `first` on; R is even and at least 8."""
    check_integer(8, resolution=resolution)
    check_choice("flux", flux, LAWS)
    check_choice("shape", shape, SHAPES)
    settings = {"n_samples": n_samples, "resolution": resolution, "flux": flux, "source": source}
    recipe = Recipe(_sample, {**settings, "shape": shape, "first": first})
    return make_files({Path(output): recipe}, **options)[0]


def read(path: Path | str, start: int = 0, stop: int | None = None) -> tuple[np.ndarray, ...]:
    """k, f and u of samples, (N, R, S), float32; see `read_rows`."""
    return tuple(read_rows(path, start, stop, k=3, f=3, u=3))


def _sample(seed: int, i: int, resolution: int, flux: str, source: float, shape: str) -> Arrays:
    rng = stream(seed, i)
    columns = resolution if shape == "square" else 3 * resolution // 2
    places = np.arange(columns) / (resolution - 1)
    strength = 2 * source * 2 ** rng.uniform(-1, 1)
    g, h = (gaussian_field(rng, places, length)[:resolution] for length in (0.2, 0.3))
    k, f = np.exp(g / 2), strength * np.exp(h / 2)
    return single(k=k, f=f, u=solve(k, f, LAWS[flux], 1 / (resolution - 1)))
