"""LC networks: the midpoint equations, energy, waves of known speed, gradients through time."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from network_cases import make_network

from chonn_ops import lc_step
from chonn_ops.network import LCState, edge_inductance, lc_energy, zero_current

DOUBLE = torch.float64
EXACT = {"tol": 1e-13}
BOUNDARIES = [
    ((7,), "neumann"),
    ((6,), "periodic"),
    ((5,), "dirichlet"),
    ((4, 5), ("periodic", "dirichlet")),
    ((3, 2, 4), ("neumann", "dirichlet", "periodic")),
]
EACH_BOUNDARY = pytest.mark.parametrize(("grid", "boundary"), BOUNDARIES, ids=str)


def _network(grid, boundary, *, B=2, C=2, dtype=DOUBLE, contrast=100.0):
    """A state, inductances and capacitances over two decades each."""
    generator = torch.Generator().manual_seed(1)

    def uniform(*shape):
        return torch.rand(*shape, dtype=DOUBLE, generator=generator)

    state = zero_current(uniform(B, *grid, C) - 0.5, boundary)
    current = tuple(uniform(*i.shape) - 0.5 for i in state.current)
    L = tuple((contrast ** (uniform(*i.shape) - 0.5)).to(dtype) for i in current)
    capacitance = (contrast ** (uniform(B, *grid, C) - 0.5)).to(dtype)
    state = LCState(state.voltage.to(dtype), tuple(i.to(dtype) for i in current))
    return state, L, capacitance


def _drops(v, axis, end):
    """Edge by edge, ground being a node more at both boundary."""
    v = v.movedim(axis + 1, 0)
    if end == "periodic":
        pairs = [(v[p], v[(p + 1) % len(v)]) for p in range(len(v))]
    else:
        nodes = list(v) if end == "neumann" else [0 * v[0], *v, 0 * v[0]]
        pairs = list(itertools.pairwise(nodes))
    return torch.stack([a - b for a, b in pairs]).movedim(0, axis + 1)


@EACH_BOUNDARY
def test_a_step_is_the_midpoint_rule(grid, boundary):
    (v, current), L, C = state, _, _ = _network(grid, boundary)
    words = (boundary,) * len(grid) if isinstance(boundary, str) else boundary
    source, _, leak = make_network(grid, C=2)
    dt = 0.7
    after = lc_step(state, L, C, dt, source, leak=leak, boundary=boundary, **EXACT)
    middle = ((v + after.voltage) / 2).requires_grad_()
    into = source - leak * middle
    for axis, word in enumerate(words):
        drop = _drops(middle, axis, word)
        rate = L[axis] * (after.current[axis] - current[axis]) / dt
        torch.testing.assert_close(rate, drop, rtol=1e-9, atol=1e-9)
        # Currents leave nodes by the transpose of the drops.
        mean = (current[axis] + after.current[axis]) / 2
        into = into - torch.autograd.grad(drop, middle, mean)[0]
    torch.testing.assert_close(C * (after.voltage - v) / dt, into, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("steps", [100, pytest.param(1000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "tol", [pytest.param(1e-5, marks=pytest.mark.thorough), 1e-1], ids=["tight", "loose"]
)
@pytest.mark.parametrize("dt", [0.1, 10.0])
@pytest.mark.parametrize(
    ("grid", "boundary"), [((40,), "dirichlet"), ((25, 26), ("neumann", "periodic"))], ids=str
)
def test_energy_stays_over_many_steps(grid, boundary, dt, tol, steps):
    state, L, C = _network(grid, boundary, B=1)
    first = lc_energy(state, L, C)
    for _ in range(steps):
        state = lc_step(state, L, C, dt, boundary=boundary, tol=tol)
    torch.testing.assert_close(lc_energy(state, L, C), first, rtol=1e-6, atol=0)


@pytest.mark.thorough
def test_energy_in_float32():
    state, L, C = _network((16, 16), "periodic", B=1, dtype=torch.float32)
    first = lc_energy(state, L, C)
    for _ in range(1000):
        state = lc_step(state, L, C, 0.5, boundary="periodic")
    torch.testing.assert_close(lc_energy(state, L, C), first, rtol=1e-4, atol=0)


@pytest.mark.parametrize("leaks", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize(
    ("grid", "boundary"),
    [((30,), "neumann"), ((4, 5), ("periodic", "dirichlet")), ((3, 2, 4), "neumann")],
    ids=str,
)
def test_steps_of_any_length_keep_the_energy_or_are_refused(grid, boundary, dtype, leaks):
    state, L, C = _network(grid, boundary, B=1, dtype=dtype)
    leak = leaks * torch.rand_like(C)
    wide = LCState(state.voltage.double(), tuple(i.double() for i in state.current))
    exact = [x.double() for x in L], C.double()
    taken = []
    for dt in (1e-5, 1e-3, 0.1, 1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e7, 1e10, 1e12, 1e13, 1e14, 1e17):
        options = {"dt": dt, "boundary": boundary, "tol": 1e-6}
        now, energies = state, [lc_energy(state, L, C)]
        try:
            for _ in range(4):
                before, now = now, lc_step(now, L, C, leak=leak, **options)
                middle = (before.voltage + now.voltage) / 2
                lost = (leak * middle.square()).flatten(1, -2).sum(1) * dt
                energies += [lc_energy(now, L, C) + lost]
                torch.testing.assert_close(*energies[-2:], rtol=2e-3, atol=0)
                energies[-1] -= lost
        except ValueError as refused:
            assert "dt: expected at most" in str(refused)  # noqa: PT017
            continue
        taken.append(dt)
        if dtype == torch.float32:
            right = lc_step(wide, *exact, leak=leak.double(), **options)
            after = lc_step(state, L, C, leak=leak, **options)
            off = LCState(
                after.voltage - right.voltage,
                tuple(a - b for a, b in zip(after.current, right.current, strict=True)),
            )
            assert (lc_energy(off, *exact) < 1e-6 * lc_energy(wide, *exact)).all()
    assert taken[0] == 1e-5
    assert 1e2 < taken[-1] < 1e5 if dtype == torch.float32 else 1e11 < taken[-1] < 1e14


@EACH_BOUNDARY
def test_leaks_take_energy(grid, boundary):
    state, L, C = _network(grid, boundary)
    leak = torch.rand(C.shape, dtype=DOUBLE)
    energies = [lc_energy(state, L, C)]
    for _ in range(20):
        state = lc_step(state, L, C, 0.5, leak=leak, boundary=boundary)
        energies.append(lc_energy(state, L, C))
    assert all((b < a).all() for a, b in itertools.pairwise(energies))
    assert (energies[-1] < 0.9 * energies[0]).all()


@EACH_BOUNDARY
def test_time_can_be_turned_back(grid, boundary):
    start, L, C = _network(grid, boundary)
    state = start
    for _ in range(10):
        state = lc_step(state, L, C, 0.5, boundary=boundary, **EXACT)
    state = LCState(state.voltage, tuple(-i for i in state.current))
    for _ in range(10):
        state = lc_step(state, L, C, 0.5, boundary=boundary, **EXACT)
    torch.testing.assert_close(state.voltage, start.voltage, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(state.current[0], -start.current[0], rtol=1e-8, atol=1e-8)


def test_a_mode_of_a_ring_has_the_frequency_of_the_midpoint_rule():
    """tan(w dt / 2) = dt / 2 sqrt(lambda), lambda = (2 - 2 cos k) / (L C)."""
    n, mode, L, C, dt = 12, 2, 0.5, 2.0, 0.3
    k = 2 * math.pi * mode / n
    v = torch.cos(k * torch.arange(n, dtype=DOUBLE)).reshape(1, n, 1)
    turn = 2 * math.atan(dt / 2 * math.sqrt((2 - 2 * math.cos(k)) / (L * C)))
    state = zero_current(v, "periodic")
    for step in range(1, 30):
        state = lc_step(state, (L,), C, dt, boundary="periodic", **EXACT)
        torch.testing.assert_close(state.voltage, v * math.cos(step * turn))


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet", "periodic"])
def test_waves_have_the_speed_of_their_medium(boundary):
    """A standing wave of the continuum, at the second order of spacing and step together."""
    speed, errors = 1.5, []
    for n in (20, 40, 80):
        x = (torch.arange(n, dtype=DOUBLE) + 0.5) / n
        k = 2 * math.pi if boundary == "periodic" else math.pi
        wave = torch.sin(k * x) if boundary == "dirichlet" else torch.cos(k * x)
        v = wave.reshape(1, n, 1)
        L = edge_inductance(torch.full_like(v, speed**2), 1 / n, boundary=boundary)
        state = zero_current(v, boundary)
        for _ in range(n):
            state = lc_step(state, L, 1 / n, 0.4 / n, boundary=boundary, **EXACT)
        errors.append((state.voltage - v * math.cos(k * speed * 0.4)).abs().max().item())
    orders = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    assert orders[-1] > 1.8, (errors, orders)


def test_inductances_are_those_of_edges():
    k = torch.tensor([1.0, 4.0, 0.0]).reshape(1, 3, 1)
    inner = [0.5 * 5 / 8, math.inf]  # h over the harmonic mean
    (open_ends,) = edge_inductance(k, 0.5)
    assert open_ends.flatten().tolist() == pytest.approx(inner)
    (short,) = edge_inductance(k, 0.5, boundary="dirichlet")
    assert short.flatten().tolist() == pytest.approx([0.25, *inner, math.inf])
    state = zero_current(torch.ones(1, 3, 1), "dirichlet")
    after = lc_step(state, (short,), 1.0, 1.0, boundary="dirichlet")
    assert after.voltage.flatten()[2] == 1  # on its own
    assert lc_energy(after, (short,), 1.0).item() == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("grid", "boundary"),
    [
        ((2,), "dirichlet"),
        pytest.param((2, 3), ("periodic", "neumann"), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_gradients_through_time(grid, boundary):
    (v, current), L, C = _network(grid, boundary, B=1, C=1)
    leak, source = torch.rand(2, 1, *grid, 1, dtype=DOUBLE)
    leaves = [x.requires_grad_() for x in (v, *current, *L, C, leak, source)]
    axes = len(grid)

    def roll(v, *rest):
        C, leak, source = rest[2 * axes :]
        state = LCState(v, rest[:axes])
        for _ in range(3):
            state = lc_step(
                state, rest[axes : 2 * axes], C, 0.4, source, leak=leak, boundary=boundary, **EXACT
            )
        return (state.voltage, *state.current)

    assert torch.autograd.gradcheck(roll, leaves, check_forward_ad=True)


def test_unfit_steps_are_refused():
    state, L, C = _network((4, 3), ("periodic", "neumann"))
    options = {"boundary": ("periodic", "neumann")}
    for call, message in (
        (lambda: lc_step(state, L, C, -1.0, **options), "dt: expected a finite number > 0"),
        (lambda: lc_step(state, L, 0.0, 1.0, **options), "capacitance: expected > 0 everywhere"),
        (
            lambda: lc_step(state, (-L[0], L[1]), C, 1.0, **options),
            "inductance.0.: expected > 0",
        ),
        (lambda: lc_step(state, 1.0, C, 1.0, **options), "inductance: expected a tuple of 2"),
        (lambda: lc_step(state, L[:1], C, 1.0, **options), "inductance: expected a tuple of 2"),
        (lambda: lc_step(C, L, C, 1.0, **options), r"state: expected an LCState .*, got Tensor"),
        (lambda: lc_step(state, L, C, 1.0), r"current\[0\]: expected shape \(2, 3, 3, 2\)"),
        (lambda: lc_step(state, L, C, 1.0, boundary="matched"), "boundary: expected one of"),
        (lambda: lc_step(state, L, C, 1.0, leak=-C, **options), "leak: expected >= 0"),
        (lambda: lc_step(state, L, C, 1.0, C[:1], **options), "source: expected shape"),
        (lambda: lc_step(state, L, C, 1.0, tol=2, **options), "tol: expected"),
        (lambda: zero_current(C[0, 0]), "voltage: expected shape"),
        (lambda: edge_inductance(C, boundary="wall"), "boundary: expected one of"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
