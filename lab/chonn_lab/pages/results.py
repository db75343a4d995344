"""docs/lab/results.md: a table of at most eight rows, a figure and a sentence for each problem."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from chonn_lab.experiments import EXPERIMENTS, get
from chonn_lab.pages.blocks import load
from chonn_lab.paths import DOCS
from chonn_lab.report import style
from chonn_lab.report.claims import papers, scaled_down
from chonn_lab.report.comparison import LEVEL, Statistic, gap, number, sign
from chonn_lab.report.document import markdown
from chonn_lab.report.results import Group, Study
from chonn_lab.report.tables import full_label, metric_label, mixture, study_title

ROWS = 8
# In the name of a study: its models have the settings that won a search, or train for so long.
SEARCHED, HOURS = "sizes=seconds", "hours="
# The score that is quoted for a problem; else the first one of the study.
HEADLINE = {"shallow_water": "nrmse"}
OURS = ("chonn", "stack")
ASIDE = ("control", "probe", "ablation")
# Training times count as equal if the longest is at most so many times the shortest.
EQUAL = 1.1
# Names in the published table, by variant.
PUBLISHED = {
    "fno-neuralop": "FNO",
    "ffno": "F-FNO",
    "transolver": "Transolver",
    "galerkin": "Galerkin Transformer",
    "uno": "U-NO",
}
INTRODUCTION = f"""# Results

One table for each problem whose runs record data, code and seconds. [claims.md](claims.md) judges the paper's claims, [experiments.md](experiments.md) says how to run each study. The page is generated from `lab/results/`.

Numbers are means ± standard deviations over seeds. "Significant" is Welch's one-sided t-test at {LEVEL:.0%}; testing both directions makes it two-sided at {2 * LEVEL:.0%}. Seconds are measured in the runs, on one thread of a machine that also did other work. "Scaled down" models are smaller than in their publications.
"""  # noqa: E501
LIMITS = """## Limits

- Data, models and budgets are small: minutes on a CPU. Nothing here shows what happens at the sizes of the publications.
- Most of the problems are elliptic, where a circuit solver is the right prior. [Helmholtz](experiments.md#further-problems) is a problem that the network must fail on.
- The test knows the spread over seeds, not over data sets, and calls one of ten true equalities a difference.
- Where no published file is named, the data are generated here by the recipe of the publication.
"""  # noqa: E501


def chosen(studies: Sequence[Study], experiment: str) -> Study | None:
    """The study that is shown: with the searched settings, else the largest scale.

    Studies whose runs do not all record their data and code are left out.
    """
    found = [
        study
        for study in studies
        if study.experiment == experiment and all(run.provenance.known for run in study.runs)
    ]
    ranks = {"paper": 1, "small": 2}
    return min(
        found,
        key=lambda s: (SEARCHED not in s.scale, ranks.get(s.scale.partition("+")[0], 3), s.scale),
        default=None,
    )


def headline(study: Study) -> str:
    return HEADLINE.get(study.experiment) or study.metrics()[0]


def error(group: Group, study: Study, split: str = "test") -> Statistic:
    return group.metric(headline(study), split)


def mean(group: Group, study: Study) -> float:
    return error(group, study).mean


def rows(study: Study) -> list[Group]:
    """Ours, the paper's CHONN and the baselines with the lowest errors, the lowest first."""
    tags = [group.tags for group in study.groups]
    hardest = {
        name: max(getattr(tag, name) for tag in tags)
        for name in ("target", "history")
        if all(getattr(tag, name) for tag in tags)
    }
    found = [group for group in study.find(**hardest) if group.tags.role not in ASIDE]
    if not hardest:
        found += [group for group in [papers(study)] if group and group not in found]
    found = sorted((g for g in found if error(g, study).values), key=lambda g: mean(g, study))
    kept = [group for group in found if group.family in OURS]
    others = [group for group in found if group not in kept]
    # At least half of the rows are for the others.
    kept = kept[: max(ROWS - len(others), ROWS // 2)]
    return sorted([*kept, *others[: ROWS - len(kept)]], key=lambda g: mean(g, study))


def leader(found: Sequence[Group]) -> Group | None:
    """Ours: the network where there is one, else the CHONN with the lowest error."""
    ours = [group for group in found if group.family in OURS]
    return next((g for g in ours if g.tags.role == "network"), next(iter(ours), None))


def label(study: Study, group: Group) -> str:
    smaller = scaled_down(study) and group.tags.role not in ("network", "control")
    return f"{full_label(group)}{', scaled down' if smaller else ''}"


def results_page(studies: Sequence[Study]) -> str:
    """The whole page, whatever studies there are."""
    parts = [INTRODUCTION]
    for study in filter(None, (chosen(studies, name) for name in EXPERIMENTS)):
        parts += problem(study)
    parts += controls(studies)
    missing = [f"`{name}`" for name in EXPERIMENTS if not chosen(studies, name)]
    if missing:
        parts.append(f"No runs with a record of data and code: {', '.join(missing)}.\n")
    parts.append(LIMITS)
    return "\n".join(parts)


def summary(studies: Sequence[Study]) -> str:
    """A line for each problem with a search: ours, the best other, a solver; seconds of each."""
    lines = []
    for study in filter(None, (chosen(studies, name) for name in EXPERIMENTS)):
        found = rows(study)
        ours, others = leader(found), [group for group in found if group.family not in OURS]
        if (SEARCHED not in study.scale and HOURS not in study.scale) or not ours or not others:
            continue
        controls = [error(group, study) for group in study.find(role="control")]
        best = min((s for s in controls if s.values), key=lambda s: s.mean, default="-")
        lines.append(
            [
                f"{study_title(study)}, {metric_label(headline(study))}",
                *(str(error(ours, study)), number(ours.seconds.mean)),
                *(full_label(others[0]), str(error(others[0], study))),
                number(others[0].seconds.mean),
                f"{mean(others[0], study) / mean(ours, study):.1f}x",
                str(best),
            ]
        )
    head = ["problem", "CHONN network", "s", "best other model", "its error", "s", "/ ours"]
    return markdown([*head, "solve that knows the equation, corrected or fitted"], lines, (0, 3))


def problem(study: Study) -> Iterator[str]:
    """Heading, sentence, budget, table and figure of a problem."""
    found = rows(study)
    yield f"## {study_title(study)}\n"
    yield f"{finding(study, found)}\n"
    yield f"{budget(study, found)}\n"
    yield from (f"{text}.\n" for text in mixture(study))
    splits = [split for split in study.splits() if split in ("test", "out_of_distribution")]
    ours = leader(found)
    lines = []
    for group in found:
        values = [error(group, study, split) for split in splits]
        ratio = f"{mean(group, study) / mean(ours, study):.2g}x" if ours else "-"
        cells = [f"{group.parameters:,}", number(group.seconds.mean), *map(str, values)]
        lines.append([label(study, group), *cells, ratio, str(len(group.runs))])
    metric = metric_label(headline(study))
    names = [metric, *(f"{metric}, {split.replace('_', ' ')}" for split in splits[1:])]
    yield markdown(["model", "parameters", "training, s", *names, "/ ours", "seeds"], lines)
    if study.experiment == "fno_darcy":
        yield published(study)
    figure = f"../figures/results-{study.experiment}.svg"
    yield f"![Validation error over seconds of training]({figure})\n"


def finding(study: Study, found: Sequence[Group]) -> str:
    """Ours and the best other model, in a sentence."""
    ours = leader(found)
    others = [group for group in found if group.family not in OURS]
    if not ours or not others:
        return "Nothing to compare yet."
    a, b = error(ours, study), error(others[0], study)
    ratio, what = b.mean / a.mean, metric_label(headline(study))
    decided = {
        "<": "significant",
        ">": "ours is significantly higher",
        "≈": f"not significant; smallest detectable difference {number(gap(a, b).detectable)}",
        "?": "one seed, no test",
    }[sign(a, b)]
    return (
        f"**{what[0].upper()}{what[1:]}: {full_label(ours)} {a}, the best other model, "
        f"{full_label(others[0])}, {b}: {ratio:.2g} times that ({decided}).**"
    )


def budget(study: Study, found: Sequence[Group]) -> str:
    """Data, settings and training times of the models of a table."""
    config = study.runs[0].config
    size = f"{config.get('n_train')} training samples"
    if "resolution" in config:
        size += f", {config['resolution']} points a side"
    if SEARCHED in study.scale:
        how = (
            "size, learning rate, batch size and epochs of each model won a search of the same "
            f"budget{elsewhere(study)}, by the validation error"
        )
    elif HOURS in study.scale:
        how = (
            f"each model trains for the epochs that fit {config['hours']:g} hours of an idle core "
            "by its measured step; sizes are set by hand"
        )
    else:
        epochs = {str(run.config.get("epochs")) for group in found for run in group.runs}
        how = f"{epochs.pop()} epochs" if len(epochs) == 1 else "each model has its own epochs"
    seconds = [group.seconds.mean for group in found]
    low, high = min(seconds), max(seconds)
    times = f"Training took {number(low)} to {number(high)} s"
    if high <= EQUAL * low:
        return f"{size}; {how}. {times}: equal to {EQUAL - 1:.0%}."
    return f"{size}; {how}. {times}, a ratio of {high / low:.1f}."


def elsewhere(study: Study) -> str:
    """The problem that was searched, if not this one."""
    chosen_for = getattr(get(study.experiment), "searched", ())
    return " on " + ", ".join(get(name).title for name in chosen_for) if chosen_for else ""


def published(study: Study) -> str:
    """Numbers of other people's papers on FNO's Darcy flow, and the order of the models there."""
    found = load("published_fno_darcy")
    values = sorted(found["values"].items(), key=lambda item: item[1])
    texts = ", ".join(f"{name} {value:.4f}" for name, value in values)
    return (
        f"Published {found['metric']} at {found['resolution']} points, {found['note']}: {texts}. "
        "The runs above use data generated here by the paper's recipe, which differs in details "
        "from the script behind the published files (see the card in "
        f"`chonn_lab.problems.fno_darcy`), so the two lists are no common ranking."
        f"{ranking(study, values)}\n"
    )


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
        "a finite-volume solve on the input's own grid that knows the equation",
        "The network has learned what this scheme lacks for these data, such as walls and faces.",
        "If you know the equation and its coefficients, use a solver instead.",
        "The network is as good as a solver that knows the equation.",
    ),
    "direct-fitted": (
        "the same with walls and faces fitted to the data",
        "The network is better than this scheme can be fitted to be.",
        "This is the lowest error that a network could reach by finding the scheme.",
        "The network has reached the error of the fitted scheme.",
    ),
    "solve-cnn": (
        "a finite-volume solve corrected by convolutions",
        "One solve and a small network behind it do not replace the learned networks.",
        "A solver that knows the equation, with a few convolutions, beats learned networks.",
        "A solver that knows the equation, with a few convolutions, does as well.",
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


def controls(studies: Sequence[Study]) -> Iterator[str]:
    """A row and a sentence for each control, in every study that has them beside a network."""
    yield "## Controls\n"
    found = with_controls(studies)
    if not found:
        yield (
            "No study has controls yet: `chonn-lab run darcy --variants network,network-no-cell,"
            "network-constant,direct,direct-fitted,solve-cnn --seeds 5`, likewise Poisson.\n"
        )
    for study in found:
        (network,) = study.find(role="network")
        groups = [network, *study.find(role="control")]
        lines = [
            [
                *(label(study, group), f"{group.parameters:,}", number(group.seconds.mean)),
                str(error(group, study)),
                f"{mean(group, study) / mean(network, study):.2g}x",
                str(len(group.runs)),
            ]
            for group in sorted(groups, key=lambda g: mean(g, study))
        ]
        yield f"### {study_title(study)}\n"
        header = ["model", "parameters", "training, s", metric_label(headline(study))]
        yield markdown([*header, "/ network", "seeds"], lines)
        by_name = {group.variant: group for group in groups}
        proofs = [proof(study, network, by_name[name]) for name in PROOFS if name in by_name]
        yield "\n".join(filter(None, proofs)) + "\n"


def with_controls(studies: Sequence[Study]) -> list[Study]:
    """For each problem, the study with most controls beside a network."""
    found: dict[str, Study] = {}
    for study in sorted(studies, key=lambda s: (len(s.find(role="control")), SEARCHED in s.scale)):
        networks = study.find(role="network")
        if study.find(role="control") and any(error(group, study).values for group in networks):
            found[study.experiment] = study
    return [found[name] for name in EXPERIMENTS if name in found]


def proof(study: Study, network: Group, control: Group) -> str:
    """What a control shows, in a sentence; empty without a number."""
    ours, other = error(network, study), error(control, study)
    if not other.values:
        return ""
    what, above, below, alike = PROOFS[control.variant]
    detectable = gap(ours, other).detectable
    shown = f"; smallest detectable difference {number(detectable)}"
    follows = {
        "<": above,
        ">": below,
        "≈": f"{alike[:-1]} (not significant{shown if math.isfinite(detectable) else ''}).",
        "?": "One seed, no test.",
    }[sign(ours, other)]
    return (
        f"- {full_label(control)} ({what}): {other.mean / ours.mean:.2g} times the network's "
        f"error. {follows}"
    )


def draw(studies: Sequence[Study]) -> None:
    """Draw a figure for each problem: validation error over seconds of training, a line a row."""
    for study in filter(None, (chosen(studies, name) for name in EXPERIMENTS)):
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
                    style.look(group)._replace(colour=style.CYCLE[at]),
                    full_label(group),
                )
            style.logarithmic(axis.xaxis)
            style.logarithmic(axis.yaxis)
            style.finish(figure, axes, x="seconds of training", y=["validation error"])
            style.save(figure, DOCS / "figures" / f"results-{study.experiment}.svg")
