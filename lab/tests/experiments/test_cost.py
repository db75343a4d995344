"""Counts of multiply-adds against arithmetic by hand."""

import math

import pytest
import torch
from torch import nn

from chonn_lab import cost
from chonn_ops import Graph, KirchhoffCell, Network, NetworkCell, Scan
from chonn_ops.network import kirchhoff_network
from chonn_ops.network.direct import flops


class Transform(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def count(function, x):
    return cost.measure(Transform(function), [x]).multiply_adds


def test_layers_and_the_model_stays_as_it_was():
    layers = nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(5 * 64, 7)
    model = nn.Sequential(*layers)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = cost.measure(model, [torch.ones(2, 3, 8, 8)])
    assert found.parameters == 5 * 3 * 9 + 5 + 10 + 7 * 320 + 7
    assert found.multiply_adds == 2 * (64 * 5 * 3 * 9 + 7 * 320)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert cost.measure(nn.Flatten(), [torch.zeros(2, 3, 4)]) == (0, 0)


@pytest.mark.parametrize(
    ("function", "real"),
    [
        (torch.fft.rfft2, True),
        (torch.fft.fft2, False),
        (lambda x: torch.fft.irfft2(torch.fft.rfft2(x)), None),
    ],
)
def test_fft(function, real):
    x = torch.zeros(3, 16, 8, dtype=torch.complex64 if real is False else torch.float32)
    expected = 3 * 2.5 * 128 * math.log2(128) / (2 if real else 1)
    assert count(function, x) == pytest.approx(expected, abs=3)


@pytest.mark.parametrize(("dtype", "products"), [(torch.float32, 1), (torch.complex64, 4)])
def test_products_of_complex_numbers_are_four_real_ones(dtype, products):
    x, y = torch.zeros(2, 6, dtype=dtype), torch.ones(6, 5, dtype=dtype)
    for function in (lambda x: torch.einsum("bi,io->bo", x, y), lambda x: torch.addmm(y[0], x, y)):
        assert count(function, x) == products * 2 * 6 * 5


def test_scan():
    def count_of(states):
        cell = KirchhoffCell(6, Scan(d_state=states, directions="raster"))
        return cost.measure(cell, [torch.zeros(2, 10, 6)]).multiply_adds

    # Beside the scan there are two products with weights of 6 x states.
    assert count_of(8) - count_of(4) == 2 * 10 * 6 * (4 * (4 + 2)) + 2 * 2 * 10 * 6 * 4


def test_solves_of_volumes_count_their_iterations():
    products = 2 * 16**3 * 6 * (3 + 3)  # sources, conductivities
    field = torch.randn(2, 16, 16, 16, 6, generator=torch.Generator().manual_seed(0))
    nodes = 2 * 3 * 16**3
    solves = []
    for tolerance in (1e-1, 2e-4):
        torch.manual_seed(0)
        cell = NetworkCell(6, 3, Network(num_networks=3, tol=tolerance))
        solves.append(cost.measure(cell, [field]).multiply_adds - products)
    # 160 / 3 a node to make the grids, then 199 / 3 an iteration.
    iterations = [(solve / nodes - 160 / 3) / (199 / 3) for solve in solves]
    assert 1 <= iterations[0] < iterations[1] < 12
    assert iterations[0] * 6 == pytest.approx(round(iterations[0] * 6), abs=1e-3)


def test_planes_are_eliminated():
    products = 2 * 48 * 48 * 6 * (3 + 3)
    cell, field = NetworkCell(6, 2, Network(num_networks=3, tol=1e-1)), torch.randn(2, 48, 48, 6)
    expected = products + round(6 * flops((48, 48), (False, False)) / 2)
    assert cost.measure(cell, [field]).multiply_adds == expected
    assert cost.measure(cell.to("meta"), [field.to("meta")]).multiply_adds == expected


def test_planes_as_graphs_and_under_vmap_count_as_many():
    """A grid as a graph takes about as many operations; a model's substeps in time have vmap."""
    source, k = torch.ones(2, 12, 12, 3), torch.ones(2, 12, 12, 3)
    plane = count(lambda s: kirchhoff_network(s, (k, k), k), source)
    number = torch.arange(144).view(12, 12)
    ends = [(number[:-1], number[1:]), (number[:, :-1], number[:, 1:])]
    edges = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in ends], 1)
    graph, g, c = Graph(edges.T, 144), torch.ones(2, edges.shape[1], 3), torch.ones(2, 144, 3)
    found = count(lambda s: kirchhoff_network(s, g, c, graph=graph), c)
    assert 0.7 * plane < found < 1.5 * plane

    def solve(s, k):
        return kirchhoff_network(s[None], (k[None], k[None]), k[None])[0]

    assert count(lambda s: torch.func.vmap(solve)(s, k), source) == plane > 0
