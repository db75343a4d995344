"""The table of metrics beside PDEBench's own: averaged over samples, predicted frames only."""

from __future__ import annotations

import inspect
import json
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import chonn_ops
from chonn_plugins.pdebench._files import whole_file
from chonn_plugins.pdebench.data import Layout
from chonn_plugins.pdebench.job import TAG, Job
from chonn_plugins.pdebench.patches import Patches

HOST_METRICS = ("rmse", "nrmse", "csv", "max_error", "boundary_rmse", "fourier_rmse")


@dataclass(frozen=True)
class Host:
    """The PDEBench that runs: the modules that a job of one family uses."""

    train: ModuleType
    metrics: ModuleType

    @property
    def from_git(self) -> bool:
        """Whether this is the git version, whose metrics leave out the given frames."""
        return "initial_step" in inspect.signature(self.metrics.metric_func).parameters

    @property
    def silent(self) -> bool:
        """Whether the trainer says nothing: the git version's FNO neither prints nor logs."""
        return self.from_git and not hasattr(self.train, "logger")

    @property
    def name(self) -> str:
        try:
            number = version("pdebench")
        except PackageNotFoundError:
            number = "of no version"
        return f"PDEBench {number}{' (git version)' if self.from_git else ''}"

    @property
    def note(self) -> str:
        """How PDEBench's own numbers differ from the table's."""
        if self.from_git:
            return (
                "PDEBench's own numbers leave out the given frames, but sum over validation "
                "batches and divide by the index of the last one: too large by n/(n-1) for n "
                "batches, infinite for one. A ragged last batch weighs as much as a full one."
            )
        return (
            "PDEBench's own numbers include the given frames, whose error is zero, and average "
            "over batches: a ragged last batch weighs as much as a full one."
        )


def collect(patches: Patches, host: Host, job: Job, layout: Layout, overrides: list[str]) -> None:
    """Write a table whenever PDEBench evaluates the job, from the very predictions it scores."""
    evaluate = host.train.metrics
    signature = inspect.signature(evaluate)

    def metrics(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs).arguments
        start = call["initial_step"]
        accumulator = chonn_ops.metrics.MetricAccumulator(start, layout.spacing)
        inner = Patches()
        inner.set(host.metrics, "metric_func", scored(host.metrics.metric_func, accumulator))
        try:
            reported = evaluate(*args, **kwargs)
        finally:
            inner.undo()
        values = accumulator.compute()
        name = call["model_name"]
        write_report(name, report(host, job, layout, call["model"], values, reported, overrides))
        shown = ", ".join(f"{key} {values[key]:.4g}" for key in ("rmse", "nrmse", "max_error"))
        print(f"chonn-ops: {layout.validation} samples, {shown}: {name}_metrics.txt and .json")
        return reported

    patches.set(host.train, "metrics", metrics)


def scored(metric_func: Any, accumulator: Any) -> Any:
    """PDEBench's ``metric_func`` that also feeds our accumulator, and survives 3-D fields.

    0.1.0 takes views of 3-D fields that need channels to vary slowest in memory, and averages
    its one-axis boundary error over two axes.
    """

    def score(pred: torch.Tensor, target: torch.Tensor, if_mean: bool = True, **kwargs: Any) -> Any:
        accumulator.update(pred, target)
        if target.ndim != 6:
            return metric_func(pred, target, if_mean=if_mean, **kwargs)
        pred, target = (f.movedim(-1, 1).contiguous().movedim(1, -1) for f in (pred, target))
        errors = metric_func(pred, target, if_mean=False, **kwargs)
        if not if_mean:
            return errors
        return tuple(e.mean(dim=(0, -1)) if e.ndim > 1 else e.mean() for e in errors)

    return score


def report(
    host: Host,
    job: Job,
    layout: Layout,
    model: torch.nn.Module,
    metrics: dict[str, float | None],
    reported: Sequence[Any],
    overrides: list[str],
) -> dict[str, Any]:
    """All that is needed to read, compare and repeat one evaluation, ready for JSON."""
    start = job.args["initial_step"]
    diverged = {k: str(v) for k, v in metrics.items() if v is not None and not math.isfinite(v)}
    host_values = {
        name: _finite(value.tolist()) for name, value in zip(HOST_METRICS, reported, strict=True)
    }
    args = {**job.args, "model_name": job.name}
    args.pop(TAG, None)
    return {
        "model": job.name,
        "label": job.label,
        "options": job.model.complete(job.options) if job.model else {},
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "data": job.args["filename"],
        "split": "validation (the tenth of the data by which PDEBench also picks its checkpoint)",
        "samples": layout.validation,
        "frames": {"first": start, "last": layout.frames - 1, "what": "predicted frames only"},
        "spacing": list(layout.spacing),
        "metrics": {k: None if k in diverged else v for k, v in metrics.items()},
        "not_finite": diverged,
        "pdebench_metrics": host_values,
        "pdebench_note": host.note,
        "versions": {
            "chonn_ops": chonn_ops.__version__,
            "pdebench": host.name,
            "torch": torch.__version__,
            "python": sys.version.split()[0],
        },
        "device": str(host.train.device),
        "command": shlex.join(sys.argv),
        "overrides": overrides,
        "args": args,
    }


def write_report(name: str, content: dict[str, Any]) -> None:
    """Write ``<name>_metrics.json`` and ``.txt``, each whole or not at all."""
    texts = {"json": json.dumps(content, indent=2) + "\n", "txt": as_text(content)}
    for suffix, text in texts.items():
        with whole_file(Path(f"{name}_metrics.{suffix}")) as partial:
            partial.write_text(text)


def as_text(content: dict[str, Any]) -> str:
    """The report as a table for reading."""
    frames = content["frames"]
    lines = [
        f"{content['label']} on {content['data']}",
        f"{content['samples']} samples of the {content['split'].split()[0]} split, frames "
        f"{frames['first']} to {frames['last']} ({frames['what']}), "
        f"{content['parameters']} parameters",
        ", ".join(f"{k} {v}" for k, v in content["versions"].items()),
        "",
    ]
    for key, value in content["metrics"].items():
        missing = content["not_finite"].get(key, "missing")
        lines.append(f"{key:<20}{missing if value is None else format(value, '.6g'):>14}")
    return "\n".join([*lines, "", content["pdebench_note"], ""])


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value if math.isfinite(value) else None
