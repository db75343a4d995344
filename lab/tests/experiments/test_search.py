"""Searches: resumed, shared by processes, and used by a run."""

import re
import signal
import statistics

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from running import TINY, command, places, read

from chonn_lab.experiments.configuration import compose, resolved
from chonn_lab.experiments.search import search

SHORT = ("train.seconds=0.05", "trials=3")


def studies(folder, model="tiny"):
    journal = folder / "runs" / "search" / f"tiny_{model}_smoke.log"
    storage = JournalStorage(JournalFileBackend(str(journal)))
    names = optuna.get_all_study_names(storage)
    return [optuna.load_study(study_name=name, storage=storage) for name in names]


def trials(folder, model="tiny"):
    (study,) = studies(folder, model)
    return study.trials


@pytest.mark.slow
def test_a_search_goes_on_and_a_run_takes_what_it_found(tmp_path):
    """Killed in its first trial, and finished by two processes at once."""
    command(tmp_path, *SHORT, name="search", code=-signal.SIGKILL, TINY_KILL="order2:2")
    assert len(trials(tmp_path)) == 1
    two = ("-m", "+process=0,1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    command(tmp_path, *SHORT, *two, name="search")
    complete = [t for t in trials(tmp_path) if t.state == optuna.trial.TrialState.COMPLETE]
    # A process may be within a trial when the other one ends the last.
    assert len(complete) in (3, 4)
    assert all({"commit", "code"} <= t.user_attrs.keys() for t in complete)
    written = tmp_path / "runs" / "search" / "searched" / "tiny_tiny_smoke.yaml"
    text = written.read_text()
    said = "best of [34] trials of 0.05 s, the first 3 of them at 3 seeds from 1000 on"
    assert re.search(said, text)
    again = studies(tmp_path)[0].user_attrs
    means = {}
    for trial in sorted(complete, key=lambda trial: trial.value)[:3]:
        repeated = [again[f"trial {trial.number} seed {s}"] for s in (1001, 1002)]
        means[trial.number] = statistics.mean([trial.value, *repeated])
    (best,) = (t for t in complete if t.number == min(means, key=means.__getitem__))
    assert f"mean validation error {min(means.values()):.4g}" in text
    command(tmp_path, "hydra.searchpath=[file://runs/search]", "+recipe.unused=0")
    (result,) = tmp_path.glob("runs/tiny/*/order2-seed0.json")
    config = read(result)["config"]
    assert config["learning_rate"] == best.params["train.learning_rate"]
    assert config["width"] == best.params["model.width"]
    assert (config["seconds"], config["epochs"]) == (0.05, None)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trials=0"], "trials: expected an integer of at least 1, got 0"),
        (["train.seconds=0"], "seconds: expected a finite number > 0, got 0"),
        (["threads=0"], "threads: expected an integer of at least 1, got 0"),
        (["model=own_scheme"], "expected one with a `search:` in its YAML, got own-scheme"),
    ],
)
def test_bad_settings(tmp_path, overrides, message):
    with pytest.raises(ValueError, match=message):
        search(compose([*overrides, f"output={tmp_path}", f"data={tmp_path}"], "search"))
    assert list(tmp_path.iterdir()) == []


def test_refused_values_are_no_trials(tmp_path):
    """A batch of 64 exceeds the 32 training samples: another trial takes its place."""
    settings = compose([*TINY, *places(tmp_path), "train.seconds=0.01", "trials=12"], "search")
    settings.search = {"train.batch_size": [8, 64]}
    assert "best of 12 trials" in search(settings).read_text()
    states = [trial.state for trial in trials(tmp_path, "order2")]
    assert states.count(optuna.trial.TrialState.COMPLETE) == 12
    assert states.count(optuna.trial.TrialState.PRUNED) > 0
    settings.search = {"train.batch_size": [64]}
    settings.output = str(tmp_path / "other")
    with pytest.raises(ValueError, match="expected a trial that does not diverge, got none"):
        search(settings)


def test_trials_of_other_settings_do_not_mix(tmp_path):
    """What a search does not choose is in no file that it writes: every value has its study."""
    settings = compose([*TINY, *places(tmp_path), "train.seconds=0.01", "trials=1"], "search")
    settings.search = {"train.batch_size": [8]}
    for dropout, settings.trials in (0.1, 1), (0.25, 1), (0.1, 2):
        settings.model.dropout = dropout
        search(settings)
    assert sorted(len(study.trials) for study in studies(tmp_path, "order2")) == [1, 2]


def test_what_a_search_found_wins_over_the_laboratorys(tmp_path):
    (tmp_path / "searched").mkdir()
    path = tmp_path / "searched" / "poisson_unet_small.yaml"
    path.write_text("# @package _global_\ntrain: {epochs: 7}\nmodel: {features: 5}\n")
    known = ["problem=poisson", "model=unet"]
    found = resolved(compose([*known, f"hydra.searchpath=[file://{tmp_path}]"]))
    assert (found["train"]["epochs"], found["model"]["features"]) == (7, 5)
    assert found["train"]["learning_rate"] == resolved(compose(known))["train"]["learning_rate"]
