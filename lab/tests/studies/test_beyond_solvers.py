"""The study of problems that no solver takes over: a small run that is stopped and goes on."""

import json

import pytest
import torch

pytest.importorskip("optuna")
pytest.importorskip("pdebench")

from chonn_lab.pages import blocks
from chonn_lab.studies import beyond_solvers
from chonn_lab.studies.beyond_solvers import SIZES, build

TABLES = {"upscaling": "upscaling", "unknown_law": "unknown law"}


@pytest.mark.parametrize("problem", TABLES)
def test_a_stopped_study_goes_on(tmp_path, monkeypatch, problem):
    output = tmp_path / "results.json"
    models = ["CHONN network", "equation"]
    options = ["--problem", problem, "--data", str(tmp_path), "--output", str(output)]
    options += ["--seconds", "0.5", "--trials", "2", "--fraction", "0.02", "--seeds", "0"]
    options += ["--models", *models]
    whole, calls = beyond_solvers.Study.trained, []

    def stopped(self, *rest):
        calls.append(rest)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return whole(self, *rest)

    monkeypatch.setattr(beyond_solvers.Study, "trained", stopped)
    with pytest.raises(KeyboardInterrupt):
        beyond_solvers.main(options)
    first = json.loads(output.read_text())["results"]
    beyond_solvers.main(options)
    record = json.loads(output.read_text())
    assert record["results"][:3] == first
    # Models take turns.
    order = [(run["kind"], run["seed"], run["model"]) for run in record["results"]]
    turns = [("trial", 0), ("trial", 1), ("result", 0)]
    assert order == [(*turn, model) for turn in turns for model in models]
    for model in models:
        trials = [r for r in record["results"] if r["model"] == model and r["kind"] == "trial"]
        best = min(trials, key=lambda trial: trial["validation"])
        assert record["results"][4 + models.index(model)]["settings"] == best["settings"]
    # Results have another seed than all trials.
    assert not {call[2] for call in calls[:2]} & {call[2] for call in calls[-2:]}
    controls = {row["control"]: row["relative_l1"] for row in record["controls"]}
    own = next(name for name in controls if name.startswith("the data's own scheme"))
    assert controls[own] < 1e-12 < 1e-3 < min(e for e in controls.values() if e > 1e-6)
    header, *lines = blocks.build(TABLES[problem], record).splitlines()
    assert len(lines) == 1 + len(models) + len(controls)
    assert all(line.count("|") == header.count("|") for line in lines)


@pytest.mark.parametrize("name", SIZES)
def test_models_map_positive_fields_to_outputs_and_get_gradients(name):
    torch.manual_seed(0)
    widths, depths = SIZES[name]
    model = build(name, 16, widths[0], depths[0], (0.0, 1.0, 0.05))
    x = torch.rand(1, 16, 64, 64) + 0.1
    y = model(x)
    assert y.shape == (1, 1, 64, 64)
    y.square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
