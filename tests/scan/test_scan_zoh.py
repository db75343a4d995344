"""The zero-order-hold coefficients in PyTorch against 60-digit arithmetic."""

import mpmath
import pytest
import torch

from chonn_ops.scan import reference


@pytest.mark.parametrize("z", [1e-12, 1e-6, 1e-3, 0.2, 0.2499, 0.2501, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("decay", [1e-3, 1.0, 1e3])
def test_coefficients_are_exact(z, decay):
    step, rate = (torch.tensor(x, dtype=torch.float64) for x in (z / decay, decay))
    retention, weight = reference.retention_and_weight(step, rate)
    actual = (retention, weight, reference.weight_slope(step, rate, retention, weight))
    with mpmath.workdps(60):
        h, r = mpmath.mpf(step.item()), mpmath.mpf(rate.item())
        e = mpmath.exp(-h * r)
        expected = (e, (1 - e) / r, ((1 - e) / r - h * e) / r)
        for got, want in zip(actual, expected, strict=True):
            if want > 1e-300:
                assert abs(got.item() / want - 1) < 1e-12 + 2e-16 * z
