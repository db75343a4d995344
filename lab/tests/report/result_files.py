"""Result files as `chonn-lab run` writes them, with made-up numbers in the fields of a kept run."""

import dataclasses
import json

import numpy as np

from chonn_lab.experiments.records import MARK, Run
from chonn_lab.paths import RUNS
from chonn_lab.report.runs import Study, read_studies

KEPT = dataclasses.asdict(read_studies(RUNS / "shallow_water-small.json")[0].runs[0])
EPOCHS = list(range(1, 41))


def record(experiment, variant, error, seed=0, **changes):
    """One run of a baseline whose errors are a little different for every seed."""
    scores = [error * (1 + 0.02 * ((seed * 7 + len(variant)) % 5 - 2)) * x for x in (1, 0.7, 0.49)]
    falling = [scores[0] * (1 + 8 * np.exp(-epoch / 9)) for epoch in EPOCHS]
    return {
        **KEPT,
        "experiment": experiment,
        "variant": variant,
        "label": variant,
        "seed": seed,
        "tags": {"family": variant, "role": "baseline"},
        "config": {"epochs": 40, "n_train": 256, "batch_size": 4 + 4 * (variant == "fno")},
        "data": {"data.hdf5": {"sha256": "da7a" * 16, "official": False}},
        "commit": "0123456789abcdef",
        "code": "c0de" * 3,
        "changes": ["batch_size"],
        "title": "",
        "parameters": 100_000,
        "curve": {"epoch": EPOCHS, "train_loss": falling, "validation_error": falling},
        "metrics": {"test": dict(zip(("relative_l1", "rmse", "max_error"), scores, strict=True))},
        "curves": {},
        "seconds": 60.0 + 5 * seed,
        **changes,
    }


def steady(experiment, seeds=3):
    """Two baselines, and a paper's model that is better."""
    tags = {"family": "chonn", "order": 2, "role": "paper"}
    for seed in range(seeds):
        yield record(experiment, "unet", 0.05, seed)
        yield record(experiment, "fno", 0.04, seed)
        yield record(experiment, "chonn", 0.02, seed, tags=tags)


def study(runs, scale="small"):
    parsed = tuple(Run.parse(run) for run in runs)
    return Study(parsed[0].experiment, scale, parsed)


def write(folder, runs):
    """Result files of `runs` under ``folder/<experiment>/<scale>``."""
    for run in runs:
        path = folder / run["experiment"] / run["scale"]
        path.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"generator": MARK, **run})
        (path / f"{run['variant']}-seed{run['seed']}.json").write_text(text)
    return folder
