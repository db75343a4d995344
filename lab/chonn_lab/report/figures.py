"""Figures of a study: `draw` writes those panels that its results allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chonn_lab import marks
from chonn_lab.report import style
from chonn_lab.report.results import Group, Study, read_study
from chonn_lab.report.tables import full_label, metric_label

COLUMNS = 4
# Inches for a model and for the space around a panel.
HEIGHT = 0.13
AROUND = 0.55
# At most so many models have their predictions shown.
SHOWN = 6
NEEDED = ("target", "prediction")
CURVES = {
    "rollout_relative_l2": "relative L2,\nfrom own predictions",
    "one_step_relative_l2": "relative L2,\nfrom true frames",
}


def representatives(study: Study) -> tuple[Group, ...]:
    """Baselines, the backbone without blocks, the paper's CHONN and networks, those that there are.

    All models where the study has no baselines.
    """
    chosen = [
        *study.find(role="baseline"),
        *study.find(family="chonn", role="ablation", order=0),
        study.papers(),
        *study.find(role="network"),
    ]
    kept = {group.variant: group for group in chosen if group}
    return tuple(kept.values()) if study.find(role="baseline") else study.groups


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


def steps(study: Study) -> Figure | None:
    """Error of every predicted frame, a band of one standard deviation over the seeds."""
    lengths = sorted({g.tags.history for g in study.groups if g.tags.history}, reverse=True)
    columns = {
        f"{history} frames to 1": [g for g in study.find(history=history) if g.tags.role != "probe"]
        for history in lengths
    }
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


def learning(study: Study) -> Figure | None:
    """Loss and validation error of `representatives`, by epoch and by seconds."""
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


def fields(study: Study) -> Figure | None:
    """Predictions for the first sample of the first seed; the last frame of a sequence."""
    found = list(_samples(study).items())[:SHOWN]
    if not found:
        return None
    labels = [group.label for group in _chosen(study) if group.variant in dict(found)]
    first = found[0][1]
    pictures = {name: picture(array) for name, array in first.items()}
    if pictures["target"].ndim == 0:
        return None
    if pictures["target"].ndim == 1:
        return _lines(found, labels)
    columns = len(found) + 1
    figure = Figure(figsize=(style.WIDTH, 2 * style.WIDTH / columns + 0.9), layout="constrained")
    axes = figure.subplots(2, columns, squeeze=False)
    target = pictures["target"]
    scale = {"vmin": float(target.min()), "vmax": float(target.max()), "cmap": "viridis"}
    predictions = [picture(fields["prediction"]) for _, fields in found]
    errors = [np.abs(prediction - target) for prediction in predictions]
    # One model that is far off must not hide the structure of the others' errors.
    top = float(np.median([error.max() for error in errors]))
    if "input" in pictures:
        axes[0, 0].imshow(pictures["input"].T, origin="lower", cmap="cividis")
        axes[0, 0].set_title("input")
    shown = axes[1, 0].imshow(target.T, origin="lower", **scale)
    axes[1, 0].set_title("target")
    for column, (prediction, error) in enumerate(zip(predictions, errors, strict=True), start=1):
        axes[0, column].imshow(prediction.T, origin="lower", **scale)
        axes[0, column].set_title(fill(labels[column - 1], 13))
        axes[1, column].imshow(error.T, origin="lower", vmin=0, vmax=top, cmap="magma")
        axes[1, column].set_title(f"mean {error.mean():.2g}")
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    figure.colorbar(shown, ax=axes[0, :], label="field", shrink=0.9)
    figure.colorbar(
        axes[1, 1].images[0], ax=axes[1, :], label="absolute error", shrink=0.9, extend="max"
    )
    return figure


def picture(array: np.ndarray) -> np.ndarray:
    """The first sample as a line (R,) or a map (R, R): the last of all frames before the axes."""
    sample = array[0]
    while sample.ndim > 2:
        sample = sample[-1]
    return np.squeeze(sample)


def _lines(found: list[tuple[str, Mapping[str, Any]]], labels: list[str]) -> Figure:
    figure, axes = style.grid(1, 2, 2.4)
    left, right = axes[0]
    target = picture(found[0][1]["target"])
    s = np.arange(len(target)) / len(target)
    left.plot(s, target, color="#333333", linewidth=2.2, alpha=0.4, label="target")
    for index, ((_, fields), label) in enumerate(zip(found, labels, strict=True)):
        colour = style.CYCLE[index % len(style.CYCLE)]
        prediction = picture(fields["prediction"])
        left.plot(s, prediction, color=colour, linewidth=1, label=label)
        right.plot(s, np.abs(prediction - target), color=colour, linewidth=1, label=label)
    right.set_ylabel("absolute error")
    style.logarithmic(right.yaxis)
    return style.finish(figure, axes, x="s", y=["y"])


def _chosen(study: Study) -> tuple[Group, ...]:
    """The hardest target's models of its order; the longest history; else `representatives`."""
    targets = [group.tags.target for group in study.groups if group.tags.target]
    if targets:
        top = max(targets)
        return tuple(
            group
            for family, size in (("chonn", "order"), ("depth", "depth"))
            for group in study.find(target=top, family=family, **{size: top})
        )
    histories = [group.tags.history for group in study.groups if group.tags.history]
    return study.find(history=max(histories)) if histories else representatives(study)


def _samples(study: Study) -> dict[str, Mapping[str, np.ndarray]]:
    samples: dict[str, Mapping[str, np.ndarray]] = {}
    for group in _chosen(study):
        run = group.runs[0]
        path = (study.folder or Path()) / f"{run.variant}-seed{run.seed}.npz"
        if study.folder is not None and path.exists():
            fields = _read(path)
            if all(name in fields for name in NEEDED):
                samples[group.variant] = fields
    return samples


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    # NumPy's message advises to load pickled files, which is unsafe.
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path}: not a file of fields, or damaged") from error


class Panel(NamedTuple):
    """A figure: file name, caption, and the function that draws it or returns None without data."""

    name: str
    caption: str
    build: Callable[[Study], Figure | None]


_METRICS = Panel(
    "metrics.svg",
    "Error of every model in every metric on the test split, mean and standard deviation over the "
    "seeds. Lower is better.",
    metrics,
)
_FIELDS = Panel(
    "fields.png",
    "First test sample, first seed, of at most six models: predictions above, absolute errors "
    "below, on one scale each.",
    fields,
)
_LEARNING = Panel(
    "learning.svg",
    "Training loss and validation error by epoch, and validation error by training time. Bands: "
    "standard deviation over the seeds.",
    learning,
)
_STEPS = Panel(
    "steps.svg",
    "Relative L2 error of every predicted frame, of recursive predictions (the paper's Fig. 5f for "
    "Navier-Stokes) and, where there, of single ones. Bands: standard deviation over the seeds.",
    steps,
)
PANELS: dict[str, tuple[Panel, ...]] = {
    "order1d": (_FIELDS._replace(name="fields.svg"),),
    "shallow_water": (_METRICS, _STEPS, _FIELDS, _LEARNING),
    "navier_stokes": (_STEPS, _FIELDS),
}
DEFAULT = (_METRICS, _FIELDS, _LEARNING)


def panels(experiment: str) -> tuple[Panel, ...]:
    """The panels of an experiment."""
    return PANELS.get(experiment, DEFAULT)


def refuse_foreign(experiment: str, output: Path) -> None:
    """Fail before any work if other programs' files are where the panels would be written.

    Raises
    ------
    FileExistsError
        Names the first of them.
    """
    marks.refuse_foreign(output / panel.name for panel in panels(experiment))


def draw(results: Path, output: Path, mixed: bool = False) -> list[Path]:
    """Draw the panels of an experiment's results.

    Parameters
    ----------
    results : Path
        A scale's folder with result files, or a file of several.
    output : Path
        Folder of the pictures, made if needed.
    mixed : bool
        As for `read_study`.

    Returns
    -------
    list of Path
        The files, in the order of the paper; panels without data are left out.

    Raises
    ------
    FileNotFoundError, ValueError
        If there are no results, they are damaged or mixed.
    FileExistsError
        If a picture would replace another program's file.
    """
    return [path for _, path in draw_study(read_study(results, mixed), output)]


def draw_study(study: Study, output: Path) -> list[tuple[Panel, Path]]:
    """Draw the panels of a study and say which file is which."""
    output.mkdir(parents=True, exist_ok=True)
    drawn = []
    with style.styled():
        for panel in panels(study.experiment):
            figure = panel.build(study)
            if figure is not None:
                drawn.append((panel, style.save(figure, output / panel.name)))
    return drawn
