"""Random fields, by cosine series and of PDEBench's law, and the media made of them."""

import numpy as np
from scipy.special import ndtr

from chonn_lab.problems.grids import cell_centres
from chonn_ops.checks import check_choice

TAU, ALPHA = 3.0, 2.0
TWO_PHASE, LOG_NORMAL, LOG_UNIFORM = COEFFICIENTS = ("two-phase", "log-normal", "log-uniform")
MOST_CONTRAST = 1e6
# The settings of PDEBench's Darcy flow.
BATCH, N_GAUSSIANS = 200, 5


def check_medium(coefficient: str, contrast: float) -> None:
    """ValueError for a kind of medium or a contrast that there is not."""
    check_choice("coefficient", coefficient, COEFFICIENTS)
    # Beyond it the solutions in float64 have fewer digits than the float32 that is stored.
    if not 1 <= contrast <= MOST_CONTRAST:
        raise ValueError(f"contrast: expected 1 to {MOST_CONTRAST:g}, got {contrast}")


def cosine_series(noise: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Sample of ``N(0, (-laplace + 9)^-2)`` on the unit square, zero Neumann conditions, no mean.

    `noise` (K, K) are independent standard normal numbers: the modes ``k = 0, ..., K - 1`` along
    each axis, of standard deviation ``1 / (pi^2 |k|^2 + 9)``; `points` (R,) are places along an
    axis, and the result is (R, R).
    """
    wave = np.cos(np.pi * np.outer(points, np.arange(len(noise))))
    # Orthonormal on the square.
    wave[:, 1:] *= np.sqrt(2)
    field = noise * _deviations(len(noise))
    for _ in range(2):
        # The first axis goes from modes to points, and to the end.
        field = np.tensordot(field, wave, axes=(0, 1))
    return field


def medium(noise: np.ndarray, points: np.ndarray, coefficient: str, contrast: float) -> np.ndarray:
    """Coefficient made of `cosine_series`, (R, R), float64, positive.

    It is 1 where the field is at least 0 and 1 / contrast elsewhere; the exponential of a multiple
    of the field, with this ratio of the values two standard deviations above and below the median;
    or one whose logarithm is about uniform, around 0, with this ratio of extremes.
    """
    field = cosine_series(noise, points)
    if coefficient == TWO_PHASE:
        return np.where(field >= 0, 1.0, 1 / contrast)
    # The field's variance, its mean over the square.
    deviation = np.sqrt((_deviations(len(noise)) ** 2).sum())
    if coefficient == LOG_UNIFORM:
        return contrast ** (ndtr(field / deviation) - 0.5)
    return np.exp(0.25 * np.log(contrast) / deviation * field)


def draw_batch(rng: np.random.Generator, resolution: int) -> np.ndarray:
    """Two-phase fields of PDEBench's Darcy flow, the next batch with one threshold.

    The shape is (200, R, R), bool, true where nu is high.
    """
    centre_x = rng.random((BATCH, N_GAUSSIANS, 1))
    centre_y = rng.random((BATCH, N_GAUSSIANS, 1))
    # 1 - random() lies in (0, 1]: a width of zero would divide by zero.
    width = 0.5 * (1 - rng.random((BATCH, N_GAUSSIANS, 1)))
    cells = cell_centres(resolution)
    along_x = np.exp(-((cells - centre_x) ** 2) / width)
    along_y = np.exp(-((cells - centre_y) ** 2) / width)
    field = along_x.swapaxes(1, 2) @ along_y
    return field > field.mean()


def _deviations(n_modes: int) -> np.ndarray:
    k = np.arange(n_modes, dtype=float)
    deviations = (np.pi**2 * (k[:, None] ** 2 + k**2) + TAU**2) ** (-ALPHA / 2)
    deviations[0, 0] = 0
    return deviations
