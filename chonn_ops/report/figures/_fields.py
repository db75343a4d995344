"""One test sample: input, target, every model's prediction and its absolute error (Fig. 4e)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any
from zipfile import BadZipFile

import numpy as np
from matplotlib.figure import Figure

from chonn_ops.report.figures import _style as style
from chonn_ops.report.results import Group, Study
from chonn_ops.report.roles import representatives

SHOWN = 6
NEEDED = ("target", "prediction")


def maps(study: Study) -> Figure | None:
    """The first sample of the first seed; of a sequence, its last frame."""
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
    """Of several targets, the hardest one and models of its order; the longest of histories."""
    targets = [group.tags.target for group in study.groups if group.tags.target]
    if targets:
        top = max(targets)
        return tuple(
            group
            for family, size in (("chonn", "order"), ("depth", "depth"))
            for group in study.find(
                target=top, family=family, equal_parameters=False, **{size: top}
            )
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
    # Not NumPy's words, which advise to load other files all the same.
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path}: not a file of fields, or damaged") from error
