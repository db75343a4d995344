"""Order-defined one-dimensional benchmark of the CHONN paper, which has no data.

========== =====================================================================================
Equation   ``(I - tau^2 d_ss)^n y = x``, n = 1..4 (targets T1-T4), periodic; learn ``x -> y``
Domain     R points ``s_i = i / R``
Operator   ``y^(k) = x^(k) / (1 + tau^2 k^2)^n`` with the angular wavenumber ``k = 2 pi m`` of mode
           m. The paper calls k "the wavenumber"; with the angular one, its two forms, in Fourier
           space and with ``d_ss`` on [0, 1], are the same operator
Input      sum of three parts (the paper names them and gives no amplitudes; these are ours):

           * low frequencies: ``a_m cos(2 pi m s) + b_m sin(2 pi m s)``, m = 1..4, every
             coefficient N(0, 1/4): 1 in root mean square
           * broadband: the same for m = 5..64, N(0, 1/240): 0.5 in root mean square
           * one to four (equally likely) Gaussian pulses ``A exp(-d^2 / (2 w^2))``, d the
             distance on the circle, centre U[0, 1), width ``w ~ U[0.01, 0.04)``, ``|A| ~ U[1, 2)``
             with either sign
Parameters tau = 0.08, R = 256; 12,000 to train, 2,000 to validate, 2,000 to test
Seeds      42, 43 and 44 for the splits. Each kind of random number has a stream of its own, child
           of ``numpy.random.SeedSequence(seed)``
Generator  discrete Fourier transform. All parts are resolved (a pulse has less than 1e-13 of its
           largest amplitude beyond m = R/2), so the target is exact for the continuous equation up
           to rounding, and every second point of it is the target on half the grid
Cost       1 s for all splits on one core, 82 MB
Layout     ``s`` (R,) and for each split a group ``train``, ``validation``, ``test`` with ``x``
           (N, R) and ``y`` (N, 4, R), ``y[:, n - 1]`` the target Tn
========== =====================================================================================
"""

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import numpy as np

from chonn_lab.problems.generation import write_groups
from chonn_lab.problems.hdf5 import check_range, dataset, open_hdf5
from chonn_ops.checks import check_choice

DEFAULT_NAME = "order1d.hdf5"
TAU = 0.08
ORDERS = (1, 2, 3, 4)
RESOLUTION = 256
SIZES = MappingProxyType({"train": 12_000, "validation": 2_000, "test": 2_000})
SEED = 42

LOW = np.arange(1, 5)
BROADBAND = np.arange(5, 65)
LOW_RMS, BROADBAND_RMS = 1.0, 0.5
MAX_PULSES = 4
BLOCK = 1000


def targets(x: np.ndarray, tau: float = TAU) -> np.ndarray:
    """Exact targets T1-T4 of periodic signals (..., R) on ``s_i = i / R``: (..., 4, R), float64."""
    k = 2 * np.pi * np.arange(x.shape[-1] // 2 + 1)
    first_order = 1 / (1 + (tau * k) ** 2)
    transfer = first_order ** np.array(ORDERS)[:, None]
    spectrum = np.fft.rfft(x)[..., None, :] * transfer
    return np.fft.irfft(spectrum, n=x.shape[-1])


def draw_signals(n_signals: int, seed: int, resolution: int = RESOLUTION) -> np.ndarray:
    """Input signals of a split's seed, (n_signals, R), float64; R is at least 256 for pulses."""
    low, broadband, count, centre, width, amplitude, sign = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(7)
    )
    pulses = (n_signals, MAX_PULSES)
    low_coefficients = _coefficients(low, n_signals, LOW, LOW_RMS)
    broadband_coefficients = _coefficients(broadband, n_signals, BROADBAND, BROADBAND_RMS)
    present = np.arange(MAX_PULSES) < count.integers(1, MAX_PULSES + 1, (n_signals, 1))
    centres = centre.random(pulses)
    widths = width.uniform(0.01, 0.04, pulses)
    heights = amplitude.uniform(1, 2, pulses) * sign.choice((-1, 1), pulses) * present

    s = np.arange(resolution) / resolution
    x = low_coefficients @ _modes(LOW, s) + broadband_coefficients @ _modes(BROADBAND, s)
    for start in range(0, n_signals, BLOCK):
        rows = slice(start, start + BLOCK)
        distance = np.abs(s - centres[rows, :, None])
        distance = np.minimum(distance, 1 - distance)
        shape = np.exp(-0.5 * (distance / widths[rows, :, None]) ** 2)
        x[rows] += np.einsum("np,npr->nr", heights[rows], shape)
    return x


def generate(
    output: Path | str = DEFAULT_NAME,
    n_train: int = SIZES["train"],
    n_validation: int = SIZES["validation"],
    n_test: int = SIZES["test"],
    seed: int = SEED,
    force: bool = False,
) -> Path:
    """Generate the file, of `seed` and the next two; errors are those of `write_groups`."""

    def groups(split: int, count: int) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        if split == 0:
            yield "", {"s": (np.arange(RESOLUTION) / RESOLUTION).astype("f4")}
        x = draw_signals(count, seed + split)
        yield tuple(SIZES)[split], {"x": x.astype("f4"), "y": targets(x).astype("f4")}

    sizes = {"n_train": n_train, "n_validation": n_validation, "n_test": n_test}
    settings = {"resolution": RESOLUTION, "tau": TAU}
    return write_groups(output, "order1d", settings, groups, sizes, seed, force)


def read(
    path: Path | str, split: str, order: int, n_samples: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of order 1 to 4 of one split, or of its first samples: (N, R), float32.

    FileNotFoundError or ValueError if the file is missing, damaged or too small, or there is no
    such split or order.
    """
    check_choice("split", split, tuple(SIZES))
    check_choice("order", order, ORDERS)
    with open_hdf5(path) as file:
        x, y = dataset(file, f"{split}/x", 2), dataset(file, f"{split}/y", 3)
        check_range(path, len(x), 0, n_samples)
        return x[:n_samples].astype("f4"), y[:n_samples, order - 1].astype("f4")


def _coefficients(
    rng: np.random.Generator, n_signals: int, modes: np.ndarray, rms: float
) -> np.ndarray:
    """(n_signals, 2 M): of the cosines, then of the sines."""
    return rng.standard_normal((n_signals, 2 * len(modes))) * rms / np.sqrt(len(modes))


def _modes(modes: np.ndarray, s: np.ndarray) -> np.ndarray:
    """(2 M, R)."""
    angle = 2 * np.pi * modes[:, None] * s
    return np.concatenate([np.cos(angle), np.sin(angle)])
