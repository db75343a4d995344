"""Draw the figures of docs/figures/ from the results of the benchmarks.

scan.png      time of the scan and its peers at each shape, with the floor
growth.png    time and memory of the scan against length and channels
block.png     training step of a block against its order, with the peers
models.png    training step and peak memory of the models
networks.png  time of the networks and their peers against the nodes, and network_growth.png

A figure whose results are missing is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
WIDTH = 6.3  # inches: a column of a page
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Okabe and Ito: told apart by colour-blind readers.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "0.4", "0.7")
MARKERS = "os^vDP*X"
TIMES = {"forward": "forward", "both": "forward + backward"}
SHORT = {"forward": "forward", "both": "with backward"}


def draw_scan(result: dict[str, Any]) -> Figure:
    """Bars on a logarithmic axis; the floor is a line across each group."""
    limits = result["floors"]
    names = list(dict.fromkeys(row["name"] for row in result["rows"]))
    figure, axes = plt.subplots(2, 1, figsize=(WIDTH, 5.0), sharex=True, layout="constrained")
    bar = 0.8 / len(names)
    for axis, (column, title) in zip(axes, TIMES.items(), strict=True):
        for index, name in enumerate(names):
            where, heights = [], []
            for group, limit in enumerate(limits):
                for row in result["rows"]:
                    if row["shape"] == limit["shape"] and row["name"] == name:
                        where.append(group - 0.4 + (index + 0.5) * bar)
                        heights.append(row.get(f"{column}_ms", float("nan")))
            axis.bar(where, heights, bar * 0.9, label=name, color=COLOURS[index % len(COLOURS)])
        for group, limit in enumerate(limits):
            floor = limit[column]["floor_ms"]
            label = "larger floor" if group == 0 else None
            axis.plot([group - 0.4, group + 0.4], [floor, floor], "k--", linewidth=1, label=label)
        axis.set_yscale("log")
        axis.set_ylabel("time (ms)")
        axis.set_title(title)
    shapes = [" x ".join(map(str, limit["shape"])) for limit in limits]
    axes[1].set_xticks(range(len(limits)), shapes)
    axes[1].set_xlabel("batch x length x channels x states")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def draw_growth(result: dict[str, Any]) -> Figure:
    """One column of panels a grown axis; exponents of growth in the legends."""
    grown = list(dict.fromkeys(series["axis"] for series in result["growth"]))
    figure, axes = plt.subplots(
        2, len(grown), figsize=(WIDTH, 4.8), squeeze=False, sharex="col", layout="constrained"
    )
    labels = {"L": "length L", "D": "channels D"}
    position = {"L": 1, "D": 2}
    for column, axis_name in enumerate(grown):
        time_axis, memory_axis = axes[:, column]
        chosen = [series for series in result["growth"] if series["axis"] == axis_name]
        for index, series in enumerate(chosen):
            sizes = [point["shape"][position[axis_name]] for point in series["points"]]
            kept = series["name"].partition(" at ")[2]
            for kind, marker in (("forward", "o-"), ("both", "s--")):
                for axis, key, scale in (
                    (time_axis, f"{kind}_ms", 1),
                    (memory_axis, f"{kind}_bytes", 2**-20),
                ):
                    values = [point[key] * scale for point in series["points"]]
                    name = f"{SHORT[kind]}, {kept}: slope {series['slopes'][key]:.2f}"
                    axis.plot(sizes, values, marker, color=COLOURS[index], ms=3, label=name)
        for axis in (time_axis, memory_axis):
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_ylim(top=axis.get_ylim()[1] * 8 ** len(chosen))  # room for the legend
            axis.legend(fontsize=7, frameon=False, loc="upper left")
        memory_axis.set_xlabel(labels[axis_name])
    axes[0, 0].set_ylabel("time (ms)")
    axes[1, 0].set_ylabel("memory above inputs (MiB)")
    return figure


def draw_block(result: dict[str, Any]) -> Figure:
    """Step time over order, a line a direction mode; peers are horizontal lines."""
    shapes = list(dict.fromkeys(tuple(row["shape"]) for row in result["rows"]))
    figure, axes = plt.subplots(
        1, len(shapes), figsize=(WIDTH, 3.6), squeeze=False, layout="constrained"
    )
    for axis, shape in zip(axes[0], shapes, strict=True):
        rows = [row for row in result["rows"] if tuple(row["shape"]) == shape]
        ours = [row for row in rows if row["order"] and not row["backend"]]
        for index, mode in enumerate(dict.fromkeys(row["directions"] for row in ours)):
            line = [(row["order"], row["step_ms"]) for row in ours if row["directions"] == mode]
            axis.plot(*zip(*line, strict=True), "o-", color=COLOURS[index], ms=4, label=mode)
        for index, row in enumerate(row for row in rows if not row["order"]):
            style = ("--", ":", "-.")[index % 3]
            axis.axhline(row["step_ms"], color="0.3", linestyle=style, label=row["name"])
        axis.set_yscale("log")
        axis.set_xticks(sorted({row["order"] for row in ours}))
        axis.set_xlabel("order of the block")
        axis.set_title("B x C x H x W = " + " x ".join(map(str, shape)))
    axes[0, 0].set_ylabel("training step (ms)")
    # The last shape is the smallest and has all peers.
    handles = axes[0, -1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=4)
    return figure


def draw_models(result: dict[str, Any]) -> Figure:
    """Step time and peak memory, ratios to the plain model above the bars."""
    rows = result["rows"]
    panels = (
        ("step_ms", "training step (ms)", 1, "step_ratio"),
        ("peak_bytes", "peak memory (MiB)", 2**-20, "peak_ratio"),
    )
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.2), layout="constrained")
    colours = [COLOURS[0] if row["order"] else "0.6" for row in rows]
    for axis, (key, label, scale, ratio) in zip(axes, panels, strict=True):
        heights = [(row.get(key) or 0) * scale for row in rows]
        bars = axis.bar([row["name"] for row in rows], heights, color=colours)
        texts = [f"{row[ratio]:.2f}x" if ratio in row else "" for row in rows]
        axis.bar_label(bars, texts, padding=2)
        axis.set_ylabel(label)
        axis.margins(y=0.12)
        plt.setp(axis.get_xticklabels(), rotation=30, ha="right")
    points = result["resolution"]
    figure.suptitle(f"batch {result['batch']}, {points} x {points} points", fontsize=9)
    return figure


def draw_networks(result: dict[str, Any]) -> Figure:
    """Nanoseconds a node over the nodes of a network, planes; the floor is dashed."""
    planes = [section for section in result["peers"] if len(section["grid"]) == 2]
    names = list(dict.fromkeys(row["name"] for section in planes for row in section["rows"]))
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.8), sharey=True, layout="constrained")
    for axis, (column, heading) in zip(axes, TIMES.items(), strict=True):
        for index, name in enumerate(names):
            points = [
                (section["grid"][0], row[f"{column}_ns"])
                for section in planes
                for row in section["rows"]
                if row["name"] == name and f"{column}_ns" in row
            ]
            if points:
                style = f"{MARKERS[index % len(MARKERS)]}-"
                colour = COLOURS[index % len(COLOURS)]
                axis.plot(*zip(*points, strict=True), style, color=colour, ms=4, label=name)
        floors = [
            (
                s["grid"][0],
                s["floors"][column]["bytes_ms"] * 1e6 / s["networks"] / s["grid"][0] ** 2,
            )
            for s in planes
        ]
        axis.plot(*zip(*floors, strict=True), "k--", linewidth=1, label="bytes")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        sides = [section["grid"][0] for section in planes]
        axis.set_xticks(sides, [str(side) for side in sides])
        axis.set_xlabel("nodes a side")
        axis.set_title(heading)
    axes[0].set_ylabel("time a node (ns)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure


def draw_network_growth(result: dict[str, Any]) -> Figure:
    """Time, memory and iterations over the nodes of a network; exponents in the legends."""
    panels = (
        ("both_ms", "forward + backward (ms)", 1.0),
        ("both_peak_bytes", "peak memory (MiB)", 2**-20),
        ("iterations", "iterations", 1.0),
    )
    figure, axes = plt.subplots(1, 3, figsize=(WIDTH, 2.8), layout="constrained")
    for axis, (key, label, scale) in zip(axes, panels, strict=True):
        for index, series in enumerate(result["growth"]):
            points = [
                (math.prod(point["grid"]), point[key] * scale)
                for point in series["points"]
                if point.get(key)
            ]
            if points:
                slope = series["slopes"].get(key)
                name = series["name"] + (f": {slope:.2f}" if slope is not None else "")
                axis.plot(*zip(*points, strict=True), "o-", color=COLOURS[index], ms=3, label=name)
        axis.set_xscale("log")
        if key == "iterations":
            axis.set_ylim(bottom=0)
        else:
            axis.set_yscale("log")
        axis.set_xlabel("nodes")
        axis.set_title(label)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7, frameon=False)
    return figure


# The results file, what it must hold, and who draws it.
FIGURES: dict[str, tuple[str, str, Callable[[dict[str, Any]], Figure]]] = {
    "scan": ("scan", "floors", draw_scan),
    "growth": ("scan", "growth", draw_growth),
    "block": ("block", "rows", draw_block),
    "models": ("models", "rows", draw_models),
    "networks": ("network", "peers", draw_networks),
    "network_growth": ("network", "growth", draw_network_growth),
}


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    parser.add_argument("--output", type=Path, default=FOLDER.parent / "docs" / "figures")
    options = parser.parse_args(given)
    options.output.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update(STYLE)
    for name, (source, section, draw) in FIGURES.items():
        path = options.results / f"{source}.json"
        result = json.loads(path.read_text()) if path.exists() else {}
        if section not in result:
            print(f"{name}.png left out: no {section!r} in {path}")
            continue
        figure = draw(result)
        temporary = options.output / f".{name}.new.png"
        figure.savefig(temporary, dpi=150)
        plt.close(figure)
        temporary.replace(options.output / f"{name}.png")
        print(f"wrote {options.output / name}.png")


if __name__ == "__main__":
    main()
