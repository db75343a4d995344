"""RC networks: one step against dense matrices, and energy."""

import pytest
import torch
from network_cases import BACKENDS, GRAPH, make_network, matrix, on, uniform, walled
from rows import thorough

from chonn_ops import Auto, Circuit, Grid, rc_step
from chonn_ops.network.layout import backward_error

DOUBLE = torch.float64
METHODS = ("euler", "midpoint")
EACH_METHOD = pytest.mark.parametrize("method", METHODS)
EXACT = {"solver": Auto(1e-13)}


def step_of(v, conductance, leak, *rest, boundary="neumann", **options):
    """`rc_step` of a bare circuit with grounds at its faces."""
    total, periodic = walled(conductance, leak, boundary)
    return rc_step(
        v, Circuit(conductance, total, Grid(total.shape[1:-1], periodic)), *rest, **options
    )


LAYOUTS = [GRAPH, *(Grid(x, y) for x in ((7,), (3, 5), (2, 3, 4)) for y in (False, True))]


@EACH_METHOD
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_step_is_its_equation(layout, backend, dtype, method):
    given = make_network(layout if layout is GRAPH else layout.shape, B=1, C=1, dtype=dtype)
    source, g, leak = given
    v, C, dt = uniform(*leak.shape) - 0.5, 0.1 + uniform(*leak.shape, seed=4), 0.3
    v, C = v.to(dtype), C.to(dtype)
    with on(backend):
        circuit = Circuit(g[0] if layout is GRAPH else g, leak, layout)
        after = rc_step(v, circuit, C, dt, source, method=method, **EXACT)
    A = matrix(g, leak, layout)[0]
    storage = torch.diag(C.flatten() / dt).double()
    s, x = source.flatten().double(), v.flatten().double()
    if method == "euler":
        expected = torch.linalg.solve(storage + A, storage @ x + s)
    else:
        expected = torch.linalg.solve(storage + A / 2, (storage - A / 2) @ x + s)
    rounding = 1e-9 if dtype == DOUBLE else 2e-6
    torch.testing.assert_close(after.flatten().double(), expected, rtol=rounding, atol=rounding)


@EACH_METHOD
def test_a_node_that_stores_nothing_has_no_state(method):
    """Held nodes, and one between two capacitors: whatever their potentials were before."""
    line = torch.ones(1, 5, 1, dtype=torch.float64)
    held = (torch.arange(5) == 0)[:, None]
    circuit = Circuit((line,), 0 * line).hold(held, 1.0)
    capacitance = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64)[:, None]
    v = torch.zeros_like(line)
    for _ in range(3):
        before = v
        v = rc_step(v, circuit, capacitance, 0.1, method=method, **EXACT)
        other = rc_step(before + (capacitance == 0) + held, circuit, capacitance, 0.1,
                        method=method, **EXACT)  # fmt: skip
        assert torch.equal(v, other)
        assert v[0, 0] == 1
        storage = capacitance * circuit.volume / (0.1 if method == "euler" else 0.05)
        solved = v if method == "euler" else torch.where(storage == 0, v, (v + before) / 2)
        network = circuit.conductance, circuit.leak + storage, circuit.layout
        error = backward_error(solved, storage * before + circuit.source(0 * v), *network)
        assert error.item() < 1e-12


@EACH_METHOD
@pytest.mark.parametrize("tol", [thorough(1e-5), 0.5], ids=["tight", "loose"])
@pytest.mark.parametrize("dt", [thorough(1e-9), 1.0, thorough(1e3), 1e9])
@pytest.mark.parametrize(
    ("grid", "boundary", "dtype"),
    [
        ((65,), "neumann", torch.float32),
        ((32, 32), "periodic", torch.float32),
        ((30, 29), ("dirichlet", "matched"), DOUBLE),
        ((9, 8, 10), "neumann", DOUBLE),
    ],
    ids=str,
)
def test_energy_without_sources_never_rises(grid, boundary, dtype, dt, tol, method):
    """New conductances over six decades in every step; without leaks too, and however inexact."""
    C = 10.0 ** (4 * uniform(2, *grid, 3) - 2)
    v = make_network(grid, seed=9, dtype=dtype)[0]
    energy = (C * v.double().square()).flatten(1, -2).sum(1)
    for step in range(10):
        _, g, leak = make_network(grid, contrast=1e6, seed=step, dtype=dtype)
        leak = leak * (0 if step % 2 else 10.0 ** (step - 5))
        v = step_of(v, g, leak, C.to(dtype), dt, method=method, boundary=boundary, solver=Auto(tol))
        after = (C * v.double().square()).flatten(1, -2).sum(1)
        rounding = 50 * torch.finfo(dtype).eps
        assert (after <= energy * (1 + rounding)).all(), (step, (after / energy).max())
        energy = after


def test_dtypes_and_capacitances_of_any_shape():
    source, g, leak = make_network((6, 5), dtype=torch.float32)
    v = make_network((6, 5), dtype=torch.float32, seed=5)[0]
    expected = step_of(v, g, leak, 0.5, 0.1, source)
    assert expected.dtype == torch.float32
    half = step_of(v.bfloat16(), g, leak, torch.full((3,), 0.5), 0.1, source)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=2e-2, atol=2e-2)
