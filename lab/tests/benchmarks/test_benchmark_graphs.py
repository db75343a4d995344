"""The benchmark of graphs runs whole at a tiny scale, every contender is right, and its tables are
written."""

from __future__ import annotations

import json

import pytest

from chonn_lab.benchmarks import graphs
from chonn_lab.pages import blocks, files
from chonn_ops.network import available_backends


@pytest.mark.slow
@pytest.mark.skipif("cpu" not in available_backends(), reason="no compiled kernel")
def test_every_contender_solves_its_circuits(tmp_path, monkeypatch):
    output = tmp_path / "graphs.json"
    graphs.main(["--smoke", "--threads", "1", "--output", str(output)])
    found = json.loads(output.read_text())
    for section in ("circuits", "single", "pairs"):
        rows = {row["name"]: row for row in found[section]["rows"]}
        # For pairs there is only CHOLMOD beside us, where scikit-sparse is installed.
        assert section == "pairs" or rows.keys() >= {"spsolve", "splu"}
        assert all(row["forward_ms"] > 0 and row.get("error", 0) < 2e-5 for row in rows.values())
        for name, row in rows.items():
            row["forward_ratio"] = 0.5 if (section, name) == ("single", "splu") else 2.0
            row["both_ratio"] = 2.0
    assert [row["name"] for row in found["large"]] == ["path", "Delaunay", "grid"]
    output.write_text(json.dumps(found))
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    text = blocks.build("graphs")
    assert "Faster than chonn-ops: splu on 1 of 200 nodes.\n" in text
    assert "Delaunay" in blocks.build("graphs large")
