"""Studies: the runs of an experiment at a scale, read from result files, and a table of them."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from chonn_lab.experiments import EXPERIMENTS
from chonn_lab.experiments.provenance import SHOWN
from chonn_lab.experiments.records import Run
from chonn_lab.marks import MARK
from chonn_lab.report.comparison import Statistic

# What pages call metrics and experiments.
METRICS, TITLES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text("utf-8")).values()
FAMILIES = ("unet", "fno", "cno", "depth", "stack", "chonn")
# What a model stands for: "paper" as the paper describes it, "ablation" the paper's backbone with
# blocks of another order, "network" ours, "control" a solver or a network without a part, "probe"
# one changed setting. In tables, models of one rank are sorted by order.
ROLES = ("baseline", "paper", "ablation", "network", "control", "probe")
RANKS = {"baseline": 0, "paper": 1, "ablation": 1, "network": 2, "probe": 4}
# What a model is; tables and claims choose and sort by these tags. "order" is that of the blocks,
# "depth" how many are in series, "target" the order of the system that it learns, "history" the
# number of frames that it is given, "recipe" how it is trained.
TAGS: Mapping[str, Any] = {
    "family": "", "role": "", "order": -1, "depth": 0, "target": 0, "history": 0, "recipe": ""
}  # fmt: skip
FACTS = ("variant", "label", "seed", "parameters", "multiply_adds")
NUMBERS = ("seconds", "milliseconds", "peak_memory_mib")
Model = Any  # a row of `summary`, whose cells pandas does not type
NESTED = ("config", "versions", "hardware", "data")


@dataclasses.dataclass(frozen=True)
class Study:
    """All runs of an experiment at one scale.

    `mixed` says in which data or settings the runs differ, and which do; empty if in none.
    """

    experiment: str
    scale: str
    runs: tuple[Run, ...]
    mixed: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What pages call the experiment; a user's own is called as its latest run says."""
        titles = [run.title for run in sorted(self.runs, key=lambda run: run.date) if run.title]
        return title(self.experiment, *titles[-1:])

    @functools.cached_property
    def table(self) -> pd.DataFrame:
        return summary(self.runs)

    def find(self, **tags: Any) -> pd.DataFrame:
        """The models with these tags, or with one of these in a list."""
        found: Any = self.table
        for name, value in tags.items():
            values = value if isinstance(value, list) else [value]
            found = found[found[name].isin(values)] if name in found else found[:0]
        return found

    def splits(self) -> list[str]:
        return list(dict.fromkeys(split for run in self.runs for split in run.metrics))

    def metrics(self, split: str = "test") -> list[str]:
        """Names of the metrics of a split that any run has a number for."""
        scores = [run.metrics.get(split, {}) for run in self.runs]
        names = dict.fromkeys(name for found in scores for name in found)
        return [name for name in names if any(s.get(name) is not None for s in scores)]

    @property
    def scaled_down(self) -> bool:
        """Whether models and training are smaller than those of their publications."""
        scale, _, changes = self.scale.partition("+")
        known = self.experiment in (*TITLES, *EXPERIMENTS)
        return known and (scale != "paper" or "sizes=" in changes)


def title(experiment: str, own: str = "") -> str:
    """What pages call an experiment; `own` is the title that it has itself."""
    return TITLES.get(experiment) or own or experiment.replace("_", " ")


def metric_label(name: str) -> str:
    """What pages call a metric."""
    return METRICS.get(name, name.replace("_", " "))


def summary(runs: Iterable[Run]) -> pd.DataFrame:
    """A row a model, in the order of the tables.

    Its columns are `TAGS` and those of the file, `FACTS`, `runs` with a list of `Run`, and over the
    seeds a `Statistic` of each of `NUMBERS` and of each score, as ``split/metric``. The index is
    the variant.
    """
    frame = pd.DataFrame(
        {
            **TAGS,
            **run.tags,
            **{name: getattr(run, name) for name in (*FACTS, *NUMBERS)},
            **{f"{split}/{n}": x for split, found in run.metrics.items() for n, x in found.items()},
            "runs": run,
        }
        for run in sorted(runs, key=_place)
    )
    models = frame.groupby("variant", sort=False)
    table = models.first()
    for name in frame:
        if name in NUMBERS or "/" in str(name):
            table[name] = models[name].agg(Statistic.of)
    table["runs"] = models["runs"].agg(list)
    return table.assign(label=[_label(row) for _, row in table.iterrows()])


def _place(run: Run) -> tuple[Any, ...]:
    """By target and history, baselines first, then by order and depth."""
    tags = {**TAGS, **run.tags}
    rank = RANKS.get(tags["role"], len(RANKS)), _rank(FAMILIES, tags["family"])
    order = max(tags["order"], 0), tags["depth"]
    return tags["target"], -tags["history"], *rank, *order, run.label, run.variant, run.seed


def _rank(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _label(tags: Model) -> str:
    """What tells a model from the others: labels of files leave out history and target."""
    if tags.history:
        return f"{tags.label}, {tags.history} to 1"
    if not tags.target:
        return tags.label
    blocks = {"stack": f"{tags.order}x{tags.depth}", "depth": f"{tags.depth} first-order blocks"}
    return f"T{tags.target} {blocks.get(tags.family, f'order {tags.order}')}"


# Differences between runs ------------------------------------------------------------------------


def facts(run: Run) -> Iterator[tuple[str, str]]:
    """Settings and data; those that a model changes by design may differ between models."""
    for name, value in run.config.items():
        if name != "seed":
            own = run.changes is None or name in run.changes
            yield f"setting {name}{f' of {run.variant}' if own else ''}", str(value)
    for name, file in run.data.items():
        yield f"data {name}", str(file.get("sha256"))[:SHOWN]


def conflicts(
    runs: Iterable[Run], told: Callable[[Run], Iterable[tuple[str, str]]] = facts
) -> list[str]:
    """Facts in which the results of one table differ, and which results these are."""
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for what, value in told(run):
            values[what][value].append(f"{run.variant} seed {run.seed}")
    differing: dict[tuple[tuple[str, ...], ...], list[str]] = defaultdict(list)
    for what, found in values.items():
        if len(found) > 1:
            sides = sorted(found.items(), key=lambda item: len(item[1]))
            shown = f"{what} ({' / '.join(value for value, _ in sides)})"
            differing[tuple(tuple(names) for _, names in sides)].append(shown)
    return [
        f"{', '.join(what)}: {' differ from '.join(map(_shortened, sides))}"
        for sides, what in differing.items()
    ]


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


# Files -------------------------------------------------------------------------------------------


def read_study(source: Path, mixed: bool = False) -> Study:
    """The runs of ``<results>/<experiment>/<scale>``, or of a file of ``chonn-lab report --keep``.

    A FileNotFoundError if there is no result file; a ValueError for a damaged one, with its name
    and what is wrong; for several results of a model and seed, such as copies; for results of
    different data or settings unless `mixed`, with what differs in which.
    """
    runs = _runs(source)
    if not runs:
        raise FileNotFoundError(f"no result files in {source}")
    return _study(source, runs, mixed)


def _study(source: Path, runs: tuple[Run, ...], mixed: bool) -> Study:
    names = sorted({run.experiment for run in runs})
    if len(names) > 1:
        raise ValueError(f"{source}: expected runs of one experiment, got {names}")
    copies = Counter(f"{run.variant} seed {run.seed}" for run in runs)
    if twice := [name for name, count in copies.items() if count > 1]:
        raise ValueError(f"{source}: expected one result a seed, got several of {', '.join(twice)}")
    differing = conflicts(runs)
    if differing and not mixed:
        raise ValueError(
            f"{source}: expected results of the same data and settings, got "
            f"{'; '.join(differing)} "
            "(run them again, move some away, or mix them with --mixed / mixed=True)"
        )
    scale = source.name if source.is_dir() else runs[0].scale
    return Study(names[0], scale, runs, tuple(differing))


def read_studies(results: Path, mixed: bool = False) -> list[Study]:
    """All studies of a folder of results, in the paper's order, then by scale.

    `results` holds ``<experiment>/<scale>/*.json``, or files of ``chonn-lab report --keep``; JSON
    files of other programs are left out. Errors are those of `read_study`.
    """
    if not results.is_dir():
        raise FileNotFoundError(f"folder of results does not exist: {results}")
    sources = {path.parent for path in results.glob("*/*/*.json")} | {*results.glob("*.json")}
    found = {source: _runs(source) for source in sources}
    studies = [_study(source, runs, mixed) for source, runs in found.items() if runs]
    if not studies:
        raise FileNotFoundError(f"no result files in {results}")
    return sorted(studies, key=lambda study: (_rank(EXPERIMENTS, study.experiment), study.scale))


def _runs(source: Path) -> tuple[Run, ...]:
    """The runs of a file or of all files in a folder; those of other programs have none."""
    paths = sorted(source.glob("*.json")) if source.is_dir() else [source]
    return tuple(run for path in paths for run in _read(path))


def _read(path: Path) -> tuple[Run, ...]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not (isinstance(record, dict) and record.get("generator") == MARK):
            return ()
        if "runs" in record:
            shared = record["shared"]
            return tuple(Run.parse(_merged(shared, run)) for run in record["runs"])
        return (Run.parse(record),)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a result file, or damaged: {error}") from error


def _merged(shared: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    nested = {name: shared.get(name, {}) | run.get(name, {}) for name in NESTED}
    return {**shared, **run, **nested}
