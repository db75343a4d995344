"""When iterations stop, and what is reported of the potentials: against SciPy in float64."""

import math
from contextlib import ExitStack, suppress

import pytest
import torch
from network_cases import BACKENDS, assert_near, make_network, net_current, solve_network, solver_of
from rows import thorough
from torch import Tensor

from chonn_ops import Direct, Grid, Iterative
from chonn_ops.network.direct import elimination
from chonn_ops.network.layout import backward_error
from chonn_ops.network.solve import methods

KINDS = ["held", "metal", "capacitors"]
SLOW = pytest.mark.slow
KINDS += [pytest.param(x, marks=SLOW) for x in ("held by less", "one capacitor", "cells", "noise")]
ITERATED = [name for name in BACKENDS if name != "reference"]


def hard(kind: str, grid: tuple[int, ...], seed: int = 5) -> tuple[Tensor, list[Tensor], Tensor]:
    """Float64 networks in which one node or layer outweighs the rest, and two usual ones."""
    generator = torch.Generator().manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(1, *grid, 1, dtype=torch.float64, generator=generator)

    source = 2 * uniform() - 1
    g = [0.1 + uniform() for _ in grid]
    leak = torch.zeros_like(source)
    leak[:, 0] = 0.3
    middle = (0, *(n // 2 for n in grid), 0)
    if kind == "held":
        leak[middle] += 1e9
        source[middle] = 2e9
    elif kind == "held by less":
        leak = 1e-3 * (0.1 + uniform())
        source *= 0.1
        leak[middle] += 1e6
        source[middle] = 2e6
    elif kind == "metal":  # held at 1 and, at the other end, at 0
        k = torch.ones_like(source)
        k[:, : max(1, grid[0] // 10)] = 1e5
        g = [2 / (1 / k + 1 / k.roll(-1, axis + 1)) for axis in range(len(grid))]
        leak[:, 0], leak[:, -1] = 2e5, 2.0
        source = torch.zeros_like(source)
        source[:, 0] = 2e5
    elif kind == "capacitors":  # a step of `rc_step`
        leak = 10 ** (12 * uniform() - 6)
        source *= leak
    elif kind == "one capacitor":
        leak = torch.ones_like(source)
        leak[middle] = 1e9
        source *= leak
    elif kind == "cells":  # what a network cell solves
        g, leak = [(2 * uniform() - 1).exp() for _ in grid], (2 * uniform() - 1).exp()
    else:
        g, leak = [1e4 ** (uniform() - 0.5) for _ in grid], 0.1 + uniform()
    return source, g, leak


@pytest.mark.parametrize(
    ("backend", "periodic", "copies"),
    [
        *(pytest.param(x, True, 1, marks=SLOW) for x in ITERATED),
        *(thorough(x, False, 1) for x in ITERATED),
        *((x, False, 40) for x in ITERATED if x == "cpu"),  # networks fill the vectors
    ],
)
@pytest.mark.parametrize("grid", [pytest.param((40,), marks=SLOW), (33, 20), (9, 10, 11)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_at_most_ten_tolerances(kind, backend, grid, periodic, copies):
    """Errors of potentials and gradients in the maximum norm, by any method; or the call raises."""

    def solved(network, copies=1, **options):
        leaves = [x.repeat(copies, *[1] * (x.dim() - 1)).requires_grad_() for x in network]
        v = solve_network(leaves[0], leaves[2:], leaves[1], periodic=periodic, **options)
        weight = torch.linspace(-1, 2, v[0].numel(), dtype=torch.float64).sin().reshape(v[0].shape)
        grads = torch.autograd.grad(v, leaves, weight.to(v.dtype).expand_as(v))
        # Gradients of edges of all axes are compared with the largest of them.
        edges = torch.stack(grads[2:])
        return v.detach(), grads[0], grads[1], edges

    source, g, leak = hard(kind, grid)
    # PyTorch's iterations take a second each.
    looser = () if backend == "torch" else (1e-3,)
    for dtype, tols in ((torch.float64, (*looser, 1e-8)), (torch.float32, (*looser, 1e-5))):
        network = [x.to(dtype) for x in (source, leak, *g)]
        right = solved([x.double() for x in network], backend="reference")
        for tol in tols:
            for method in ("auto", "multigrid", "direct"):
                options = {"solver": solver_of(method, tol), "backend": backend}
                with ExitStack() as stack:
                    if method == "multigrid":  # noise may take more iterations than it gets
                        stack.enter_context(suppress(RuntimeError))
                    found = solved(network, copies, **options)
                    copied = [x.expand_as(y) for x, y in zip(right, found, strict=True)]
                    assert_near(found, copied, 10 * tol)


@pytest.mark.parametrize(
    ("way", "grid"),
    [
        *((backend, grid) for backend in ITERATED for grid in ((24, 20), (9, 10, 9))),
        thorough("compiled", (8, 7)),
    ],
)
def test_gradients_of_edges_have_digits_where_small_leaks_lift_potentials(way, grid):
    """The loss was found by iterations, and then dropped: gradients were 100 % off."""
    source, g, leak = make_network(grid, B=1, C=1, contrast=3.0)
    weight = make_network(grid, B=1, C=1, seed=1)[0]
    small, tolerance = (1e-12, 2e-5) if way == "compiled" else (1e-10, 1e-4)

    def gradients(dtype, **options):
        def solve(*edges):
            return solve_network(source.to(dtype), edges, small * leak.to(dtype), **options)

        if way == "compiled":
            solve = torch.compile(solve, backend="aot_eager", fullgraph=True)
        leaves = [x.to(dtype).requires_grad_() for x in g]
        return torch.autograd.grad(solve(*leaves), leaves, weight.to(dtype))

    options = {} if way == "compiled" else {"backend": way, "solver": Iterative()}
    expected = gradients(torch.float64, solver=Direct())
    assert_near(gradients(torch.float32, **options), expected, tolerance)


@pytest.mark.parametrize("backend", ITERATED)
def test_an_exact_first_step_ends_the_iterations(backend):
    """Without edges the first cycle solves: no second term to judge by."""
    source = make_network((40, 41), B=1, C=1)[0]
    none, leak = torch.zeros_like(source), torch.full_like(source, 2.0)
    options = {"solver": Iterative(), "backend": backend, "info": True}
    v, info = solve_network(source, (none, none), leak, **options)
    if backend == "cpu":  # an incomplete factorisation
        assert torch.equal(v, source / 2)
        assert info.iterations.item() == 1
        assert info.backward_error.item() == 0
    assert (v - source / 2).abs().max() <= 1e-5
    assert info.iterations.item() <= 5


@pytest.mark.parametrize("backend", ITERATED)
def test_a_tolerance_below_rounding_is_reached(backend):
    """In float32 the recurrences converge further than rounding lets potentials."""
    for kind in ("cells", "held"):
        source, g, leak = hard(kind, (33, 20))
        given = source.float(), [x.float() for x in g], leak.float()
        options = {"solver": Iterative(1e-9), "backend": backend, "info": True}
        v, info = solve_network(*given, **options)
        assert info.iterations.max() <= 25
        wide = given[0].double(), [x.double() for x in given[1]], given[2].double()
        assert_near(v, solve_network(*wide, backend="reference"), 1e-6)


def backward_error_of(v, source, g, leak, periodic) -> Tensor:
    """Node by node, in float64: (B, C)."""
    left = (source.double() - net_current(v, g, leak, periodic)).abs()
    size = source.double().abs() + net_current(v.abs(), g, leak, periodic, sign=1)
    return torch.where(left == 0, 0, left / size).flatten(1, -2).amax(1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ["direct", "multigrid"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_backward_error_is_that_of_the_potentials_returned(backend, method, dtype):
    """It was 0 where an elimination left 0.014 |s|, and 6e-14 where float32 had 3e-7."""
    source, g, leak = make_network((12, 13), contrast=1e3, dtype=dtype)
    options = {"solver": solver_of(method), "backend": backend, "periodic": (False, True)}
    v, info = solve_network(source, g, leak, **options, info=True)
    expected = backward_error_of(v, source, g, leak, (False, True))
    assert info.backward_error.dtype == torch.float64
    torch.testing.assert_close(info.backward_error, expected, rtol=1e-2, atol=2e-16)
    assert (info.backward_error > torch.finfo(dtype).eps / 100).all()
    if method == "direct" or backend == "reference":
        # 4.3 on an Intel Xeon by PyTorch, whose products round as the processor's units do.
        assert (info.backward_error < 8 * torch.finfo(dtype).eps).all()


def test_backward_errors_of_complex_networks_and_of_many_sources():
    source, g, leak = make_network((7, 8))
    several = torch.stack([source, source.flip(1)], 1)
    v, info = solve_network(several, g, leak, info=True)
    for i in range(2):
        expected = backward_error_of(v[:, i], several[:, i], g, leak, (False, False))
        torch.testing.assert_close(info.backward_error[:, i], expected, rtol=1e-2, atol=2e-16)
    waves = leak.to(torch.complex64) * -0.1j
    v, info = solve_network(source.float(), g, waves, info=True)
    assert info.backward_error.dtype == torch.float64
    assert 1e-9 < info.backward_error.max() < 1e-6
    v[0, 3, 3, 0] += 0.1
    assert backward_error(v, source.float(), g, waves, Grid((12, 13)))[0, 0] > 1e-2


def test_nodes_outside_of_the_network_do_not_count():
    source, g, leak = make_network((6, 5), B=1, C=1)
    v = solve_network(source, g, leak)
    for x in (*g, leak):
        x[0, 2, 2] = 0
    g[0][0, 1, 2] = g[1][0, 2, 1] = 0
    source[0, 2, 2] = 0
    v, info = solve_network(source, g, leak, info=True)
    assert v[0, 2, 2] == 0
    assert 0 < info.backward_error.item() < 1e-14
    source[0, 2, 2] = math.nan
    assert solve_network(source, g, leak, info=True)[1].backward_error.isnan().all()


def test_memory_is_predicted_for_the_threads_there_are(set_threads):
    """It was remembered for the number of threads of the first call."""
    if "cpu" not in ITERATED:
        pytest.skip("no compiled kernel")
    case = (Grid((512, 512)), 1, torch.float32)
    found = []
    for threads in (1, 4):
        set_threads(threads)
        bound = elimination.predicted_bytes(*case)
        for most, expected in ((bound, 1), (bound - 1, 0)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(methods, "MEMORY", most)
                assert methods.networks_at_once(*case) == expected
        found.append(bound)
    assert found[0] < found[1]
