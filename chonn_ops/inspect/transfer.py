"""Transfer functions: zeros, poles and gain, in continuous or discrete time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import chebyshev

from chonn_ops.inspect._checks import Array, check_finite, check_positive, finite_array

if TYPE_CHECKING:
    from scipy.signal import ZerosPolesGain

# Rounding error of polynomials of a few dozen stages, relative to the sum of the terms' moduli.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class TransferFunction:
    r"""Rational transfer function with real coefficients.

    :math:`H(s) = K \prod (s - z_i) / \prod (s - p_i)`, of the Laplace variable s, or of z with a
    `step`.

    Parameters
    ----------
    zeros, poles : iterable of complex
        At least as many poles as zeros; complex ones in conjugate pairs.
    gain : float
        K. With gain 0 there are no zeros.
    step : float, optional
        Sampling interval > 0 of a discrete system, in the unit of time. Default: continuous.

    Raises
    ------
    ValueError
        For more zeros than poles, numbers that are not finite, a step not above 0, or zeros and
        poles without their conjugates.
    """

    zeros: tuple[complex, ...]
    poles: tuple[complex, ...]
    gain: float
    step: float | None = None

    def __post_init__(self) -> None:
        check_finite(gain=self.gain)
        if self.step is not None:
            check_positive(step=self.step)
        zeros = _conjugate_closed("zeros", self.zeros if self.gain else ())
        poles = _conjugate_closed("poles", self.poles)
        if len(zeros) > len(poles):
            raise ValueError(
                f"zeros: expected at most as many as poles ({len(poles)}), got {len(zeros)}"
            )
        object.__setattr__(self, "zeros", zeros)
        object.__setattr__(self, "poles", poles)
        object.__setattr__(self, "gain", float(self.gain))

    @classmethod
    def from_polynomials(
        cls, numerator: Iterable[float], denominator: Iterable[float], step: float | None = None
    ) -> TransferFunction:
        """From polynomial coefficients, highest power first.

        Raises
        ------
        ValueError
            For a denominator that is 0, or a numerator of higher degree.
        """
        top = np.trim_zeros(finite_array("numerator", list(numerator), 1), "f")
        bottom = np.trim_zeros(finite_array("denominator", list(denominator), 1), "f")
        if not bottom.size:
            raise ValueError("denominator: expected a polynomial that is not 0, got zeros only")
        gain = float(top[0] / bottom[0]) if top.size else 0.0
        zeros = np.roots(top) if top.size else ()
        return cls(tuple(zeros), tuple(np.roots(bottom)), gain, step)

    @classmethod
    def from_scipy(cls, system: Any) -> TransferFunction:
        """From any system of `scipy.signal` with one input and one output."""
        ports = (getattr(system, "inputs", 1), getattr(system, "outputs", 1))
        if ports != (1, 1):
            raise ValueError(f"system: expected one input and one output, got {ports}")
        zpk = system.to_zpk()
        return cls(tuple(zpk.zeros), tuple(zpk.poles), float(zpk.gain), step_of(zpk))

    def to_scipy(self) -> ZerosPolesGain:
        """`scipy.signal.ZerosPolesGain`, continuous or discrete."""
        from scipy.signal import ZerosPolesGain

        times = {} if self.step is None else {"dt": self.step}
        return ZerosPolesGain(list(self.zeros), list(self.poles), self.gain, **times)

    @property
    def numerator(self) -> Array:
        """Coefficients, highest power first."""
        return self.gain * _polynomial(self.zeros)

    @property
    def denominator(self) -> Array:
        """Coefficients, highest power first; the first is 1."""
        return _polynomial(self.poles)

    @property
    def feedthrough(self) -> float:
        """H at infinity: the part of the input that reaches the output at once."""
        return self.gain if len(self.zeros) == len(self.poles) else 0.0

    @property
    def is_stable(self) -> bool:
        """Whether all poles decay: left of the imaginary axis, or inside the unit circle."""
        if self.step is None:
            return all(pole.real < 0 for pole in self.poles)
        return all(abs(pole) < 1 for pole in self.poles)

    @property
    def is_passive(self) -> bool:
        """Whether H is positive real: stable, and Re H >= 0 at every frequency. A two-pole with
        this impedance never returns more energy than it has received."""
        if not self.is_stable:
            return False
        positive = positive_on_axis if self.step is None else positive_on_circle
        return positive(self.numerator, self.denominator)

    @property
    def time_constants(self) -> Array:
        """One per pole, in the unit of time: the time in which its part of the response falls to
        1 / e. Infinite for a pole that does not decay."""
        poles = np.asarray(self.poles, dtype=complex)
        with np.errstate(divide="ignore"):
            rates = -np.real(poles) if self.step is None else -np.log(np.abs(poles)) / self.step
            return np.where(rates > 0, 1 / np.where(rates > 0, rates, 1), np.inf)

    def __call__(self, s: Any) -> Any:
        """H at complex s, or z; same shape as `s`."""
        point = np.asarray(s, dtype=complex)
        value = np.full(point.shape, self.gain, dtype=complex)
        # Zeros and poles alternate, so that neither product overflows on its own.
        for i, pole in enumerate(self.poles):
            value = value / (point - pole)
            if i < len(self.zeros):
                value = value * (point - self.zeros[i])
        return value

    def frequency_response(self, omega: Any) -> Any:
        """H at angular frequencies (radians per unit of time); complex, same shape as `omega`."""
        angle = 1j * np.asarray(omega, dtype=float)
        return self(angle if self.step is None else np.exp(angle * self.step))

    def __mul__(self, other: TransferFunction) -> TransferFunction:
        """One system after the other."""
        _check_steps(self, other)
        return TransferFunction(
            self.zeros + other.zeros, self.poles + other.poles, self.gain * other.gain, self.step
        )

    def __add__(self, other: TransferFunction) -> TransferFunction:
        """Two systems in parallel. Every pole stays; a shared one appears twice."""
        _check_steps(self, other)
        top = np.polyadd(
            np.polymul(self.numerator, other.denominator),
            np.polymul(other.numerator, self.denominator),
        )
        top = np.trim_zeros(top, "f")
        if not top.size:
            return TransferFunction((), self.poles + other.poles, 0.0, self.step)
        return TransferFunction(
            tuple(np.roots(top)), self.poles + other.poles, float(top[0]), self.step
        )

    def cancelled(self, tol: float = 1e-9) -> TransferFunction:
        """Without the zeros and poles that cancel: pairs closer than `tol` times the larger
        modulus of the two."""
        poles, zeros = list(self.poles), []
        for group in _conjugates(self.zeros):
            left, pairs = list(poles), []
            for zero in group:
                near = min(left, key=lambda pole, zero=zero: abs(pole - zero), default=None)
                if near is None or abs(near - zero) > tol * max(abs(near), abs(zero)):
                    break
                pairs.append(near)
                left.remove(near)
            # A conjugate pair cancels as a whole, so the other poles stay real or in pairs.
            if len(pairs) == len(group) and abs(sum(pairs).imag) <= tol * abs(sum(pairs)):
                poles = left
            else:
                zeros += group
        return TransferFunction(tuple(zeros), tuple(poles), self.gain, self.step)

    def effective_order(self, tol: float = 1e-9) -> int:
        """Number of poles left after cancellations; 0 for a gain of 0."""
        return len(self.cancelled(tol).poles) if self.gain else 0

    def impulse_response(self, t: Any) -> Array:
        """Response to a unit impulse from rest.

        Parameters
        ----------
        t : array_like of float, or int
            Times >= 0 of a continuous system; the number of samples of a discrete one.

        Returns
        -------
        ndarray
            Values at these times, without the term `feedthrough` times Dirac's delta at 0; or
            samples 0 to t - 1 for an input of 1 at sample 0.
        """
        if self.step is not None:
            return self._impulse_samples(int(t))
        from scipy.linalg import expm

        times = finite_array("t", t)
        if (times < 0).any():
            raise ValueError(f"t: expected times >= 0, got {times.min()}")
        A, B, C = self._sections()
        if not len(B):
            return np.zeros(times.shape)
        response = [np.real(C @ expm(A * moment) @ B) for moment in times.ravel()]
        return np.reshape(response, times.shape)

    def _sections(self) -> tuple[Array, Array, Array]:
        """A, B, C of first-order sections in series, a form that allows repeated poles."""
        n = len(self.poles)
        A, B = np.zeros((n, n), complex), np.zeros(n, complex)
        row, direct = np.zeros(n, complex), complex(self.gain)
        for i, pole in enumerate(self.poles):
            A[i], B[i] = row, direct
            A[i, i] += pole
            if i < len(self.zeros):
                row = row.copy()
                row[i] += pole - self.zeros[i]
            else:
                row, direct = np.eye(n)[i].astype(complex), 0j
        return A, B, row

    def _impulse_samples(self, count: int) -> Array:
        from scipy.signal import lfilter

        if count < 1:
            raise ValueError(f"t: expected a number of samples >= 1, got {count}")
        y = np.zeros(count, complex)
        y[0] = self.gain
        for i, pole in enumerate(self.poles):
            top = (1, -self.zeros[i]) if i < len(self.zeros) else (0, 1)
            y = np.asarray(lfilter(top, (1, -pole), y))
        return np.real(y)


def step_of(system: Any) -> float | None:
    """Sampling interval of a system of `scipy.signal`; SciPy's `True` (unknown) becomes 1."""
    return None if system.dt is None else float(system.dt)


def _check_steps(a: TransferFunction, b: TransferFunction) -> None:
    if a.step != b.step:
        raise ValueError(f"step: expected the same of both systems, got {a.step} and {b.step}")


def _conjugates(values: tuple[complex, ...]) -> list[tuple[complex, ...]]:
    """Groups: each real value alone, each complex value with its conjugate."""
    upper = sorted((v for v in values if v.imag > 0), key=lambda v: (v.real, v.imag))
    lower = sorted((v for v in values if v.imag < 0), key=lambda v: (v.real, -v.imag))
    return [(v,) for v in values if v.imag == 0] + list(zip(upper, lower, strict=False))


def _polynomial(roots: tuple[complex, ...]) -> Array:
    return np.atleast_1d(np.real(np.poly(roots)))


def _conjugate_closed(name: str, values: Iterable[complex]) -> tuple[complex, ...]:
    found = tuple(complex(value) for value in values)
    if not np.isfinite(found).all():
        raise ValueError(f"{name}: expected finite numbers, got {found}")
    coefficients = np.poly(found) if found else np.ones(1)
    size = np.poly(-np.abs(found)) if found else np.ones(1)
    if (np.abs(np.imag(coefficients)) > 1e-9 * size).any():
        raise ValueError(f"{name}: expected complex numbers in conjugate pairs, got {found}")
    return found


def positive_on_axis(numerator: Array, denominator: Array) -> bool:
    """Re N(jw) / D(jw) >= 0 for all real w; coefficients highest power first.

    Re N(jw) conj(D(jw)) is a polynomial in x = w^2; its minimum is at 0, at infinity, or where its
    derivative is 0.
    """
    # Measure s in units of the poles' geometric mean, as powers of large rates would dominate.
    degree = len(denominator) - 1
    unit = abs(denominator[-1]) ** (1 / degree) if degree and denominator[-1] else 1.0
    top, bottom = (p * unit ** np.arange(len(p) - 1, -1, -1.0) for p in (numerator, denominator))
    mirrored = bottom * (-1.0) ** np.arange(len(bottom) - 1, -1, -1)
    even = np.polymul(top, mirrored)[::-1][::2]
    in_x = np.trim_zeros((even * (-1.0) ** np.arange(len(even)))[::-1], "f")
    if not in_x.size:
        return True
    stationary = np.roots(np.polyder(in_x))
    x = np.maximum(np.concatenate(([0.0], stationary.real)), 0)
    values, sizes = np.polyval(in_x, x), np.polyval(np.abs(in_x), x)
    largest = np.abs(in_x).max()
    return bool((values >= -_ROUNDING * sizes).all() and in_x[0] >= -_ROUNDING * largest)


def positive_on_circle(numerator: Array, denominator: Array) -> bool:
    """Re N(z) / D(z) >= 0 for all |z| = 1; coefficients highest power first.

    Re N conj(D) is a sum of cos(k theta): a Chebyshev series in cos(theta) on [-1, 1].
    """
    n = len(denominator)
    top = np.concatenate((np.zeros(n - len(numerator)), numerator))
    products = np.correlate(top, denominator, "full")
    series = products[n - 1 :].copy()
    series[1:] += products[n - 2 :: -1]
    stationary = chebyshev.chebroots(chebyshev.chebder(series)) if n > 2 else np.zeros(0)
    x = np.concatenate(([-1.0, 1.0], np.clip(np.real(stationary), -1, 1)))
    rounding = _ROUNDING * np.abs(top).sum() * np.abs(denominator).sum()
    return bool((chebyshev.chebval(x, series) >= -rounding).all())
