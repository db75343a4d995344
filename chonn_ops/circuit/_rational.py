"""Transfer functions: zeros, poles and gain, in continuous or discrete time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from chonn_ops.circuit._checks import Array, check_finite, check_positive, finite_array
from chonn_ops.circuit._positive_real import positive_on_axis, positive_on_circle

if TYPE_CHECKING:
    from scipy.signal import ZerosPolesGain


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
        """Of polynomial coefficients, highest power first.

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
        """Of any system of `scipy.signal` with one input and one output."""
        ways = (getattr(system, "inputs", 1), getattr(system, "outputs", 1))
        if ways != (1, 1):
            raise ValueError(f"system: expected one input and one output, got {ways}")
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
        """H at infinity: what reaches the output at once."""
        return self.gain if len(self.zeros) == len(self.poles) else 0.0

    @property
    def is_stable(self) -> bool:
        """Whether all poles decay: left of the imaginary axis, or inside the unit circle."""
        if self.step is None:
            return all(pole.real < 0 for pole in self.poles)
        return all(abs(pole) < 1 for pole in self.poles)

    @property
    def is_passive(self) -> bool:
        """Whether H is positive real: stable, and Re H >= 0 at every frequency. As the impedance
        of a two-pole it takes in power, and never gives out more than it took."""
        if not self.is_stable:
            return False
        positive = positive_on_axis if self.step is None else positive_on_circle
        return positive(self.numerator, self.denominator)

    @property
    def time_constants(self) -> Array:
        """One a pole, in the unit of time: after how long its part has fallen to 1 / e. Infinite
        where it does not fall."""
        poles = np.asarray(self.poles, dtype=complex)
        with np.errstate(divide="ignore"):
            rates = -np.real(poles) if self.step is None else -np.log(np.abs(poles)) / self.step
            return np.where(rates > 0, 1 / np.where(rates > 0, rates, 1), np.inf)

    def __call__(self, s: Any) -> Any:
        """H at complex s, or z; of the shape of `s`."""
        point = np.asarray(s, dtype=complex)
        value = np.full(point.shape, self.gain, dtype=complex)
        # Alternately, so that neither product overflows on its own.
        for i, pole in enumerate(self.poles):
            value = value / (point - pole)
            if i < len(self.zeros):
                value = value * (point - self.zeros[i])
        return value

    def frequency_response(self, omega: Any) -> Any:
        """H at angular frequencies (radians a unit of time); complex, of the shape of `omega`."""
        angle = 1j * np.asarray(omega, dtype=float)
        return self(angle if self.step is None else np.exp(angle * self.step))

    def __mul__(self, other: TransferFunction) -> TransferFunction:
        """One system after the other."""
        _check_steps(self, other)
        return TransferFunction(
            self.zeros + other.zeros, self.poles + other.poles, self.gain * other.gain, self.step
        )

    def __add__(self, other: TransferFunction) -> TransferFunction:
        """Both systems beside each other; all poles stay, shared ones twice."""
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
        """Without the pairs of zero and pole that are closer than `tol` times the larger one's
        modulus."""
        poles, zeros = list(self.poles), []
        for group in _conjugates(self.zeros):
            left, pairs = list(poles), []
            for zero in group:
                near = min(left, key=lambda pole, zero=zero: abs(pole - zero), default=None)
                if near is None or abs(near - zero) > tol * max(abs(near), abs(zero)):
                    break
                pairs.append(near)
                left.remove(near)
            # Both of a pair or none, and what is left of the poles is real or in pairs, too.
            if len(pairs) == len(group) and abs(sum(pairs).imag) <= tol * abs(sum(pairs)):
                poles = left
            else:
                zeros += group
        return TransferFunction(tuple(zeros), tuple(poles), self.gain, self.step)

    def effective_order(self, tol: float = 1e-9) -> int:
        """Poles that are left after cancellations; 0 for a gain of 0."""
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
            At these times, but for the `feedthrough` times Dirac's delta at 0; or samples 0 to
            t - 1, whose first input is 1.
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
        """A, B, C of first-order sections in series, which repeated poles do no harm."""
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
    """Sampling interval of a system of `scipy.signal`; `True` there is an unknown one: 1."""
    return None if system.dt is None else float(system.dt)


def _check_steps(a: TransferFunction, b: TransferFunction) -> None:
    if a.step != b.step:
        raise ValueError(f"step: expected the same of both systems, got {a.step} and {b.step}")


def _conjugates(values: tuple[complex, ...]) -> list[tuple[complex, ...]]:
    """Real ones alone, complex ones with their conjugates."""
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
        raise ValueError(f"{name}: expected complex ones in conjugate pairs, got {found}")
    return found
