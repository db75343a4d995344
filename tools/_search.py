"""A search of equal cost for the size and the learning rate of every family of a steady problem.

Each family gets the same number of trials, and each trial the same wall-clock seconds of training
on one thread, as many whole epochs as fit: cheap models train for longer. Trials are random draws
from `SPACE`, the first one the settings by hand where these fit, with rates dealt out evenly. They
are scored by the validation error after the last epoch at `SEEDS`, which no result has: all at the
first seed, the best few at the second one, too, and the lowest mean is chosen. Test scores are not
looked at.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _search_space import BATCHES, RATES, SPACE

from chonn_ops._files import MARK, finite, write_json
from chonn_ops.experiments import get, schedule
from chonn_ops.experiments._steady_models import BUDGETS
from chonn_ops.experiments.base import Variant, batches
from chonn_ops.experiments.jobs import Job, settings_texts
from chonn_ops.experiments.records import Run
from chonn_ops.models import cost

SEEDS = (100, 101)
LEAST_EPOCHS = 5
# A baseline has at least so much of a budget of parameters or multiply-adds, or trials would be
# lost on models that are too small; others may have less.
LEAST_PART = 1 / 3
Settings = dict[str, Any]


@dataclasses.dataclass
class Trial:
    """Settings of a family, and the runs that they had."""

    family: str
    settings: Settings
    runs: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def error(self) -> float:
        return statistics.fmean(run["error"] for run in self.runs)


@dataclasses.dataclass(frozen=True)
class Search:
    """What is searched, and at which cost.

    Parameters
    ----------
    experiment : str
        "darcy", "poisson", or a further one of two dimensions.
    budget : {"parameters", "multiply_adds", "seconds"}
        What limits the size of a model, beside the seconds of its training.
    limit : int
        Most parameters, or multiply-adds of a forward pass of one sample; not used for "seconds".
    scale : str
        Of data and of the settings by hand.
    seconds : float
        Of training, of every trial.
    trials, finalists : int
        Of every family, at the first and also at the second of `SEEDS`.
    families : sequence of str
        Out of `SPACE`; all by default.
    output, data : Path
        Folders of the trials' results, and of the data.

    Raises
    ------
    ValueError
        For unknown names and numbers out of range.
    """

    experiment: str
    budget: str = "seconds"
    limit: int = 0
    scale: str = "small"
    seconds: float = 120.0
    trials: int = 12
    finalists: int = 3
    families: tuple[str, ...] = tuple(SPACE)
    output: Path = Path("runs/search")
    data: Path = Path("data")

    def __post_init__(self) -> None:
        if self.budget not in BUDGETS:
            raise ValueError(f"budget: expected one of {BUDGETS}, got {self.budget!r}")
        unknown = [name for name in self.families if name not in SPACE]
        if unknown or not self.families:
            raise ValueError(f"families: expected some of {tuple(SPACE)}, got {self.families}")
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds: expected above 0, got {self.seconds}")
        if not 1 <= self.finalists <= self.trials:
            raise ValueError(f"finalists: expected 1 to trials={self.trials}, got {self.finalists}")
        if self.limit < (0 if self.budget == "seconds" else 1):
            raise ValueError(f"limit: expected at least 1, got {self.limit}")

    @property
    def record(self) -> Path:
        """Where the trials and what was chosen are written."""
        return self.output / f"{self.experiment}-{self.scale}-{self.budget}.json"

    def run(self, workers: int) -> dict[str, Any]:
        """Run what has not run yet; the record. The same search goes on where it was stopped."""
        trials = {
            name: [Trial(name, settings) for settings in self.draw(name)] for name in self.families
        }
        # All families advance together, so that a stopped search has cost them the same.
        turns = zip(*trials.values(), strict=True)
        self._train([trial for turn in turns for trial in turn], SEEDS[0], workers)
        finals = {
            name: sorted(found, key=Trial.error)[: self.finalists] for name, found in trials.items()
        }
        self._train([trial for found in finals.values() for trial in found], SEEDS[1], workers)
        families = {
            name: {
                "chosen": min(finals[name], key=Trial.error).settings,
                "seconds": round(sum(run["seconds"] for trial in found for run in trial.runs), 1),
                "trials": [{"settings": t.settings, "runs": t.runs} for t in found],
            }
            for name, found in trials.items()
        }
        config = self._base()
        record = {
            "generator": MARK,
            "search": {
                name: value
                for name, value in dataclasses.asdict(self).items()
                if name not in ("output", "data")
            },
            "seeds": SEEDS,
            "data": {"n_train": config.n_train, "resolution": config.resolution},
            "families": families,
        }
        write_json(self.record, finite(record))
        return record

    def draw(self, family: str) -> list[Settings]:
        """The trials of a family: fields of the config, each with its epochs.

        They depend on the search alone, but for the epochs, which are measured once and kept.
        """
        text = f"{self.experiment} {self.scale} {self.budget} {family}"
        # More trials go on with the same draws.
        streams = np.random.SeedSequence(zlib.crc32(text.encode())).spawn(2)
        rng, dealer = (np.random.default_rng(stream) for stream in streams)
        rates: list[float] = []
        while len(rates) < self.trials:
            rates += [RATES[i] for i in dealer.permutation(len(RATES))]
        found: list[Settings] = []
        for settings in self._candidates(family, rng):
            if len(found) == self.trials:
                return found
            epochs = self._epochs(family, settings)
            if epochs >= LEAST_EPOCHS:
                settings = {"learning_rate": rates[len(found)], **settings, "epochs": epochs}
                found.append(settings)
        raise ValueError(
            f"{family}: expected {self.trials} settings within the budget of {self.limit} "
            f"{self.budget} that train for {LEAST_EPOCHS} epochs in {self.seconds:g} seconds, "
            f"found {len(found)}"
        )

    def _candidates(self, family: str, rng: np.random.Generator) -> Iterator[Settings]:
        """The settings by hand, then draws, of the sizes that the budget allows."""
        variant = self._variant(family)
        config = dataclasses.replace(self._base(), **variant.changes)
        fields = {**SPACE[family], "batch_size": BATCHES}
        by_hand = {name: getattr(config, name) for name in fields}
        if self._fits(family, by_hand):
            yield {"learning_rate": config.learning_rate, **by_hand}
        seen = [by_hand]
        for _ in range(1000):
            drawn = {name: values[rng.integers(len(values))] for name, values in fields.items()}
            if drawn in seen:
                continue
            seen.append(drawn)
            if self._fits(family, drawn):
                yield drawn

    def _base(self) -> Any:
        return get(self.experiment).scales[self.scale]

    def _variant(self, family: str) -> Variant[Any]:
        return next(v for v in get(self.experiment).variants(self._base()) if v.name == family)

    def _config(self, family: str, settings: Settings) -> Any:
        return dataclasses.replace(self._base(), **{**self._variant(family).changes, **settings})

    def _fits(self, family: str, settings: Settings) -> bool:
        """Whether a model can be built and run, and its size is within the budget."""
        config, variant = self._config(family, settings), self._variant(family)
        if config.batch_size > config.n_train:
            return False
        try:
            # Shapes alone, since most draws do not fit.
            model = variant.build(config).to("meta")
            example = get(self.experiment).example(config)
            size = cost.measure(model, [field.to("meta") for field in example])
        except ValueError:
            return False
        if self.budget == "seconds":
            return True
        used = getattr(size, self.budget)
        least = LEAST_PART * self.limit if variant.tags["role"] == "baseline" else 0
        return least <= used <= self.limit

    def _epochs(self, family: str, settings: Settings) -> int:
        """Whole epochs within the seconds, measured once a size; 0 if there is not one."""
        sizes = {name: value for name, value in settings.items() if name != "learning_rate"}
        path = self.output / f"{self.experiment}-{self.scale}-epochs.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        key = " ".join([family, *settings_texts(sizes)])
        if key not in known:
            variant, config = self._variant(family), self._config(family, sizes)
            known[key] = seconds_of_an_epoch(get(self.experiment), variant, config, self.data)
            write_json(path, known)
        return int(self.seconds / known[key])

    def _train(self, trials: Sequence[Trial], seed: int, workers: int) -> None:
        """One run of each."""
        jobs = [self._job(trial, seed) for trial in trials]
        finished = schedule.run_all(jobs, workers)
        for job, reason in finished.failures.items():
            raise RuntimeError(f"{job.title} of {job.scale}: {reason}")
        runs = {(run.variant, run.scale): run for run in finished.runs}
        for trial, job in zip(trials, jobs, strict=True):
            trial.runs.append(_score(runs[job.variant_name, job.scale], seed))

    def _job(self, trial: Trial, seed: int) -> Job:
        (job,) = schedule.plan(
            self.experiment,
            self.scale,
            output=self.output,
            data=self.data,
            variants=[trial.family],
            assignments=settings_texts({**trial.settings, "seed": seed}),
            accelerator="cpu",
        )
        return job


def seconds_of_an_epoch(
    experiment: Any, variant: Variant[Any], config: Any, folder: Path, steps: int = 5
) -> float:
    """Of training and validation, from the median of a few steps and one batch of validation."""
    place = folder / experiment.name
    if not all(path.exists() for path in experiment.files(config, place)):
        place.mkdir(parents=True, exist_ok=True)
        experiment.prepare(config, place)
    data, cpu = experiment.load(config, place), torch.device("cpu")
    model = variant.build(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    batch = next(batches(data.train, config.batch_size, cpu))

    def step() -> None:
        optimizer.zero_grad()
        experiment.loss(config, model, batch).backward()
        optimizer.step()

    def validate() -> None:
        with torch.no_grad():
            experiment.errors(config, model, batch)

    count = config.n_train // config.batch_size
    checks = -(-config.n_validation // config.batch_size)
    return count * _median(step, steps) + checks * _median(validate, steps)


def _median(call: Callable[[], None], times: int) -> float:
    call()  # what is only done once
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def _score(run: Run, seed: int) -> dict[str, Any]:
    errors = run.curve["validation_error"]
    last = errors[-1] if errors and not run.diverged else None
    return {
        "seed": seed,
        "error": math.inf if last is None else last,
        "seconds": run.seconds,
        "parameters": run.parameters,
        "multiply_adds": run.multiply_adds,
    }
