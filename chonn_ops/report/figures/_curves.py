"""Curves: loss and validation error by epoch and by seconds (Fig. 4f, 5j), and rollouts by step and
by the length of the history (Fig. 5e, f)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chonn_ops.report.figures import _style as style
from chonn_ops.report.figures._order1d import ENDS
from chonn_ops.report.results import Group, Study
from chonn_ops.report.roles import compared, representatives

CURVE = "rollout_relative_l2"
CURVES = {
    CURVE: "relative L2,\nfrom own predictions",
    "one_step_relative_l2": "relative L2,\nfrom true frames",
}
KINDS = {"chonn": ("order", "order n"), "depth": ("depth", "n first-order blocks")}


def curves(study: Study) -> Figure | None:
    """The models that stand for the others."""
    if not any(run.curve.get("epoch") for run in study.runs):
        return None
    figure, axes = style.grid(1, 3, 2.9)
    loss, by_epoch, by_seconds = axes[0]
    groups = representatives(study)
    for group, look in zip(groups, style.looks(groups), strict=True):
        style.band(loss, _epochs(group), group.curve("train_loss"), look, group.label)
        _validation(group, look, group.label, by_epoch, by_seconds)
    for axis, title, label in (
        (loss, "training loss", "epoch"),
        (by_epoch, "validation error", "epoch"),
        (by_seconds, "validation error", "training time (s)"),
    ):
        style.logarithmic(axis.yaxis)
        axis.set_title(title)
        axis.set_xlabel(label)
        if label == "epoch":
            style.whole_numbers(axis.xaxis)
    style.legend(figure, axes)
    return figure


def matched_orders(study: Study) -> Figure | None:
    """Of the order-defined benchmark: where block order or depth is the target's order."""
    columns: dict[str, list[tuple[Group, str]]] = {}
    for group in study.groups:
        target, tags = group.tags.target, group.tags
        key, kind = KINDS.get(group.family, ("", ""))
        if key and target > 1 and tags.has(**{key: target}, equal_parameters=False):
            label = f"{kind}, {ENDS[tags.termination]}"
            columns.setdefault(f"n = {target}, target T{target}", []).append((group, label))
    return _columns(columns)


def histories(study: Study) -> Figure | None:
    """Of forecasts from several numbers of frames."""
    columns: dict[str, list[tuple[Group, str]]] = {}
    for group in compared(study):
        title = f"{group.tags.history} frames to 1"
        columns.setdefault(title, []).append((group, group.label))
    return _columns(columns)


def _columns(columns: Mapping[str, Iterable[tuple[Group, str]]]) -> Figure | None:
    """A column of panels each: validation error by epoch, and by seconds."""
    if not columns:
        return None
    figure, axes = style.grid(2, len(columns), 4.2, sharey="row")
    for column, groups in zip(axes.T, columns.values(), strict=True):
        for group, label in groups:
            _validation(group, style.look(group), label, *column)
        for axis in column:
            style.logarithmic(axis.yaxis)
        column[0].set_xlabel("epoch")
        style.whole_numbers(column[0].xaxis)
    return style.finish(figure, axes, columns, "training time (s)", ["validation error"] * 2)


def _epochs(group: Group) -> list[int]:
    found = next((run.curve["epoch"] for run in group.runs if run.curve.get("epoch")), [])
    return [int(epoch) for epoch in found if epoch is not None]


def _validation(
    group: Group, look: style.Look, label: str, by_epoch: Axes, by_seconds: Axes
) -> None:
    epochs = _epochs(group)
    if not epochs:
        return
    error = group.curve("validation_error")
    style.band(by_epoch, epochs, error, look, label)
    # The epochs of a run take equally long.
    each = group.seconds.mean / epochs[-1]
    style.band(by_seconds, [each * epoch for epoch in epochs], error, look, label)


def _lengths(study: Study) -> list[int]:
    """Longest first."""
    return sorted({g.tags.history for g in study.groups if g.tags.history}, reverse=True)


def _models(study: Study, history: int) -> list[Group]:
    return [group for group in compared(study) if group.tags.history == history]


def averages(study: Study) -> Figure | None:
    """Bars of the mean error over the rollout."""
    shown = _lengths(study)
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
                    error_kw=style.WHISKERS,
                )
        labels = [group.label for group in groups]
        axis.set_xticks(range(len(groups)), labels, rotation=35, ha="right")
        axis.set_title(f"{history} frames to 1")
        axis.grid(visible=False, axis="x")
    axes[0, 0].set_ylabel("rollout relative L2,\nmean over the steps")
    return figure


def steps(study: Study) -> Figure | None:
    """Error of every predicted frame, a band of one standard deviation over the seeds."""
    columns = {f"{history} frames to 1": _models(study, history) for history in _lengths(study)}
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
    for axis in axes[-1]:
        style.whole_numbers(axis.xaxis)
    return style.finish(figure, axes, columns, "predicted step", [CURVES[name] for name in curves])
