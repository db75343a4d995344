"""Which method solves a network, and why."""

import pytest
import torch
from network_cases import solve_network, solver_of

from chonn_ops import Grid
from chonn_ops.network.direct import cpu
from chonn_ops.network.solve import methods, operator

compiled = pytest.mark.skipif(cpu.kernel() is None, reason="no compiled kernel")
ITERATED = "; elimination of what is above tol after {} iterations"
FASTER = "multigrid: the backend 'torch' iterates faster than it eliminates"
VOLUME = "multigrid: a volume of more than 12 x 12 x 12 nodes" + ITERATED.format(40)


@compiled
@pytest.mark.parametrize(
    ("grid", "backend", "method", "reason"),
    [
        ((64, 64), "cpu", "direct", "elimination: a plane of at most 512 x 512 nodes"),
        ((512, 512), "cpu", "direct", "elimination: a plane of at most 512 x 512 nodes"),
        ((64, 1, 64), "cpu", "direct", "elimination: a plane of at most 512 x 512 nodes"),
        ((512, 513), "cpu", "multigrid", "multigrid: a plane of more than 512 x 512 nodes"),
        ((12, 12, 12), "cpu", "direct", "elimination: a volume of at most 12 x 12 x 12 nodes"),
        ((16, 16, 16), "cpu", "multigrid", VOLUME),
        ((48, 48, 48), "cpu", "multigrid", "multigrid: a volume of more than 32 x 32 x 32 nodes"),
        ((64,), "cpu", "line", "elimination: a line"),
        ((1, 300_000), "torch", "line", "elimination: a line"),
        ((64, 64), "torch", "multigrid", FASTER + ITERATED.format(40)),
        ((9, 9, 99), "reference", "direct", "elimination: asked for by the backend 'reference'"),
    ],
)
def test_the_automatic_rule(grid, backend, method, reason):
    for networks in (0, 1):  # an empty batch is no batch that is too large
        choice = methods.choose(Grid(grid), networks, torch.float32, backend)
        fallback = "above tol" in reason or grid == (64,)
        assert choice == (method, reason, fallback)


@pytest.mark.parametrize("backend", ["torch", pytest.param("cpu", marks=compiled)])
@pytest.mark.parametrize(("grid", "ground"), [((9, 9, 13), 1.0), ((1, 40), 1.0), ((99,), 1e-10)])
@pytest.mark.parametrize("method", ["auto", "multigrid", "direct"])
def test_info_tells_what_was_done(backend, grid, ground, method):
    leak = torch.zeros(2, *grid, 3)
    leak.flatten(1, -2)[:, 0] = ground
    g = [torch.ones(2, *grid, 3) for _ in grid]
    source = torch.randn(2, *grid, 3, generator=torch.Generator().manual_seed(11))
    options = {"periodic": True, "backend": backend, "info": True}
    _, info = solve_network(source, g, leak, solver=solver_of(method), **options)
    assert info.method == ("multigrid" if bool(info.iterations.all()) else "direct")
    assert info.method == "direct" or len(grid) == 3
    assert info.reason.startswith("multigrid" if info.method == "multigrid" else "elimination")


@pytest.mark.parametrize("backend", ["torch", pytest.param("cpu", marks=compiled)])
def test_info_tells_that_small_leaks_were_eliminated(backend):
    leak = torch.full((1, 13, 13, 13, 1), 1e-10)
    _, info = solve_network(
        leak, [torch.ones_like(leak)] * 3, leak, periodic=True, backend=backend, info=True
    )
    assert not info.iterations.any()
    why = "iterations cannot judge leaks below the rounding of conductances"
    assert info[2:] == ("direct", f"elimination: {why}")


@compiled
def test_info_tells_what_was_done_beside_a_part_without_ground(monkeypatch):
    """The operator gives that part a ground, and chooses after that."""
    leak = torch.ones(1, 20, 20, 20, 2)
    leak[..., 0] = 0
    source = leak.clone()
    eliminated = []
    eliminate = operator._eliminate
    monkeypatch.setattr(
        operator, "_eliminate", lambda *a, **k: eliminated.append(a) or eliminate(*a, **k)
    )
    _, info = solve_network(source, [torch.ones_like(leak)] * 3, leak, backend="cpu", info=True)
    assert not eliminated
    assert info.iterations[0, 1] > 0
    assert info.method == "multigrid"
    assert info.reason == VOLUME


@compiled
def test_memory_bounds_groups_then_methods(monkeypatch):
    case = (Grid((64, 64)), 1000, torch.float32, "cpu")
    monkeypatch.setattr(methods, "MEMORY", methods.predicted_bytes(Grid((64, 64)), 125))
    nodes = "elimination: a plane of at most 512 x 512 nodes"
    assert methods.choose(*case) == ("direct", f"{nodes}, 125 of 1000 at a time", False)
    monkeypatch.setattr(methods, "MEMORY", 0)
    reason = "multigrid: factors of one network would take 0.0 GiB, more than 0 GiB"
    assert methods.choose(*case) == ("multigrid", reason, False)


def test_what_is_asked_for():
    case = (Grid((64, 64)), 1, torch.float32, "cpu")
    for method, word in (("direct", "elimination"), ("multigrid", "multigrid")):
        choice = methods.choose(*case, method)
        name = {"direct": "Direct()", "multigrid": "Iterative()"}[method]
        assert choice == (method, f"{word}: asked for by {name}", False)
    complex_case = (*case[:2], torch.complex64, "cpu", "multigrid")
    assert methods.choose(*complex_case).method == "direct"


def test_several_sources_share_an_elimination():
    _, info = solve_network(
        torch.ones(1, 3, 16, 16, 16, 1), [torch.ones(1, 16, 16, 16, 1)] * 3,
        torch.ones(1, 16, 16, 16, 1), info=True,
    )  # fmt: skip
    assert info[2:] == ("direct", "elimination: several sources share it")
    for method in ("auto", "multigrid"):
        choice = methods.choose(Grid((64, 64)), 1, torch.float32, "torch", method, several=True)
        assert choice.method == "direct"
