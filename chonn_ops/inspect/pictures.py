"""Pictures of the circuits in a model, as PNG in memory. Importing this module needs Matplotlib.

Each picture is `_WIDTH` wide, so that its text is readable on a telephone; a page puts as many side
by side as its reader's screen holds.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from chonn_ops.inspect._checks import Array
from chonn_ops.inspect.reading import LinePoles, NetworkFields

_FIELDS = (
    # name, title, colour map, whether the colours are logarithmic
    ("conductivity", "conductivity k", "cividis", True),
    ("leak", "leak l", "cividis", True),
    ("source", "source s", "RdBu_r", False),
    ("potential", "potential v, currents", "viridis", False),
    ("length_scale", "length sqrt(k / l)", "magma", True),
    ("power", "dissipated power", "magma", True),
)
_WIDTH = 3.6  # inches
_FIELDS_EACH = 2  # in one picture
_NAME = 20  # Longest name of a row, in characters.
_MOST_NETWORKS = 8
_STREAMLINES = 32  # Most points along an axis.


def draw_network(fields: NetworkFields) -> tuple[list[bytes], str]:
    """All fields of a cell's networks, one row each, and words for what is left out."""
    grid = fields.conductivity.shape[:-1]
    count = min(fields.conductivity.shape[-1], _MOST_NETWORKS)
    pictures = []
    for first in range(0, len(_FIELDS), _FIELDS_EACH):
        shown = _FIELDS[first : first + _FIELDS_EACH]
        # Positions are set by hand, as a layout engine takes seconds for so many panels.
        height = 1.95 * count + 0.3
        figure = Figure(figsize=(_WIDTH, height))
        panels = figure.subplots(count, len(shown), squeeze=False)
        figure.subplots_adjust(
            left=0.06, right=0.99, bottom=0.2 / height, top=1 - 0.25 / height, wspace=0.06,
            hspace=0.15,
        )  # fmt: skip
        for c in range(count):
            for panel, (name, title, colours, logarithmic) in zip(panels[c], shown, strict=True):
                _field(panel, getattr(fields, name)[..., c], colours, logarithmic)
                if name == "potential" and len(grid) == 2 and min(grid) > 3:
                    _streamlines(panel, [current[..., c] for current in fields.currents])
                if c == 0:
                    panel.set_title(title, fontsize=8)
            panels[c, 0].set_ylabel(f"network {c}", fontsize=8)
        pictures.append(_png(figure))
    left = fields.conductivity.shape[-1] - count
    words = f"; {left} more networks are in the JSON" if left else ""
    words += "; middle plane of the third axis" if len(grid) == 3 else ""
    return pictures, words


def draw_line(line: LinePoles) -> tuple[list[bytes], str]:
    """Time constants, poles and zeros, and orders of a cell's channels; nothing is left out."""
    figures = [Figure(figsize=(_WIDTH, 2.7), layout="constrained") for _ in range(3)]
    times, plane, orders = panels = [figure.subplots() for figure in figures]
    finite = line.time_constants[np.isfinite(line.time_constants)]
    if finite.size and finite.max() > 0:
        low, high = np.log10(max(finite.min(), 1e-12)), np.log10(finite.max())
        times.hist(finite, bins=np.logspace(low - 0.05, high + 0.05, 40).tolist(), color="#0072b2")
    times.set(xscale="log", xlabel="time constant, positions", ylabel="states x positions")
    angle = np.linspace(0, 2 * np.pi, 200)
    plane.plot(np.cos(angle), np.sin(angle), color="#bbbbbb", linewidth=0.8)
    shown = slice(0, 3)
    zeros, poles = line.zeros[shown].ravel(), line.poles[shown].ravel()
    plane.plot(poles, np.zeros_like(poles), "x", color="#d55e00", markersize=5, label="poles")
    plane.plot(zeros.real, zeros.imag, "o", color="#0072b2", markersize=5, fillstyle="none",
               label="zeros")  # fmt: skip
    plane.set(xlabel="Re z", ylabel="Im z", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    plane.legend(fontsize=8, loc="lower left", frameon=False)
    plane.set_title("first 3 channels", fontsize=8)
    known = line.orders[np.isfinite(line.orders)]
    most = line.poles.shape[-1]
    orders.hist(known, bins=np.arange(-0.5, most + 1.5).tolist(), color="#009e73")
    orders.set(xlabel="poles left after cancellations", ylabel="channels")
    for panel in panels:
        panel.tick_params(labelsize=8)
        panel.xaxis.label.set_fontsize(8)
        panel.yaxis.label.set_fontsize(8)
    return [_png(figure) for figure in figures], ""


def draw_blocks(blocks: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Share of each stage in the output of its block, and the closed part of the gate."""
    names = [block["name"] or "model" for block in blocks]
    (figure, shares), (other, gates) = _rows(names), _rows(names)
    rows = np.arange(len(blocks))
    colours = ("#f6b26b", "#e8833a", "#c4500b", "#7f2704", "#3d1302")
    for stage in range(max(len(block["stage_share"]) for block in blocks)):
        width = [_nth(block["stage_share"], stage) for block in blocks]
        before = [sum(block["stage_share"][:stage]) for block in blocks]
        shares.barh(rows, width, left=before, color=colours[stage % len(colours)],
                    label=f"stage {stage + 1}")  # fmt: skip
    shares.set(xlim=(0, 1))
    shares.set_xlabel("share in the sum of the mean squares", fontsize=8)
    figure.legend(fontsize=8, loc="outside upper center", ncols=3, frameon=False)
    gates.barh(rows, [block["gate_closed"] for block in blocks], color="#666666")
    gates.set(xlim=(0, 1))
    gates.set_xlabel("closed part of the gate", fontsize=8)
    return [_png(figure), _png(other)]


def draw_conductivity(learned: Sequence[Mapping[str, Any]], reference: str) -> list[bytes]:
    """Correlation and variation of every network's conductivity, one row per cell."""
    count = max(len(entry["networks"]) for entry in learned)
    kinds = (
        ("correlation", f"mean correlation of log k with\n{reference}", "RdBu_r", -1, 1),
        ("variation_inside", "standard deviation of k over its mean,\ninside", "magma", 0, None),
    )
    pictures = []
    for key, title, colours, low, high in kinds:
        figure, panel = _rows([entry["name"] for entry in learned])
        table = np.full((len(learned), count), np.nan)
        for row, entry in enumerate(learned):
            for c, network in enumerate(entry["networks"]):
                if network[key] is not None:
                    table[row, c] = network[key]
        shown = panel.imshow(table, cmap=colours, vmin=low, vmax=high, aspect="auto")
        box = {"boxstyle": "round,pad=0.15", "fc": "w", "ec": "none"}
        if count <= _MOST_NETWORKS:  # Numbers of more overlap; the page's table has them.
            for (row, c), value in np.ndenumerate(table):
                text = "-" if np.isnan(value) else f"{value:.2f}"
                panel.text(c, row, text, ha="center", va="center", fontsize=7, bbox=box)
        panel.set_xticks(range(0, count, 1 if count <= _MOST_NETWORKS else 4))
        panel.set_xlabel("network", fontsize=8)
        panel.set_title(title, fontsize=8)
        figure.colorbar(shown, ax=panel, shrink=0.8).ax.tick_params(labelsize=7)
        pictures.append(_png(figure))
    return pictures


def draw_sample(fields: Mapping[str, Array]) -> list[bytes]:
    """Fields (\\*grid) of one sample, by title."""
    pictures = []
    for title, values in fields.items():
        figure = Figure(figsize=(_WIDTH, 2.9), layout="constrained")
        panel = figure.subplots()
        _field(panel, values, "viridis", False)
        panel.set_title(title, fontsize=8)
        pictures.append(_png(figure))
    return pictures


def _rows(names: Sequence[str]) -> tuple[Figure, Axes]:
    """A figure and its panel with a row for each name, the first one on top."""
    figure = Figure(figsize=(_WIDTH, 0.34 * len(names) + 1.4), layout="constrained")
    panel = figure.subplots()
    # The ends of names tell more than their beginnings.
    short = [
        name if len(name) <= _NAME else f"...{name[3 - _NAME :].lstrip('.')}" for name in names
    ]
    panel.set_yticks(range(len(names)), short)
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.tick_params(labelsize=7)
    return figure, panel


def _nth(values: Sequence[float], index: int) -> float:
    return values[index] if index < len(values) else 0.0


def _field(panel: Axes, values: Array, colours: str, logarithmic: bool) -> None:
    """A field with its range below, which takes less room than a colour bar."""
    panel.tick_params(labelsize=6)
    if values.ndim == 1:
        panel.plot(values, linewidth=1)
        # No logarithm for a field with zeros, nor for a constant with rounding errors.
        if logarithmic and values.min() > 0 and np.ptp(values) > 1e-3 * values.max():
            panel.set_yscale("log")
        return
    if values.ndim == 3:
        values = values[..., values.shape[-1] // 2]
    norm: dict[str, Any] = {}
    low, high = values.min(), values.max()
    if logarithmic and low >= 0 and high > 0:
        floor = max(low, 1e-6 * high)
        if high > 1.01 * floor:
            values, norm = np.maximum(values, floor), {"norm": LogNorm(floor, high)}
        else:  # One colour for a constant.
            norm = {"vmin": 0.5 * high, "vmax": 1.5 * high}
    elif colours == "RdBu_r" or (logarithmic and low < 0):
        colours = "RdBu_r"
        most = max(abs(low), abs(high)) or 1.0
        norm = {"vmin": -most, "vmax": most}
    # The first axis points right and the second up, as on the unit square.
    panel.imshow(values.T, origin="lower", cmap=colours, **norm)
    panel.set_xticks([])
    panel.set_yticks([])
    spread = f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
    panel.set_xlabel(spread, fontsize=7, labelpad=2)


def _streamlines(panel: Axes, currents: Sequence[Array]) -> None:
    along, across = currents
    steps = [max(1, n // _STREAMLINES) for n in along.shape]
    places = [np.arange(0, n, step) for n, step in zip(along.shape, steps, strict=True)]
    thin = tuple(slice(None, None, step) for step in steps)
    if not np.hypot(along, across).max() > 0:
        return
    across_places, up_places = places
    panel.streamplot(
        across_places,
        up_places,
        along[thin].T,
        across[thin].T,
        density=0.6,
        color="white",
        linewidth=0.5,
        arrowsize=0.4,
    )
    panel.set(xlim=(-0.5, along.shape[0] - 0.5), ylim=(-0.5, along.shape[1] - 0.5))


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": "chonn-ops"})
    return buffer.getvalue()
