"""Models that are trained for equal CPU seconds, with settings from a search of equal cost.

Training is AdamW with a cosine to zero, for seconds of `time.process_time` on one thread. Before,
Optuna tries as many settings for each model (learning rate, width, depth and batch size), for a
part of the seconds and with seeds that no result has. Models take turns, trial by trial and seed by
seed, so a load of the machine hits all alike. Finished runs are kept in the results file, so a
stopped study goes on where it was.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
import torch
from torch import Tensor, nn

from chonn_lab.experiments.provenance import files
from chonn_lab.problems import origin
from chonn_lab.results_file import Record, read_record, run_missing
from chonn_ops.checks import error

SEARCH_SEED = 1000  # of the first trial
RATES, FIRST_RATE = (5e-4, 2e-2), 4e-3
BATCHES = (2, 4, 8)

# Widths and depths to choose from; the first trial has the middle ones.
Sizes = tuple[tuple[int, ...], tuple[int, ...]]


class Study(ABC):
    """Data of a problem, and the runs of its models.

    Each model has its `sizes`, a training `seconds` of CPU time, and a trial a `share` of them.
    """

    def __init__(self, sizes: Mapping[str, Sizes], share: float, seconds: float) -> None:
        self.sizes, self.share, self.seconds = sizes, share, seconds

    @abstractmethod
    def trained(
        self, model: str, settings: dict[str, Any], seed: int, seconds: float
    ) -> tuple[nn.Module, int]:
        """A model after training, and the steps done."""

    @abstractmethod
    def validate(self, made: nn.Module) -> float:
        """The error on validation data."""

    @abstractmethod
    def test(self, made: nn.Module) -> dict[str, Any]:
        """What a result says of a model on test data."""

    @abstractmethod
    def controls(self) -> Any:
        """What solves do that are given what models have to learn."""

    def run(self, record: Record, model: str, kind: str, number: int) -> dict[str, Any]:
        """One trial of the search, or the result of one seed with the best trial's settings."""
        trials = [r for r in record["results"] if (r["model"], r["kind"]) == (model, "trial")]
        if kind == "trial":
            settings = suggest(self.sizes[model], trials, number)
            seconds = self.seconds * self.share
            made, steps = self.trained(model, settings, SEARCH_SEED + number, seconds)
            return {"settings": settings, "steps": steps, "validation": self.validate(made)}
        best = min(trials, key=lambda trial: trial["validation"])["settings"]
        made, steps = self.trained(model, best, number, self.seconds)
        return {"settings": best, "steps": steps, **self.test(made)}


def adamw(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-4)


def train(
    optimizer: torch.optim.Optimizer,
    loss: Callable[[], Tensor],
    seconds: float,
    clip: float = 1.0,
) -> int:
    """Train on the losses of random batches for so much CPU time; the steps done.

    The learning rate falls to zero as a cosine of the time; gradients are clipped to the norm
    `clip`.
    """
    rate = optimizer.param_groups[0]["lr"]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    begin, step = time.process_time(), 0
    while (used := (time.process_time() - begin) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * used)) / 2
        found = loss()
        optimizer.zero_grad()
        found.backward()
        if clip < math.inf:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        step += 1
    return step


def suggest(sizes: Sizes, trials: Sequence[dict[str, Any]], number: int) -> dict[str, Any]:
    """Settings of the next trial after `trials`, which is the `number`-th; they depend on nothing
    else. Trial 0 has medium settings."""
    widths, depths = sizes
    space: dict[str, optuna.distributions.BaseDistribution] = {
        "rate": optuna.distributions.FloatDistribution(*RATES, log=True),
        "width": optuna.distributions.CategoricalDistribution(widths),
        "depth": optuna.distributions.CategoricalDistribution(depths),
        "batch": optuna.distributions.CategoricalDistribution(BATCHES),
    }
    if number == 0:
        medium = FIRST_RATE, widths[1], depths[len(depths) // 2], BATCHES[1]
        return dict(zip(space, medium, strict=True))
    # Of six trials, TPE's own default would make all ten random.
    sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=3)
    study = optuna.create_study(sampler=sampler)
    for trial in trials:
        study.add_trial(
            optuna.trial.create_trial(
                params=trial["settings"], distributions=space, value=trial["validation"]
            )
        )
    return study.ask(space).params


def arguments(
    doc: str | None, problems: Iterable[str], models: Iterable[str], prefix: str = ""
) -> argparse.ArgumentParser:
    """Options of a study; its files are named by `prefix` and the problem."""
    problems, models = tuple(problems), tuple(models)
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--problem", choices=problems, default=problems[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the file")
    parser.add_argument("--output", type=Path, help=f"[runs/{prefix}PROBLEM.json]")
    parser.add_argument("--models", nargs="+", choices=models, default=list(models))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time of each training")
    parser.add_argument("--trials", type=int, default=6, help="of each model")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the samples")
    return parser


def make_data(path: Path, make: Callable[[], Any], **settings: Any) -> None:
    """Make a data file that is missing. ValueError for one that was made with other settings than
    those of the command."""
    if not path.exists():
        make()
    found = origin.read(path).settings or {}
    for name, wanted in settings.items():
        if found.get(name) != wanted:
            made = f"{found.get(name)}, with which {path} was made, or another folder --data"
            raise error(f"--{name}", made, wanted)


def carry_out(
    experiment: str,
    args: argparse.Namespace,
    path: Path,
    packages: Sequence[str],
    make: Callable[[], Study],
) -> None:
    """Do what a results file lacks of a study of the data at `path`: controls, trials, results."""
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    output = args.output or Path("runs") / path.with_suffix(".json").name
    config = {name: getattr(args, name) for name in ("problem", "seconds", "trials")}
    packages = ["chonn-ops", "torch", "optuna", *packages]
    record = read_record(output, experiment, config, packages, 1, files([path]))
    study = make()
    if "controls" not in record:
        record["controls"] = study.controls()
    wanted = [
        (model, kind, number)
        for kind, numbers in (("trial", range(args.trials)), ("result", args.seeds))
        for number in numbers
        for model in args.models
    ]
    names = ("model", "kind", "seed")
    run_missing(output, record, wanted, functools.partial(study.run, record), names)
