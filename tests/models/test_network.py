"""CHONNNetwork1d, 2d and 3d: shapes, grids, domains, symmetries, refusals, trained weights."""

import pytest
import torch

import chonn_ops
from chonn_ops import CHONNNetwork1d, CHONNNetwork2d, CHONNNetwork3d, Dirichlet, diffusion
from chonn_ops.models import pretrained

MODELS = {1: CHONNNetwork1d, 2: CHONNNetwork2d, 3: CHONNNetwork3d}


def _model(axes, *arguments, **options):
    """A model in float64 away from its start, as after a training."""
    torch.manual_seed(0)
    model = MODELS[axes](*arguments, **{"width": 6, **options}).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def _fields(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize(
    ("axes", "grid"), [(1, (9,)), (1, (1,)), (2, (5, 8)), (2, (1, 7)), (3, (3, 4, 5))]
)
def test_any_grid_in_and_out_with_every_gradient(axes, grid):
    model = _model(axes, 2, 3)
    y = model(_fields(2, 2, *grid))
    assert y.shape == (2, 3, *grid)
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_derivatives_of_both_orders_and_modes():
    model, x = _model(2, width=2, depth=1), _fields(1, 1, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(model, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(model, x)


def test_lengths_are_the_unit_of_the_spacing():
    x = _fields(1, 1, 6, 8)
    square, long = _model(2), _model(2, lengths=(1.0, 2.0))
    torch.testing.assert_close(long(x), square(x, spacing=(1 / 6, 2 / 8)))
    assert not torch.allclose(long(x), square(x))
    torch.testing.assert_close(square(x), square(x, spacing=1 / 7))
    torch.testing.assert_close(_model(2, lengths=14)(x), square(x, spacing=2.0))


def test_points_outside_a_mask_count_for_nothing():
    model, x = _model(2, 2, 1), _fields(2, 2, 8, 7)
    mask = torch.ones(8, 7, dtype=torch.bool)
    torch.testing.assert_close(model(x, mask=mask), model(x))
    mask[4:, 3:] = False
    y = model(x, mask=mask)
    dirty = torch.where(mask, x, torch.nan)
    torch.testing.assert_close(model(dirty, mask=mask), y, rtol=0, atol=0)
    assert (y[..., ~mask] == 0).all()
    one_each = torch.stack((mask, torch.ones_like(mask)))
    mixed = model(x, mask=one_each)
    torch.testing.assert_close(mixed[0], y[0])
    torch.testing.assert_close(mixed[1], model(x)[1])


def test_periodic_moves_with_its_input():
    model, x = _model(2, boundary="periodic"), _fields(1, 1, 6, 8)
    torch.testing.assert_close(model(x.roll((2, 3), (2, 3))), model(x).roll((2, 3), (2, 3)))


def test_every_point_sees_every_other():
    model, x = _model(2), _fields(1, 1, 6, 8)
    other = x.clone()
    other[..., 0, 0] += 1
    assert (model(other) != model(x)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_outliers_in_half_precision(dtype):
    model = MODELS[2](1, 1).to(dtype)
    x = 1e3 * torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert model(x.to(dtype)).isfinite().all()


def test_pretrained_weights_solve_darcy_flow_on_any_grid():
    """Against the finite volumes of the problem itself, on media they have never seen."""
    model = CHONNNetwork2d.from_pretrained("darcy-small")
    assert not model.training
    generator = torch.Generator().manual_seed(7)
    noise = torch.randn(4, 1, 8, 8, generator=generator)
    for n in (64, 96):
        rough = torch.nn.functional.interpolate(noise, size=(n, n), mode="bicubic")
        a = torch.where(rough > 0, 1.0, 0.1)
        k = a.movedim(1, -1)
        wall = Dirichlet(0.0, distance=1 / 128)  # where its training had walls
        truth = diffusion(k, 1 / n, boundary=wall, arithmetic=1.0).solve(torch.ones_like(k))
        truth = truth.movedim(-1, 1)
        with torch.no_grad():
            error = (model(a) - truth).abs().sum((1, 2, 3)) / truth.abs().sum((1, 2, 3))
        assert error.max() < 0.002, (n, error)


@pytest.mark.parametrize("name", pretrained.names())
def test_cards_say_what_the_weights_are(name):
    card = pretrained.card(name)
    model = getattr(chonn_ops, card["model"]).from_pretrained(name)
    assert card["parameters"] == sum(p.numel() for p in model.parameters())
    assert {"input", "output", "data", "training", "scores", "licence"} <= set(card)
    assert (pretrained.FOLDER / f"{name}.safetensors").stat().st_size < 200_000
    n = card["data"]["resolution"]
    y = model(1 + torch.rand(2, model.in_channels, n, n))
    assert y.shape == (2, 1, n, n)
    assert y.isfinite().all()


@pytest.mark.slow
def test_a_compiled_step_fuses_what_lies_around_the_solves():
    """The kernels that Inductor makes of a training step, next to the operations of PyTorch that
    the step is made of: on a GPU each is a launch at least."""
    from torch._inductor import metrics
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counted(TorchDispatchMode):
        operations = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.operations += not function.is_view
            return function(*args, **(kwargs or {}))

    torch.manual_seed(0)
    model, x = CHONNNetwork2d(1, 1), torch.rand(2, 1, 32, 32)
    torch.compiler.reset()
    metrics.reset()
    found = torch.compile(model, fullgraph=True)(x)
    found.square().mean().backward()
    compiled = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    with Counted() as counted:
        expected = model(x)
        expected.square().mean().backward()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for gradient, parameter in zip(compiled, model.parameters(), strict=True):
        assert (gradient - parameter.grad).norm() <= 1e-3 * parameter.grad.norm() + 1e-8
    assert 4 * metrics.generated_kernel_count < counted.operations
