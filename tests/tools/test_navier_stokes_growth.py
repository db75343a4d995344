"""Growth of errors in the exact flow, on a coarse grid."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("h5py")

SCRIPT = Path(__file__).parents[2] / "tools" / "navier_stokes_growth.py"


def grow(output, samples):
    sizes = ["--samples", str(samples), "--resolution", "32", "--step", "0.05"]
    command = [sys.executable, str(SCRIPT), *sizes, "--output", str(output)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_low_wavenumbers_last_and_high_ones_are_damped(tmp_path):
    output = tmp_path / "growth.json"
    run = grow(output, 2)
    assert run.returncode == 0, run.stderr
    results = json.loads(output.read_text())["results"]
    assert [result["band"] for result in results] == [[1, 2], [2, 4], [4, 8], [8, 16]]
    for result in results:
        assert len(result["growth"]) == 40
        assert len(result["growth"][0]) == 2
    # Viscosity alone leaves exp(-nu (2 pi k)^2 t).
    first, *_, last = results
    assert min(first["growth"][4]) > 0.5
    assert max(last["growth"][4]) < 0.01
    record = json.loads(output.read_text())
    output.write_text(json.dumps({**record, "results": results[:2]}))
    assert grow(output, 2).returncode == 0
    assert json.loads(output.read_text()) == record
    before = output.read_bytes()
    other = grow(output, 3)
    assert other.returncode == 1
    assert "holds runs with" in other.stderr
    assert output.read_bytes() == before
