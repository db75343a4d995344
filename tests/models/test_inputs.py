"""Inputs that no model takes."""

from __future__ import annotations

import pytest
import torch

import chonn_ops
from chonn_ops import CKB, Network, Scan

MODELS = {
    "network": lambda: chonn_ops.CHONNNetwork2d(width=4, depth=1),
    "rollout": lambda: chonn_ops.CHONNRollout2d(1, 1, 4, 1),
    "unet": lambda: chonn_ops.CHONNUNet2d(1, 1, 2),
    "cno": lambda: chonn_ops.CNOUNet(),
    "block of networks": lambda: CKB(1, 2, cell=Network(num_networks=2)),
    "block of scans": lambda: CKB(1, 2, cell=Scan()),
}
INPUTS = {
    "empty axis": (torch.zeros(1, 1, 0, 16), r"at least 1 point on every axis, got the shape \(1,"),
    "sparse": (torch.zeros(1, 1, 16, 16).to_sparse(), "a dense tensor, got the layout torch"),
    "channels": (torch.zeros(1, 3, 16, 16), r"expected shape \(B, 1, H, W\).*, got \(1, 3, 16, 16"),
}


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("model", MODELS)
def test_unfit_inputs_are_refused(model, given):
    x, message = INPUTS[given]
    with pytest.raises(ValueError, match=message):
        MODELS[model]()(x)


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_may_be_empty(model):
    assert MODELS[model]().eval()(torch.zeros(0, 1, 16, 16)).shape[0] == 0
