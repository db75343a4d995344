"""Gradients of conductances where small leaks lift potentials, whose rounding would take the digits
of their differences, and where potentials decay over many decades."""

from __future__ import annotations

import pytest
import torch
from network_cases import assert_near, solve_network

from chonn_ops import Direct, Graph, Grid, Iterative, diffusion
from chonn_ops.network import available_backends

BACKENDS = available_backends()


def _fields(grid, dtype, leak):
    generator = torch.Generator().manual_seed(0)
    rand = lambda: torch.rand(1, *grid, 1, generator=generator, dtype=torch.float64)  # noqa: E731
    source, weight = ((rand() - 0.3).to(dtype) for _ in range(2))
    return source, weight, [(0.5 + rand()).to(dtype) for _ in grid], torch.full_like(source, leak)


def _gradient(solve, grid, dtype, leak, *, create_graph=False):
    source, weight, g, leaks = _fields(grid, dtype, leak)
    leaves = [x.requires_grad_() for x in g]
    v = solve(source, leaves, leaks)
    return torch.autograd.grad(v, leaves, weight, create_graph=create_graph)


def _direct(source, g, leak):
    return solve_network(source, g, leak, solver=Direct())


@pytest.mark.parametrize("how", ["func", pytest.param("compile", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("leak", [pytest.param(1e-6, marks=pytest.mark.thorough), 1e-12])
def test_transforms_and_compilers(leak, how):
    grid = (8, 7)
    source, weight, g, leaks = _fields(grid, torch.float32, leak)
    expected = _gradient(_direct, grid, torch.float64, leak)

    def loss(*g):
        return (solve_network(source, g, leaks) * weight).sum()

    if how == "compile":
        leaves = [x.clone().requires_grad_() for x in g]
        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)(*leaves)
        assert_near(torch.autograd.grad(compiled, leaves), expected, 2e-5)
        return
    assert_near(torch.func.grad(loss, (0, 1))(*g), expected, 2e-5)
    slope = torch.func.jvp(loss, tuple(g), tuple(torch.ones_like(x) for x in g))[1]
    size = sum(x.abs().sum() for x in expected)
    assert abs(slope - sum(x.sum() for x in expected)) <= 1e-4 * size


@pytest.mark.parametrize("backend", [x for x in BACKENDS if x != "reference"])
@pytest.mark.parametrize("grid", [(24, 20), (9, 10, 9)])
def test_iterated_networks(backend, grid):
    """The loss was found, and then dropped: they were 100 % off."""

    def solve(source, g, leak):
        return solve_network(source, g, leak, backend=backend, solver=Iterative())

    expected = _gradient(_direct, grid, torch.float64, 1e-10)
    assert_near(_gradient(solve, grid, torch.float32, 1e-10), expected, 1e-4)


# Grid, batch, absorption, dtype, and decades from the largest potential to the smallest.
DECAYS = [
    ((64, 64), 1, 400.0, torch.float32, 9),
    ((48, 48), 40, 400.0, torch.float32, 7),  # networks fill the vectors
    ((60,), 1, 3000.0, torch.float32, 18),
    pytest.param((64, 64), 1, 2500.0, torch.float64, 22, marks=pytest.mark.thorough),
]
LOSSES = {
    "corner": lambda v: v.flatten(1)[:, -1].sum(),
    "logarithms": lambda v: v.log().sum(),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("backend", [x for x in BACKENDS if x != "reference"])
@pytest.mark.parametrize(("grid", "batch", "absorption", "dtype", "decades"), DECAYS)
def test_decay(backend, name, grid, batch, absorption, dtype, decades):
    """Each entry has its own digits, whatever the largest one is: these were off by up to 36 times
    the gradient's norm, with the wrong sign at 25 decades. The reference takes differences of
    potentials that SciPy finds in float64."""
    generator = torch.Generator().manual_seed(0)
    k = torch.exp(0.5 * torch.randn(batch, *grid, 1, generator=generator)).to(dtype)
    source = torch.zeros_like(k)
    source[(slice(None), *[n // 8 for n in grid])] = 1

    def solve(dtype, **options):
        circuit = diffusion(k.to(dtype), 1 / max(grid), boundary="neumann", absorption=absorption)
        g = [x.detach().requires_grad_() for x in circuit.conductance]
        s = (source * 1e4).to(dtype).requires_grad_()
        v = solve_network(s, g, circuit.leak.detach(), **options)
        return v.detach(), *torch.autograd.grad(LOSSES[name](v), (s, *g))

    v, w, *expected = solve(torch.float64, backend="reference")
    assert v.abs().max() > 10.0**decades * v.abs().min()
    own, _, *found = solve(dtype, backend=backend, solver=Direct())
    assert ((own - v).abs() <= 40 * torch.finfo(dtype).eps * v).all()
    drops = [Grid(grid).drops(x) for x in (v, w)]
    for axis, (a, b) in enumerate(zip(found, expected, strict=True)):
        over_v, over_w = (x[axis].abs() for x in drops)
        at_ends = [x.abs() + x.abs().roll(-1, axis + 1) for x in (v, w)]
        size = over_v * at_ends[1] + over_w * at_ends[0]
        assert ((a - b).abs() <= 40 * torch.finfo(dtype).eps * size).all()


@pytest.mark.parametrize("backend", [x for x in BACKENDS if x != "reference"])
@pytest.mark.parametrize("tail", [1e-3, 1e-9])
def test_gradients_do_not_depend_on_their_graph(backend, tail):
    """A current into the first node leaves there, whatever the edges are, so that its gradient is
    the sum of weights over the leak. By `create_graph=True` and `torch.func` it was off by up to 13
    times its value: the adjoint is 1e9 at other nodes, and had the rounding of that."""
    generator = torch.Generator().manual_seed(0)
    graph = Graph([(0, 1), (1, 2), (2, 3)], 4)
    g = torch.tensor([tail, 1e8, 1.0]).double().reshape(1, 3, 1)
    leak = torch.tensor([1e9, 0, 0, 0]).double().reshape(1, 4, 1)
    source = torch.zeros_like(leak)

    def loss(source, g):
        options = {"backend": backend, "solver": Direct()}
        v = solve_network(source, g, leak, graph=graph, **options)
        return (v * weight).sum()

    for _ in range(5):
        weight = torch.randn(1, 4, 1, generator=generator).double()
        right = weight.sum() / 1e9
        leaves = [x.clone().requires_grad_() for x in (source, g)]
        rows = torch.ones(2).double()
        found = [
            torch.autograd.grad(loss(*leaves), leaves, create_graph=x)[0] for x in (False, True)
        ]
        found.append(torch.func.grad(loss, (0, 1))(source, g)[0])
        found.extend(torch.autograd.grad(loss(*leaves), leaves, rows, is_grads_batched=True)[0])
        for x in found:
            assert abs(x[0, 0, 0] - right) <= 1e-12 * weight.abs().sum() / 1e9
