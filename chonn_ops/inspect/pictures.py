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

from chonn_ops.inspect.reading import NetworkFields

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


def draw_sample(fields: Mapping[str, np.ndarray]) -> list[bytes]:
    """Fields (\\*grid) of one sample, by title."""
    pictures = []
    for title, values in fields.items():
        figure = Figure(figsize=(_WIDTH, 2.9), layout="constrained")
        panel = figure.subplots()
        _field(panel, values, "viridis", False)
        panel.set_title(title, fontsize=8)
        pictures.append(_png(figure))
    return pictures


def _field(panel: Axes, values: np.ndarray, colours: str, logarithmic: bool) -> None:
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


def _streamlines(panel: Axes, currents: Sequence[np.ndarray]) -> None:
    along, across = currents
    if not np.hypot(along, across).max() > 0:
        return
    places = [np.arange(0, n, max(1, n // _STREAMLINES)) for n in along.shape]
    thin = np.ix_(*places)
    panel.streamplot(
        places[0],
        places[1],
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
