"""The comparison inside neuraloperator runs on files in its layout, and goes on where it was."""

import json
import sys

import pytest
import torch

from chonn_lab.studies import neuralop_darcy

SIZES = ("train_16", 8, 16), ("test_16", 50, 16), ("test_32", 50, 32)


def study(monkeypatch, folder, *options):
    sizes = ["--epochs", "1", "--n-train", "8", "--width", "8", "--modes", "4", "--threads", "1"]
    places = ["--data", str(folder), "--output", str(folder / "results.json")]
    monkeypatch.setattr(sys, "argv", ["neuralop_darcy", *places, *sizes, *options])
    neuralop_darcy.main()
    return json.loads((folder / "results.json").read_text())


@pytest.mark.slow
def test_trains_scores_and_goes_on(tmp_path, monkeypatch, capsys):
    torch.manual_seed(0)
    for name, samples, points in SIZES:
        field = torch.rand(samples, points, points)
        torch.save({"x": field > 0.5, "y": torch.rand_like(field)}, tmp_path / f"darcy_{name}.pt")
    record = study(monkeypatch, tmp_path)
    assert [run["model"] for run in record["results"]] == list(neuralop_darcy.MODELS)
    assert all(0 < run["relative_l2"]["32"] < 10 for run in record["results"])
    results = study(monkeypatch, tmp_path, "--seeds", "0", "1")["results"]
    assert results[:4] == record["results"]
    # Nothing of the control is random.
    assert [run["model"] for run in results[4:]] == list(neuralop_darcy.MODELS)[:3]
    assert "direct solve" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="expected runs with"):
        study(monkeypatch, tmp_path, "--learning-rate", "0.5")


def test_the_direct_solve_knows_its_own_medium(tmp_path):
    """On data that a direct solve made, it finds contrast and mean again and leaves no error."""
    torch.manual_seed(0)
    for name, _, points in SIZES:
        inside = torch.rand(4, points, points) > 0.5
        fields = {"x": inside, "y": 3 * neuralop_darcy.solve(inside, 7.0, 0.3).float()}
        torch.save(fields, tmp_path / f"darcy_{name}.pt")
    found = neuralop_darcy.control(tmp_path)
    assert abs(found["contrast"] - 7) < 0.01
    assert abs(found["arithmetic"] - 0.3) < 0.01
    assert abs(found["scale"] - 3) < 0.01
    assert max(found["relative_l2"].values()) < 1e-3
