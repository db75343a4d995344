"""F-FNO, written from its paper: any grid, the paper's formula, errors."""

import math

import pytest
import torch
from torch import nn

from chonn_lab.baselines.ffno import FFNO, FactorizedSpectralConv

SIZES = {"width": 6, "depth": 2, "modes": 4, "padding": 0.2}


def seeded(kind, *channels, dtype=torch.float64, **changes):
    torch.manual_seed(3)
    model = kind(*channels, **{**(SIZES if kind is FFNO else {}), **changes})
    for parameter in model.parameters():
        parameter.data = parameter.to(dtype.to_complex() if parameter.is_complex() else dtype)
    return model


def field(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("grid", [(16, 16), (15, 22), (9, 32)])
def test_any_grid(grid):
    assert seeded(FFNO, 2, 3)(field(2, 2, *grid)).shape == (2, 3, *grid)


def test_samples_do_not_see_each_other_and_every_point_sees_the_whole_field():
    model, x = seeded(FFNO, 1, 1), field(3, 1, 12, 10).requires_grad_()
    torch.testing.assert_close(model(x)[1:2], model(x[1:2]))
    model(x)[0, 0, 0, 0].backward()
    assert (x.grad[0] != 0).all()


def test_a_training_step_changes_every_parameter():
    model, x = seeded(FFNO, 1, 1), field(2, 1, 12, 16)
    target = x.cumsum(-1).cumsum(-2) / 20
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    (model(x) - target).square().mean().backward()
    optimizer.step()
    for old, (name, new) in zip(before, model.named_parameters(), strict=True):
        assert not torch.equal(old, new), name


def test_errors():
    model = seeded(FFNO, 2, 1)
    for shape in [(2, 12, 12), (1, 3, 12, 12), (1, 2, 12, 12, 12)]:
        with pytest.raises(ValueError, match=r"x: expected shape \(B, 2, H, W\), got"):
            model(field(*shape))
    for name in ("in_channels", "out_channels", "width", "depth", "modes"):
        with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
            FFNO(**{**SIZES, name: 0})
    with pytest.raises(ValueError, match=r"padding: expected at least 0, got -0\.1"):
        FFNO(**{**SIZES, "padding": -0.1})
    message = r"modes: expected at most 3 on a \(padded\) grid of \(5, 5\), got 4"
    with pytest.raises(ValueError, match=message):
        seeded(FFNO, 1, 1)(field(1, 1, 4, 4))


def test_factorised_convolution_is_the_sum_of_full_transforms():
    """By the definition of the discrete transform along each axis, mode by mode."""
    conv, z = seeded(FactorizedSpectralConv, 3, 4), field(2, 3, 9, 12)
    expected = torch.zeros_like(z)
    for axis, weight in zip((2, 3), conv.weights, strict=True):
        n = z.shape[axis]
        place = torch.arange(n, dtype=torch.float64)
        lines = z.movedim(axis, -1)
        for mode in range(conv.modes):
            wave = torch.exp(-2j * math.pi * mode * place / n)
            amplitude = (lines * wave).sum(-1)
            mapped = torch.einsum("bip,io->bop", amplitude, weight[..., mode].detach())
            # Of a real field, each mode but the mean has a conjugate twin.
            twins = 1 if mode == 0 else 2
            part = twins / n * (mapped[..., None] * wave.conj()).real
            expected += part.movedim(-1, axis)
    torch.testing.assert_close(conv(z), expected)


def test_modes_up_to_the_last_are_exact():
    """With identities at all modes the convolution gives the field once an axis."""
    conv = FactorizedSpectralConv(2, 5).double()
    with torch.no_grad():
        for weight in conv.weights:
            weight.copy_(torch.eye(2)[..., None].expand(2, 2, 5))
    z = field(1, 2, 8, 9)
    torch.testing.assert_close(conv(z), 2 * z)


def test_shared_weights_are_one_kernel():
    own, shared = (seeded(FFNO, 1, 1, shared_weights=s) for s in (False, True))
    assert (len(own.kernels), len(shared.kernels)) == (2, 1)
    kernel = sum(p.numel() for p in shared.kernels.parameters())
    assert sum(p.numel() for p in own.parameters()) == kernel + sum(
        p.numel() for p in shared.parameters()
    )


def test_padding_keeps_ends_apart():
    """Without padding the last point is the first one's neighbour, to a Fourier layer."""

    def reach(padding):
        model = seeded(FFNO, 1, 1, depth=1, modes=10, padding=padding)
        for layer in (model.pointwise, model.head):
            for module in layer.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.ones_(module.weight)
        # A smooth kernel: its reach decays with the distance.
        with torch.no_grad():
            for weight in model.kernels[0].weights:
                weight.copy_(torch.exp(-0.1 * torch.arange(10.0) ** 2).expand_as(weight))
        x = torch.zeros(1, 1, 20, 20, dtype=torch.float64)
        bump = x.clone()
        bump[0, 0, 0, 10] = 1
        change = (model(bump) - model(x)).abs()[0, 0, :, 10]
        return change[-1] / change[0]

    assert reach(0.5) < 0.5 * reach(0.0)


def test_parameters_by_hand():
    # Lifting 3 -> 6 and two layers: 2 axes x 6 x 6 x 4 complex, 6 -> 12 -> 6; 6 -> 12 -> 1.
    expected = 24 + 2 * (288 + 84 + 78) + 84 + 13
    assert sum(p.numel() for p in seeded(FFNO, 1, 1).parameters()) == expected


def test_autocast():
    model = seeded(FFNO, 1, 1, dtype=torch.float32)
    x = field(1, 1, 12, 12).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(x).float()
    assert float(((found - model(x)).norm() / model(x).norm()).detach()) < 0.1
