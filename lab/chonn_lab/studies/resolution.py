"""Models evaluated on finer grids than they were trained on, and on other domains than the square.

Darcy flow and Poisson's equation at the scale `small` of `chonn-lab run` by default. Each model is
trained on grids of 16, 32 and 64 points a side and evaluated, without retraining, on the same test
samples on every finer grid up to 256; then trained and evaluated on an l-shape and on a square with
holes, on the finest of these grids. Each training is a run of `chonn-lab run` in a folder named
after its settings, so the same command continues a stopped study. All runs of the first seed come
first.

    python -m chonn_lab.studies.resolution    # all of it in runs/resolution
    python -m chonn_lab.studies.resolution --models network --trained 64 --set train.epochs=10
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from chonn_lab.experiments import runner
from chonn_lab.experiments.base import relative_l1
from chonn_lab.experiments.configuration import build_problem, compose, resolved
from chonn_lab.experiments.records import Run
from chonn_lab.pages import blocks
from chonn_lab.pages.rows import NAMES, groups
from chonn_lab.report import style
from chonn_lab.report.comparison import Statistic
from chonn_ops.files import write_json

MODELS = {"unet": "unet", "fno": "fno", "network": "chonn_network"}
SHARED = ("versions", "hardware", "commit")
LOOKS = {
    "network": {"color": "#a50026", "marker": "o"},
    "fno": {"color": "#0072b2", "marker": "^"},
    "unet": {"color": "#e69f00", "marker": "s"},
}
LINES = ("-", "--", ":", "-.")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    folder = Path("runs/resolution")
    parser.add_argument("--output", type=Path, default=folder, help="folder of runs and results")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data")
    parser.add_argument("--scale", choices=("smoke", "small", "paper"), default="small")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options = {"action": "append", "default": [], "metavar": "FIELD=VALUE"}
    parser.add_argument("--set", **options, help="as for chonn-lab run")
    parser.add_argument("--problems", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--trained", type=int, nargs="+", default=[64, 32, 16])
    parser.add_argument("--evaluated", type=int, nargs="*", default=[32, 64, 128, 256])
    parser.add_argument("--domains", nargs="*", default=["l-shape", "holes"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = args.output / "resolution.json"
    record: dict[str, Any] = {"experiment": "resolution", "scale": args.scale, "results": []}
    for config, path in (run for seed in args.seeds for run in runs(args, seed)):
        found = runner.run(config, path)
        record |= {name: getattr(found, name) for name in SHARED}
        record["results"].append(entry(found))
        write_json(results, record)
    record["interpolated"] = list(interpolated(args))
    write_json(results, record)
    print(blocks.build("grids", record), blocks.build("domains", record), sep="\n")
    draw_curves(record, args.output / "resolution.png")


def runs(args: argparse.Namespace, seed: int) -> Iterator[tuple[Any, Path]]:
    """Configuration and folder of all trainings from one seed, as `chonn-lab run` has them."""
    places = [(n, "square") for n in args.trained]
    places += [(max(args.trained), domain) for domain in args.domains]
    for n, domain in places:
        finer = [m for m in args.evaluated if m > n] if domain == "square" else []
        changed = f"problem.domain={domain}", f"problem.resolution={n}"
        for problem in args.problems:
            for model in args.models:
                chosen = [f"problem={problem}", f"model={MODELS[model]}", *changed]
                chosen += [f"problem.test_resolutions={finer}", f"seed={seed}", "device=cpu"]
                if model == "fno":
                    # A grid has half as many modes as points; the FNO's own padding adds one.
                    chosen.append(f"model.modes={min(12, n // 2)}")
                where = f"scale={args.scale}", f"output={args.output}", f"data={args.data}"
                config = compose([*chosen, *where, *args.set])
                path = args.output / problem / f"{args.scale}+{','.join(changed)}"
                yield config, path / f"{config.model.name}-seed{seed}"


def entry(found: Run) -> dict[str, Any]:
    """What the tables and figures need of a run, errors by the evaluation grid."""
    config = found.config
    errors: dict[str, dict[str, float | None]] = {}
    for name, scores in found.metrics.items():
        split, _, points = name.rpartition("at_")
        key = (split.rstrip("_") or "test") if points.isdigit() else name
        grid = points if points.isdigit() else str(config["resolution"])
        errors.setdefault(key, {})[grid] = scores["relative_l1"]
    names = ("label", "seed", "parameters", "diverged", "data", "code")
    return {
        "problem": found.experiment,
        "domain": config["domain"],
        "trained": config["resolution"],
        "model": found.variant,
        "seconds": round(found.seconds, 1),
        **{name: getattr(found, name) for name in names},
        **{name: config[name] for name in ("epochs", "learning_rate")},
        "errors": errors,
    }


def interpolated(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Errors of the true solutions on the grid of a training, interpolated to finer ones."""
    for problem in args.problems:
        for resolution in args.trained:
            finer = [n for n in args.evaluated if n > resolution]
            settings = [f"problem={problem}", f"scale={args.scale}"]
            settings += [f"problem.resolution={resolution}", f"problem.test_resolutions={finer}"]
            tests = build_problem(resolved(compose(settings))).load(args.data / problem).tests
            coarse = tests["test"].tensors[1]
            errors = {}
            for n in finer:
                # Poisson's grids have their corners in common, Darcy's their walls.
                guess = F.interpolate(
                    coarse, size=(n, n), mode="bilinear", align_corners=problem == "poisson"
                )
                errors[str(n)] = float(relative_l1(guess, tests[f"at_{n}"].tensors[1]).mean())
            yield {"problem": problem, "trained": resolution, "errors": errors}


def draw_curves(record: dict[str, Any], path: Path) -> None:
    """Relative L1 error by the evaluation grid; a line a model and training grid."""
    found = groups(record, "square")
    problems = list(dict.fromkeys(problem for problem, _, _ in found))
    trainings = sorted({trained for _, trained, _ in found}, reverse=True)
    lines = dict(zip(trainings, LINES, strict=False))
    with style.styled():
        figure, axes = style.grid(1, len(problems), 3.1)
        places = dict(zip(problems, axes[0], strict=True))
        for (problem, trained, label), runs in found.items():
            grids = sorted(runs[0]["errors"]["test"], key=int)
            values = [Statistic.of(run["errors"]["test"][n] for run in runs) for n in grids]
            look = {"ls": lines[trained], "label": f"{label}, trained at {trained}"}
            look |= {**LOOKS[runs[0]["model"]], "markersize": 3}
            style.line(places[problem], [*map(int, grids)], values, **look)
        for row in record["interpolated"]:
            if row["problem"] in places and row["errors"]:
                errors = sorted((int(n), value) for n, value in row["errors"].items())
                look = {"color": "#666666", "ls": lines[row["trained"]]}
                look["label"] = f"truth at {row['trained']}, interpolated"
                places[row["problem"]].plot(*zip(*errors, strict=True), **look)
        ticks = sorted({int(grid) for run in record["results"] for grid in run["errors"]["test"]})
        for axis in axes[0]:
            axis.set_xscale("log", base=2)
            axis.set_xticks(ticks, [str(n) for n in ticks])
            style.logarithmic(axis.yaxis)
        titles = [NAMES[problem] for problem in problems]
        style.finish(figure, axes, titles, "evaluation grid, points a side", ["relative L1 error"])
        style.save(figure, path)


if __name__ == "__main__":
    main()
