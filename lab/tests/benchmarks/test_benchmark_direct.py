"""The benchmark of the direct method runs whole at a tiny scale, and what it times is right."""

from __future__ import annotations

import json

import pytest

from chonn_lab.benchmarks import direct
from chonn_ops.network import available_backends


@pytest.mark.skipif("cpu" not in available_backends(), reason="no compiled kernel")
def test_every_contender_solves_its_networks(tmp_path):
    output = tmp_path / "direct.json"
    direct.main(["--smoke", "--threads", "1", "--output", str(output)])
    found = json.loads(output.read_text())
    assert set(direct.SECTIONS) <= found.keys()
    for section in ("batches", "single", "volumes"):
        for case in found[section]:
            rows = {row["name"]: row for row in case["rows"]}
            assert set(direct.METHODS) <= rows.keys()
            for name in ("direct", "auto"):
                assert rows[name]["error"] <= 2e-5
                assert rows[name]["both_ms"] > 0
            assert rows["direct"]["held_bytes"] <= rows["direct"]["predicted_bytes"]
    assert [row["name"] for row in found["sources"]["rows"]] == ["together", "multigrid"]
