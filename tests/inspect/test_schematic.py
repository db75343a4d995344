"""Schematics: one element a part of the circuit."""

import numpy as np
import pytest

from chonn_ops.inspect import Cascade, RCCell, draw_schematic, grid, ladder

schemdraw = pytest.importorskip("schemdraw")


def count(drawing, kind):
    return sum(
        isinstance(element, getattr(schemdraw.elements, kind)) for element in drawing.elements
    )


def test_a_cascade_has_its_parts():
    drawing = draw_schematic(Cascade([RCCell(1.0, 2.0), RCCell(1.0, 2.0, 0.5)]))
    assert count(drawing, "SourceControlledI") == 2
    assert count(drawing, "Capacitor") == 2
    assert count(drawing, "Resistor") == 3
    picture = drawing.get_imagedata("svg")
    assert b"<svg" in picture[:1000]


def test_a_network_has_its_resistors():
    conductance = np.ones((2, 3, 4))
    conductance[1, 0, 0] = 0
    drawing = draw_schematic(grid(list(conductance), np.eye(3, 4)))
    assert count(drawing, "Resistor") == 8 + 9 - 1 + 3
    assert count(drawing, "Ground") == 3
    assert count(draw_schematic(ladder(1.0, 0.0, 5)), "Resistor") == 4


def test_too_large():
    with pytest.raises(ValueError, match="at most 6 cells, got 7"):
        draw_schematic(Cascade([RCCell(1.0, 1.0)] * 7))
    with pytest.raises(ValueError, match=r"at most 36 nodes .* got shape \(37,\)"):
        draw_schematic(ladder(1.0, 0.1, 37))
    with pytest.raises(ValueError, match="edges between neighbours, got 4 to 0"):
        draw_schematic(ladder(1.0, 0.1, 5, periodic=True))
