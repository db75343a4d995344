"""Figures of docs/results.md: validation error over seconds of training, a line a row."""

from __future__ import annotations

from collections.abc import Sequence

from pages import results

from chonn_ops.experiments import EXPERIMENTS
from chonn_ops.report.figures import _style as style
from chonn_ops.report.results import Study
from chonn_ops.report.tables import full_label


def draw(studies: Sequence[Study]) -> None:
    for study in filter(None, (results.chosen(studies, name) for name in EXPERIMENTS)):
        with style.styled():
            figure, axes = style.grid(1, 1, 3.2)
            axis = axes[0, 0]
            for at, group in enumerate(results.rows(study)):
                epochs = next((run.curve["epoch"] for run in group.runs if run.curve), [])
                if not epochs:
                    continue
                each = group.seconds.mean / max(filter(None, epochs))
                look = style.look(group)._replace(colour=style.CYCLE[at])
                style.band(
                    axis,
                    [each * epoch for epoch in epochs if epoch],
                    group.curve("validation_error"),
                    look,
                    full_label(group),
                )
            style.logarithmic(axis.xaxis)
            style.logarithmic(axis.yaxis)
            axis.set_xlabel("seconds of training")
            axis.set_ylabel("validation error")
            style.legend(figure, axes)
            path = results.DOCS / "figures" / f"results-{study.experiment}.svg"
            style.save(figure, path)
