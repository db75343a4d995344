"""The Kirchhoff cell: streaming, constraints, circuit theory, precision."""

import functools

import numpy as np
import pytest
import torch
from scipy import signal

from chonn_ops import KirchhoffCell, Scan, kirchhoff_scan
from chonn_ops.inspect import rc_cell, transfer_function, zero_order_hold
from chonn_ops.scan import DIRECTIONS


def raster(**options):
    return Scan(**{"directions": "raster", **options})


def make_cell(**options):
    torch.manual_seed(0)
    return KirchhoffCell(6, raster(d_state=4, **options)).double()


def test_a_sequence_can_be_streamed():
    cell = make_cell()
    u = torch.randn(3, 17, 6, dtype=torch.float64)
    whole = cell(u)
    state, outputs = None, []
    for k in range(u.shape[1]):
        y, state = cell.advance(u[:, k : k + 1], state)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 1), whole)


def test_split_sequence_equals_whole():
    cell = make_cell()
    u = torch.randn(2, 19, 6, dtype=torch.float64)
    whole, final = cell.advance(u)
    head, state = cell.advance(u[:, :8])
    tail, state = cell.advance(u[:, 8:], state)
    torch.testing.assert_close(whole, cell(u))
    torch.testing.assert_close(torch.cat((head, tail), 1), whole)
    torch.testing.assert_close(state, final)


def test_forward_is_the_equations():
    cell = make_cell()
    u = torch.randn(2, 9, 6, dtype=torch.float64)
    w_delta, w_b, w_c = cell.selective_proj.weight.split((1, 4, 4))
    delta = torch.nn.functional.softplus(u @ w_delta.T @ cell.dt_proj.weight.T + cell.dt_proj.bias)
    expected = kirchhoff_scan(
        u, delta, cell.decay, u @ w_b.T, u @ w_c.T, cell.skip, backend="reference"
    )
    torch.testing.assert_close(cell(u), expected)


def test_bounded_coefficients_saturate_and_leave_small_ones_alone():
    free, bounded = make_cell(), make_cell(selective_norm=True)
    u = torch.randn(2, 9, 6, dtype=torch.float64)
    for scale, expected in (
        (1e-6, lambda x: x),
        (1e6, lambda x: x / x.square().mean(-1, True).sqrt()),
    ):
        delta, b, c = bounded.coefficients(scale * u)
        free_delta, free_b, free_c = free.coefficients(scale * u)
        torch.testing.assert_close(delta, free_delta)
        torch.testing.assert_close(b, expected(free_b))
        torch.testing.assert_close(c, expected(free_c))


def fix_coefficients(cell, delta, decay, b, c, d):
    """Make every selective coefficient a constant: zero projections of a constant channel."""
    u_bias = torch.zeros_like(cell.selective_proj.weight)
    with torch.no_grad():
        cell.selective_proj.weight.copy_(u_bias)
        cell.dt_proj.weight.zero_()
        cell.dt_proj.bias.fill_(delta + torch.log(-torch.expm1(torch.tensor(-delta))).item())
        cell.decay_param.copy_(torch.log(decay))
        cell.skip_param.copy_(torch.log(torch.expm1(d)))
    ones = torch.ones
    cell.coefficients = lambda u: (
        torch.full_like(u, delta),
        b * ones(*u.shape[:-1], decay.shape[1], dtype=u.dtype),
        c * ones(*u.shape[:-1], decay.shape[1], dtype=u.dtype),
    )


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_fixed_coefficients_filter_with_the_papers_transfer_function(stages):
    """H(z) = prod_l (d_l + c_l b_l / (1 - a_l / z)): eq. cascaded_knc_transfer."""
    u = torch.randn(1, 300, 2, dtype=torch.float64)
    circuits, y = ([], []), u
    for stage in range(stages):
        delta, decay = 0.2 + 0.1 * stage, torch.tensor([[1.3], [0.4]], dtype=torch.float64)
        b, c, d = 0.7 + stage, -1.1, torch.tensor([0.5, 2.0], dtype=torch.float64)
        cell = KirchhoffCell(2, raster(d_state=1)).double()
        fix_coefficients(cell, delta, decay, b, c, d)
        y = cell(y)
        for channel, circuit in enumerate(circuits):
            stage = rc_cell(1.0, float(decay[channel]), 0.0, b, c, float(d[channel]))
            circuit.append(transfer_function(zero_order_hold(stage, delta)))
    for channel, circuit in enumerate(circuits):
        # Scans count in positions, whatever their steps are.
        top, bottom = (
            functools.reduce(np.polymul, sides)
            for sides in zip(*((h.num, h.den) for h in circuit), strict=True)
        )
        expected = signal.lfilter(top, bottom, u[0, :, channel])
        np.testing.assert_allclose(y[0, :, channel].detach(), expected, rtol=1e-7, atol=1e-9)


def test_constraints_hold_for_any_parameters():
    cell = make_cell()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.copy_(5 * torch.randn_like(parameter))
    u = 5 * torch.randn(2, 11, 6, dtype=torch.float64)
    delta, _, _ = cell.coefficients(u)
    alpha = torch.exp(-delta.unsqueeze(-1) * cell.decay)
    assert (cell.decay > 0).all()
    assert (cell.skip >= 0).all()
    assert (delta > 0).all()
    assert ((alpha >= 0) & (alpha <= 1)).all()  # 1 only by rounding


def test_free_parameters_may_turn_the_circuit_active():
    cell = make_cell(constrained=False)
    constrained = make_cell()
    torch.testing.assert_close(cell.decay, constrained.decay)  # same start
    with torch.no_grad():
        cell.decay_param[0, 0] = -0.5
        cell.decay_param[1, 1] = 0.0
        cell.skip_param[2] = -1.0
    assert cell.decay[0, 0] < 0
    assert cell.skip[2] < 0
    u = torch.randn(2, 40, 6, dtype=torch.float64)
    delta, b, c = cell.coefficients(u)
    expected = kirchhoff_scan(
        u, delta, cell.decay, b, c, cell.skip, passive=False, backend="reference"
    )
    y = cell(u)
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in cell.parameters())


def test_free_parameters_have_finite_gradients_in_single_precision():
    torch.manual_seed(0)
    cell = KirchhoffCell(4, raster(d_state=3, constrained=False))
    cell(torch.randn(2, 9, 4)).sum().backward()
    for name, parameter in cell.named_parameters():
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_gradcheck(directions):
    cell = KirchhoffCell(2, Scan(d_state=2, directions=directions)).double()
    u = torch.randn(1, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in cell.named_parameters()]

    def run(u, *parameters):
        return torch.func.functional_call(cell, dict(zip(names, parameters, strict=True)), u)

    assert torch.autograd.gradcheck(run, (u, *cell.parameters()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_module_in_low_precision_stays_close(dtype):
    torch.manual_seed(0)
    cell = KirchhoffCell(8, raster(d_state=4))
    u = torch.randn(2, 65, 8)
    expected = cell(u)
    result = cell.to(dtype)(u.to(dtype))
    assert result.dtype == dtype
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 1e-6}[dtype]
    error = (result.float() - expected).norm() / expected.norm()
    assert error < tolerance


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: KirchhoffCell(0), "dim: expected an integer of at least 1, got 0"),
        (lambda: Scan(d_state=0), "d_state: expected an integer of at least 1, got 0"),
        (lambda: KirchhoffCell(4)(torch.zeros(1, 5, 3)), r"\(B, \*grid, 4\).*got \(1, 5, 3\)"),
        (
            lambda: KirchhoffCell(4, Scan(directions="cross")).advance(torch.zeros(1, 1, 4)),
            "expected directions='raster'.*got 'cross'",
        ),
        (
            lambda: KirchhoffCell(4, raster(), boundary="periodic").advance(
                torch.zeros(1, 1, 4), torch.zeros(1, 4, 16)
            ),
            "initial_state: expected None with boundary='periodic'",
        ),
        (
            lambda: KirchhoffCell(4, raster(d_state=2)).advance(
                torch.zeros(3, 1, 4), torch.zeros(3, 2)
            ),
            r"state: expected shape \(B, D, N\) = \(3, 4, 2\), got \(3, 2\)",
        ),
        (
            lambda: KirchhoffCell(4, raster()).advance(torch.zeros(1, 5, 3)),
            r"\(B, L, 4\), got \(1, 5, 3\)",
        ),
        (
            lambda: KirchhoffCell(4, raster(), boundary="dirichlet"),
            "'cross' or 'axial'.*got 'dirichlet'",
        ),
        (lambda: KirchhoffCell(4, boundary="closed"), "expected one of .*got 'closed'"),
        (lambda: Scan(directions="up"), "expected one of .*got 'up'"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
