"""`raster`, and what is done with circuits of any kind: resistances of pairs, nodes that are held
or merged, currents through nodes. The truth is a dense matrix."""

import itertools
import math

import numpy as np
import pytest
import torch
from network_cases import matrix_of, uniform

from chonn_ops import Circuit, Graph, diffusion, raster
from chonn_ops.network import circuit as circuits

DOUBLE = torch.float64


def plain(resistance, neighbours, mean, exists):
    """The matrix of a raster, cell by cell."""
    H, W = resistance.shape
    matrix = np.zeros((H * W, H * W))
    steps = [(0, 1), (1, 0), (1, 1), (1, -1)][: neighbours // 2]
    for (i, j), (di, dj) in itertools.product(np.ndindex(H, W), steps):
        a, b = (i, j), (i + di, j + dj)
        if not (b[0] < H and 0 <= b[1] < W and exists[a] and exists[b]):
            continue
        r, s = resistance[a], resistance[b]
        g = 2 / (r + s) if mean == "resistance" else (1 / r + 1 / s) / 2
        g /= math.hypot(di, dj)
        p, q = a[0] * W + a[1], b[0] * W + b[1]
        matrix[p, p] += g
        matrix[q, q] += g
        matrix[p, q] -= g
        matrix[q, p] -= g
    return matrix


def resistances(matrix, pairs):
    inverse = np.linalg.pinv(matrix)
    p, q = np.array(pairs).T
    return inverse[p, p] + inverse[q, q] - 2 * inverse[p, q]


@pytest.mark.parametrize("mean", ["resistance", "conductance"])
@pytest.mark.parametrize("neighbours", [4, 8])
def test_a_raster_is_the_plain_one(neighbours, mean):
    r = 10 ** (4 * uniform(1, 5, 7, 1))
    r[0, 1, 2:5] = math.nan
    r[0, 4, 4] = math.inf
    exists = r[0, ..., 0].isfinite().numpy()
    circuit = raster(r, neighbours, mean=mean)
    expected = plain(r[0, ..., 0].numpy(), neighbours, mean, exists)
    np.testing.assert_allclose(matrix_of(circuit), expected, rtol=1e-12)
    mask = exists.copy()
    mask[0, :3], mask[4, 4] = False, True  # which conducts nothing
    masked = raster(r, neighbours, mean=mean, mask=torch.from_numpy(mask))
    expected = plain(r[0, ..., 0].numpy(), neighbours, mean, mask)
    np.testing.assert_allclose(matrix_of(masked), expected, rtol=1e-12)


@pytest.mark.parametrize("pairs", ["each node once", "all pairs"])
@pytest.mark.parametrize("few", [False, True])
def test_resistances_of_many_pairs(pairs, few, monkeypatch):
    monkeypatch.setattr(circuits, "_SOLVED", 100 if few else 2**21)
    r = 10 ** (3 * uniform(5, 6, 6, 4))
    circuit = raster(r)
    chosen = torch.randperm(36, generator=torch.Generator().manual_seed(0)).reshape(-1, 2).tolist()
    if pairs == "all pairs":
        chosen = list(itertools.combinations([0, 5, 6, 20, 21, 35], 2))
    found = circuit.resistance(torch.tensor(chosen))
    assert found.shape == (5, len(chosen), 4)
    for b, c in np.ndindex(5, 4):
        matrix = plain(r[b, ..., c].numpy(), 8, "resistance", np.ones((6, 6), bool))
        np.testing.assert_allclose(found[b, :, c], resistances(matrix, chosen), rtol=1e-9)
    scaled = raster(1e-12 * r).resistance(torch.tensor(chosen))
    torch.testing.assert_close(1e12 * scaled, found, rtol=1e-9, atol=0)
    near = raster(r.float()).resistance(torch.tensor(chosen))
    assert near.dtype == torch.float32
    torch.testing.assert_close(near.double(), found, rtol=1e-5, atol=0)


@pytest.mark.parametrize("leak", [1e-3, 1e-12, 1e-20, 1e-30])
@pytest.mark.parametrize("gradient", [False, True])
def test_resistances_of_all_pairs_of_chains_that_leak_little(leak, gradient):
    """In a chain with ground at its first node, and between two chains, they are sums."""
    n, step = 40, 10 ** (6 * uniform(1, 40, 1))
    g = step.clone()
    g[:, n // 2 - 1] = 0  # two chains
    field = torch.zeros_like(g)
    field[:, 0], field[:, n // 2] = leak, 3 * leak
    g.requires_grad_(gradient)
    pairs = torch.combinations(torch.arange(n))
    found = Circuit((g,), field).resistance(pairs)
    to_first = torch.zeros(n, dtype=DOUBLE)
    for part in (range(1, n // 2), range(n // 2 + 1, n)):
        for k in part:
            to_first[k] = to_first[k - 1] + 1 / step[0, k - 1, 0]
    i, j = pairs.T
    apart = (i < n // 2) & (j >= n // 2)
    below = to_first[i] + to_first[j] + 1 / leak + 1 / (3 * leak)
    between = torch.stack([(1 / step[0, a:b, 0]).sum() for a, b in pairs.tolist()])
    right = torch.where(apart, below, between)
    torch.testing.assert_close(found[0, :, 0], right, rtol=1e-9, atol=0)
    if gradient:
        weight = torch.where(apart, 0, 1 / right)
        (slope,) = torch.autograd.grad((found[0, :, 0] * weight).sum(), g)
        for k in (0, 7, n - 2):
            inside = (i <= k) & (j > k) & ~apart
            by_hand = -(weight[inside] / step[0, k, 0] ** 2).sum()
            torch.testing.assert_close(slope[0, k, 0], by_hand, rtol=1e-7, atol=0)


@pytest.mark.parametrize("leak", [1e30, 1e60])
def test_resistances_of_leaks_that_conduct_far_more_than_edges(leak):
    leaks = leak * (1 + uniform(1, 6, 1))
    leaks.requires_grad_()
    pairs = torch.combinations(torch.arange(6))
    found = Circuit((1 + uniform(1, 6, 1),), leaks).resistance(pairs)
    right = (1 / leaks)[:, pairs].sum(2)
    torch.testing.assert_close(found, right, rtol=1e-9, atol=0)
    slopes = [torch.autograd.grad(x.sum(), leaks)[0] for x in (found, right)]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=0)


def test_resistances_between_parts_are_infinite_unless_ground_joins_them():
    r = torch.ones(1, 3, 4, 1, dtype=DOUBLE)
    r[:, :, 2] = math.nan
    pairs = torch.tensor([(0, 1), (0, 3), (3, 11), (6, 0), (5, 5)])
    found = raster(r).resistance(pairs)[0, :, 0].tolist()
    assert found[1] == found[3] == math.inf
    assert found[2] == pytest.approx(2)
    assert found[4] == 0
    leak = torch.zeros_like(r)
    leak[:, 0] = 1.0
    joined = raster(r, leak=leak).resistance(pairs)[0, :, 0].tolist()
    assert joined[1] < 3
    assert joined[3] == math.inf  # a cell without data
    assert raster(r).resistance(pairs[:0]).shape == (1, 0, 1)


def test_gradients_beside_cells_without_data_are_finite():
    hole = uniform(1, 3, 3, 1) + 0.5
    hole[0, 1, 1] = math.nan
    hole.requires_grad_()
    raster(hole).resistance(torch.tensor([(0, 8), (2, 3)])).sum().backward()
    assert hole.grad.isfinite().all()


def test_potentials_of_held_nodes_have_all_digits_of_a_number():
    circuit = Circuit((torch.ones(1, 3, 1, dtype=DOUBLE),), torch.zeros(1, 3, 1, dtype=DOUBLE))
    first = torch.tensor([[True], [False], [False]])
    v = circuit.hold(first, 0.1).solve(torch.zeros(1, 3, 1, dtype=DOUBLE))
    assert v[0, 0].item() == 0.1
    several = circuit.hold(first, np.array([[0.1], [0.2], [0.3]]))
    assert several.solve(torch.zeros(1, 3, 1, dtype=DOUBLE))[0, 0].item() == 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_over_many_nodes_are_beyond_half_precision(dtype):
    """3,000 resistors of 1 ohm from one node to others, which all leak 1 siemens."""
    n = 3000
    star = Graph([(n, i) for i in range(n)], n + 1)
    leak = torch.ones(1, n + 1, 1, dtype=dtype)
    circuit = Circuit(leak[:, :n], leak, star)
    others = torch.arange(n + 1) < n
    merged, _ = circuit.merge(others.long())
    assert merged.conductance[0].item() == merged.leak.max().item() == n
    held = circuit.hold(others[:, None], 1.0)
    assert held.leak[0, n].item() == n + 1
    assert held.current is not None
    assert held.current[0, n].item() == n
    assert circuit.node_currents(leak * others[:, None])[0, n].item() == n


def test_a_raster_is_joined_once():
    from chonn_ops.network.discretise.tensors import lattice

    r = uniform(1, 9, 11, 1) + 1
    assert raster(r).layout is raster(2 * r).layout
    assert lattice(9, 11, 4)[0] != raster(r).layout


@pytest.mark.parametrize("function", ["raster", "tensors", "merge"])
def test_graphs_that_are_made_in_a_compiled_program(function):
    """They break the program's graph, and nothing else."""
    labels = torch.tensor([[1, 1, 0], [0, 2, 0], [0, 2, 0]])

    def solve(field):
        if function == "merge":
            circuit, _ = diffusion(field, absorption=0.1).merge(labels)
        elif function == "raster":
            circuit = raster(field, leak=0.1)
        else:
            circuit = diffusion(torch.diag_embed(field[..., None].expand(*field.shape, 2)), 0.3)
            circuit = Circuit(circuit.conductance[0], circuit.leak + 0.1, circuit.layout)
        return circuit.solve(torch.ones_like(circuit.leak))

    field = torch.rand(1, 3, 3, 2) + 0.1
    torch.testing.assert_close(torch.compile(solve, backend="eager")(field), solve(field))
