"""Error over samples, parameters, seconds of training or resolution: a training a point.

Each point is a run of ``chonn run`` in a folder named after its settings, so that a stopped study
goes on where it was. Along every axis the other settings stay those of the scale, but for

samples     the epochs: every model takes as many optimiser steps from few samples as from many.
            The samples to test follow those to train in most files, so points have their own
parameters  the width, by the square root of a factor of about the parameters
seconds     the epochs, by a factor; each training has its whole schedule
resolution  trained and tested there, Fourier modes at most half of the points

With ``--sizes seconds`` the models are those that ``search.py`` chose at equal wall-clock.

    python tools/curves.py darcy --over samples --seeds 0 1 2    # results in runs/curves
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from search import STEADY

from chonn_ops._files import write_json
from chonn_ops.experiments import get, schedule
from chonn_ops.experiments.base import Config
from chonn_ops.experiments.jobs import Job, parse_settings, settings_texts
from chonn_ops.experiments.records import Run
from chonn_ops.report.comparison import Statistic
from chonn_ops.report.figures import _style as style
from chonn_ops.report.tables import metric_label

MODELS = ("network", "unet", "fno-neuralop", "ffno", "transolver", "mgno", "direct")
SHARED = ("versions", "hardware")
MARKERS = "os^Dv<>PX"
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
# Where a model has its width under another name than that.
WIDTHS = {"unet": "unet_features", "fno": "fno_width", "cno": "channel_multiplier"}


def samples(config: Any, variant: str, value: float) -> dict[str, Any]:  # noqa: ARG001
    epochs = max(1, round(config.epochs * config.n_train / value))
    return {"n_train": int(value), "epochs": epochs}


def parameters(config: Any, variant: str, value: float) -> dict[str, Any]:
    name = "network_width" if variant.startswith("network") else WIDTHS.get(variant, "width")
    multiple = max(1, config.heads)
    steps = max(1, round(getattr(config, name) * math.sqrt(value) / multiple))
    return {name: multiple * steps}


def seconds(config: Any, variant: str, value: float) -> dict[str, Any]:  # noqa: ARG001
    return {"epochs": max(1, round(config.epochs * value))}


def resolution(config: Any, variant: str, value: float) -> dict[str, Any]:  # noqa: ARG001
    modes = {
        name: min(getattr(config, name), int(value) // 2)
        for name in ("modes", "fno_modes")
        if getattr(config, name)
    }
    return {"resolution": int(value), **modes}


@dataclasses.dataclass(frozen=True)
class Axis:
    """What a curve is over: settings of a point, usual points, and where a run says its place."""

    label: str
    values: tuple[float, ...]
    settings: Callable[[Any, str, float], dict[str, Any]]
    place: Callable[[Run, float], float]


AXES = {
    "samples": Axis("samples to train", (32, 64, 128, 256, 512, 1024), samples, lambda _, v: v),
    "parameters": Axis("parameters", FACTORS, parameters, lambda run, _: run.parameters),
    "seconds": Axis("seconds of training", FACTORS, seconds, lambda run, _: run.seconds),
    "resolution": Axis("points a side", (16, 32, 64, 128), resolution, lambda _, v: v),
}


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)  # as the workers have
    # Sizes that round to the same are one point.
    jobs = {
        (job.variant_name, job.scale, job.seed): (value, job)
        for seed in args.seeds
        for value, job in plan(args, seed)
    }
    finished = schedule.run_all([job for _, job in jobs.values()], args.jobs)
    found = [
        entry(run, jobs[run.variant, run.scale, run.seed][0], AXES[args.over])
        for run in finished.runs
    ]
    record = {
        "experiment": "curves",
        "problem": args.experiment,
        "over": args.over,
        "config": {"scale": args.scale, "sizes": args.sizes, "set": args.set},
        **{name: getattr(finished.runs[0], name) for name in SHARED if finished.runs},
        "results": found,
    }
    name = f"{args.experiment}-{args.over}"
    write_json(args.results / f"curves-{name}.json", record)
    args.figures.mkdir(parents=True, exist_ok=True)
    draw(record, args.figures / f"curves-{name}.svg")
    print(f"wrote {args.results / f'curves-{name}.json'} and {args.figures / f'curves-{name}.svg'}")
    for job, reason in finished.failures.items():
        print(f"{job.title} of {job.scale}: {reason}")
    if finished.failures:
        raise SystemExit(1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    folder = Path("runs/curves")
    parser.add_argument("experiment", choices=(*STEADY, "darcy3d"))
    parser.add_argument("--over", choices=AXES, required=True)
    parser.add_argument("--values", type=float, nargs="+", help="points (default: the axis's)")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="those there are")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--scale", choices=("smoke", "small", "paper"), default="small")
    parser.add_argument("--sizes", default="", help="see search.py (default: the scale's)")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--output", type=Path, default=folder, help="folder of the runs")
    parser.add_argument("--results", type=Path, default=folder, help="folder of the numbers")
    parser.add_argument("--figures", type=Path, default=folder, help="folder of the figure")
    parser.add_argument("--data", type=Path, default=Path("data"), help="data files")
    parser.add_argument("--jobs", type=int, default=schedule.default_workers("cpu"))
    return parser.parse_args()


def plan(args: argparse.Namespace, seed: int) -> Iterable[tuple[float, Job]]:
    """A training for each model and point."""
    experiment, axis = get(args.experiment), AXES[args.over]
    base: Config = experiment.scales[args.scale]
    given = parse_settings(base, args.set)
    sizes = {"sizes": args.sizes} if args.sizes else {}
    base = dataclasses.replace(base, **given, **sizes)
    found = {variant.name: variant for variant in experiment.variants(base)}
    for value in args.values or axis.values:
        for name in (name for name in args.models if name in found):
            changes = {**found[name].changes, **given}
            own = axis.settings(dataclasses.replace(base, **changes), name, value)
            # The direct solve has neither a width nor modes.
            if args.over == "parameters" and found[name].tags["family"] == "direct":
                continue
            (job,) = schedule.plan(
                args.experiment,
                args.scale,
                output=args.output,
                data=args.data,
                variants=[name],
                assignments=settings_texts({**changes, **own, "seed": seed}),
                accelerator="cpu",
            )
            yield value, job


def entry(run: Run, value: float, axis: Axis) -> dict[str, Any]:
    """What the figure needs of a run, and what it was made of."""
    metric = next(iter(next(iter(run.metrics.values()), {})), "")
    return {
        "model": run.variant,
        "label": run.label,
        "ours": run.tags["family"] == "chonn",
        "seed": run.seed,
        "value": value,
        "place": axis.place(run, value),
        "metric": metric,
        "errors": {split: scores[metric] for split, scores in run.metrics.items()},
        "parameters": run.parameters,
        "seconds": round(run.seconds, 1),
        "epochs": run.config["epochs"],
        "diverged": run.diverged,
        "data": run.data,
        "code": run.model,
        "commit": run.provenance.state,
    }


def draw(record: dict[str, Any], path: Path) -> None:
    """A line a model with the deviation over the seeds, a panel a test split."""
    runs: dict[str, dict[float, list[dict[str, Any]]]] = {}
    for run in record["results"]:
        runs.setdefault(run["label"], {}).setdefault(run["value"], []).append(run)
    splits = list(dict.fromkeys(split for run in record["results"] for split in run["errors"]))
    if not splits:
        return
    with style.styled():
        figure, axes = style.grid(1, len(splits), 3.4)
        for split, axis in zip(splits, axes[0], strict=True):
            for at, (label, points) in enumerate(runs.items()):
                ours = next(iter(points.values()))[0]["ours"]
                colour = style.NETWORK if ours else style.CYCLE[at % len(style.CYCLE)]
                look = style.Look(colour, "*" if ours else MARKERS[at % len(MARKERS)], "-")
                errors = [
                    Statistic.of(run["errors"].get(split) for run in points[value])
                    for value in sorted(points)
                ]
                places = [
                    Statistic.of(run["place"] for run in points[value]).mean
                    for value in sorted(points)
                ]
                style.line(axis, places, errors, look, label)
            style.logarithmic(axis.xaxis)
            style.logarithmic(axis.yaxis)
        titles = [split.replace("_", " ") for split in splits]
        metric = metric_label(record["results"][0]["metric"])
        style.finish(figure, axes, titles, AXES[record["over"]].label, [metric])
        style.save(figure, path)


if __name__ == "__main__":
    main()
