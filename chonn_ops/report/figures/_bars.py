"""All metrics of all models, the gain over the stronger baseline (Fig. 4c, d and 5b, c), and the
ablation over the order of the blocks (Fig. 4g)."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from chonn_ops.report import roles
from chonn_ops.report.comparison import reduction
from chonn_ops.report.figures import _style as style
from chonn_ops.report.results import Study
from chonn_ops.report.roles import Role, representatives, stronger
from chonn_ops.report.tables import full_label, metric_label

COLUMNS = 4
# Inches for a model and for what is around a panel.
HEIGHT = 0.13
AROUND = 0.55
SHOWN = ("relative_l1", "range_nrmse", "max_mse")
SPLITS = {"test": ("in distribution", "-"), "out_of_distribution": ("out of distribution", "--")}
PLACES = {
    "ablation": "in the paper's backbone",
    "mixer": "as the only coupling",
    "layer": "the same, one layer",
}


def metrics(study: Study) -> Figure | None:
    """A panel a metric, a row a model, on logarithmic axes."""
    names = study.metrics()
    groups = study.groups
    if not names or len(groups) < 2:
        return None
    columns = min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    height = rows * (HEIGHT * len(groups) + AROUND) + 0.2
    figure, axes = style.grid(rows, columns, height, sharey=True)
    for axis, name in zip(axes.flat, names, strict=False):
        for row, (group, drawn) in enumerate(zip(groups, style.looks(groups), strict=True)):
            value = group.metric(name)
            if value.count:
                axis.errorbar(
                    [value.mean],
                    [row],
                    xerr=style.errors([value]),
                    fmt=drawn.marker,
                    color=drawn.colour,
                    elinewidth=1,
                )
        style.logarithmic(axis.xaxis)
        style.sparse(axis.xaxis)
        axis.set_title(metric_label(name))
        axis.tick_params("y", length=0, labelsize=7)
        axis.tick_params("x", labelsize=6.5)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    axes[0, 0].set_ylim(len(groups) - 0.4, -0.6)
    axes[0, 0].set_yticks(range(len(groups)), [full_label(group) for group in groups])
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
                    error_kw=style.WHISKERS,
                )
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 0.5), max(high, 2))
    style.logarithmic(axis.xaxis)
    axis.axvline(1, color="#333333", linewidth=0.8)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_yticks(range(len(names)), [metric_label(name) for name in names])
    axis.tick_params("y", length=0)
    axis.grid(visible=False, axis="y")
    return style.finish(figure, axes, x="error / error of the stronger of U-Net and FNO")


def orders(study: Study) -> Figure | None:
    """Error by order on all splits, the baselines as level lines, and the parameters."""
    ladders = {name: roles.orders(study, name) for name in PLACES}
    names = [name for name in SHOWN if name in study.metrics()] or study.metrics()[:3]
    if len(ladders["ablation"]) < 2 or not names:
        return None
    figure, axes = style.grid(1, len(names) + 1, 2.7)
    *panels, sizes = axes[0]
    splits = study.splits()
    for place, found in ladders.items():
        if not found:
            continue
        x, groups = list(found), list(found.values())
        drawn = style.look(groups[0], by_order=False)
        for axis, name in zip(panels, names, strict=True):
            for split, (where, dashes) in SPLITS.items():
                if split in splits:
                    label = f"{PLACES[place]}, {where}" if len(splits) > 1 else PLACES[place]
                    values = [group.metric(name, split) for group in groups]
                    style.line(axis, x, values, drawn._replace(line=dashes), label)
        thousands = [group.parameters / 1000 for group in groups]
        sizes.plot(x, thousands, color=drawn.colour, marker=drawn.marker)
    for axis, name in zip(panels, names, strict=True):
        for group in study.find(role=Role.BASELINE):
            value = group.metric(name)
            if value.count:
                colour = style.look(group).colour
                axis.axhline(value.mean, color=colour, linewidth=1, label=group.label)
        style.logarithmic(axis.yaxis)
        axis.set_title(metric_label(name))
    sizes.set_ylim(bottom=0)
    sizes.set_title("parameters (thousands)")
    for axis in axes[0]:
        axis.set_xticks(sorted({order for found in ladders.values() for order in found}))
    return style.finish(figure, axes, x="order (0: no block)", y=["error"])
