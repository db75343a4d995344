"""Result files as `chonn-lab run` writes them, with made-up numbers."""

import json

import numpy as np

from chonn_lab.experiments.records import MARK, Run
from chonn_lab.report.runs import Study

METRICS = ("relative_l1", "rmse", "boundary_rmse")


def record(experiment, variant, error, seed=0, **changes):
    """One run of a baseline whose metrics are `error`, a little different for every seed."""
    scatter = 1 + 0.02 * ((seed * 7 + len(variant)) % 5 - 2)
    epochs = list(range(1, 41))
    falling = [error * (1 + 8 * np.exp(-epoch / 9)) * scatter for epoch in epochs]
    return {
        "experiment": experiment,
        "scale": "small",
        "variant": variant,
        "label": variant,
        "tags": {"family": variant, "role": "baseline"},
        "seed": seed,
        "config": {"epochs": 40, "n_train": 256, "batch_size": 4 + 4 * (variant == "fno")},
        "versions": {"python": "3.11", "torch": "2.15", "chonn-ops": "0.1.0"},
        "hardware": {"processor": "a processor", "cores": 2, "device": "cpu"},
        "commit": "0123456789abcdef",
        "dirty": False,
        "data": {"data.hdf5": {"sha256": "da7a" * 16, "official": False}},
        "code": "c0de" * 3,
        "changes": ["batch_size"],
        "date": "2026-11-21T12:00:00+00:00",
        "parameters": 100_000,
        "multiply_adds": 3_000_000,
        "curve": {"epoch": epochs, "train_loss": falling, "validation_error": falling},
        "metrics": {"test": {n: error * scatter * 0.7**place for place, n in enumerate(METRICS)}},
        "curves": {},
        "seconds": 60.0 + 5 * seed,
        "peak_memory_mib": 300.0,
        **changes,
    }


def steady(experiment, seeds=3):
    """Two baselines, and a paper's model that is better."""
    for seed in range(seeds):
        yield record(experiment, "unet", 0.05, seed)
        yield record(experiment, "fno", 0.04, seed)
        tags = {"family": "chonn", "order": 2, "role": "paper"}
        yield record(experiment, "chonn", 0.02, seed, tags=tags)


def study(runs, scale="small"):
    parsed = tuple(Run.parse(run) for run in runs)
    return Study(parsed[0].experiment, scale, parsed)


def write(folder, runs):
    """Result files of `runs` under ``folder/<experiment>/<scale>``."""
    for run in runs:
        path = (
            folder / run["experiment"] / run["scale"] / f"{run['variant']}-seed{run['seed']}.json"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"generator": MARK, **run}))
    return folder
