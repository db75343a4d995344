"""The benchmark of errors runs whole at a tiny scale; its truth is one; its table is written."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from chonn_lab.benchmarks import accuracy
from chonn_lab.pages import blocks, files
from chonn_ops.network import available_backends

pytestmark = [
    pytest.mark.skipif("cpu" not in available_backends(), reason="no compiled kernel"),
    pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision"),
]


@pytest.mark.slow
def test_errors_are_within_their_bounds(tmp_path, monkeypatch):
    output = tmp_path / "accuracy.json"
    accuracy.main(["--smoke", "--threads", "1", "--output", str(output)])
    found = json.loads(output.read_text())
    for section in accuracy.SECTIONS:
        for case in found[section]:
            rows = {row["name"]: row for row in case["rows"]}
            for name in rows.keys() & accuracy.BOUNDS.keys():
                assert rows[name]["unsolved"] == 0
                assert rows[name]["potential"] <= accuracy.BOUNDS[name]
                assert rows[name]["gradient"] <= accuracy.BOUNDS[name]
            assert rows["spsolve"]["calls"] > 0
    assert any(row["potential"] > 1e-3 for case in found["media"] for row in case["rows"][2:3])
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    assert "!" in blocks.build("accuracy")


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("grid", [(7,), (5, 4), (3, 1, 4)])
def test_the_truth_solves_the_equations(grid, boundary):
    case = accuracy.resistors("binary noise", 1e2, grid, 1e-1, boundary, count=2)
    v = accuracy.truth(case)[0]
    residual = case.source - case.leak * v
    for p, q, g in accuracy.edges_of(grid, [x[..., 0].numpy() for x in case.g], case.periodic):
        flat = v.reshape(2, -1)
        flow = torch.from_numpy(g) * (flat[:, p] - flat[:, q])
        residual.view(2, -1).index_add_(1, torch.from_numpy(p), -flow)
        residual.view(2, -1).index_add_(1, torch.from_numpy(q), flow)
    assert residual.abs().max() < 1e-12


def test_a_wrong_answer_is_counted_as_an_error():
    case = accuracy.resistors("smooth", 1e2, (5, 4), 1e-2, "neumann", count=2)
    expected, row = accuracy.truth(case), accuracy.Row("float64", componentwise=True)
    wrong = [x.clone() for x in expected]
    wrong[0][1, 2, 3] *= 1.5
    wrong[3] *= 1 + 1e-4
    row.take(expected, lambda: wrong)
    assert row.potential == pytest.approx(0.5)
    assert row.gradient == pytest.approx(1e-4)
    wrong[0][0, 0, 0] = float("nan")
    row.take(expected, lambda: wrong)
    assert (row.unsolved, row.calls) == (1, 2)
