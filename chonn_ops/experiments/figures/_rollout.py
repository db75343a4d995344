"""Rollouts of Navier-Stokes by the length of the history (Fig. 5e, f)."""

from __future__ import annotations

from matplotlib.figure import Figure

from chonn_ops.experiments.figures import _style as style
from chonn_ops.experiments.results import Group, Study
from chonn_ops.experiments.roles import compared

CURVE = "rollout_relative_l2"
CURVES = {
    CURVE: "relative L2,\nfrom own predictions",
    "one_step_relative_l2": "relative L2,\nfrom true frames",
}


def histories(study: Study) -> list[int]:
    """Longest first."""
    return sorted({g.tags.history for g in study.groups if g.tags.history}, reverse=True)


def _models(study: Study, history: int) -> list[Group]:
    return [group for group in compared(study) if group.tags.history == history]


def averages(study: Study) -> Figure | None:
    """Bars of the mean error over the rollout."""
    shown = histories(study)
    if not shown or CURVE not in study.metrics():
        return None
    figure, axes = style.grid(1, len(shown), 2.6, sharey=True)
    for axis, history in zip(axes[0], shown, strict=True):
        groups = _models(study, history)
        values = [group.metric(CURVE) for group in groups]
        for place, (group, value) in enumerate(zip(groups, values, strict=True)):
            if value.count:
                axis.bar(
                    place,
                    value.mean,
                    0.75,
                    yerr=style.errors([value]),
                    color=style.look(group).colour,
                    error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
                )
        labels = [group.label for group in groups]
        axis.set_xticks(range(len(groups)), labels, rotation=35, ha="right")
        axis.set_title(f"{history} frames to 1")
        axis.grid(visible=False, axis="x")
    axes[0, 0].set_ylabel("rollout relative L2,\nmean over the steps")
    return figure


def steps(study: Study) -> Figure | None:
    """Error of every predicted frame, a band of one standard deviation over the seeds."""
    columns = {f"{history} frames to 1": _models(study, history) for history in histories(study)}
    columns = columns or {"": list(study.groups)}
    curves = [name for name in CURVES if any(group.curve(name) for group in study.groups)]
    if not curves:
        return None
    figure, axes = style.grid(len(curves), len(columns), 2.0 * len(curves) + 0.7, sharey="row")
    for row, name in zip(axes, curves, strict=True):
        for axis, groups in zip(row, columns.values(), strict=True):
            for group in groups:
                curve = group.curve(name)
                style.band(axis, range(1, len(curve) + 1), curve, style.look(group), group.label)
            style.logarithmic(axis.yaxis)
        row[0].set_ylabel(CURVES[name])
    for axis, title in zip(axes[0], columns, strict=True):
        axis.set_title(title)
    for axis in axes[-1]:
        axis.set_xlabel("predicted step")
        style.whole_numbers(axis.xaxis)
    style.legend(figure, axes)
    return figure
