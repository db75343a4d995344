r"""Burgers' equation on the periodic unit interval by the transform of Cole and Hopf.

With :math:`u = -2 d \, (\log \varphi)_x`, :math:`u_t + u u_x = d u_{xx}` is the heat equation
:math:`\varphi_t = d \varphi_{xx}`, so a step is a convolution with a Gaussian. Its integrand is
positive, so nothing cancels, whatever :math:`\varphi`'s range, if that is carried as a logarithm
and each sum is scaled by its own largest term. The trapezoidal rule for a smooth integrand of a
Gaussian's decay is exact up to :math:`\exp(-2 \pi^2 \sigma^2 / h^2)`.

References
----------
E. Hopf, "The partial differential equation u_t + u u_x = mu u_xx", Comm. Pure Appl. Math. 3 (1950).
"""

import math
from collections.abc import Callable

import numpy as np

# Points of the fine grid: at least this many, and this many a standard deviation of the kernel.
LEAST_POINTS, POINTS_PER_DEVIATION = 2048, 3.0
# Standard deviations at which the Gaussian is cut off.
REACH = 8.0
LONGEST_STEP = 0.01
# Natural logarithm of the largest ratio within a sum; float64 ends at 700.
LARGEST_RANGE = 500.0
BLOCK = 32


def burgers(
    initial: Callable[[np.ndarray], np.ndarray],
    diffusivity: float,
    resolution: int,
    interval: float,
    n_frames: int,
) -> np.ndarray:
    """Solve ``u_t + u u_x = d u_xx``.

    Parameters
    ----------
    initial : callable
        u at t = 0 as a function of period 1, of arrays.
    diffusivity : float
        d, positive.
    resolution : int
        Cells R, whose centres are ``(i + 1/2) / R``.
    interval : float
        From frame to frame.
    n_frames : int

    Returns
    -------
    ndarray
        (n_frames, R), float64, the first at t = 0.
    """
    largest = np.abs(initial((np.arange(LEAST_POINTS) + 0.5) / LEAST_POINTS)).max()
    steps = _steps(diffusivity, interval, 1.1 * largest)
    dt = interval / steps
    deviation = math.sqrt(2 * diffusivity * dt)
    needed = max(LEAST_POINTS, POINTS_PER_DEVIATION / deviation)
    # Odd: the centres of the coarse cells are those of fine ones.
    every = 2 * math.ceil((needed / resolution - 1) / 2) + 1
    n = max(every, 1) * resolution
    first = (every - 1) // 2
    log_phi, turn = _initial_logarithm(initial, n, diffusivity)
    kernel = _Kernel(n, dt, deviation, REACH * deviation + 1.1 * largest * dt, turn)
    frames = np.empty((n_frames, resolution))
    frames[0] = u = initial((np.arange(resolution) + 0.5) / resolution)
    for frame in range(1, n_frames):
        for _ in range(steps):
            log_phi, u = kernel(log_phi)
        frames[frame] = u[first::every]
    return frames


def _steps(diffusivity: float, interval: float, largest: float) -> int:
    """Steps to a frame, so short that the terms of a sum stay within the range of float64."""
    steps = math.ceil(interval / LONGEST_STEP - 1e-9)
    while True:
        dt = interval / steps
        width = 2 * (REACH * math.sqrt(2 * diffusivity * dt) + largest * dt)
        if largest * width / (2 * diffusivity) <= LARGEST_RANGE:
            return steps
        steps *= 2


def _initial_logarithm(
    initial: Callable[[np.ndarray], np.ndarray], n: int, diffusivity: float
) -> tuple[np.ndarray, float]:
    """log phi at the centres of n cells, and what it gains in one turn around the interval."""
    nodes, weights = np.polynomial.legendre.leggauss(5)
    # From each centre to the next one.
    places = (np.arange(n)[:, None] + 1 + nodes / 2) / n
    integral = np.cumsum(initial(places) @ weights / (2 * n))
    turn = -integral[-1] / (2 * diffusivity)
    return np.concatenate(([0.0], integral[:-1])) / (-2 * diffusivity), turn


class _Kernel:
    """One step: the Gaussian, and what gives u, as one matrix for blocks of neighbours."""

    def __init__(self, n: int, dt: float, deviation: float, reach: float, turn: float) -> None:
        radius = math.ceil(reach * n)
        window = np.arange(BLOCK + 2 * radius) - radius
        starts = np.arange(0, n, BLOCK)
        places = starts[:, None] + window
        self.places, self.turns = places % n, turn * (places // n)
        distance = (np.arange(BLOCK) - window[:, None]) / n
        weights = np.exp(-0.5 * (distance / deviation) ** 2)
        weights /= n * deviation * math.sqrt(2 * math.pi)
        self.matrix = np.concatenate((weights, weights * distance / dt), axis=1)
        self.n = n

    def __call__(self, log_phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log phi and u after the step: u is the mean distance travelled, over the time."""
        terms = log_phi[self.places] + self.turns
        scale = terms.max(axis=1, keepdims=True)
        sums = np.exp(terms - scale) @ self.matrix
        phi, moment = sums[:, :BLOCK], sums[:, BLOCK:]
        log_phi = (np.log(phi) + scale).ravel()[: self.n]
        return log_phi, (moment / phi).ravel()[: self.n]
