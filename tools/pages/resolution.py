"""Markdown tables of docs/resolution.md and of equal time, from ``benchmarks/results/``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from pages.blocks import Build, block, load, markdown, spread

Record = dict[str, Any]
NAMES = {"darcy": "Darcy flow", "poisson": "Poisson"}
INTERPOLATED = "the truth there, interpolated"
# What was asked of networks: errors on finer grids over those of the training's, and on the
# l-shape over those of the square.
FINER, PART = 1.0, 1.5
EPOCHS = 15  # of the trainings that `benchmarks/steady.py` counts


def groups(record: Record, domain: str) -> dict[tuple[str, int, str], list[Record]]:
    """Runs by problem, grid of the training and label of the model."""
    found: dict[tuple[str, int, str], list[Record]] = {}
    runs = sorted(record.get("results", []), key=lambda run: (run["problem"], run["trained"]))
    for run in runs:
        if run["domain"] == domain and not run["diverged"]:
            key = run["problem"], run["trained"], run["label"]
            found.setdefault(key, []).append(run)
    return found


def asked(record: Record) -> list[str]:
    names = {grid for run in record.get("results", []) for grid in run["errors"]["test"]}
    return sorted(names, key=int)


def grids(record: Record) -> str:
    """A line a problem, model and grid of the training, a column a grid that was asked."""
    columns = asked(record)
    lines = []
    found = groups(record, "square")
    for (problem, trained, label), runs in found.items():
        for split in runs[0]["errors"]:
            name = f"{NAMES[problem]}{', out of distribution' if split != 'test' else ''}"
            cells = [
                spread([run["errors"][split][grid] for run in runs])
                if grid in runs[0]["errors"][split]
                else "-"
                for grid in columns
            ]
            size = f"{runs[0]['parameters']:,}"
            lines.append([name, label, f"{trained}", size, *cells, str(len(runs))])
    for row in record.get("interpolated", []):
        cells = [f"{row['errors'][grid]:.4f}" if grid in row["errors"] else "-" for grid in columns]
        lines.append([NAMES[row["problem"]], INTERPOLATED, f"{row['trained']}", "-", *cells, "-"])
    lines.sort(key=lambda line: (line[0], int(line[2])))
    header = ["problem", "model", "trained at", "parameters", *(f"at {n}" for n in columns)]
    return markdown([*header, "seeds"], lines)


def domains(record: Record) -> str:
    """A line a problem and model, a column a domain, each beside the square."""
    parts = [name for name in ("l-shape", "holes") if groups(record, name)]
    lines = []
    for (problem, trained, label), runs in groups(record, "square").items():
        own = spread([run["errors"]["test"][str(trained)] for run in runs])
        line = [NAMES[problem], label, f"{trained}", own]
        for domain in parts:
            other = groups(record, domain).get((problem, trained, label))
            if other:
                line += [
                    spread([run["errors"]["test"][str(trained)] for run in other]),
                    f"{mean(other, str(trained)) / mean(runs, str(trained)):.2f}",
                ]
            else:
                line += ["-", "-"]
        if set(line[4:]) - {"-"}:
            lines.append(line)
    header = ["problem", "model", "points", "square"]
    for domain in parts:
        header += [domain, "/ square"]
    return markdown(header, lines)


def mean(runs: list[Record], grid: str) -> float:
    return statistics.fmean(run["errors"]["test"][grid] for run in runs)


def bounds(record: Record) -> str:
    """What was asked of networks beside what was measured; "no" where it does not hold."""
    lines = [*_finer(record), *_parts(record)]
    return markdown(
        ["asked", "measured", "holds"],
        [[what, f"{ratio:.2f}", "yes" if ratio <= most else "no"] for what, ratio, most in lines],
    )


def _finer(record: Record) -> Iterator[tuple[str, float, float]]:
    for (problem, trained, _), runs in groups(record, "square").items():
        if runs[0]["model"] != "network" or trained != 64:
            continue
        for grid in runs[0]["errors"]["test"]:
            if grid != str(trained):
                ratio = mean(runs, grid) / mean(runs, str(trained))
                yield f"{NAMES[problem]}, error at {grid} over that at {trained}", ratio, FINER


def _parts(record: Record) -> Iterator[tuple[str, float, float]]:
    for (problem, trained, label), runs in groups(record, "l-shape").items():
        square = groups(record, "square").get((problem, trained, label))
        if runs[0]["model"] == "network" and square:
            ratio = mean(runs, str(trained)) / mean(square, str(trained))
            yield f"{NAMES[problem]}, error on the l-shape over the square's", ratio, PART


def equal_time() -> str:
    """Errors beside the time of a training, for networks also in about the time of an FNO."""
    seconds = {
        (row["problem"], row["name"]): (row["training_s"], row["batch"], row["step_ms"])
        for row in load("steady").get("rows", [])
    }
    lines = []
    for file in ("resolution", "equal_time"):
        for (problem, trained, label), runs in groups(load(file), "square").items():
            if (problem, runs[0]["model"]) in seconds and trained == 64:
                whole, batch, step = seconds[problem, runs[0]["model"]]
                epochs = runs[0]["epochs"]
                time = whole * epochs / EPOCHS
                rival = seconds[problem, "fno"][0]
                cells = [NAMES[problem], label, str(epochs), str(batch), f"{step:.0f}"]
                cells += [f"{time:.0f}", f"{time / rival:.2f}x"]
                errors = (
                    spread([run["errors"][split]["64"] for run in runs])
                    if split in runs[0]["errors"]
                    else "-"
                    for split in ("test", "out_of_distribution")
                )
                lines.append([*cells, *errors, str(len(runs))])
    lines.sort(key=lambda line: line[0])
    header = ["problem", "model", "epochs", "batch", "step, ms", "training, s", "/ FNO"]
    return markdown([*header, "rel. L1", "out of distribution", "seeds"], lines)


EQUAL_TIME: dict[str, Build] = {"equal time": equal_time}
RESOLUTION: dict[str, Build] = {
    "bounds": block("resolution", "", bounds),
    "grids": block("resolution", "", grids),
    "domains": block("resolution", "", domains),
}
