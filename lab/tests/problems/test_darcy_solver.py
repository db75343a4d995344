"""The steady Darcy solver: exact solutions, the matrix, and the transient problem's end."""

import numpy as np

from chonn_lab.problems.darcy_solver import darcy_matrix, solve_steady


def two_phase(resolution, seed=0):
    return np.where(np.random.default_rng(seed).random((resolution, resolution)) > 0.5, 1.0, 0.1)


def manufactured(resolution):
    """Smooth nu and forcing whose exact u vanishes at the ghost centres, half a cell outside."""
    h = 1 / resolution
    cells = (np.arange(resolution) + 0.5) * h
    k = np.pi / (1 + h)
    x, y = np.meshgrid(cells, cells, indexing="ij")
    sx, cx = np.sin(k * (x + h / 2)), np.cos(k * (x + h / 2))
    sy, cy = np.sin(k * (y + h / 2)), np.cos(k * (y + h / 2))
    nu = 1 + 0.5 * x + 0.3 * y**2
    u = sx * sy
    grad_nu_grad_u = 0.5 * k * cx * sy + 0.6 * y * k * sx * cy
    return nu, 2 * k**2 * nu * u - grad_nu_grad_u, u


def test_second_order_convergence():
    errors = []
    for resolution in (16, 32, 64):
        nu, forcing, exact = manufactured(resolution)
        errors.append(np.abs(solve_steady(nu, forcing) - exact).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 1.9).all(), (errors, orders)
    assert errors[-1] < 1e-3


def test_constant_nu_has_the_series_solution_of_the_enlarged_square():
    resolution, nu = 64, 0.1
    h = 1 / resolution
    side = 1 + h
    cells = (np.arange(resolution) + 1) * h
    modes = np.arange(1, 200, 2)
    sines = np.sin(np.pi * np.outer(cells, modes) / side)
    weights = 16 / (np.pi**4 * nu) * side**2 / np.outer(modes, modes)
    weights /= np.add.outer(modes**2, modes**2)
    exact = sines @ weights @ sines.T
    u = solve_steady(np.full((resolution, resolution), nu), 1.0)
    np.testing.assert_allclose(u, exact, atol=1e-3 * exact.max())


def test_residual_of_two_phase_media_is_round_off():
    nu = two_phase(48)
    residual = darcy_matrix(nu) @ solve_steady(nu, 1.0).ravel() - 1
    assert np.abs(residual).max() < 1e-10


def test_steady_state_is_where_explicit_time_steps_end():
    """PDEBench's scheme, cell by cell: u_t = div(nu grad u) + beta with ghost cells of zero."""
    resolution, beta = 10, 1.7
    nu = two_phase(resolution, seed=3)
    h = 1 / resolution
    nu_padded = np.pad(nu, 1, mode="edge")
    u = np.random.default_rng(1).random((resolution, resolution))
    step = 0.2 * h**2
    for _ in range(20_000):
        padded = np.pad(u, 1)
        flow = np.zeros_like(u)
        for axis in (0, 1):
            for shift in (-1, 1):
                neighbour = np.roll(padded, shift, axis)[1:-1, 1:-1]
                face = (nu + np.roll(nu_padded, shift, axis)[1:-1, 1:-1]) / 2
                flow += face * (neighbour - u) / h**2
        u = u + step * (flow + beta)
    np.testing.assert_allclose(solve_steady(nu, beta), u, rtol=1e-9)
