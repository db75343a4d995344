"""The Kirchhoff cell: constraints, circuit theory, precision."""

import pytest
import torch

from chonn_ops import KirchhoffCell, Scan, kirchhoff_scan


def raster(**options):
    return Scan(**{"directions": "raster", **options})


def make_cell(**options):
    torch.manual_seed(0)
    return KirchhoffCell(6, raster(d_state=4, **options)).double()


def test_forward_is_the_equations():
    cell = make_cell()
    u = torch.randn(2, 9, 6, dtype=torch.float64)
    w_delta, w_b, w_c = cell.selective_proj.weight.split((1, 4, 4))
    delta = torch.nn.functional.softplus(u @ w_delta.T @ cell.dt_proj.weight.T + cell.dt_proj.bias)
    inputs = u, delta, cell.decay, u @ w_b.T, u @ w_c.T, cell.skip
    torch.testing.assert_close(cell(u), kirchhoff_scan(*inputs, backend="reference"))


def test_bounded_coefficients_saturate_and_leave_small_ones_alone():
    free, bounded = make_cell(), make_cell(selective_norm=True)
    u = torch.randn(2, 9, 6, dtype=torch.float64)
    saturated = lambda x: x / x.square().mean(-1, True).sqrt()  # noqa: E731
    for scale, expected in ((1e-6, lambda x: x), (1e6, saturated)):
        delta, b, c = bounded.coefficients(scale * u)
        free_delta, free_b, free_c = free.coefficients(scale * u)
        torch.testing.assert_close(delta, free_delta)
        torch.testing.assert_close(b, expected(free_b))
        torch.testing.assert_close(c, expected(free_c))


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
    inputs, y = (u, delta, cell.decay, b, c, cell.skip), cell(u)
    torch.testing.assert_close(y, kirchhoff_scan(*inputs, passive=False, backend="reference"))
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in cell.parameters())


def test_free_parameters_have_finite_gradients_in_single_precision():
    torch.manual_seed(0)
    cell = KirchhoffCell(4, raster(d_state=3, constrained=False))
    cell(torch.randn(2, 9, 4)).sum().backward()
    for name, parameter in cell.named_parameters():
        assert parameter.grad.isfinite().all(), name


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
