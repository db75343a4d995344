"""Training curves: loss by epoch, validation error by epoch and by seconds (Fig. 4f, 5j)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chonn_ops.experiments.figures import _style as style
from chonn_ops.experiments.figures._order1d import ENDS
from chonn_ops.experiments.results import Group, Study
from chonn_ops.experiments.roles import compared, representatives

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
    for column, (title, groups) in zip(axes.T, columns.items(), strict=True):
        for group, label in groups:
            _validation(group, style.look(group), label, *column)
        column[0].set_title(title)
        for axis, label in zip(column, ("epoch", "training time (s)"), strict=True):
            style.logarithmic(axis.yaxis)
            axis.set_xlabel(label)
        style.whole_numbers(column[0].xaxis)
    for axis in axes[:, 0]:
        axis.set_ylabel("validation error")
    style.legend(figure, axes)
    return figure


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
