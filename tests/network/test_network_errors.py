"""What is refused says what was expected and what came; what did not converge is never silent."""

import itertools
import warnings

import pytest
import torch
from network_cases import (
    edge_conductance,
    factorize,
    make_network,
    network_with_walls,
    relative_residual,
    solve_network,
    solver_of,
    wall_leak,
)
from rows import thorough
from torch.fx.experimental.proxy_tensor import make_fx

from chonn_ops import Auto, Direct, Grid, Iterative
from chonn_ops.network import available_backends
from chonn_ops.network.solve import cpu, ground, methods, reference


def _arguments(**changes):
    source, conductance, leak = make_network((4, 5), dtype=torch.float32)
    return {"source": source, "conductance": conductance, "leak": leak} | changes


def _by_a_factor(source, conductance, leak, **options):
    return factorize(conductance, leak, **options).solve(source)


ONE, SIX = torch.ones(1, 4, 5, 3), torch.ones(2, 6, 4, 5, 3)
DIRECT = "solver: expected Auto() or Direct() for "


def _like(value, **options):
    return torch.full((2, 4, 5, 3), value, **options)


@pytest.mark.parametrize(
    ("changes", "expected", "actual"),
    [
        ({"source": torch.ones(4, 5)}, "shape (B, *grid, C)", "(4, 5)"),
        ({"leak": torch.ones(1, 2, 2, 2, 2, 1)}, "1 to 3 grid axes", "(1, 2, 2, 2, 2, 1)"),
        ({"leak": torch.ones(1, 0, 2, 1)}, "at least one node", "(1, 0, 2, 1)"),
        ({"leak": torch.ones(1, 3, 2, 0)}, "one channel", "(1, 3, 2, 0)"),
        ({"source": _like(1, dtype=torch.int64)}, "torch.float32", "torch.int64"),
        ({"conductance": (_like(1.0),)}, "2 tensors, one an axis", "1"),
        ({"conductance": (_like(1.0), torch.ones(2, 4, 4, 3))}, "(2, 4, 5, 3)", "(2, 4, 4, 3)"),
        ({"conductance": (_like(1.0), _like(1, dtype=torch.bool))}, "float32", "torch.bool"),
        ({"leak": ONE}, "(1, 4, 5, 3)", "(2, 4, 5, 3)"),
        ({"leak": torch.ones(2, 4, 5)}, "conductance: expected 1 tensors, one an axis", "2"),
        ({"leak": ONE, "conductance": (ONE, ONE)}, "or (B, S, *grid, C)", "(2, 4, 5, 3)"),
        ({"leak": _like(1.0, device="meta")}, "device meta", "cpu"),
        ({"leak": _like(-1.0)}, "positive definite", "in network (0, "),
        ({"source": _like(1.0).to_sparse()}, "a dense tensor", "torch.sparse_coo"),
        ({"leak": _like(1.0).to_sparse()}, "a dense tensor", "torch.sparse_coo"),
        ({"leak": _like(-1.0), "periodic": True}, "positive definite", "in network (0, "),
        ({"leak": _like(0.0)}, "> 0 at some node of every connected part", "network (0, 0)"),
        ({"conductance": (_like(1.0), _like(-0.5))}, "positive definite", "in network (0, "),
        ({"periodic": "x"}, "a bool, or 2 of them", "'x'"),
        ({"periodic": (True,)}, "a bool, or 2 of them", "(True,)"),
        ({"periodic": (True, 1)}, "a bool, or 2 of them", "(True, 1)"),
        ({"periodic": ("periodic", "neumann")}, "a bool, or 2 of them", "'neumann')"),
        ({"periodic": None}, "a bool, or 2 of them", "None"),
        ({"solver": lambda: Auto(0.0)}, "above 0 and below 1", "0.0"),
        ({"solver": lambda: Auto(1.0)}, "above 0 and below 1", "1.0"),
        ({"solver": lambda: Auto(float("nan"))}, "above 0 and below 1", "nan"),
        ({"solver": lambda: Auto("tight")}, "tol: expected a number", "tight"),
        ({"solver": lambda: Auto(None)}, "tol: expected a number", "None"),
        ({"solver": lambda: Iterative(max_iterations=None)}, "an integer of", "None"),
        ({"solver": lambda: Iterative(max_iterations=float("inf"))}, "an integer of", "inf"),
        ({"solver": lambda: Iterative(max_iterations=float("nan"))}, "an integer of", "nan"),
        ({"periodic": 5}, "2 of them", "5"),
        ({"solver": lambda: Iterative(max_iterations=0)}, "at least 1", "0"),
        ({"solver": lambda: Iterative(max_iterations=2.5)}, "an integer of", "2.5"),
        ({"backend": "cuda"}, str(available_backends()), "'cuda'"),
        ({"source": torch.ones(2, 6, 3, 5, 3)}, "shape (B, *grid, C)", "(2, 6, 3, 5, 3)"),
        ({"source": SIX, "solver": Iterative}, DIRECT + "sources", "Iterative"),
        ({"leak": _like(1j), "solver": Iterative}, DIRECT + "complex numbers", "Iterative"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
@pytest.mark.parametrize("call", [solve_network, _by_a_factor])
def test_message_says_expected_and_actual(changes, expected, actual, call):
    if call is _by_a_factor and "solver" in changes:
        pytest.skip("a factor has no solver")
    with pytest.raises(ValueError, match="expected") as error:
        call(**_arguments(**{k: x() if callable(x) else x for k, x in changes.items()}))
    before, after = str(error.value).split(", got ")
    assert expected in before
    assert actual in after


@pytest.mark.parametrize("function", [edge_conductance, wall_leak])
def test_signs_are_read_where_nodes_exist_and_values_may_be_read(function):
    k = _like(1.0)
    k[:, 0, 0] = -1.0
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[0, 0] = False
    function(k, mask=mask)
    torch.vmap(function)(k[None])


@pytest.mark.thorough
@pytest.mark.parametrize("function", [edge_conductance, wall_leak])
def test_signs_are_not_read_by_compilers(function):
    k = _like(1.0)
    torch.compile(function, fullgraph=True, backend="eager")(k)
    make_fx(lambda k: function(k), tracing_mode="fake")(k)


@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
def test_grounding_one_node_as_the_message_says_solves_balanced_sources(boundary):
    arguments = _arguments(leak=_like(0.0))
    arguments["source"] -= arguments["source"].mean((1, 2), keepdim=True)
    with pytest.raises(ValueError, match=r"ground any one node: leak\[0, 0, 0, 0\] = 1"):
        network_with_walls(**arguments, boundary=boundary)
    arguments["leak"][:, 0, 0] = 1
    v = network_with_walls(**arguments, boundary=boundary)
    assert v[:, 0, 0].abs().max() < 1e-4 * v.abs().max()  # no current to ground


def test_environment_forces_the_backend(monkeypatch):
    monkeypatch.setenv("CHONN_NETWORK_BACKEND", "nonsense")
    with pytest.raises(ValueError, match=r"expected one of .* got 'nonsense'"):
        solve_network(**_arguments())
    solve_network(**_arguments(), backend="reference")
    called, solve = [], reference.solve
    monkeypatch.setattr(reference, "solve", lambda *args: called.append(1) or solve(*args))
    monkeypatch.setenv("CHONN_NETWORK_BACKEND", "reference")
    solve_network(**_arguments())
    assert called


def _hard(n=40, dtype=torch.float32):
    """Conductances of 1 and 1e6 at the scale of the grid: iterations stall."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, n, n, 3)
    phases = (torch.rand(shape, generator=generator) < 0.5 for _ in range(2))
    g = tuple(torch.where(x, 1.0, 1e6).to(dtype) for x in phases)
    source = torch.randn(shape, generator=generator).to(dtype)
    return {"source": source, "conductance": g, "leak": torch.full(shape, 1e-3, dtype=dtype)}


@pytest.mark.parametrize("backend", [x for x in available_backends() if x in ("cpu", "torch")])
def test_what_did_not_converge_raises_and_says_what_to_change(backend):
    case = _hard()
    case["source"][0] = case["source"][1, ..., :2] = 0
    with pytest.raises(RuntimeError) as caught:
        solve_network(**case, solver=Iterative(max_iterations=3), backend=backend)
    message, worst = str(caught.value), "worst, (1, 2) (batch, channel), of 1 of 6 networks"
    for part in ("at most tol=1e-05", worst, "3 iterations", "grid 40 x 40"):
        assert part in message
    for change in ("solver=Direct()", "float64", "contrast", "tol", "max_iterations"):
        assert change in message.split("To solve them")[1]


@pytest.mark.parametrize("backend", [x for x in available_backends() if x in ("cpu", "torch")])
def test_what_did_not_converge_is_eliminated(backend, monkeypatch):
    """Only those networks: the others keep what iterations gave them."""
    monkeypatch.setattr(methods, "AT_ONCE", (0,) * 4)
    case = _hard()
    # Conductances whose rounding is below the leaks; with others all are eliminated at once.
    case["conductance"] = tuple(g.clamp(max=1e3) for g in case["conductance"])
    for g in case["conductance"]:
        g[1] = 1.0
    monkeypatch.setattr(methods, "PATIENCE", 6)
    options = {"solver": Auto(1e-3), "backend": backend}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        v, info = solve_network(**case, **options, info=True)
    assert (info.backward_error[0] <= 1e-6).all()
    assert (relative_residual(v, *case.values(), (False, False))[1:] <= 1e-3).all()
    expected = solve_network(**case, backend="reference")
    error = (v - expected).abs().amax((1, 2)) / expected.abs().amax((1, 2))
    assert (error[0] <= 2e-5).all()
    easy = {name: x[1:] for name, x in case.items() if name != "conductance"}
    easy["conductance"] = tuple(g[1:] for g in case["conductance"])
    assert info.iterations[0].eq(6).all()
    if backend == "torch":  # compiled coarse grids depend on the batch's mean conductances
        options |= {"solver": Iterative(1e-3, 100)}
        torch.testing.assert_close(v[1:], solve_network(**easy, **options))


def test_too_large_to_eliminate_raises(monkeypatch):
    monkeypatch.setattr(methods, "FALLBACK_NODES", (1, 16, 16, 16))
    monkeypatch.setattr(Auto, "max_iterations", 3)
    with pytest.raises(RuntimeError, match=r"solver=Direct\(\)"):
        solve_network(**_hard())


@pytest.mark.parametrize("backend", available_backends())
@pytest.mark.parametrize("method", ["auto", "direct", "multigrid"])
@pytest.mark.parametrize("balanced", [False, True])
def test_a_part_without_ground_is_named(backend, method, balanced):
    """Half of a network that is cut in two, whether its sources are balanced or not."""
    source, conductance, leak = make_network((6, 8))
    conductance[1][1, :, 3, 2] = 0
    leak[1, :, :4, 2] = 0
    if balanced:
        source[1, :, :4, 2] -= source[1, :, :4, 2].mean()
    named = r"none in the part of network \(1, 2\).* node \("
    with pytest.raises(ValueError, match=named) as caught:
        solve_network(source, conductance, leak, backend=backend, solver=solver_of(method))
    node = str(caught.value).split("contains node ")[1]
    assert int(node.split(",")[1].split(")")[0]) < 4


@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
def test_islands_of_a_mask_are_found(boundary):
    """A spiral reaches its ground after every turn; an island inside it does not."""
    n = 16
    mask = torch.zeros(n, n, dtype=torch.bool)
    mask[1, 1:14] = mask[1:14, 13] = mask[13, 3:14] = mask[5:14, 3] = mask[5, 3:10] = True
    leak = torch.zeros(1, n, n, 1)
    leak[0, 1, 1] = 1.0
    source = mask[None, ..., None].float()

    def edges(mask):
        return tuple((mask & mask.roll(-1, axis)).float()[None, ..., None] for axis in range(2))

    v = network_with_walls(source, edges(mask), leak, boundary=boundary)
    torch.testing.assert_close((leak * v).sum(), source.sum())
    island = mask.clone()
    island[9, 7:9] = True
    with pytest.raises(ValueError, match=r"contains node \(9, 7\)"):
        network_with_walls(island[None, ..., None].float(), edges(island), leak, boundary=boundary)
    alone = network_with_walls(source, edges(island), leak, boundary=boundary)
    assert torch.equal(alone, v)  # an island without source is none of their business


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, *(thorough(x) for x in (torch.float64, torch.float16))]
)
@pytest.mark.parametrize("grid", [(9,), (1, 7), (5, 6), (4, 1, 5), (3, 4, 5)])
def test_compiled_search_finds_the_same_parts(grid, dtype, monkeypatch):
    """Random edges, at and below the density at which parts join."""
    if cpu.kernel() is None:
        pytest.skip("no compiled kernel")
    generator = torch.Generator().manual_seed(len(grid))
    shape, found = (2, *grid, 3), set()

    def random(density):
        return (torch.rand(shape, generator=generator) < density).to(dtype)

    for periodic in itertools.product((False, True), repeat=len(grid)):
        for density in (0.3, 0.6, 2.0):
            conductance, leak = [random(density) for _ in grid], random(0.4)
            label = ground.cut_off(conductance, leak, Grid(grid, periodic))
            with monkeypatch.context() as without:
                without.setattr(cpu, "cut_off", lambda *_: torch.empty(0))
                expected = ground.cut_off(conductance, leak, Grid(grid, periodic))
            found.add(label is None)
            if label is None or expected is None:
                assert label is expected
                continue
            assert torch.equal(label >= 0, expected >= 0)
            # Each names a part by another node.
            pairs = torch.stack([label, expected], -1).movedim(-2, 1).flatten(2, -2)
            for network in pairs.flatten(0, 1):
                both, first, second = (len(x.unique(dim=0)) for x in (network, *network.T))
                assert both == first == second
    assert found == {True, False}


def test_parts_joined_around_a_periodic_axis_have_ground():
    ones = torch.ones(1, 4, 4, 1)
    leak = torch.zeros(1, 4, 4, 1)
    leak[0, 0, 0] = 1
    g = torch.ones(1, 4, 4, 1)
    g[0, :, 1] = 0
    v = network_with_walls(ones, (ones, g), leak, boundary="periodic")
    options = {"boundary": "periodic", "backend": "reference"}
    torch.testing.assert_close(v, network_with_walls(ones, (ones, g), leak, **options))
    with pytest.raises(ValueError, match="connected part"):
        solve_network(ones, (ones, g), leak)


@pytest.mark.parametrize("backend", [x for x in available_backends() if x in ("cpu", "torch")])
def test_iterations_beyond_the_count_of_the_kernels(backend):
    source, g, leak = make_network((40, 41), dtype=torch.float32)
    solvers = Iterative(max_iterations=10**20), Iterative()
    v, same = (solve_network(source, g, leak, solver, backend=backend) for solver in solvers)
    torch.testing.assert_close(v, same)


@pytest.mark.skipif("reference" not in available_backends(), reason="no SciPy")
def test_the_reference_raises_where_its_factors_lose_the_leaks():
    g = 1e12 ** torch.rand(1, 65, 1, generator=torch.Generator().manual_seed(0)).double()
    leak = torch.full_like(g, 1e-6)
    with pytest.raises(RuntimeError, match=r"network \(0, 0\) .*expected corrections that vanish"):
        solve_network(torch.ones_like(g), (g,), leak, periodic=True, backend="reference")


@pytest.mark.parametrize("backend", [x for x in available_backends() if x in ("cpu", "torch")])
@pytest.mark.parametrize("scale", [1e-38, 1e-41])
def test_conductances_at_the_end_of_float32_are_solved_or_refused(backend, scale):
    """Numbers of the iterations overflowed, and potentials were NaN without a word."""
    generator = torch.Generator().manual_seed(0)
    source, *g = (scale * (0.1 + torch.rand(2, 20, 18, 1, generator=generator)) for _ in range(3))
    leak = torch.full_like(source, 0.1 * scale)
    wide = [x.double() for x in (source, leak, *g)]
    truth = solve_network(wide[0], wide[2:], wide[1], solver=Direct())
    for method, tol in (("auto", 1e-3), ("direct", 1e-5), ("multigrid", 1e-5)):
        if method == "multigrid" and backend == "cpu":
            with pytest.raises(RuntimeError, match="expected residuals and errors"):
                solve_network(source, g, leak, solver=solver_of(method, tol), backend=backend)
            continue
        v = solve_network(source, g, leak, solver=solver_of(method, tol), backend=backend)
        assert (v - truth).abs().max() <= 1e-3 * truth.abs().max()  # denormals have few digits


# Networks are solved all at once, or one after the other.
@pytest.mark.parametrize("at_once", [6, 1])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("backend", available_backends())
def test_the_network_at_a_resonance_is_named_and_what_to_change(
    backend, dtype, at_once, monkeypatch
):
    monkeypatch.setattr(methods, "networks_at_once", lambda *_: at_once)
    generator = torch.Generator().manual_seed(3)
    source, leak, *g = (
        (torch.rand(3, 4, 5, 2, generator=generator) + 0.1).to(dtype) for _ in range(4)
    )
    for x in g:
        x[2, ..., 1] = 0
    leak[2, ..., 1] = 1
    g[1][2, 1, 2, 1], leak[2, 1, 2, 1], leak[2, 1, 3, 1] = 1, 1, -0.5  # [[2, -1], [-1, 0.5]]
    named = r"network \(2, 1\) \(batch, channel\)"
    change = rf"{named}: .*resonance.*loss.*negative imaginary"
    with pytest.raises(RuntimeError, match=change) as caught:
        solve_network(source, g, leak, backend=backend)
    assert "tol=1e-05" in str(caught.value)
    solve_network(source, g, leak - 0.01j, backend=backend)
    for wanted in (False, True) if backend in ("cpu", "torch") else ():
        networks = factorize(g, leak.requires_grad_(wanted), backend=backend)
        assert networks.logdet().real.isneginf().nonzero().tolist() == [[2, 1]]
        for refused in (lambda x=networks: x.solve(source), networks.diagonal_of_inverse):
            with pytest.raises(RuntimeError, match=rf"{named}.*resonance"):
                refused()
