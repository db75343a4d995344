"""Bands around the predictions of an evaluation, in a file beside its metrics.

``++args.bands=0.9`` asks for bands that hold 90 % of the points of a sample on average. They are
those of `chonn_ops.uncertainty`, calibrated on the validation split, which is the data that an
evaluation has. The samples are dealt into three parts. The bands of each part have as their spread
the mean error of the second part at each point, frame and channel, and their scale from the third
part. No sample has a say in its own band.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import torch
from torch import Tensor

import chonn_ops
from chonn_ops.files import whole_file
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.data import Layout
from chonn_plugins.pdebench.job import Job

PARTS = 3


def level_of(job: Job, layout: Layout) -> float | None:
    """The level that the job asks for, if any; a JobError if it is no number between 0 and 1, or
    needs more samples than the validation split has."""
    level = job.args.get("bands")
    if level is None:
        return None
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise JobError(f"args.bands: expected a number above 0 and below 1, got {level!r}")
    needed = PARTS * chonn_ops.uncertainty.samples_needed(level)
    if layout.validation < needed:
        raise JobError(
            f"args.bands: expected at least {needed} samples in the validation split (a tenth of "
            f"the data) for the level {level}, got {layout.validation}"
        )
    return float(level)


class Collector:
    """Predictions and targets of an evaluation, and their bands; the leading `initial_step` frames
    are input and get none."""

    def __init__(self, level: float, initial_step: int) -> None:
        self.level, self.initial_step = level, initial_step
        self._pred: list[Tensor] = []
        self._target: list[Tensor] = []

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Add a batch of samples (B, \\*space, frames, channels)."""
        for fields, batch in ((self._pred, pred), (self._target, target)):
            fields.append(batch[..., self.initial_step :, :].detach().cpu())

    def write(self, path: Path) -> dict[str, Any]:
        """Write the bands; returns their summary for the report. The file has ``prediction``,
        ``lower`` and ``upper``, (N, \\*space, frames, channels), the predicted frames of the
        validation samples in PDEBench's order. A ValueError if predictions are not finite, or have
        errors where the mean error is 0."""
        pred, target = torch.cat(self._pred), torch.cat(self._target)
        half = half_widths((target - pred).double().abs(), self.level).to(pred.dtype)
        lower, upper = pred - half, pred + half
        inside = (lower <= target) & (target <= upper)
        summary = {
            "level": self.level,
            "coverage": inside.double().mean().item(),
            "file": path.name,
        }
        with whole_file(path, force=True) as staged, h5py.File(staged, "w", locking=False) as file:
            for name, field in (("prediction", pred), ("lower", lower), ("upper", upper)):
                file.create_dataset(name, data=field.numpy())
            file.attrs.update(summary)
            file.attrs["first_frame"] = self.initial_step
        return summary


def half_widths(errors: Tensor, level: float) -> Tensor:
    """Half the widths of the bands of all samples, from absolute errors (N, ...)."""
    half = torch.empty_like(errors)
    for part in range(PARTS):
        learned, calibrated = (errors[(part + k) % PARTS :: PARTS] for k in (1, 2))
        spread = learned.mean(dim=0)
        ratios = torch.where(calibrated == 0, 0.0, calibrated / spread)
        half[part::PARTS] = chonn_ops.uncertainty.conformal_scale(ratios, level) * spread
    return half
