"""Choose the settings of a model on a problem, by Optuna on validation data."""

import hashlib
import json
import math
import statistics
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

from chonn_lab.experiments.configuration import flat, resolved
from chonn_lab.experiments.provenance import code
from chonn_lab.experiments.runner import Diverged, Training, begin, origin_of, seeded_model
from chonn_ops.checks import check_above, check_integer
from chonn_ops.files import write_whole

# The settings of so many of the best trials train again from so many further seeds, and the lowest
# mean wins: the best of many single trainings is often at a rate where every second one fails.
BEST, AGAIN = 3, 2


def search(config: DictConfig) -> Path:
    """Try settings until there are `config.trials`, repeat the best, and write what won.

    `config` is what conf/search.yaml composes. Trials are kept in
    ``<output>/search/<problem>_<model>_<scale>.log``, an Optuna journal with a study for each data
    and settings that are not searched: the same call goes on where a killed one has stopped, and
    processes that call it at the same time share the trials. What won is in
    ``<output>/search/searched/<problem>_<model>_<scale>.yaml``, from which ``chonn-lab run
    --config-dir <output>/search`` takes the settings.

    A ValueError for settings out of range, a model without a space to search, or if no trial trains
    to the end.
    """
    check_integer(1, trials=config.trials)
    check_above(0, seconds=config.train.seconds)
    if not config.get("search"):
        raise ValueError(
            f"model: expected one with a `search:` in its YAML, got {config.model.name}"
        )
    trainer = _Trainer(config)
    # Without Hydra, in a test, the name of the model.
    known = HydraConfig.initialized()
    model = HydraConfig.get().runtime.choices["model"] if known else config.model.name
    name = f"{trainer.problem.name}_{model}_{config.scale.name}"
    folder = Path(config.output) / "search"
    folder.mkdir(parents=True, exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(folder / f"{name}.log")))
    study = optuna.create_study(
        study_name=f"{name} {trainer.common()}", storage=storage, load_if_exists=True
    )
    missing = config.trials - len(study.get_trials(states=(TrialState.COMPLETE,)))
    if missing > 0:
        most = MaxTrialsCallback(config.trials, states=(TrialState.COMPLETE,))
        study.optimize(trainer.error, n_trials=2 * missing, callbacks=[most])
    seeds = range(config.seed + 1, config.seed + 1 + AGAIN)
    while True:
        # Another process may have ended a trial meanwhile, or repeated one.
        trials, kept = _best(study), study.user_attrs
        todo = [(t, seed) for t in trials for seed in seeds if _repeated(t, seed) not in kept]
        if not todo:
            break
        trial, seed = todo[0]
        settings = trainer.changed(trial.params, seed)
        study.set_user_attr(_repeated(trial, seed), trainer.train(settings))
    means = [
        statistics.fmean([*trial.values, *(kept[_repeated(trial, seed)] for seed in seeds)])
        for trial in trials
    ]
    error, best = min(zip(means, trials, strict=True), key=lambda both: both[0])
    if not math.isfinite(error):
        raise ValueError(f"{name}: expected a trial to train from {1 + AGAIN} seeds, got none")
    content = OmegaConf.create({"train": {"seconds": config.train.seconds}})
    for key, value in best.params.items():
        OmegaConf.update(content, key, value)
    count = len(study.get_trials(states=(TrialState.COMPLETE,)))
    path = folder / "searched" / f"{name}.yaml"
    text = (
        "# @package _global_\n"
        f"# The best of {count} trials of {config.train.seconds:g} s, the first {len(means)} of "
        f"them at {1 + AGAIN} seeds from {config.seed} on,\n"
        f"# commit {best.user_attrs.get('commit')}: mean validation error {error:.4g}.\n"
    )
    write_whole(path, text + OmegaConf.to_yaml(content))
    return path


def _best(study: optuna.Study) -> list[FrozenTrial]:
    """The best trials that did not diverge; a ValueError if all have."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    finite = [(t.value, t.number, t) for t in trials if t.value is not None and t.value < math.inf]
    if not finite:
        raise ValueError(f"{study.study_name}: expected a trial that does not diverge, got none")
    return [trial for *_, trial in sorted(finite)[:BEST]]


def _repeated(trial: FrozenTrial, seed: int) -> str:
    """Name of the result of a trial's settings from a further seed, in the study."""
    return f"trial {trial.number} seed {seed}"


class _Trainer:
    """Trains settings on the data of a search."""

    def __init__(self, config: DictConfig) -> None:
        self.config = config
        self.found, self.problem, folder, self.device = begin(config)
        self.problem.prepare(folder)
        self.data = self.problem.load(folder)
        self.origin = origin_of(self.problem, folder)

    def common(self) -> str:
        """Digest of the settings and data that trials have in common."""
        chosen = {str(name).rpartition(".")[2] for name in self.config.search}
        fixed = flat({**self.found, "problem": {}})
        common = (
            {name: value for name, value in fixed.items() if name not in chosen},
            OmegaConf.to_container(self.config.search),
            *(self.found["problem"], self.found["seed"]),
            {name: file.get("sha256") for name, file in self.origin.data.items()},
        )
        return hashlib.sha256(json.dumps(common).encode()).hexdigest()[:12]

    def changed(self, values: Mapping[Any, Any], seed: int) -> dict[str, Any]:
        """The resolved configuration of a trial, with these values of what is searched."""
        changed = self.config.copy()
        with open_dict(changed):
            for name, value in {**values, "seed": seed}.items():
                OmegaConf.update(changed, name, value)
        return resolved(changed)

    def error(self, trial: optuna.Trial) -> float:
        """Validation error after the seconds of training; infinite if it diverges."""
        values = {
            # A rate is any between two.
            name: trial.suggest_float(name, *values, log=True)
            if name == "train.learning_rate"
            else trial.suggest_categorical(name, list(values))
            for name, values in self.config.search.items()
        }
        try:
            error = self.train(self.changed(values, self.config.seed))
        except ValueError as refused:
            # Values that do not fit each other or the data: another trial takes their place.
            raise optuna.TrialPruned(str(refused)) from refused
        for name, value in code().items():
            trial.set_user_attr(name, value)
        return error

    def train(self, settings: dict[str, Any]) -> float:
        """Validation error of a training; infinite if it diverges."""
        model = seeded_model(settings, self.problem).to(self.device)
        training = Training(settings, self.problem, model, self.origin)
        try:
            training.fit(self.data)
        except Diverged:
            return math.inf
        return training.history["validation_error"][-1]
