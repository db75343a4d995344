"""Tables of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from chonn_lab.experiments import FURTHER, provenance
from chonn_lab.report.comparison import Statistic, number
from chonn_lab.report.results import Group, Study

_NAMES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text("utf-8"))
METRICS: Mapping[str, str] = _NAMES["metrics"]
TITLES: Mapping[str, str] = _NAMES["titles"]
# Behind a model's name: see `notes`.
MARK = " †"


class Table(NamedTuple):
    """A table of numbers behind a first column of text."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]


def title(experiment: str) -> str:
    """What pages call an experiment."""
    return TITLES.get(experiment, experiment.replace("_", " "))


def study_title(study: Study) -> str:
    """`title`, or what an experiment of the user's own calls itself."""
    own = study.title if study.experiment not in TITLES else ""
    return own or title(study.experiment)


def metric_label(name: str) -> str:
    """What pages call a metric."""
    return METRICS.get(name, name.replace("_", " "))


def full_label(group: Group) -> str:
    """`model_label` with the target, where there is one."""
    target = f"T{group.tags.target} " if group.tags.target else ""
    return target + model_label(group)


def model_label(group: Group) -> str:
    """What tells a model from the others of a table: labels leave out history and target."""
    tags = group.tags
    if tags.history:
        return f"{group.label}, {tags.history} to 1"
    if not tags.target:
        return group.label
    if tags.family == "stack":
        return f"{tags.order}x{tags.depth}"
    if tags.family == "depth":
        return f"{tags.depth} first-order blocks"
    return f"order {tags.order}"


def scaled_down(study: Study) -> bool:
    """Whether models and training are smaller than those of their publications."""
    scale, _, changes = study.scale.partition("+")
    known = study.experiment in (*TITLES, *FURTHER)
    return known and (scale != "paper" or "sizes=" in changes)


def tables(study: Study) -> list[Table]:
    """Errors of every split, or of every metric by target; then what the models cost."""
    spread = "mean and standard deviation over the seeds"
    groups = sorted((g for g in study.groups if g.tags.target), key=_kind)
    found: list[Table] = []
    for split in [] if groups else study.splits():
        names = {metric_label(name): name for name in study.metrics(split)}
        rows = {
            _marked(group): {label: group.metric(name, split) for label, name in names.items()}
            for group in study.groups
        }
        found.append(_table(f"Errors, {split.replace('_', ' ')} split: {spread}", rows))
    for name in study.metrics() if groups else []:
        rows = {_marked(group): {} for group in groups}
        for group in groups:
            rows[_marked(group)][f"T{group.tags.target}"] = group.metric(name)
        found.append(_table(f"{metric_label(name)}, {spread}", rows))
    top = max((group.tags.target for group in groups), default=0)
    return [*found, _costs([g for g in groups if g.tags.target == top] or study.groups)]


def _table(caption: str, rows: Mapping[str, Mapping[str, Statistic]]) -> Table:
    """A row a model with a value, a column a metric or target."""
    kept = {name: row for name, row in rows.items() if any(v.values for v in row.values())}
    frame = pd.DataFrame.from_dict(kept, orient="index").fillna("-").astype(str).reset_index()
    return Table(caption, ["model", *frame.columns[1:]], frame.to_numpy().tolist())


def _kind(group: Group) -> tuple[Any, ...]:
    """Blocks by order, then first-order blocks by their number, then stacks."""
    family = ("chonn", "depth", "stack").index(group.tags.family)
    return family, group.tags.order, group.tags.depth


def _marked(group: Group) -> str:
    return model_label(group) + (MARK if provenance.flags(group.runs) else "")


def _costs(groups: Iterable[Group]) -> Table:
    rows = []
    for group in groups:
        memory = Statistic.of(run.peak_memory_mib for run in group.runs)
        rows.append(
            [
                _marked(group),
                f"{group.parameters:,}",
                number(group.multiply_adds / 1e6) if group.multiply_adds else "-",
                number(group.seconds.mean),
                number(memory.mean) if memory.values else "-",
                str(len(group.runs)),
            ]
        )
    header = ["model", "parameters", "multiply-adds, M", "training, s", "peak MiB", "seeds"]
    return Table("Parameters, multiply-adds of one sample's forward pass, training", header, rows)


def mixture(study: Study) -> list[str]:
    """In which data or settings the results of a study differ."""
    return [f"Not all runs have the same data and settings: {text}" for text in study.mixed]


def notes(study: Study) -> list[str]:
    """What has to be said of the results in the tables: differences, and what `MARK` means."""
    lines = mixture(study)
    for text, variants in provenance.flags(study.runs).items():
        groups = [group for group in study.groups if group.variant in variants]
        whose = ", ".join(map(full_label, groups))
        lines.append(
            f"{MARK.strip()} {text}: {'all' if len(groups) == len(study.groups) else whose}"
        )
    return lines


def settings(study: Study) -> dict[str, str]:
    """Where, when and with what a study was run; several values where the runs differ."""
    runs = study.runs
    hardware = _distinct(run.hardware for run in runs)
    machine = [_or(hardware, name) for name in ("device", "processor", "machine")]
    count = f"{_or(hardware, 'cores')} cores, {_or(hardware, 'threads')} thread(s) a process"
    versions = _distinct(run.versions for run in runs)
    config = _distinct(run.config for run in runs)
    return {
        "hardware": ", ".join([*(text for text in machine if text != "-"), count]),
        "versions": ", ".join(f"{name} {' / '.join(found)}" for name, found in versions.items()),
        "commit": " / ".join(
            f"{commit} ({count} runs)" if count < len(runs) else commit
            for commit, count in sorted(Counter(run.provenance.state for run in runs).items())
        ),
        "data": "; ".join(sorted({_data(*item) for run in runs for item in run.data.items()}))
        or "not recorded",
        "date": " / ".join(sorted({run.date[:10] for run in runs})),
        "settings": ", ".join(
            f"{name} {' / '.join(found)}" for name, found in config.items() if name != "seed"
        ),
    }


def _data(name: str, file: Mapping[str, Any]) -> str:
    """Where a data file comes from, and its checksum."""
    text = "official" if file.get("official") else "origin unknown"
    if "generator" in file:
        text = f"made by {file['generator']}, version {file.get('generator_version')}"
        text += f", seed {file['seed']}" if "seed" in file else ""
    return f"{name} ({text}, SHA-256 {str(file.get('sha256'))[: provenance.SHOWN]})"


def _distinct(records: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in record.items():
            found.setdefault(name, {})[str(value)] = None
    return {name: list(values) for name, values in found.items()}


def _or(found: Mapping[str, list[str]], name: str) -> str:
    return " / ".join(found.get(name, [])) or "-"
