"""The generators' schemes against exact solutions: all are of second order."""

import numpy as np
import pytest
import scipy.optimize

from chonn_lab.problems import flux_law, fno_darcy, meshes
from chonn_lab.problems.darcy_solver import solve_steady
from chonn_lab.problems.grids import cell_centres, nodes


def plane(points):
    return np.meshgrid(points, points, indexing="ij")


def darcy(n):
    """Variable nu, u = 0 at the ghost centres, half a cell outside."""
    (x, y), h, k = plane(cell_centres(n)), 1 / n, np.pi / (1 + 1 / n)
    sx, cx = np.sin(k * (x + h / 2)), np.cos(k * (x + h / 2))
    sy, cy = np.sin(k * (y + h / 2)), np.cos(k * (y + h / 2))
    nu = 1 + 0.5 * x + 0.3 * y**2
    slope = 0.5 * k * cx * sy + 0.6 * y * k * sx * cy
    return solve_steady(nu, 2 * k**2 * nu * sx * sy - slope), sx * sy


def margin_of_a_coarser_grid(n):
    """u + margin du/dn = 0 at the walls, on every grid; that of 16 x 16 has it by default."""
    margin = 1 / 32
    k = scipy.optimize.brentq(lambda k: np.cos(k / 2) - margin * k * np.sin(k / 2), 1, np.pi)
    along = np.cos(k * (cell_centres(n) - 0.5))
    exact = np.outer(along, along)
    return solve_steady(np.full((n, n), 0.1), 0.2 * k**2 * exact, margin=margin), exact


def fnos_darcy(n):
    x, y = plane(nodes(n + 1))
    a, u = 2 + x * y**2 + x, np.sin(np.pi * x) * np.sin(2 * np.pi * y)
    u_x = np.pi * np.cos(np.pi * x) * np.sin(2 * np.pi * y)
    u_y = 2 * np.pi * np.sin(np.pi * x) * np.cos(2 * np.pi * y)
    f = 5 * np.pi**2 * a * u - (y**2 + 1) * u_x - 2 * x * y * u_y
    return fno_darcy.solve(a, f), u


def triangles(n):
    shape = meshes.plane_mesh(meshes.SQUARE, (), n, np.random.default_rng(0))
    exact = np.sin(np.pi * shape.points).prod(1)
    return meshes.solve(shape, np.full(len(shape.cells), 3.0), 6 * np.pi**2 * exact), exact


def fluxes(n):
    """u = sin(pi x) sin(pi y) and k = 1 + x y, f by differences of the exact flux."""
    x, y = plane(nodes(n + 1))
    law = flux_law.LAWS["threshold"]

    def flux(x, y):
        cx, sx, cy, sy = np.cos(np.pi * x), np.sin(np.pi * x), np.cos(np.pi * y), np.sin(np.pi * y)
        slope = np.pi * np.stack([cx * sy, sx * cy])
        size = np.hypot(*slope) + 1e-12
        return (1 + x * y) * law(size) / size * slope

    d = 1e-5
    along = (flux(x + d, y) - flux(x - d, y))[0] + (flux(x, y + d) - flux(x, y - d))[1]
    u = flux_law.solve(1 + x * y, -along / (2 * d), law, 1 / n)
    return u, np.sin(np.pi * x) * np.sin(np.pi * y)


CASES = darcy, margin_of_a_coarser_grid, fnos_darcy, triangles, fluxes


@pytest.mark.parametrize("case", CASES)
def test_second_order_convergence(case):
    errors = [np.abs(np.subtract(*case(n))).max() for n in (16, 32, 64)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > (1.6 if case is triangles else 1.8)).all(), (errors, orders)
    assert errors[-1] < 5e-3


def test_steady_state_is_where_explicit_time_steps_end():
    """PDEBench's scheme, cell by cell: u_t = div(nu grad u) + beta with ghost cells of zero."""
    resolution, beta = 10, 1.7
    nu = np.where(np.random.default_rng(3).random((resolution, resolution)) > 0.5, 1.0, 0.1)
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
