"""Schemes that made the data leave the rounding of the stored fields; others do not."""

from __future__ import annotations

import json

import pytest

from chonn_lab.benchmarks import controls
from chonn_ops.network import available_backends


@pytest.mark.skipif("cpu" not in available_backends(), reason="no compiled kernel")
def test_own_schemes_are_the_datas(tmp_path):
    output = tmp_path / "controls.json"
    controls.main(["--smoke", "--threads", "1", "--rounds", "1", "--output", str(output)])
    rows = json.loads(output.read_text())["rows"]
    own = {row["problem"]: row["error"] for row in rows if row["name"] == "own scheme"}
    others = {row["problem"]: row["error"] for row in rows if row["name"] != "own scheme"}
    assert own.keys() == {*controls.DARCY, "poisson", "condiff", "helmholtz", "helmholtz_open"}
    assert max(own.values()) < 1e-7
    assert own.keys() - others.keys() == {"helmholtz", "helmholtz_open"}
    assert min(others.values()) > 1e-2
    assert all(row["ms"] > 0 and row["generator_ms"] > 0 for row in rows)
