"""Studies of equal seconds: small runs that are stopped and go on; errors; gradients of models."""

import json

import pytest
import torch

pytest.importorskip("pdebench")

from chonn_lab.problems import meshes as mesh_problem
from chonn_lab.studies import meshes


@pytest.mark.parametrize("problem", mesh_problem.SIZES)
def test_a_stopped_study_goes_on(tmp_path, monkeypatch, problem):
    models, output = ["circuits"], tmp_path / "results.json"
    options = [
        "--fraction",
        "0.05",
        "--resolution",
        "12",
        "--problem",
        problem,
        "--data",
        str(tmp_path),
        "--output",
        str(output),
    ]
    options += ["--seconds", "0.3", "--trials", "2", "--seeds", "0", "--models", *models]
    whole, calls = meshes.Study.trained, []

    def stopped(self, *rest):
        calls.append(rest)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, *rest)

    monkeypatch.setattr(meshes.Study, "trained", stopped)
    with pytest.raises(KeyboardInterrupt):
        meshes.main(options)
    first = json.loads(output.read_text())["results"]
    meshes.main(options)
    record = json.loads(output.read_text())
    assert record["results"][:1] == first
    with pytest.raises(ValueError, match=r"--fraction: expected 0\.0.*, with which .* got 0.5"):
        meshes.main([*options, "--fraction", "0.5"])
    # Models take turns.
    order = [(run["kind"], run["seed"], run["model"]) for run in record["results"]]
    turns = [("trial", 0), ("trial", 1), ("result", 0)]
    assert order == [(*turn, model) for turn in turns for model in models]
    # A result has the settings of the better trial, and another seed than all trials.
    for model in models:
        *trials, result = (run for run in record["results"] if run["model"] == model)
        best = min(trials, key=lambda trial: trial["validation"])
        assert result["settings"] == best["settings"]
    seeds = [seed for _, _, seed, _ in calls]
    assert not {*seeds[: -len(models)]} & {*seeds[-len(models) :]}
    assert record["controls"]["scheme"]["error"] < 1e-12
    assert set(result["errors"]) == {"test", "test_fine"}


def test_errors_are_those_of_each_mesh_of_a_union(tmp_path):
    path = mesh_problem.generate(tmp_path / "data.h5", "domains", resolution=12, fraction=0.1)
    parts = [meshes.Domains.of(samples) for samples in mesh_problem.read(path, "test")]
    union = meshes.Domains.union(parts)
    generator = torch.Generator().manual_seed(0)
    guess = [torch.rand(part.y.shape, generator=generator) for part in parts]
    alone = torch.cat([p.errors(g) for p, g in zip(parts, guess, strict=True)])
    torch.testing.assert_close(union.errors(torch.cat(guess, 1)), alone)
    assert len(alone) == len(parts) > 1
