"""Order-defined benchmark: error by order and depth, reduction, parameters (Fig. 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from chonn_ops.report.comparison import reduction
from chonn_ops.report.figures import _style as style
from chonn_ops.report.results import Group, Study
from chonn_ops.report.roles import by_size, order_and_depth
from chonn_ops.report.tables import metric_label

ENDS = {"matched": "from rest", "ring": "periodic"}
# Family, whether narrowed to the parameters of the block of order n, and what it is.
KINDS = (
    ("chonn", False, "one block of order n"),
    ("depth", False, "n first-order blocks"),
    ("depth", True, "n first-order blocks, equal parameters"),
)
DERIVATIVE = "derivative"


def targets(study: Study) -> list[int]:
    return sorted({group.tags.target for group in study.groups if group.tags.target})


def ends(study: Study) -> list[str]:
    found = {group.tags.termination for group in study.groups}
    return [name for name in ENDS if name in found]


def by_order(study: Study) -> Figure | None:
    names, orders = study.metrics(), targets(study)
    if not names or not orders:
        return None
    figure, axes = style.grid(
        len(names), len(orders), 1.6 * len(names) + 0.7, sharex=True, sharey="row"
    )
    for row, name in zip(axes, names, strict=True):
        for axis, target in zip(row, orders, strict=True):
            for end in ends(study):
                for family, equal, kind in KINDS:
                    groups = by_size(study, family, target, end, equal)
                    if groups:
                        drawn = style.look(groups[max(groups)])
                        values = [group.metric(name) for group in groups.values()]
                        style.line(axis, list(groups), values, drawn, f"{kind}, {ENDS[end]}")
            style.logarithmic(axis.yaxis)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    titles = [f"target T{target}" for target in orders]
    return style.finish(figure, axes, titles, "n", map(metric_label, names))


def derivative_reduction(study: Study) -> Figure | None:
    """Bars: one minus the ratio of the derivative errors, at every target and n."""
    rows = {False: "equal width", True: "equal parameters"}
    orders, shown = targets(study), ends(study)
    rows = {e: text for e, text in rows.items() if study.find(family="depth", equal_parameters=e)}
    if DERIVATIVE not in study.metrics() or not shown or not rows:
        return None
    figure, axes = style.grid(len(rows), len(shown), 1.9 * len(rows) + 0.6, sharey="row")
    for row, (equal, text) in zip(axes, rows.items(), strict=True):
        for axis, end in zip(row, shown, strict=True):
            for place, target in enumerate(orders):
                _bars(axis, place, order_and_depth(study, target, end, equal))
            axis.axhline(0, color="#333333", linewidth=0.8)
            axis.set_xticks(range(len(orders)), [f"T{target}" for target in orders])
            axis.set_xlim(-0.5, len(orders) - 0.5)
            axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axis.set_title(f"{text}, {ENDS[end]}")
            axis.grid(visible=False, axis="x")
    return style.finish(figure, axes, y=["reduction of the\nderivative error"] * len(rows))


def _bars(axis: Axes, place: int, pairs: Mapping[int, tuple[Group, Group]]) -> None:
    for index, (n, (ours, depth)) in enumerate(pairs.items()):
        gain = reduction(ours.metric(DERIVATIVE), depth.metric(DERIVATIVE))
        if gain is not None:
            axis.bar(
                place + (index - (len(pairs) - 1) / 2) * 0.2,
                gain.mean,
                0.18,
                yerr=gain.error,
                color=style.ORDERS[min(n, len(style.ORDERS) - 1)],
                error_kw=style.WHISKERS,
                label=f"n = {n}",
            )


def parameters(study: Study) -> Figure | None:
    """Parameters against error, first-order stacks beside stacks of high-order blocks."""
    names = study.metrics()
    stacked = study.find(family="stack")
    orders = sorted({group.tags.target for group in stacked})
    if not names or not stacked:
        return None
    figure, axes = style.grid(len(orders), len(names), 2.0 * len(orders) + 0.8, sharex=True)
    for row, target in zip(axes, orders, strict=True):
        for axis, name in zip(row, names, strict=True):
            for end in ends(study):
                for label, groups in _paths(study, target, end):
                    _path(axis, name, groups, f"{label}, {ENDS[end]}")
            style.logarithmic(axis.yaxis)
            axis.set_title(f"T{target}, {metric_label(name)}")
    return style.finish(figure, axes, x="parameters (thousands)", y=["error"] * len(orders))


def _path(axis: Axes, name: str, groups: Sequence[Group], label: str) -> None:
    drawn = style.look(groups[-1])
    if groups[0].family == "stack":
        drawn = drawn._replace(colour=style.STACKS[groups[0].tags.order % 2])
    values = [group.metric(name) for group in groups]
    thousands = [group.parameters / 1000 for group in groups]
    style.line(axis, thousands, values, drawn, label)
    for x, group, value in zip(thousands, groups, values, strict=True):
        if value.count:
            axis.annotate(
                _short(group),
                (x, value.mean),
                (2, 3),
                textcoords="offset points",
                fontsize=6,
                color=drawn.colour,
            )


def _paths(study: Study, target: int, end: str) -> Iterable[tuple[str, Sequence[Group]]]:
    if depth := by_size(study, "depth", target, end):
        yield "first-order blocks", list(depth.values())
    stacks = study.find(family="stack", target=target, termination=end)
    for order in sorted({group.tags.order for group in stacks}):
        chosen = [group for group in stacks if group.tags.order == order]
        yield f"blocks of order {order}", sorted(chosen, key=lambda group: group.tags.depth)


def _short(group: Group) -> str:
    tags = group.tags
    return f"{tags.order}x{tags.depth}" if group.family == "stack" else f"D{tags.depth}"
