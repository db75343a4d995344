"""Choose the settings of a model on a problem, by Optuna on validation data."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from omegaconf import DictConfig, OmegaConf, open_dict
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import FrozenTrial, TrialState
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Problem
from chonn_lab.experiments.configuration import build_problem, flat, resolved
from chonn_lab.experiments.provenance import Provenance, code
from chonn_lab.experiments.runner import (
    Diverged,
    Training,
    origin_of,
    seeded_model,
    select_device,
    use_threads,
)
from chonn_ops.checks import check_integer, check_number
from chonn_ops.files import whole_file

log = logging.getLogger(__name__)

# An epoch is timed on one of so many parts of the data.
SHARE = 4
# The settings of so many of the best trials train again from so many further seeds, and the lowest
# mean wins: the best of many single trainings is often at a rate where every second one fails.
BEST, AGAIN = 3, 2


def search(config: DictConfig) -> Path:
    """Try settings until there are `config.trials`, repeat the best, and write what won.

    `config` is what conf/search.yaml composes. Trials are kept in
    ``<output>/search/<problem>_<model>_<scale>.log``, an Optuna journal: the same call goes on
    where a killed one has stopped, and processes that call it at the same time share the trials.
    What won is in ``<output>/search/searched/<problem>_<model>_<scale>.yaml``, from which
    ``chonn-lab run --config-dir <output>/search`` takes the settings.

    A ValueError for settings out of range, a model without a space to search, trials of other
    settings or data, or as many trials in a row as are wanted that were refused.
    """
    check_integer(1, trials=config.trials)
    check_number(seconds=config.seconds)
    if not 0 < config.seconds < math.inf:
        raise ValueError(f"seconds: expected a finite number above 0, got {config.seconds}")
    if not config.get("search"):
        raise ValueError(
            f"model: expected one with a `search:` in its YAML, got {config.model.name}"
        )
    space = OmegaConf.to_container(config.search)
    assert isinstance(space, dict)
    use_threads(config.threads)
    found = resolved(config)
    problem = build_problem(found)
    folder = Path(config.data) / problem.name
    problem.prepare(folder)
    data = problem.load(folder)
    made = origin_of(problem, folder, data)
    output = Path(config.output) / "search"
    (output / "searched").mkdir(parents=True, exist_ok=True)
    name = f"{problem.name}_{_choice('model', config)}_{config.scale.name}"
    journal = output / f"{name}.log"
    try:
        study = optuna.create_study(
            study_name=name,
            storage=JournalStorage(JournalFileBackend(str(journal))),
            load_if_exists=True,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{journal}: damaged, or no journal of a search ({error!r}); move it away to search "
            "afresh"
        ) from error
    _claim(study, found, space, config, made)
    while (missing := config.trials - len(_complete(study))) > 0:
        study.optimize(
            lambda trial: _error(trial, config, space, problem, data, made),
            callbacks=[MaxTrialsCallback(config.trials, states=(TrialState.COMPLETE,))],
            n_trials=missing,
        )
        last = study.get_trials(deepcopy=False)[-config.trials :]
        if len(last) == config.trials and all(t.state == TrialState.PRUNED for t in last):
            reason = last[-1].user_attrs.get("refused")
            raise ValueError(
                f"{name}: {len(last)} trials in a row were refused, the last: {reason}"
            )
    while True:
        # Another process may have ended a trial, or repeated one.
        best, kept = _best(study), study.user_attrs
        again = [
            (trial, key, seed)
            for trial in best
            for key, seed in _again(trial, config).items()
            if key not in kept
        ]
        if not again:
            return _write(study, best, output / "searched" / f"{name}.yaml", config)
        trial, key, seed = again[0]
        found = _found(config, trial.params)
        found["seed"], found["train"]["epochs"] = seed, trial.user_attrs["epochs"]
        study.set_user_attr(key, _train(found, problem, data, made, config.device))


def _complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _best(study: optuna.Study) -> list[FrozenTrial]:
    """The best trials that did not diverge; a ValueError if all have."""
    found = sorted(
        (t for t in _complete(study) if t.value is not None and math.isfinite(t.value)),
        key=lambda trial: trial.value or 0.0,
    )
    if not found:
        raise ValueError(f"{study.study_name}: expected a trial that does not diverge, got none")
    return found[:BEST]


def _again(trial: FrozenTrial, config: DictConfig) -> dict[str, int]:
    """The further seeds of a trial's settings, by the names of their results in the study."""
    seeds = range(config.seed + 1, config.seed + 1 + AGAIN)
    return {f"trial {trial.number} seed {seed}": seed for seed in seeds}


def _choice(group: str, config: DictConfig) -> str:
    """The option of a group of conf/ that was chosen; in a test without Hydra, the name."""
    from hydra.core.hydra_config import HydraConfig

    if HydraConfig.initialized():
        return HydraConfig.get().runtime.choices[group]
    return config[group].name


def _claim(
    study: optuna.Study,
    found: Mapping[str, Any],
    space: Mapping[Any, Any],
    config: DictConfig,
    made: Provenance,
) -> None:
    """Write what all trials have in common into the study; a ValueError if it has other."""
    chosen = {"epochs", *(name.rpartition(".")[2] for name in space)}
    fixed = flat({**found, "problem": {}})
    common = {
        **{name: value for name, value in fixed.items() if name not in chosen},
        "search": space,
        "problem": found["problem"],
        "seed": found["seed"],
        "seconds": config.seconds,
        "data": {name: file.get("sha256") for name, file in made.data.items()},
    }
    for name, value in common.items():
        there = study.user_attrs.get(name, value)
        if there != value:
            raise ValueError(
                f"{study.study_name}: expected trials of {name} {value}, got {there}; move the "
                "journal away to search afresh, or choose another output folder"
            )
        study.set_user_attr(name, value)


def _found(config: DictConfig, changes: Mapping[Any, Any]) -> dict[str, Any]:
    """The resolved configuration with other settings."""
    changed = config.copy()
    with open_dict(changed):
        for name, value in changes.items():
            OmegaConf.update(changed, name, value)
    return resolved(changed)


def _error(
    trial: optuna.Trial,
    config: DictConfig,
    space: Mapping[Any, Any],
    problem: Problem,
    data: Data,
    made: Provenance,
) -> float:
    """Validation error after the seconds of training; infinite if it diverges, `TrialPruned` for
    settings that the model or the training refuses."""
    found = _found(
        config,
        {
            # A rate is any between two.
            name: trial.suggest_float(name, *values, log=True)
            if name == "train.learning_rate"
            else trial.suggest_categorical(name, values)
            for name, values in space.items()
        },
    )
    device = select_device(config.device)
    try:
        # The second of two short epochs tells what a whole one takes; the first one warms up.
        found["train"]["epochs"] = 2
        timed = Training(found, problem, seeded_model(found, problem).to(device), made)
        size = max(len(data.train) // SHARE, timed.batch_size)
        share = size / len(data.train)
        some = TensorDataset(*data.train[:size])
        few = TensorDataset(*data.validation[: math.ceil(len(data.validation) * share)])
        timed.epoch(some, few)
        warm = timed.seconds
        timed.epoch(some, few)
        took = (timed.seconds - warm) / share
        found["train"]["epochs"] = max(1, round(config.seconds / took))
        trained = _train(found, problem, data, made, config.device)
    except Diverged as error:
        log.info("trial %d: %s", trial.number, error)
        return math.inf
    except ValueError as error:
        # Values that do not fit each other or the data: another trial takes its place.
        trial.set_user_attr("refused", str(error))
        raise optuna.TrialPruned(str(error)) from error
    for name, value in {"epochs": found["train"]["epochs"], **trained, **code()}.items():
        trial.set_user_attr(name, value)
    return trained["error"]


def _train(
    found: dict[str, Any], problem: Problem, data: Data, made: Provenance, device: str
) -> dict[str, float]:
    """Validation error and seconds of a training; infinite if it diverges."""
    model = seeded_model(found, problem).to(select_device(device))
    training = Training(found, problem, model, made)
    try:
        training.fit(data)
    except Diverged as error:
        log.info("%s", error)
        return {"error": math.inf, "seconds": training.seconds}
    return {"error": training.history["validation_error"][-1], "seconds": training.seconds}


def _write(
    study: optuna.Study, candidates: list[FrozenTrial], path: Path, config: DictConfig
) -> Path:
    """The settings that won as YAML for the group ``searched``, with as many epochs as took the
    seconds when they were trained."""
    kept, found = study.user_attrs, []
    for trial in candidates:
        first = {"error": trial.value, "seconds": trial.user_attrs["seconds"]}
        runs = [first, *(kept[key] for key in _again(trial, config))]
        means = {name: sum(run[name] for run in runs) / len(runs) for name in first}
        found.append((means["error"], means["seconds"], trial))
    error, seconds, best = min(found, key=lambda entry: entry[0])
    if not math.isfinite(error):
        raise ValueError(
            f"{study.study_name}: expected one of the best {len(found)} trials to train from "
            f"{1 + AGAIN} seeds, got none"
        )
    epochs = max(1, round(best.user_attrs["epochs"] * config.seconds / seconds))
    content = OmegaConf.create({"train": {"epochs": epochs}})
    for name, value in best.params.items():
        OmegaConf.update(content, name, value)
    text = (
        "# @package _global_\n"
        f"# The best of {len(_complete(study))} trials of {config.seconds:g} s, the first "
        f"{len(found)} of them at "
        f"{1 + AGAIN} seeds from {config.seed} on,\n"
        f"# commit {best.user_attrs.get('commit')}: mean validation error {error:.4g}.\n"
    )
    with whole_file(path, force=True) as staged:
        staged.write_text(text + OmegaConf.to_yaml(content), encoding="utf-8")
    return path
