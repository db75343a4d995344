"""The implicit upwind step: exact but for a numerical diffusion that is known."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from chonn_ops.experimental import advection_step, upwind_conductance

DOUBLE = torch.float64
EACH_FORM = pytest.mark.parametrize("conservative", [True, False])


def _pulse(n, at):
    v = torch.zeros(1, n, 1, dtype=DOUBLE)
    v[0, at] = 1
    return v


@EACH_FORM
@pytest.mark.parametrize(
    "courant", [0.05, 6.0, *(pytest.param(x, marks=pytest.mark.thorough) for x in (0.7, 1.0))]
)
@pytest.mark.parametrize("speed", [-1.5, 1.5])
def test_constant_advection_is_exact_but_for_its_numerical_diffusion(speed, courant, conservative):
    """Mean and variance of a pulse: a t, and 2 D t with D = |a| h / 2 (1 + |a| dt / h)."""
    n, h, steps = 4001, 0.1, 20
    dt = courant * h / abs(speed)
    v, a = _pulse(n, n // 2), torch.full((1, n, 1), speed, dtype=DOUBLE)
    for _ in range(steps):
        v = advection_step(v, (a,), dt, h, boundary="periodic", conservative=conservative)
    x = (torch.arange(n, dtype=DOUBLE) - n // 2)[None, :, None] * h
    assert v.sum().item() == pytest.approx(1, rel=1e-12)
    mean = (x * v).sum().item()
    assert mean == pytest.approx(speed * dt * steps, rel=1e-9)
    variance = ((x - mean).square() * v).sum().item()
    diffusion = abs(speed) * h / 2 * (1 + courant)
    assert variance / (2 * dt * steps) == pytest.approx(diffusion, rel=1e-8)


@EACH_FORM
@pytest.mark.parametrize("split", [False, True])
def test_each_axis_of_a_plane_carries_with_its_own_velocity(conservative, split):
    n, h, dt, velocity = (48, 96), (0.1, 0.05), 0.06, (0.8, -1.1)
    v = torch.zeros(1, *n, 1, dtype=DOUBLE)
    v[0, 24, 48] = 1
    a = [torch.full_like(v, speed) for speed in velocity]
    for _ in range(4):
        v = advection_step(
            v, a, dt, h, boundary="periodic", conservative=conservative, split=split, tol=1e-12
        )
    for axis, speed in enumerate(velocity):
        x = ((torch.arange(n[axis]) - n[axis] // 2) * h[axis]).to(DOUBLE)
        along = v.sum((0, 2 - axis, 3))
        mean = (x * along).sum()
        assert mean.item() == pytest.approx(4 * speed * dt, rel=1e-7)
        D = ((x - mean).square() * along).sum().item() / (8 * dt)
        expected = abs(speed) * h[axis] / 2 * (1 + abs(speed) * dt / h[axis])
        assert expected == pytest.approx(D, rel=1e-6)


@pytest.mark.thorough
def test_a_smooth_wave_converges_with_the_first_order():
    errors = []
    for n in (64, 128, 256):
        x = (torch.arange(n, dtype=DOUBLE) / n).reshape(1, n, 1)
        v, a = torch.sin(2 * math.pi * x), torch.ones_like(x)
        for _ in range(n):
            v = advection_step(v, (a,), 0.5 / n, 1 / n, boundary="periodic")
        errors.append((v - torch.sin(2 * math.pi * (x - 0.5))).norm().item() / n**0.5)
    assert math.log2(errors[1] / errors[2]) == pytest.approx(1, abs=0.1)
    # A sine decays by the diffusivity known: (2 pi)^2 D t.
    decay = math.exp(-((2 * math.pi) ** 2) * 0.5 / 256 * 1.5 * 0.5)
    assert v.abs().max().item() == pytest.approx(decay, rel=1e-3)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("boundary", ["neumann", "periodic", "dirichlet"])
@pytest.mark.parametrize(
    "dt",
    [
        pytest.param(1e-3, marks=pytest.mark.thorough),
        1.0,
        pytest.param(1e4, marks=pytest.mark.thorough),
    ],
)
def test_no_step_is_too_long(boundary, dt, split):
    generator = torch.Generator().manual_seed(0)
    a = [torch.randn(1, 15, 16, 2, dtype=DOUBLE, generator=generator) for _ in range(2)]
    v = torch.rand(1, 15, 16, 2, dtype=DOUBLE, generator=generator)
    options = {"boundary": boundary, "split": split, "tol": 1e-11}
    charge = advection_step(v, a, dt, **options)
    assert charge.min() >= -1e-9
    total = v.sum((1, 2))
    if boundary == "dirichlet":
        assert (charge.sum((1, 2)) < total).all()
    else:
        torch.testing.assert_close(charge.sum((1, 2)), total, rtol=1e-7, atol=0)
    bounded = advection_step(v, a, dt, conservative=False, **options)
    assert bounded.max() <= v.max() + 1e-7
    assert bounded.min() >= (0 if boundary == "dirichlet" else v.min()) - 1e-7


def test_both_forms_are_one_where_the_flow_is_free_of_divergence():
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(10.0), indexing="ij")
    stream = (torch.sin(x * 0.2 * torch.pi) * torch.cos(y / 6 * torch.pi)).double()
    a = (stream - stream.roll(1, 1)), -(stream - stream.roll(1, 0))
    a = [x[None, ..., None] for x in a]
    v = torch.rand(1, 12, 10, 1, dtype=DOUBLE)
    forms = [
        advection_step(v, a, 0.7, boundary="periodic", conservative=form, tol=1e-12)
        for form in (True, False)
    ]
    torch.testing.assert_close(*forms, rtol=1e-9, atol=1e-9)


def test_diffusivity_adds_to_the_numerical_one():
    n, k = 2001, 0.3
    v, a = _pulse(n, n // 2), torch.full((1, n, 1), 0.5, dtype=DOUBLE)
    for _ in range(5):
        v = advection_step(v, (a,), 0.8, diffusivity=torch.full_like(v, k), boundary="periodic")
    x = (torch.arange(n, dtype=DOUBLE) - n // 2)[None, :, None]
    variance = (x.square() * v).sum() - (x * v).sum() ** 2
    assert variance.item() / 8 == pytest.approx(k + 0.25 * (1 + 0.4), rel=1e-8)


@pytest.mark.parametrize("split", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_gradients_through_time(split):
    generator = torch.Generator().manual_seed(1)
    v, *a, k = (torch.randn(1, 3, 2, 1, dtype=DOUBLE, generator=generator) for _ in range(4))
    leaves = [x.requires_grad_() for x in (v, *a, k.abs() + 0.1)]

    def roll(v, a0, a1, k):
        options = {"boundary": ("periodic", "neumann"), "split": split, "tol": 1e-14}
        for _ in range(2):
            v = advection_step(v, (a0, a1), 0.5, source=v**2, diffusivity=k, **options)
        return v

    assert torch.autograd.gradcheck(roll, leaves)


@pytest.mark.thorough
def test_splitting_errs_by_the_order_of_the_step():
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(10.0), indexing="ij")
    stream = (torch.sin(x * 0.2 * torch.pi) * torch.cos(y / 6 * torch.pi)).double()
    a = [f[None, ..., None] for f in (stream - stream.roll(1, 1), stream.roll(1, 0) - stream)]
    v, errors = (2 + stream)[None, ..., None], []
    for steps in (8, 16, 32):
        whole, apart = v, v
        for _ in range(steps):
            whole = advection_step(whole, a, 1 / steps, boundary="periodic", tol=1e-11)
            apart = advection_step(apart, a, 1 / steps, boundary="periodic", split=True)
        errors.append((whole - apart).norm().item())
    assert errors[-1] > 1e-5
    assert math.log2(errors[1] / errors[2]) == pytest.approx(1, abs=0.15)


def test_unfit_steps_are_refused():
    v = torch.ones(1, 4, 3, 1)
    for call, message in (
        (lambda: advection_step(v, (v, v), 0.0), "dt: expected a finite number > 0"),
        (lambda: advection_step(v, (v,), 1.0), "velocity: expected 2 tensors"),
        (lambda: advection_step(v, (v, v[:, :2]), 1.0), r"velocity\[1\]: expected"),
        (lambda: advection_step(v, (v, v), 1.0, -1.0), "spacing: expected a number > 0"),
        (lambda: advection_step(v, (v, v), 1.0, boundary="wall"), "boundary: expected one of"),
        (lambda: advection_step(v, (v, v), 1.0, source=v[:, :1]), "source: expected shape"),
        (lambda: advection_step(v, (v, v), 1.0, diffusivity=-v), ">= 0 everywhere"),
        (lambda: upwind_conductance(()), "velocity: expected one tensor an axis"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_upwind_conductances_are_areas_times_velocities():
    a = torch.tensor([2.0, -3.0, 1.0]).reshape(1, 3, 1, 1).expand(1, 3, 2, 1)
    (f0, f1), (b0, b1) = upwind_conductance((a, -a), (0.5, 0.25), boundary=("neumann", "periodic"))
    assert f0[0, :, 0, 0].tolist() == [0.5, 0, 0]  # the last is no edge
    assert b0[0, :, 0, 0].tolist() == [0, 0.75, 0]
    assert f1[0, :, 0, 0].tolist() == [0, 1.5, 0]
    assert b1[0, :, 1, 0].tolist() == [1, 0, 0.5]
    assert all(not x.requires_grad for x in itertools.chain((f0, f1), (b0, b1)))
