"""Result files as `chonn-lab run` writes them, with made-up numbers."""

import json

import numpy as np

from chonn_lab.experiments.records import Run
from chonn_lab.report.runs import Study

ORDER1D_METRICS = ("point", "spectral", "derivative")
FIELD_METRICS = (
    *("relative_l1", "relative_l1_median", "rmse", "nrmse", "range_nrmse", "csv", "max_error"),
    *("max_mse", "boundary_rmse", "fourier_rmse_low", "fourier_rmse_mid", "fourier_rmse_high"),
)


def record(experiment, variant, tags, error, seed=0, names=FIELD_METRICS, **changes):
    """One run whose metrics are `error`, a little different for every seed."""
    scatter = 1 + 0.02 * ((seed * 7 + len(variant)) % 5 - 2)
    epochs = list(range(1, 41))
    falling = [error * (1 + 8 * np.exp(-epoch / 9)) * scatter for epoch in epochs]
    return {
        "experiment": experiment,
        "scale": "small",
        "variant": variant,
        "label": variant,
        "tags": tags,
        "seed": seed,
        "config": {"epochs": 40, "n_train": 256, "batch_size": 4 + 4 * (tags["family"] == "fno")},
        "versions": {"python": "3.11", "torch": "2.15", "chonn-ops": "0.1.0"},
        "hardware": {"processor": "a processor", "cores": 2, "device": "cpu"},
        "commit": "0123456789abcdef",
        "dirty": False,
        "data": {"data.hdf5": {"sha256": "da7a" * 16, "official": False}},
        "code": "c0de" * 3,
        "changes": ["batch_size"],
        "date": "2026-11-21T12:00:00+00:00",
        "parameters": 100_000 + 12_000 * tags.get("order", 0) * tags.get("depth", 1),
        "multiply_adds": 3_000_000,
        "curve": {"epoch": epochs, "train_loss": falling, "validation_error": falling},
        "metrics": {"test": {n: error * scatter * 0.7**place for place, n in enumerate(names)}},
        "curves": {},
        "seconds": 60.0 + 5 * seed,
        "peak_memory_mib": 300.0,
        **changes,
    }


def study(runs, scale="small"):
    parsed = tuple(Run.parse(run) for run in runs)
    return Study(parsed[0].experiment, scale, parsed)


def marked(run):
    """With the mark of the program that writes results."""
    return {"generator": "chonn-ops", **run}


def write(folder, runs):
    """Result files of `runs` under ``folder/<experiment>/<scale>``."""
    for run in runs:
        place = folder / run["experiment"] / run["scale"]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{run['variant']}-seed{run['seed']}.json").write_text(json.dumps(marked(run)))
    return folder


def order1d(seeds=3, gain=0.15):
    """Blocks of order n better than n first-order blocks by `gain` times n."""
    for seed in range(seeds):
        for target in range(1, 5):
            yield from _order1d(seed, target, gain)


def _order1d(seed, target, gain):
    def run(name, error, **tags):
        tags = {"target": target, "order": 1, "depth": 1, **tags}
        return record("order1d", f"t{target}-{name}", tags, error, seed, ORDER1D_METRICS)

    for n in range(1, 5) if target == 4 else (target,):
        error = 0.05 * target * (1 + 1 / n)
        better = error * (1 - gain * (n - 1) * target / 4)
        yield run(f"order{n}", better, family="chonn", order=n)
        if n > 1:
            yield run(f"depth{n}", error, family="depth", depth=n)
    if target == 4:
        for order, depth in ((2, 2), (2, 3), (3, 2)):
            name = f"stack{order}x{depth}"
            yield run(name, 0.12 / depth, family="stack", order=order, depth=depth)


def steady(experiment, seeds=3, ours=0.02):
    """Better with every order, the paper's better than the baselines if `ours` is small."""
    for seed in range(seeds):
        for family, error in (("unet", 0.05), ("fno", 0.04), ("cno", 0.025)):
            yield record(experiment, family, {"family": family, "role": "baseline"}, error, seed)
        for order in range(5):
            tags = {"family": "chonn", "order": order, "role": "ablation"}
            run = record(experiment, f"cno{order}", tags, ours * (1.6 - 0.15 * order), seed)
            test = run["metrics"]["test"]
            run["metrics"]["out_of_distribution"] = {name: 1.3 * test[name] for name in test}
            yield run


def shallow_water(seeds=3):
    models = (("unet", "baseline", 0.06), ("fno", "baseline", 0.05), ("chonn", "paper", 0.03))
    for seed in range(seeds):
        for family, role, error in models:
            tags = {"family": family, "role": role, "order": 2}
            yield record("shallow_water", family, tags, error, seed)


def navier_stokes(seeds=3):
    names = ("rollout_relative_l2", "one_step_relative_l2")
    for seed in range(seeds):
        for history in (10, 5, 3):
            for family, role, growth in (("fno", "baseline", 1.08), ("chonn", "paper", 1.06)):
                first = 0.01 * (12 - history) / 4 * (1 + 0.05 * seed)
                rollout = [first * growth**step for step in range(40)]
                tags = {"family": family, "history": history, "recipe": "paper", "role": role}
                run = record(
                    *("navier_stokes", f"{family}-{history}", {**tags, "order": 2}),
                    *(sum(rollout) / 40, seed, names),
                )
                yield {**run, "curves": {"rollout_relative_l2": rollout}}


def everything(folder, seeds=3):
    """All five experiments at scale small."""
    for runs in (order1d(seeds), shallow_water(seeds), navier_stokes(seeds)):
        write(folder, runs)
    for name in ("darcy", "poisson"):
        write(folder, steady(name, seeds))
    return folder
