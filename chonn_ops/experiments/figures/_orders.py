"""Ablation over the order of the blocks (Fig. 4g)."""

from __future__ import annotations

from matplotlib.figure import Figure

from chonn_ops.experiments import roles
from chonn_ops.experiments.base import Role
from chonn_ops.experiments.figures import _style as style
from chonn_ops.experiments.results import Study
from chonn_ops.experiments.tables import metric_label

SHOWN = ("relative_l1", "range_nrmse", "max_mse")
SPLITS = {"test": ("in distribution", "-"), "out_of_distribution": ("out of distribution", "--")}
PLACES = {
    "ablation": "in the paper's backbone",
    "mixer": "as the only coupling",
    "layer": "the same, one layer",
}


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
        axis.set_xlabel("order (0: no block)")
    panels[0].set_ylabel("error")
    style.legend(figure, axes)
    return figure
