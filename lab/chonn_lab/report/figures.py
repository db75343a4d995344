"""Figures of studies in one look, which is that of the style sheet beside this file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from chonn_lab.experiments.records import MARK
from chonn_lab.report.comparison import Statistic
from chonn_lab.report.runs import Study, metric_label
from chonn_ops.files import whole_file

WIDTH, HEIGHT = 7.2, 3.2  # inches
LINE = 116  # characters of a legend across it
MARKED = {"marker": "o"}
# Label, places along the horizontal axis, numbers there, options of `Axes.plot`.
Line = tuple[str, Sequence[float], Sequence[Statistic], Mapping[str, Any]]


def curves(
    path: Path, panels: Mapping[str, Sequence[Line]], x: str, y: str, base: int = 10
) -> None:
    """Write a figure, an SVG or PNG file, of lines with a band of one standard deviation.

    `panels` are the lines by the titles above them, side by side with one legend; `x` and `y` say
    what is along the axes. The horizontal axis is logarithmic with this `base`, or linear for 0.
    """
    with matplotlib.style.context(Path(__file__).with_name("figures.mplstyle")):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        handles = {}
        for axis, (above, lines) in zip(axes, panels.items(), strict=True):
            for label, places, points, look in lines:
                means, spread = np.array([(point.mean, point.deviation) for point in points]).T
                # One point makes no line.
                options = {"marker": "o" * (len(means) == 1), **look}
                (handles[label],) = axis.plot(places, means, label=label, **options)
                # A logarithmic axis shows no more than this below the mean.
                low, color = np.fmax(means - spread, 0.1 * means), handles[label].get_color()
                axis.fill_between(places, low, means + spread, color=color, alpha=0.18, linewidth=0)
            axis.set(title=above, xlabel=x)
            _logarithmic(axis.yaxis)
            if base:
                _logarithmic(axis.xaxis, base)
        axes[0].set_ylabel(y)
        if handles:
            columns = max(1, LINE // (max(map(len, handles)) + 7))
            place = "outside upper center"
            figure.legend(handles.values(), handles.keys(), loc=place, ncols=columns)
        kind = path.suffix[1:]
        metadata = {"Date": None, "Creator": MARK} if kind == "svg" else {"Software": MARK}
        with whole_file(path, force=True) as staged:
            figure.savefig(staged, format=kind, dpi=150, metadata=metadata)


def _logarithmic(axis: Any, base: int = 10) -> None:
    """Logarithmic scale with plain numbers at powers of the base, of ten also at 2 and 5 times
    those in a narrow range."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log", base=base)
    low, high = axis.get_view_interval()
    more = (1.0, 2.0, 5.0) if base == 10 and high < 300 * low else (1.0,)
    axis.set_major_locator(LogLocator(base, more))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def draw_curves(models: pd.DataFrame, path: Path, name: str, y: str, seconds: bool = True) -> None:
    """A curve of each model over seconds of training, of which every epoch of a run takes as many,
    or over frames. Runs that stopped early end it."""
    lines: list[Line] = []
    for _, model in models.iterrows():
        runs = [run.curves.get(name) or run.curve.get(name, ()) for run in model.runs]
        points = [Statistic.of(values) for values in zip(*runs, strict=False)]
        epochs = next((run.curve["epoch"] for run in model.runs if run.curve.get("epoch")), [1])
        places = [epoch * model.seconds.mean / max(epochs) for epoch in epochs][: len(points)]
        if points:
            lines.append(
                (model.label, places if seconds else range(1, len(points) + 1), points, {})
            )
    x = "seconds of training" if seconds else "frames after the given ones"
    curves(path, {"": lines}, x, y, base=10 if seconds else 0)


def draw_grids(studies: Sequence[Study], path: Path, metric: str = "relative_l1") -> None:
    """Test error by the evaluation grid, a panel a study and a line a model that was evaluated on
    finer ones; nothing if none was."""
    panels: dict[str, list[Line]] = {}
    for study in studies:
        finer = [name for name in study.splits() if name.startswith("at_")]
        grids = [study.runs[0].config["resolution"], *(int(name[3:]) for name in finer)]
        for _, model in study.table.query("role != 'control'").iterrows():
            points = [model[f"{split}/{metric}"] for split in ("test", *finer)]
            if finer and all(point.values for point in points):
                panels.setdefault(study.title, []).append((model.label, grids, points, MARKED))
    if panels:
        curves(path, panels, "evaluation grid, points a side", f"{metric_label(metric)} error", 2)


def draw_budgets(studies: Sequence[Study], path: Path, metric: str = "relative_l1") -> None:
    """Test error by training samples, and by seconds of training, with the other number fixed: two
    figures, whose names end so, of the results of ``chonn-lab curves``."""
    for along, other in (("samples", "seconds"), ("seconds", "samples")):
        panels: dict[str, list[Line]] = {}
        for study in studies:
            runs = pd.DataFrame(
                {
                    "label": run.label,
                    **{name: run.config[name] for name in (along, other)},
                    "error": run.metrics.get("test", {}).get(metric),
                }
                for run in study.runs
            )
            fixed = runs.groupby(other)[along].nunique().idxmax()
            for label, model in runs[runs[other] == fixed].groupby("label", sort=False):
                points = model.groupby(along).error.agg(Statistic.of)
                line = str(label), [*points.index], [*points], MARKED
                panels.setdefault(f"{study.title}, {fixed:,g} {other}", []).append(line)
        if panels:
            name = path.with_name(f"{path.stem}-{along}{path.suffix}")
            x = {"samples": "training samples", "seconds": "seconds of training"}[along]
            curves(name, panels, x, f"{metric_label(metric)} error")


def draw_laws(studies: Sequence[Study], path: Path, x: str, y: str) -> None:
    """The law that our models have learned beside the true one, a panel a study."""
    panels: dict[str, list[Line]] = {}
    for study in studies:
        runs = [run.curves for run in study.runs if run.curves.get("law")]
        for name, label in (("law_true", "true law"), ("law", "learned law")) if runs else ():
            points = [
                Statistic.of(values) for values in zip(*(run[name] for run in runs), strict=True)
            ]
            look = {"ls": "--"} if name == "law_true" else {}
            places: Any = runs[0]["law_input"]
            line = label, places, points, look
            panels.setdefault(study.title, []).append(line)
    if panels:
        curves(path, panels, x, y)
