"""The benchmark of complex networks runs whole at a tiny scale, and what it times is right."""

from __future__ import annotations

import json

import pytest

from chonn_lab.benchmarks import direct_complex
from chonn_ops.network import available_backends

pytest.importorskip("scipy")
pytestmark = pytest.mark.skipif("cpu" not in available_backends(), reason="no compiled kernel")


def test_all_contenders_agree(tmp_path):
    output = tmp_path / "direct_complex.json"
    direct_complex.main(["--smoke", "--threads", "1", "--output", str(output)])
    (batch,) = json.loads(output.read_text())["batches"]
    rows = {row["name"]: row for row in batch["rows"]}
    assert rows.keys() == {"complex64", "complex128", "spsolve"}
    for name, bound in (("complex64", 1e-5), ("complex128", 1e-9)):
        assert rows[name]["error"] < bound
        assert rows[name]["gradient_error"] < bound
    assert all(row["forward_ms"] > 0 and row["both_ms"] > 0 for row in rows.values())
