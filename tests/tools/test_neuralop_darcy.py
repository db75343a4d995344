"""The comparison of mixers runs on files in neuraloperator's layout, and goes on where it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "tools" / "neuralop_darcy.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("darcy")
    torch.manual_seed(0)
    for name, samples, points in (("train_16", 8, 16), ("test_16", 50, 16), ("test_32", 50, 32)):
        field = (samples, points, points)
        torch.save(
            {"x": torch.rand(field) > 0.5, "y": torch.rand(field)}, folder / f"darcy_{name}.pt"
        )
    return folder


def run(data, output, *arguments):
    sizes = ["--epochs", "1", "--n-train", "8", "--width", "8", "--modes", "4", "--threads", "1"]
    command = [sys.executable, str(SCRIPT), "--data", str(data), "--output", str(output)]
    return subprocess.run([*command, *sizes, *arguments], capture_output=True, text=True)


@pytest.mark.slow
def test_trains_scores_and_goes_on(data, tmp_path):
    output = tmp_path / "runs" / "mixers.json"
    models = ("--models", "fno", "replace-axial")
    done = run(data, output, *models)
    assert done.returncode == 0, done.stderr
    record = json.loads(output.read_text())
    plain, mixed = record["results"]
    assert (plain["model"], mixed["model"]) == ("fno", "replace-axial")
    assert set(plain["relative_l2"]) == {"16", "32"}
    ways = {"32 input grid", "32 scaled steps", "32 dilated"}
    assert set(mixed["relative_l2"]) == {"16", "32"} | ways
    # Four ways to ask the same weights: all different, or the script asked the same way twice.
    assert len({mixed["relative_l2"][key] for key in {"32"} | ways}) == 4

    again = run(data, output, *models, "--seeds", "0", "1")
    assert again.returncode == 0, again.stderr
    results = json.loads(output.read_text())["results"]
    assert results[:2] == record["results"]
    assert [run["seed"] for run in results] == [0, 0, 1, 1]
    assert "replace-axial" in again.stdout


def test_results_of_other_settings_are_not_mixed_in(data, tmp_path):
    output = tmp_path / "mixers.json"
    output.write_text(json.dumps({"config": {"epochs": 7}, "results": []}))
    refused = run(data, output, "--models", "fno")
    assert refused.returncode != 0
    assert "holds runs with {'epochs': 7}" in refused.stderr


def test_networks_and_all_their_ablations_train(data, tmp_path):
    output = tmp_path / "networks.json"
    models = ("network", "constant conductances", "lines, not planes", "12 CG steps", "no gate")
    models += ("no cell", "no coordinates", "no walls", "short walls", "order 2")
    done = run(data, output, "--models", *models)
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    assert [found["model"] for found in results] == list(models)
    errors = [found["relative_l2"]["16"] for found in results]
    assert len(set(errors)) == len(errors)  # each is another model
    sizes = [found["parameters"] for found in results]
    assert max(sizes) < 1.1 * min(sizes)


def test_the_direct_solve_knows_its_own_medium(tmp_path):
    """On data that a direct solve made, it finds contrast and mean again and leaves no error."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import direct_solve
    finally:
        sys.path.pop(0)
    torch.manual_seed(0)
    for name, points in (("train_16", 16), ("test_16", 16), ("test_32", 32)):
        inside = torch.rand(4, points, points) > 0.5
        fields = {"x": inside, "y": 3 * direct_solve.solve(inside, 7.0, 0.3).float()}
        torch.save(fields, tmp_path / f"darcy_{name}.pt")
    output = tmp_path / "direct.json"
    command = [sys.executable, str(SCRIPT.with_name("direct_solve.py")), "--data", str(tmp_path)]
    done = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(output.read_text())["results"]
    assert abs(found["contrast"] - 7) < 0.01
    assert abs(found["arithmetic"] - 0.3) < 0.01
    assert abs(found["scale"] - 3) < 0.01
    assert max(found["relative_l2"].values()) < 1e-3
