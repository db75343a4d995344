"""LC networks: the midpoint equations, energy, held nodes."""

import math

import pytest
import torch
from network_cases import GRAPH, edges_of, make_network
from rows import thorough

from chonn_ops import Auto, Circuit, Dirichlet, Graph, Grid, LCState, diffusion, lc_energy, lc_step

DOUBLE = torch.float64
EXACT = {"solver": Auto(1e-13)}
BOUNDARIES = [
    ((7,), "neumann"),
    ((6,), "periodic"),
    ((5,), "dirichlet"),
    ((4, 5), ("periodic", "dirichlet")),
    ((3, 2, 4), ("neumann", "dirichlet", "periodic")),
    ((6,), (("neumann", Dirichlet(3.0)),)),
    ((7,), "graph"),
]
EACH_BOUNDARY = pytest.mark.parametrize(("grid", "boundary"), BOUNDARIES, ids=str)


def _network(grid, boundary, *, B=2, C=2, dtype=DOUBLE, contrast=100.0):
    """A state, a circuit and capacitances over two decades each."""
    generator = torch.Generator().manual_seed(1)
    edges = GRAPH.edge_shape if boundary == "graph" else grid

    def uniform(shape=grid):
        return torch.rand(B, *shape, C, dtype=DOUBLE, generator=generator)

    k, capacitance = contrast ** (uniform(edges) - 0.5), contrast ** (uniform() - 0.5)
    if boundary == "graph":
        circuit = Circuit(k.to(dtype), (uniform() * (uniform() < 0.3)).to(dtype), GRAPH)
    else:
        circuit = diffusion(k.to(dtype), boundary=boundary)
    current = circuit.layout.edges([uniform(edges) - 0.5 for _ in circuit.conductance])
    ground = (uniform() - 0.5) * (circuit.leak > 0)
    state = [x.to(dtype) for x in (uniform() - 0.5, *current, ground)]
    return LCState(state[0], tuple(state[1:-1]), state[-1]), circuit, capacitance.to(dtype)


@EACH_BOUNDARY
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_a_step_is_the_midpoint_rule(grid, boundary, dtype):
    """Each edge and each coil to ground by itself, written out edge by edge."""
    state, circuit, C = _network(grid, boundary, dtype=dtype)
    source, _, damping = make_network(grid, C=2, dtype=dtype)
    rounding = {"rtol": 1e-9, "atol": 1e-9} if dtype == DOUBLE else {"rtol": 1e-4, "atol": 1e-4}
    dt = 0.7
    after = lc_step(state, circuit, C, dt, source, damping=damping, **EXACT)
    middle = (state.voltage + after.voltage) / 2
    into = (source - damping * middle - (state.ground + after.ground) / 2).flatten(1, -2)
    rate = (after.ground - state.ground) / dt
    walls = circuit.source(torch.zeros_like(middle))
    torch.testing.assert_close(rate, circuit.leak * middle - walls, **rounding)
    v = middle.flatten(1, -2)
    axes = edges_of(circuit.layout, grid), circuit.conductance, state.current, after.current
    for (p, q, entry), *fields in zip(*axes, strict=True):
        g, before, now = (x.flatten(1, -2)[:, entry] for x in fields)
        torch.testing.assert_close((now - before) / dt, g * (v[:, p] - v[:, q]), **rounding)
        mean = (before + now) / 2
        into = into.index_add(1, p, -mean).index_add(1, q, mean)
    rate = C * (after.voltage - state.voltage) / dt
    torch.testing.assert_close(rate.flatten(1, -2), into, **rounding)


def test_waves_between_held_nodes():
    """A string fixed at both ends, one of them at 1 V: its first mode about the static potential.
    The held nodes neither store nor swing, and do not limit the step."""
    n, dt = 9, 0.1
    line = torch.ones(1, n, 1, dtype=DOUBLE)
    ends = torch.tensor([True, *[False] * (n - 2), True])[:, None]
    still = torch.linspace(1, 0, n, dtype=DOUBLE)[:, None]
    circuit = Circuit((line,), 0 * line).hold(ends, still)
    angle = math.pi / (n - 1)
    mode = (angle * torch.arange(n, dtype=DOUBLE)).sin()[None, :, None]
    state = LCState.at_rest((still + mode) * ~ends)
    for _ in range(10):
        state = lc_step(state, circuit, 1.0, dt, **EXACT)
    phase = 20 * math.atan(math.sin(angle / 2) * dt)
    torch.testing.assert_close(state.voltage, still + math.cos(phase) * mode)


def test_states_in_half_precision():
    """Energies, sums of currents and products with `dt` are beyond it."""
    n, half = 3000, torch.float16
    star = Graph([(n, i) for i in range(n)], n + 1)
    v, i = torch.zeros(1, n + 1, 1, dtype=half), torch.ones(1, n, 1, dtype=half)
    circuit = Circuit(10 * i, v, star)
    after = lc_step(LCState(v, (i,), v), circuit, 1e5, 1e-3).voltage
    assert after[0, n].item() == pytest.approx(-1e-3 * n / 1e5, rel=1e-2)
    v[:, n] = 60000
    (after,) = lc_step(LCState.at_rest(v, star), circuit, 1.0, 1e-8).current
    assert after[0, 0].item() == pytest.approx(1e-8 * 10 * 60000, rel=1e-2)
    energy = lc_energy(LCState(v, (300 * i,), 0 * v), circuit, 1.0).item()
    assert energy == pytest.approx(60000**2 / 2 + n * 300**2 / 10 / 2)


@pytest.mark.parametrize("steps", [100, thorough(1000)])
@pytest.mark.parametrize("tol", [thorough(1e-5), 1e-1], ids=["tight", "loose"])
@pytest.mark.parametrize("dt", [0.1, 10.0])
@pytest.mark.parametrize(
    ("grid", "boundary", "dtype", "rounding"),
    [
        ((40,), "dirichlet", DOUBLE, 1e-6),
        ((25, 26), ("neumann", "periodic"), DOUBLE, 1e-6),
        thorough((16, 16), "periodic", torch.float32, 1e-4),
    ],
    ids=str,
)
def test_energy_stays_over_many_steps(grid, boundary, dtype, rounding, dt, tol, steps):
    state, circuit, C = _network(grid, boundary, B=1, dtype=dtype)
    first = lc_energy(state, circuit, C)
    for _ in range(steps):
        state = lc_step(state, circuit, C, dt, solver=Auto(tol))
    torch.testing.assert_close(lc_energy(state, circuit, C), first, rtol=rounding, atol=0)


@pytest.mark.parametrize("leaks", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, thorough(DOUBLE)], ids=str)
@pytest.mark.parametrize(
    ("grid", "boundary"),
    [((30,), "neumann"), ((4, 5), ("periodic", "dirichlet")), ((3, 2, 4), "neumann")],
    ids=str,
)
def test_steps_of_any_length_keep_the_energy_or_are_refused(grid, boundary, dtype, leaks):
    state, circuit, C = _network(grid, boundary, B=1, dtype=dtype)
    leak = leaks * torch.rand_like(C)
    wide = LCState(
        state.voltage.double(), tuple(i.double() for i in state.current), state.ground.double()
    )
    same = Circuit([g.double() for g in circuit.conductance], circuit.leak.double(), circuit.layout)
    taken = []
    for dt in (1e-5, 1e-3, 0.1, 1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e7, 1e10, 1e12, 1e13, 1e14, 1e17):
        options = {"dt": dt, "solver": Auto(1e-6)}
        now, energies = state, [lc_energy(state, circuit, C)]
        try:
            for _ in range(4):
                before, now = now, lc_step(now, circuit, C, damping=leak, **options)
                middle = (before.voltage + now.voltage) / 2
                lost = (leak * middle.square()).flatten(1, -2).sum(1) * dt
                energies += [lc_energy(now, circuit, C) + lost]
                torch.testing.assert_close(*energies[-2:], rtol=2e-3, atol=0)
                energies[-1] -= lost
        except ValueError as refused:
            assert "dt: expected at most" in str(refused)  # noqa: PT017
            continue
        taken.append(dt)
        if dtype == torch.float32:
            right = lc_step(wide, same, C.double(), damping=leak.double(), **options)
            after = lc_step(state, circuit, C, damping=leak, **options)
            currents = zip(after.current, right.current, strict=True)
            off = LCState(after.voltage - right.voltage, tuple(a - b for a, b in currents),
                          after.ground - right.ground)  # fmt: skip
            exact = (same, C.double())
            assert (lc_energy(off, *exact) < 1e-6 * lc_energy(wide, *exact)).all()
    assert taken[0] == 1e-5
    assert 1e2 < taken[-1] < 1e5 if dtype == torch.float32 else 1e11 < taken[-1] < 1e14


def test_a_current_of_a_state_at_rest_is_set_alone():
    state = LCState.at_rest(torch.zeros(1, 3, 4, 1))
    state.current[0][:, 1] = 1.0
    assert not state.current[1].any()
    assert not state.ground.any()


@pytest.mark.parametrize("periodic", [False, True])
def test_only_edges_store_energy(periodic):
    """An axis of one node has none, and the last entry of another one where it is periodic."""
    v, one = torch.zeros(1, 1, 4, 1), torch.ones(1, 1, 4, 1)
    circuit = Circuit([one, 2 * one], one, Grid(one.shape[1:-1], periodic))
    state = LCState(v, (3 * one, one), v)
    assert lc_energy(state, circuit, 1.0).item() == (4 if periodic else 3) / 4


def test_a_node_without_coils_keeps_its_voltage():
    k = torch.tensor([1.0, 4.0, 0.0]).reshape(1, 3, 1)
    circuit = diffusion(k, 0.5, boundary="dirichlet")
    state = LCState.at_rest(torch.ones(1, 3, 1))
    after = lc_step(state, circuit, 2.0, 1.0)
    assert after.voltage.flatten()[2] == 1
    assert lc_energy(after, circuit, 2.0).item() == pytest.approx(1.5)
