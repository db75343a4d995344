"""docs/claims.md and the blocks of docs/experiments.md, from ``docs/results/`` and the settings.

The routing ablation on digits, whose results are those of ``digits_ablation.py``, joins the
scoreboard here.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Sequence

from pages.blocks import MISSING, ROOT, Build, Row, block, load, markdown

from chonn_ops.experiments import FURTHER, PAPERS, get
from chonn_ops.report import scoreboard
from chonn_ops.report.claims import VERDICTS
from chonn_ops.report.comparison import number
from chonn_ops.report.results import Run, Study, read_studies

RESULTS = ROOT / "docs" / "results"


def kept() -> list[Study]:
    """The studies of `chonn run` that are kept with the code."""
    return read_studies(RESULTS) if any(RESULTS.glob("*.json")) else []


def studies() -> list[Study]:
    """The same, and the ablation on digits."""
    return [*kept(), digits()]


def claims_page() -> str:
    return page(studies())


def page(studies: Sequence[Study]) -> str:
    """The appendix of the docs: overview, then evidence, numbers and settings of every study.

    Claims are judged on the models that they are about, not on those of a search.
    """
    found = scoreboard.entries([study for study in studies if "+" not in study.scale])
    parts = [
        "# Claims, probes and all numbers",
        "The appendix of [the results](results.md): what the paper claims and what its experiments "
        "give here. This page is generated from the JSON files in `docs/results/`, which hold "
        "every run ([how to run them](experiments.md)); nobody types a number.",
        f"{scoreboard.RULE} {scoreboard.SIGNS}",
        "The scale `small` trains models that are scaled down from their publications', for "
        "minutes on two CPU cores: what it contradicts may still hold at the paper's scale, and "
        "what it supports may not.",
        "## Scoreboard",
        f"Of the claims, with the paper's models{scoreboard.how(studies)}: "
        f"{scoreboard.summary(found)}.",
        scoreboard.overview(found),
        *scoreboard.beyond(studies),
    ]
    for study in studies:
        parts.append(scoreboard.study_heading(study))
        parts += [scoreboard.claim_text(entry) for entry in found if entry.study is study]
        parts += scoreboard.numbers(study)
    return scoreboard.joined(parts)


def verdicts() -> str:
    """How many claims, with the paper's models, have which verdict."""
    lines = []
    judged = [study for study in studies() if "+" not in study.scale]
    for board in scoreboard.boards(scoreboard.entries(judged)):
        counts = Counter(row[0].verdict for _, row in board.rows if row[0])
        numbers = [str(counts[verdict]) for verdict in VERDICTS]
        lines.append([scoreboard.heading(board), *numbers])
    return markdown(["claims on", *VERDICTS], lines)


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
    """Every field of a config: its value at each scale, and where the paper's comes from."""
    experiment = get(name)
    paper, small = experiment.scales["paper"], experiment.scales["small"]
    lines = []
    for field in dataclasses.fields(paper):
        values = [getattr(config, field.name) for config in (paper, small)]
        source = experiment.sources.get(field.name, MISSING.strip())
        lines.append([f"`{field.name}`", *(f"{value}" for value in values), source])
    return markdown(["setting", "`paper`", "`small`", "source"], lines, (0, -1))


def differing() -> str:
    """Of the further problems, the fields of a config that differ from Darcy flow's."""
    darcy, lines = get("darcy").scales, []
    for name in FURTHER:
        experiment = get(name)
        for field in dataclasses.fields(experiment.scales["paper"]):
            values = [
                [getattr(s[scale], field.name, MISSING) for scale in ("paper", "small")]
                for s in (experiment.scales, darcy)
            ]
            if values[0] != values[1] and field.name != "standardize":
                source = experiment.sources[field.name]
                lines.append([name, f"`{field.name}`", *(f"{v}" for v in values[0]), source])
    return markdown(["problem", "setting", "`paper`", "`small`", "source"], lines, (0, -1))


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
    "verdicts": verdicts,
    "further": differing,
    **{name: lambda name=name: hyperparameters(name) for name in PAPERS},
}
