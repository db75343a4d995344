"""Inputs that no model takes."""

import math
from functools import partial

import pytest
import torch

import chonn_ops
from chonn_ops import (
    CKB,
    CHONNFNO1d,
    CHONNFNO2d,
    CHONNNetwork2d,
    CHONNStep1d,
    CHONNUNet1d,
    CHONNUNet2d,
    CKBOptions,
    CNOUNet,
    Network,
    Scan,
)

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


def call(model, *shapes, **options):
    """What calls a model with zeros."""
    return lambda: model(**options)(*(torch.zeros(shape) for shape in shapes))


fno1, fno2 = (partial(x, 1, width=8, initial_step=1) for x in (CHONNFNO1d, CHONNFNO2d))
unet1, unet2 = (partial(x, 1, 1, 4) for x in (CHONNUNet1d, CHONNUNet2d))
SCAN, X = CKBOptions("scan"), torch.zeros(1, 1, 16, 16)
REFUSED = [
    (call(CHONNStep1d, boundary="dirichlet"), "boundary"),
    (lambda: CHONNStep1d(2)(torch.zeros(1, 2, 8), dt=0.0), "dt"),
    (call(CHONNNetwork2d, width="24"), "width: expected an integer .* got '24'"),
    (call(CHONNNetwork2d, depth=-1), "depth: expected an integer of at least 0, got -1"),
    (call(CHONNNetwork2d, lengths=(1.0,)), "lengths: expected a number > 0, or 2 of them"),
    (call(CHONNNetwork2d, lengths=-1.0), "lengths: expected a number > 0"),
    (call(CHONNNetwork2d, boundary="open"), "boundary.*: expected one of"),
    (call(CHONNNetwork2d, nodes="middle"), "nodes: expected one of"),
    (call(CHONNNetwork2d, (1, 4, 4)), r"x: expected shape \(B, 1, H, W\), got"),
    (lambda: CHONNNetwork2d()(X, spacing=(0, 1)), "spacing: expected a number > 0, or 2 of them"),
    (call(CHONNFNO2d, num_channels=1, width=0), "width: expected an integer of at least 1"),
    (call(fno2, modes2=-1), "modes2: expected .* at least 1, got -1"),
    (call(CHONNFNO1d, num_channels=1, initial_step=-1), "initial_step: expected an integer"),
    (call(fno2, downsample=0), "downsample: expected an integer of at least 1, got 0"),
    (call(fno2, ckb={"order": 2}), r"ckb: expected CKBOptions.*got \{'order': 2\}"),
    (call(unet2, ckb={"order": 2}), r"ckb: expected CKBOptions\(\.\.\.\) or None, got \{'order"),
    (call(CHONNUNet2d, out_channels=-1), "out_channels: expected an integer"),
    (call(unet2, stages=("middle",)), r"stages: expected names out of .*got \['middle'\]"),
    (call(CNOUNet, n_layers=0), "n_layers: expected an integer of at least 1, got 0"),
    (call(CNOUNet, n_res=-1), "n_res: expected an integer of at least 0, got -1"),
    (call(CNOUNet, channel_multiplier=7), "channel_multiplier: expected a positive even number"),
    (call(CNOUNet, stages=("encoder9",)), r"stages: expected names .*got \['encoder9'\]"),
    (call(unet2, (1, 1, 20, 16)), r"sizes multiples of 16, got \(1, 1, 20, 16\)"),
    (call(unet1, (1, 1, 16, 16)), r"expected shape \(B, 1, H\), got \(1, 1, 16, 16\)"),
    (call(fno2, (1, 16, 16, 1), (1, 16, 16, 2)), r"at most \(18, 10\).*got \(12, 12\)"),
    (call(fno1, (1, 16, 2), (1, 16, 1), modes=4), r"x: expected shape \(B, H, 1\), got \(1, 16, 2"),
    (call(fno1, (1, 16, 1), (1, 16, 2), modes=4), r"grid: expected shape \(1, 16, 1\), got \(1, 1"),
    *(
        (call(kind, **options), message)
        for kind in (unet2, fno2)
        for options, message in (
            ({"ckb": CKBOptions(Network(3))}, "ckb: expected .* or None for a circuit head"),
            ({"ckb": SCAN, "boundary": "periodic"}, "boundary: expected 'robin' with `ckb`"),
            ({"ckb": SCAN, "nodes": "left"}, "nodes: expected 'centres' with `ckb`"),
        )
    ),
    (lambda: unet2(ckb=SCAN)(X, nodes="left"), "spacing, mask, nodes: expected None with `ckb`"),
    (lambda: unet2(ckb=SCAN).calibrate(X, X), "calibrate: expected a model without `ckb`"),
    (lambda: fno2(ckb=SCAN).calibrate(X, X, X), "calibrate: expected a model without `ckb`"),
    *(
        (call(CNOUNet, shape), r"x: expected shape \(B, 1, H, W\), sizes multiples of 8")
        for shape in ((1, 1, 12, 16), (1, 2, 16, 16), (1, 16, 16))
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_unfit_options_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (CHONNNetwork2d, lambda x: (x, x[:, :, :4]), "y: expected a field of outputs"),
        (CHONNNetwork2d, lambda x: (x * math.nan, x), r"x: .* got nan at \(0, 0, 0, 0\)"),
        (CHONNStep1d, lambda x: (x,), "frames: expected shape"),
        (CHONNStep1d, lambda x: (x.movedim(1, 2) * math.nan,), "frames: expected finite"),
    ],
)
def test_samples_that_calibrate_nothing_are_refused(model, data, message):
    with pytest.raises(ValueError, match=message):
        model().calibrate(*data(torch.rand(2, 1, 8, 8)))
