"""Bounds of what layers of waves add to features."""

from __future__ import annotations

import math

import pytest
import torch

from chonn_ops.models.waves import MOST, bounded


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [50.0, -6e4, 1e11, -1e30, math.inf])
@pytest.mark.parametrize("how", [bounded, torch.compile(bounded, backend="aot_eager")])
def test_outliers_are_at_the_bound_in_every_precision(dtype, value, how):
    found = how(torch.tensor([value], dtype=dtype))
    assert found.dtype == dtype
    assert found.sign() == (1 if value > 0 else -1)
    assert abs(abs(found.item()) - MOST) < 0.01 * MOST


def test_bounds_have_derivatives_of_every_order_and_mode():
    x = 6 * torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(bounded(x), x * (1 + (x / MOST) ** 4) ** -0.25)

    x.requires_grad_()
    assert torch.autograd.gradcheck(bounded, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(bounded, x)
    slopes = torch.autograd.grad(bounded(x).sum(), x)[0]
    torch.testing.assert_close(torch.func.grad(lambda x: bounded(x).sum())(x.detach()), slopes)
