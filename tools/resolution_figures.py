"""Figures of ``resolution.py``: errors by the grid that is asked, and fields on the domains."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from pages.resolution import NAMES, groups

from chonn_ops.problems import darcy, poisson
from chonn_ops.problems.domains import domain_mask

STYLE: dict[Any, Any] = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
# Okabe and Ito: told apart by colour-blind readers.
COLOURS = {"network": "#d55e00", "fno": "#0072b2", "unet": "#e69f00"}
LINES = ("-", "--", ":", "-.")
GREY = "#666666"
NODES = {"darcy": darcy.cell_centres, "poisson": poisson.nodes}


def draw_curves(record: dict[str, Any], path: Path) -> None:
    """Relative L1 error by the grid that is asked; a line a model and grid of the training."""
    found = groups(record, "square")
    if not found:
        return
    problems = list(dict.fromkeys(problem for problem, _, _ in found))
    trainings = sorted({trained for _, trained, _ in found}, reverse=True)
    lines = dict(zip(trainings, LINES, strict=False))
    labels = {runs[0]["model"]: label for (_, _, label), runs in found.items()}
    plt.rcParams.update(STYLE)
    figure, axes = plt.subplots(
        1, len(problems), figsize=(3.4 * len(problems), 3.1), layout="constrained", squeeze=False
    )
    for problem, axis in zip(problems, axes[0], strict=True):
        for (name, trained, _), runs in found.items():
            if name != problem:
                continue
            grids = sorted(map(int, runs[0]["errors"]["test"]))
            errors = [[run["errors"]["test"][str(n)] for run in runs] for n in grids]
            means = [statistics.fmean(values) for values in errors]
            style = {"color": COLOURS[runs[0]["model"]], "linestyle": lines[trained]}
            axis.plot(grids, means, marker="o", ms=3, linewidth=1.3, **style)
            low, high = ([pick(values) for values in errors] for pick in (min, max))
            axis.fill_between(grids, low, high, color=style["color"], alpha=0.15, linewidth=0)
        for row in record.get("interpolated", []):
            if row["problem"] == problem and row["errors"]:
                grids = sorted(map(int, row["errors"]))
                values = [row["errors"][str(n)] for n in grids]
                axis.plot(grids, values, lines[row["trained"]], color=GREY, linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        ticks = sorted({int(grid) for run in record["results"] for grid in run["errors"]["test"]})
        axis.set_xticks(ticks, [str(n) for n in ticks])
        axis.set_title(NAMES[problem], fontsize=8)
        axis.set_xlabel("points a side, asked")
    axes[0, 0].set_ylabel("relative L1 error")
    handles = [Line2D([], [], color=COLOURS[name], label=label) for name, label in labels.items()]
    handles.append(Line2D([], [], color=GREY, linewidth=0.8, label="truth, interpolated"))
    handles += [
        Line2D([], [], color="black", linestyle=lines[n], label=f"trained at {n}")
        for n in trainings
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_domains(record: dict[str, Any], output: Path, path: Path) -> None:
    """The first test sample on each domain but the square: truth, predictions, errors.

    Of the first seed; `output` holds the fields beside the results of the runs.
    """
    rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for run in record["results"]:
        if run["domain"] != "square" and not run["diverged"]:
            rows.setdefault((run["problem"], run["domain"]), {}).setdefault(run["label"], run)
    if not rows:
        return
    labels = list(dict.fromkeys(label for runs in rows.values() for label in runs))
    plt.rcParams.update(STYLE)
    columns = 2 + 2 * len(labels)
    figure, axes = plt.subplots(
        len(rows),
        columns,
        figsize=(1.15 * columns, 1.25 * len(rows)),
        layout="constrained",
        squeeze=False,
    )
    for axis in axes.flat:
        axis.axis("off")
    titles = ["input", "truth", *(title for label in labels for title in (label, "error"))]
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=7)
    for ((problem, domain), runs), line in zip(rows.items(), axes, strict=True):
        fields = {label: _fields(output, run) for label, run in runs.items()}
        first = next(iter(fields.values()))
        missing = ~domain_mask(domain, NODES[problem](len(first["input"])))
        worst = max(np.abs(f["prediction"] - f["target"]).max() for f in fields.values())
        pictures = {0: (first["input"], {}), 1: (first["target"], {})}
        for place, label in enumerate(labels):
            if label in fields:
                found = fields[label]
                error = np.abs(found["prediction"] - found["target"])
                pictures[2 + 2 * place] = found["prediction"], _range(first["target"], missing)
                pictures[3 + 2 * place] = error, {"vmin": 0, "vmax": worst, "cmap": "magma_r"}
        for column, (field, options) in pictures.items():
            line[column].imshow(np.ma.array(field, mask=missing).T, origin="lower", **options)
        line[0].text(
            -0.1,
            0.5,
            f"{NAMES[problem]}\n{domain}",
            transform=line[0].transAxes,
            ha="right",
            va="center",
            fontsize=7,
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _fields(output: Path, run: dict[str, Any]) -> dict[str, np.ndarray]:
    name = f"{run['model']}-seed{run['seed']}.npz"
    with np.load(output / run["problem"] / run["folder"] / name) as archive:
        return {key: archive[key][0] for key in archive}


def _range(target: np.ndarray, missing: np.ndarray) -> dict[str, float]:
    inside = target[~missing]
    return {"vmin": float(inside.min()), "vmax": float(inside.max())}
