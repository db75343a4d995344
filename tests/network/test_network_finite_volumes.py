"""A conductivity's network is the finite-volume scheme: exact for layers, of second order."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from network_cases import BACKENDS, FASTEST, edge_conductance, network_with_walls, wall_leak

from chonn_ops import kirchhoff_network

LARGEST = 64 if FASTEST == "reference" else 256


def _centres(*sizes, lengths=None):
    lengths = lengths or (1.0,) * len(sizes)
    axes = [
        (torch.arange(n, dtype=torch.float64) + 0.5) * (L / n)
        for n, L in zip(sizes, lengths, strict=True)
    ]
    return torch.meshgrid(*axes, indexing="ij")


def _field(x):
    return x[None, ..., None]


def _solution(x, y, dirichlet):
    """-div(k grad u) + c u = f with k = 1 + x y / 2 + sin(3 x) / 4, c = 1 + x: u and k, c, f."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    wave = torch.sin if dirichlet else torch.cos
    # The amplitude keeps u and its zeros (of itself or of its slope) at the walls of (0, 1)^2.
    u = wave(math.pi * x) * wave(2 * math.pi * y)
    k = 1 + x * y / 2 + torch.sin(3 * x) / 4

    def slope(value, at):
        return torch.autograd.grad(value.sum(), at, create_graph=True)[0]

    flux = slope(k * slope(u, x), x) + slope(k * slope(u, y), y)
    c = 1 + x
    return (_field(value.detach()) for value in (u, k, c, -flux + c * u))


def _error(shape, dirichlet):
    spacing = tuple(1 / n for n in shape)
    area = math.prod(spacing)
    u, k, c, f = _solution(*_centres(*shape), dirichlet)
    v = network_with_walls(
        *(f * area, edge_conductance(k, spacing), c * area),
        boundary="dirichlet" if dirichlet else "neumann",
        tol=1e-10,
        backend=FASTEST,
    )
    return ((v - u).norm() / u.norm()).item()


@pytest.mark.parametrize("dirichlet", [True, False], ids=["dirichlet", "neumann"])
@pytest.mark.parametrize("stretch", [1, 4], ids=["isotropic", "1:4"])
def test_error_falls_as_the_square_of_the_spacing(stretch, dirichlet):
    sizes = [n for n in (16, 32, 64, 128, 256) if n <= LARGEST]
    errors = [_error((n, n // stretch), dirichlet) for n in sizes]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert errors[-1] < 4 / (sizes[-1] // stretch) ** 2
    assert all(1.8 < order < 2.3 for order in orders), (errors, orders)


def _l_shape(n):
    x, y = _centres(n, n)
    return (x < 0.5) | (y < 0.5)


@pytest.mark.parametrize("k_of", ["constant", "smooth"])
def test_an_l_shaped_domain_with_dirichlet_walls_is_of_first_order_at_least(k_of):
    """u = sin(2 pi x) sin(2 pi y) is 0 on every wall of the L of the unit square."""
    errors = []
    sizes = [n for n in (16, 32, 64, 128) if n <= LARGEST]
    for n in sizes:
        x, y = (z.requires_grad_() for z in _centres(n, n))
        u = torch.sin(2 * math.pi * x) * torch.sin(2 * math.pi * y)
        k = 1 + 0.5 * torch.sin(2 * x + y) if k_of == "smooth" else 1 + 0 * x

        def slope(value, at):
            return torch.autograd.grad(value.sum(), at, create_graph=True)[0]

        f = -slope(k * slope(u, x), x) - slope(k * slope(u, y), y)
        u, k, f = (_field(value.detach()) for value in (u, k, f))
        mask, h = _l_shape(n), 1 / n
        v = kirchhoff_network(
            *(f * h**2 * _field(mask), edge_conductance(k, h, mask=mask)),
            wall_leak(k, h, mask=mask),
            tol=1e-10,
            backend=FASTEST,
        )
        assert v[:, ~mask].abs().max() == 0
        errors.append(((v - u)[:, mask].norm() / u[:, mask].norm()).item())
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(order > 1 for order in orders), (errors, orders)
    assert errors[-1] < 1 / sizes[-1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_are_exact(backend):
    """Any two layers of equal cells carry the current of their resistances in series."""
    k = torch.tensor([1.0, 1.0, 1e-3, 50.0, 50.0], dtype=torch.float64).reshape(1, 5, 1)
    h, current = 0.2, 3.0
    source = torch.zeros(1, 5, 1, dtype=torch.float64)
    source[0, 0] = current
    leak = wall_leak(k, h, boundary="dirichlet")
    leak[0, 0] = 0
    v = kirchhoff_network(source, edge_conductance(k, h), leak, tol=1e-13, backend=backend)
    ohms = h / k.flatten()  # the last wall is half a cell away from the last node
    left = ohms.flip(0).cumsum(0).flip(0) - ohms / 2
    torch.testing.assert_close(v.flatten(), current * left, rtol=1e-9, atol=1e-10)


def test_conductances_are_harmonic_means_times_area_over_distance():
    k = torch.rand(2, 3, 4, 5, 2, dtype=torch.float64) + 0.1
    spacing = (0.5, 2.0, 3.0)
    for axis, g in enumerate(
        edge_conductance(k, spacing, boundary=("neumann", "periodic", "dirichlet"))
    ):
        p, q = k, k.roll(-1, axis + 1)
        area = math.prod(spacing) / spacing[axis]
        expected = 2 / (1 / p + 1 / q) * area / spacing[axis]
        if axis != 1:
            expected.select(axis + 1, -1).zero_()
        torch.testing.assert_close(g, expected)


def test_an_axis_of_one_node_has_its_half_cells():
    k = torch.tensor(3.0).reshape(1, 1, 1)
    (g,) = edge_conductance(k, 0.5)
    assert g.item() == 3.0 / 0.5
    v = network_with_walls(torch.ones(1, 1, 1), (g,), torch.zeros(1, 1, 1), boundary="dirichlet")
    assert v.item() == pytest.approx(1 / (2 * 2 * 3.0 / 0.5))


def test_nothing_flows_to_what_does_not_exist():
    k = torch.rand(1, 4, 5, 1) + 0.1
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1, 2] = False
    g0, g1 = edge_conductance(k, mask=mask, boundary="periodic")
    zeros = [(g0, 0, 2), (g0, 1, 2), (g1, 1, 1), (g1, 1, 2)]
    assert all(g[0, i, j, 0] == 0 for g, i, j in zeros)
    assert (g0 == 0).sum() == (g1 == 0).sum() == 2
    torch.testing.assert_close(
        edge_conductance(k, mask=mask[None, ..., None], boundary="periodic")[0], g0
    )


def test_walls_stand_where_the_domain_ends():
    k = torch.full((1, 4, 5, 1), 2.0)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1, 4] = False
    spacing = (0.5, 0.25)
    row, column = 2 * 2.0 * 0.25 / 0.5, 2 * 2.0 * 0.5 / 0.25  # faces across each axis
    expected = torch.zeros(4, 5)
    expected[0, 4] = expected[2, 4] = row
    expected[1, 3] = column
    leak = wall_leak(k, spacing, mask=mask, boundary="neumann")[0, ..., 0]
    torch.testing.assert_close(leak, expected)
    expected[1, 0] += column  # the seam of a ring
    leak = wall_leak(k, spacing, mask=mask, boundary="periodic")[0, ..., 0]
    torch.testing.assert_close(leak, expected)
    expected[1, 0] -= column
    expected[0] += row
    expected[3] += row
    leak = wall_leak(k, spacing, mask=mask, boundary=("dirichlet", "neumann"))[0, ..., 0]
    torch.testing.assert_close(leak, expected)


@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
def test_gradients_of_a_conductivity(boundary):
    """Also of second order where all conductivities are equal, and first order where 0."""
    k = torch.ones(1, 3, 4, 1, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1, 1] = False

    def conduct(k):
        leak = wall_leak(k, 0.5, mask=mask)
        return (*edge_conductance(k, 0.5, mask=mask, boundary=boundary), leak)

    assert torch.autograd.gradcheck(conduct, k)
    assert torch.autograd.gradgradcheck(conduct, k)
    zero = torch.zeros(1, 3, 4, 1, requires_grad=True)
    (grad,) = torch.autograd.grad(sum(g.sum() for g in edge_conductance(zero)), zero)
    assert (grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_circuits_are_in_float32_at_least(dtype):
    k = torch.ones(1, 3, 4, 1, dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    assert {g.dtype for g in edge_conductance(k, 0.3)} == {wide}
    assert wall_leak(k, 0.3).dtype == wide
