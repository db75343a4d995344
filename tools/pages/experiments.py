"""The studies in ``docs/results/``, and the blocks of docs/experiments.md.

The routing ablation on digits, whose results are those of ``digits_ablation.py``, joins the
scoreboard here.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from pages.blocks import MISSING, ROOT, Build, Row, block, load, markdown

from chonn_ops.experiments import FURTHER, PAPERS, get
from chonn_ops.experiments.base import Experiment
from chonn_ops.report.comparison import number
from chonn_ops.report.results import Run, Study, read_studies

RESULTS = ROOT / "docs" / "results"
HEADER = ("settings, `paper` / `small`", "source")


def kept() -> list[Study]:
    """The studies of `chonn run` that are kept with the code."""
    return read_studies(RESULTS) if any(RESULTS.glob("*.json")) else []


def studies() -> list[Study]:
    """The same, and the ablation on digits."""
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
    """Of the further problems, the fields of a config that differ from Darcy flow's."""
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
    """Of a setting, at the scales `paper` and `small`."""
    return [str(getattr(experiment.scales[s], name, MISSING)) for s in ("paper", "small")]


def growth(record: Row) -> str:
    """Of errors in a band of wavenumbers, by time: means over the trajectories."""
    start, times = record["config"]["start"], (11, 15, 20, 30, 50)
    lines = [
        [
            f"{first} to {below - 1}" if below - first > 1 else f"{first}",
            *(number(statistics.fmean(result["growth"][time - start - 1])) for time in times),
        ]
        for result in record["results"]
        for first, below in [result["band"]]
    ]
    return markdown(["wavenumbers", *(f"t = {time}" for time in times)], lines)


EXPERIMENTS_PAGE: dict[str, Build] = {
    "growth": block("navier_stokes_growth", "", growth),
    "further": differing,
    **{name: lambda name=name: hyperparameters(name) for name in PAPERS},
}
