"""The benchmark runs, compares every contender that is installed and writes its file whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scan.py"


def test_smoke_run_writes_every_column(tmp_path):
    output = tmp_path / "results" / "scan.json"
    command = [sys.executable, str(SCRIPT), "--smoke", "--rounds", "2", "--output", str(output)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(output.read_text())
    rows = {row["name"]: row for row in result["rows"]}
    assert {"torch", "loop", "exp alone"} <= rows.keys()
    assert all(row["forward_ms"] > 0 for row in rows.values())
    assert rows["torch"]["both_ms"] > 0
    assert all(name in done.stdout for name in rows)
    assert result["environment"]["rounds"] == 2
    assert list(output.parent.iterdir()) == [output]
