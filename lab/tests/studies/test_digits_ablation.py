"""The routing ablation at smoke scale: fair, complete, and the same numbers after a stop."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("timm")
pytest.importorskip("sklearn")

SCRIPT = Path(__file__).parents[2] / "chonn_lab" / "studies" / "digits_ablation.py"
VARIANTS = ["baseline", "parallel", "serial", "serial+constraints"]


def ablate(folder, *options):
    results = folder / "results.json"
    command = [sys.executable, str(SCRIPT), "--smoke", "--seeds", "0"]
    command += ["--output", str(results), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def without_times(record):
    return [{**run, "seconds": None} for run in record["results"]]


@pytest.mark.slow
def test_ablation_is_fair_and_a_stopped_one_ends_at_the_same_numbers(tmp_path):
    run = ablate(tmp_path)
    assert run.returncode == 0, run.stderr
    results = tmp_path / "results.json"
    record = json.loads(results.read_text())
    assert [result["model"] for result in record["results"]] == VARIANTS
    sizes = [result["parameters"] for result in record["results"]]
    assert max(sizes) < 1.005 * min(sizes)
    assert sum(record["config"]["splits"].values()) == 1797
    for result in record["results"]:
        assert [point["epoch"] for point in result["curve"]] == [0, 1]
        assert 0 <= result["metrics"]["test"]["accuracy"] <= 1
        assert f"{100 * result['metrics']['test']['accuracy']:.2f}" in run.stdout
    assert len({result["metrics"]["test"]["cross_entropy"] for result in record["results"]}) == 4

    stopped = {**record, "results": record["results"][:2]}
    results.write_text(json.dumps(stopped))
    again = ablate(tmp_path)
    assert again.returncode == 0, again.stderr
    resumed = json.loads(results.read_text())
    assert resumed["results"][:2] == record["results"][:2]
    assert without_times(resumed) == without_times(record)

    before = results.read_bytes()
    other = ablate(tmp_path, "--learning-rate", "0.5")
    assert other.returncode == 1
    assert "expected runs with" in other.stderr
    assert results.read_bytes() == before
