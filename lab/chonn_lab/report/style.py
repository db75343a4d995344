"""One look for all figures: the style sheet beside this file, sizes, legends, numbers with their
spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from chonn_lab.marks import MARK
from chonn_lab.report.comparison import Statistic
from chonn_ops.files import whole_file

WIDTH, HEIGHT = 7.2, 3.2  # inches
LINE = 116  # characters of a legend across it
# Label, places along the horizontal axis, numbers there, options of `Axes.plot`.
Line = tuple[str, Sequence[float], Sequence[Statistic], Mapping[str, Any]]


def curves(
    path: Path, panels: Mapping[str, Sequence[Line]], x: str, y: str, base: int = 10
) -> None:
    """Write a figure, an SVG or PNG file, of lines with a band of one standard deviation.

    `panels` are the lines by the titles above them, side by side with one legend; `x` and `y` say
    what is along the axes. The horizontal axis is logarithmic with this `base`, 2 with a tick at
    every place, or linear for 0.
    """
    with matplotlib.style.context(Path(__file__).with_name("figures.mplstyle")):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        handles = {}
        for axis, (title, lines) in zip(axes, panels.items(), strict=True):
            for label, places, points, look in lines:
                means, down, up = _values(points)
                # One point makes no line.
                options = {"marker": "o" * (len(means) == 1), **look}
                (drawn,) = axis.plot(places, means, label=label, **options)
                handles.setdefault(label, drawn)
                band = {"color": drawn.get_color(), "alpha": 0.18, "linewidth": 0}
                axis.fill_between(places, means - down, means + up, **band)
            if base == 2:
                ticks = sorted({place for _, places, *_ in lines for place in places})
                axis.set_xscale("log", base=2)
                axis.set_xticks(ticks, map(str, ticks))
            elif base:
                _logarithmic(axis.xaxis)
            _logarithmic(axis.yaxis)
            axis.set(title=title, xlabel=x)
        axes[0].set_ylabel(y)
        if handles:
            columns = max(1, min(len(handles), LINE // (max(map(len, handles)) + 7)))
            place = {"loc": "outside upper center", "ncols": columns}
            figure.legend(handles.values(), handles.keys(), **place)
        _save(figure, path)


def _values(statistics: Sequence[Statistic]) -> np.ndarray:
    """Means (n,) above widths of bands down and up: standard deviations, 0 for a single seed.

    Down at most nine tenths of the mean, which a logarithmic axis can show. A point without a
    number is NaN, which Matplotlib leaves out.
    """
    means = np.array([s.mean for s in statistics])
    deviations = np.nan_to_num([s.deviation for s in statistics])
    return np.stack([means, np.fmin(deviations, 0.9 * means), deviations])


def _logarithmic(axis: Axis) -> None:
    """Logarithmic scale with plain numbers at 1, 2 and 5, or at powers of ten of a wide range."""
    axis.axes.set(**{"xscale" if axis is axis.axes.xaxis else "yscale": "log"})
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300 * low else (1.0,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def _save(figure: Figure, path: Path) -> None:
    """Whole or not at all, without a date."""
    kind = path.suffix[1:]
    metadata = {"Date": None, "Creator": MARK} if kind == "svg" else {"Software": MARK}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, force=True) as staged:
        figure.savefig(staged, format=kind, dpi=150, metadata=metadata)
