"""Result files: content, what is not run twice, and clear errors for what is in the way."""

import json

import numpy as np
import pytest
import torch
from filelock import FileLock
from running import job, read

pytest.importorskip("filelock")
from chonn_lab.experiments import get, training
from chonn_lab.experiments.records import Run
from chonn_lab.report.results import read_study


def test_result_file(tmp_path):
    work = job(tmp_path, "epochs=3")
    run = training.execute(work)
    assert work.result == tmp_path / "runs" / "tiny" / "smoke+epochs=3" / "order2-seed0.json"
    content = read(work.result)
    assert len(content.pop("checksum")) == 16
    assert content == {"generator": "chonn-ops", **vars(run)}
    assert run.scale == "smoke+epochs=3"
    assert (run.variant, run.label, run.tags) == (
        "order2",
        "Order 2",
        {"order": 2},
    )
    assert run.config["epochs"] == 3
    assert run.config["learning_rate"] == 2e-3
    assert run.versions["torch"] == torch.__version__.partition("+")[0]
    assert run.hardware["device"] == "cpu"
    assert run.parameters == 169
    assert run.multiply_adds > 32 * 169 / 2
    assert len(run.curves["by_sample"]) == 8
    assert run.diverged is None
    assert 0 < run.seconds < 60
    assert 10 < run.peak_memory_mib < 10_000
    with np.load(work.fields) as fields:
        assert {name: fields[name].shape for name in fields} == {
            "target": (1, 1, 32),
            "prediction": (1, 1, 32),
        }
    assert [path.name for path in work.folder.glob(".*")] in ([".lock"], [])


def test_same_seed_same_numbers_other_seed_others(tmp_path):
    first, second = (training.execute(job(tmp_path / name, "noisy=true")) for name in "ab")
    assert first.curve == second.curve
    other = training.execute(job(tmp_path, "noisy=true", "seed=1"))
    assert other.seed == 1
    assert other.curve["train_loss"][0] != first.curve["train_loss"][0]


def test_finished_runs_are_read(tmp_path):
    work = job(tmp_path)
    record = training.execute(work)
    written = work.result.stat().st_mtime_ns
    epochs = []
    assert training.execute(work, on_epoch=lambda: epochs.append(1)) == record
    assert epochs == []
    assert work.result.stat().st_mtime_ns == written


def test_result_of_other_settings_is_in_the_way(tmp_path):
    work = job(tmp_path)
    record = vars(training.execute(work))
    path = work.result
    changed = {**record, "config": {**record["config"], "epochs": 9, "width": 5}}
    path.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="epochs: 9 there, 2 here, width: 5 there, 4 here") as info:
        training.execute(work)
    assert str(path) in str(info.value)
    assert read(path) == changed


def test_settings_that_an_older_result_does_not_know_had_their_default(tmp_path):
    work, other = job(tmp_path), job(tmp_path / "other", "width=5")
    for found in (work, other):
        record = vars(training.execute(found))
        path = found.result
        config = {k: v for k, v in record["config"].items() if k not in ("width", "modes")}
        path.write_text(json.dumps({**record, "config": config}))
    assert "width" not in training.execute(work).config
    with pytest.raises(ValueError, match=r"of other settings \(width: 4 there, 5 here\);"):
        training.execute(other)


def test_damaged_result(tmp_path):
    work = job(tmp_path)
    path = work.result
    path.parent.mkdir(parents=True)
    path.write_text('{"config": {')
    with pytest.raises(ValueError, match=r"order2-seed0\.json: damaged, or no result .* away"):
        training.execute(work)


@pytest.mark.parametrize("change", ["lost", "renamed", "another", "curve", "no longer diverged"])
def test_result_whose_scores_are_not_those_that_were_written(tmp_path, change):
    work = job(tmp_path, "spoiled_step=3") if change == "no longer diverged" else job(tmp_path)
    training.execute(work)
    record = read(work.result)
    scores = record["metrics"].get("test", {})
    match change:
        case "lost":
            del scores["relative_l2"]
        case "renamed":
            scores["x"] = scores.pop("relative_l2")
        case "another":
            scores["relative_l2"] *= 1 + 1e-12
        case "curve":
            record["curve"]["train_loss"].pop()
        case _:
            record["diverged"] = None
    work.result.write_text(json.dumps(record))
    with pytest.raises(
        ValueError, match=r"order2-seed0\.json: damaged.*expected those of checksum"
    ):
        training.execute(work)
    with pytest.raises(ValueError, match=r"order2-seed0\.json.*expected those of checksum"):
        read_study(work.result.parent)
    del record["checksum"]
    work.result.write_text(json.dumps(record))
    assert training.execute(work).metrics == record["metrics"]


# Four steps an epoch: the first to notice are the next step, validation, and again the next step.
@pytest.mark.parametrize(("step", "epochs"), [(1, 0), (4, 0), (6, 1)])
def test_divergence_is_a_result_without_scores(tmp_path, step, epochs):
    work = job(tmp_path, f"spoiled_step={step}")
    run = training.execute(work)
    assert run.diverged == f"training loss or weights not finite in epoch {epochs + 1}"
    assert run.curve["epoch"] == list(range(1, epochs + 1))
    assert run.metrics == {}
    assert Run.parse(read(work.result)) == run


def test_a_run_belongs_to_one_process(tmp_path):
    work = job(tmp_path)
    folder = work.folder
    folder.mkdir(parents=True)
    with (
        FileLock(folder / ".lock"),
        pytest.raises(ValueError, match="order2-seed0: another process trains this run"),
    ):
        training.execute(work)


def test_unknown_experiment():
    with pytest.raises(ValueError, match=r"one of order1d, darcy, .*, got 'burgers'"):
        get("burgers")
    with pytest.raises(ValueError, match="expected 'tiny:POINTS' to be an Experiment, got 32"):
        get("tiny:POINTS")
