"""Stacks of CKBs: shapes, parameters, errors."""

import pytest
import torch

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.baselines.stack import CKBStack1d
from chonn_ops import CKB, CKBOptions, Scan

SMALL = {"cell": Scan(d_state=2), "expand": 4}


def test_is_lifting_blocks_and_head():
    torch.manual_seed(0)
    model = CKBStack1d(3, 2, ckb=CKBOptions(order=2, **SMALL))
    x = torch.randn(4, 1, 16)
    assert [type(block) for block in model.blocks] == [CKB, CKB]
    expected = model.lift(x)
    for block in model.blocks:
        expected = block(expected)
    expected = model.head(expected)
    assert expected.shape == (4, 1, 16)
    torch.testing.assert_close(model(x), expected)


def test_order_adds_cells_and_depth_adds_blocks():
    def count(order, depth):
        return count_parameters(CKBStack1d(3, depth, ckb=CKBOptions(order=order, **SMALL)))

    block = count(1, 2) - count(1, 1)
    cell = count(2, 1) - count(1, 1)
    assert count(1, 4) == count(1, 1) + 3 * block
    assert count(4, 1) == count(1, 1) + 3 * cell
    assert cell < block


def test_errors():
    with pytest.raises(ValueError, match="depth: expected at least 1, got 0"):
        CKBStack1d(2, 0, ckb=CKBOptions())
    with pytest.raises(ValueError, match="order: expected at least 1 in a CKB, got 0"):
        CKBStack1d(2, ckb=CKBOptions(order=0))
    with pytest.raises(ValueError, match=r"x: expected shape \(B, 1, L\), got \(2, 3, 16\)"):
        CKBStack1d(2, ckb=CKBOptions())(torch.randn(2, 3, 16))
