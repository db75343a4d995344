"""Controls of the steady problems: what a direct solve gives."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from running import model, problem

from chonn_lab.experiments import solvers as controls
from chonn_lab.experiments.base import Units
from chonn_lab.problems.darcy_solver import solve_steady

CONTROLS = ("direct", "solve_cnn")
MEDIUM = SimpleNamespace(
    physics=controls.Physics("coefficient", "centres"), about_unit_size=Units(0.5, 0.45, 0.15, 0.12)
)
SOURCE = SimpleNamespace(
    physics=controls.Physics("source", "corners", strength=2 * math.pi**2),
    about_unit_size=Units(0.5, 0.1, 0.5, 0.1),
)


def test_poissons_own_scheme_finds_the_ranges_of_the_normalised_fields(smoke_data):
    found = problem("problem=poisson", "problem.test_resolutions=[96]")
    found.prepare(smoke_data / "poisson")
    data = found.load(smoke_data / "poisson")
    scheme = model(found, "own_scheme")
    for test in data.tests.values():
        assert found.errors(scheme, test.tensors).min() > 0.1
    scheme.fit(data.train)
    assert set(data.tests) >= {"test", "out_of_distribution", "at_96"}
    for name, test in data.tests.items():
        assert found.errors(scheme, test.tensors).max() < 3e-6, name


def test_the_textbooks_walls_are_at_the_ends():
    solve = controls.DirectSolve(MEDIUM).double()
    even = torch.full((1, 1, 24, 24), 0.3, dtype=torch.float64)
    expected = torch.from_numpy(solve_steady(even[0, 0].numpy(), 1.0, margin=0.0))
    torch.testing.assert_close(solve(even).detach()[0, 0], expected, rtol=1e-4, atol=1e-6)


def test_both_affine_functions_of_a_source_are_learned():
    """Data in other units than the solver's: u of a - b f, to a thousandth of its size."""
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 17)
    modes = torch.stack([torch.sin(math.pi * k * x) for k in (1, 2, 3)])
    f = torch.einsum("nij,ix,jy->nxy", torch.randn(8, 3, 3), modes, modes)[:, None]
    solve = controls.DirectSolve(SOURCE)
    u = solve.solve(torch.ones_like(f), f).detach()
    source, target = 0.45 + 0.1 * f, 0.6 + 2 * u
    optimizer = torch.optim.Adam(solve.parameters(), 2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
    for _ in range(300):
        optimizer.zero_grad()
        loss = (solve(source) - target).abs().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    assert float(loss.detach()) < 1e-3 * float((target - target.mean()).abs().mean())


def test_convolutions_correct_the_solve():
    torch.manual_seed(0)
    model = controls.SolveThenConvolve(MEDIUM, width=4, depth=3)
    direct, k = controls.DirectSolve(MEDIUM), 0.1 + torch.rand(2, 1, 24, 24)
    assert model(k).shape == k.shape
    assert not torch.allclose(model(k), direct(k))
    torch.nn.init.zeros_(model.network[-1].weight)
    torch.nn.init.zeros_(model.network[-1].bias)
    torch.testing.assert_close(model(k), direct(k))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *itertools.product(("darcy", "poisson"), CONTROLS),
        *itertools.product(("upscaling", "unknown_law"), ["learned_coefficients"]),
    ],
)
def test_gradients_reach_every_parameter(name, kind, assert_learns):
    found = problem(f"problem={name}")
    built = model(found, kind)
    x = 0.1 + torch.rand(2, found.in_channels, 17, 12) / 4
    (built(x) - torch.rand(2, 1, 17, 12)).abs().mean().backward()
    assert_learns(built)
