"""A plate between a hot and a cold wall, as a newcomer's own arrays.

========== =====================================================================================
Equation   ``div(k grad u) = 0``; learn ``k -> u``
Domain     3 metres wide and 2 high, 2 R / 3 x R cells, values at centres: axis 0 is the height,
           axis 1 the width
Boundary   u = 1 on the left face, u = 0 on the right one, nothing flows through the other two
Hole       with ``hole="insulated"``: no cell exists from 0.75 to 1.25 metres of the height and 1 to
           1.5 of the width, u = 0 is stored there, k = 0.1, and nothing flows into the hole
Input      ``k``: the log-normal media of Darcy flow at contrast 100, the lower two thirds of a
           square of 3 metres; a sample is the same on every grid
Generator  finite volumes with harmonic means at the faces; SciPy's sparse LU
Cost       0.04 s a sample and core at R = 96
Layout     ``nu`` (N, 2 R / 3, R), ``tensor`` (N, 1, 2 R / 3, R), and the coordinates
========== =====================================================================================
"""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from chonn_lab.problems import darcy
from chonn_lab.problems.darcy_solver import conductance_matrix, factorise
from chonn_lab.problems.generation import Arrays, Recipe, make_files, single, stream
from chonn_lab.problems.grids import cell_centres
from chonn_lab.problems.random_fields import LOG_NORMAL, medium
from chonn_ops.checks import check_choice, error

RESOLUTION, N_MODES, CONTRAST, WIDTH = 96, 64, 100.0, 3.0
HOLES = ("none", "insulated")
# A twelfth of the width divides the domain and the hole.
PARTS = 12
read = darcy.read


def exists(resolution: int, hole: str) -> np.ndarray:
    """Which cells exist, (2 R / 3, R), bool."""
    inside = np.ones((2 * resolution // 3, resolution), bool)
    if hole != "none":
        n = resolution // PARTS
        inside[3 * n : 5 * n, 4 * n : 6 * n] = False
    return inside


def solve(k: np.ndarray, there: np.ndarray) -> np.ndarray:
    """u of a conductivity, both (2 R / 3, R); 0 where no cell exists."""
    k = np.where(there, k, 0)
    rows, columns = k.shape
    across, along = np.zeros((rows + 1, columns)), np.zeros((rows, columns + 1))
    for faces, cells in ((across, k), (along.T, k.T)):
        sums = cells[1:] + cells[:-1]
        faces[1:-1] = 2 * cells[1:] * cells[:-1] / np.where(sums > 0, sums, 1)
    along[:, [0, -1]] = 2 * k[:, [0, -1]]  # half a cell away
    source = np.zeros_like(k)
    source[:, 0] = along[:, 0]
    matrix = conductance_matrix(across, along) + scipy.sparse.diags((~there).ravel().astype(float))
    return factorise(matrix.tocsc()).solve(source.ravel()).reshape(k.shape)


def generate(
    output: Path | str = "rectangle.hdf5",
    n_samples: int = 1000,
    resolution: int = RESOLUTION,
    hole: str = "none",
    first: int = 0,
    **options: Any,
) -> Path:
    """Generate a file from the sample `first` on; 12 divides R, the number of cells of the width,
    and `hole` is "none" or "insulated"."""
    check_choice("hole", hole, HOLES)
    if resolution < PARTS or resolution % PARTS:
        raise error("resolution", f"a multiple of {PARTS}", resolution)
    settings = {"n_samples": n_samples, "resolution": resolution, "hole": hole, "first": first}
    places = WIDTH * cell_centres(resolution)
    fixed = {"x-coordinate": places[: 2 * resolution // 3], "y-coordinate": places}
    return make_files({Path(output): Recipe(_sample, settings, fixed=fixed)}, **options)[0]


def _sample(seed: int, i: int, resolution: int, hole: str) -> Arrays:
    noise = stream(seed, i).standard_normal((N_MODES, N_MODES))
    square = medium(noise, cell_centres(resolution), LOG_NORMAL, CONTRAST)
    there = exists(resolution, hole)
    k = np.where(there, square[: len(there)], CONTRAST**-0.5)
    return single(tensor=solve(k, there)[None], nu=k)
