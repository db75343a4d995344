"""Models of one circuit a frame: what a step computes, and what `calibrate` finds."""

import math
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from meshes import disc, grid_as_graph
from network_cases import matrix_of

from chonn_ops import CHONNStep1d, CHONNStep2d, CHONNStep3d, Robin
from chonn_ops.cli import main
from chonn_ops.models.identification import Identification
from chonn_ops.models.step import DIFFUSIVITY, GAIN, PARTS, SPEED, STAGE
from chonn_ops.nn.circuit_head import wall_distance

MODELS = {1: CHONNStep1d, 2: CHONNStep2d, 3: CHONNStep3d}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(axes, channels=1, parts=PARTS, size=0.3, seed=0, forms=(), **options):
    """A model with all numbers drawn, of these parts."""
    torch.manual_seed(seed)
    model = MODELS[axes](channels, width=4, **options).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(size * torch.randn(p.shape, generator=generator(seed)))
        model.distance.mul_(0.1)
        model.diffusivity.mul_(0.1).add_(0.6)
        model._set_parts(set(parts), set(forms), model.rings)
    return model


def state(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def slowly(model, u):
    """One step of a model of one channel on a line (N,), cell by cell."""
    n, h, ring = len(u), 1 / len(u), model.rings[0]

    def pointwise(function, u):
        return function(u[None, :, None])[0, :, 0]

    def speed(u):
        first, second = model.carry[0, 0, 0, :2]
        return SPEED / h * (first + second * u.clamp(model.low[0], model.high[0]))

    def fluxes(u, dt):
        slope = torch.zeros_like(u)
        for i in range(n):
            before = u[i] - u[i - 1] if ring or i else torch.zeros(())
            after = u[(i + 1) % n] - u[i] if ring or i < n - 1 else torch.zeros(())
            if before * after > 0:
                least = 2 * min(before.abs(), after.abs())
                slope[i] = before.sign() * min(least, (before + after).abs() / 2)
        change = -dt * speed(u) * slope
        for i in range(n if ring else n - 1):
            j = (i + 1) % n
            front, back = u[i] + slope[i] / 2, u[j] - slope[j] / 2
            a = speed((front + back) / 2)
            change[i] -= dt * (a - a.abs()) / 2 * (back - front)
            change[j] -= dt * (a + a.abs()) / 2 * (back - front)
        return change

    def carry(u, dt):
        count = max(1, math.ceil(float(speed(u).abs().max()) * dt / 0.4))
        for _ in range(count):
            u = u + fluxes(u + fluxes(u, dt / count) / 2, dt / count)
        return u

    def diffuse(u, dt):
        d = (DIFFUSIVITY + GAIN * model.diffusivity[0]).exp()
        matrix, current = torch.zeros(n, n, dtype=u.dtype), torch.zeros(n, dtype=u.dtype)
        for i in range(n if ring else n - 1):
            j = (i + 1) % n
            for a, b in ((i, j), (j, i)):
                matrix[a, a] += d / h**2
                matrix[a, b] -= d / h**2
        for end, i in () if ring else ((0, 0), (1, n - 1)):
            far = wall_distance(model.distance[0, end, 0])
            matrix[i, i] += d / h / (h / 2 + far)
            current[i] += d / h / (h / 2 + far) * model.level[0, end, 0]

        def implicit(u, c):
            return torch.linalg.solve(
                torch.diag(c) + STAGE * dt * matrix, c * u + STAGE * dt * current
            )

        before = pointwise(model.capacity, u)
        change = implicit(u, before) - u
        middle = pointwise(model.capacity, u + change / (2 * STAGE))
        return implicit(u + (1 / STAGE - 1) * before / middle * change, middle)

    for dt in [0.5, 0.5] if "halved" in model.forms else [1.0]:
        change = dt / 2 * pointwise(model.rate, u)
        u = carry(diffuse(carry(u + change, dt / 2), dt), dt / 2)
        u = u + dt / 2 * pointwise(model.rate, u + change)
    return u


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("forms", [(), ("halved",)])
def test_a_step_is_that_of_the_equation(boundary, forms):
    model = drawn(1, boundary=boundary, forms=forms)
    u = state(2, 1, 12)
    with torch.no_grad():
        found = model(u)
        right = torch.stack([slowly(model, x[0]) for x in u])[:, None]
    torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("axes", [1, 2])
def test_gradients(axes):
    model = drawn(axes, 2, size=0.1)
    x = state(1, 2, *[4] * axes).requires_grad_()
    parameters = dict(model.named_parameters())

    def step(x, *values):
        return torch.func.functional_call(model, dict(zip(parameters, values, strict=True)), (x,))

    values = [p.detach().clone().requires_grad_() for p in parameters.values()]
    assert torch.autograd.gradcheck(step, (x, *values), atol=1e-6)


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("grid", [(12,), (7, 6), (1, 6), (5, 4, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_kernel_carries_as_operations_do(grid, boundary, dtype, monkeypatch):
    model = drawn(len(grid), parts=("carry",), boundary=boundary, size=1.0).to(dtype)
    x, weight = (state(2, 1, *grid, seed=seed).to(dtype) for seed in (0, 1))
    x = (2 * x).requires_grad_()

    def both():
        y = model(x)
        return y, *torch.autograd.grad((weight * y).sum(), (x, model.carry))

    found = both()
    monkeypatch.setattr("chonn_ops.models.step.has_kernel", lambda *_: False)
    tol = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(found, both(), rtol=tol, atol=tol)


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("name", ["carry", "diffusivity"])
def test_second_derivatives_of_what_kernels_compute(boundary, name):
    part = {"carry": "carry", "diffusivity": "diffuse"}[name]
    model = drawn(1, parts=(part,), boundary=boundary, size=1.0)
    number = getattr(model, name).detach().clone().requires_grad_()
    inputs = state(2, 1, 8).requires_grad_(), number

    def step(x, number):
        return torch.func.functional_call(model, {name: number}, (x,))

    assert torch.autograd.gradcheck(step, inputs)
    assert torch.autograd.gradgradcheck(step, inputs)


def test_autocast_changes_no_derivative_of_what_the_kernel_carries():
    model = drawn(2, parts=("carry",), size=1.0).float()
    x = state(2, 1, 5, 4).float().requires_grad_()

    def found(enabled, create_graph):
        with torch.autocast("cpu", torch.bfloat16, enabled):
            total = model(x).square().sum()
            return torch.autograd.grad(total, (x, model.carry), create_graph=create_graph)

    for create_graph in (False, True):
        torch.testing.assert_close(found(True, create_graph), found(False, create_graph))


def test_threads_go_backward_through_one_graph():
    model = drawn(2, parts=("carry",), size=1.0)
    x, weights = state(4, 1, 64, 64).requires_grad_(), state(4, 4, 1, 64, 64, seed=1)
    y = model(x)

    def backward(weight):
        return torch.autograd.grad(y, (x, model.carry), weight, retain_graph=True)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(backward, [*weights] * 4))
    torch.testing.assert_close(found, [backward(weight) for weight in weights] * 4, rtol=0, atol=0)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_what_one_channel_carries_and_diffuses_is_conserved(axes):
    model = drawn(axes, 1, ("carry", "diffuse"), boundary="periodic")
    x = state(2, 1, 8, *[6] * (axes - 1))
    places = tuple(range(2, axes + 2))
    y = model(x)
    assert (y - x).abs().max() > 0.01
    torch.testing.assert_close(y.sum(places), x.sum(places), rtol=0, atol=1e-4)


def test_finer_grids_and_shorter_steps():
    model = drawn(1, parts=("carry", "react", "diffuse"), size=0.1, boundary="periodic")
    model.carry.data[..., 1:] = 0

    def wave(n):
        x = 2 * math.pi * (torch.arange(n, dtype=torch.float64) + 0.5) / n
        return torch.sin(x)[None, None]

    with torch.no_grad():
        fine, coarse = model(wave(512)), model(wave(128))
        halves = model(model(wave(512), dt=0.5), dt=0.5)
    change = (fine - wave(512)).norm()
    assert (fine.unflatten(-1, (128, 4)).mean(-1) - coarse).norm() < 0.02 * change
    assert (halves - fine).norm() < 0.01 * change


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
def test_rollouts_of_one_channel_stay_finite(boundary):
    model = drawn(2, 1, size=1.0, boundary=boundary).float()
    x = 3 * state(2, 1, 8, 8).float()
    with torch.no_grad():
        for _ in range(200):
            x = model(x)
    assert x.isfinite().all()
    assert x.abs().max() < 1e6


def series(step, first, frames):
    """Frames (S, T, C, *grid) that a function makes, each from the last one."""
    found = [first]
    for _ in range(frames - 1):
        found.append(step(found[-1]))
    return torch.stack(found, 1)


def smooth(*shape, seed=0):
    """Fields of some low modes on rings."""
    x, n = torch.zeros(shape, dtype=torch.float64), shape[-1]
    place = 2 * math.pi * (torch.arange(n, dtype=torch.float64) + 0.5) / n
    for k in range(1, 4):
        amplitude = torch.randn(*shape[:-1], 1, generator=generator(seed + k), dtype=x.dtype)
        phase = 6.3 * torch.rand(*shape[:-1], 1, generator=generator(seed + 9 + k), dtype=x.dtype)
        x = x + amplitude * torch.sin(k * place + phase) / k
    return x


def burgers(u, dt=0.02, diffusivity=0.01, coefficient=0.5, parts=400):
    """u_t + (coefficient u^2)_x = diffusivity u_xx on a ring, in many explicit steps."""
    h = 1 / u.shape[-1]
    for _ in range(parts):
        before, after = u.roll(1, -1), u.roll(-1, -1)
        u = u + dt / parts * (
            diffusivity * (before - 2 * u + after) / h**2
            - coefficient * (after**2 - before**2) / (2 * h)
        )
    return u


def test_calibration_finds_an_equation_that_carries_and_diffuses():
    frames = series(burgers, smooth(6, 1, 48), 8).float()
    model = CHONNStep1d(1)
    residual = model.calibrate(frames)
    assert model.parts == {"carry", "diffuse"}
    assert model.rings == (True,)
    assert residual < 0.1
    found = model.coefficients()
    assert found["diffusivity"].item() == pytest.approx(0.02 * 0.01, rel=0.1)
    assert found["speed"][0, 0, 0, 1].item() == pytest.approx(0.02, rel=0.1)
    assert model.carry.requires_grad
    assert re.fullmatch(
        r"d/dt u0 = - 0\.0\d+ u0 d/dx u0 \+ 0\.000\d+ div grad u0", model.equation()
    )


def test_windows_that_no_equation_explains_count_for_little():
    frames = series(burgers, smooth(8, 1, 48), 24)
    spoilt = frames[:, 0].std() * smooth(8, 1, 48, seed=100)
    frames[:, :2] += torch.stack((spoilt, spoilt / 2), 1)
    model = CHONNStep1d(1)
    model.calibrate(frames.float())
    diffusivity = model.coefficients()["diffusivity"].item()
    assert diffusivity == pytest.approx(0.02 * 0.01, rel=0.05)  # 13 % too large if all count alike


@pytest.mark.parametrize("cells", [19, -28])
def test_calibration_finds_a_speed_of_many_cells_a_frame(cells):
    frames = series(lambda u: u.roll(cells, -1), smooth(8, 1, 64), 6).float()
    model = CHONNStep1d(1)
    assert model.calibrate(frames) < 0.001
    assert model.forms == {"smooth"}
    speed = model.coefficients()["speed"][0, 0, 0, 0].item()
    assert speed == pytest.approx(cells / 64, rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(("cells", "size"), [(3, 4), (5, 8), (7, 16)])
def test_rates_of_edges_that_cross_cells_are_compared_by_means_of_blocks(cells, size):
    frames = series(lambda u: u.roll(cells, -1), (smooth(8, 1, 64) > 0).double(), 6)
    model = CHONNStep1d(1, boundary="periodic").double()
    start = Identification(model, frames.movedim(2, -1), model.geometry((1, 64), None, None, None))
    assert start.block == size
    model._set_parts({"carry"}, set(), [True])
    model.carry[0, 0, 0, 0] = cells / 64 / SPEED
    error = start._rate_error()
    assert error().square().mean() < 0.03
    start.block = 1
    assert error().square().mean() > 0.5


def test_rates_of_slow_states_are_compared_cell_by_cell():
    frames = series(lambda u: u.roll(2, -1), smooth(8, 1, 64), 6).movedim(2, -1)
    model = CHONNStep1d(1).double()
    start = Identification(model, frames, model.geometry((1, 64), None, None, None))
    assert start.block == 1


def heated(u, dt=0.05, diffusivity=0.04, rate=3.0, parts=400):
    """u_t = diffusivity u_xx + rate u (1 - u), u = 1/2 at the low face, insulated at the high."""
    h = 1 / u.shape[-1]
    for _ in range(parts):
        ends = torch.cat((1.0 - u[..., :1], u, u[..., -1:]), -1)
        spread = (ends[..., :-2] - 2 * u + ends[..., 2:]) / h**2
        u = u + dt / parts * (diffusivity * spread + rate * u * (1 - u))
    return u


def test_calibration_finds_a_reaction_and_walls(tmp_path):
    first = (0.5 + 0.2 * smooth(6, 1, 24)).clamp(0.05, 0.95)
    frames = 100 * series(heated, first, 8).float()
    model = CHONNStep1d(1)
    residual = model.calibrate(frames)
    assert residual < 0.05
    assert model.pace.item() == pytest.approx(0.05)
    after = model(frames[:, 0])
    model.set_pace(1.0)
    torch.testing.assert_close(model(frames[:, 0]), after)
    assert model.parts == {"react", "diffuse"}
    assert model.rings == (False,)
    found = model.coefficients()
    assert found["diffusivity"].item() == pytest.approx(0.05 * 0.04, rel=0.1)
    right = 0.05 * 3.0 * torch.tensor([0.0, 1.0, -0.01, 0.0])
    torch.testing.assert_close(found["reaction"][0], right, rtol=0.1, atol=1e-4)
    assert (model.level * model.size)[0, 0].item() == pytest.approx(50, rel=0.1)
    assert wall_distance(model.distance[0, 0]) < 0.1 / 24
    assert wall_distance(model.distance[0, 1]) > 10
    # What was found is in files and state dicts.
    model.save_pretrained(tmp_path)
    other = CHONNStep1d(1)
    other.load_state_dict(model.state_dict())
    for same in (CHONNStep1d.from_pretrained(tmp_path), other):
        assert same.parts == model.parts
        assert same.rings == model.rings
        assert torch.equal(same(frames[:, 0]), model(frames[:, 0]))


def test_channels_that_do_not_change_are_parameters_of_the_equation():
    scale = 0.3 + torch.rand(8, 1, 1, generator=generator(), dtype=torch.float64)
    first = (0.5 + 0.2 * smooth(8, 1, 24)).clamp(0.05, 0.95)
    frames = series(lambda u: heated(u, diffusivity=0.04 * scale, rate=3 * scale), first, 8)
    frames = torch.cat((frames, scale[:, None].expand_as(frames)), 2).float()
    model = CHONNStep1d(2)
    assert model.calibrate(frames).max() < 0.05
    terms = dict(zip(model.powers, model.coefficients()["reaction"][0].tolist(), strict=True))
    assert terms[0, 1] == pytest.approx(0.05 * 3, rel=0.1)
    assert terms[0, 0, 1] == pytest.approx(-0.05 * 3, rel=0.1)
    after = model(frames[:, 3])
    torch.testing.assert_close(after[:, 1:], frames[:, 3, 1:])
    assert (after - frames[:, 4]).norm() < 0.05 * (frames[:, 3] - frames[:, 4]).norm()


def test_a_wave_that_crosses_hundreds_of_cells_a_step_is_not_slowed_down():
    model = CHONNStep1d(1, boundary="periodic")
    with torch.no_grad():
        model.carry[0, 0, 0, 0] = 0.5 / SPEED
        model._set_parts({"carry"}, set(), model.rings)
        x = smooth(1, 1, 400).float()
        torch.testing.assert_close(model(x), x.roll(200, -1), rtol=0, atol=0.02)


def test_calibration_in_two_dimensions_finds_both_diffusivities():
    def heat(u):
        for _ in range(20):
            for dim in (2, 3):
                ends = torch.cat((u.narrow(dim, 0, 1), u, u.narrow(dim, -1, 1)), dim)
                n = u.shape[dim]
                second = ends.narrow(dim, 0, n) - 2 * u + ends.narrow(dim, 2, n)
                u = u + torch.tensor([0.01, 0.002])[:, None, None] * second
        return u

    frames = series(heat, state(4, 2, 12, 12, seed=3), 6)[:, 1:].float()
    model = CHONNStep2d(2)
    model.calibrate(frames)
    assert model.parts == {"diffuse"}
    right = 20 * torch.tensor([0.01, 0.002]) / 144
    torch.testing.assert_close(model.coefficients()["diffusivity"], right, rtol=0.1, atol=0)


def test_calibration_finds_what_diffuses_where_neighbours_alternate():
    """Heat between cold walls, with an alternation of a quarter of a frame's change that stays."""
    cells, mode = (torch.arange(n, dtype=torch.float64) for n in (512, 7))
    decay = (-0.002 * (math.pi * mode) ** 2 * torch.arange(8)[:, None]).exp()
    waves = decay[..., None] * torch.sin(math.pi * mode[:, None] * cells / 511)
    frames = torch.einsum("sm,tmx->stx", state(6, 7), waves)[:, :, None]
    change = frames.diff(dim=1).square().mean().sqrt()
    frames = frames + change / 4 * (-1) ** cells
    model = CHONNStep1d(1, boundary="robin", nodes="corners")
    assert model.calibrate(frames.float()) < 0.3  # the alternation itself is a quarter
    assert model.parts == {"diffuse"}
    assert model.coefficients()["diffusivity"].item() == pytest.approx(0.002, rel=0.01)


def sorbed(u, dt=0.01, power=-0.2, parts=200):
    """u ** power u_t = u_xx, u = 1 at the low face and 0.1 at the high one."""
    h = 1 / u.shape[-1]
    for _ in range(parts):
        ends = torch.cat((2.0 - u[..., :1], u, 0.2 - u[..., -1:]), -1)
        spread = (ends[..., :-2] - 2 * u + ends[..., 2:]) / h**2
        u = u + dt / parts * u**-power * spread
    return u


def test_calibration_finds_a_capacity_and_walls_that_hold_what_is_beside_them():
    """Neither needs a reaction or what carries, which would explain most of the capacity."""
    first = 0.1 + 0.2 * torch.rand(6, 1, 1, generator=generator(), dtype=torch.float64)
    frames = series(sorbed, first.expand(6, 1, 96), 12)[:, 1:].float()
    model = CHONNStep1d(1)
    assert model.calibrate(frames) < 0.01
    assert (model.parts, model.forms) == ({"store", "diffuse"}, set())
    torch.testing.assert_close(
        (model.pace * model.level * model.size).flatten(),
        torch.tensor([1.0, 0.1]),
        rtol=0.01,
        atol=0.01,
    )
    assert (wall_distance(model.pace * model.distance) < 0.2 / 96).all()
    u = torch.tensor([0.15, 0.3, 0.6, 0.95])
    capacity = model.capacity((u / model.size)[None, :, None]).flatten()
    torch.testing.assert_close(capacity / capacity[-1], (u / 0.95) ** -0.2, rtol=0.02, atol=0)


def grown(u, parts=100):
    """u_t = 0.0125 u_xx + 0.025 u (1 - u) on a ring."""
    for _ in range(parts):
        spread = (u.roll(1, -1) - 2 * u + u.roll(-1, -1)) * u.shape[-1] ** 2
        u = u + (0.0125 * spread + 0.025 * u * (1 - u)) / parts
    return u


def test_calibration_finds_a_little_diffusion_and_no_capacity_in_its_place():
    level = torch.linspace(0.3, 0.7, 12, dtype=torch.float64)[:, None, None]
    frames = series(grown, level + 0.002 * smooth(12, 1, 32), 20).float()
    model = CHONNStep1d(1)
    assert model.calibrate(frames) < 0.001
    assert model.parts == {"react", "diffuse"}
    assert model.coefficients()["diffusivity"].item() == pytest.approx(0.0125, rel=0.1)


def test_calibration_takes_two_steps_where_the_order_of_the_parts_matters():
    def moved(u, parts=100):
        for _ in range(parts):
            right, left = u.roll(-1, -1), u.roll(1, -1)
            flow = 0.05 * u * (right - left) / 2 + 0.004 * 32 * (2 * u - left - right)
            u = u - 32 * flow / parts
        return u

    frames = series(moved, 0.5 + 0.3 * smooth(4, 1, 32), 6).float()
    model = CHONNStep1d(1)
    assert model.calibrate(frames) < 0.01
    assert model.parts == {"carry", "diffuse"}
    assert "halved" in model.forms
    equation = model.equation()
    with torch.no_grad():  # as training does
        model.carry += 1e-5 * model.carry.abs().amax() * (model.carry == 0)
    assert model.equation() == equation
    # As two calls with half the time.
    found = model(frames[:, 0])
    model._set_parts(model.parts, model.forms - {"halved"}, model.rings)
    torch.testing.assert_close(model(model(frames[:, 0], dt=0.5), dt=0.5), found)


def fired(u, parts=20):
    """u_t = 0.001 u_xx + 0.03 beyond u = 0.8, between insulated walls."""
    for _ in range(parts):
        ends = torch.cat((u[..., :1], u, u[..., -1:]), -1)
        spread = (ends[..., :-2] - 2 * u + ends[..., 2:]) * u.shape[-1] ** 2
        u = u + (0.001 * spread + 0.03 * torch.sigmoid((u - 0.8) / 0.05)) / parts
    return u


def test_calibration_finds_a_rate_that_no_polynomial_is(tmp_path):
    place = torch.arange(32) / 32 + torch.rand(8, 1, 1, generator=generator(), dtype=torch.float64)
    frames = series(fired, 0.5 + 0.45 * torch.cos(2 * math.pi * place), 20).float()
    model = CHONNStep1d(1)
    assert model.calibrate(frames) < 0.05
    assert "hats" in model.forms
    assert "react" in model.parts
    u = torch.tensor([0.3, 0.6, 0.95, 1.2])
    rate = (model.rate((u / model.size)[None, :, None]) * model.size).flatten()
    torch.testing.assert_close(rate, torch.tensor([0.0, 0.0, 0.03, 0.03]), rtol=0, atol=0.003)
    assert "and a rate of the network of each point" in model.equation()
    # Its features are fixed, in what is loaded, too: a step of an optimiser would lose them.
    model.save_pretrained(tmp_path)
    other = CHONNStep1d.from_pretrained(tmp_path)
    assert torch.equal(other(frames[:, 0]), model(frames[:, 0]))
    for same in (model, other):
        assert not any(p.requires_grad for p in same.trunk.parameters())
        assert same.last.weight.requires_grad


def test_noise_does_not_set_the_pace():
    first = smooth(8, 1, 32)
    frames = series(lambda u: u.roll(1, -1).lerp(u.roll(-1, -1), 0.5) * 0.99, first, 10)
    frames = frames + 0.2 * frames.diff(dim=1).std() * state(*frames.shape)
    model = CHONNStep1d(1, boundary="periodic")
    residual = model.calibrate(frames)
    assert residual > 0.1
    assert model.pace < 2 * residual


def of_mesh(model, names):
    """The model of meshes with the numbers of one of grids; `names` are its faces in order."""
    lengths = list(model.lengths)
    other = MODELS[model.axes](model.channels, width=4, lengths=lengths, sets=names).double()
    numbers = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name, p in (*other.named_parameters(), *other.named_buffers()):
            p.copy_(numbers[name].view_as(p))
    other._set_parts(model.parts, model.forms, model.rings)
    return other


@pytest.mark.parametrize("parts", [{"diffuse"}, {"react", "store", "diffuse"}, {"react"}])
def test_a_grid_as_a_mesh_has_the_same_step(parts):
    model = drawn(2, 2, parts, boundary="robin", lengths=[1.0, 1.5])
    volumes = grid_as_graph((6, 9), (1.0, 1.5))
    mesh = of_mesh(model, ("low0", "high0", "low1", "high1"))
    x = state(3, 2, 6, 9)
    right = model(x).flatten(2).mT
    torch.testing.assert_close(mesh(x.flatten(2).mT, volumes=volumes), right)


def test_a_calibrated_model_of_meshes_is_saved(tmp_path):
    first = (0.5 + 0.2 * smooth(6, 1, 24)).clamp(0.05, 0.95)
    frames, volumes = series(heated, first, 8).float().mT, grid_as_graph((24,), (1.0,))
    model = CHONNStep1d(1, sets=["low0", "high0"])
    assert model.calibrate(frames, volumes=volumes) < 0.05
    model.save_pretrained(tmp_path)
    read = CHONNStep1d.from_pretrained(tmp_path)
    x = frames[:, -1]
    torch.testing.assert_close(read(x, volumes=volumes), model(x, volumes=volumes))


def test_calibration_finds_how_a_disc_cools():
    """Newton's law of cooling on the right half of the rim, 0.3 outside, by exact exponentials."""

    def decay(volumes):
        k = torch.ones(1, volumes.num_nodes, 1, dtype=torch.float64)
        matrix = matrix_of(volumes.circuit(k, boundary={"right": Robin(5.0, 0.3)}))
        return torch.linalg.matrix_exp(-0.01 * torch.as_tensor(matrix) / volumes.volume[:, None])

    volumes, finer = disc(6), disc(12)
    cooled = decay(volumes)
    frames = series(lambda v: 0.3 + (v - 0.3) @ cooled.T, state(8, volumes.num_nodes), 6)
    model = CHONNStep2d(1, sets=["right"])
    assert model.calibrate(frames[..., None].float(), volumes=volumes) < 0.05
    assert model.parts == {"diffuse"}
    assert model.coefficients()["diffusivity"].item() == pytest.approx(0.01, rel=0.02)
    film = model.unit * wall_distance(model.pace * model.distance)
    assert film.item() == pytest.approx(1 / 5, rel=0.02)
    assert (model.size * model.pace * model.level).item() == pytest.approx(0.3, rel=0.01)
    start = x = finer.positions[None, :, :1].float()
    after = 0.3 + decay(finer) @ (start[0].double() - 0.3)
    for _ in range(4):
        x = model(x, dt=0.25, volumes=finer)
    assert (x[0] - after).norm() < 0.01 * (after - start[0]).norm()


@pytest.mark.parametrize(
    ("sets", "options", "message"),
    [
        (None, {"volumes": disc(2)}, "volumes: expected None without the option `sets`"),
        (["right"], {}, "volumes: expected FiniteVolumes, got NoneType"),
        (["right"], {"volumes": disc(2), "spacing": 1.0}, "spacing, mask, nodes: expected None"),
        (["right"], {"volumes": disc(3)}, "x: expected 37 nodes"),
        (["left"], {"volumes": disc(2)}, r"sets \('left',\), got"),
    ],
)
def test_geometries_of_another_kind_are_refused(sets, options, message):
    x = torch.rand(2, 1, 19) if sets is None else torch.rand(2, 19, 1)
    model = (CHONNStep1d if sets is None else CHONNStep2d)(1, sets=sets)
    for call in (model, lambda x, **at: model.calibrate(x[:, None].expand(-1, 3, -1, -1), **at)):
        with pytest.raises((ValueError, TypeError), match=message):
            call(x, **options)


def test_a_model_of_meshes_works_before_calibration():
    model, x = CHONNStep2d(1, sets=["right"]), torch.rand(2, 19, 1)
    assert model(x, volumes=disc(2)).isfinite().all()
    assert "carry" not in model.parts
    with pytest.raises(ValueError, match="S >= 1"):
        model.calibrate(x[:0, None].expand(-1, 3, -1, -1), volumes=disc(2))
    for sets in ("right", ["right", "right"]):
        with pytest.raises(ValueError, match="sets: expected a sequence of different names"):
            CHONNStep2d(1, sets=sets)


def test_calibration_of_an_axis_of_one_cell(recwarn):
    frames = series(heated, 0.5 + 0.1 * smooth(6, 1, 24), 8)[..., None, :].float()
    assert CHONNStep2d(1).calibrate(frames) < 0.05
    assert not recwarn.list


def test_calibration_finds_sound():
    """u_t + c p_x = 0 and p_t + c u_x = 0 in both directions, by exact shifts of what runs each."""
    first = smooth(6, 2, 32)
    there, back = first[:, :1] + first[:, 1:], first[:, :1] - first[:, 1:]

    def shifted(n):
        a, b = there.roll(n, -1), back.roll(-n, -1)
        return torch.cat((a + b, a - b), 1) / 2

    frames = torch.stack([shifted(n) for n in range(6)], 1).float()
    model = CHONNStep1d(2)
    assert model.calibrate(frames).max() < 0.05
    assert "carry" in model.parts
    speed = model.coefficients()["speed"][0]
    right = torch.tensor([[0.0, 1.0], [1.0, 0.0]]) / 32
    torch.testing.assert_close(speed[..., 0], right, rtol=0.02, atol=1e-3)


def test_rates_are_compared_where_they_change_slowly(monkeypatch):
    """Sound by exact shifts of a cell or of 7 cells a frame, which is the third channel."""
    there, back = smooth(8, 2, 16).unbind(1)
    cells = [1, 7] * 4

    def shifted(n):
        a, b = (
            torch.stack([x.roll(way * n * k, -1) for x, k in zip(waves, cells, strict=True)])
            for waves, way in ((there, 1), (back, -1))
        )
        return torch.stack(((a + b) / 2, (a - b) / 2, torch.tensor(cells)[:, None] + 0 * a), 1)

    monkeypatch.setattr("chonn_ops.models.identification.EACH", 1)  # few windows are enough
    frames = torch.stack([shifted(n) for n in range(6)], 1)
    model = CHONNStep1d(3).double()
    start = Identification(model, frames.mT, model.geometry((1, 16), None, None, None))
    assert start.block == 1
    assert len(start.early) == 4
    assert (start.early[..., 2] * model.size[2] < 2).all()


@pytest.mark.parametrize(
    "speeds", [(-4.0,), (3.0, -5.0), (9.0, 4.0), (7.0, 2.0, -3.0), (-9.0, -1.0, -1.0, 7.0)]
)
def test_each_wave_has_its_own_dissipation(speeds):
    n, model, speed = len(speeds), CHONNStep1d(1), torch.tensor(speeds).double()
    waves = torch.eye(n).double() + 0.3 * state(5, n, n)
    matrix, right = (waves @ torch.diag(x) @ waves.inverse() for x in (speed, speed.abs()))
    torch.testing.assert_close(model._fastest(matrix), speed.abs().max().expand(5))
    jump = state(5, n, 1, seed=1)
    found = model._dissipated(matrix, jump[..., 0], (matrix @ jump)[..., 0])
    torch.testing.assert_close(found, (right @ jump)[..., 0], rtol=1e-5, atol=1e-4)


def test_dissipation_of_matrices_without_waves_is_finite():
    matrix = torch.zeros(3, 3, 3)
    matrix[1, 0, 1] = matrix[1, 1, 2] = matrix[2, 0, 1] = 0.5
    matrix[2, 1, 0] = -0.5
    matrix.requires_grad_()
    jump = torch.ones(3, 3)
    found = CHONNStep1d(3)._dissipated(matrix, jump, (matrix @ jump[..., None])[..., 0])
    assert found.abs().max() < 50
    (gradient,) = torch.autograd.grad(found.sum(), matrix)
    assert gradient.isfinite().all()


def test_calibration_finds_the_velocity_of_what_only_moves_by_its_depth():
    """Shallow water on a ring, whose frames show the depth alone."""

    def water(z, dt=0.02, parts=40):
        def rate(z):
            h, u = z.unbind(1)
            slope = lambda x: (x.roll(-1, -1) - x.roll(1, -1)) * z.shape[-1] / 2  # noqa: E731
            return -torch.stack((slope(h * u), slope(u**2 / 2 + h)), 1)

        for _ in range(parts):
            middle = z + dt / parts / 2 * rate(z)
            z = z + dt / parts * rate(middle)
        return z

    depth = 1 + 0.1 * smooth(8, 1, 64)
    frames = series(water, torch.cat((depth, 0 * depth), 1), 9)[:, :, :1].float()
    model = CHONNStep1d(1)
    assert model.calibrate(frames) < 0.03
    assert "mass" in model.forms
    assert model.history == 2
    speed = model.coefficients()["speed"][0]
    assert speed[1, 0, 0].item() == pytest.approx(0.02**2, rel=0.03)  # gravity
    assert speed[1, 1, 2].item() == pytest.approx(1)  # water carries its momentum along
    x = frames[:, :2].flatten(1, 2)
    for _ in range(7):
        x = torch.cat((x[:, 1:], model(x)), 1)
    change = (frames[:, -1] - frames[:, 1]).norm()
    assert (x[:, 1:] - frames[:, -1]).norm() < 0.03 * change
    with pytest.raises(ValueError, match="expected 1 channels of each of 2 frames"):
        model(frames[:, 0])


def test_the_velocity_of_vorticity_is_that_of_its_stream_function():
    model = drawn(2, forms=("smooth", "vorticity"), boundary="periodic")
    place = 2 * math.pi * torch.arange(32, dtype=torch.float64) / 32
    psi = torch.sin(place[:, None]) * torch.cos(2 * place)
    v = model._velocity((4 * math.pi**2 * 5 * psi)[None, ..., None], None, [1 / 32] * 2)
    right = (
        -4 * math.pi * torch.sin(place[:, None]) * torch.sin(2 * place),
        -2 * math.pi * torch.cos(place[:, None]) * torch.cos(2 * place),
    )
    torch.testing.assert_close(SPEED * v[0], torch.stack(right, -1), rtol=0.03, atol=0.1)


def test_the_equation_of_vorticity_is_in_the_units_of_the_data():
    model = drawn(2, forms=("smooth", "vorticity"), boundary="periodic")
    model.size.fill_(3.0)
    u, steps = 0.3 * state(2, 8, 8, 1), [1 / 8] * 2
    velocity = model.unit * SPEED * model._velocity(u, None, steps)
    features = torch.cat((torch.ones_like(u), u, velocity), -1)
    speed = model.coefficients()["speed"][:, 0, 0, :4]
    rate = -sum((features @ speed[a, :, None]) * model._slope(u, a) / steps[a] for a in range(2))
    torch.testing.assert_close(3 * model._drift(u / 3, model._speeds(1.0, steps), steps), rate)


def test_all_parts_stay_where_frames_do_not_tell_the_next_one():
    model = CHONNStep1d(1)
    frames = 1 + 0.01 * state(8, 6, 1, 16).cumsum(1).float()
    assert model.calibrate(frames) > 0.9
    assert model.parts == set(PARTS)
    assert model.reaction.requires_grad


def test_gradients_over_a_hundred_frames_neither_vanish_nor_explode():
    frames = series(burgers, smooth(2, 1, 32), 4).float()
    model = CHONNStep1d(1)
    model.calibrate(frames)
    norms = []
    for count in (1, 100):
        x = frames[:, 0]
        for _ in range(count):
            x = model(x)
        model.zero_grad()
        x.square().mean().backward()
        norms.append(max(p.grad.abs().max().item() for p in (model.diffusivity, model.carry)))
    assert 1e-3 < norms[1] / norms[0] < 1e3


def test_inspect_prints_the_equation(tmp_path, capsys):
    model = CHONNStep2d(2)
    with torch.no_grad():
        model.reaction[0, 1] = 0.5
        model.carry[1, 1, 0, 1] = -1.0
    model.save_pretrained(tmp_path)
    main(["inspect", str(tmp_path), "--data", "none"])
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first == "d/dt u0 = + 0.05 u0 + 1.67e-05 div grad u0"
    assert second == "d/dt u1 = + 0.0625 u0 d/dy u0 + 1.67e-05 div grad u1"
