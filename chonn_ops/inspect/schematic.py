"""Schematics of small circuits, drawn with schemdraw."""

from __future__ import annotations

from typing import Any

import numpy as np

from chonn_ops.inspect._optional import import_optional
from chonn_ops.inspect.cells import Cascade
from chonn_ops.inspect.networks import ResistorNetwork

_MOST_CELLS, _MOST_NODES = 6, 36


def draw_schematic(circuit: Cascade | ResistorNetwork) -> Any:
    """Draw a cascade of at most 6 cells, or a resistor network of at most 36 nodes in 1-D or 2-D.

    Parameters
    ----------
    circuit : Cascade or ResistorNetwork

    Returns
    -------
    schemdraw.Drawing
        ``drawing.save("circuit.svg")`` writes it.

    Raises
    ------
    ValueError
        For a larger circuit, a network in 3-D, or edges between nodes that are not neighbours.
    ImportError
        Without schemdraw (``pip install '.[circuit]'`` in a clone).
    """
    schemdraw = import_optional("schemdraw", "circuit")
    drawing = schemdraw.Drawing(show=False)
    if isinstance(circuit, Cascade):
        if len(circuit.cells) > _MOST_CELLS:
            raise ValueError(
                f"circuit: expected at most {_MOST_CELLS} cells, got {len(circuit.cells)}"
            )
        for i, cell in enumerate(circuit.cells):
            _draw_cell(drawing, i, cell)
        return drawing
    if circuit.nodes > _MOST_NODES or len(circuit.shape) > 2:
        raise ValueError(
            f"circuit: expected at most {_MOST_NODES} nodes on 1 or 2 axes, got shape "
            f"{circuit.shape}"
        )
    _draw_network(drawing, circuit)
    return drawing


def _draw_cell(drawing: Any, index: int, cell: Any) -> None:
    from schemdraw import elements as elm

    left, stage, before = 12.0 * index, index + 1, f"y{index}" if index else "u"
    branches = [
        (elm.SourceControlledI().up().at((left, 0)), f"{cell.B_p:.3g} {before}"),
        (elm.Capacitor().up().at((left + 3, 0)), f"{cell.C:.3g} F"),
    ]
    conductances = [("leak", cell.G_leak), ("coupling", cell.G_p)]
    for name, value in [pair for pair in conductances if pair[1]]:
        place = (left + 3 * len(branches), 0)
        branches.append((elm.Resistor().up().at(place), f"{name} {value:.3g} S"))
    for element, text in branches:
        drawing.add(element.label(text, loc="bottom"))
    end = left + 3 * len(branches)
    for height in (0, 3):
        drawing.add(elm.Line().at((left, height)).to((end - 3 * (1 - height / 3), height)))
    drawing.add(elm.Ground().at((left, 0)))
    drawing.add(elm.Dot(open=True).at((end, 3)).label(f"v{stage}", loc="right"))
    reads = f"y{stage} = {cell.c_o:.3g} v{stage} + {cell.d_o:.3g} {before}"
    drawing.add(elm.Label().at((left + 4, 4)).label(reads))


def _draw_network(drawing: Any, network: ResistorNetwork) -> None:
    from schemdraw import elements as elm

    places = [(4.0 * p[-1], -4.0 * p[0] if len(p) > 1 else 0.0) for p in np.ndindex(*network.shape)]
    for (p, q), g in zip(network.edges, network.conductance, strict=True):
        if not g:
            continue
        if np.linalg.norm(np.subtract(places[p], places[q])) > 4:
            raise ValueError(f"circuit: expected edges between neighbours, got {p} to {q}")
        edge = elm.Resistor().at(places[p]).to(places[q]).label(f"{g:.3g} S")
        drawing.add(edge)
    for (x, y), leak in zip(places, network.leak, strict=True):
        drawing.add(elm.Dot().at((x, y)))
        if leak:
            end = (x + 1.2, y - 1.6)
            drawing.add(elm.Resistor().at((x, y)).to(end).label(f"{leak:.3g} S", fontsize=9))
            drawing.add(elm.Ground().at(end))
