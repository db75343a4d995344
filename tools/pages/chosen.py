"""Which study and which of its models docs/results.md shows of a problem."""

from __future__ import annotations

from collections.abc import Sequence

from chonn_ops.report import roles
from chonn_ops.report.comparison import Statistic
from chonn_ops.report.results import Group, Study
from chonn_ops.report.scoreboard import scaled_down
from chonn_ops.report.tables import MARK, full_label

ROWS = 8
# Settings in the names of studies at equal wall-clock: of a search, or by measured steps.
SECONDS, HOURS = "sizes=seconds", "hours="
# Of forecasts, the score that is quoted for the problem; else a study's first one.
HEADLINE = {"shallow_water": "nrmse"}
OURS = ("chonn", "stack")
ASIDE = ("control", "probe", "layer", "mixer", "ablation")


def chosen(studies: Sequence[Study], experiment: str) -> Study | None:
    """Of a problem's studies, the one at equal wall-clock, else the largest scale."""
    found = [study for study in studies if study.experiment == experiment]
    ranks = {"paper": 1, "small": 2}
    return min(
        found,
        key=lambda s: (SECONDS not in s.scale, ranks.get(s.scale.partition("+")[0], 3), s.scale),
        default=None,
    )


def headline(study: Study) -> str:
    return HEADLINE.get(study.experiment) or study.metrics()[0]


def error(group: Group, study: Study, split: str = "test") -> Statistic:
    return group.metric(headline(study), split)


def rows(study: Study) -> list[Group]:
    """Ours, the paper's CHONN and the baselines with the lowest errors, the lowest first."""
    tags = [group.tags for group in study.groups]
    hardest = {
        name: max(getattr(tag, name) for tag in tags)
        for name in ("target", "history")
        if all(getattr(tag, name) for tag in tags)
    }
    found = [
        group
        for group in study.find(**hardest)
        if group.tags.role not in ASIDE and not group.tags.equal_parameters
    ]
    if not hardest:
        found += [group for group in [roles.papers(study)] if group and group not in found]
    found = sorted((g for g in found if error(g, study).values), key=lambda g: mean(g, study))
    kept = [group for group in found if group.family in OURS]
    others = [group for group in found if group not in kept]
    # At least half of the rows are for the others.
    kept = kept[: max(ROWS - len(others), ROWS // 2)]
    return sorted([*kept, *others[: ROWS - len(kept)]], key=lambda g: mean(g, study))


def mean(group: Group, study: Study) -> float:
    return error(group, study).mean


def leader(found: Sequence[Group]) -> Group | None:
    """Ours: the network where there is one, else the CHONN with the lowest error."""
    ours = [group for group in found if group.family in OURS]
    return next((g for g in ours if g.tags.role == "network"), next(iter(ours), None))


def label(study: Study, group: Group) -> str:
    """With what has to be said of the model and its results."""
    smaller = scaled_down(study) and group.tags.role not in ("network", "best", "control")
    mark = "" if all(run.provenance.known for run in group.runs) else MARK
    return f"{full_label(group)}{', scaled down' if smaller else ''}{mark}"
