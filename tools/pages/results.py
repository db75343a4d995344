"""docs/results.md: a table of at most eight rows, a figure and a sentence for each problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pages.blocks import RESULTS, ROOT, load, markdown
from pages.chosen import (
    HOURS,
    OURS,
    SECONDS,
    chosen,
    error,
    headline,
    label,
    leader,
    mean,
    rows,
)
from pages.controls import controls

from chonn_ops.experiments import EXPERIMENTS, get
from chonn_ops.experiments._steady_models import searches
from chonn_ops.report.comparison import LEVEL, gap, number, sign
from chonn_ops.report.figures import _style as style
from chonn_ops.report.results import Group, Study
from chonn_ops.report.tables import MARK, full_label, metric_label, study_title

DOCS = ROOT / "docs"
# Wall-clock times that differ by less are called about equal.
ABOUT = 1.5
# Names of the published table, by variant.
PUBLISHED = {
    "fno-neuralop": "FNO",
    "ffno": "F-FNO",
    "transolver": "Transolver",
    "galerkin": "Galerkin Transformer",
    "uno": "U-NO",
}
INTRODUCTION = f"""# Results

Two minutes; the evidence is in [claims.md](claims.md), how to run it in [experiments.md](experiments.md). Generated from `docs/results/` and `benchmarks/results/`; nobody types a number.

Numbers are means ± standard deviations over seeds. < and > are one-sided Welch tests at {LEVEL:.0%} in the direction shown, so that looking both ways is a two-sided test at {2 * LEVEL:.0%}; ≈ is neither, ? is a single seed. "Scaled down" models are smaller than in their publications. {MARK.strip()} has no record of its data and model code. "T4 2x3" is the benchmark's target of order 4, learned by three blocks of order 2 in a row.
"""  # noqa: E501
LIMITS = """## Limits

- Small data, small models, minutes on a CPU: nothing here says what happens at the sizes of the publications, and published numbers come from other machines, data and budgets.
- The problems are ours to choose: elliptic ones, where a solver is the right prior, are most of them. [Helmholtz](experiments.md#further-problems) is the one that it must fail on.
- The test of a claim is of its seeds: it knows nothing of other data, and looking both ways, it calls one of ten true equalities a difference.
- Data are made here where no published file is named; their generators follow the publications, the random numbers do not.
"""  # noqa: E501


def results_page(studies: Sequence[Study]) -> str:
    """The page, whatever studies there are."""
    shown = [study for name in EXPERIMENTS if (study := chosen(studies, name))]
    parts = [INTRODUCTION]
    for study in shown:
        parts += problem(study)
    parts += controls(studies)
    parts += curves()
    missing = [name for name in EXPERIMENTS if not chosen(studies, name)]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        parts.append(f"Not run yet: {names}.\n")
    parts.append(LIMITS)
    return "\n".join(parts)


def equal_wall_clock(studies: Sequence[Study]) -> str:
    """A line for each problem whose models had the same time: ours, the best other, the solver."""
    lines = []
    for study in filter(None, (chosen(studies, name) for name in EXPERIMENTS)):
        found = rows(study)
        ours, others = leader(found), [group for group in found if group.family not in OURS]
        if (SECONDS not in study.scale and HOURS not in study.scale) or not ours or not others:
            continue
        a, b = error(ours, study), error(others[0], study)
        told = [error(group, study) for group in study.find(role="control")]
        best = min((value for value in told if value.values), key=lambda s: s.mean, default=None)
        names = f"{study_title(study)}, {metric_label(headline(study))}"
        lines.append([names, str(a), full_label(others[0]), str(b), f"{b.mean / a.mean:.1f}x"])
        lines[-1].append(str(best) if best else "-")
    head = ["problem", "CHONN network", "best of the others", "its error", "/ ours"]
    return markdown([*head, "solve that knows the equation"], lines)


def problem(study: Study) -> Iterator[str]:
    yield f"## {study_title(study)}\n"
    found = rows(study)
    yield f"{finding(study, found)}\n"
    yield f"{budget(study, found)}\n"
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
    figure = Path("figures") / f"results-{study.experiment}.svg"
    yield f"![Validation error over seconds of training]({figure})\n"


def finding(study: Study, found: Sequence[Group]) -> str:
    """Ours and the best of the others, in a sentence."""
    ours = leader(found)
    others = [group for group in found if group.family not in OURS]
    if not ours or not others:
        return "Nothing to compare yet."
    other = others[0]
    a, b = error(ours, study), error(other, study)
    ratio, what = b.mean / a.mean, metric_label(headline(study))
    decided = {
        "<": "ours is lower",
        ">": "ours is higher",
        "≈": f"not told apart, a difference of {number(gap(a, b).detectable)} would have been",
        "?": "a single seed, not tested",
    }[sign(a, b)]
    picked = "" if ours.tags.role == "network" else " (the best of ours)"
    return (
        f"**{what[0].upper()}{what[1:]} of {full_label(ours)}{picked}: {a}. Of the best of the "
        f"others, {full_label(other)}: {b}, {ratio:.2g} times that ({decided}).**"
    )


def budget(study: Study, found: Sequence[Group]) -> str:
    """What the models of a table have in common."""
    config = study.runs[0].config
    size = f"{config.get('n_train')} samples"
    if "resolution" in config:
        size += f", {config['resolution']} points a side"
    if SECONDS in study.scale:
        return (
            f"Equal wall-clock: {size}; size, learning rate, batch and epochs of each model are "
            "those with the lowest validation error in a search of equal cost"
            f"{elsewhere(study)}. The epochs fit the same seconds of an idle core; the seconds in "
            "the table are those of the runs."
        )
    if HOURS in study.scale:
        return (
            f"Equal wall-clock: {size}; as many epochs of each model as fit {config['hours']:g} "
            "hours of an idle core by its measured steps, of sizes set by hand. The seconds in the "
            "table are those of the runs, on a core that had other work."
        )
    epochs = {run.config.get("epochs") for group in found for run in group.runs}
    same = f"Equal data and epochs, {size}, {epochs.pop()} epochs"
    seconds = [group.seconds.mean for group in found]
    about = "**not**" if max(seconds) > ABOUT * min(seconds) else "about"
    return f"{'Equal data, ' + size if epochs else same}; {about} equal wall-clock: see the table."


def elsewhere(study: Study) -> str:
    """Where a search was made if not on the problem itself."""
    searched = getattr(get(study.experiment), "searched", ())
    if not searched or study.experiment in searches():
        return ""
    return " on " + ", ".join(get(name).title for name in searched)


def published(study: Study) -> str:
    """Of FNO's Darcy flow, what other people report, and whether ours stand in their order."""
    found = load("published_fno_darcy")
    values = sorted(found["values"].items(), key=lambda item: item[1])
    texts = ", ".join(f"{name} {value:.4f}" for name, value in values)
    return (
        f"Published {found['metric']} at {found['resolution']} points, {found['note']}: {texts}. "
        "The runs above are of data made here by the paper's recipe, which differs in details from "
        "the script behind the published files (the card of `chonn_ops.problems.fno_darcy` says "
        f"where): to be read beside each other, not as one ranking.{ranking(study, values)}\n"
    )


def ranking(study: Study, values: Sequence[tuple[str, float]]) -> str:
    """Of the baselines that are in both, the published order and the one here."""
    ours = {PUBLISHED[group.variant]: group for group in study.groups if group.variant in PUBLISHED}
    names = [name for name, _ in values if name in ours]
    if len(names) < 2:
        return ""
    here = sorted(names, key=lambda name: mean(ours[name], study))
    verdict = "the published order" if here == names else "**not** the published order"
    texts = [
        f"{name} ({number(mean(group, study))} after {group.runs[0].config['epochs']} epochs)"
        for name, group in ((name, ours[name]) for name in here)
    ]
    return (
        f" Lowest first, the publications have {', '.join(names)}; here it is {', '.join(texts)}: "
        f"{verdict}."
    )


# By axis: what the other settings do along it.
ALONG = {
    "samples": (
        "Every model takes about as many steps from few samples as from many, within the same time "
        "of an idle core. The rate falls from epoch to epoch as a cosine: where many samples leave "
        "few epochs, it never becomes small, which is part of the errors there."
    ),
}


def curves() -> Iterator[str]:
    """What `curves.py` has left with the docs."""
    names = sorted(path.stem for path in RESULTS.glob("curves-*.json"))
    if names:
        yield "## Curves\n"
    for name in names:
        record = load(name)
        seeds = len({run["seed"] for run in record["results"]})
        count = "one seed" if seeds == 1 else f"{seeds} seeds"
        title = f"{get(record['problem']).title}, error over {record['over']}, {count}"
        epochs = [run["epochs"] for run in record["results"]]
        yield f"![{title}](figures/{name}.svg)\n"
        spread = f"{min(epochs)} to {max(epochs)} epochs"
        yield f"*{title}, {spread}.* {ALONG.get(record['over'], '')}".rstrip() + "\n"


def draw(studies: Sequence[Study]) -> None:
    """Of each problem: validation error over seconds of training, a line a row."""
    for study in filter(None, (chosen(studies, name) for name in EXPERIMENTS)):
        with style.styled():
            figure, axes = style.grid(1, 1, 3.2)
            axis = axes[0, 0]
            for at, group in enumerate(rows(study)):
                epochs = next((run.curve["epoch"] for run in group.runs if run.curve), [])
                if not epochs:
                    continue
                each = group.seconds.mean / max(filter(None, epochs))
                look = style.look(group)._replace(colour=style.CYCLE[at])
                style.band(
                    axis,
                    [each * epoch for epoch in epochs if epoch],
                    group.curve("validation_error"),
                    look,
                    full_label(group),
                )
            style.logarithmic(axis.xaxis)
            style.logarithmic(axis.yaxis)
            style.finish(figure, axes, x="seconds of training", y=["validation error"])
            path = DOCS / "figures" / f"results-{study.experiment}.svg"
            style.save(figure, path)
