"""Pictures of the circuits in a model, as PNG in memory. Importing this module needs Matplotlib.

Each picture is `_WIDTH` wide, so that its text is readable on a telephone; a page puts as many side
by side as its reader's screen holds.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from chonn_ops.inspect.reading import NetworkFields

_FIELDS = {
    # title, colour map, whether the colours are logarithmic
    "conductivity": ("conductivity k", "cividis", True),
    "conductivity 0": ("k along the first axis", "cividis", True),
    "conductivity 1": ("k along the second axis", "cividis", True),
    "conductivity 2": ("k along the third axis", "cividis", True),
    "leak": ("leak l", "cividis", True),
    "source": ("source s", "RdBu_r", False),
    "potential": ("potential v, currents", "viridis", False),
    "length_scale": ("length sqrt(k / l)", "magma", True),
    "power": ("dissipated power", "magma", True),
}
_WIDTH = 3.6  # inches
_FIELDS_EACH = 2  # in one picture
_MOST_NETWORKS = 8
_STREAMLINES = 32  # Most points along an axis.


def draw_network(fields: NetworkFields) -> tuple[list[bytes], str]:
    """All fields of a cell's networks, one row each, and words for what is left out."""
    *grid, networks = fields.maps["potential"].shape
    count, names = min(networks, _MOST_NETWORKS), [name for name in _FIELDS if name in fields.maps]
    pictures = []
    for first in range(0, len(names), _FIELDS_EACH):
        shown = names[first : first + _FIELDS_EACH]
        # Positions are set by hand, as a layout engine takes seconds for so many panels.
        height = 1.95 * count + 0.3
        figure = Figure(figsize=(_WIDTH, height))
        panels = figure.subplots(count, _FIELDS_EACH, squeeze=False)
        figure.subplots_adjust(
            left=0.06, right=0.99, bottom=0.2 / height, top=1 - 0.25 / height, wspace=0.06,
            hspace=0.15,
        )  # fmt: skip
        for c in range(count):
            for panel, name in zip(panels[c], shown, strict=False):
                title, colours, logarithmic = _FIELDS[name]
                _field(panel, fields.maps[name][..., c], colours, logarithmic)
                if name == "potential" and len(grid) == 2 and min(grid) > 3:
                    _streamlines(panel, [current[..., c] for current in fields.currents])
                if c == 0:
                    panel.set_title(title, fontsize=8)
            panels[c, 0].set_ylabel(f"network {c}", fontsize=8)
            for panel in panels[c, len(shown) :]:
                panel.set_axis_off()
        pictures.append(_png(figure))
    rest = networks - count
    words = f"; {rest} more networks are in the JSON" if rest else ""
    words += "; middle plane of the third axis" if len(grid) == 3 else ""
    return pictures, words


def draw_sample(fields: Mapping[str, np.ndarray]) -> list[bytes]:
    """Fields (\\*grid) of one sample, by title; missing where they are NaN."""
    pictures = []
    for title, values in fields.items():
        figure = Figure(figsize=(_WIDTH, 2.9), layout="constrained")
        panel = figure.subplots()
        drawn = _field(panel, values, "viridis", False)
        if drawn is not None:
            figure.colorbar(drawn, ax=panel).ax.tick_params(labelsize=6)
        panel.set_title(title, fontsize=8)
        pictures.append(_png(figure))
    return pictures


def draw_law(name: str, values: np.ndarray, k: np.ndarray) -> bytes:
    """Conductivities (N, axes, m) over N values of the input of that name."""
    figure = Figure(figsize=(_WIDTH, 2.9), layout="constrained")
    panel = figure.subplots()
    for axis, c in np.ndindex(k.shape[1:]):
        label = f"axis {axis}" + (f", output {c}" if k.shape[2] > 1 else "")
        panel.plot(values, k[:, axis, c], linewidth=1, label=label)
    panel.set_yscale("log")
    if values.min() > 0:
        panel.set_xscale("log")
    panel.set_title("conductivity k over the input", fontsize=8)
    panel.set_xlabel(name, fontsize=7)
    panel.legend(fontsize=6)
    panel.tick_params(labelsize=6, which="both")
    return _png(figure)


def draw_curve(name: str, drop: np.ndarray, current: np.ndarray) -> bytes:
    """Least, median and largest current over conductance of elements, (3, N), at N drops."""
    figure = Figure(figsize=(_WIDTH, 2.9), layout="constrained")
    panel = figure.subplots()
    panel.fill_between(drop, current[0], current[2], alpha=0.3)
    panel.plot(drop, current[1], linewidth=1)
    panel.set_title(name, fontsize=8)
    panel.set_xlabel("drop, in the unit of the data", fontsize=7)
    panel.set_ylabel("current / conductance, in that unit", fontsize=7)
    panel.tick_params(labelsize=6)
    return _png(figure)


def _field(panel: Axes, values: np.ndarray, colours: str, logarithmic: bool) -> Any:
    """A field with its range below, which takes less room than a colour bar. Returns the image."""
    panel.tick_params(labelsize=6)
    if values.ndim == 1:
        panel.plot(values, linewidth=1)
        # No logarithm for a field with zeros, nor for a constant with rounding errors.
        low, high = np.nanmin(values), np.nanmax(values)
        if logarithmic and low > 0 and high - low > 1e-3 * high:
            panel.set_yscale("log")
        return None
    if values.ndim == 3:
        values = values[..., values.shape[-1] // 2]
    norm: dict[str, Any] = {}
    low, high = np.nanmin(values), np.nanmax(values)
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
    shades = colormaps[colours].with_extremes(bad="lightgrey")
    image = panel.imshow(values.T, origin="lower", cmap=shades, **norm)
    panel.set_xticks([])
    panel.set_yticks([])
    spread = f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"
    panel.set_xlabel(spread, fontsize=7, labelpad=2)
    return image


def _streamlines(panel: Axes, currents: Sequence[np.ndarray]) -> None:
    along, across = currents
    if not np.hypot(along, across).max() > 0:
        return
    places = [np.arange(0, n, max(1, n // _STREAMLINES)) for n in along.shape]
    thin = np.ix_(*places)
    style: Any = {"density": 0.6, "color": "white", "linewidth": 0.5, "arrowsize": 0.4}
    x, y = places
    panel.streamplot(x, y, along[thin].T, across[thin].T, **style)
    panel.set(xlim=(-0.5, along.shape[0] - 0.5), ylim=(-0.5, along.shape[1] - 0.5))


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": "chonn-ops"})
    return buffer.getvalue()
