"""CNOUNet: filters and activation against band-limited truth, shapes, order 0, stages, errors."""

import math

import pytest
import torch
import torch.nn.functional as F

from chonn_ops import CKBOptions, CNOUNet, Scan
from chonn_ops.models._antialias import AntialiasedLeakyReLU, Resample, half_band_taps

PLAIN = CKBOptions(order=0)
TINY = {"n_layers": 2, "n_res": 1, "n_res_neck": 1, "channel_multiplier": 4, "latent": 4}
STAGES = ("lift", "encoder1", "encoder2", "bottleneck", "decoder2", "decoder1")


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def seeded(**options):
    torch.manual_seed(3)
    return CNOUNet(**options)


def waves(resolution, modes, seed=0):
    """A periodic field with all modes up to `modes`, the same on every grid."""
    generator = torch.Generator().manual_seed(seed)
    k = torch.arange(-modes, modes + 1)
    shape = (2, len(k), len(k))
    amplitudes = torch.randn(shape, generator=generator, dtype=torch.cdouble)
    angle = 2 * math.pi * torch.arange(resolution) / resolution
    wave = torch.exp(1j * angle[:, None] * k)
    return torch.einsum("bkl,xk,yl->bxy", amplitudes, wave, wave).real[:, None]


def low_modes(field, modes):
    """Fourier coefficients up to `modes` along each axis, on any grid."""
    spectrum = torch.fft.fft2(field) / field[0, 0].numel()
    index = torch.arange(-modes, modes + 1)
    return spectrum[..., index[:, None], index]


def relative(error, truth):
    return float((error - truth).abs().square().sum() / truth.abs().square().sum()) ** 0.5


@pytest.mark.usefixtures("float64")
def test_filter_is_a_half_band_low_pass():
    taps = half_band_taps()
    assert len(taps) == 11
    response = torch.fft.fft(taps, 1024).abs()
    assert response[0] == pytest.approx(1, abs=1e-12)
    assert response[256] == pytest.approx(0.5, abs=1e-12)
    assert response[512] == pytest.approx(0, abs=1e-12)
    rate = torch.arange(513) / 1024
    assert (response[:513][rate <= 0.138] - 1).abs().max() < 0.02
    assert response[:513][rate >= 0.362].max() < 0.02


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("up", [True, False])
def test_constants_stay_constants_up_to_the_walls(up):
    constant = torch.full((1, 3, 8, 12), 2.5)
    new = Resample(up=up)(constant)
    scale = 2 if up else 0.5
    assert new.shape == (1, 3, 8 * scale, 12 * scale)
    torch.testing.assert_close(new, torch.full_like(new, 2.5))


@pytest.mark.usefixtures("float64")
def test_upsampling_keeps_old_points_and_interpolates_between():
    field = waves(32, 4)
    fine = Resample(up=True)(field)
    torch.testing.assert_close(fine[..., ::2, ::2], field)
    inside = (..., slice(12, -12), slice(12, -12))
    assert relative(fine[inside], waves(64, 4)[inside]) < 0.02


@pytest.mark.usefixtures("float64")
def test_downsampling_keeps_low_modes_and_drops_what_would_alias():
    inside = (..., slice(6, -6), slice(6, -6))
    low, mixed = waves(32, 4)[inside], Resample(up=False)(waves(64, 4))[inside]
    assert relative(mixed, low) < 0.02
    x = torch.cos(2 * math.pi * 28 * torch.arange(64) / 64).expand(1, 1, 64, 64)
    assert Resample(up=False)(x)[inside].abs().max() < 0.02
    assert x[..., ::2, ::2][inside].abs().max() > 0.9  # without the filter: mode 4


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("resolution", [32, 64])
def test_activation_aliases_less_than_a_pointwise_one(resolution):
    """Truth: the activation of the continuous field, cut to the modes of the grid."""
    modes = resolution // 4
    field = waves(resolution, modes)
    truth = low_modes(F.leaky_relu(waves(512, modes)), modes)
    pointwise = relative(low_modes(F.leaky_relu(field), modes), truth)
    filtered = relative(low_modes(AntialiasedLeakyReLU()(field), modes), truth)
    assert filtered < 0.6 * pointwise


@pytest.mark.usefixtures("float64")
def test_activation_filters_each_channel_alone_and_has_its_gradient():
    activation, x = AntialiasedLeakyReLU(), torch.randn(2, 3, 4, 6, requires_grad=True)
    alone = [activation(channel) for channel in x.split(1, 1)]
    torch.testing.assert_close(activation(x), torch.cat(alone, 1))
    assert torch.autograd.gradcheck(activation, x)


@pytest.mark.parametrize(("grid", "n_layers"), [((16, 16), 3), ((8, 24), 2), ((2, 4), 1)])
def test_shapes(grid, n_layers):
    model = CNOUNet(2, 3, **{**TINY, "n_layers": n_layers}, ckb=CKBOptions(Scan(d_state=2)))
    assert model(torch.randn(2, 2, *grid)).shape == (2, 3, *grid)


def test_blocks_that_add_nothing_leave_the_plain_network():
    plain = seeded(**TINY, ckb=PLAIN)
    ours = seeded(**TINY, ckb=CKBOptions("scan", expand=2), stages=STAGES)
    for block in ours.ckbs.values():
        torch.nn.init.zeros_(block.out_proj.weight)
        torch.nn.init.zeros_(block.out_proj.bias)
    x = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=0)


def test_stages_stand_where_they_say():
    model = CNOUNet(**TINY, stages=STAGES, ckb=CKBOptions(Scan(d_state=2), order=1))
    seen = []
    for name, block in model.ckbs.items():
        block.register_forward_hook(
            lambda _, inputs, __, name=name: seen.append((name, *inputs[0].shape[1:]))
        )
    model(torch.randn(1, 1, 16, 16))
    widths = (2, 2, 4, 8, 4, 2)
    sides = (16, 16, 8, 4, 8, 16)
    assert seen == [(s, w, n, n) for s, w, n in zip(STAGES, widths, sides, strict=True)]
    assert list(CNOUNet(**TINY).ckbs) == ["encoder2", "bottleneck", "decoder2"]  # the deepest ones


@pytest.mark.parametrize(
    ("levels", "multiplier", "documented"),
    [(3, 32, "2,013,073"), (4, 16, "2,008,073"), (3, 16, "512,393")],
)
def test_parameters_at_the_papers_sizes(levels, multiplier, documented):
    model = CNOUNet(n_layers=levels, channel_multiplier=multiplier, ckb=PLAIN, device="meta")
    count = sum(parameter.numel() for parameter in model.parameters())
    assert f"{count:,}" == documented
    assert documented in CNOUNet.__doc__
