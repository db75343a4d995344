"""One look for all figures: the style sheet beside this file, sizes, legends, numbers with their
spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from chonn_lab.marks import MARK
from chonn_lab.report.comparison import Statistic
from chonn_ops.files import whole_file

WIDTH = 7.2  # inches
LINE = 116  # characters of a legend across it
Line = tuple[str, Sequence[float], Sequence[Statistic]]


def styled() -> AbstractContextManager[None]:
    """Draw in this style inside the context."""
    return matplotlib.style.context(Path(__file__).with_name("figures.mplstyle"))


def grid(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure of the common width and its table of axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _values(statistics: Sequence[Statistic]) -> np.ndarray:
    """Means (n,) above lengths of error bars down and up: standard deviations, 0 for a single seed.

    Down at most nine tenths of the mean, which a logarithmic axis can show. A point without a
    number is NaN, which Matplotlib leaves out.
    """
    means = np.array([s.mean for s in statistics])
    deviations = np.nan_to_num([s.deviation for s in statistics])
    return np.stack([means, np.fmin(deviations, 0.9 * means), deviations])


def line(axis: Axes, x: Sequence[float], y: Sequence[Statistic], **options: Any) -> None:
    """Means joined by a line, standard deviations as bars; `options` of `Axes.errorbar`."""
    means, *bars = _values(y)
    axis.errorbar(x, means, bars, elinewidth=1.0, **options)


def curves(path: Path, lines: Iterable[Line], x: str, y: str, scale: str = "log") -> None:
    """Write a figure of lines with a band of one standard deviation, each with a label.

    `x` and `y` say what is along the axes; `scale` is that of the horizontal one.
    """
    with styled():
        figure, axes = grid(1, 1, 3.2)
        axis = axes[0, 0]
        for label, places, points in lines:
            means, down, up = _values(points)
            # One point makes no line.
            (drawn,) = axis.plot(places, means, label=label, marker="o" * (len(means) == 1))
            band = {"color": drawn.get_color(), "alpha": 0.18, "linewidth": 0}
            axis.fill_between(places, means - down, means + up, **band)
        if scale == "log":
            logarithmic(axis.xaxis)
        logarithmic(axis.yaxis)
        save(finish(figure, axes, x=x, y=[y]), path)


def finish(
    figure: Figure, axes: Any, titles: Iterable[str] = (), x: str = "", y: Iterable[str] = ()
) -> Figure:
    """Titles of the columns, what is along the lowest and the first axes, and one legend above."""
    for axis, text in zip(axes[0], titles, strict=False):
        axis.set_title(text)
    for axis in axes[-1]:
        axis.set_xlabel(x)
    for axis, text in zip(axes[:, 0], y, strict=False):
        axis.set_ylabel(text)
    found = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        columns = max(1, min(len(found), LINE // (max(map(len, found)) + 7)))
        figure.legend(found.values(), found.keys(), loc="outside upper center", ncols=columns)
    return figure


def logarithmic(axis: Axis) -> None:
    """Logarithmic scale with plain numbers at 1, 2 and 5, or at powers of ten of a wide range."""
    axis.axes.set(**{"xscale" if axis is axis.axes.xaxis else "yscale": "log"})
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300 * low else (1.0,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def save(figure: Figure, path: Path) -> None:
    """Write an SVG or PNG file, whole or not at all, without a date."""
    kind = path.suffix[1:]
    metadata = {"Date": None, "Creator": MARK} if kind == "svg" else {"Software": MARK}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, force=True) as staged:
        figure.savefig(staged, format=kind, dpi=150, metadata=metadata)
