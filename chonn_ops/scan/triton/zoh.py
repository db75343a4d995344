# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: the zero-order-hold coefficients of a step, and the slope of its weight.

With ``z = delta * decay`` a step maps ``v`` to ``v + loss * (equilibrium - v)``, where
``loss = 1 - exp(-z)`` and ``equilibrium = b * u / decay``. ``1 - exp(-z)`` cancels at small z, so
there it is a polynomial. float32 works in halvings ``h = z / ln(2)``, because the hardware has 2^x:

    (1 - 2^-h) / h = phi(h)          loss = h phi(h)
    (ln(2) - phi(h)) / h = Q(h)      loss - z exp(-z) = h^2 (ln(2) phi(h) - Q(h))

The polynomials are Chebyshev fits, of `phi` on |h| <= 1/2 (relative error 2e-8), of `Q` on
|h| <= 1 (2e-7). Outside, 2^-h is at most 2 units in the last place off, which leaves `loss` right
to 4e-7. float64 takes Taylor series in z; it is there for checks, not for speed.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _tail(z):
    """(z - 1 + exp(-z)) / z**2 = 1/2 - z/6 + z**2/24 - ..., for |z| < 1/2, in float64."""
    series = z * 0.0 + 1.0
    for k in tl.static_range(15, 2, -1):
        series = 1.0 - series * z / k
    return series / 2


@triton.jit
def loss_of(delta, decay):
    """``1 - exp(-delta * decay)`` for the forward."""
    if decay.dtype == tl.float64:
        z = delta * decay
        loss = tl.where(tl.abs(z) < 0.5, z - z * z * _tail(z), 1.0 - tl.exp(-z))
    else:
        h = delta * (decay * _LOG2_E)
        phi = h * -0.00015453163359779865 + 0.0013390863314270973
        phi = phi * h - 0.009618083015084267
        phi = phi * h + 0.055503569543361664
        phi = phi * h - 0.24022650718688965
        phi = phi * h + 0.6931471824645996
        loss = tl.where(tl.abs(h) < 0.5, h * phi, 1.0 - tl.exp2(-h))
    return loss


@triton.jit
def loss_keep_slope(delta, decay):
    """``1 - exp(-z)``, ``exp(-z)`` and ``1 - (1 + z) exp(-z)`` for the backward.

    The last one is -decay**2 times the derivative of the weight ``loss / decay`` by the decay.
    """
    if decay.dtype == tl.float64:
        z = delta * decay
        small = tl.abs(z) < 0.5
        keep = tl.exp(-z)
        tail = _tail(z)
        loss = tl.where(small, z - z * z * tail, 1.0 - keep)
        weight_slope = tl.where(small, z * z * (1.0 - tail - z * tail), loss - z * keep)
    else:
        h = delta * (decay * _LOG2_E)
        slope = h * -1.5406158127007075e-05 + 0.00015602957864757627
        slope = slope * h - 0.0013332981616258621
        slope = slope * h + 0.009617379866540432
        slope = slope * h - 0.05550411343574524
        slope = slope * h + 0.24022655189037323
        phi = _LN2 - h * slope
        small = tl.abs(h) < 1.0
        keep = tl.exp2(-h)
        loss = tl.where(small, h * phi, 1.0 - keep)
        weight_slope = tl.where(small, h * h * (_LN2 * phi - slope), loss - h * _LN2 * keep)
    return loss, keep, weight_slope
