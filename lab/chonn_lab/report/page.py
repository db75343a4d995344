"""Pages of results: the section of a study, and the page that ``chonn-lab report`` writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import pandas as pd

from chonn_lab.experiments.provenance import SHOWN
from chonn_lab.experiments.records import Run
from chonn_lab.marks import MARK, refuse_foreign
from chonn_lab.report import claims, style
from chonn_lab.report.comparison import Statistic, number, sign
from chonn_lab.report.document import TEMPLATES, table_of
from chonn_lab.report.runs import Model, Study, conflicts, metric_label, read_studies
from chonn_ops.files import write_whole


def write_report(results: Path, output: Path, mixed: bool = False) -> Path:
    """Write ``<output>/results.md`` with tables, a figure and the claims of every study.

    `results` and `mixed` are those of `read_studies`, whose errors it raises; a FileExistsError
    before anything is drawn if another program's file would be replaced.
    """
    studies = read_studies(results, mixed)
    page = output / "results.md"
    figures = [f"figures/{study.experiment}-{study.scale}.svg" for study in studies]
    refuse_foreign([page, *(output / name for name in figures)])
    for study, name in zip(studies, figures, strict=True):
        draw(study.table, output / name)
    text = f"# Results\n\n<!-- generator: {MARK} -->\n\n"
    text += "\n".join(
        TEMPLATES.section(section(*both)) for both in zip(studies, figures, strict=True)
    )
    if found := [verdict for verdict in claims.verdicts(studies) if verdict.study]:
        text += f"\n## The paper's claims\n\n{TEMPLATES.boards(found, evidence=True)}"
    write_whole(page, text)
    return page


def section(study: Study, figure: str) -> dict[str, Any]:
    """What the macro ``section`` shows: all models, every metric, and how they ran."""
    shown = cells(study, study.table)
    costs = ["parameters", "multiply-adds, M", "training, s", "peak MiB", "seeds"]
    tables = [shown.loc[:, ["model", *costs]]]
    for split in study.splits():
        scores = [column(study, name, split) for name in study.metrics(split)]
        tables.append(shown.loc[:, ["model", *scores]])
    texts = ["Models are scaled down from their publications."] * study.scaled_down
    code = conflicts(study.runs, lambda run: [("code", f"{run.state} {run.code}")])
    return {
        "title": f"{study.title}, {study.scale}",
        "texts": [*texts, *notes(study), *(f"Runs differ in {text}." for text in code)],
        "tables": [table_of(table) for table in tables if len(table.columns) > 1],
        "figure": figure,
        "settings": settings(study),
    }


def cells(study: Study, models: pd.DataFrame) -> pd.DataFrame:
    """Texts of a table of models, a row a model; `column` has the headers of metrics."""
    table = pd.DataFrame({"model": models.label})
    table["parameters"] = models.parameters.map("{:,}".format)
    table["multiply-adds, M"] = (models.multiply_adds / 1e6).map(number)
    table["training, s"] = [number(s.mean) if s.mean else "-" for s in models.seconds]
    table["peak MiB"] = [number(s.mean) for s in models.peak_memory_mib]
    table["seeds"] = models.runs.map(len)
    for split in study.splits():
        for name in study.metrics(split):
            table[column(study, name, split)] = models[f"{split}/{name}"].map(str)
    return table


def ratio(ours: Statistic, other: Statistic, form: str = ".2g") -> str:
    """How many times the error of ours, with ``≈`` if the difference is not significant, and ``?``
    if a single seed allows no test."""
    mark = sign(ours, other) if other is not ours else ""
    return f"{other.mean / ours.mean:{form}}x {mark.strip('<>')}".strip()


def column(study: Study, metric: str, split: str) -> str:
    """The header of a metric on a split, of which the first one goes without saying."""
    more = f", {split.replace('_', ' ')}" if split != study.splits()[0] else ""
    return metric_label(metric) + more


def notes(study: Study) -> list[str]:
    """In which data and settings the runs differ, and remarks of runs with whose they are."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for run in study.runs:
        unknown = [] if run.known else ["no record of data and code"]
        for text in (*unknown, *run.notes):
            found[text][study.table.label[run.variant]] = None
    remarks = [f"{text}: {', '.join(models)}" for text, models in found.items()]
    return [*(f"Runs differ in {text}." for text in study.mixed), *remarks]


def settings(study: Study) -> dict[str, str]:
    """Where, when and with what a study was run; several values where the runs differ."""
    runs = study.runs
    files = {(name, _made(file)): None for run in runs for name, file in run.data.items()}
    return {
        **{part: _distinct(runs, part) for part in ("hardware", "versions")},
        "commit": " / ".join(dict.fromkeys(run.state for run in runs)),
        "data": "; ".join(f"{name} ({made})" for name, made in files),
        "date": " / ".join(sorted({run.date[:10] for run in runs})),
        "settings": _distinct(runs, "config"),
    }


def _distinct(runs: Iterable[Run], part: str) -> str:
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for run in runs:
        for name, value in getattr(run, part).items():
            values[name][str(value)] = None
    return ", ".join(f"{name} {' / '.join(found)}" for name, found in values.items())


def _made(file: Mapping[str, Any]) -> str:
    """Where a data file comes from, and its checksum."""
    made = "official" if file.get("official") else "origin unknown"
    if "generator" in file:
        made = f"made by {file['generator']}, version {file.get('generator_version')}"
    return f"{made}, SHA-256 {str(file.get('sha256'))[:SHOWN]}"


def draw(models: pd.DataFrame, path: Path) -> None:
    """Validation error over seconds of training, of which every epoch of a run takes as many."""
    lines, rows = [], cast("Iterable[Model]", models.itertuples())
    for model in rows:
        epochs = next((run.curve["epoch"] for run in model.runs if run.curve.get("epoch")), [])
        each = model.seconds.mean / max(epochs, default=1)
        curve = at_points(model.runs, "validation_error")
        if curve:
            lines.append((model.label, [each * epoch for epoch in epochs][: len(curve)], curve, {}))
    style.curves(path, {"": lines}, "seconds of training", "validation error")


def at_points(runs: Iterable[Run], name: str) -> list[Statistic]:
    """A statistic at every point of a curve; runs that stopped early end the curve."""
    curves = [run.curves.get(name) or run.curve.get(name) or [] for run in runs]
    return [Statistic.of(values) for values in zip(*curves, strict=False)]
