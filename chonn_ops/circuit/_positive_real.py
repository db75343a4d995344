"""Whether the real part of a rational function is >= 0 along the boundary of stability."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev

from chonn_ops.circuit._checks import Array

# Of the sum of the terms' moduli: rounding of polynomials of a few dozen stages.
_ROUNDING = 1e-12


def positive_on_axis(numerator: Array, denominator: Array) -> bool:
    """Re N(jw) / D(jw) >= 0 for all real w; coefficients highest power first.

    Re N(jw) conj(D(jw)) is a polynomial in x = w^2, which is smallest at 0, at infinity, or where
    its derivative is 0.
    """
    # s in units of the poles' geometric mean, or powers of large rates swamp the rest.
    degree = len(denominator) - 1
    unit = abs(denominator[-1]) ** (1 / degree) if degree and denominator[-1] else 1.0
    top, bottom = (p * unit ** np.arange(len(p) - 1, -1, -1.0) for p in (numerator, denominator))
    mirrored = bottom * (-1.0) ** np.arange(len(bottom) - 1, -1, -1)
    even = np.polymul(top, mirrored)[::-1][::2]
    in_x = np.trim_zeros((even * (-1.0) ** np.arange(len(even)))[::-1], "f")
    if not in_x.size:
        return True
    turns = np.roots(np.polyder(in_x))
    x = np.maximum(np.concatenate(([0.0], turns.real)), 0)
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
    turns = chebyshev.chebroots(chebyshev.chebder(series)) if n > 2 else np.zeros(0)
    x = np.concatenate(([-1.0, 1.0], np.clip(np.real(turns), -1, 1)))
    rounding = _ROUNDING * np.abs(top).sum() * np.abs(denominator).sum()
    return bool((chebyshev.chebval(x, series) >= -rounding).all())
