"""Real circuits with negative conductances whose matrices are positive definite, as those of linear
elements on obtuse cells, against dense linear algebra."""

from functools import partial

import numpy as np
import pytest
import torch
from meshes import linear_elements
from network_cases import assert_near, matrix, on, uniform

from chonn_ops import Circuit, Graph, Grid, Iterative, LCState, lc_energy, lc_step, rc_step

pytest.importorskip("scipy")
from scipy.spatial import Delaunay

DOUBLE = torch.float64


def obtuse(B, C, nodes=24, d=3):
    """Graph, conductances and leaks of points in general position, k over two decades."""
    points = np.random.default_rng(0).random((nodes, d))
    cells = Delaunay(points).simplices
    k = 10 ** (2 * uniform(B * C, len(cells)) - 1)
    dense = np.stack([linear_elements(points, cells, values.numpy())[0] for values in k])
    p, q = np.nonzero(np.triu(dense.any(0), 1))
    g = -torch.from_numpy(dense[:, p, q]).reshape(B, C, -1).movedim(1, -1)
    assert (g < 0).double().mean() > 0.1
    return Graph(np.stack([p, q], 1), nodes, points), g, uniform(B, nodes, C)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
@pytest.mark.parametrize("batch", [(1, 1), (3, 16)], ids=["one", "lanes"])
def test_all_results_are_those_of_dense_matrices(backend, dtype, batch):
    graph, *numbers = obtuse(*batch)
    g, leak = (x.to(dtype).requires_grad_() for x in numbers)
    s = (uniform(batch[0], 2, graph.num_nodes, batch[1]) - 0.5).to(dtype).requires_grad_()
    wide = [x.detach().double().requires_grad_() for x in (s, g, leak)]
    a = matrix(wide[1:2], wide[2], graph).unflatten(0, batch)
    x = torch.linalg.solve(a[:, None], wide[0].movedim(-1, 2)[..., None])[..., 0].movedim(2, -1)
    inverse, logdet = torch.linalg.inv(a), torch.linalg.slogdet(a)[1]
    tolerance = 1e-10 if dtype == DOUBLE else 1e-6
    with on(backend):
        circuit = Circuit(g, leak, graph)
        v = circuit.solve(s)
        assert v.dtype == dtype
        assert_near(v, x, tolerance)
        factors = circuit.factorize()
        diagonal = inverse.diagonal(dim1=-2, dim2=-1).movedim(1, -1)
        found = factors.solve(s), factors.logdet(), factors.diagonal_of_inverse()
        assert_near(found, (x, logdet, diagonal), tolerance)
        found = torch.autograd.grad(v.square().sum() + factors.logdet().sum(), (s, g, leak))
        right = torch.autograd.grad(x.square().sum() + logdet.sum(), wide)
        assert_near(found, right, tolerance)
        unit = torch.eye(graph.num_nodes, dtype=dtype)[None, ..., None]
        root = factors.sample(unit.expand(batch[0], -1, -1, batch[1])).double().movedim(-1, 1)
        assert_near(root.mT @ root, inverse, tolerance)
        r = circuit.resistance(torch.tensor([(0, 7)]))[:, 0]
        expected = inverse[..., 0, 0] + inverse[..., 7, 7] - 2 * inverse[..., 0, 7]
        assert_near(r, expected, tolerance)


def test_derivatives_of_every_order_and_mode():
    graph, g, leak = obtuse(1, 2, 8, 2)
    fields = [x.requires_grad_() for x in (g, leak, uniform(1, 8, 2))]
    solve = lambda *network: Circuit(*network[:2], graph).solve(network[2])  # noqa: E731
    assert torch.autograd.gradcheck(solve, fields, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(solve, fields)


@pytest.mark.parametrize(
    ("g", "leak", "message"),
    [
        (-3.0, (2.0, 2.0), r"a diagonal entry below 0 at node \(0,\) in network \(1, 0\)"),
        (-1.5, (2.0, 2.0), r"a pivot that is not positive in network \(1, 0\)"),
        (-0.21, (0.7, 0.3), r"(singular to rounding|not positive) in network \(1, 0\)"),
        (1.0, (-1.0, 3.0), r"a pivot that is not positive in network \(1, 0\)"),
        (0.0, (1.0, -1.0), r"a diagonal entry below 0 at node \(1,\) in network \(1, 0\)"),
    ],
)
def test_what_is_not_positive_definite_is_named(g, leak, message):
    """Whatever the source is."""
    leak = torch.tensor([(1.0, 1.0), leak], dtype=DOUBLE)[..., None]
    circuit = Circuit(torch.tensor([1.0, g], dtype=DOUBLE)[:, None, None], leak, Graph([(0, 1)], 2))
    solves = [partial(circuit.solve, leak), partial(circuit.solve, 0 * leak)]
    # A ground at one node makes some of these matrices definite.
    resistance = partial(circuit.resistance, torch.tensor([(0, 1)]))
    for call in (*solves, circuit.factorize, resistance):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e270])
def test_networks_without_negative_numbers_are_judged_by_no_other(scale):
    """A contrast beyond the rounding of squares, at any scale."""
    g = torch.tensor([(1.0, 1.0, -0.1), (1e30, 1.0, 0.0)], dtype=DOUBLE)[..., None]
    leak = torch.tensor([(1.0, 1.0, 1.0), (1.0, 0.0, 0.0)], dtype=DOUBLE)[..., None]
    circuit = Circuit(scale * g, scale * leak, Graph([(0, 1), (1, 2), (0, 2)], 3))
    v = torch.tensor([(1.0, 1.0, 1.0), (3.0, 3.0, 4.0)], dtype=DOUBLE)[..., None]
    assert_near(circuit.solve(scale * torch.ones_like(v)), v, 1e-12)


def test_steps_in_time():
    graph, *numbers = obtuse(1, 1)
    circuit, v = Circuit(*numbers, graph), uniform(1, graph.num_nodes, 1)
    state = LCState.at_rest(v, graph)
    after = lc_step(state, circuit, 2.0, 0.3)
    assert_near(lc_energy(after, circuit, 2.0), lc_energy(state, circuit, 2.0), 1e-12)
    held = circuit.hold((torch.arange(graph.num_nodes) < 3)[:, None], 0.5)
    assert held.leak.min() < 0
    a, storage = matrix(held.conductance, held.leak, graph)[0], 2.0 * held.volume[0, :, 0] / 0.3
    source = storage[:, None] * v[0] + held.current[0]
    expected = torch.linalg.solve(a + torch.diag(storage), source)
    assert_near(rc_step(v, held, 2.0, 0.3), expected[None], 1e-12)


def test_grids_are_eliminated_and_what_needs_signs_says_so():
    ones = torch.ones(1, 20, 20, 1)
    circuit = Circuit((ones, -0.1 * ones), ones, Grid((20, 20), (False, True)))
    v, info = circuit.solve_with_info(ones)
    assert_near(v, ones, 1e-6)
    assert info.reason == "elimination: negative conductances or leaks"
    with pytest.raises(ValueError, match=r"solver: .* negative numbers, got Iterative"):
        circuit.solve(ones, Iterative())
    with pytest.raises(ValueError, match="circuit: expected conductances and leaks >= 0"):
        circuit.node_currents(v)
