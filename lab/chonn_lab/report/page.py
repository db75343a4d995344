"""Pages of results: sections of studies, a table of all problems, and the verdicts on claims."""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from chonn_lab.report import claims, figures
from chonn_lab.report.comparison import LEVEL, Statistic, number, sign
from chonn_lab.report.runs import Model, Study, metric_label, read_studies
from chonn_lab.report.tables import ENVIRONMENT, markdown
from chonn_ops.files import refuse_existing, write_whole

WORDS = yaml.safe_load(Path(__file__).with_name("problems.yaml").read_text("utf-8"))
OURS = ["chonn", "stack"]
ENVIRONMENT.globals |= {"claims": claims, "level": f"{LEVEL:.0%}"}
TEMPLATES: Any = ENVIRONMENT.get_template("pages.md.j2").module


def write_report(source: Path, output: Path, force: bool = False) -> Path:
    """Write ``<output>/results.md`` with tables, a figure and the claims of every study.

    `source` is that of `read_studies`, whose errors it raises; a FileExistsError before anything is
    drawn if a file exists and `force` is not set. The page says in which data and settings runs
    differ.
    """
    studies, page = read_studies(source), output / "results.md"
    (output / "figures").mkdir(parents=True, exist_ok=True)
    for path in (page, *(output / figure_of(study) for study in studies)):
        refuse_existing(path, force)
    for study in studies:
        draw(study, output)
    text = "# Results\n\n" + "\n".join(section(study) for study in studies)
    judged = claims.verdicts(studies).dropna(subset="study")
    text += f"\n## The paper's claims\n\n{TEMPLATES.boards(judged)}" if len(judged) else ""
    write_whole(page, text)
    return page


# Models of a study -------------------------------------------------------------------------------


def headline(study: Study) -> str:
    """The metric that is quoted for a problem."""
    return WORDS["headline"].get(study.experiment) or next(iter(study.metrics()), "")


def ranked(study: Study) -> pd.DataFrame:
    """All models, controls last, with their errors in the column `error`, the lowest first.

    Models of the highest target or the longest history are `hard`, and so are all controls.
    """
    table: Any = study.table
    missing = pd.Series([Statistic((), len(runs)) for runs in table.runs], table.index)
    table = table.assign(error=table.get(f"test/{headline(study)}", missing))
    table = table.assign(control=table.role == "control", mean=[e.mean for e in table.error])
    hardest = table[["target", "history"]] == table[["target", "history"]].max()
    table["hard"] = hardest.all(axis=1) | table.control
    order = {"control": True, "target": False, "history": False, "mean": True}
    return table.sort_values([*order], ascending=[*order.values()])


def leaders(study: Study) -> tuple[Model, Model] | None:
    """Ours, which is the network where there is one, and the best other model; None without both.

    Without a network, the CHONN with the lowest error is ours, of blocks of several orders the
    paper's second.
    """
    wanted = "hard and not control and role != 'probe' and mean.notna()"
    best = ranked(study).query(f"{wanted} and (role != 'ablation' or order == 2)")
    ours, others = (best[best.family.isin(OURS) == is_ours] for is_ours in (True, False))
    ours = ours[ours.role == "network"] if (ours.role == "network").any() else ours
    return None if ours.empty or others.empty else (ours.iloc[0], others.iloc[0])


def ratio(ours: Statistic, other: Statistic, form: str = ".2g") -> str:
    """How many times the error of ours, with ``≈`` if the difference is not significant, and ``?``
    if a single seed allows no test."""
    mark = sign(ours, other) if other is not ours else ""
    return f"{other.mean / ours.mean:{form}}x {mark.strip('<>')}".strip()


# Sections ----------------------------------------------------------------------------------------


def figure_of(study: Study) -> str:
    """The file of its figure."""
    return f"figures/results-{study.name}.svg"


def draw(study: Study, folder: Path) -> None:
    """The figure, of the hardest target or history."""
    models, path = ranked(study).query("hard"), folder / figure_of(study)
    figures.draw_curves(models, path, "validation_error", "validation error")


def section(study: Study, docs: bool = False) -> str:
    """Models, scores and costs of a study, how its runs differ, and what they say of themselves.

    In the docs one metric stands for all, the hardest target or history for the others, a link to
    the file for what the runs say and how they differ, and tables of their own for finer grids and
    laws.
    """
    models, both = ranked(study), leaders(study)
    models = models.query("hard") if docs else models
    shown = pd.DataFrame({"model": models.label})
    shown["parameters"] = models.parameters.map("{:,}".format)
    shown["training, s"] = [number(s.mean) if s.mean else "-" for s in models.seconds]
    shown["ms a sample"] = [number(s.mean, 2) for s in models.milliseconds]
    for split in study.splits():
        if docs and re.search(r"at_\d|law", split):
            continue
        for name in [headline(study)] if docs else study.metrics(split):
            more = f", {split.replace('_', ' ')}" if split != study.splits()[0] else ""
            shown[metric_label(name) + more] = models[f"{split}/{name}"].map(str)
    if both:
        errors = models[models.hard].error
        shown["/ ours"] = pd.Series([ratio(both[0].error, e) for e in errors], errors.index)
    shown["seeds"] = models.runs.map(len)
    shown = shown.fillna("-")
    table = markdown(shown.loc[:, (shown != "-").any()])
    said: dict[str, dict[str, None]] = defaultdict(dict)
    for run in study.runs:
        for text in [*run.notes, *["no record of data and code"] * (not run.known)]:
            said[text][study.table.label[run.variant]] = None
    epochs = study.runs[0].config.get("epochs")
    texts = [WORDS["studies"].get(study.name) or f"{epochs} epochs"] * docs
    if not docs:
        texts += [f"Runs differ in {text}" for text in study.differences]
        texts += [f"{text}: {', '.join(labels)}" for text, labels in said.items()]
    figure = f"{'../' * docs}{figure_of(study)}"
    facts = (
        {} if docs else {name: " / ".join(x.dropna().unique()) for name, x in study.facts.items()}
    )
    return TEMPLATES.section(study, docs and link(study), texts, table, figure, facts)


def link(study: Study) -> str:
    """To the file of a study, from a page of docs/lab."""
    return f"[{study.name}.json](../../lab/results/runs/{study.name}.json)"


# All problems ------------------------------------------------------------------------------------


def by_model(studies: Sequence[Study]) -> str:
    """The errors of all trained models: a line a problem with a network of ours, and the other
    models with the best first."""
    rows = []
    for study in studies:
        models = ranked(study).query("not control")
        ours, others = (models[(models.role == "network") == own] for own in (True, False))
        if len(ours):
            listed = "; ".join(others.label + " " + others.error.map(str))
            rows.append((study.title, *ours.error.map(str), listed))
    table = pd.DataFrame(rows, columns=["problem", "CHONN network", "other models"])
    return markdown(table, [0, 2])


def overview(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """Rows of the tables of problems, one for each that has two models to compare."""
    rows = []
    for study in studies:
        if (both := leaders(study)) is not None:
            (ours, other), table = both, ranked(study)
            rows.append(
                {
                    "study": study,
                    "config": study.runs[0].config,
                    "metric": metric_label(headline(study)),
                    "ours": ours,
                    "other": other,
                    "ratio": ratio(ours.error, other.error, ".1f"),
                    "own": table[table.index == WORDS["own_scheme"]],
                    "known": table[table.index.isin(WORDS["other_scheme"])],
                }
            )
    return rows
