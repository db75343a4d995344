"""The files of a finished run: numbers in JSON, fields for pictures in NumPy's format."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from chonn_ops.experiments import _environment
from chonn_ops.experiments._ours import MARK, own_file, seal

if TYPE_CHECKING:
    from chonn_ops.experiments.base import Evaluation
    from chonn_ops.experiments.cost import Cost
    from chonn_ops.experiments.jobs import Run
    from chonn_ops.experiments.training import Training


def write(
    run: Run,
    training: Training,
    size: Cost,
    evaluation: Evaluation,
    device: torch.device,
    diverged: str | None,
) -> dict[str, Any]:
    """Write the files of a run, whole or not at all; content of the JSON."""
    if evaluation.fields:
        arrays = {name: field.cpu().numpy() for name, field in evaluation.fields.items()}
        with own_file(run.fields) as staged:
            with open(staged, "wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
            seal(staged)
    record = _finite(_record(run, training, size, evaluation, device, diverged))
    # Last, since it says that the run is finished.
    with own_file(run.result) as staged:
        staged.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    return record


def _record(
    run: Run,
    training: Training,
    size: Cost,
    evaluation: Evaluation,
    device: torch.device,
    diverged: str | None,
) -> dict[str, Any]:
    history = training.history
    epochs = len(history["train_loss"])
    return {
        "generator": MARK,
        "experiment": run.experiment.name,
        "title": run.experiment.title,
        "scale": run.job.scale,
        "variant": run.variant.name,
        "label": run.variant.label,
        "tags": dict(run.variant.tags),
        "seed": run.job.seed,
        "config": dataclasses.asdict(run.config),
        "precision": run.job.precision,
        "versions": _environment.versions(),
        "hardware": _environment.hardware(device),
        "changes": sorted(run.variant.changes),
        **training.origin,
        "notes": training.notes,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "parameters": size.parameters,
        "multiply_adds": size.multiply_adds,
        "curve": {"epoch": list(range(1, epochs + 1)), **history},
        "diverged": diverged,
        "metrics": {
            split: {name: float(value) for name, value in scores.items()}
            for split, scores in evaluation.metrics.items()
        },
        "curves": {
            name: [float(value) for value in values] for name, values in evaluation.curves.items()
        },
        "seconds": training.seconds,
        "peak_memory_mib": _environment.peak_memory_mib(device),
    }


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not know."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
