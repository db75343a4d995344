"""Wrong arguments of circuits, of what makes them and of steps in time are named in an error."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from manufactured import tensor
from network_cases import make_network, solve_helmholtz

from chonn_ops import (
    Auto,
    Circuit,
    Dirichlet,
    FiniteVolumes,
    Graph,
    Iterative,
    LCState,
    Matched,
    Mesh,
    Neumann,
    Periodic,
    Robin,
    absorbing_layer,
    diffusion,
    helmholtz,
    lc_energy,
    lc_step,
    raster,
    rc_step,
)

ONES, MASK = torch.ones(1, 4, 5, 1), torch.ones(4, 5, dtype=torch.bool)
FACE, META = r"expands to \(1, 1, 5, 1\)", torch.ones((), device="meta")
TURNED = tensor(*(torch.full((4, 5), x) for x in (2.0, 5.0, 1.0)))[None, :, :, None]
CORNERS, HALVES = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)], [(0, 1, 2), (0, 2, 3)]
BOOLS = torch.ones(9, 1, dtype=torch.bool)
PLATE, CELLS = diffusion(ONES, boundary="dirichlet"), raster(torch.ones(1, 3, 3, 1))
SOME, SEVERAL = torch.arange(20).reshape(4, 5, 1) < 2, ONES[:, None].expand(-1, 3, -1, -1, -1)
SQUARE, FOUR = FiniteVolumes.from_cells(CORNERS, HALVES), torch.ones(1, 4, 1)
LINE, EDGES, NODES = Graph([(0, 1), (1, 2)], 3), torch.ones(1, 2, 1), torch.ones(1, 3, 1)
ON_LINE = Circuit(EDGES, NODES, LINE)


def rows(call, good, *cases):
    """Calls whose arguments are good but for those of a case, and words of their messages."""
    return [(partial(call, **{**good, **change}), message) for change, message in cases]


def medium(**options):
    mesh = Mesh(CORNERS, HALVES, {"low": [0, 1], "corner": [2]})
    return mesh.diffusion(**options)


def volumes(**options):
    return FiniteVolumes.from_cells(CORNERS, HALVES, sets={"left": [0, 3]}).circuit(**options)


V, (G0, G1), LEAK = make_network((4, 3))
CAPACITY = torch.ones(2, 4, 3, 3)


def step(v=V, g=(G0, G1), leak=LEAK, capacitance=CAPACITY, dt=1.0, source=None, **options):
    return rc_step(v, Circuit(g, leak), capacitance, dt, source, **options)


REST = LCState.at_rest(V)


def swing(state=REST, capacitance=CAPACITY, dt=1.0, source=None, **options):
    return lc_step(state, Circuit((G0, G1), LEAK), capacitance, dt, source, **options)


REFUSED = []
REFUSED += rows(
    diffusion,
    {"conductivity": ONES},
    ({"boundary": "wall"}, "boundary: expected one of"),
    ({"boundary": "robin"}, "Robin"),
    ({"boundary": ("periodic",)}, "or 2 of them"),
    ({"boundary": (("periodic", "neumann"), "neumann")}, "'periodic' at both faces"),
    ({"boundary": (("dirichlet",) * 3, "neumann")}, "boundary: expected one of"),
    ({"conductivity": -ONES}, "conductivity: expected >= 0"),
    ({"conductivity": (ONES,) * 3}, "one for each of 2 axes, got 3"),
    ({"conductivity": (ONES, torch.ones(1, 4, 4, 1))}, r"conductivity\[1\]: expected shape"),
    ({"conductivity": torch.ones(4, 5)}, r"conductivity: expected shape \(B, \*grid, C\)"),
    ({"conductivity": ONES.int()}, "conductivity: expected a dtype"),
    *(({"absorption": x}, "absorption: expected >= 0") for x in (-1.0, -ONES[0])),
    *(({"absorption": x}, "absorption: expected a number or a Tensor") for x in ("x", True)),
    ({"absorption": torch.ones(3)}, "absorption: expected a number, or a shape"),
    ({"absorption": META}, "absorption: expected device cpu"),
    *(
        ({"arithmetic": x}, "arithmetic: expected a number from 0 to 1")
        for x in (1.5, -0.1, math.nan)
    ),
    *(({"spacing": x}, "spacing: expected a number > 0") for x in (0.0, torch.ones(4))),
    ({"spacing": (torch.ones(5), 1.0)}, r"spacing\[0\]: .* each of 4 cells"),
    ({"spacing": (1.0, [1.0, 1.0, 0.0, 1.0, 1.0])}, r"spacing\[1\]: expected > 0"),
    ({"mask": MASK[:, :4]}, r"mask: expected shape \(\*grid\)"),
    ({"mask": torch.ones(4, 5)}, "mask: expected dtype torch.bool"),
    ({"mask": MASK.to("meta")}, "mask: expected device cpu"),
    ({"inner": "neumann"}, "inner: expected None without a mask"),
    *(({"boundary": Dirichlet(x)}, f"Dirichlet.value: .* {FACE}") for x in (torch.ones(7), ONES)),
    (
        {"boundary": ("neumann", Dirichlet(0.0, distance=torch.ones(5)))},
        r"Dirichlet.distance: .* expands to \(1, 4, 1, 1\)",
    ),
    ({"boundary": Dirichlet(0.0, torch.tensor(-0.1))}, "Dirichlet.distance: expected >= 0"),
    ({"boundary": Robin(torch.tensor(-0.1))}, "Robin.coefficient: expected >= 0"),
    ({"boundary": Robin(torch.tensor(1j))}, "Robin.coefficient: expected real numbers"),
    ({"boundary": Neumann(torch.ones(2, 1, 1, 1))}, "Neumann.flux: expected a number, or a"),
    ({"boundary": Neumann(META)}, "Neumann.flux: expected device cpu"),
    ({"mask": MASK, "inner": Robin(-ONES)}, "Robin.coefficient: expected >= 0"),
    (
        {"mask": MASK, "boundary": ("dirichlet", "neumann")},
        "inner: expected a condition for faces towards missing cells",
    ),
    (
        {"mask": MASK, "inner": "periodic"},
        "inner: expected one of .*neumann.* or a condition like those",
    ),
    ({"conductivity": torch.ones(1, 3, 3, 3, 1, 3, 3)}, r"of two axes \(B, nx, ny, C, 2, 2\)"),
)
REFUSED += rows(
    diffusion,
    {"conductivity": TURNED},
    ({"boundary": Robin(1.0)}, "Neumann, Dirichlet at the face or 'periodic'"),
    ({"conductivity": TURNED[:, :2], "boundary": "periodic"}, "3 cells or more along"),
    ({"mask": MASK}, "none of them with tensors, got mask"),
)
REFUSED += [
    *(
        (partial(condition, *given), "expected a real number or a Tensor")
        for condition, *given in (
            (Dirichlet, "1.0"),
            (Dirichlet, 0.0, -1.0),
            (Dirichlet, 1j),
            (Neumann, math.nan),
            (Robin, -1.0),
            (Robin, "x"),
            (Robin, 1.0, math.nan),
        )
    ),
    *(
        (partial(call, torch.ones(1, 4, 6, 1)), r"v: .* \(B, \*grid, C\) = .* or \(B, S")
        for call in (PLATE.currents, PLATE.node_currents)
    ),
    (lambda: PLATE.solve(ONES[:, :3]), "source: expected shape"),
    (lambda: PLATE.factorize().sample(ONES[:, :3]), "noise: expected shape"),
    (
        lambda: PLATE.hold(SOME).merge(SOME[..., 0].long()),
        r"0 at held nodes \(merge first.* at \[\[0",
    ),
    *(
        (lambda x=x: PLATE.hold(SOME, x), "value: expected a shape that expands to")
        for x in (torch.ones(1, 4, 12, 1), torch.ones(1, 4, 5, 3))
    ),
    *(
        (lambda call=call, x=x: call(PLATE.hold(SOME, x)), "circuit: expected one real current or")
        for call in (
            lambda x: rc_step(ONES, x, 1.0, 1.0),
            lambda x: lc_step(LCState.at_rest(ONES), x, 1.0, 1.0),
        )
        for x in (SEVERAL, 1j)
    ),
    (lambda: rc_step(SEVERAL, PLATE, 1.0, 1.0), r"^v: expected shape \(B, \*grid, C\) = \(1, 4, 5"),
    (
        lambda: lc_step(LCState(SEVERAL, (ONES, ONES), ONES), PLATE, 1.0, 1.0),
        r"^voltage: expected shape \(B, \*grid, C\) = \(1, 4, 5, 1\)",
    ),
]
REFUSED += rows(
    Mesh,
    {"points": CORNERS, "cells": HALVES},
    ({"points": np.zeros((4, 4))}, r"points: expected shape \(N, D\) with D = 1, 2 or 3"),
    ({"points": np.full((4, 2), np.nan)}, r"got \[nan, nan\] of point 0"),
    ({"cells": [(0, 1, 2, 3)]}, r"cells: expected shape \(M, 2\) to \(M, 3\) of lines, triangles"),
    ({"cells": [(0, 1, 4)]}, "cells: expected nodes from 0 to 3, got 4"),
    ({"cells": [(0.0, 1.0, 2.0)]}, "cells: expected integers"),
    ({"cells": [(0, 1, 2), (0, 1, 1)]}, "cells: expected no flat cell, got cell 1"),
    ({"cells": [(0, 1, 2), (2, 1, 0)]}, r"no cells that overlap, got two .* facet \(0, 1\)"),
    ({"cells": [(0, 1, 2), (0, 1, 3)]}, r"no cells that overlap, got two .* facet \(0, 1\)"),
    ({"cells": [(0, 1, 2), (0, 1, 3), (2, 1, 0)]}, r"at most two cells, got .*\(0, 1\)"),
    ({"sets": {"a": [(0, 3), (0, 2)]}}, r"facets at the boundary, got the facet \(0, 2\)"),
    ({"sets": {"a": [True, False]}}, "a mask of shape"),
    ({"sets": {"a": []}}, "at least one of them"),
    ({"sets": {"a": None}}, "numbers, as an array"),
    ({"points": np.ones((4, 2)) * 1j}, "points: expected real numbers"),
    ({"sets": {"a": np.zeros((2, 3), int)}}, "a mask"),
    ({"sets": {"boundary": [0]}}, "other names"),
)
REFUSED += rows(
    medium,
    {"conductivity": torch.ones(1, 2, 1)},
    ({"conductivity": torch.ones(1, 3, 1)}, r"conductivity: expected .* M = 2 cells"),
    ({"conductivity": -torch.ones(1, 2, 1)}, "conductivity: expected >= 0"),
    ({"absorption": torch.ones(3)}, r"absorption: expected .* \(1, 4, 1\)"),
    ({"boundary": {"left": "dirichlet"}}, r"names of \('boundary', 'low', 'corner'\)"),
    ({"boundary": {"low": Periodic()}}, "boundary.'low'.: expected one of"),
    ({"boundary": Matched()}, "boundary.'boundary'.: expected one of"),
    ({"boundary": {"corner": Neumann(1.0)}}, "Dirichlet for a set without facets"),
    ({"boundary": {"low": Dirichlet(torch.ones(3))}}, r"low: value: .* \(1, \d+, 1\)"),
    ({"boundary": {"low": Dirichlet(0.0, torch.zeros(()))}}, "low: distance: expected > 0"),
    ({"boundary": {"low": Robin(torch.tensor(-1.0))}}, "low: coefficient: expected >= 0"),
    ({"boundary": {"low": Robin(torch.tensor(math.inf))}}, "low: coefficient: expected finite"),
    ({"boundary": {"low": Dirichlet(torch.tensor(1j))}}, "low: value: expected real"),
)
REFUSED += rows(
    volumes,
    {"conductivity": torch.ones(1, 4, 1)},
    ({"arithmetic": 2.0}, "arithmetic: expected a number from 0 to 1, got 2.0"),
    ({"conductivity": torch.ones(1, 4, 1, dtype=torch.int64)}, "conductivity: .* a dtype of"),
    ({"boundary": {"left": Dirichlet(torch.tensor(1 + 2j))}}, "left: value: .* real numbers"),
    ({"boundary": {"left": Neumann(torch.ones(1, 4, 1))}}, r"left: flux: .*\(1, 2, 1\), got"),
    ({"boundary": {"left": Robin(-torch.ones(2, 1))}}, "left: coefficient: expected >= 0"),
)
REFUSED += rows(
    raster,
    {"resistance": torch.ones(1, 4, 4, 1)},
    ({"resistance": torch.ones(1, 4, 1)}, r"resistance: expected shape \(B, H, W, C\)"),
    ({"resistance": torch.zeros(1, 4, 4, 1)}, "resistance: expected > 0"),
    ({"neighbours": 6}, r"neighbours: expected one of \(4, 8\)"),
    ({"mean": "harmonic"}, "mean: expected one of"),
    ({"mask": torch.ones(3, 4, dtype=torch.bool)}, "mask: expected shape"),
    ({"leak": -1.0}, "leak: expected >= 0"),
)
REFUSED += [
    (lambda: CELLS.resistance(torch.tensor([(0, 9)])), "pairs: expected nodes from 0 to 8"),
    *(
        (lambda x=x: CELLS.resistance(x), r"pairs: expected integers of shape \(P, 2\)")
        for x in (torch.ones(2, 3), BOOLS[:2].T, torch.ones(1, 2, dtype=torch.complex64))
    ),
    (lambda: CELLS.merge(torch.zeros(3, 3).long()), "labels: expected integers of shape"),
    (lambda: CELLS.merge(torch.ones(9).long()), "labels: expected an edge"),
    (lambda: CELLS.hold(torch.ones(9, 1)), r"nodes: expected dtype torch\.bool"),
    (lambda: CELLS.hold(BOOLS[1:]), "nodes: expected a shape that expands"),
    (lambda: CELLS.hold(BOOLS, torch.ones(2, 9, 1)), "value: expected a shape that expands"),
    (lambda: Circuit(NODES, NODES, LINE), r"conductance: .* = \(1, 2, 1\)"),
    (lambda: Circuit(EDGES, EDGES, LINE), "N = 3 nodes"),
    (lambda: Circuit(-EDGES, NODES, LINE).solve(NODES), "conductance"),
    (lambda: Circuit(EDGES, NODES, LINE).solve(NODES, Iterative()), r"Auto\(\) .* for a graph"),
]
REFUSED += rows(
    Graph,
    {"edges": [(0, 1)], "num_nodes": 7},
    *(
        ({"edges": edges}, message)
        for edges, message in (
            ([(0, 1), (1, 7)], r"nodes from 0 to 6, got \(1, 7\) as edge 1"),
            ([(0, 1), (-1, 2)], r"nodes from 0 to 6, got \(-1, 2\) as edge 1"),
            ([(0, 1), (3, 3)], r"two different nodes of each edge, as .*, got \(3, 3\) as edge 1"),
            ([(0, 1), (1, 2), (1, 0)], r"one edge between two nodes.*, got \(1, 0\) as edge 2"),
            ([[0, 1, 2], [1, 2, 3]], r"edges\.T"),
            ([(0.0, 1.0)], "integers"),
            (np.zeros((0, 2), int), "at least one edge"),
            *(
                (x, "edges: expected numbers, as an array or a Tensor, got")
                for x in (None, {(0, 1)}, [(0, 1), (1,)], [("a", "b")])
            ),
        )
    ),
    *(
        ({"positions": x}, "positions: expected")
        for x in (np.zeros((2, 2)), np.zeros(7), np.full((7, 2), np.nan))
    ),
    ({"positions": 1j * np.ones((7, 1))}, "positions: expected real numbers"),
)
REFUSED += rows(
    solve_helmholtz,
    {"source": ONES, "conductivity": ONES, "capacity": 1.0, "loss": 0.1, "omega": 1.0},
    *(({"omega": x}, f"omega: .* finite number > 0, got {x!r}") for x in (0.0, "1", 1j)),
    ({"capacity": -1.0}, "capacity: expected >= 0 everywhere, got minimum -1"),
    ({"loss": torch.ones(3)}, "loss: expected a number, or a shape that expands to"),
    *(({"loss": x}, f"loss: expected a number or a Tensor, got {x!r}") for x in (None, "0.1")),
    ({"conductivity": -ONES}, "conductivity: expected >= 0 everywhere, got minimum -1"),
    ({"conductivity": torch.ones(3, 3)}, "conductivity: expected shape"),
    ({"boundary": "robin"}, "boundary: expected one of"),
    *(({"spacing": x}, "spacing: expected a number > 0") for x in (0.0, None)),
    ({"boundary": Robin(torch.tensor(1j))}, r"Robin\.coefficient: expected real numbers"),
    ({"source": ONES[:, :, :4], "mask": MASK}, r"source: expected shape \(B, \*grid, C\)"),
)
REFUSED += rows(
    absorbing_layer,
    {"conductivity": ONES, "capacity": 1.0, "thickness": 1.0},
    ({"conductivity": -ONES}, "conductivity: expected >= 0 everywhere"),
    ({"thickness": 0.0}, "thickness: expected a finite number > 0"),
    ({"thickness": "1"}, "thickness: expected a finite number > 0, got '1'"),
    ({"attenuation": 1.0}, "attenuation: expected above 0 and below 1"),
)
REFUSED += rows(
    step,
    {},
    *(({"dt": x}, f"dt: expected a finite number > 0, got {x}") for x in (0.0, math.inf)),
    ({"method": "explicit"}, "method: expected one of"),
    ({"capacitance": -1.0}, "capacitance: expected >= 0 .* minimum -1"),
    ({"leak": -1e6 * LEAK}, "a diagonal entry below 0 at node"),
    ({"g": (G0, -G1)}, "a diagonal entry below 0 at node"),
    ({"capacitance": CAPACITY[:, :2]}, "capacitance: expected a number, or"),
    ({"source": V[:1]}, "source: expected shape"),
    ({"v": V[0, 0, 0]}, "v: expected shape"),
    ({"leak": 0 * LEAK, "capacitance": 0.0, "source": V}, "leak: expected > 0 at some node"),
)
REFUSED += rows(
    swing,
    {},
    ({"dt": -1.0}, "dt: expected a finite number > 0"),
    ({"capacitance": 0.0}, "capacitance: expected > 0 everywhere"),
    ({"state": V}, r"state: expected an LCState .*, got Tensor"),
    ({"state": REST._replace(current=REST.current[:1])}, "state: expected currents of 2 axes"),
    ({"state": REST._replace(current=(V[:, 1:], V))}, r"current\[0\]: expected shape"),
    ({"damping": -CAPACITY}, "damping: expected >= 0"),
    ({"source": V[:1]}, "source: expected shape"),
)
REFUSED += [
    (lambda: swing(solver=Auto(2)), "tol: expected"),
    (lambda: LCState.at_rest(V[0, 0]), "voltage: expected shape"),
    (partial(lc_step, LCState.at_rest(NODES), ON_LINE, 1.0, 1.0), r"current\[0\]: expected shape"),
]
WRONG_TYPES = [
    (lambda: diffusion(1.0), r"expected a torch\.Tensor"),
    (lambda: diffusion(ONES, mask=[[True]]), r"expected a torch\.Tensor"),
    (lambda: PLATE.solve(np.ones((1, 4, 5, 1))), r"source.*: expected a .*Tensor.*, got ndarray"),
    (lambda: PLATE.solve([1.0]), r"source.*: expected a .*Tensor.*, got list"),
    (lambda: Circuit(ONES, ONES), r"conductance.*: expected a .*Tensor.*, got Tensor"),
    (
        lambda: Circuit((ONES, np.ones(3)), ONES),
        r"conductance.*: expected a .*Tensor.*, got ndarray",
    ),
    (lambda: Circuit((ONES, ONES), 0.5), r"leak.*: expected a .*Tensor.*, got float"),
    (lambda: Circuit((EDGES,), NODES, LINE), "one Tensor"),
    (lambda: Circuit(EDGES, NODES, [(0, 1)]), "on: expected a Grid or a Graph"),
    (lambda: lc_step(REST, [V], 1.0, 1.0), "circuit: expected a Circuit, got list"),
]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        *((call, ValueError, message) for call, message in REFUSED),
        *((call, TypeError, message) for call, message in WRONG_TYPES),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def heated(**options):
    return diffusion(ONES, absorption=1.0, **options)


@pytest.mark.parametrize(
    ("take", "bad"),
    [
        (lambda x: Circuit((ONES, ONES), ONES, volume=x), (math.nan, math.inf, -1.0, 0, True)),
        (lambda x: Circuit((ONES, ONES), ONES, volume=x * ONES), (-1.0, 1j)),
        (lambda x: diffusion(ONES, absorption=x), (math.nan, math.inf)),
        (lambda x: diffusion(ONES, x), (True,)),
        (lambda x: heated(arithmetic=x), (math.inf, True, "x", None)),
        (lambda x: heated(boundary=Neumann(x)), (math.inf, True)),
        (lambda x: heated(boundary=Dirichlet(x)), (math.inf, -math.inf)),
        (lambda x: heated(boundary=Robin(1.0, x)), (math.inf,)),
        (lambda x: heated(boundary=Robin(x)), (-math.inf, True)),
        (lambda x: heated().hold(MASK[..., None], x), (math.nan, math.inf)),
        (lambda x: helmholtz(ONES, x, 1.0, 1.0), (math.nan, math.inf, True)),
        (lambda x: helmholtz(ONES, 1.0, x, 1.0), (math.nan, math.inf, True)),
        (lambda x: helmholtz(ONES, 1.0, 1.0, x), (True,)),
        (lambda x: absorbing_layer(ONES, x, 1.0), (math.nan, math.inf)),
        (lambda x: rc_step(ONES, heated(), x, 1.0), (math.nan, math.inf, True, "x", None)),
        (lambda x: rc_step(ONES, heated(), 1.0, x), (True, "x", None)),
        (lambda x: lc_step(LCState.at_rest(ONES), heated(), x, 1.0), (math.nan, math.inf, "x")),
        (lambda x: lc_step(LCState.at_rest(ONES), heated(), 1.0, 1.0, damping=x), (math.nan,)),
        (lambda x: lc_energy(LCState.at_rest(ONES), heated(), x), (math.nan, -1.0, 0.0)),
        (lambda x: SQUARE.circuit(FOUR, unit=x), (math.nan, math.inf, -1.0, 0, True, "x")),
        (lambda x: SQUARE.circuit(FOUR, x), (math.nan, math.inf)),
        (lambda x: SQUARE.circuit(FOUR, arithmetic=x), (True, "x", None)),
        (lambda x: raster(ONES, leak=x), (math.nan, math.inf)),
    ],
)
def test_numbers_are_finite_and_of_the_right_sign(take, bad):
    for value in bad:
        with pytest.raises(ValueError, match=r"^[\w.\[\]]+: expected .*, got "):
            take(value)


def test_numbers_that_may_be_infinite_or_zero():
    """An infinite film is none, a wall at an infinite distance insulates, held nodes have no
    volume."""
    pairs = (Robin(math.inf, 2.0), Dirichlet(2.0)), (Dirichlet(0.0, math.inf), Neumann())
    for infinite, same in pairs:
        found = (heated(boundary=boundary).solve(ONES) for boundary in (infinite, same))
        torch.testing.assert_close(*found)
    assert not heated().hold(MASK[..., None]).volume.any()
