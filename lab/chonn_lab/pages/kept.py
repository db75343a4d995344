"""The studies in ``lab/results/runs``, and the blocks of docs/lab/experiments.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from chonn_lab.experiments import FURTHER, PAPERS, get
from chonn_lab.experiments.base import Experiment
from chonn_lab.pages.blocks import MISSING, Build, load
from chonn_lab.paths import RUNS
from chonn_lab.report.document import markdown
from chonn_lab.report.results import Run, Study, read_studies

HEADER = ("settings, `paper` / `small`", "source")


def kept() -> list[Study]:
    """The studies of `chonn-lab run` that are kept with the code."""
    return read_studies(RUNS, mixed=True) if any(RUNS.glob("*.json")) else []


def studies() -> list[Study]:
    """The same, and the routing ablation on digits (`chonn_lab.studies.digits_ablation`)."""
    return [*kept(), digits()]


def digits() -> Study:
    record = load("digits_ablation")
    runs = [
        Run(
            experiment="digits",
            scale="32 x 32",
            variant=result["model"],
            label=result["model"],
            tags={"family": "chonn", "routing": result["model"]},
            seed=result["seed"],
            config={
                name: record["config"][name] for name in ("epochs", "batch_size", "learning_rate")
            },
            versions=record["versions"],
            hardware=record["hardware"],
            commit=record["commit"],
            date="",
            parameters=result["parameters"],
            multiply_adds=0,
            curve={},
            metrics={"test": {"error": 1 - result["metrics"]["test"]["accuracy"]}},
            curves={},
            seconds=result["seconds"],
            peak_memory_mib=None,
        )
        for result in record["results"]
    ]
    return Study("digits", "32 x 32", tuple(runs))


def hyperparameters(name: str) -> str:
    """Every field of a config."""
    experiment = get(name)
    fields = dataclasses.fields(experiment.scales["paper"])
    return markdown(HEADER, by_source(experiment, [field.name for field in fields]), (0, 1))


def differing() -> str:
    """The fields of a config in which a further problem differs from Darcy flow."""
    darcy, lines = get("darcy"), []
    for name in FURTHER:
        experiment = get(name)
        names = [
            field.name
            for field in dataclasses.fields(experiment.scales["paper"])
            if field.name != "standardize"
            and values(experiment, field.name) != values(darcy, field.name)
        ]
        lines += [[name, *line] for line in by_source(experiment, names)]
    return markdown(["problem", *HEADER], lines, (0, 1, 2))


def by_source(experiment: Experiment[Any], names: Sequence[str]) -> list[list[str]]:
    """A line a source: the settings whose value at `paper` comes from it."""
    lines: dict[str, list[str]] = {}
    for name in names:
        text = " / ".join(dict.fromkeys(values(experiment, name)))
        source = experiment.sources.get(name, MISSING.strip())
        lines.setdefault(source, []).append(f"`{name}` {text}")
    return [[", ".join(texts), source] for source, texts in lines.items()]


def values(experiment: Experiment[Any], name: str) -> list[str]:
    """A setting at the scales `paper` and `small`."""
    return [str(getattr(experiment.scales[s], name, MISSING)) for s in ("paper", "small")]


EXPERIMENTS_PAGE: dict[str, Build] = {
    "further settings": differing,
    **{f"{name} settings": lambda name=name: hyperparameters(name) for name in PAPERS},
}
