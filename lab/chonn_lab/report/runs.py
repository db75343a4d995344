"""Studies: the runs of an experiment at a scale, read from result files or kept in one, and tables
of them."""

import dataclasses
import functools
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from chonn_lab.experiments import EXPERIMENTS
from chonn_lab.experiments.provenance import SHOWN
from chonn_lab.experiments.records import MARK, Run
from chonn_lab.paths import RUNS
from chonn_lab.report.comparison import Statistic
from chonn_ops.files import finite, write_whole

# What pages call metrics and experiments.
METRICS, TITLES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text("utf-8")).values()
# What a model stands for: "paper" as the paper describes it, "ablation" the paper's backbone with
# blocks of another order, "network" ours, "control" a solver or a network without a part, "probe"
# one changed setting.
ROLES = ("baseline", "paper", "ablation", "network", "control", "probe")
# What a model is; tables and claims choose by these tags. "order" is that of the blocks, "depth"
# how many are in series, "target" the order of the system that it learns, "history" the number of
# frames that it is given, "recipe" how it is trained.
TAGS: Mapping[str, Any] = {
    "family": "", "role": "", "order": -1, "depth": 0, "target": 0, "history": 0, "recipe": ""
}  # fmt: skip
NUMBERS = ("seconds", "milliseconds")
Model = Any  # a row of `Study.table`, whose cells pandas does not type
# Parts of a kept run that it may share with others entry by entry.
NESTED = ("config", "versions", "hardware", "data")
# Digits of kept numbers, and epochs that a kept curve has.
DIGITS, CURVE_POINTS = 6, 30


@dataclasses.dataclass(frozen=True)
class Study:
    """All runs of an experiment at one scale."""

    experiment: str
    scale: str
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.experiment}-{self.scale}"

    @property
    def title(self) -> str:
        """What pages call the experiment; a user's own is called as its latest run says."""
        titles = [run.title for run in sorted(self.runs, key=lambda run: run.date) if run.title]
        return title(self.experiment, *titles[-1:])

    @functools.cached_property
    def table(self) -> pd.DataFrame:
        """A row a model, by its variant.

        Its columns are `TAGS` and those of the file, "label", "parameters", "runs" with a list of
        `Run`, and over the seeds a `Statistic` of each of `NUMBERS` and of each score, as
        ``split/metric``.
        """
        frame = pd.DataFrame(
            {
                **TAGS,
                **run.tags,
                **{name: getattr(run, name) for name in ("variant", "label", "parameters")},
                **{name: getattr(run, name) for name in NUMBERS},
                **{f"{split}/{n}": x for split, at in run.metrics.items() for n, x in at.items()},
                "runs": run,
            }
            for run in sorted(self.runs, key=lambda run: (run.variant, run.seed))
        )
        models = frame.groupby("variant", sort=False)
        table = models.first()
        for name in frame:
            if name in NUMBERS:
                table[name] = models[name].agg(Statistic.of)
            elif "/" in str(name):
                split, metric = str(name).split("/")
                # A run that was not evaluated so has not diverged.
                asked = [
                    run.diverged is not None or metric in run.metrics.get(split, {})
                    for run in frame.runs
                ]
                statistics = frame[asked].groupby("variant", sort=False)[name].agg(Statistic.of)
                table[name] = [statistics.get(variant, Statistic(())) for variant in table.index]
        # Labels of files leave out the history.
        histories = [f", {frames} to 1" if frames else "" for frames in table.history]
        return table.assign(runs=models["runs"].agg(list), label=table.label + histories)

    def splits(self) -> list[str]:
        return list(dict.fromkeys(split for run in self.runs for split in run.metrics))

    def metrics(self, split: str = "test") -> list[str]:
        """Names of the metrics of a split that any run has a number for."""
        scores = [score for run in self.runs for score in run.metrics.get(split, {}).items()]
        return list(dict.fromkeys(name for name, value in scores if value is not None))

    @functools.cached_property
    def facts(self) -> pd.DataFrame:
        """What the runs say of themselves, as texts: a row a run, a column a fact."""
        told = [
            {"commit": run.state, "date": run.date[:10]}
            | {f"data {name}": str(file.get("sha256"))[:SHOWN] for name, file in run.data.items()}
            | {f"setting {name}": str(x) for name, x in run.config.items() if name != "seed"}
            | {f"hardware {name}": str(x) for name, x in run.hardware.items()}
            | {f"version {name}": x for name, x in run.versions.items()}
            for run in self.runs
        ]
        return pd.DataFrame(told, [f"{run.variant} seed {run.seed}" for run in self.runs])

    @property
    def differences(self) -> list[str]:
        """Data and settings in which runs of one table differ, with the runs of each value in the
        order of the values; empty if in none.

        Settings that models change by design may differ between models.
        """
        of_models = {
            n for run in self.runs for n in (run.config if run.changes is None else run.changes)
        }
        variants = [run.variant for run in self.runs]
        facts: dict[str, list[str]] = defaultdict(list)
        told = self.facts.filter(regex="^(data|setting) ")
        files = told.filter(regex="^data ").columns
        for name, values in told.fillna(dict.fromkeys(files, "none")).items():
            models = (
                variants if name.removeprefix("setting ") in of_models else [""] * len(variants)
            )
            for model, of_model in values.groupby(models):
                sides = of_model.groupby(of_model, sort=False).apply(_shortened)
                if len(sides) > 1:
                    where = f"{name} of {model}" if model else name
                    facts["; ".join(sides)].append(f"{where} ({'; '.join(sides.index)})")
        return [f"{', '.join(names)}: {sides}" for sides, names in facts.items()]


def title(experiment: str, default: str = "") -> str:
    """What pages call an experiment; `default` is the title that it has itself."""
    return TITLES.get(experiment) or default or experiment.replace("_", " ")


def metric_label(name: str) -> str:
    """What pages call a metric."""
    return METRICS.get(name, name.replace("_", " "))


def _shortened(values: pd.Series) -> str:
    more = f" and {len(values) - 3} more" if len(values) > 3 else ""
    return ", ".join(values.index[:3]) + more


# Files -------------------------------------------------------------------------------------------


def read_studies(source: Path) -> list[Study]:
    """All studies of a folder, in the paper's order, then by scale.

    `source` holds ``<experiment>/<scale>/*.json`` or is such a folder of a scale, or has files of
    `keep`, or is one. JSON files of other programs are left out. A FileNotFoundError if there is no
    result file; a ValueError for a damaged one, with its name and what is wrong, and for several
    results of a model and seed, such as copies.
    """
    if not source.exists():
        raise FileNotFoundError(f"folder of results does not exist: {source}")
    paths = [*source.glob("*.json"), *source.glob("*/*/*.json")] if source.is_dir() else [source]
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in (run for path in sorted(paths) for run in _read(path)):
        groups[run.experiment, run.scale].append(run)
    if not groups:
        raise FileNotFoundError(f"no result files in {source}")
    studies = [Study(*key, tuple(runs)) for key, runs in groups.items()]
    for study in studies:
        if twice := [*study.facts.index[study.facts.index.duplicated()]]:
            raise ValueError(
                f"{source}, {study.name}: expected one result a seed, got several of "
                f"{', '.join(twice)}"
            )
    order = {name: place for place, name in enumerate(EXPERIMENTS)}
    return sorted(studies, key=lambda x: (order.get(x.experiment, len(order)), x.scale))


def _read(path: Path) -> list[Run]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not (isinstance(record, dict) and record.get("generator") == MARK):
            return []
        shared = record.get("shared", {})
        return [
            Run.parse(shared | run | {n: shared.get(n, {}) | run.get(n, {}) for n in NESTED})
            for run in record.get("runs", [record])
        ]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a result file, or damaged: {error}") from error


def keep(source: Path, output: Path = RUNS) -> list[Path]:
    """Merge the runs of each study into ``<output>/<experiment>-<scale>.json``, for `read_studies`,
    whose argument `source` is.

    What all runs share is written once, numbers keep six digits and training curves at most thirty
    epochs. Runs of an earlier file stay if their model was not run again, whatever their data and
    settings; the pages say where these differ.
    """
    paths = []
    for study in read_studies(source):
        path = output / f"{study.name}.json"
        earlier = read_studies(path)[0].runs if path.exists() else ()
        stay = [run for run in earlier if run.variant not in study.table.index]
        records = [
            dataclasses.asdict(run)
            | {"curve": {name: _thinned(values) for name, values in run.curve.items()}}
            for run in sorted([*stay, *study.runs], key=lambda run: (run.variant, run.seed))
        ]
        shared = {n: x for n, x in records[0].items() if all(other[n] == x for other in records)}
        lines = ",\n".join(
            _text({n: x for n, x in record.items() if n not in shared}) for record in records
        )
        text = f'{{"generator": "{MARK}",\n"shared": {_text(shared)},\n"runs": [\n{lines}\n]}}\n'
        write_whole(path, text)
        paths.append(path)
    return paths


def _thinned(values: Any) -> list[Any]:
    """Evenly spread points, the first and the last among them."""
    places = np.linspace(0, len(values) - 1, min(len(values), CURVE_POINTS))
    return [values[round(place)] for place in places]


def _text(record: Any) -> str:
    """As JSON, with numbers of `DIGITS` digits."""
    whole = json.dumps(finite(record))
    rounded = json.loads(whole, parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))
    return json.dumps(rounded, ensure_ascii=False)
