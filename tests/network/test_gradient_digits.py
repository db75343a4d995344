"""Gradients of conductances where rounding of potentials would take the digits of differences."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from chonn_ops import factorize, kirchhoff_network
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
    return kirchhoff_network(source, g, leak, method="direct")


def _assert_close(found, expected, most=2e-5):
    """In the maximum norm of each axis."""
    for a, b in zip(found, expected, strict=True):
        assert (a.detach() - b).abs().max() <= most * b.abs().max()


@pytest.mark.parametrize("leak", [pytest.param(1e-6, marks=pytest.mark.thorough), 1e-12])
def test_transforms(leak):
    grid = (8, 7)
    source, weight, g, leaks = _fields(grid, torch.float32, leak)
    expected = _gradient(_direct, grid, torch.float64, leak)

    def loss(*g):
        return (kirchhoff_network(source, g, leaks) * weight).sum()

    _assert_close(torch.func.grad(loss, (0, 1))(*g), expected)
    tangents = tuple(torch.ones_like(x) for x in g)
    slope = torch.func.jvp(loss, tuple(g), tangents)[1]
    assert abs(slope - sum(x.sum() for x in expected)) <= 1e-4 * sum(
        x.abs().sum() for x in expected
    )


@pytest.mark.thorough
@pytest.mark.parametrize("leak", [1e-6, 1e-12])
def test_compilers(leak):
    grid = (8, 7)
    source, weight, g, leaks = _fields(grid, torch.float32, leak)

    def loss(*g):
        return (kirchhoff_network(source, g, leaks) * weight).sum()

    expected = _gradient(_direct, grid, torch.float64, leak)
    leaves = [x.clone().requires_grad_() for x in g]
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)(*leaves)
    _assert_close(torch.autograd.grad(compiled, leaves), expected)


@pytest.mark.parametrize("backend", [x for x in BACKENDS if x != "reference"])
@pytest.mark.parametrize("grid", [(24, 20), (9, 10, 9)])
def test_iterated_networks(backend, grid):
    """The loss was found, and then dropped: they were 100 % off."""

    def solve(source, g, leak):
        return kirchhoff_network(source, g, leak, backend=backend, method="multigrid")

    expected = _gradient(_direct, grid, torch.float64, 1e-10)
    _assert_close(_gradient(solve, grid, torch.float32, 1e-10), expected, 1e-4)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("method", ["direct", "multigrid", "factorize"])
def test_checkpoints(method, reentrant):
    """Saved tensors were read twice, which `torch.utils.checkpoint` refuses."""
    source, weight, g, leak = _fields((6, 5), torch.float32, 0.1)

    def solve(*g):
        if method == "factorize":
            return factorize(g, leak).solve(source)
        return kirchhoff_network(source, g, leak, method=method)

    leaves = [x.requires_grad_() for x in g]
    expected = torch.autograd.grad(solve(*leaves), leaves, weight)
    (checkpoint(solve, *leaves, use_reentrant=reentrant) * weight).sum().backward()
    _assert_close([x.grad for x in leaves], expected, 1e-6)
