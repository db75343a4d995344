"""Inputs that no model takes."""

from __future__ import annotations

import pytest
import torch

import chonn_ops
from chonn_ops import CKB, CKBOptions, KirchhoffCell, Network, NetworkCell, Scan

MODELS = {
    "network": lambda: chonn_ops.CHONNNetwork2d(width=4, depth=1),
    "unet": lambda: chonn_ops.CHONNUNet2d(1, 1, 2),
    "cno": lambda: chonn_ops.CNOUNet(),
    "block of networks": lambda: CKB(1, 2, cell=Network(num_networks=2)),
    "block of scans": lambda: CKB(1, 2, cell=Scan()),
}
INPUTS = {
    "empty axis": (torch.zeros(1, 1, 0, 16), r"at least 1 point on every axis, got the shape \(1,"),
    "sparse": (torch.zeros(1, 1, 16, 16).to_sparse(), "a dense tensor, got the layout torch"),
    "float64": (torch.zeros(1, 1, 16, 16).double(), "expected dtype torch.float32, as the"),
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


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CKB(2.5, 2), "dim: expected an integer of at least 1, got 2.5"),
        (lambda: CKB(4, 2, boundary=3), "boundary: expected one of .*, got 3"),
        (lambda: CKB(4, True), "spatial_dims: expected one of .*, got True"),
        (lambda: NetworkCell(4, 2, Scan()), r"options: expected Network\(...\), got Scan\("),
        (lambda: KirchhoffCell(4, Network()), r"options: expected Scan\(...\), got Network\("),
        (lambda: Network(nodes=["left"]), r"nodes: expected one of .*, got \['left'\]"),
        (lambda: CKBOptions.from_mapping(None), "options: expected a mapping, got None"),
        (lambda: chonn_ops.CHONNNetwork2d(width="24"), "width: expected an integer .* got '24'"),
        (lambda: chonn_ops.CHONNWaves2d(coordinates="no"), "coordinates: expected a bool"),
        (lambda: chonn_ops.CHONNFNO2d(1, width=0), "width: expected an integer of at least 1"),
        (lambda: chonn_ops.CHONNFNO2d(1, modes2=-1), "modes2: expected .* at least 1, got -1"),
        (lambda: chonn_ops.CHONNFNO1d(1, initial_step=-1), "initial_step: expected an integer"),
        (lambda: chonn_ops.CHONNUNet2d(1, -1), "out_channels: expected an integer"),
        (lambda: chonn_ops.CHONNWaves2d(reach="far"), "reach: expected a number, got 'far'"),
    ],
)
def test_unfit_options_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
