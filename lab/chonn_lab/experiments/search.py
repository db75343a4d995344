"""Choose the settings of a model on a problem, by Optuna on validation data."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import FrozenTrial, TrialState
from torch.utils.data import TensorDataset

from chonn_lab.experiments.configuration import build_problem, flat, resolved
from chonn_lab.experiments.provenance import code
from chonn_lab.experiments.runner import (
    Diverged,
    Training,
    origin_of,
    seeded_model,
    select_device,
    use_threads,
)
from chonn_ops.checks import check_integer, check_number
from chonn_ops.files import write_whole

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
    use_threads(config.threads)
    made = _Search(config)
    made.try_all()
    while again := made.unrepeated():
        # Another process may have ended a trial meanwhile, or repeated one.
        made.repeat(*again[0])
    return made.write()


class _Search:
    """The data of a search, and its study."""

    def __init__(self, config: DictConfig) -> None:
        self.config, self.space = config, dict(config.search)
        self.device = select_device(config.device)
        found = resolved(config)
        self.problem = build_problem(found)
        folder = Path(config.data) / self.problem.name
        self.problem.prepare(folder)
        self.data = self.problem.load(folder)
        self.made = origin_of(self.problem, folder, self.data)
        # Without Hydra, in a test, the name of the model.
        known = HydraConfig.initialized()
        model = HydraConfig.get().runtime.choices["model"] if known else config.model.name
        self.name = f"{self.problem.name}_{model}_{config.scale.name}"
        self.folder = Path(config.output) / "search"
        self.folder.mkdir(parents=True, exist_ok=True)
        journal = self.folder / f"{self.name}.log"
        try:
            storage = JournalStorage(JournalFileBackend(str(journal)))
            self.study = optuna.create_study(
                study_name=self.name, storage=storage, load_if_exists=True
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{journal}: damaged, or no journal of a search ({error!r}); move it away to "
                "search afresh"
            ) from error
        self._claim(found)

    def _claim(self, found: Mapping[str, Any]) -> None:
        """Write what all trials have in common into the study; a ValueError if it has other."""
        chosen = {"epochs", *(name.rpartition(".")[2] for name in self.space)}
        fixed = flat({**found, "problem": {}})
        common = {
            **{name: value for name, value in fixed.items() if name not in chosen},
            "search": OmegaConf.to_container(self.config.search),
            "problem": found["problem"],
            "seed": found["seed"],
            "seconds": self.config.seconds,
            "data": {name: file.get("sha256") for name, file in self.made.data.items()},
        }
        for name, value in common.items():
            there = self.study.user_attrs.get(name, value)
            if there != value:
                raise ValueError(
                    f"{self.name}: expected trials of {name} {value}, got {there}; move the "
                    "journal away to search afresh, or choose another output folder"
                )
            self.study.set_user_attr(name, value)

    def try_all(self) -> None:
        """Trials until as many as are wanted are complete."""
        wanted = self.config.trials
        while (missing := wanted - len(self.complete())) > 0:
            most = MaxTrialsCallback(wanted, states=(TrialState.COMPLETE,))
            self.study.optimize(self.error, callbacks=[most], n_trials=missing)
            last = self.study.get_trials(deepcopy=False)[-wanted:]
            if len(last) == wanted and all(t.state == TrialState.PRUNED for t in last):
                reason = last[-1].user_attrs.get("refused")
                raise ValueError(
                    f"{self.name}: {len(last)} trials in a row were refused, the last: {reason}"
                )

    def complete(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

    def best(self) -> list[FrozenTrial]:
        """The best trials that did not diverge; a ValueError if all have."""
        found = [(t.value, t.number, t) for t in self.complete() if math.isfinite(t.value or 0.0)]
        if not found:
            raise ValueError(f"{self.name}: expected a trial that does not diverge, got none")
        return [trial for *_, trial in sorted(found)[:BEST]]

    def again(self, trial: FrozenTrial) -> dict[str, int]:
        """The further seeds of a trial's settings, by the names of their results in the study."""
        seeds = range(self.config.seed + 1, self.config.seed + 1 + AGAIN)
        return {f"trial {trial.number} seed {seed}": seed for seed in seeds}

    def unrepeated(self) -> list[tuple[FrozenTrial, str, int]]:
        """What is left to repeat of the best trials: a trial, the name of its result, a seed."""
        kept = self.study.user_attrs
        return [(t, n, s) for t in self.best() for n, s in self.again(t).items() if n not in kept]

    def repeat(self, trial: FrozenTrial, name: str, seed: int) -> None:
        """Train the settings of a trial from another seed."""
        found = self.changed(trial.params)
        found["seed"], found["train"]["epochs"] = seed, trial.user_attrs["epochs"]
        self.study.set_user_attr(name, self.train(found))

    def changed(self, changes: Mapping[Any, Any]) -> dict[str, Any]:
        """The resolved configuration with other settings."""
        changed = self.config.copy()
        with open_dict(changed):
            for name, value in changes.items():
                OmegaConf.update(changed, name, value)
        return resolved(changed)

    def error(self, trial: optuna.Trial) -> float:
        """Validation error after the seconds of training; infinite if it diverges, `TrialPruned`
        for settings that the model or the training refuses."""
        settings = {
            # A rate is any between two.
            name: trial.suggest_float(name, *values, log=True)
            if name == "train.learning_rate"
            else trial.suggest_categorical(name, list(values))
            for name, values in self.space.items()
        }
        found = self.changed(settings)
        try:
            # The second of two short epochs tells what a whole one takes; the first one warms up.
            found["train"]["epochs"] = 2
            timed = self.training(found)
            size = max(len(self.data.train) // SHARE, timed.batch_size)
            share = size / len(self.data.train)
            some = TensorDataset(*self.data.train[:size])
            validation = self.data.validation
            few = TensorDataset(*validation[: math.ceil(len(validation) * share)])
            timed.epoch(some, few)
            warm = timed.seconds
            timed.epoch(some, few)
            took = (timed.seconds - warm) / share
            found["train"]["epochs"] = max(1, round(self.config.seconds / took))
            trained = self.train(found)
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

    def training(self, found: dict[str, Any]) -> Training:
        model = seeded_model(found, self.problem).to(self.device)
        return Training(found, self.problem, model, self.made)

    def train(self, found: dict[str, Any]) -> dict[str, float]:
        """Validation error and seconds of a training; the error is infinite if it diverges."""
        training = self.training(found)
        try:
            training.fit(self.data)
        except Diverged as error:
            log.info("%s", error)
            return {"error": math.inf, "seconds": training.seconds}
        return {"error": training.history["validation_error"][-1], "seconds": training.seconds}

    def write(self) -> Path:
        """The settings that won as YAML for the group ``searched``, with as many epochs as took the
        seconds when they were trained."""
        kept, found = self.study.user_attrs, []
        for trial in self.best():
            first = {"error": trial.value, "seconds": trial.user_attrs["seconds"]}
            runs = [first, *(kept[name] for name in self.again(trial))]
            means = (sum(run[name] for run in runs) / len(runs) for name in first)
            found.append((*means, trial))
        error, seconds, best = min(found, key=lambda entry: entry[0])
        if not math.isfinite(error):
            raise ValueError(
                f"{self.name}: expected one of the best {len(found)} trials to train from "
                f"{1 + AGAIN} seeds, got none"
            )
        epochs = max(1, round(best.user_attrs["epochs"] * self.config.seconds / seconds))
        content = OmegaConf.create({"train": {"epochs": epochs}})
        for name, value in best.params.items():
            OmegaConf.update(content, name, value)
        path = self.folder / "searched" / f"{self.name}.yaml"
        text = (
            "# @package _global_\n"
            f"# The best of {len(self.complete())} trials of {self.config.seconds:g} s, the first "
            f"{len(found)} of them at "
            f"{1 + AGAIN} seeds from {self.config.seed} on,\n"
            f"# commit {best.user_attrs.get('commit')}: mean validation error {error:.4g}.\n"
        )
        write_whole(path, text + OmegaConf.to_yaml(content))
        return path
