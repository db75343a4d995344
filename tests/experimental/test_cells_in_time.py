"""RC and LC network cells: equations, streaming, energy, gradients through time, refusals."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from chonn_ops import lc_step, rc_step
from chonn_ops.experimental import LCNetworkCell, RCNetworkCell
from chonn_ops.network import LCState, edge_inductance, lc_energy, zero_current
from chonn_ops.nn import Network

DOUBLE = torch.float64
UNIT = 16.0  # units of length of the networks in the unit box
EACH_CELL = pytest.mark.parametrize("cell_class", [RCNetworkCell, LCNetworkCell])


def _cell(cell_class, dim, m=8, axes=2, dtype=DOUBLE, tol=1e-3, selective=True, **keywords):
    torch.manual_seed(0)
    options = Network(num_networks=m, tol=tol, selective=selective)
    cell = cell_class(dim, axes, options, **keywords).to(dtype)
    with torch.no_grad():
        cell.capacitance_param.copy_(torch.linspace(-1, 1, m))
    return cell


def _features(*shape, dtype=DOUBLE):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def _tensors(state):
    return [state] if isinstance(state, torch.Tensor) else [state.voltage, *state.current]


@pytest.mark.parametrize("method", ["euler", "midpoint"])
@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
@pytest.mark.parametrize("grid", [(7,), (5, 6)], ids=str)
def test_the_rc_cell_is_its_equations(grid, boundary, method):
    cell = _cell(RCNetworkCell, 4, 3, len(grid), boundary=boundary, tol=1e-12, method=method)
    u, before, dt = _features(2, *grid, 4), _features(2, *grid, 3), 0.3
    k, leak, source = cell.coefficients(u)
    steps = [UNIT / n for n in grid]
    volume, g = math.prod(steps), cell.edges(k, [1 / n for n in grid])
    expected = rc_step(before, g, leak * volume, cell.capacitance * volume, dt,
                       0.1 * source * volume, method=method,
                       boundary=boundary, tol=1e-12)  # fmt: skip
    v, state = cell.step(u, before, dt=dt)
    torch.testing.assert_close(v, expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(v, state)


@pytest.mark.parametrize("damped", [False, True])
@pytest.mark.parametrize("boundary", ["neumann", "dirichlet", "periodic"])
def test_the_lc_cell_is_its_equations(boundary, damped):
    cell = _cell(LCNetworkCell, 4, 3, boundary=boundary, selective=False, tol=1e-12, damped=damped)
    u, dt = _features(2, 5, 6, 4), 0.3
    k, leak, source = cell.coefficients(u)
    steps = [UNIT / 5, UNIT / 6]
    volume = math.prod(steps)
    L = edge_inductance(k, steps, boundary=boundary)
    before = zero_current(_features(2, 5, 6, 3), boundary)
    before = LCState(before.voltage, tuple(_features(*i.shape) for i in before.current))
    expected = lc_step(before, L, cell.capacitance * volume, dt, 0.1 * source * volume,
                       leak=leak * volume if damped else None,
                       boundary=boundary, tol=1e-12)  # fmt: skip
    v, state = cell.step(u, before, dt=dt)
    assert torch.equal(v, state.voltage)
    for a, b in zip(_tensors(state), _tensors(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@EACH_CELL
@pytest.mark.parametrize("grid", [(9,), (8, 7)], ids=str)
def test_streaming_is_the_rollout_to_the_bit(cell_class, grid):
    cell = _cell(cell_class, 4, 3, len(grid), boundary="robin", dtype=torch.float32)
    u = _features(2, 6, *grid, 4, dtype=torch.float32)
    whole, last = cell.advance(u, dt=0.5)
    assert torch.equal(cell(u, dt=0.5), whole)
    state = None
    for t in range(6):
        v, state = cell.step(u[:, t], state, dt=0.5)
        assert torch.equal(v, whole[:, t])
    head, middle = cell.advance(u[:, :2], dt=0.5)
    tail, end = cell.advance(u[:, 2:], middle, dt=0.5)
    assert torch.equal(torch.cat((head, tail), 1), whole)
    assert torch.equal(cell(u[:, 2:], state=middle, dt=0.5), tail)
    for a, b, c in zip(_tensors(state), _tensors(last), _tensors(end), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    assert not torch.allclose(whole[:, 1], cell.step(u[:, 1], dt=0.5)[0], rtol=1e-2)


@pytest.mark.thorough
@EACH_CELL
def test_gradients_through_time(cell_class):
    cell = _cell(cell_class, 3, 2, boundary=("robin", "periodic"), tol=1e-13)
    u = _features(1, 2, 3, 2, 3).requires_grad_()
    start = cell.step(u[:, 0].detach())[1]
    state = [x.detach().requires_grad_() for x in _tensors(start)]
    names = [name for name, _ in cell.named_parameters()]
    assert "capacitance_param" in names

    def roll(u, *values):
        parts, rest = values[: len(state)], values[len(state) :]
        given = parts[0] if len(parts) == 1 else LCState(parts[0], parts[1:])
        parameters = dict(zip(names, rest, strict=True))
        return torch.func.functional_call(cell, parameters, (u,), {"state": given, "dt": 0.4})

    assert torch.autograd.gradcheck(roll, (u, *state, *cell.parameters()))


@pytest.mark.parametrize("method", ["euler", "midpoint"])
@pytest.mark.parametrize("dt", [1e-6, 1.0, 1e6])
def test_no_features_feed_an_rc_rollout_without_sources(method, dt):
    cell = _cell(RCNetworkCell, 4, 3, method=method, dtype=torch.float32)
    with torch.no_grad():
        cell.source_proj.weight.zero_()
    state = _features(2, 16, 16, 3, dtype=torch.float32)
    energy = state.double().square().sum((1, 2))
    for step in range(20):
        u = 30 * torch.randn(2, 16, 16, 4, generator=torch.Generator().manual_seed(step))
        v, state = cell.step(u, state, dt=dt)
        after = v.detach().double().square().sum((1, 2))
        assert (after <= energy * (1 + 1e-5)).all(), step
        energy = after


def test_an_undamped_lc_rollout_keeps_its_energy():
    cell = _cell(LCNetworkCell, 4, 3, boundary="periodic", damped=False)
    with torch.no_grad():
        cell.source_proj.weight.zero_()
    u = _features(1, 12, 11, 4)
    state = zero_current(_features(1, 12, 11, 3), "periodic")
    steps = [UNIT / 12, UNIT / 11]
    L = [1 / g for g in cell.edges(cell.coefficients(u)[0], [1 / 12, 1 / 11])]
    C = cell.capacitance * math.prod(steps)
    first = lc_energy(state, L, C)
    with torch.no_grad():
        for _ in range(100):
            state = cell.step(u, state, dt=0.7)[1]
    torch.testing.assert_close(lc_energy(state, L, C), first, rtol=1e-6, atol=0)


@EACH_CELL
def test_states_belong_to_the_domain(cell_class):
    """Twice as fine a grid: the second order of the spacing."""
    cell = _cell(cell_class, 2, 3, tol=1e-12)

    def smooth(n):
        x = (torch.arange(n, dtype=DOUBLE) + 0.5) / n
        y = x[:, None]
        u = torch.stack((torch.sin(3 * x) * y, torch.cos(2 * y) + 0 * x), -1)
        return cell(u.expand(1, 4, n, n, 2))[:, -1]

    def coarser(v):
        return v.unflatten(1, (-1, 2)).unflatten(3, (-1, 2)).mean((2, 4))

    with torch.no_grad():
        v = [smooth(n) for n in (16, 32, 64)]
    errors = [(coarser(b) - a).norm() / a.norm() for a, b in itertools.pairwise(v)]
    assert math.log2(errors[0] / errors[1]) > 1.7, errors


# Coils to missing nodes are open.
@pytest.mark.parametrize(
    ("cell_class", "boundary"),
    [(RCNetworkCell, "neumann"), (RCNetworkCell, "dirichlet"), (LCNetworkCell, "neumann")],
)
def test_a_masked_grid_knows_nothing_outside(cell_class, boundary):
    cell = _cell(cell_class, 4, boundary=boundary, tol=1e-12)
    u = _features(2, 3, 6, 5, 4).requires_grad_()
    mask = torch.zeros(6, 5, dtype=torch.bool)
    mask[1:5, 2:] = True
    spacing = [1 / 6, 1 / 5]
    whole = cell(u, spacing, mask)
    inside = cell(u[:, :, 1:5, 2:], spacing, nodes="centres")
    torch.testing.assert_close(whole[:, :, 1:5, 2:], inside, rtol=1e-9, atol=1e-9)
    assert (whole[:, :, ~mask] == 0).all()
    grads = torch.autograd.grad(whole.sum(), (u, *cell.parameters()), allow_unused=True)
    assert all(grad is None or grad.isfinite().all() for grad in grads)


def test_unfit_calls_are_refused():
    cell, wave, u = RCNetworkCell(4), LCNetworkCell(4), torch.randn(2, 6, 5, 4)
    for call, message in (
        (lambda: RCNetworkCell(4, method="explicit"), "method: expected one of"),
        (lambda: LCNetworkCell(4, boundary="matched"), "boundary: expected 'neumann', 'dirichlet'"),
        (lambda: cell(u), r"u: expected shape \(B, T >= 1, H, W, 4\), got \(2, 6, 5, 4\)"),
        (lambda: cell.step(u[None]), r"u: expected shape \(B, H, W, 4\)"),
        (lambda: cell.step(u, torch.zeros(2, 6, 5, 4)), r"state: expected shape \(2, 6, 5, 8\)"),
        (lambda: cell.step(u, dt=0.0), "dt: expected a finite number > 0"),
        (lambda: wave.step(u, dt=-1.0), "dt: expected a finite number > 0"),
        (lambda: wave.step(u, zero_current(torch.zeros(2, 6, 5, 4))), "state.voltage: expected"),
        (
            lambda: wave.step(u, zero_current(torch.zeros(2, 6, 5, 8), "periodic")),
            "current.0.: expect",
        ),
        (lambda: cell.step(u, mask=torch.ones(6, 5)), "mask: expected torch.bool"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
