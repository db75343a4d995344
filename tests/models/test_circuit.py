"""Models of one circuit: what `calibrate` finds, in any unit, and what it leaves alone."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from chonn_ops import CHONNNetwork1d, CHONNNetwork2d, CHONNNetwork3d, Dirichlet, diffusion


def media(count, *grid, seed=0, spread=1.0):
    """Smooth positive media (B, 1, *grid)."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, 1, *[4] * len(grid), generator=generator, dtype=torch.float64)
    mode = {1: "linear", 2: "bicubic", 3: "trilinear"}[len(grid)]
    return torch.exp(spread * torch.nn.functional.interpolate(noise, grid, mode=mode))


def solved(k, f, spacing, **options):
    last = lambda x: x.movedim(1, -1)  # noqa: E731
    return diffusion(last(k), spacing, **options).solve(last(f)).movedim(-1, 1)


def error(u, right):
    return ((u - right).norm() / (right - right.mean()).norm()).item()


def driven_by_a_constant(count=12, seed=0):
    k = media(count, 16, 16, seed=seed)
    return k, 3 * solved(k, torch.ones_like(k), 1 / 16, boundary="dirichlet") + 2


def driven_by_the_input(count=12, seed=0):
    f = media(count, 16, 16, seed=seed)
    return f, solved(torch.ones_like(f), f, 1 / 16, boundary="dirichlet")


def driven_by_walls(count=12, seed=0):
    k = media(count, 16, 16, seed=seed)
    plates = ("neumann", (Dirichlet(1.0), Dirichlet(0.0)))
    return 1 / k, solved(k, torch.zeros_like(k), (2 / 16, 3 / 16), boundary=plates)


PROBLEMS = {
    "a constant": (driven_by_a_constant, 1.0),
    "the input": (driven_by_the_input, 1.0),
    "walls": (driven_by_walls, (2.0, 3.0)),
}


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e6, 1e-4), (1e-6, 1e5)])
@pytest.mark.parametrize("name", PROBLEMS)
def test_calibration_names_what_drives_the_circuit(name, scales):
    data, lengths = PROBLEMS[name]
    x, y = (field.float() * scale for field, scale in zip(data(), scales, strict=True))
    torch.manual_seed(0)
    model = CHONNNetwork2d(1, 1, lengths=lengths)
    state = torch.get_rng_state()
    residual = model.calibrate(x, y)
    assert torch.equal(torch.get_rng_state(), state)
    assert residual.item() < 0.05
    other = data(seed=1)
    x, y = (field.float() * scale for field, scale in zip(other, scales, strict=True))
    with torch.no_grad():
        assert error(model(x), y) < 0.1


def test_training_goes_on_from_there():
    torch.manual_seed(0)
    x, y = (field.float() for field in driven_by_a_constant(32))
    model = CHONNNetwork2d(1, 1)
    model.calibrate(x[:8], y[:8])
    inputs, right = (field.float() for field in driven_by_a_constant(seed=1))
    before = error(model(inputs).detach(), right)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    for _ in range(40):
        for part in torch.randperm(32).split(8):
            optimizer.zero_grad()
            (model(x[part]) - y[part]).square().mean().backward()
            optimizer.step()
        scheduler.step()
    assert error(model(inputs).detach(), right) < 0.03 < before < 0.1


def test_a_state_dict_is_a_function():
    x, y = (field.float() for field in driven_by_walls())
    torch.manual_seed(0)
    model, other = CHONNNetwork2d(1, 1), CHONNNetwork2d(1, 1)
    model.calibrate(x, y)
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(model(x), other(x))


def test_each_output_has_a_law_of_its_own():
    k, u = driven_by_a_constant()
    f, w = driven_by_the_input(seed=2)
    x, y = torch.cat((k, f), 1).float(), torch.cat((u, w), 1).float()
    torch.manual_seed(0)
    model = CHONNNetwork2d(2, 2)
    residuals = model.calibrate(x, y)
    with torch.no_grad():
        found = model(x)
    for j, residual in enumerate(residuals.tolist()):
        assert abs(error(found[:, j], y[:, j]) - residual) < 0.1


def test_inputs_of_both_signs_are_no_media():
    x, y = driven_by_the_input()
    x = x - x.mean((-1, -2), keepdim=True)
    y = solved(torch.ones_like(x), x, 1 / 16, boundary="dirichlet")
    model = CHONNNetwork2d(1, 1)
    assert model.calibrate(x.float(), y.float()).item() < 0.05


@pytest.mark.parametrize(("model", "grid"), [(CHONNNetwork1d, (24,)), (CHONNNetwork3d, (6, 7, 8))])
def test_lines_and_volumes(model, grid):
    k = media(8, *grid)
    steps = [1 / n for n in grid]
    y = solved(k, torch.ones_like(k), steps, boundary="dirichlet")
    torch.manual_seed(0)
    model = model(1, 1)
    assert model.calibrate(k.float(), y.float()).item() < 0.1
    assert error(model(k.float()), y) < 0.15


def test_masked_points_do_not_matter():
    mask = torch.ones(16, 16, dtype=torch.bool)
    mask[5:9, 6:12] = False
    k = media(8, 16, 16)
    last = k.movedim(1, -1)
    circuit = diffusion(last, 1 / 16, boundary="dirichlet", inner="neumann", mask=mask)
    y = circuit.solve(torch.ones_like(last)).movedim(-1, 1)
    found = []
    for outside in (0.0, math.nan):
        torch.manual_seed(0)
        model = CHONNNetwork2d(1, 1, inner="neumann")
        x = k.masked_fill(~mask, outside).float()
        fine = torch.where(mask, x, 1.0) if math.isnan(outside) else x
        residual = model.calibrate(fine, y.float(), mask=mask)
        assert residual.item() < 0.05
        found.append(model(x, mask=mask))
    assert torch.equal(*found)
    assert (found[0][..., ~mask] == 0).all()


@pytest.mark.parametrize("inner", ["neumann", "dirichlet"])
def test_calibration_tells_what_holes_are(inner):
    mask = torch.ones(16, 16, dtype=torch.bool)
    mask[5:9, 6:12] = False
    k = media(8, 16, 16)
    last = k.movedim(1, -1)
    plates = ("neumann", (Dirichlet(1.0), Dirichlet(0.0)))
    circuit = diffusion(last, 1 / 16, boundary=plates, inner=inner, mask=mask)
    y = circuit.solve(torch.zeros_like(last)).movedim(-1, 1)
    torch.manual_seed(0)
    model = CHONNNetwork2d(1, 1)
    assert model.calibrate(k.float(), y.float(), mask=mask).item() < 0.1
    u = model(k.float(), mask=mask)
    assert error(u[..., mask], y[..., mask]) < 0.1


def test_a_trunk_of_ones_own():
    trunk = torch.nn.Sequential(torch.nn.Linear(1, 5), torch.nn.Tanh())
    model = CHONNNetwork2d(1, 1, width=5, trunk=trunk)
    assert model(torch.rand(2, 1, 8, 8) + 0.1).shape == (2, 1, 8, 8)


def test_bad_samples():
    model = CHONNNetwork2d(1, 1)
    x = torch.rand(2, 1, 8, 8)
    with pytest.raises(ValueError, match="y: expected a field of outputs"):
        model.calibrate(x, x[:, :, :4])
    with pytest.raises(ValueError, match="finite numbers"):
        model.calibrate(x * math.nan, x)
