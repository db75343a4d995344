"""Figures of a study: `draw_study` writes those panels that its results allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import fill
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
from matplotlib.figure import Figure

from chonn_lab.report import style
from chonn_lab.report.results import Group, Study
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


def metrics(study: Study) -> Figure | None:
    """A panel a metric, a row a model, on logarithmic axes."""
    names, groups = study.metrics(), study.groups
    if not names or len(groups) < 2:
        return None
    rows = -(-len(names) // COLUMNS)
    height = rows * (HEIGHT * len(groups) + AROUND) + 0.2
    figure, axes = style.grid(rows, min(COLUMNS, len(names)), height, sharey=True)
    for axis, name in zip(axes.flat, names, strict=False):
        for row, group in enumerate(groups):
            drawn = style.look(group, row)
            if (value := group.metric(name)).count:
                bars = {"xerr": style.errors([value]), "elinewidth": 1}
                axis.errorbar([value.mean], [row], fmt=drawn.marker, color=drawn.colour, **bars)
        style.logarithmic(axis.xaxis)
        axis.set_title(metric_label(name))
        axis.tick_params("y", length=0, labelsize=7)
        axis.tick_params("x", labelsize=6.5, rotation=45)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    axes[0, 0].set_ylim(len(groups) - 0.4, -0.6)
    axes[0, 0].set_yticks(range(len(groups)), [full_label(group) for group in groups])
    return figure


def steps(study: Study) -> Figure | None:
    """Error of every predicted frame, a band of one standard deviation over the seeds."""
    curves = [name for name in CURVES if any(group.curve(name) for group in study.groups)]
    if not curves:
        return None
    columns: dict[str, list[Group]] = {}
    for group in study.groups:
        if group.tags.role != "probe":
            history = f"{group.tags.history} frames to 1" if group.tags.history else ""
            columns.setdefault(history, []).append(group)
    figure, axes = style.grid(len(curves), len(columns), 2.0 * len(curves) + 0.7, sharey="row")
    for row, name in zip(axes, curves, strict=True):
        for axis, groups in zip(row, columns.values(), strict=True):
            for group in groups:
                curve = group.curve(name)
                style.band(axis, range(1, len(curve) + 1), curve, style.look(group), group.label)
            style.logarithmic(axis.yaxis)
            style.whole_numbers(axis.xaxis)
    return style.finish(figure, axes, columns, "predicted step", [CURVES[name] for name in curves])


def learning(study: Study) -> Figure | None:
    """Training loss and validation error by epoch, and validation error by seconds."""
    if not any(run.curve.get("epoch") for run in study.runs):
        return None
    figure, axes = style.grid(1, 3, 2.9)
    loss, by_epoch, by_seconds = axes[0]
    for place, group in enumerate(representatives(study)):
        look = style.look(group, place)
        if epochs := group.epochs:
            style.band(loss, epochs, group.curve("train_loss"), look, group.label)
            error = group.curve("validation_error")
            style.band(by_epoch, epochs, error, look, group.label)
            style.band(by_seconds, group.times, error, look, group.label)
    for axis, label in ((loss, "epoch"), (by_epoch, "epoch"), (by_seconds, "training time (s)")):
        style.logarithmic(axis.yaxis)
        axis.set_xlabel(label)
        if label == "epoch":
            style.whole_numbers(axis.xaxis)
    return style.finish(figure, axes, ["training loss", "validation error", "validation error"])


def representatives(study: Study) -> tuple[Group, ...]:
    """Baselines, the backbone without blocks, the paper's CHONN and networks, those that there are.

    All models where the study has no baselines.
    """
    if not study.find(role="baseline"):
        return study.groups
    plain = study.find(family="chonn", role="ablation", order=0)
    ours = study.papers(), *study.find(role="network")
    chosen = [*study.find(role="baseline"), *plain, *ours]
    return tuple({group.variant: group for group in chosen if group}.values())


def fields(study: Study) -> Figure | None:
    """Predictions for the first sample of the first seed; the last frame of a sequence."""
    samples = [(group.label, found) for group in _chosen(study) if (found := _sample(study, group))]
    if not samples or picture(samples[0][1]["target"]).ndim == 0:
        return None
    labels = [label for label, _ in samples[:SHOWN]]
    target = picture(samples[0][1]["target"])
    predictions = [picture(sample["prediction"]) for _, sample in samples[:SHOWN]]
    errors = [np.abs(prediction - target) for prediction in predictions]
    if target.ndim == 1:
        return _lines(target, predictions, errors, labels)
    columns = len(predictions) + 1
    figure, axes = style.grid(2, columns, 2 * style.WIDTH / columns + 0.9)
    scale = {"vmin": float(target.min()), "vmax": float(target.max()), "cmap": "viridis"}
    # One model that is far off must not hide the structure of the others' errors.
    top = float(np.median([error.max() for error in errors]))
    if "input" in samples[0][1]:
        axes[0, 0].imshow(picture(samples[0][1]["input"]).T, origin="lower", cmap="cividis")
        axes[0, 0].set_title("input")
    shown = axes[1, 0].imshow(target.T, origin="lower", **scale)
    axes[1, 0].set_title("target")
    for column, label in enumerate(labels):
        above, below = axes[:, column + 1]
        above.imshow(predictions[column].T, origin="lower", **scale)
        above.set_title(fill(label, 13))
        below.imshow(errors[column].T, origin="lower", vmin=0, vmax=top, cmap="magma")
        below.set_title(f"mean {errors[column].mean():.2g}")
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    figure.colorbar(shown, ax=axes[0, :], label="field", shrink=0.9)
    bar = {"label": "absolute error", "shrink": 0.9, "extend": "max"}
    figure.colorbar(axes[1, 1].images[0], ax=axes[1, :], **bar)
    return figure


def _lines(
    target: np.ndarray, predictions: list[np.ndarray], errors: list[np.ndarray], labels: list[str]
) -> Figure:
    figure, axes = style.grid(1, 2, 2.4)
    left, right = axes[0]
    s = np.arange(len(target)) / len(target)
    left.plot(s, target, color="#333333", linewidth=2.2, alpha=0.4, label="target")
    for colour, label, prediction, error in zip(
        style.CYCLE, labels, predictions, errors, strict=False
    ):
        left.plot(s, prediction, color=colour, linewidth=1, label=label)
        right.plot(s, error, color=colour, linewidth=1, label=label)
    right.set_ylabel("absolute error")
    style.logarithmic(right.yaxis)
    return style.finish(figure, axes, x="s", y=["y"])


def picture(array: np.ndarray) -> np.ndarray:
    """The first sample as a line (R,) or a map (R, R): the last of all frames before the axes."""
    sample = array[0]
    while sample.ndim > 2:
        sample = sample[-1]
    return np.squeeze(sample)


def _chosen(study: Study) -> tuple[Group, ...]:
    """The hardest target's models of its order; the longest history; else `representatives`."""
    if top := max(group.tags.target for group in study.groups):
        blocks = study.find(target=top, family="chonn", order=top)
        return blocks + study.find(target=top, family="depth", depth=top)
    longest = max(group.tags.history for group in study.groups)
    return study.find(history=longest) if longest else representatives(study)


def _sample(study: Study, group: Group) -> Mapping[str, np.ndarray] | None:
    """The fields of the first seed; None where they are not kept."""
    path = (study.folder or Path()) / f"{group.variant}-seed{group.runs[0].seed}.npz"
    if study.folder is None or not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    # NumPy's message advises to load pickled files, which is unsafe.
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path}: not a file of fields, or damaged") from error
    return found if all(name in found for name in NEEDED) else None


class Panel(NamedTuple):
    """A figure: file name, caption, and the function that draws it or returns None without data."""

    name: str
    caption: str
    build: Callable[[Study], Figure | None]


PANELS = (
    Panel(
        "metrics.svg",
        "Error of every model in every metric on the test split, mean and standard deviation over "
        "the seeds. Lower is better.",
        metrics,
    ),
    Panel(
        "steps.svg",
        "Relative L2 error of every predicted frame, of recursive predictions (the paper's Fig. 5f "
        "for Navier-Stokes) and, where there, of single ones. Bands: standard deviation over the "
        "seeds.",
        steps,
    ),
    Panel(
        "fields.png",
        "First test sample, first seed, of at most six models: predictions and absolute errors, on "
        "one scale each.",
        fields,
    ),
    Panel(
        "learning.svg",
        "Training loss and validation error by epoch, and validation error by training time. "
        "Bands: standard deviation over the seeds.",
        learning,
    ),
)


def draw_study(study: Study, output: Path) -> list[tuple[Panel, Path]]:
    """Draw the panels of a study and say which file is which."""
    output.mkdir(parents=True, exist_ok=True)
    with style.styled():
        drawn = [(panel, panel.build(study)) for panel in PANELS]
        return [(p, style.save(figure, output / p.name)) for p, figure in drawn if figure]
