"""docs/lab/results.md and docs/lab/claims.md, and the README's part of them.

The page of results begins with a table of all problems, a row for each. Below it each problem has
a table of its models and its controls, with a figure.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import chonn_lab
from chonn_lab.experiments import EXPERIMENTS
from chonn_lab.pages import blocks
from chonn_lab.pages.files import load
from chonn_lab.paths import DOCS, RUNS
from chonn_lab.report import claims, style
from chonn_lab.report.comparison import Statistic, number
from chonn_lab.report.document import TEMPLATES, table_of
from chonn_lab.report.page import at_points, cells, column, draw, notes, ratio
from chonn_lab.report.runs import Model, Study, metric_label, read_studies, read_study, title

MODELS = Path(chonn_lab.__file__).parent / "conf" / "model"
WORDS = yaml.safe_load(Path(__file__).with_name("problems.yaml").read_text("utf-8"))
# In the name of a study: its models have the settings that won a search, or train for so long.
SEARCHED, HOURS = "sizes=seconds", "hours="
BUDGETS = ("sizes", "hours")
OURS = ["chonn", "stack"]
CONTROLS = [WORDS["own_scheme"], *WORDS["other_scheme"], *WORDS["without_a_part"]]
# The figure of finer grids.
GRIDS = {"darcy": "Darcy flow", "poisson": "Poisson"}
LOOKS = {
    "network": {"color": "#a50026", "marker": "o"},
    "fno": {"color": "#0072b2", "marker": "^"},
    "unet": {"color": "#e69f00", "marker": "s"},
}
# Fewest seeds of both models in a row of the README: as many have the runs of searched settings.
SEEDS = 5
# And the least share of our seconds that the other model has there.
SHARE = 0.9


@functools.cache
def kept() -> list[Study]:
    """The studies of `chonn-lab run` that are kept with the code, in ``lab/results/runs``."""
    return read_studies(RUNS, mixed=True)


def link(study: Study) -> str:
    """To the file of a study, from a page of docs/lab."""
    name = f"{study.experiment}-{study.scale}.json"
    return f"[{name}](../../lab/results/runs/{name})"


def chosen(studies: Sequence[Study]) -> list[Study]:
    """For each problem the study that is shown: with searched settings, else the largest scale.

    An experiment whose title depends on a setting is several problems. Studies whose runs do not
    all record their data and code are left out.
    """
    ranks = {"paper": 1, "night": 2, "small": 3}
    found: dict[tuple[str, str], Study] = {}
    for study in sorted(
        (s for s in studies if all(run.known for run in s.runs)),
        key=lambda s: (SEARCHED not in s.scale, ranks.get(s.scale.partition("+")[0], 4), s.scale),
    ):
        found.setdefault((study.experiment, study.title), study)
    return [study for name in EXPERIMENTS for study in found.values() if study.experiment == name]


def figure_of(study: Study) -> str:
    """The name of a problem's figure; a changed contrast is another problem."""
    contrast = re.search(r"[+,](contrast=[^,]+)", study.scale)
    return f"results-{study.experiment}{f'-{contrast[1]}' if contrast else ''}.svg"


def headline(study: Study) -> str:
    """The metric that is quoted for a problem."""
    return WORDS["headline"].get(study.experiment) or study.metrics()[0]


def rows(study: Study, controls: bool = False) -> pd.DataFrame:
    """Ours, the paper's CHONN and all baselines, or the controls; the lowest error first.

    Their errors are in the column `error`. Of models by target or history the hardest are shown.
    """
    table = study.table.assign(error=study.table[f"test/{headline(study)}"])
    table = table[[bool(error.values) for error in table.error]]
    if controls:
        found = table[table.role == "control"]
    else:
        paper = study.find(family="chonn", order=2, role=["paper", "ablation"]).index[:1]
        aside = table.role.isin(["control", "probe", "ablation"])
        found = table[~aside | table.index.isin(paper)]
        for name in ("target", "history"):
            if table[name].all():
                found = found[found[name] == table[name].max()]
    return found.sort_values("error", key=lambda errors: [error.mean for error in errors])


def leaders(study: Study) -> tuple[Model, Model] | None:
    """Ours, which is the network where there is one, and the best other model; None without both.

    Without a network, the CHONN with the lowest error is ours.
    """
    found = rows(study)
    ours, others = (found[found.family.isin(OURS) == own] for own in (True, False))
    ours = ours[ours.role == "network"] if (ours.role == "network").any() else ours
    return None if ours.empty or others.empty else (ours.iloc[0], others.iloc[0])


# The first table and the README's -----------------------------------------------------------------


def overview(studies: Sequence[Study], seeds: int = 1, share: float = 0.0) -> pd.DataFrame:
    """A row a problem that has two models of so many seeds to compare, the other one with at least
    a share of our seconds."""
    lines = []
    for study in studies:
        both = leaders(study)
        if both and min(len(model.runs) for model in both) >= seeds:
            ours, other = both
            controls = rows(study, controls=True).error
            known = controls[controls.index.isin(WORDS["other_scheme"])]
            s = [model.seconds.mean for model in both]
            if s[1] < share * s[0]:
                continue
            lines.append(
                {
                    "problem": f"{study.title}, {metric_label(headline(study))}",
                    "samples": samples(**study.runs[0].config),
                    "model": ours.label,
                    "error": str(ours.error),
                    "s": number(s[0]),
                    "best other model": other.label,
                    "its error": str(other.error),
                    "its s": f"{number(s[1])} ({s[1] / s[0]:.2f}x)",
                    "/ ours": ratio(ours.error, other.error, ".1f"),
                    "given the equation": given(study),
                    "knows the equation, not the scheme": str(known.iloc[0]) if len(known) else "-",
                }
            )
    return pd.DataFrame(lines)


def samples(n_train: int, resolution: int = 0, **_: Any) -> str:
    """Number and size of the training samples."""
    return f"{n_train:,} of {resolution} x {resolution}" if resolution else f"{n_train:,}"


def given(study: Study) -> str:
    """Error and milliseconds a sample of the data's own scheme."""
    if WORDS["own_scheme"] not in study.table.index:
        return "-"
    own = study.table.loc[WORDS["own_scheme"]]
    error = own[f"test/{headline(study)}"].mean
    return f"{error:.0e} in {number(own.milliseconds.mean, 2)} ms"


def summary(studies: Sequence[Study]) -> str:
    """The README's table: problems whose models have equal budgets and five seeds."""
    equal = [s for s in chosen(studies) if SEARCHED in s.scale or HOURS in s.scale]
    table = overview(equal, SEEDS, SHARE).rename(columns={"error": "CHONN network"})
    long = ["samples", "model", "knows the equation, not the scheme"]
    return table_of(table.drop(columns=long, errors="ignore"), (0, 3))


def trials() -> str:
    """Trials and seconds that searches gave each model but the controls, by ``searches.json``."""
    found = []
    for problem, searched in load("searches")["values"].items():
        budgets = [given for name, given in searched.items() if name not in CONTROLS]
        texts = dict.fromkeys(
            f"{given['trials']} trials of {given['seconds']:g} s" for given in budgets
        )
        found.append(f"{' or '.join(texts)} for each model on {title(problem)}")
    return ", ".join(found)


# A problem ----------------------------------------------------------------------------------------


def problems(studies: Sequence[Study]) -> str:
    """The first table of the page of results."""
    return table_of(overview(chosen(studies)), (0, 1, 2, 5))


def sections(studies: Sequence[Study]) -> str:
    """The page's sections."""
    return "\n".join(TEMPLATES.section(section(study, studies)) for study in chosen(studies))


def section(study: Study, studies: Sequence[Study]) -> dict[str, Any]:
    """What the macro ``section`` shows of a problem."""
    models = pd.concat([rows(study), rows(study, controls=True)])
    shown, both = cells(study, models), leaders(study)
    own = shown.index == WORDS["own_scheme"]
    milliseconds = [f", {number(s.mean, 2)} ms a sample" for s in models.milliseconds[own]]
    shown.loc[own, "model"] += milliseconds
    if both:
        shown["/ ours"] = [ratio(both[0].error, error) for error in models.error]
    scores = [column(study, headline(study), split) for split in study.splits()]
    columns = ["model", "parameters", "training, s", *scores, "/ ours", "seeds"]
    published = [published_numbers(study, studies)] * (study.experiment == "fno_darcy")
    return {
        "title": study.title,
        "texts": [
            f"{settings(study)}. Runs: {link(study)}.",
            f"```\n{command(study)}\n```",
            *notes(study),
        ],
        "tables": [table_of(shown[[name for name in columns if name in shown]]), *published],
        "figure": f"../figures/{figure_of(study)}",
        "settings": {},
    }


def settings(study: Study) -> str:
    """What chose the settings of a study, or how long its models train."""
    if "+" in study.scale:
        return WORDS["settings"].get(study.experiment, WORDS["unsearched"])
    epochs = {run.config.get("epochs") for models in rows(study).runs for run in models}
    return f"{epochs.pop()} epochs" if len(epochs) == 1 else "Each model has its own epochs"


def published_numbers(study: Study, studies: Sequence[Study]) -> str:
    """Numbers of other people's papers on FNO's Darcy flow, and other budgets here."""
    found = load("published_fno_darcy")
    errors = sorted(found["values"].items(), key=lambda item: item[1])
    values = ", ".join(f"{name} {error:.4f}" for name, error in errors)
    others = [
        f"{model.label} {number(model.error.mean)} after {model.runs[0].config['epochs']} epochs "
        f"and {number(model.seconds.mean)} s"
        for other in studies
        if other.experiment == study.experiment and other != study and HOURS in other.scale
        for _, model in rows(other).iterrows()
    ]
    text = (
        f"Published {found['metric']} at {found['resolution']} points, {found['note']}: {values}."
    )
    return f"{text} With other budgets here: {', '.join(others)}.\n" if others else f"{text}\n"


def command(study: Study) -> str:
    """The command that runs those models of a table that conf/model has."""
    scale, _, changes = study.scale.partition("+")
    config, names = study.runs[0].config, re.findall(r"(\w+)=", changes)
    models = [WORDS["models"].get(n, n.replace("-", "_")) for n in study.table.index]
    there = [name for name in models if (MODELS / f"{name}.yaml").exists()]
    parts = [f"problem={study.experiment}"]
    parts += [WORDS["swept"].get(study.experiment, f"model={','.join(there)}")]
    # The name of a study joins the numbers of a tuple by "-"; the runs tell them from a number.
    parts += [f"problem.{n}={config[n]}".replace(" ", "") for n in names if n not in BUDGETS]
    parts += [f"scale={'night' if HOURS in changes else scale}"] * (scale != "small")
    seeds = sorted({run.seed for run in study.runs})
    return f"chonn-lab run {' '.join(parts)} seed={','.join(map(str, seeds))} -m"


def draw_figures(studies: Sequence[Study]) -> None:
    """Draw a figure for each problem, one of the rollouts of `rollouts` over the frames, and one of
    finer grids."""
    draw_grids(load("resolution"), DOCS / "figures" / "resolution.png")
    for study in chosen(studies):
        draw(rows(study), DOCS / "figures" / figure_of(study))
    flow = read_study(RUNS / "rollouts" / "navier_stokes_rollouts-small.json", mixed=True)
    where = blocks.TABLES["rollouts"]["where"]
    curves = [
        (model.label, at_points(model.runs, "rollout_relative_l2"))
        for name, model in flow.table.iterrows()
        if blocks.evaluate(where, {"variant": name})
    ]
    lines = [(label, range(1, len(curve) + 1), curve, {}) for label, curve in curves]
    path = DOCS / "figures" / "rollouts.svg"
    style.curves(path, {"": lines}, "frames after the given ones", "relative L2", base=0)


def draw_grids(record: dict[str, Any], path: Path) -> None:
    """Relative L1 error by the evaluation grid; a line a model and training grid."""
    panels: dict[str, list[style.Line]] = {title: [] for title in GRIDS.values()}
    runs = pd.DataFrame(record["results"]).query("domain == 'square' and diverged.isna()")
    dashes = dict(zip(sorted(set(runs.trained), reverse=True), ("-", "--", ":"), strict=True))
    runs = runs.sort_values(["problem", "trained"], kind="stable")
    for (problem, trained, label), seeds in runs.groupby(
        ["problem", "trained", "label"], sort=False
    ):
        errors = pd.DataFrame([errors["test"] for errors in seeds.errors])
        look = {**LOOKS[seeds.model.iloc[0]], "ls": dashes[trained], "markersize": 3}
        values = [Statistic.of(errors[n]) for n in errors]
        line = f"{label}, trained at {trained}", [*map(int, errors)], values, look
        panels[GRIDS[problem]].append(line)
    for row in filter(lambda row: row["errors"], record["interpolated"]):
        label, look = f"truth at {row['trained']}, interpolated", {"color": "#666666"}
        values = [Statistic((error,)) for error in row["errors"].values()]
        line = label, [*map(int, row["errors"])], values, look | {"ls": dashes[row["trained"]]}
        panels[GRIDS[row["problem"]]].append(line)
    style.curves(path, panels, "evaluation grid, points a side", "relative L1 error", base=2)


def kernel_speed() -> str:
    """Least and largest ratio of the times of PyTorch and of our kernels, over all operators."""
    scan, network = load("scan"), load("network")
    cases: dict[Any, dict[str, Any]] = {}
    for at, peers in enumerate(network["peers"]):
        cases[at] = {row["name"]: row for row in peers["rows"]}
    for row in scan["rows"]:
        cases.setdefault(tuple(row["shape"]), {})[row["name"]] = row
    ratios = [
        case["torch"][time] / case["chonn-ops"][time]
        for case in cases.values()
        for time in ("forward_ms", "both_ms")
    ]
    return f"{min(ratios):.1f} to {max(ratios):.0f}"


# Claims -------------------------------------------------------------------------------------------


def judged(studies: Sequence[Study]) -> list[claims.Verdict]:
    """The claims, on studies of the models that they are about; those of a search have others."""
    return claims.verdicts([study for study in studies if "+" not in study.scale])


def verdicts(studies: Sequence[Study]) -> str:
    """Verdict and deciding number of every claim of the paper, by problem."""
    found = judged(studies)
    return TEMPLATES.boards(found, {v.heading: link(v.study) for v in found if v.study})
