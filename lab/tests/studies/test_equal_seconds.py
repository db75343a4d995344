"""Studies of equal seconds: small runs that are stopped and go on; errors; gradients of models."""

import json

import pytest
import torch

pytest.importorskip("pdebench")

from chonn_lab.pages import blocks
from chonn_lab.problems import meshes as mesh_problem
from chonn_lab.studies import beyond_solvers, meshes

# Problem: study, its models here, and options for small data.
STUDIES = {
    "upscaling": (beyond_solvers, ["CHONN network", "equation"], ["--fraction", "0.02"]),
    "unknown_law": (beyond_solvers, ["CHONN network", "equation"], ["--fraction", "0.02"]),
    "holes": (meshes, ["circuits"], ["--fraction", "0.05", "--resolution", "12"]),
    "domains": (meshes, ["circuits"], ["--fraction", "0.05", "--resolution", "12"]),
    "part": (meshes, ["circuits"], ["--fraction", "0.05", "--resolution", "12"]),
}


@pytest.mark.parametrize("problem", STUDIES)
def test_a_stopped_study_goes_on(tmp_path, monkeypatch, problem):
    study, models, options = STUDIES[problem]
    output = tmp_path / "results.json"
    options = [*options, "--problem", problem, "--data", str(tmp_path), "--output", str(output)]
    options += ["--seconds", "0.3", "--trials", "2", "--seeds", "0", "--models", *models]
    whole, calls = study.Study.trained, []

    def stopped(self, *rest):
        calls.append(rest)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, *rest)

    monkeypatch.setattr(study.Study, "trained", stopped)
    with pytest.raises(KeyboardInterrupt):
        study.main(options)
    first = json.loads(output.read_text())["results"]
    study.main(options)
    record = json.loads(output.read_text())
    assert record["results"][:1] == first
    with pytest.raises(ValueError, match=r"--fraction: expected 0\.0.*, with which .* got 0.5"):
        study.main([*options, "--fraction", "0.5"])
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
    if study is meshes:
        assert record["controls"]["scheme"]["error"] < 1e-12
        assert set(result["errors"]) == {"test", "test_fine"}
        return
    controls = {row["control"]: row["relative_l1"] for row in record["controls"]}
    own = next(name for name in controls if name.startswith("the data's own scheme"))
    assert controls[own] < 1e-12 < 1e-3 < min(e for e in controls.values() if e > 1e-6)
    header, *lines = blocks.build(problem.replace("_", " "), record).splitlines()
    assert len(lines) == 1 + len(models) + len(controls)
    assert all(line.count("|") == header.count("|") for line in lines)


def test_errors_are_those_of_each_mesh_of_a_union(tmp_path):
    path = mesh_problem.generate(tmp_path / "data.h5", "domains", resolution=12, fraction=0.1)
    parts = [meshes.Domains.of(samples) for samples in mesh_problem.read(path, "test")]
    union = meshes.Domains.union(parts)
    generator = torch.Generator().manual_seed(0)
    guess = [torch.rand(part.y.shape, generator=generator) for part in parts]
    alone = torch.cat([p.errors(g) for p, g in zip(parts, guess, strict=True)])
    torch.testing.assert_close(union.errors(torch.cat(guess, 1)), alone)
    assert len(alone) == len(parts) > 1


@pytest.mark.parametrize("name", beyond_solvers.SIZES)
def test_models_map_positive_fields_to_outputs_and_get_gradients(name):
    torch.manual_seed(0)
    widths, depths = beyond_solvers.SIZES[name]
    model = beyond_solvers.build(name, 16, widths[0], depths[0], (0.0, 1.0, 0.05))
    y = model(torch.rand(1, 16, 64, 64) + 0.1)
    assert y.shape == (1, 1, 64, 64)
    y.square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
