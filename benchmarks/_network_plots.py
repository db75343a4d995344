"""The two figures of the networks: time beside the peers, and growth with iterations."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "0.4", "0.7")
WIDTH = 6.3
TITLES = {"forward": "forward", "both": "forward + backward"}
MARKERS = "os^vDP*X"


def draw_networks(result: dict[str, Any]) -> Figure:
    """Nanoseconds a node over the nodes of a network, planes; the floor is dashed."""
    planes = [section for section in result["peers"] if len(section["grid"]) == 2]
    names = list(dict.fromkeys(row["name"] for section in planes for row in section["rows"]))
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.8), sharey=True, layout="constrained")
    for axis, (column, heading) in zip(axes, TITLES.items(), strict=True):
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
