"""One look for all figures: colours by family, sizes, legends, numbers with their spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from chonn_lab.marks import MARK, own_file
from chonn_lab.report.comparison import Statistic
from chonn_lab.report.results import Group

WIDTH = 7.2  # inches
LINE = 116  # characters of a legend across it
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "errorbar.capsize": 0,
    # Text stays text: a quarter of the size.
    "svg.fonttype": "none",
    # The same file for the same numbers.
    "svg.hashsalt": "chonn-ops",
}
# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = {
    "unet": "#e69f00",
    "fno": "#0072b2",
    "cno": "#009e73",
    "depth": "#0072b2",
    "stack": "#009e73",
    "chonn": "#d55e00",
}
MARKERS = {"unet": "s", "fno": "^", "cno": "D", "depth": "^", "stack": "D", "chonn": "o"}
GREY = "#666666"
# Orders of the block, dark for high; 0 is the plain backbone.
ORDERS = (GREY, "#f6b26b", "#e8833a", "#c4500b", "#7f2704")
NETWORK = "#a50026"
# Models with another training recipe.
PALE = "#56b4e9"
CYCLE = (
    *("#d55e00", "#0072b2", "#009e73", "#e69f00", "#cc79a7"),
    *("#56b4e9", "#000000", "#8b8000", "#882255", "#44aa99"),
)


class Look(NamedTuple):
    colour: str
    marker: str
    line: str


def look(group: Group, place: int = -1) -> Look:
    """How a variant is drawn in every figure; of a family unknown here in a colour by its place."""
    tags = group.tags
    if tags.role == "network":
        return Look(NETWORK, "*", "-")
    if tags.role == "ablation" and 0 <= tags.order < len(ORDERS):
        return Look(ORDERS[tags.order], MARKERS["chonn"], "-")
    if tags.recipe not in ("", "paper"):
        return Look(PALE, "v", "--")
    other = GREY if place < 0 else CYCLE[place % len(CYCLE)]
    return Look(COLOURS.get(tags.family, other), MARKERS.get(tags.family, "v"), "-")


def grid(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure of the common width and its table of axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def errors(statistics: Sequence[Statistic]) -> list[list[float]]:
    """Lengths of error bars down and up: standard deviations, 0 for a single seed.

    Down at most nine tenths of the mean, which a logarithmic axis can show.
    """
    deviations = [s.deviation if s.count > 1 else 0.0 for s in statistics]
    return [[min(d, 0.9 * s.mean) for d, s in zip(deviations, statistics, strict=True)], deviations]


def line(
    axis: Axes, x: Sequence[float], y: Sequence[Statistic], drawn: Look, label: str, **options: Any
) -> None:
    """Means joined by a line, standard deviations as bars; points without a number left out."""
    if kept := [(a, s) for a, s in zip(x, y, strict=True) if s.count]:
        places, points = zip(*kept, strict=True)
        look = {"color": drawn.colour, "marker": drawn.marker, "linestyle": drawn.line}
        means = [s.mean for s in points]
        options = {**look, "elinewidth": 1.0, **options}
        axis.errorbar(places, means, errors(points), label=label, **options)


def band(axis: Axes, x: Sequence[float], y: Sequence[Statistic], drawn: Look, label: str) -> None:
    """Means as a line, one standard deviation around them as a band."""
    if kept := [(a, s) for a, s in zip(x, y, strict=False) if s.count]:
        places, points = zip(*kept, strict=True)
        down, up = errors(points)
        # One point makes no line.
        shape = {"marker": drawn.marker if len(kept) == 1 else None, "linestyle": drawn.line}
        axis.plot(places, [s.mean for s in points], color=drawn.colour, label=label, **shape)
        low = [s.mean - d for s, d in zip(points, down, strict=True)]
        high = [s.mean + d for s, d in zip(points, up, strict=True)]
        axis.fill_between(places, low, high, color=drawn.colour, alpha=0.18, linewidth=0)


def finish(
    figure: Figure, axes: Any, titles: Iterable[str] = (), x: str = "", y: Iterable[str] = ()
) -> Figure:
    """Titles of the columns, what is along the lowest and the first axes, and one legend above."""
    for axis, title in zip(axes[0], titles, strict=False):
        axis.set_title(title)
    for axis in axes[-1]:
        axis.set_xlabel(x or axis.get_xlabel())
    for axis, label in zip(axes[:, 0], y, strict=False):
        axis.set_ylabel(label)
    found: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            # The mark alone, without its whiskers.
            found.setdefault(label, getattr(handle, "lines", [handle])[0] or handle)
    if found:
        count = max(1, min(len(found), LINE // (max(map(len, found)) + 7)))
        figure.legend(found.values(), found.keys(), loc="outside upper center", ncols=count)
    return figure


def logarithmic(axis: Axis) -> None:
    """Logarithmic scale with plain numbers at 1, 2 and 5, or at powers of ten of a wide range."""
    is_x = axis is axis.axes.xaxis
    axis.axes.set(**{"xscale" if is_x else "yscale": "log"})
    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high < 300 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def whole_numbers(axis: Axis) -> None:
    """Ticks at integers only, of epochs and the like."""
    axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def styled() -> AbstractContextManager[None]:
    """Draw in this style inside the context."""
    return matplotlib.rc_context(STYLE)


def save(figure: Figure, path: Path) -> Path:
    """Write an SVG or PNG file, whole or not at all, without a date."""
    kind = path.suffix[1:]
    metadata = {"Date": None, "Creator": MARK} if kind == "svg" else {"Software": MARK}
    with own_file(path) as staged:
        figure.savefig(staged, format=kind, dpi=150, metadata=metadata)
    return path
