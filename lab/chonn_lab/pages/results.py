"""docs/lab/results.md and docs/lab/claims.md, and the README's part of them.

The page of results begins with a table of all problems, a row for each. Below it each problem has
a table of its models and its controls, with a figure.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import chonn_lab
from chonn_lab.experiments import EXPERIMENTS
from chonn_lab.pages import blocks
from chonn_lab.pages.files import load
from chonn_lab.paths import DOCS, RUNS
from chonn_lab.report import claims, style
from chonn_lab.report.comparison import Statistic, gap, number, sign
from chonn_lab.report.document import markdown, render
from chonn_lab.report.results import Group, Run, Study, read_studies, read_study
from chonn_lab.report.tables import (
    full_label,
    metric_label,
    mixture,
    scaled_down,
    study_title,
    title,
)

MODELS = Path(chonn_lab.__file__).parent / "conf" / "model"
WORDS = yaml.safe_load(Path(__file__).with_name("problems.yaml").read_text("utf-8"))
# In the name of a study: its models have the settings that won a search, or train for so long.
SEARCHED, HOURS = "sizes=seconds", "hours="
OURS = ("chonn", "stack")
ASIDE = ("control", "probe", "ablation")
# Training times count as equal if the longest is at most so many times the shortest.
EQUAL = 1.1
# Fewest seeds of both models in a row of the README.
SEEDS = 3
CONTROLS = [WORDS["own_scheme"], *WORDS["controls"]]
HEADER = (
    *("problem", "data", "model", "parameters", "s", "error", "best other model"),
    *("parameters", "s", "error", "/ ours", "given the equation"),
    *("knows the equation, not the scheme", "published, not ranked"),
)


def kept() -> list[Study]:
    """The studies of `chonn-lab run` that are kept with the code, in ``lab/results/runs``."""
    return read_studies(RUNS, mixed=True) if any(RUNS.glob("*.json")) else []


def file_of(study: Study) -> Path:
    """The file of a study, from a page of docs/lab."""
    return Path(f"../../lab/results/runs/{study.experiment}-{study.scale}.json")


def chosen(studies: Sequence[Study]) -> list[Study]:
    """For each problem the study that is shown: with searched settings, else the largest scale.

    An experiment whose title depends on a setting is several problems. Studies whose runs do not
    all record their data and code are left out.
    """
    ranks = {"paper": 1, "night": 2, "small": 3}
    found: dict[tuple[str, str], Study] = {}
    for study in sorted(
        (s for s in studies if all(run.provenance.known for run in s.runs)),
        key=lambda s: (SEARCHED not in s.scale, ranks.get(s.scale.partition("+")[0], 4), s.scale),
    ):
        found.setdefault((study.experiment, study_title(study)), study)
    return [study for name in EXPERIMENTS for study in found.values() if study.experiment == name]


def figure_of(study: Study) -> str:
    """The name of a problem's figure; a changed contrast is another problem."""
    contrast = re.search(r"[+,](contrast=[^,]+)", study.scale)
    return f"results-{study.experiment}{f'-{contrast[1]}' if contrast else ''}.svg"


def headline(study: Study) -> str:
    return WORDS["headline"].get(study.experiment) or study.metrics()[0]


def error(group: Group, study: Study, split: str = "test") -> Statistic:
    return group.metric(headline(study), split)


def mean(group: Group, study: Study) -> float:
    return error(group, study).mean


def rows(study: Study) -> list[Group]:
    """Ours, the paper's CHONN and all baselines, the lowest error first."""
    tags = [group.tags for group in study.groups]
    hardest = {
        name: max(getattr(tag, name) for tag in tags)
        for name in ("target", "history")
        if all(getattr(tag, name) for tag in tags)
    }
    found = [group for group in study.find(**hardest) if group.tags.role not in ASIDE]
    if not hardest:
        found += [group for group in [study.papers()] if group and group not in found]
    return sorted((g for g in found if error(g, study).values), key=lambda g: mean(g, study))


def leader(found: Sequence[Group]) -> Group | None:
    """Ours: the network where there is one, else the CHONN with the lowest error."""
    ours = [group for group in found if group.tags.family in OURS]
    return next((g for g in ours if g.tags.role == "network"), next(iter(ours), None))


# The first table and the README's -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Entry:
    """Ours, the best other model and controls on a problem.

    `knows` is the best that knows the equation, not the scheme.
    """

    study: Study
    ours: Group
    other: Group
    knows: Statistic | None

    @classmethod
    def of(cls, study: Study) -> Entry | None:
        """None without two models to compare."""
        found = rows(study)
        ours, others = leader(found), [group for group in found if group.tags.family not in OURS]
        if not ours or not others:
            return None
        controls = {group.variant: error(group, study) for group in study.find(role="control")}
        known = [controls[name] for name in WORDS["other_scheme"] if name in controls]
        best = min((s for s in known if s.values), key=lambda s: s.mean, default=None)
        return cls(study, ours, others[0], best)

    @property
    def ratio(self) -> str:
        return f"{mean(self.other, self.study) / mean(self.ours, self.study):.1f}x"

    @property
    def name(self) -> str:
        return f"{study_title(self.study)}, {metric_label(headline(self.study))}"

    def short(self) -> list[str]:
        """Cells of the README; behind the seconds of the other model is their ratio to ours."""
        seconds = [group.seconds.mean for group in (self.ours, self.other)]
        return [
            *(self.name, f"{error(self.ours, self.study)}", number(seconds[0])),
            *(full_label(self.other), f"{error(self.other, self.study)}"),
            f"{number(seconds[1])} ({seconds[1] / seconds[0]:.2f}x)",
            *(self.ratio, given(self.study)),
        ]

    def row(self) -> list[str]:
        """Cells of `HEADER`: data, sizes, seconds, errors, seeds, test, controls, published."""
        study = self.study
        tested = {"<": "significant", ">": "significant", "≈": "not significant", "?": "no test"}
        models = [
            [
                *(full_label(g), f"{g.parameters:,}", number(g.seconds.mean)),
                f"{error(g, study)} ({len(g.runs)})",
            ]
            for g in (self.ours, self.other)
        ]
        values = load("published_fno_darcy")["values"]
        best = min(values, key=values.__getitem__)
        return [
            *(self.name, origin(study, [*self.ours.runs, *self.other.runs]), *models[0]),
            *models[1],
            f"{self.ratio}, {tested[sign(error(self.ours, study), error(self.other, study))]}",
            given(study),
            f"{self.knows} ({self.knows.count})" if self.knows else "-",
            f"{best} {values[best]:.4f}" if study.experiment == "fno_darcy" else "-",
        ]


def given(study: Study) -> str:
    """Error and milliseconds of the data's own scheme, by ``chonn-lab bench controls``."""
    name = study.experiment + study_title(study).partition(", contrast")[2]
    for row in load("controls")["rows"]:
        if (row["problem"], row["name"], row["metric"]) == (name, "own scheme", headline(study)):
            return f"{row['error']:.0e} in {number(row['ms'], 2)} ms"
    return "-"


def origin(study: Study, runs: Sequence[Run]) -> str:
    """Number and size of the training samples, and where they come from."""
    files = [item for run in runs for item in run.data.items()]
    made = "published" if all(file.get("official") for _, file in files) else "generated here"
    digests = {(name, str(file.get("sha256"))) for name, file in files}
    twice = ", two files" if len(digests) > len({name for name, _ in digests}) else ""
    config = study.runs[0].config
    size = f"{config['n_train']:,}" if "n_train" in config else "samples"
    if "resolution" in config:
        size += f" of {config['resolution']} x {config['resolution']}"
    return f"{size}, {made}{twice}"


def summary(studies: Sequence[Study]) -> str:
    """The README's table: problems whose models have equal budgets and three seeds."""
    equal = [s for s in chosen(studies) if SEARCHED in s.scale or HOURS in s.scale]
    found = [
        entry
        for entry in map(Entry.of, equal)
        if entry and min(len(entry.ours.runs), len(entry.other.runs)) >= SEEDS
    ]
    head = ["problem", "CHONN network", "s", "best other model", "its error", "s", "/ ours"]
    return markdown([*head, "given the equation"], [entry.short() for entry in found], (0, 3))


def caption() -> str:
    """The caption of the README's table: what search chose its settings, by ``searches.json``."""
    texts = [f"{trials(name)} on {title(name)}" for name in load("searches")["values"]]
    return (
        "*Errors on test data, means ± standard deviations over at least "
        f"{SEEDS} seeds; s are the seconds of training on one thread of a machine that also did "
        "other work, in brackets those of the other model over ours. A search on validation data "
        "chose size, learning rate, batch size and epochs of every model, ours too: "
        f"{', '.join(texts)}. The other problems were not searched and use the settings of Darcy "
        "flow.*\n"
    )


def trials(problem: str) -> str:
    """Trials and seconds that the search of a problem gave each model but those without a part."""
    budgets = load("searches")["values"][problem]["budgets"].items()
    ((count, seconds),) = {
        (given["trials"], given["seconds"]) for name, given in budgets if name not in CONTROLS
    }
    return f"{count} trials of {seconds:g} s for each model"


# A problem ----------------------------------------------------------------------------------------


def results_page(studies: Sequence[Study]) -> str:
    """The whole page, whatever studies there are."""
    shown = chosen(studies)
    there = {study.experiment for study in shown}
    return render(
        "results.md.j2",
        header=HEADER,
        entries=[entry.row() for entry in map(Entry.of, shown) if entry],
        problems=[problem(study, studies) for study in shown],
        words=WORDS,
        equal=EQUAL,
        number=number,
        mean=mean,
        full_label=full_label,
        missing=", ".join(f"`{name}`" for name in EXPERIMENTS if name not in there),
    )


def problem(study: Study, studies: Sequence[Study]) -> dict[str, Any]:
    """What the template shows of a problem."""
    found = rows(study)
    ours = leader(found)
    controls = [group for group in study.find(role="control") if error(group, study).values]
    controls.sort(key=lambda group: mean(group, study))
    network = ours if ours and ours.tags.role == "network" else None
    told = {group.variant: group for group in controls} if network else {}
    own = told.get(WORDS["own_scheme"])
    seconds = [group.seconds.mean for group in found]
    searched = study.experiment in load("searches")["values"]
    return {
        "study": study,
        "title": study_title(study),
        "epochs": {run.config.get("epochs") for group in found for run in group.runs},
        "trials": trials(study.experiment) if searched else "",
        "seconds": (min(seconds), max(seconds)),
        "file": file_of(study),
        "command": command(study),
        "mixture": mixture(study),
        "table": _models(study, [*found, *controls], ours),
        "own": own,
        "own_ms": Statistic.of(run.milliseconds for run in own.runs).mean if own else 0,
        "proofs": [
            (full_label(told[name]), words, *_compared(study, network, told[name]))
            for name, words in WORDS["controls"].items()
            if network and name in told
        ],
        "published": published(study, studies) if study.experiment == "fno_darcy" else None,
        "figure": figure_of(study),
    }


def _compared(study: Study, network: Group, control: Group) -> tuple[str, float]:
    """The sign between both errors, and the smallest difference that the seeds would have shown."""
    ours, other = error(network, study), error(control, study)
    return sign(ours, other), gap(ours, other).detectable


def published(study: Study, studies: Sequence[Study]) -> dict[str, Any]:
    """Numbers of other people's papers on FNO's Darcy flow, and the order of the models there."""
    found = load("published_fno_darcy")
    errors = dict(sorted(found["values"].items(), key=lambda item: item[1]))
    names = WORDS["published"]
    ours = {names[group.variant]: group for group in study.groups if group.variant in names}
    there = [name for name in errors if name in ours]
    hours = study.runs[0].config.get("hours", math.inf)
    longer = [
        (group, mean(group, other))
        for other in studies
        if other.experiment == study.experiment and HOURS in other.scale
        if other.runs[0].config["hours"] > hours
        for group in other.groups
    ]
    here = sorted(there, key=lambda name: mean(ours[name], study))
    parts = {"errors": errors, "ours": ours, "there": there, "here": here, "longer": longer}
    return {**found, **parts}


def _models(study: Study, groups: Sequence[Group], ours: Group | None) -> str:
    lines = []
    for group in groups:
        smaller = scaled_down(study) and group.tags.role not in ("network", "control")
        lines.append(
            [
                f"{full_label(group)}{', scaled down' if smaller else ''}",
                f"{group.parameters:,}",
                number(group.seconds.mean) if group.seconds.mean else "-",
                *(str(error(group, study, split)) for split in study.splits()),
                f"{mean(group, study) / mean(ours, study):.2g}x" if ours else "-",
                str(len(group.runs)),
            ]
        )
    metric = metric_label(headline(study))
    further = [f"{metric}, {split.replace('_', ' ')}" for split in study.splits()[1:]]
    head = ["model", "parameters", "training, s", metric, *further, "/ ours", "seeds"]
    return markdown(head, lines)


def command(study: Study) -> str:
    """The command that runs those models of a table that conf/model has."""
    scale, _, settings = study.scale.partition("+")
    # The name of a study joins the numbers of a tuple by "-"; the runs tell them from a number.
    config, values = study.runs[0].config, {}
    for name in (text.partition("=")[0] for text in settings.split(",") if text):
        values[f"problem.{name}"] = str(config.get(name)).replace(" ", "")
    for name in ("problem.sizes", "problem.hours"):
        scale = "night" if values.pop(name, None) and scale == "paper" else scale
    swept = WORDS["swept"].get(study.experiment, [])
    names = [WORDS["models"].get(g.variant, g.variant.replace("-", "_")) for g in study.groups]
    there = [name for name in dict.fromkeys(names) if (MODELS / f"{name}.yaml").exists()]
    parts = [f"problem={study.experiment}", *(swept or [f"model={','.join(there)}"])]
    parts += [f"{name}={value}" for name, value in values.items()]
    parts += [f"scale={scale}"] * (scale != "small")
    seeds = max(([run.seed for run in group.runs] for group in study.groups), key=len)
    return f"chonn-lab run {' '.join(parts)} seed={','.join(map(str, sorted(seeds)))} -m"


def draw(studies: Sequence[Study]) -> None:
    """Draw a figure for each problem: validation error over seconds of training, a line a row.

    Then one of the rollouts of `rollouts`: relative error over the predicted frames.
    """
    shown = blocks.TABLES["rollouts"]["where"]
    flow = read_study(RUNS / "rollouts" / "navier_stokes_rollouts-small.json", mixed=True)
    groups = [group for group in flow.groups if blocks.evaluate(shown, vars(group.runs[0]))]
    figures: dict[str, list[tuple[Group, Sequence[float], list[Statistic]]]] = {
        figure_of(study): [(g, g.times, g.curve("validation_error")) for g in rows(study)]
        for study in chosen(studies)
    }
    curves = [(group, group.curve("rollout_relative_l2")) for group in groups]
    figures["rollouts.svg"] = [(group, range(1, len(c) + 1), c) for group, c in curves]
    for name, lines in figures.items():
        seconds = name != "rollouts.svg"
        with style.styled():
            figure, axes = style.grid(1, 1, 3.2 if seconds else 3.6)
            for at, (group, x, curve) in enumerate(lines):
                look = style.look(group)._replace(colour=style.CYCLE[at % len(style.CYCLE)])
                look = look if seconds else look._replace(line="-")
                style.band(axes[0, 0], x, curve, look, full_label(group))
            if seconds:
                style.logarithmic(axes[0, 0].xaxis)
            style.logarithmic(axes[0, 0].yaxis)
            along = "seconds of training" if seconds else "frames after the given ones"
            across = "validation error" if seconds else "relative L2"
            style.finish(figure, axes, x=along, y=[across])
            style.save(figure, DOCS / "figures" / name)


# Claims -------------------------------------------------------------------------------------------


def judged(studies: Sequence[Study]) -> list[claims.Verdict]:
    """The claims, on studies of the models that they are about; those of a search have others."""
    return claims.verdicts([study for study in studies if "+" not in study.scale])


def claims_page(studies: Sequence[Study]) -> str:
    """Verdict and deciding number of every claim of the paper, by problem."""
    found = judged(studies)
    small = any(v.study is not None and scaled_down(v.study) for v in found)
    counts = Counter((v.heading, v.judgement.verdict) for v in found)
    boards = claims.boards(found)
    return render(
        "claims.md.j2",
        claims=claims,
        found=found,
        models=f"the paper's models{', scaled down' if small else ''}",
        counts=[[name, *(counts[name, v] for v in claims.VERDICTS)] for name in boards],
        boards=boards,
        files={v.heading: file_of(v.study) if v.study else None for v in found},
    )


def claims_sentence(studies: Sequence[Study]) -> str:
    """How many claims have which verdict, for the README."""
    return (
        "The paper's claims, tested at the sizes that two CPU cores can train: "
        f"{claims.summary(judged(studies))} ([docs/lab/claims.md](docs/lab/claims.md)).\n"
    )
