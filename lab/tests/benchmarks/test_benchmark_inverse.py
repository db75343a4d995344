"""The benchmark of reconstructions runs at a tiny scale; what needs pyEIT says so without it."""

from __future__ import annotations

import importlib.util
import json

import pytest

from chonn_lab.benchmarks import inverse

PEER = importlib.util.find_spec("pyeit") is not None


def test_wells_are_recovered_and_what_needs_pyeit_is_left_out_without_it(tmp_path, capsys):
    output = tmp_path / "inverse.json"
    arguments = ["--smoke", "--threads", "1", "--output", str(output)]
    inverse.main([*arguments, "--only", "wells", "--only", "images"])
    found = json.loads(output.read_text())
    assert all(row["ratio"] < 1 and row["converged"] for row in found["wells"]["rows"])
    assert 0.75 < found["wells"]["coverage"] < 1
    assert ("images" in found) == PEER
    assert ("images and gradients left out: pip install pyeit" in capsys.readouterr().out) != PEER


@pytest.mark.skipif(not PEER, reason="no pyEIT")
def test_gradients_are_timed_beside_pyeit(tmp_path):
    output = tmp_path / "inverse.json"
    arguments = ["--smoke", "--threads", "1", "--output", str(output), "--only", "gradients"]
    inverse.main(arguments)
    (row,) = json.loads(output.read_text())["gradients"]
    assert row["ratio"] > 1
