"""Stacks of CKBs: shapes, parameters, the match of parameters, errors."""

import pytest
import torch

from chonn_ops import CKB, CKBOptions
from chonn_ops.models.stack import CKBStack1d, count_parameters, fit_parameters

SMALL = {"d_state": 2, "expand": 4}


def test_is_lifting_blocks_and_head():
    torch.manual_seed(0)
    model = CKBStack1d(3, 2, 2, 5, ckb=CKBOptions(order=2, **SMALL))
    x = torch.randn(4, 2, 16)
    assert [type(block) for block in model.blocks] == [CKB, CKB]
    expected = model.lift(x)
    for block in model.blocks:
        expected = block(expected)
    expected = model.head(expected)
    assert expected.shape == (4, 5, 16)
    torch.testing.assert_close(model(x), expected)


def test_order_adds_cells_and_depth_adds_blocks():
    def count(order, depth):
        return count_parameters(CKBStack1d(3, depth, ckb=CKBOptions(order=order, **SMALL)))

    block = count(1, 2) - count(1, 1)
    cell = count(2, 1) - count(1, 1)
    assert count(1, 4) == count(1, 1) + 3 * block
    assert count(4, 1) == count(1, 1) + 3 * cell
    assert cell < block


def test_ring_commutes_with_shifts_and_rest_does_not():
    x = torch.randn(1, 1, 32)
    for termination, commutes in (("ring", True), ("matched", False)):
        torch.manual_seed(1)
        model = CKBStack1d(3, ckb=CKBOptions(order=2, termination=termination, **SMALL))
        shifted = model(x.roll(5, -1))
        assert torch.allclose(shifted, model(x).roll(5, -1), atol=1e-5) is commutes


@pytest.mark.parametrize(
    "order", [2, *(pytest.param(order, marks=pytest.mark.thorough) for order in (1, 3, 4))]
)
@pytest.mark.parametrize(
    "width", [3, *(pytest.param(width, marks=pytest.mark.thorough) for width in (1, 2, 4))]
)
def test_narrow_stack_has_the_parameters_of_the_block(width, order):
    block = CKBStack1d(width, ckb=CKBOptions(order=order, d_state=8, expand=16), device="meta")
    wanted = count_parameters(block)
    options = CKBOptions(order=1, d_state=8, expand=16, termination="ring")
    found, fitted = fit_parameters(wanted, width, order, ckb=options)
    actual = count_parameters(CKBStack1d(found, order, ckb=fitted))
    assert actual == pytest.approx(wanted, rel=0.02)
    assert (fitted.order, fitted.d_state, fitted.termination) == (1, 8, "ring")


def test_match_of_parameters_draws_no_random_numbers():
    state = torch.get_rng_state()
    fit_parameters(5000, 2, 2, ckb=CKBOptions(order=1, d_state=8, expand=16))
    assert torch.equal(torch.get_rng_state(), state)


def test_errors():
    with pytest.raises(ValueError, match="depth: expected at least 1, got 0"):
        CKBStack1d(2, 0)
    with pytest.raises(ValueError, match="order: expected at least 1 in a CKB, got 0"):
        CKBStack1d(2, ckb=CKBOptions(order=0))
    with pytest.raises(ValueError, match=r"x: expected shape \(B, 1, L\), got \(2, 3, 16\)"):
        CKBStack1d(2)(torch.randn(2, 3, 16))
    with pytest.raises(ValueError, match=r"parameters: expected a number .* got 10"):
        fit_parameters(10, 2, 3, ckb=CKBOptions(order=1, **SMALL))
