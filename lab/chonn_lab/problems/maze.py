"""Acoustic scattering in a maze, after The Well.

========== =====================================================================================
Equation   ``p_t + K (u_x + v_y) = 0``, ``rho u_t + p_x = 0``, ``rho v_t + p_y = 0``; learn the
           pressure of earlier frames and the density -> the pressure of later frames
Domain     ``[-1, 1]^2``, R x R cells, values at centres. The bulk modulus K is 4. The density rho
           is 3 in the paths and 1e6 + 3 in the walls: a path's speed of sound is 1.155, a wall
           reflects 99.7 % of a wave's amplitude
Boundary   rigid walls at x = -1 and y = -1, outflow at x = 1 and y = 1. The maze has its outer
           walls but for an entrance at y = -1 and an exit at y = 1
Input      a perfect maze of N x N rooms, N = 3 or 4: (2N + 1)^2 squares of path or wall, scaled to
           R x R cells by nearest neighbours. At rest; the pressure is the sum of 1 to 5 rings
           ``intensity + cos(pi (r - radius) / width)`` where ``|r - radius| <= width``, and 0 in
           the walls. A centre is any cell of a path; intensity ~ U(3, 5), radius ~ U(0.01, 0.04),
           width ~ U(0.01, 0.02), the latter two times 256 / R
Parameters R = 48, 24 frames 5.12 / R apart, the first at t = 0: a wave travels 3 cells a frame
Generator  PyClaw (K. T. Mandli et al., PeerJ Computer Science 2, 2016), ``make setup-pyclaw``: wave
           propagation with transverse waves, monotonised central limiter, Courant number 0.9
Cost       0.07 s a sample and core
Layout     ``density`` (N, R, R) and ``pressure`` (N, 24, R, R)
========== =====================================================================================

The published data (``acoustic_scattering_maze`` of https://github.com/PolymathicAI/the_well; R.
Ohana et al., NeurIPS Datasets and Benchmarks, 2024) have 2,000 samples of 256 x 256 cells and
velocities beside the pressure. Frames lie 5.3 times as far apart here and rings are 5.3 times as
large, so that both are the same in cells. Mazes have 3 or 4 rooms along an axis, there 3 to 8,
since corridors would else be narrower than rings. The last frame is at t = 2.45, there at 4. Where
The Well's card and its program differ, this is the program: its card has up to 6 rings, and outflow
in y alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from chonn_lab.problems.generation import Arrays, Recipe, make_files, single, stream
from chonn_lab.problems.hdf5 import read_rows
from chonn_lab.problems.pyclaw import clawpack_version, evolved, load_pyclaw
from chonn_ops.checks import check_least

RESOLUTION = 48
PUBLISHED_RESOLUTION = 256
ROOMS = (3, 4)
# Fewer cells than squares would lose walls.
LEAST_RESOLUTION = 2 * ROOMS[1] + 1
BULK_MODULUS = 4.0
PATH_DENSITY, WALL_DENSITY = 3.0, 1e6 + 3.0
N_STEPS = 23
# Between frames, on a grid of one cell: waves travel 3 cells.
INTERVAL = 5.12
MOST_RINGS = 5
# On the published grid, in the unit of the domain.
RADII, WIDTHS, INTENSITIES = (0.01, 0.04), (0.01, 0.02), (3.0, 5.0)


def default_name(resolution: int = RESOLUTION) -> str:
    """File name of a data set."""
    return f"maze_grid{resolution}.hdf5"


def maze(rng: np.random.Generator, rooms: int) -> np.ndarray:
    """A perfect maze of N x N rooms: from any room one path leads to any other.

    The shape is (2N + 1, 2N + 1), bool, whether a square is wall. Rooms have odd indices.
    """
    walls = np.ones((2 * rooms + 1,) * 2, bool)
    walls[1, 1] = False
    walk = [(1, 1)]
    while walk:
        i, j = walk[-1]
        around = [(i - 2, j), (i + 2, j), (i, j - 2), (i, j + 2)]
        inside = [(a, b) for a, b in around if 0 < a < len(walls) and 0 < b < len(walls)]
        unseen = [room for room in inside if walls[room]]
        if not unseen:
            walk.pop()
            continue
        a, b = unseen[rng.integers(len(unseen))]
        walls[a, b] = walls[(i + a) // 2, (j + b) // 2] = False
        walk.append((a, b))
    walls[1, 0] = walls[-2, -1] = False
    return walls


def draw(seed: int, sample: int, resolution: int = RESOLUTION) -> tuple[np.ndarray, np.ndarray]:
    """Density and pressure at t = 0 of a sample of the card's law, (R, R), float64."""
    rng = stream(seed, sample)
    squares = maze(rng, int(rng.integers(ROOMS[0], ROOMS[1] + 1)))
    nearest = (2 * np.arange(resolution) + 1) * len(squares) // (2 * resolution)
    walls = squares[np.ix_(nearest, nearest)]
    x = (np.arange(resolution) + 0.5) * (2 / resolution) - 1
    paths = np.argwhere(~walls)
    scale = PUBLISHED_RESOLUTION / resolution
    pressure = np.zeros(walls.shape)
    for _ in range(rng.integers(1, MOST_RINGS + 1)):
        i, j = paths[rng.integers(len(paths))]
        width, radius = scale * rng.uniform(*WIDTHS), scale * rng.uniform(*RADII)
        place = np.hypot(x[:, None] - x[i], x - x[j]) - radius
        ring = rng.uniform(*INTENSITIES) + np.cos(np.pi * place / width)
        pressure += np.where(np.abs(place) <= width, ring, 0.0)
    return np.where(walls, WALL_DENSITY, PATH_DENSITY), np.where(walls, 0.0, pressure)


def simulate(density: np.ndarray, pressure: np.ndarray, n_steps: int = N_STEPS) -> np.ndarray:
    """Frames of the pressure (n_steps + 1, R, R), float64, from rest and this pressure (R, R).

    ImportError if PyClaw is not installed.
    """
    pyclaw, riemann = load_pyclaw()
    solver = pyclaw.ClawSolver2D(riemann.vc_acoustics_2D)
    solver.dimensional_split = False
    solver.limiters = pyclaw.limiters.tvd.MC
    for lower, upper in (
        (solver.bc_lower, solver.bc_upper),
        (solver.aux_bc_lower, solver.aux_bc_upper),
    ):
        lower[:], upper[:] = [pyclaw.BC.wall] * 2, [pyclaw.BC.extrap] * 2
    resolution = len(density)
    domain = pyclaw.Domain([-1.0] * 2, [1.0] * 2, [resolution] * 2)
    state = pyclaw.State(domain, solver.num_eqn, 2)
    state.aux[0], state.aux[1] = density, np.sqrt(BULK_MODULUS / density)
    state.q[0], state.q[1:] = pressure, 0
    times = (step * (INTERVAL / resolution) for step in range(1, n_steps + 1))
    return evolved(solver, pyclaw.Solution(state, domain), times)


def generate(
    output: Path | str = "", n_samples: int = 176, resolution: int = RESOLUTION, **options: Any
) -> Path:
    """Generate a file; ImportError without PyClaw."""
    check_least(LEAST_RESOLUTION, resolution=resolution)
    settings = {"n_samples": n_samples, "resolution": resolution, "clawpack": clawpack_version()}
    recipe = Recipe("maze", _sample, settings)
    return make_files({Path(output or default_name(resolution)): recipe}, **options)[0]


def read(
    path: Path | str, start: int = 0, stop: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Densities (N, R, R) and pressures (N, 24, R, R) of some samples; see `read_rows`."""
    density, pressure = read_rows(path, start, stop, density=3, pressure=4)
    return density, pressure


def _sample(seed: int, i: int, resolution: int, **_: Any) -> Arrays:
    density, pressure = draw(seed, i, resolution)
    return single(density=density, pressure=simulate(density, pressure))
