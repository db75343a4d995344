"""The studies that are kept with the code, in ``lab/results``."""

from __future__ import annotations

from pathlib import Path

from chonn_lab.pages.blocks import load
from chonn_lab.paths import RUNS
from chonn_lab.report.results import Run, Study, read_studies

# Where the file of a study is not runs/<experiment>-<scale>.json.
ELSEWHERE = {"digits": "digits_ablation.json"}
RESULTS_FROM_PAGES = Path("../../lab/results")


def kept() -> list[Study]:
    """The studies of `chonn-lab run` that are kept with the code."""
    return read_studies(RUNS, mixed=True) if any(RUNS.glob("*.json")) else []


def studies() -> list[Study]:
    """The same, and the routing ablation on digits (`chonn_lab.studies.digits_ablation`)."""
    return [*kept(), digits()]


def file_of(study: Study) -> Path:
    """The file of a study, from a page of docs/lab."""
    name = ELSEWHERE.get(study.experiment, f"runs/{study.experiment}-{study.scale}.json")
    return RESULTS_FROM_PAGES / name


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
