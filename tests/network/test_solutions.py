"""What a solve returns and keeps is a value: it depends on nothing else, and nothing else on it."""

from functools import partial

import pytest
import torch
from network_cases import BACKENDS, assert_near, factorize, make_network, solve_network, solver_of
from rows import thorough
from torch.utils.checkpoint import checkpoint

from chonn_ops import Direct
from chonn_ops.network.solve import methods

GRIDS = [(9,), (7, 6), (5, 4, 6)]
GRIDS += [thorough(x) for x in ((24, 20), (14, 14, 14))]
KINDS = [torch.float32, torch.float64, torch.complex64]


def leaves_of(grid, dtype=torch.float64, contrast=100.0):
    source, g, leak = make_network(grid, dtype=torch.float64, contrast=contrast)
    if dtype.is_complex:
        leak = leak - 0.5j * leak
    return [x.to(dtype).requires_grad_() for x in (source, *g, leak)]


def solve(source, *rest, **options):
    return solve_network(source, rest[:-1], rest[-1], **options)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "reference"])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("method", ["auto", "direct", "multigrid"])
@pytest.mark.parametrize("contrast", [100.0, thorough(1e8)])
def test_potentials_do_not_depend_on_whether_a_gradient_is_wanted(
    backend, dtype, grid, method, contrast
):
    if dtype.is_complex and method == "multigrid":
        pytest.skip("complex networks are eliminated")
    leaves = leaves_of(grid, dtype, contrast)
    options = {"backend": backend, "solver": solver_of(method, max_iterations=1000)}
    try:
        with torch.no_grad():
            plain = solve(*leaves, **options)
    except RuntimeError as unsolved:  # multigrid alone, at this contrast
        assert method == "multigrid"
        with pytest.raises(RuntimeError, match=str(unsolved)[:60]):
            solve(*leaves, **options)
        return
    for wanted in (leaves[:1], leaves[1:2], leaves[-1:], leaves):
        given = [x if any(x is y for y in wanted) else x.detach() for x in leaves]
        assert torch.equal(solve(*given, **options), plain)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_factors_are_read_as_they_were_written_whatever_the_threads(set_threads, dtype):
    """How a factor fills vectors depends on the threads there are when it is made."""
    leaves = leaves_of((40, 33), dtype)
    expected = torch.autograd.grad(solve(*leaves, solver=Direct()).abs().sum(), leaves)
    for before, after in ((1, 3), (3, 1)):
        set_threads(before)
        loss = solve(*leaves, solver=Direct()).abs().sum()
        set_threads(after)
        torch.testing.assert_close(torch.autograd.grad(loss, leaves), expected)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "reference"])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("keep", [0, methods.KEPT])
@pytest.mark.parametrize("method", ["direct", "multigrid", "factorize"])
def test_gradients_are_the_same_with_and_without_factors(backend, dtype, keep, method, monkeypatch):
    """Without: too large to keep, recomputed by a checkpoint, packed by hooks."""
    if dtype.is_complex and method == "multigrid":
        pytest.skip("complex networks are eliminated")
    leaves = leaves_of((12, 9), dtype)
    expected = torch.autograd.grad(solve(*leaves, backend="reference").abs().sum(), leaves)
    monkeypatch.setattr(methods, "KEPT", keep)

    def call(*x):
        if method == "factorize":
            return factorize(x[1:-1], x[-1], backend=backend).solve(x[0])
        return solve(*x, backend=backend, solver=solver_of(method))

    def gradients(call):
        for x in leaves:
            x.grad = None
        call(*leaves).abs().sum().backward()
        return [x.grad for x in leaves]

    plain = gradients(call)
    torch.testing.assert_close(plain, list(expected), rtol=1e-3, atol=1e-3)
    with torch.autograd.graph.save_on_cpu():
        others = [gradients(call)]
    for reentrant in (False, True):
        others.append(gradients(partial(checkpoint, call, use_reentrant=reentrant)))
    for other in others:
        assert_near(other, plain, 1e-6)
