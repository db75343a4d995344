"""The study of bands: UQNO's own rule, and a small run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

pytest.importorskip("neuralop")

from chonn_lab.pages import blocks
from chonn_lab.studies import bands


class Zero(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


class One(nn.Module):
    def forward(self, x):
        return torch.ones_like(x)


def test_the_rule_of_uqno_is_cautious():
    """Its scale covers 90 % of the points of more than 90 % of the fields."""
    generator = torch.Generator().manual_seed(0)
    size = 0.5 + torch.rand(400, 1, 1, 1, generator=generator)
    y = size * torch.randn(400, 1, 16, 16, generator=generator)
    scale = bands.own_scale(Zero(), One(), (y[:200], y[:200]))
    shares = (y[200:].abs() <= scale).double().flatten(1).mean(dim=1)
    assert (shares >= 0.9).double().mean() > 0.9
    # Without the term for the continuum: the plain rule of the same statement is narrower.
    plain = bands.conformal(Zero(), [(y[:200], y[:200])], 0.9, share=0.9).scale
    assert plain < scale < 2 * plain


def test_widths_at_equal_coverage():
    generator = torch.Generator().manual_seed(0)
    y = torch.rand(64, 1, 8, 8, generator=generator)
    found = bands.scores(bands.Bands(Zero(), One(), 0.5), (y, y))
    assert found["coverage"] == pytest.approx(0.5, abs=0.02)
    # 90 % of uniform numbers are below 0.9.
    expected = 2 * 0.9 / y.mean().item()
    assert found["width_at_level"] == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
def test_small_runs(tmp_path):
    generator = torch.Generator().manual_seed(0)
    for name, samples in (("train", 1000), ("test", 50)):
        x = torch.rand(samples, 16, 16, generator=generator)
        torch.save({"x": x > 0.5, "y": x}, tmp_path / f"darcy_{name}_16.pt")
    output = tmp_path / "bands.json"
    command = [sys.executable, "-m", "chonn_lab.studies.bands", "--problems", "neuralop"]
    command += ["--seeds", "0", "--data", str(tmp_path), "--output", str(output), "--epochs", "1"]
    for _ in range(2):  # the second continues the first one's file, which has all runs
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert blocks.build("bands", json.loads(output.read_text())).count("\n") == 2 + 7
