"""The study of models on meshes: a small run that is stopped and goes on; errors of each mesh."""

import json

import pytest
import torch

pytest.importorskip("optuna")

from chonn_lab.problems import meshes as problem
from chonn_lab.studies import meshes


@pytest.mark.parametrize("name", ["holes", "domains", "part"])
def test_a_stopped_study_goes_on(tmp_path, monkeypatch, name):
    output = tmp_path / "results.json"
    options = ["--seconds", "0.3", "--trials", "2", "--resolution", "12", "--fraction", "0.05"]
    options += ["--problem", name, "--data", str(tmp_path), "--models", "circuits"]
    options += ["--output", str(output), "--seeds", "0"]
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
    assert [(r["kind"], r["seed"]) for r in first] == [("trial", 0)]
    meshes.main(options)
    record = json.loads(output.read_text())
    assert record["results"][:1] == first
    assert [(r["kind"], r["seed"]) for r in record["results"]] == [
        ("trial", 0),
        ("trial", 1),
        ("result", 0),
    ]
    # The result has the settings of the better trial, and another seed than both.
    trials = sorted(record["results"][:2], key=lambda trial: trial["validation"])
    assert record["results"][2]["settings"] == trials[0]["settings"]
    assert not {seed for _, _, seed, _ in calls[:-1]} & {calls[-1][2]}
    assert set(record["results"][2]["errors"]) == {"test", "test_fine"}
    assert record["controls"]["scheme"]["error"] < 1e-12


def test_errors_are_those_of_each_mesh_of_a_union(tmp_path):
    path = problem.generate(tmp_path / "data.h5", "domains", resolution=12, fraction=0.1)
    parts = [meshes.Domains.of(samples) for samples in problem.read(path, "test")]
    union = meshes.Domains.union(parts)
    generator = torch.Generator().manual_seed(0)
    guess = [torch.rand(part.y.shape, generator=generator) for part in parts]
    alone = torch.cat([p.errors(g) for p, g in zip(parts, guess, strict=True)])
    torch.testing.assert_close(union.errors(torch.cat(guess, 1)), alone)
    assert len(alone) == len(parts) > 1
