"""Models of one circuit: what `calibrate` finds, in any unit, and what it leaves alone."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch

from chonn_ops import (
    CHONNNetwork1d,
    CHONNNetwork2d,
    CHONNNetwork3d,
    Dirichlet,
    FiniteVolumes,
    diffusion,
    helmholtz,
)
from chonn_ops.nn.geometry import Geometry


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


def driven_by_a_constant(count=12, seed=0, grid=(16, 16)):
    k, steps = media(count, *grid, seed=seed), [1 / n for n in grid]
    return k, 3 * solved(k, torch.ones_like(k), steps, boundary="dirichlet") + 2


def driven_by_the_input(count=12, seed=0):
    f = media(count, 16, 16, seed=seed)
    return f, solved(torch.ones_like(f), f, 1 / 16, boundary="dirichlet")


def driven_by_walls(count=12, seed=0, grid=(16, 16), steps=(2 / 16, 3 / 16)):
    k = media(count, *grid, seed=seed)
    plates = ("neumann", (Dirichlet(1.0), Dirichlet(0.0)))
    return 1 / k, solved(k, torch.zeros_like(k), steps, boundary=plates)


PROBLEMS = {
    "a constant": (driven_by_a_constant, 1.0),
    "the input": (driven_by_the_input, 1.0),
    "walls": (driven_by_walls, (2.0, 3.0)),
    "a line": (partial(driven_by_a_constant, grid=(24,)), 1.0),
    "a volume": (partial(driven_by_a_constant, grid=(6, 7, 8)), (1.0, 1.0, 1.0)),
    "a plate of square cells": (partial(driven_by_walls, grid=(12, 18), steps=0.1), 1.0),
}
MODELS = {1: CHONNNetwork1d, 2: CHONNNetwork2d, 3: CHONNNetwork3d}


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e6, 1e-4), (1e-6, 1e5)])
@pytest.mark.parametrize("name", PROBLEMS)
def test_calibration_names_what_drives_the_circuit(name, scales):
    data, lengths = PROBLEMS[name]
    axes = data(1)[0].dim() - 2
    x, y = (field.float() * scale for field, scale in zip(data(), scales, strict=True))
    torch.manual_seed(0)
    model = MODELS[axes](1, 1, lengths=lengths)
    state = torch.get_rng_state()
    residual = model.calibrate(x, y.index_fill(0, torch.arange(0, 12, 4), math.nan))  # not known
    assert torch.equal(torch.get_rng_state(), state)
    assert residual.item() < (0.05 if axes == 2 else 0.1)
    other = data(seed=1)
    x, y = (field.float() * scale for field, scale in zip(other, scales, strict=True))
    with torch.no_grad():
        off = error(model(x), y)
    exact = name in ("a constant", "a plate of square cells")  # the mean of faces is found, too
    assert off < (1e-3 if exact else 0.1 if axes == 2 else 0.15)


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


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e3, 2.0)])
@pytest.mark.parametrize("ends", ["dirichlet", "matched"])
def test_calibration_names_waves(ends, scale, shift):
    """Without training: -laplace u - 100 n^2 u = f, f an input or a constant."""
    n = media(8, 24, 24, spread=0.2)
    f = media(8, 24, 24, seed=1) if ends == "matched" else torch.ones_like(n)
    one = torch.ones_like(n).movedim(1, -1)
    waves = helmholtz(one, 100 * n.movedim(1, -1) ** 2, 1e-3, 1.0, 1 / 24, boundary=ends)
    u = waves.solve(f.movedim(1, -1)).movedim(-1, 1)
    y = scale * (torch.cat((u.real, u.imag), 1) if ends == "matched" else u.real)
    y = y + shift * scale * y.std() * torch.tensor([1.0, 0.0])[: y.shape[1], None, None]
    x = torch.cat((n, f), 1) if ends == "matched" else n
    model = CHONNNetwork2d(
        x.shape[1], y.shape[1], ac=True, boundary="robin" if ends == "dirichlet" else ends
    )
    part = y.float().clone()
    part[..., :2] = math.nan  # not known there
    residual = model.calibrate(1e-3 * x.float(), part)
    assert residual.item() < 0.02
    with torch.no_grad():
        assert error(model(1e-3 * x.float()), y) < 0.02


def test_inputs_of_both_signs_are_no_media():
    x, y = driven_by_the_input()
    x = x - x.mean((-1, -2), keepdim=True)
    y = solved(torch.ones_like(x), x, 1 / 16, boundary="dirichlet")
    model = CHONNNetwork2d(1, 1)
    assert model.calibrate(x.float(), y.float()).item() < 0.05


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


def naive_extremes(z, mask, periodic):
    """Extremes of z (B, H, W, C) at a node and the existing ones beside it, value by value."""
    low, high = z.clone(), z.clone()
    sizes = z.shape[1:3]
    for i, j in np.ndindex(*sizes):
        for di, dj in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            p, q = i + di, j + dj
            p, q = (
                a % n if wraps else a for a, n, wraps in zip((p, q), sizes, periodic, strict=True)
            )
            if 0 <= p < sizes[0] and 0 <= q < sizes[1] and mask[p, q]:
                low[:, i, j] = torch.minimum(low[:, i, j], z[:, p, q])
                high[:, i, j] = torch.maximum(high[:, i, j], z[:, p, q])
    return low, high


@pytest.mark.parametrize("periodic", [(False, False), (True, False)])
@pytest.mark.parametrize("masked", [False, True])
def test_the_trunk_sees_the_least_and_the_greatest_neighbour(periodic, masked):
    mask = torch.ones(5, 6, dtype=torch.bool)
    if masked:
        mask[1:3, 2:5] = False
    boundary = ["periodic" if p else "robin" for p in periodic]
    model = CHONNNetwork2d(2, 1, boundary=boundary, dtype=torch.float64)
    z = torch.randn(3, 5, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = model.neighbours(z, model.head.periodic, Geometry(mask=mask if masked else None))
    low, high = naive_extremes(z, mask, periodic)
    torch.testing.assert_close(found[:, mask], torch.cat((high - z, z - low), -1)[:, mask])


def test_neighbours_count_by_their_direction():
    model = CHONNNetwork2d(1, 1, dtype=torch.float64).requires_grad_(False)
    near = model.neighbours
    near.even[:] = torch.tensor([[1.0], [-1.0]])
    near.odd[0] = near.even[0]  # along x, only the neighbour ahead counts
    z = torch.tensor([3.0, 1.0, 4.0], dtype=torch.float64).view(1, 3, 1, 1)
    found = near(z, model.head.periodic, Geometry())[0, :, 0].T
    assert found.tolist() == [[0, 6, 0], [4, 0, 0]]


def test_on_a_mesh_neighbours_share_an_edge():
    points = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    volumes = FiniteVolumes.from_cells(points, [[0, 1, 2], [0, 2, 3]])
    model = CHONNNetwork2d(1, 1, dtype=torch.float64)
    z = torch.tensor([3.0, 1.0, 4.0, 2.0], dtype=torch.float64)[None, :, None]
    high, low = model.neighbours(z, [], Geometry(volumes=volumes)).unbind(-1)
    assert (z[..., 0] - low).flatten().tolist() == [1, 1, 1, 2]
    # A square's diagonal conducts nothing.
    assert (z[..., 0] + high).flatten().tolist() == [3, 4, 4, 4]
    assert model(z.exp(), volumes=volumes).shape == z.shape


def test_a_trunk_of_ones_own():
    trunk = torch.nn.Sequential(torch.nn.Linear(1, 5), torch.nn.Tanh())
    model = CHONNNetwork2d(1, 1, width=5, trunk=trunk)
    assert model(torch.rand(2, 1, 8, 8) + 0.1).shape == (2, 1, 8, 8)


def test_width_follows_the_inputs():
    assert [CHONNNetwork2d(n).width for n in (1, 8, 16)] == [16, 16, 32]
    assert CHONNNetwork2d(16, width=16).width == 16
