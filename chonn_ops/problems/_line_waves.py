"""Periodic waves on the unit interval: the initial conditions of PDEBench's 1-D problems."""

import dataclasses

import numpy as np

N_WAVENUMBERS = 4
# Each with this probability, as in PDEBench.
RARE = 0.1
EDGE = 0.01


@dataclasses.dataclass(frozen=True)
class Wave:
    """A function of period 1: a sum of sines, perhaps its absolute value, perhaps windowed.

    Parameters
    ----------
    wavenumbers, amplitudes, phases : ndarray
        (K,): the sum of ``A sin(2 pi n x + phase)``; n = 0 is a constant.
    absolute : bool
        Take the absolute value of the sum.
    sign : float
        Factor of the result.
    window : tuple of float, optional
        Keep what is between these places of [0, 1), with edges ``tanh(distance / 0.01)``.
    """

    wavenumbers: np.ndarray
    amplitudes: np.ndarray
    phases: np.ndarray
    absolute: bool = False
    sign: float = 1.0
    window: "tuple[float, float] | None" = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Values at any places, of the shape of `x`."""
        angles = 2 * np.pi * np.multiply.outer(x, self.wavenumbers) + self.phases
        u = np.sin(angles) @ self.amplitudes
        u = self.sign * (np.abs(u) if self.absolute else u)
        if self.window is not None:
            low, high = self.window
            place = x % 1.0
            u = u * (np.tanh((place - low) / EDGE) - np.tanh((place - high) / EDGE)) / 2
        return u


def draw_wave(seed: int, sample: int) -> Wave:
    """The wave of one sample, the same for every number of samples and on every grid.

    The law is that of PDEBench's generator (``init_multi``), with period 1: of the wavenumbers
    n = 1 to 4, two are drawn, which may be the same one and then is doubled; those not drawn become
    constants ``A sin(phase)``. Amplitudes ~ U(0, 1), phases ~ U(0, 2 pi), either sign; one in ten
    is an absolute value, one in ten has a window from U(0.1, 0.45) to U(0.55, 0.9).
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(sample,)))
    drawn = rng.integers(1, N_WAVENUMBERS + 1, 2)
    n = np.arange(1, N_WAVENUMBERS + 1)
    # All are drawn for every sample, so that none depends on whether another one is used.
    amplitudes, phases = rng.random(N_WAVENUMBERS), 2 * np.pi * rng.random(N_WAVENUMBERS)
    absolute, windowed = rng.random(2) < RARE
    sign = rng.choice((-1.0, 1.0))
    window = (rng.uniform(0.1, 0.45), rng.uniform(0.55, 0.9))
    return Wave(
        n * (n[:, None] == drawn).sum(axis=1),
        amplitudes,
        phases,
        bool(absolute),
        float(sign),
        window if windowed else None,
    )
