"""The search of equal cost: what it draws, what it chooses, and that studies read its choice."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("filelock")
pytest.importorskip("h5py")
pytest.importorskip("scipy")

from chonn_lab.experiments import schedule, steady_models
from chonn_lab.pages.results import kept
from chonn_lab.studies import search
from chonn_lab.studies.search import RATES, SPACE, Search, choose

SCRIPT = Path(__file__).parents[2] / "chonn_lab" / "studies" / "search.py"
FAMILIES = ("unet", "solve-cnn")


@pytest.fixture(autouse=True)
def a_slow_clock(monkeypatch):
    """An epoch of a batch of n takes 4 / n seconds, whatever the machine does."""

    def seconds(_experiment, _variant, config, *_):
        return 4 / config.batch_size

    monkeypatch.setattr(search, "seconds_of_an_epoch", seconds)


def small(folder, **changes):
    options = {"scale": "smoke", "seconds": 5.0, "trials": 3, "finalists": 2}
    options |= {"families": FAMILIES, "output": folder / "search", "data": folder / "data"}
    return Search("darcy", **{**options, **changes})


def test_every_family_is_searched_at_equal_cost(tmp_path):
    plan = small(tmp_path, families=tuple(SPACE))
    for name in plan.families:
        drawn = plan.draw(name)
        assert len(drawn) == 3
        # No size is drawn twice.
        rate = ("learning_rate", "epochs")
        sizes = [{k: v for k, v in s.items() if k not in rate} for s in drawn]
        assert all(size not in sizes[:place] for place, size in enumerate(sizes))
        for settings in drawn:
            assert settings["epochs"] == int(5.0 / (4 / settings["batch_size"]))
            assert set(settings) == {*SPACE[name], "batch_size", "learning_rate", "epochs"}
        # The settings by hand come first.
        config = dataclasses.replace(plan._base(), **plan._variant(name).changes)
        for field in ("learning_rate", "batch_size", *SPACE[name]):
            assert drawn[0][field] == getattr(config, field)


def test_rates_are_dealt_out_evenly_and_the_same_each_time(tmp_path):
    drawn = small(tmp_path, trials=2 * len(RATES)).draw("unet")
    rates = [settings["learning_rate"] for settings in drawn]
    assert sorted(rates[len(RATES) :]) == sorted(RATES)
    assert len(set(rates[1 : len(RATES)])) == len(RATES) - 1
    assert small(tmp_path, trials=3).draw("unet") == drawn[:3]


def test_the_search_chooses_by_validation_alone_and_goes_on(tmp_path, monkeypatch):
    record = small(tmp_path).run(workers=1)
    path = tmp_path / "search" / "darcy-smoke-seconds.json"
    assert json.loads(path.read_text())["families"].keys() == set(FAMILIES)
    for name, family in record["families"].items():
        runs = [len(trial["runs"]) for trial in family["trials"]]
        assert sorted(runs) == [1, 2, 2], name
        firsts = [trial["runs"][0]["error"] for trial in family["trials"]]
        assert [n == 2 for n in runs] == [error <= sorted(firsts)[1] for error in firsts]
        means = {
            sum(run["error"] for run in trial["runs"]) / 2: trial["settings"]
            for trial in family["trials"]
            if len(trial["runs"]) == 2
        }
        assert family["chosen"] == means[min(means)]
        for trial in family["trials"]:
            assert [run["seed"] for run in trial["runs"]] == [100, 101][: len(trial["runs"])]
            files = [
                json.loads(file.read_text())
                for file in (tmp_path / "search" / "darcy").glob(f"*/{name}-seed100.json")
            ]
            errors = [file["curve"]["validation_error"][-1] for file in files]
            assert trial["runs"][0]["error"] in errors

    # The same search reads what is there, with the epochs that it measured.
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "search").rglob("*-seed1*.json")}
    assert len(times) == 2 * (3 + 2)
    monkeypatch.setattr(search, "seconds_of_an_epoch", None)
    again = small(tmp_path).run(workers=1)
    assert again == record
    assert all(file.stat().st_mtime_ns == time for file, time in times.items())

    # A study reads the choice.
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps({"darcy": {"seconds": []}, "poisson": {}}))
    choose(record, chosen)
    monkeypatch.setattr(steady_models, "CHOSEN", chosen)
    jobs = schedule.plan(
        "darcy", "smoke", output=tmp_path, data=tmp_path, assignments=["sizes=seconds"]
    )
    *searched, own = jobs
    assert [job.variant_name for job in searched] == list(FAMILIES)
    assert own.variant_name == "own-scheme"
    for job in searched:
        assert job.folder.parent.name == "smoke+sizes=seconds"
        for field, value in record["families"][job.variant_name]["chosen"].items():
            assert getattr(job.config, field) == value
    # Other data have no choice.
    with pytest.raises(ValueError, match=r"sizes: expected a search for darcy"):
        schedule.plan(
            "darcy",
            "smoke",
            output=tmp_path,
            data=tmp_path,
            assignments=["sizes=seconds", "n_train=9"],
        )


def test_a_new_choice_leaves_the_others(tmp_path):
    path = tmp_path / "chosen.json"

    def record(budget, n_train, **chosen):
        families = {name: {"chosen": {"epochs": epochs}} for name, epochs in chosen.items()}
        return {
            "search": {
                "experiment": "darcy",
                "budget": budget,
                "trials": sum(chosen.values()),
                "seconds": 60.0,
            },
            "data": {"n_train": n_train, "resolution": 64},
            "families": families,
        }

    choose(record("seconds", 8, unet=1, fno=2), path)
    choose(record("seconds", 9, unet=3), path)
    choose(record("parameters", 8, unet=4), path)
    choose(record("seconds", 8, unet=5), path)
    found = json.loads(path.read_text())["darcy"]
    assert [entry["models"] for entry in found["seconds"]] == [
        {"unet": {"epochs": 5}, "fno": {"epochs": 2}},
        {"unet": {"epochs": 3}},
    ]
    assert [entry["models"] for entry in found["parameters"]] == [{"unet": {"epochs": 4}}]
    assert found["seconds"][0]["budgets"] == {
        "unet": {"trials": 5, "seconds": 60.0},
        "fno": {"trials": 3, "seconds": 60.0},
    }


def test_a_diverged_trial_is_the_worst(run):
    assert search._score(dataclasses.replace(run, diverged="in epoch 2"), 100)["error"] == math.inf
    last = run.curve["validation_error"][-1]
    assert search._score(dataclasses.replace(run, diverged=None), 100)["error"] == last


@pytest.fixture
def run():
    """Any run that is kept with the code."""
    (study, *_) = kept()
    return study.runs[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"families": ("unet", "mine")}, "families: expected some of"),
        ({"seconds": 0.0}, "seconds: expected above 0, got 0.0"),
        ({"finalists": 4}, "finalists: expected 1 to trials=3, got 4"),
    ],
)
def test_bad_searches(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        small(tmp_path, **changes)


def test_too_little_time(tmp_path):
    message = r"unet: expected 3 settings that train for 5 epochs in 0.1 seconds, found 0"
    with pytest.raises(ValueError, match=message):
        small(tmp_path, seconds=0.1).draw("unet")


def test_the_command(tmp_path):
    command = [sys.executable, str(SCRIPT), "darcy", "--scale", "smoke", "--families", "unet"]
    command += ["--trials", "1", "--finalists", "1", "--seconds", "1", "--jobs", "1"]
    run = subprocess.run(
        [*command, "--chosen", "chosen.json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    chosen = json.loads((tmp_path / "chosen.json").read_text())
    ((entry,),) = [chosen["darcy"]["seconds"]]
    assert entry["models"]["unet"]["epochs"] >= 5
    assert str(entry["models"]["unet"]["epochs"]) in run.stdout
