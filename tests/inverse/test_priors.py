"""Priors: their covariance against dense algebra and the Matern formula, energies and slopes."""

import math

import numpy as np
import pytest
import torch
from meshes import delaunay

from chonn_ops.inverse import Smoothness, TotalVariation
from chonn_ops.inverse.domain import domain_of, domain_on

CPU = torch.device("cpu")


def covariance(prior, domain):
    return prior.on(domain).gaussian.times(torch.eye(domain.mask.numel(), dtype=torch.float64))


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet", "periodic", "mesh"])
@pytest.mark.parametrize("grid", [(30,), (9, 12), (5, 4, 6)])
def test_the_deviation_is_the_same_at_every_node(grid, boundary):
    if boundary == "mesh":
        domain, length = domain_on(triangles(math.prod(grid)), "neumann", CPU), 0.5
    else:
        domain, length = domain_of(grid, 0.5, None, boundary, CPU), 3.0
    C = covariance(Smoothness(length=length, deviation=2.0), domain)
    torch.testing.assert_close(C.diagonal(), torch.full_like(C[0], 4.0), rtol=1e-5, atol=0)
    torch.testing.assert_close(C, C.T)
    assert torch.linalg.eigvalsh(C).min() > 0


def test_missing_nodes_are_no_part_of_the_field():
    mask = torch.ones(6, 7, dtype=torch.bool)
    mask[2:4, 2:5] = False
    domain = domain_of((6, 7), 1.0, mask, "neumann", CPU)
    C = covariance(Smoothness(length=3.0), domain)
    inside = mask.flatten()
    torch.testing.assert_close(C.diagonal()[inside], 1.0 + 0 * C[0, inside], rtol=1e-5, atol=0)
    assert not C[~inside].any()


def test_the_correlation_is_materns():
    """On a line nu = 3 / 2: (1 + kappa r) exp(-kappa r), far from the ends and on a fine grid."""
    n, h, length = 400, 0.05, 4.0
    C = covariance(Smoothness(length=length), domain_of((n,), h, None, "neumann", CPU))
    r = h * torch.arange(100, dtype=torch.float64)
    kappa = math.sqrt(12) / length
    torch.testing.assert_close(
        C[200, 200:300], (1 + kappa * r) * (-kappa * r).exp(), rtol=0, atol=5e-3
    )
    assert 0.05 < C[200, 280] < 0.15  # at the length


@pytest.mark.parametrize("unit", [1e-14, 1e13])
def test_fields_are_alike_in_any_unit_of_length(unit):
    """Volumes of 1e-42 and of 1e39 are beyond float32."""
    one, other = (
        Smoothness(length=2 * x).sample((2, 3, 2), x, generator=torch.Generator().manual_seed(0))
        for x in (1.0, unit)
    )
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_samples_have_the_covariance_of_the_prior():
    prior, domain = Smoothness(length=3.0), domain_of((4, 5), 1.0, None, "neumann", CPU)
    samples = prior.sample((4, 5), count=40_000, generator=torch.Generator().manual_seed(0))
    found = samples.flatten(1).T.cov()
    torch.testing.assert_close(found, covariance(prior, domain), rtol=0, atol=0.03)


def triangles(num_nodes=30):
    """A mesh of the unit square."""
    side = round(math.sqrt(num_nodes)) - 1
    inner = np.random.default_rng(0).random((num_nodes, 2)) * 0.8 + 0.1
    edge = np.linspace(0, 1, 4 * side + 1)[:-1]
    rim = [(s, 0) for s in edge] + [(1, s) for s in edge] + [(1 - s, 1) for s in edge]
    return delaunay(np.concatenate([inner, rim, [(0, 1 - s) for s in edge]]))


@pytest.mark.parametrize("area", [0.0, 3.0])
@pytest.mark.parametrize("boundary", ["neumann", ("periodic", "neumann"), "mesh"])
def test_total_variation_its_slope_and_its_network_agree(boundary, area):
    torch.manual_seed(0)
    mask = torch.ones(5, 6, dtype=torch.bool)
    mask[0, :2] = False
    if boundary == "mesh":
        points = np.stack(np.divmod(np.arange(30), 6), 1) + 0.0
        inside = (points > 0).all(1) & (points < [4, 5]).all(1)
        points[inside] += 0.2 * np.random.default_rng(0).random((inside.sum(), 2)) - 0.1
        domain, mask = domain_on(delaunay(points), "neumann", CPU), torch.ones(30, dtype=torch.bool)
    else:
        domain = domain_of((5, 6), (0.5, 0.7), mask, boundary, CPU)
    prior = TotalVariation(weight=2.0, area=area).on(domain)
    x = (torch.randn(30, dtype=torch.float64) * mask.flatten()).requires_grad_()
    _, slope = prior.energy(x.detach(), x)

    def energy(x):
        return prior.energy(x, x)[0]

    for p in range(30):
        e = torch.zeros(30, dtype=torch.float64)
        e[p] = 1e-6
        expected = (energy(x.detach() + e) - energy(x.detach() - e)) / 2e-6
        torch.testing.assert_close(slope[p], expected, rtol=1e-6, atol=1e-6)
    # The precision of the majorant times the field is the slope of the energy itself.
    gaussian = prior.around(x.detach())
    back = gaussian.times(slope[None])[0]
    torch.testing.assert_close(back, x.detach(), rtol=1e-6, atol=1e-6)
    inverse = gaussian.times(torch.eye(30, dtype=torch.float64))
    torch.testing.assert_close(gaussian.variance(), inverse.diagonal())
    # The majorant lies above the energy, and touches it.
    y = torch.randn(30, dtype=torch.float64) * mask.flatten()
    Q = torch.linalg.inv(inverse[mask.flatten()][:, mask.flatten()])

    def power(x):
        return x[mask.flatten()] @ Q @ x[mask.flatten()] / 2

    gap = power(y) - power(x.detach()) - (energy(y) - energy(x.detach()))
    assert gap > 0


@pytest.mark.parametrize("grid", [(6, 5), (4, 3, 5)])
def test_total_variation_treats_both_directions_of_an_axis_alike(grid):
    torch.manual_seed(0)
    x, mask = torch.randn(grid, dtype=torch.float64), torch.rand(grid) < 0.9
    x, axes = x * mask, range(len(grid))

    def energy_and_precision(x, mask):
        domain = domain_of(grid, 0.5, mask, "neumann", CPU)
        prior = TotalVariation(2.0, area=1.0).on(domain)
        around = prior.around(x.flatten())
        energy, slope = prior.energy(x.flatten(), x)
        variance = around.variance()
        return energy, slope.reshape(grid), variance.reshape(grid)

    energy, *fields = energy_and_precision(x, mask)
    for axis in axes:
        other, *mirrored = energy_and_precision(x.flip(axis), mask.flip(axis))
        torch.testing.assert_close(other, energy)
        for field, image in zip(fields, mirrored, strict=True):
            torch.testing.assert_close(image.flip(axis), field)
    # A plane that cuts the grid costs its area times the height of the jump, and is seen once.
    step = (torch.arange(grid[0]) > 1).double().reshape(-1, *[1] * (len(grid) - 1)).expand(grid)
    domain = domain_of(grid, 1.0, None, "neumann", CPU)
    prior = TotalVariation(1.0).on(domain)
    energies = [prior.energy(height * step.flatten(), step)[0] for height in (1e4, 2e4)]
    leak = prior.leak.flatten() @ step.flatten().square() / 2
    found = energies[1] - energies[0] - leak * (4e8 - 1e8)
    assert found.item() == pytest.approx(1e4 * math.prod(grid[1:]), rel=1e-4)


def test_the_total_variation_of_a_disc_is_its_circumference_and_an_area_has_its_price():
    """At contrast 10 it is half the logarithm of 1 + (ln 10 / 0.1)^2, 3.1, times its area."""
    n = 200
    a = (torch.arange(n, dtype=torch.float64) + 0.5) / n * 2 - 1
    disc = (a[:, None] ** 2 + a**2 < 0.25).double().flatten()
    domain = domain_of((n, n), 2 / n, None, "neumann", CPU)
    priced, plain = (TotalVariation(weight=1.0, area=x).on(domain) for x in (7.0, 0.0))
    flat = plain.energy(0 * disc, 3 * disc)[0]
    energy = plain.energy(3 * disc, 3 * disc)[0] - plain.leak.flatten() @ (3 * disc) ** 2 / 2
    # Differences along axes see the steps of the grid: 15 % too much at any resolution.
    assert (energy - flat).item() == pytest.approx(3 * math.pi, rel=0.2)
    disc = math.log(10) * disc
    price = (priced.energy(disc, disc)[0] - plain.energy(disc, disc)[0]).item()
    assert price == pytest.approx(7 * 3.1377 * math.pi / 4, rel=0.01)


def test_numbers_means_and_grids_of_numpy():
    assert Smoothness(np.float32(3), mean=np.ones((4, 5))).length == 3
    assert Smoothness(3.0).sample((np.int64(4), 5), count=2).shape == (2, 4, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (lambda grid=grid: Smoothness(3.0).sample(grid), "grid: expected 1 to 3 sizes of at l")
            for grid in (4, (), (2, 0), (4.0, 4), (2, 2, 2, 2))
        ),
        (lambda: Smoothness(3.0).sample((4, 4), count=-1), "count: expected an integer of at leas"),
        (lambda: Smoothness(3.0).sample((4, 4), count=1.5), "count: expected an integer of at lea"),
        (lambda: Smoothness(length=0), "length: expected a finite number > 0, got 0"),
        (lambda: TotalVariation(weight=-1), "weight: expected a finite number > 0, got -1"),
        (lambda: TotalVariation(1.0, area=-1.0), "area: expected a"),
        (lambda: TotalVariation(1.0, area=math.nan), "area: expected a"),
        (lambda: TotalVariation(1.0, area="5"), "area: expected a"),
    ],
)
def test_unfit_priors_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
