"""Search sizes and learning rates of all families of a steady problem, at the same cost each.

Every family gets the same number of trials, and every trial the same wall-clock seconds of training
on one thread: as many whole epochs as fit, so cheap models train for longer. The first trial has
the settings by hand, the others are random draws from `SPACE`, with learning rates dealt out
evenly. The score is the validation error after the last epoch at `SEEDS`, which no result has: all
trials at the first seed, the best few also at the second, and the lowest mean wins. Test scores are
not read. The same command continues a stopped search.

The settings that win are written to the file that ``chonn-lab run darcy --set sizes=seconds``
reads.

    python -m chonn_lab.studies.search darcy
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from chonn_lab.experiments import FURTHER_STEADY, get, schedule
from chonn_lab.experiments.base import Variant, batches
from chonn_lab.experiments.jobs import Job, settings_texts
from chonn_lab.experiments.records import Run
from chonn_lab.experiments.steady_models import CHOSEN, SEARCHED
from chonn_lab.marks import MARK
from chonn_ops.files import finite, write_json

RATES = (1e-3, 2.5e-3, 5e-3, 1e-2, 2e-2, 5e-2)
BATCHES = (4, 8, 16)
_WIDTHS = (4, 6, 8, 10, 12, 16, 20, 24, 32, 48)
_PADDINGS = (0.0, 0.125, 0.25)
_NETWORK = MappingProxyType(
    {"network_width": (16, 20, 24, 32), "network_depth": (1, 2, 3), "num_networks": (4, 8, 16)}
)
SPACE: Mapping[str, Mapping[str, Sequence[Any]]] = MappingProxyType(
    {
        "unet": {"unet_features": (2, 3, 4, 5, 6, 8, 10, 12, 16)},
        "fno": {"fno_modes": (6, 8, 12, 16), "fno_width": _WIDTHS},
        "cno": {
            "channel_multiplier": (4, 6, 8, 10, 12, 16, 24),
            "cno_layers": (2, 3, 4),
            "n_res": (1, 2),
            "cno_res_neck": (1, 2, 4),
            "latent": (4, 8, 16, 32),
        },
        "fno-neuralop": {
            "width": _WIDTHS,
            "depth": (3, 4, 6),
            "modes": (8, 12, 16, 24, 32),
            "padding": _PADDINGS,
        },
        "uno": {"width": _WIDTHS, "modes": (6, 8, 10, 12, 16), "padding": _PADDINGS},
        "ffno": {
            "width": (8, 12, 16, 20, 24, 32, 48),
            "depth": (2, 4, 6, 8),
            "modes": (8, 12, 16, 24),
            "padding": _PADDINGS,
            "shared_weights": (False, True),
        },
        "transolver": {
            "width": (16, 24, 32, 48),
            "depth": (1, 2, 3, 4, 6),
            "heads": (2, 4, 8),
            "slices": (8, 16, 32, 64),
        },
        "galerkin": {
            "width": (8, 12, 16, 20, 24, 32, 48),
            "depth": (1, 2, 3, 4, 6),
            "heads": (1, 2, 4),
            "modes": (4, 6, 8, 12),
            "coarsening": (1, 2, 4),
        },
        "mgno": {"width": _WIDTHS, "depth": (2, 3, 4, 5), "levels": (4, 5, 6)},
        "network": _NETWORK,
        "network-no-cell": _NETWORK,
        "network-constant": _NETWORK,
        "solve-cnn": {"width": (8, 12, 16, 20, 32, 48), "depth": (2, 3, 4, 6)},
    }
)
SEEDS = (100, 101)
LEAST_EPOCHS = 5
# So many are timed to know how long an epoch takes.
STEPS = 5
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
        "darcy", "poisson" or a further one.
    scale : str
        Scale of the data and of the settings by hand.
    seconds : float
        Training time of every trial.
    trials, finalists : int
        Trials of every family, at the first and also at the second of `SEEDS`.
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
    scale: str = "small"
    seconds: float = 120.0
    trials: int = 12
    finalists: int = 3
    families: tuple[str, ...] = tuple(SPACE)
    output: Path = Path("runs/search")
    data: Path = Path("data")

    def __post_init__(self) -> None:
        unknown = [name for name in self.families if name not in SPACE]
        if unknown or not self.families:
            raise ValueError(f"families: expected some of {tuple(SPACE)}, got {self.families}")
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds: expected above 0, got {self.seconds}")
        if not 1 <= self.finalists <= self.trials:
            raise ValueError(f"finalists: expected 1 to trials={self.trials}, got {self.finalists}")

    @property
    def record(self) -> Path:
        """Where the trials and what was chosen are written."""
        return self.output / f"{self.experiment}-{self.scale}-{SEARCHED}.json"

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
                "budget": SEARCHED,
                **{
                    name: value
                    for name, value in dataclasses.asdict(self).items()
                    if name not in ("output", "data")
                },
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
        text = f"{self.experiment} {self.scale} {SEARCHED} {family}"
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
            f"{family}: expected {self.trials} settings that train for {LEAST_EPOCHS} epochs in "
            f"{self.seconds:g} seconds, found {len(found)}"
        )

    def _candidates(self, family: str, rng: np.random.Generator) -> Iterator[Settings]:
        """The settings by hand, then draws, of models that can be built."""
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
        """Whether a model can be built and called."""
        config, variant = self._config(family, settings), self._variant(family)
        if config.batch_size > config.n_train:
            return False
        try:
            # On the meta device: shapes alone, since most draws do not fit.
            model = variant.build(config).to("meta")
            with torch.no_grad():
                model(*(field.to("meta") for field in get(self.experiment).example(config)))
        except ValueError:
            return False
        return True

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


def seconds_of_an_epoch(experiment: Any, variant: Variant[Any], config: Any, folder: Path) -> float:
    """Seconds of training and validation, from the median of a few steps and a validation batch."""
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
    return count * _median(step) + checks * _median(validate)


def _median(call: Callable[[], None]) -> float:
    call()  # what is only done once
    found = []
    for _ in range(STEPS):
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


OPTIONS = {field.name: field.default for field in dataclasses.fields(Search)}
STEADY = ("darcy", "poisson", *FURTHER_STEADY)


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)  # as the workers have
    given = {name: getattr(args, name) for name in OPTIONS if hasattr(args, name)}
    search = Search(**{**given, "families": tuple(args.families)})
    hours = (args.trials + args.finalists) * args.seconds * len(args.families) / 3600
    print(f"about {hours / args.jobs:.1f} hours on {args.jobs} cores")
    record = search.run(args.jobs)
    choose(record, args.chosen)
    for name, family in record["families"].items():
        print(f"{name}: {family['chosen']} ({family['seconds']:.0f} s)")
    print(f"wrote {search.record} and {args.chosen}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("experiment", choices=STEADY)
    parser.add_argument("--scale", choices=("smoke", "small", "paper"), default="small")
    parser.add_argument("--seconds", type=float, default=OPTIONS["seconds"], help="of a training")
    parser.add_argument("--trials", type=int, default=OPTIONS["trials"], help="of each family")
    parser.add_argument(
        "--finalists", type=int, default=OPTIONS["finalists"], help="of them at two seeds"
    )
    parser.add_argument("--families", nargs="+", choices=SPACE, default=list(SPACE))
    parser.add_argument("--output", type=Path, default=OPTIONS["output"], help="results of trials")
    parser.add_argument("--data", type=Path, default=OPTIONS["data"], help="data files")
    parser.add_argument("--chosen", type=Path, default=CHOSEN, help="where the choice is written")
    parser.add_argument(
        "--jobs", type=int, default=schedule.default_workers("cpu"), help="processes"
    )
    return parser.parse_args()


def choose(record: Mapping[str, Any], path: Path) -> None:
    """Put what a search chose into the file that studies read, beside what is there."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    search = record["search"]
    entries = found.setdefault(search["experiment"], {}).setdefault(search["budget"], [])
    models = {name: family["chosen"] for name, family in record["families"].items()}
    budget = {name: search[name] for name in ("trials", "seconds")}
    made = {"models": models, "budgets": dict.fromkeys(models, budget)}
    for entry in entries:
        if entry["data"] == record["data"]:
            for part, families in made.items():
                entry[part].update(families)
            break
    else:
        entries.append({"data": record["data"], **made})
    write_json(path, finite(found))


if __name__ == "__main__":
    main()
