"""The counter of multiply-adds against a count by hooks."""

import json

import pytest
import torch
from torch import nn

pytest.importorskip("timm")

import timm

from chonn_lab.benchmarks import vision_size
from chonn_ops import KirchhoffCell


def test_counts_every_convolution_product_and_scan(tmp_path):
    output = tmp_path / "size.json"
    vision_size.main(["--model", "test_chonn", "--resolution", "64", "--output", str(output)])
    (row,) = json.loads(output.read_text())["rows"]

    model = timm.create_model("test_chonn").eval()
    counted = {"products": 0, "scans": 0}

    def count(module, inputs, y):
        if isinstance(module, nn.Conv2d):
            counted["products"] += y.numel() * module.weight[0].numel()
        elif isinstance(module, nn.Linear):
            counted["products"] += y.numel() * module.in_features
        elif isinstance(module, KirchhoffCell):
            # One state, four walks: four shared products and eight of the walks; skip and mean.
            counted["scans"] += inputs[0].numel() * (4 + 8 + 2)

    for module in model.modules():
        module.register_forward_hook(count)
    with torch.inference_mode():
        model(torch.zeros(1, 3, 64, 64))
    assert row["parameters"] == sum(p.numel() for p in model.parameters())
    assert row["scan_multiply_adds"] == counted["scans"] > 0
    assert row["multiply_adds"] == counted["products"] + counted["scans"]
