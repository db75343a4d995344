"""The zero-order-hold coefficients in PyTorch: retention, injection weight and its derivative."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_SMALL = 0.25
_SERIES = tuple((-1) ** k * (k + 1) / math.factorial(k + 2) for k in range(10))


def retention_and_weight(delta: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """``exp(-z)`` and ``(1 - exp(-z)) / decay`` for ``z = delta * decay``.

    ``expm1`` keeps the weight right from ``z`` = 1e-12, where it tends to `delta`, to 1e4, where
    it is ``1 / decay``.
    """
    z = delta * decay
    return torch.exp(-z), -torch.expm1(-z) / decay


def weight_slope(delta: Tensor, decay: Tensor, retention: Tensor, weight: Tensor) -> Tensor:
    """Minus the weight's derivative by `decay`: ``(weight - delta * retention) / decay``.

    Below ``|z| = |delta * decay| = 0.25`` that difference cancels, and the Taylor series of
    ``(1 - (1 + z) exp(-z)) / z**2`` times ``delta**2`` takes over (relative error below 1e-13).
    """
    z = delta * decay
    series = torch.full_like(z, _SERIES[-1])
    for coefficient in _SERIES[-2::-1]:
        series = series * z + coefficient
    return torch.where(
        z.abs() < _SMALL, delta * delta * series, (weight - delta * retention) / decay
    )
