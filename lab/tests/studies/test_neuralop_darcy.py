"""The comparison inside neuraloperator runs on files in its layout, and goes on where it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "chonn_lab" / "studies" / "neuralop_darcy.py"


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
    models = ("--models", "FNO", "FNO, networks")
    done = run(data, output, *models)
    assert done.returncode == 0, done.stderr
    record = json.loads(output.read_text())
    plain, mixed = record["results"]
    assert (plain["model"], mixed["model"]) == ("FNO", "FNO, networks")
    assert set(plain["relative_l2"]) == set(mixed["relative_l2"]) == {"16", "32"}

    again = run(data, output, *models, "--seeds", "0", "1")
    assert again.returncode == 0, again.stderr
    results = json.loads(output.read_text())["results"]
    assert results[:2] == record["results"]
    assert [run["seed"] for run in results] == [0, 0, 1, 1]
    assert "FNO, networks" in again.stdout


def test_results_of_other_settings_are_not_mixed_in(data, tmp_path):
    output = tmp_path / "results.json"
    output.write_text(json.dumps({"config": {"epochs": 7}, "results": []}))
    refused = run(data, output, "--models", "FNO")
    assert refused.returncode != 0
    assert "got {'epochs': 7}" in refused.stderr


def test_the_network_trains(data, tmp_path):
    output = tmp_path / "networks.json"
    done = run(data, output, "--models", "chonn_network")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(output.read_text())["results"]
    assert 0 < found["relative_l2"]["32"] < 10


def test_the_direct_solve_knows_its_own_medium(tmp_path):
    """On data that a direct solve made, it finds contrast and mean again and leaves no error."""
    from chonn_lab.studies import neuralop_darcy

    torch.manual_seed(0)
    for name, points in (("train_16", 16), ("test_16", 16), ("test_32", 32)):
        inside = torch.rand(4, points, points) > 0.5
        fields = {"x": inside, "y": 3 * neuralop_darcy.solve(inside, 7.0, 0.3).float()}
        torch.save(fields, tmp_path / f"darcy_{name}.pt")
    found = neuralop_darcy.control(tmp_path)
    assert abs(found["contrast"] - 7) < 0.01
    assert abs(found["arithmetic"] - 0.3) < 0.01
    assert abs(found["scale"] - 3) < 0.01
    assert max(found["relative_l2"].values()) < 1e-3
