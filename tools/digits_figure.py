"""Figure of the routing ablation on digits: test errors of all seeds, and how they were reached."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STYLE: dict[Any, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
# Okabe and Ito: told apart by colour-blind readers.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Write the figure.

    Parameters
    ----------
    results : list of dict
        Runs, as ``digits_ablation.py`` writes them.
    path : Path
        PNG file.
    """
    names = list(dict.fromkeys(run["model"] for run in results))
    plt.rcParams.update(STYLE)
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.3, 2.9), layout="constrained")
    for index, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        runs = [run for run in results if run["model"] == name]
        errors = [100 - 100 * run["metrics"]["test"]["accuracy"] for run in runs]
        shifts = [index + 0.06 * (place - (len(runs) - 1) / 2) for place in range(len(runs))]
        left.plot(shifts, errors, "o", color=colour, ms=4, alpha=0.7)
        mean = statistics.fmean(errors)
        left.plot([index - 0.28, index + 0.28], [mean, mean], color=colour, linewidth=2)
        if len(errors) > 1:
            spread = statistics.stdev(errors)
            left.errorbar(index + 0.33, mean, yerr=spread, color=colour, capsize=3)
        curves = [
            [100 - 100 * point["validation"]["accuracy"] for point in run["curve"]] for run in runs
        ]
        epochs = range(1, len(curves[0]) + 1)
        right.plot(epochs, [statistics.fmean(p) for p in zip(*curves, strict=True)], color=colour)
        low, high = ([pick(p) for p in zip(*curves, strict=True)] for pick in (min, max))
        right.fill_between(epochs, low, high, color=colour, alpha=0.15, linewidth=0)
    left.set_xticks(range(len(names)), [name.replace("+", "\n+ ") for name in names])
    left.set_ylabel("test error (%)")
    left.set_ylim(bottom=0)
    left.set_title("dots: seeds; bars: mean, standard deviation", fontsize=8)
    right.set_yscale("log")
    right.set_xlabel("epoch")
    right.set_ylabel("validation error (%)")
    right.set_title("mean and range over the seeds", fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)
