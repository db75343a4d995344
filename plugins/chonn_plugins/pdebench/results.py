"""A table of metrics averaged over samples and predicted frames, beside PDEBench's own metrics."""

from __future__ import annotations

import inspect
import itertools
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
from chonn_ops.files import finite, write_whole
from chonn_plugins.pdebench import bands
from chonn_plugins.pdebench.data import Layout
from chonn_plugins.pdebench.job import TAG, Job
from chonn_plugins.pdebench.patches import Patches

NOTE = (
    "PDEBench's own numbers include the input frames, whose error is zero, and average over "
    "batches: a ragged last batch weighs as much as a full one."
)
HOST_METRICS = ("rmse", "nrmse", "csv", "max_error", "boundary_rmse", "fourier_rmse")


@dataclass(frozen=True)
class Host:
    """The installed PDEBench: the modules that a job of one family uses."""

    train: ModuleType
    metrics: ModuleType

    @property
    def name(self) -> str:
        try:
            return f"PDEBench {version('pdebench')}"
        except PackageNotFoundError:
            return "PDEBench of no version"


def collect(patches: Patches, host: Host, job: Job, layout: Layout, overrides: list[str]) -> None:
    """Write a table whenever PDEBench evaluates the job, from the predictions that it scores, and
    bands if the job asks for them."""
    level = bands.level_of(job, layout)
    evaluate = host.train.metrics
    signature = inspect.signature(evaluate)

    def metrics(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs).arguments
        start = call["initial_step"]
        accumulator = chonn_ops.metrics.MetricAccumulator(start, layout.spacing)
        collector = None if level is None else bands.Collector(level, start)
        seen = [accumulator] if collector is None else [accumulator, collector]
        with Patches() as inner:
            inner.set(host.metrics, "metric_func", scored(host.metrics.metric_func, *seen))
            reported = evaluate(*args, **kwargs)
        values = accumulator.compute()
        content = report(host, job, layout, call["model"], values, reported, overrides)
        name = free_name(call["model_name"], content["args"])
        if collector is not None:
            try:
                content["bands"] = collector.write(Path(f"{name}_bands.hdf5"))
            except ValueError as error:
                print(f"chonn-ops: note: no bands: {error}", file=sys.stderr, flush=True)
        write_report(name, content)
        shown = ", ".join(f"{key} {values[key]:.4g}" for key in ("rmse", "nrmse", "max_error"))
        print(f"chonn-ops: {layout.validation} samples, {shown}: {name}_metrics.txt and .json")
        return reported

    patches.set(host.train, "metrics", metrics)


def scored(metric_func: Any, *accumulators: Any) -> Any:
    """PDEBench's ``metric_func``, which also updates our accumulators and supports 3-D fields.

    0.1.0 takes views of 3-D fields that need channels to vary slowest in memory, and averages its
    boundary error, which has one axis, over two axes.
    """

    def score(pred: torch.Tensor, target: torch.Tensor, if_mean: bool = True, **kwargs: Any) -> Any:
        for accumulator in accumulators:
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
    """The metrics of one evaluation and what is needed to repeat it, as JSON values."""
    start = job.args["initial_step"]
    diverged = {k: str(v) for k, v in metrics.items() if v is not None and not math.isfinite(v)}
    host_values = {
        name: finite(value.tolist()) for name, value in zip(HOST_METRICS, reported, strict=True)
    }
    args = {**job.args, "model_name": job.name}
    args.pop(TAG, None)
    options = job.model.complete(job.options) if job.model else {}
    options |= getattr(model, "recorded", {})  # what the data decided
    return {
        "model": job.name,
        "label": job.label,
        "options": options,
        "parameters": sum(p.numel() for p in model.parameters()),
        "data": job.args["filename"],
        "split": "validation (the tenth of the data by which PDEBench also picks its checkpoint)",
        "samples": layout.validation,
        "frames": {"first": start, "last": layout.frames - 1, "what": "predicted frames only"},
        "spacing": list(layout.spacing),
        "metrics": {k: None if k in diverged else v for k, v in metrics.items()},
        "not_finite": diverged,
        "pdebench_metrics": host_values,
        "pdebench_note": NOTE,
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


def free_name(name: str, args: dict[str, Any]) -> str:
    """The name, or else the first one with a number, under which there are no metrics but those of
    an evaluation with the same arguments."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(tried for tried in itertools.chain([name], numbered) if _is_free(tried, args))


def _is_free(name: str, args: dict[str, Any]) -> bool:
    try:
        report = json.loads(Path(f"{name}_metrics.json").read_text())
        return report["args"] == json.loads(json.dumps(args))
    except FileNotFoundError:
        return True
    except (ValueError, LookupError, TypeError):  # somebody else's file
        return False


def write_report(name: str, content: dict[str, Any]) -> None:
    """Write ``<name>_metrics.json`` and ``.txt``, each completely or not at all."""
    texts = {"json": json.dumps(content, indent=2) + "\n", "txt": as_text(content)}
    for suffix, text in texts.items():
        write_whole(Path(f"{name}_metrics.{suffix}"), text)


def as_text(content: dict[str, Any]) -> str:
    """The report as a text table."""
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
    if bands := content.get("bands"):
        lines.append(
            f"\nbands of level {bands['level']:g} in {bands['file']}: they hold "
            f"{bands['coverage']:.4f} of the points"
        )
    return "\n".join([*lines, "", content["pdebench_note"], ""])
