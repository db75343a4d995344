"""All metrics of a comparison, and the gain over the stronger baseline (Fig. 4c, d and 5b, c)."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from chonn_ops.experiments.choice import representatives, stronger
from chonn_ops.experiments.comparison import reduction
from chonn_ops.experiments.figures import _style as style
from chonn_ops.experiments.results import Study
from chonn_ops.experiments.tables import metric_label

HEIGHT = 0.27  # inches for a metric


def metrics(study: Study) -> Figure | None:
    """A row a metric, a mark a model, on a logarithmic axis: the metrics differ by decades."""
    names = study.metrics()
    groups = representatives(study)
    if not names or len(groups) < 2:
        return None
    figure, axes = style.grid(1, 1, HEIGHT * len(names) + 1.1)
    axis = axes[0, 0]
    step = 0.6 / max(len(groups) - 1, 1)
    for index, group in enumerate(groups):
        drawn = style.look(group)
        values = [group.metric(name) for name in names]
        kept = [(row, value) for row, value in enumerate(values) if value.count]
        if kept:
            rows, numbers = zip(*kept, strict=True)
            axis.errorbar(
                [value.mean for value in numbers],
                [row + 0.3 - index * step for row in rows],
                xerr=style.errors(numbers),
                fmt=drawn.marker,
                color=drawn.colour,
                label=group.label,
                elinewidth=1,
            )
    for row in range(1, len(names)):
        axis.axhline(row - 0.5, color="#e4e4e4", linewidth=0.6)
    style.logarithmic(axis.xaxis)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_yticks(range(len(names)), [metric_label(name) for name in names])
    axis.tick_params("y", length=0)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("error on the test split")
    style.legend(figure, axes)
    return figure


def gains(study: Study) -> Figure | None:
    """Bars to the left of 1: CHONN's error is lower than the better baseline's."""
    names = study.metrics()
    ours = [group for group in representatives(study) if group.family == "chonn"]
    if not names or not ours or stronger(study, names[0]) is None:
        return None
    figure, axes = style.grid(1, 1, 0.12 * len(names) * (len(ours) + 1) + 1.1)
    axis = axes[0, 0]
    thickness = 0.8 / len(ours)
    for index, group in enumerate(ours):
        for row, name in enumerate(names):
            baseline = stronger(study, name)
            gain = baseline and reduction(group.metric(name), baseline.metric(name))
            if gain:
                ratio = 1 - gain.mean
                error = 0.0 if math.isnan(gain.error) else gain.error
                axis.barh(
                    row + (index - (len(ours) - 1) / 2) * thickness,
                    ratio - 1,
                    thickness * 0.9,
                    left=1,
                    xerr=[[min(error, 0.9 * ratio)], [error]],
                    log=True,
                    color=style.look(group).colour,
                    label=group.label,
                    error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
                )
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 0.5), max(high, 2))
    style.logarithmic(axis.xaxis)
    axis.axvline(1, color="#333333", linewidth=0.8)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_yticks(range(len(names)), [metric_label(name) for name in names])
    axis.tick_params("y", length=0)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("error / error of the stronger of U-Net and FNO")
    style.legend(figure, axes)
    return figure
