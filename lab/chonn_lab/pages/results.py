"""docs/lab/results.md, and the README's part of it.

The page begins with a table of all problems, a row for each. Below it each problem has a table of
its models and its controls, with a figure.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import chonn_lab
from chonn_lab.experiments import EXPERIMENTS, title
from chonn_lab.pages.blocks import load
from chonn_lab.pages.kept import file_of, kept
from chonn_lab.paths import DOCS, RESULTS
from chonn_lab.report import style
from chonn_lab.report.claims import papers, scaled_down
from chonn_lab.report.comparison import LEVEL, Statistic, gap, number, sign
from chonn_lab.report.document import markdown
from chonn_lab.report.results import Group, Run, Study
from chonn_lab.report.tables import full_label, metric_label, mixture, study_title

OWN_SCHEME = "own-scheme"
# Settings and trials of the searches behind the studies "sizes=seconds".
CHOSEN, STEADY_SEARCH = RESULTS / "searches.json", "seconds"
SEARCHED_MODELS = ("network", "unet", "fno", "cno", "fno-neuralop", "uno", "ffno")
# Names in conf/model that are not those of the results.
MODELS = {"network": "chonn_network", "network-ac": "chonn_network_ac", "chonn": "chonn_fno"}
MODELS |= {"waves": "chonn_waves"}
# Models whose settings are swept, too.
SWEPT = {"order1d": ("ckb_order",), "navier_stokes": ("fno", "chonn")}
CONF = Path(chonn_lab.__file__).parent / "conf"
# In the name of a study: its models have the settings that won a search, or train for so long.
SEARCHED, HOURS = "sizes=seconds", "hours="
# The score that is quoted for a problem; else the first one of the study.
HEADLINE = {"shallow_water": "nrmse"}
OURS = ("chonn", "stack")
ASIDE = ("control", "probe", "ablation")
# Controls that know the equation, not the scheme that made the data.
OTHER_SCHEME = ("direct", "direct-fitted", "solve-cnn")
# Training times count as equal if the longest is at most so many times the shortest.
EQUAL = 1.1
# Fewest seeds of both models in a row of the README.
SEEDS = 3
# Names in the published table, by variant.
PUBLISHED = {
    "fno-neuralop": "FNO",
    "ffno": "F-FNO",
    "transolver": "Transolver",
    "galerkin": "Galerkin Transformer",
    "uno": "U-NO",
}
INTRODUCTION = f"""# Results

The table has a row for each problem: our network, the other model with the lowest error, and two controls. "Given the equation" is a solve of the equation by the scheme that made the data, on the same grid, with nothing trained: `own-scheme` in [experiments](experiments.md#models). "Knows the equation, not the scheme" is the lowest error of `direct`, `direct-fitted` and `solve-cnn`, whose scheme is another one. [Below](#darcy-flow), each problem has a table of all models, the file of every run, and the controls.

All data but those marked "published" are generated here, with the generators of [problems](problems.md), in the layout of the published files where there are some. They differ from these files. PDEBench stores Darcy flow at t = 1.75, when a transient is left; on the same media its frame and our steady state differ by 3e-4 to 1.1e-2 (relative L2). The card of each problem says what else differs.

Errors are means ± standard deviations over (n) seeds. "s" are the mean seconds of training, on one thread of a machine that also did other work. "Searched": every family of models got the same budget to find its size, learning rate, batch size and epochs, and the lowest validation error won; see [budgets](experiments.md#searches). "Significant": the difference passes Welch's one-sided t-test at {LEVEL:.0%}; testing both directions makes it two-sided at {2 * LEVEL:.0%}. Published numbers come from other data and budgets and are not ranked.
"""  # noqa: E501
LIMITS = """## Limits

- Data, models and budgets are small: minutes on a CPU. Nothing here shows what happens at the sizes of the publications.
- Most of the problems are elliptic, where a circuit solver is the right prior. [Helmholtz](experiments.md#further-problems) is a problem that networks of resistors must fail on.
- The test knows the spread over seeds, not over data sets, and calls one of ten true equalities a difference.
- Data that are generated here follow the recipe of the publication. The same seeds gave files of other bytes when a generator changed, which "two files" states.
- Problems in time have other budgets: see [studies](studies.md#rollouts-on-a-line). [Claims](claims.md) judges the claims of the paper.
"""  # noqa: E501


def chosen(studies: Sequence[Study]) -> list[Study]:
    """For each problem the study that is shown: with searched settings, else the largest scale.

    An experiment whose title depends on a setting is several problems. Studies whose runs do not
    all record their data and code are left out.
    """
    ranks = {"paper": 1, "small": 2}
    found: dict[tuple[str, str], Study] = {}
    for study in sorted(
        (s for s in studies if all(run.provenance.known for run in s.runs)),
        key=lambda s: (SEARCHED not in s.scale, ranks.get(s.scale.partition("+")[0], 3), s.scale),
    ):
        found.setdefault((study.experiment, study_title(study)), study)
    return [study for name in EXPERIMENTS for study in found.values() if study.experiment == name]


def figure_of(study: Study) -> str:
    """The name of a problem's figure; a changed contrast is another problem."""
    contrast = re.search(r"[+,](contrast=[^,]+)", study.scale)
    return f"results-{study.experiment}{f'-{contrast[1]}' if contrast else ''}.svg"


def headline(study: Study) -> str:
    return HEADLINE.get(study.experiment) or study.metrics()[0]


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
        found += [group for group in [papers(study)] if group and group not in found]
    return sorted((g for g in found if error(g, study).values), key=lambda g: mean(g, study))


def leader(found: Sequence[Group]) -> Group | None:
    """Ours: the network where there is one, else the CHONN with the lowest error."""
    ours = [group for group in found if group.family in OURS]
    return next((g for g in ours if g.tags.role == "network"), next(iter(ours), None))


def label(study: Study, group: Group) -> str:
    smaller = scaled_down(study) and group.tags.role not in ("network", "control")
    return f"{full_label(group)}{', scaled down' if smaller else ''}"


def results_page(studies: Sequence[Study]) -> str:
    """The whole page, whatever studies there are."""
    shown = chosen(studies)
    parts = [INTRODUCTION]
    if found := [entry for entry in map(Entry.of, shown) if entry]:
        parts.append(markdown(HEADER, [entry.row() for entry in found], (0, 1, 2, 6)))
    for study in shown:
        parts += problem(study)
    there = {study.experiment for study in shown}
    if missing := [f"`{name}`" for name in EXPERIMENTS if name not in there]:
        parts.append(f"No runs with a record of data and code: {', '.join(missing)}.\n")
    parts.append(LIMITS)
    return "\n".join(parts)


def summary(studies: Sequence[Study]) -> str:
    """The README's table: problems whose models have equal budgets and three seeds, fewer columns.

    Behind the seconds of the other model is their ratio to ours.
    """
    equal = [s for s in chosen(studies) if SEARCHED in s.scale or HOURS in s.scale]
    entries = [entry for entry in map(Entry.of, equal) if entry and entry.seeds >= SEEDS]
    lines = []
    for entry in entries:
        cells = entry.short()
        cells[5] += f" ({entry.other.seconds.mean / entry.ours.seconds.mean:.2f}x)"
        lines.append(cells)
    head = ["problem", "CHONN network", "s", "best other model", "its error", "s", "/ ours"]
    return markdown([*head, "given the equation"], lines, (0, 3))


def searches() -> str:
    """What search chose the settings of the README's models, as chosen.json records it."""
    texts = []
    for name, found in json.loads(CHOSEN.read_text(encoding="utf-8")).items():
        families = [entry["budgets"] for entry in found[STEADY_SEARCH]]
        ((trials, seconds),) = {
            (budgets[family]["trials"], budgets[family]["seconds"])
            for budgets in families
            for family in SEARCHED_MODELS
        }
        texts.append(f"{trials} trials of {seconds:g} s for each model on {title(name)}")
    return (
        "A search chose size, learning rate, batch size and epochs of every model: "
        f"{', '.join(texts)}. The other problems were not searched and use the settings of Darcy "
        "flow.\n"
    )


HEADER = (
    *("problem", "data", "model", "parameters", "s", "error", "best other model"),
    *("parameters", "s", "error", "/ ours", "given the equation"),
    *("knows the equation, not the scheme", "published, not ranked"),
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """Ours, the best other model and controls on a problem.

    `given` is given the equation and its scheme, `knows` is the best that knows the equation alone.
    """

    study: Study
    ours: Group
    other: Group
    given: Statistic | None
    knows: Statistic | None

    @classmethod
    def of(cls, study: Study) -> Entry | None:
        """None without two models to compare."""
        found = rows(study)
        ours, others = leader(found), [group for group in found if group.family not in OURS]
        if not ours or not others:
            return None
        controls = {group.variant: error(group, study) for group in study.find(role="control")}
        known = [controls[name] for name in OTHER_SCHEME if name in controls]
        best = min((s for s in known if s.values), key=lambda s: s.mean, default=None)
        return cls(study, ours, others[0], controls.get(OWN_SCHEME), best)

    @property
    def name(self) -> str:
        return f"{study_title(self.study)}, {metric_label(headline(self.study))}"

    @property
    def seeds(self) -> int:
        return min(len(self.ours.runs), len(self.other.runs))

    def values(self, group: Group) -> tuple[str, str]:
        """Mean seconds and the error."""
        return number(group.seconds.mean), str(error(group, self.study))

    def short(self) -> list[str]:
        """Cells of the README."""
        (seconds, ours), (others, other) = self.values(self.ours), self.values(self.other)
        ratio = mean(self.other, self.study) / mean(self.ours, self.study)
        given = str(self.given or "-")
        label = full_label(self.other)
        return [self.name, ours, seconds, label, other, others, f"{ratio:.1f}x", given]

    def row(self) -> list[str]:
        """Cells of `HEADER`: those of `short` with data, sizes, seeds, test and published value."""
        study = self.study
        name, ours, seconds, label, other, others, ratio, given = self.short()
        tested = {"<": "significant", ">": "significant", "≈": "not significant", "?": "no test"}
        verdict = tested[sign(error(self.ours, study), error(self.other, study))]
        return [
            *(name, origin(study, [*self.ours.runs, *self.other.runs])),
            *(full_label(self.ours), f"{self.ours.parameters:,}", seconds),
            *(f"{ours} ({len(self.ours.runs)})", label, f"{self.other.parameters:,}", others),
            *(f"{other} ({len(self.other.runs)})", f"{ratio}, {verdict}"),
            given,
            f"{self.knows} ({self.knows.count})" if self.knows else "-",
            lowest_published() if study.experiment == "fno_darcy" else "-",
        ]


def origin(study: Study, runs: Sequence[Run]) -> str:
    """Number and size of the training samples, and where they come from."""
    files = [file for run in runs for file in run.data.values()]
    made = "published" if all(file.get("official") for file in files) else "generated here"
    digests = {name: set[str]() for run in runs for name in run.data}
    for run in runs:
        for name, file in run.data.items():
            digests[name].add(str(file.get("sha256")))
    config = study.runs[0].config
    size = f"{config['n_train']:,}" if "n_train" in config else "samples"
    if "resolution" in config:
        size += f" of {config['resolution']} x {config['resolution']}"
    twice = ", two files" if any(len(found) > 1 for found in digests.values()) else ""
    return f"{size}, {made}{twice}"


def problem(study: Study) -> Iterator[str]:
    """Heading, budget, table, what its controls show, and figure of a problem."""
    found = rows(study)
    yield f"## {study_title(study)}\n"
    yield f"{budget(study, found)} Runs: [{file_of(study).name}]({file_of(study)}).\n"
    yield f"```\n{command(study)}\n```\n"
    yield from (f"{text}.\n" for text in mixture(study))
    splits = study.splits()
    ours = leader(found)
    controls = [group for group in study.find(role="control") if error(group, study).values]
    lines = []
    for group in [*found, *sorted(controls, key=lambda g: mean(g, study))]:
        values = [error(group, study, split) for split in splits]
        ratio = f"{mean(group, study) / mean(ours, study):.2g}x" if ours else "-"
        seconds = number(group.seconds.mean) if group.seconds.mean else "-"
        cells = [f"{group.parameters:,}", seconds, *map(str, values)]
        lines.append([label(study, group), *cells, ratio, str(len(group.runs))])
    metric = metric_label(headline(study))
    names = [metric, *(f"{metric}, {split.replace('_', ' ')}" for split in splits[1:])]
    yield markdown(["model", "parameters", "training, s", *names, "/ ours", "seeds"], lines)
    if controls and ours and ours.tags.role == "network":
        by_name = {group.variant: group for group in controls}
        proofs = [proof(study, ours, by_name[name]) for name in PROOFS if name in by_name]
        told = [given(by_name[OWN_SCHEME])] if OWN_SCHEME in by_name else []
        yield "\n".join([*told, *proofs]) + "\n"
    if study.experiment == "fno_darcy":
        yield published(study)
    yield f"![Validation error over seconds of training](../figures/{figure_of(study)})\n"


def command(study: Study) -> str:
    """The command that runs those models of a table that conf/model has."""
    scale, _, settings = study.scale.partition("+")
    # The name of a study joins the numbers of a tuple by "-"; the runs tell them from a number.
    config, values = study.runs[0].config, {}
    for name in (text.partition("=")[0] for text in settings.split(",") if text):
        value = config.get(name)
        values[f"problem.{name}"] = (
            value if isinstance(value, float) else str(value).replace(" ", "")
        )
    for name in ("problem.sizes", "problem.hours"):
        scale = "night" if values.pop(name, None) and scale == "paper" else scale
    families = SWEPT.get(study.experiment) or (group.variant for group in study.groups)
    models = [MODELS.get(name, name.replace("-", "_")) for name in dict.fromkeys(families)]
    there = [name for name in models if (CONF / "model" / f"{name}.yaml").exists()]
    parts = [f"problem={study.experiment}", f"model={','.join(there)}"]
    parts += ["problem.target=1,2,3,4", "model.order=1,2,3,4"] * (study.experiment == "order1d")
    parts += ["problem.history=10,5,3"] * (study.experiment == "navier_stokes")
    parts += [f"{name}={value}" for name, value in values.items()]
    parts += [f"scale={scale}"] * (scale != "small")
    seeds = max(len(group.runs) for group in study.groups)
    return f"chonn-lab run {' '.join(parts)} seed={','.join(map(str, range(seeds)))} -m"


def budget(study: Study, found: Sequence[Group]) -> str:
    """Settings and training times of the models of a table."""
    config = study.runs[0].config
    if SEARCHED in study.scale:
        how = f"Searched{elsewhere(study)}"
    elif HOURS in study.scale:
        how = (
            f"Each model trains for the epochs that fit {config['hours']:g} hours of an idle core "
            "by its measured step; sizes are set by hand"
        )
    else:
        epochs = {str(run.config.get("epochs")) for group in found for run in group.runs}
        how = f"{epochs.pop()} epochs" if len(epochs) == 1 else "Each model has its own epochs"
    seconds = [group.seconds.mean for group in found]
    low, high = min(seconds), max(seconds)
    times = f"Training took {number(low)} to {number(high)} s"
    if high <= EQUAL * low:
        return f"{how}. {times}: equal to {EQUAL - 1:.0%}."
    return f"{how}. {times}, a ratio of {high / low:.1f}."


def elsewhere(study: Study) -> str:
    """The problem that was searched, if not this one."""
    own = study.experiment in json.loads(CHOSEN.read_text(encoding="utf-8"))
    return "" if own else " on Darcy flow"


def lowest_published() -> str:
    """The lowest of the published errors, with its model."""
    values = load("published_fno_darcy")["values"]
    best = min(values, key=values.__getitem__)
    return f"{best} {values[best]:.4f}"


def published(study: Study) -> str:
    """Numbers of other people's papers on FNO's Darcy flow, and the order of the models there."""
    found = load("published_fno_darcy")
    values = sorted(found["values"].items(), key=lambda item: item[1])
    texts = ", ".join(f"{name} {value:.4f}" for name, value in values)
    return (
        f"Published {found['metric']} at {found['resolution']} points, {found['note']}: {texts}. "
        "The data above follow the paper's recipe, which differs in details from the script behind "
        "the published files (see the card in `chonn_lab.problems.fno_darcy`)."
        f"{ranking(study, values)}{longer(study)}\n"
    )


def longer(study: Study) -> str:
    """Baselines that were trained for more hours than those of the table."""
    texts = [
        f"{full_label(group)} {number(mean(group, other))} after "
        f"{group.runs[0].config['epochs']} epochs and {number(group.seconds.mean)} s"
        for other in kept()
        if other.experiment == study.experiment and HOURS in other.scale
        if other.runs[0].config["hours"] > study.runs[0].config.get("hours", math.inf)
        for group in other.groups
    ]
    return f" Trained for longer: {', '.join(texts)}." if texts else ""


def ranking(study: Study, values: Sequence[tuple[str, float]]) -> str:
    """The published order of the baselines that are in both lists, and the order here."""
    ours = {PUBLISHED[group.variant]: group for group in study.groups if group.variant in PUBLISHED}
    names = [name for name, _ in values if name in ours]
    if len(names) < 2:
        return ""
    here = sorted(names, key=lambda name: mean(ours[name], study))
    verdict = "the published order" if here == names else "**not** the published order"
    texts = [
        f"{name} ({number(mean(ours[name], study))} after "
        f"{ours[name].runs[0].config['epochs']} epochs)"
        for name in here
    ]
    return (
        f" Published order, lowest error first: {', '.join(names)}. Order here: "
        f"{', '.join(texts)}: {verdict}."
    )


# By control: what it is, and what follows if its error is above the network's, below it, or not
# significantly different.
PROOFS = {
    "direct": (
        "which knows the equation, not the scheme",
        "The network has learned what this scheme lacks for these data, such as walls and faces.",
        "The network does not reach the error of a solver with another scheme.",
        "The network is as good as a solver with another scheme.",
    ),
    "direct-fitted": (
        "which knows the equation and fits walls and faces to the data",
        "The network is better than this scheme can be fitted to be.",
        "The network does not reach the error of the fitted scheme.",
        "The network has reached the error of the fitted scheme.",
    ),
    "solve-cnn": (
        "which knows the equation, not the scheme",
        "The network is better than convolutions can correct this scheme.",
        "Convolutions correct this scheme to an error below the network's.",
        "Convolutions correct this scheme to the network's error.",
    ),
    "network-no-cell": (
        "the network without its solves, of about the same size",
        "The solves lower the error, not the layers around them.",
        "The solves raise the error.",
        "The layers around the solves account for all of it.",
    ),
    "network-constant": (
        "networks whose conductances do not depend on the input, of about the same size",
        "It matters that the conductances follow the input.",
        "Conductances that follow the input raise the error.",
        "Conductances that follow the input show no gain.",
    ),
}


def given(control: Group) -> str:
    """What the control is that is given the equation, and what a solve takes."""
    times = [run.milliseconds for run in control.runs if run.milliseconds is not None]
    cost = f"; {number(statistics.fmean(times), 2)} ms of processor time a sample" if times else ""
    return (
        f"- {full_label(control)} is given the equation: a solve on the data's grid from what the "
        f"models see, with nothing trained{cost}."
    )


def proof(study: Study, network: Group, control: Group) -> str:
    """What a control shows, in a sentence."""
    ours, other = error(network, study), error(control, study)
    what, above, below, alike = PROOFS[control.variant]
    detectable = gap(ours, other).detectable
    shown = f"; smallest detectable difference {number(detectable)}"
    follows = {
        "<": above,
        ">": below,
        "≈": f"{alike[:-1]} (not significant{shown if math.isfinite(detectable) else ''}).",
        "?": "One seed, no test.",
    }[sign(ours, other)]
    return f"- {full_label(control)}, {what}: {follows}"


def draw(studies: Sequence[Study]) -> None:
    """Draw a figure for each problem: validation error over seconds of training, a line a row."""
    for study in chosen(studies):
        with style.styled():
            figure, axes = style.grid(1, 1, 3.2)
            axis = axes[0, 0]
            for at, group in enumerate(rows(study)):
                epochs = next((run.curve["epoch"] for run in group.runs if run.curve), [])
                if not epochs:
                    continue
                each = group.seconds.mean / max(filter(None, epochs))
                style.band(
                    axis,
                    [each * epoch for epoch in epochs if epoch],
                    group.curve("validation_error"),
                    style.look(group)._replace(colour=style.CYCLE[at % len(style.CYCLE)]),
                    full_label(group),
                )
            style.logarithmic(axis.xaxis)
            style.logarithmic(axis.yaxis)
            style.finish(figure, axes, x="seconds of training", y=["validation error"])
            style.save(figure, DOCS / "figures" / figure_of(study))
