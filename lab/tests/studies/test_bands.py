"""The study of bands: UQNO's own rule, widths, and a small run."""

import json
import sys

import pytest
import torch

from chonn_lab.pages import blocks
from chonn_lab.studies import bands


def zero(x):
    return torch.zeros_like(x)


def one(x):
    return torch.ones_like(x)


def test_the_rule_of_uqno_is_cautious():
    """Its scale covers 90 % of the points of more than 90 % of the fields."""
    generator = torch.Generator().manual_seed(0)
    size = 0.5 + torch.rand(400, 1, 1, 1, generator=generator)
    y = size * torch.randn(400, 1, 16, 16, generator=generator)
    scale = bands.own_scale(zero, one, (y[:200], y[:200]))
    shares = (y[200:].abs() <= scale).double().flatten(1).mean(dim=1)
    assert (shares >= 0.9).double().mean() > 0.9
    # Not by much: nearly all points of a field are within twice its scale.
    assert scale < 2 * y.abs().flatten(1).quantile(0.9, dim=1).quantile(0.9)


def test_widths_at_equal_coverage():
    generator = torch.Generator().manual_seed(0)
    y = torch.rand(64, 1, 8, 8, generator=generator)
    found = bands.scores(bands.Bands(zero, one, 0.5), (y, y))
    assert found["coverage"] == pytest.approx(0.5, abs=0.02)
    # 90 % of uniform numbers are below 0.9.
    expected = 2 * 0.9 / y.mean().item()
    assert found["width_at_level"] == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
def test_a_small_run(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    for name, samples in (("train", 1000), ("test", 50)):
        x = torch.rand(samples, 16, 16, generator=generator)
        torch.save({"x": x > 0.5, "y": x}, tmp_path / f"darcy_{name}_16.pt")
    output = tmp_path / "bands.json"
    options = ["--problems", "neuralop", "--seeds", "0", "--epochs", "1"]
    options += ["--data", str(tmp_path), "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["bands", *options])
    bands.main()
    record = json.loads(output.read_text())
    bands.main()  # goes on with the file, which has all runs
    assert json.loads(output.read_text()) == record
    assert blocks.build("bands", record).count("\n") == 2 + 7
