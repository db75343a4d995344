"""Models that step in time: shapes, symmetries, other grids, what damping and transport do."""

import math

import pytest
import torch
from torch.autograd import forward_ad

from chonn_ops.models import CHONNRollout1d, CHONNRollout2d, CHONNWaves1d, CHONNWaves2d

MODELS = {1: CHONNRollout1d, 2: CHONNRollout2d}
WAVES = {1: CHONNWaves1d, 2: CHONNWaves2d}


def build(axes=2, models=MODELS, **options):
    torch.manual_seed(0)
    return models[axes](**{"history": 3, "width": 8, "num_networks": 4, "heads": 2, **options})


def frames(axes=2, n=12, batch=2, channels=3):
    return torch.randn(batch, channels, *(n,) * axes, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize(
    ("models", "options"),
    [
        (MODELS, {"conservative": True}),
        (WAVES, {"depth": 1}),
    ],
    ids=["rollout", "waves"],
)
@pytest.mark.parametrize("axes", MODELS)
def test_shapes_and_gradients(axes, models, options, boundary, assert_learns):
    model = build(axes, models, boundary=boundary, channels=2, **options)
    grid = (12, 9)[:axes]
    x = torch.randn(2, 6, *grid, requires_grad=True)
    y = model(x)
    assert y.shape == (2, 2, *grid)
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert_learns(model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("models", [MODELS, WAVES], ids=["rollout", "waves"])
def test_frames_have_the_dtype_of_those_before(models, dtype):
    """So that they can be fed back."""
    model, x = build(models=models, dtype=dtype), frames().to(dtype)
    for _ in range(2):
        x = torch.cat((x[:, 1:], model(x)), 1)
    assert x.dtype == dtype


SUBSTEPS = {"num_networks": 1, "substeps": 2, "carried": False}


@pytest.mark.parametrize(
    ("models", "options"),
    [(MODELS, {}), (MODELS, {"conservative": True}), (MODELS, SUBSTEPS), (WAVES, {})],
    ids=["rollout", "conservative", "substeps", "waves"],
)
def test_forward_and_second_derivatives(models, options):
    model = build(models=models, width=12, dtype=torch.float64, **options)
    x = frames(n=5, batch=1).double()
    along = torch.randn_like(x)
    step = 1e-5 * along
    expected = (model(x + step) - model(x - step)) / 2e-5
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(model(forward_ad.make_dual(x, along))).tangent
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(torch.func.jvp(model, (x,), (along,))[1], found)

    def slope(x):
        x = x.requires_grad_()
        energy = model(x).square().sum()
        return (torch.autograd.grad(energy, x, create_graph=True)[0] * along).sum(), x

    (second,) = torch.autograd.grad(*slope(x.clone()))
    expected = (slope(x + step)[0] - slope(x - step)[0]) / 2e-5
    torch.testing.assert_close((second * along).sum(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("axes", MODELS)
def test_rollouts_of_large_weights_stay_finite(axes):
    """A step of an optimiser may double weights; what layers add is bounded."""
    model, x = build(axes, history=2), 2 * frames(axes, channels=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
        for _ in range(40):
            x = torch.cat((x[:, 1:], model(x)), 1)
    assert x.abs().max() < 1e3


@pytest.mark.parametrize(
    ("axes", "models", "options"),
    [(1, MODELS, {}), (2, MODELS, {}), (2, WAVES, {}), (2, MODELS, {"substeps": 2})],
    ids=["line", "plane", "waves", "substeps"],
)
def test_shifts_on_rings(axes, models, options):
    model, x = build(axes, models, coordinates=False, boundary="periodic", **options), frames(axes)
    shift, dims = (3, -2)[:axes], tuple(range(2, 2 + axes))
    with torch.no_grad():
        if options:
            model.flow.source_param.fill_(0.1)
        torch.testing.assert_close(
            model(x.roll(shift, dims)), model(x).roll(shift, dims), rtol=1e-3, atol=1e-3
        )
        assert (model(x) - x[:, -1:]).abs().max() > 0.1
        if models is WAVES or options:
            return
        placed = build(axes, coordinates=True)
        difference = placed(x.roll(shift, dims)) - placed(x).roll(shift, dims)
    assert difference.abs().max() > 0.01


def test_a_finer_grid_has_the_same_answer():
    """Of a smooth field: the model belongs to the domain and not to the grid."""
    model = build(coordinates=True)

    def answer(n):
        x = torch.arange(n) / n
        waves = [torch.sin(2 * torch.pi * (x[:, None] + k * x)) for k in range(3)]
        with torch.no_grad():
            return model(torch.stack(waves)[None])

    coarse, fine, finest = answer(16), answer(32), answer(64)
    first = (coarse - fine[..., ::2, ::2]).norm() / fine.norm() * 2
    second = (fine - finest[..., ::2, ::2]).norm() / finest.norm() * 2
    assert second < 0.02
    assert second < first / 2


def test_spacing_is_that_of_the_lengths():
    model, x = build(lengths=2.0), frames()
    with torch.no_grad():
        torch.testing.assert_close(model(x), model(x, spacing=[1 / 6, 1 / 6]))
        assert not torch.allclose(model(x), model(x, spacing=[1 / 12, 1 / 12]), atol=1e-3)


def still(model):
    """The model without what it adds and without displacements."""
    with torch.no_grad():
        model.head.weight.zero_()
        if model.carrier is not None:
            model.carrier.maps.weight.zero_()
    return model


def test_damping_is_an_implicit_step_of_diffusion():
    model = still(build())
    n = 16
    k = torch.tensor([2, 3])
    line = 2 * torch.pi * torch.arange(n) / n
    wave = torch.cos(k[0] * line[:, None] + k[1] * line)
    x = torch.stack([torch.zeros(n, n), torch.zeros(n, n), wave])[None]
    eigenvalue = (4 * n**2 * torch.sin(torch.pi * k / n) ** 2).sum()
    with torch.no_grad():
        gain = 1 / (1 + model.diffusivity() * eigenvalue)
        assert 0.5 < gain.item() < 0.95
        torch.testing.assert_close(model(x)[0, 0], gain * wave, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(still(build(damped=False))(x)[0, 0], wave)


def test_the_state_is_carried():
    model = build(damped=False, coordinates=False)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
        assert model.carrier is not None
        model.carrier.maps.weight.mul_(10)
    x = frames()
    with torch.no_grad():
        moved = model(x)
        potentials = []
        model.layers[-1].cell.register_forward_hook(lambda *args: potentials.append(args[-1]))
        model(x)
        displacement = model.carrier(potentials[0], [1 / 12] * 2)
    assert 0.01 < displacement.abs().max() <= 0.125
    assert (moved - x[:, -1:]).abs().max() > 0.1
    constant = torch.cat((x[:, :2], torch.full((2, 1, 12, 12), 3.0)), dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(constant), constant[:, -1:])


def test_conservative_transport_keeps_the_mean():
    x = frames()
    for conservative, kept in ((True, True), (False, False)):
        model = build(conservative=conservative, boundary="robin", nodes="centres")
        with torch.no_grad():
            model.carrier.maps.weight.mul_(10)
            change = (model(x) - x[:, -1:]).mean().abs().item()
        assert (change < 1e-5) == kept


def test_stream_functions_make_displacements_without_divergence():
    model = build()
    carrier = model.layers[0].carrier
    with torch.no_grad():
        carrier.maps.weight[: 2 * carrier.heads].zero_()
    potentials = frames(channels=4, n=16).movedim(1, -1)
    step = 1 / 16
    d = carrier(potentials, [step, step]).detach() / carrier.reach
    d = torch.atanh(d)
    along, across = (
        d[..., axis].roll(-1, axis + 1) - d[..., axis].roll(1, axis + 1) for axis in (0, 1)
    )
    divergence = along + across
    assert d.abs().max() > 0.01
    assert divergence.abs().max() < 1e-4 * d.abs().max()


def vortices(n, dtype=torch.float64):
    """Two frames of the same smooth vorticity, (1, 2, n, n)."""
    x = 2 * torch.pi * torch.arange(n, dtype=dtype) / n
    field = torch.sin(x)[:, None] * torch.cos(2 * x) + torch.cos(x[:, None] + x) + torch.sin(3 * x)
    return (2 * field).expand(1, 2, n, n)


def vorticity_model(substeps, viscosity=5e-3, **options):
    """The equation of vorticity, without corrections."""
    model = still(build(history=2, substeps=substeps, **options)).double()
    with torch.no_grad():
        model.flow.source_param.fill_(1 / 8)
        model.diffusivity_param.fill_(math.log(math.expm1(viscosity * 256)) / 8)
    return model


def spectral(field, viscosity=5e-3, steps=200):
    """The vorticity a unit of time later: Runge-Kutta steps of the fourth order in wavenumbers."""
    n = field.shape[-1]
    k = 2 * torch.pi * torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
    waves = torch.stack((k[:, None].expand(n, n), k.expand(n, n)))
    square = waves.square().sum(0)
    kept = (waves.abs() < 2 * torch.pi * n / 3).all(0)

    def rate(w):
        psi = w / square.clamp(min=1)
        velocity = torch.fft.ifft2(torch.stack((1j * waves[1] * psi, -1j * waves[0] * psi))).real
        slope = torch.fft.ifft2(1j * waves * w).real
        carried = torch.fft.fft2((velocity * slope).sum(0))
        return -(kept * carried) - viscosity * square * w

    w, dt = torch.fft.fft2(field), 1 / steps
    for _ in range(steps):
        a = rate(w)
        b = rate(w + dt / 2 * a)
        c = rate(w + dt / 2 * b)
        w = w + dt / 6 * (a + 2 * b + 2 * c + rate(w + dt * c))
    return torch.fft.ifft2(w).real


def test_substeps_solve_the_equation_of_vorticity():
    """The error has the second order in the steps of the grid and of time together."""
    n = 64
    before = vortices(n)[0, -1]
    state = spectral(before)
    truth = spectral(state)
    moved = (truth - state).norm()
    errors = []
    for stride, substeps in ((4, 2), (2, 4), (1, 8)):
        coarse = slice(None, None, stride)
        x = torch.stack((before, state))[None, :, coarse, coarse]
        with torch.no_grad():
            found = vorticity_model(substeps)(x)[0, 0]
        errors.append(((found - truth[coarse, coarse]).norm() * stride / moved).item())
    assert errors[2] < 0.01
    assert errors[1] < errors[0] / 3.7
    assert errors[2] < errors[1] / 3.7


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_substeps_in_half_precision(dtype, channels):
    """float16 ends below 260 squared."""
    model = build(history=2, channels=channels, substeps=2, coordinates=True)
    with torch.no_grad():
        model.flow.source_param.fill_(0.01)
        model.flow.forcing_param.fill_(0.01)
        model.diffusivity_param.fill_(-1.5)  # 2e-8
    x = torch.linspace(0, 6.28, 260).sin().expand(1, 2 * channels, 4, 260)
    expected = model(x)
    actual = model.to(dtype)(x.to(dtype))
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.float(), expected, rtol=0, atol=0.03)
    torch.testing.assert_close(
        model.diffusivity(), torch.full((channels,), 2.4e-8), rtol=0.01, atol=0
    )


def test_substeps_are_bounded_in_any_flow():
    x = 10 * frames(channels=2, n=16).double()
    for scale in (1, 100):
        model = vorticity_model(2)
        with torch.no_grad():
            model.flow.source_param.mul_(scale)
            state = x
            for _ in range(20):
                state = torch.cat((state[:, 1:], model(state)), 1)
        assert state.norm() < x.norm()


def test_the_correction_of_substeps_moves_the_state_in_all():
    """Without a flow, substeps move the state as far as one step does."""
    x = vortices(32).float()
    found = []
    for substeps in (None, 4):
        model = build(history=2, substeps=substeps, damped=False, nodes="left")
        with torch.no_grad():
            model.head.weight.zero_()
            model.carrier.maps.weight.mul_(3)
            found.append(model(x) - x[:, -1:])
    assert found[0].abs().max() > 0.1
    assert (found[1] - found[0]).norm() < 0.2 * found[0].norm()


@pytest.mark.parametrize("nodes", ["left", "centres"])
def test_the_forcing_of_substeps_belongs_to_the_place(nodes):
    model = still(build(history=2, substeps=3, damped=False, nodes=nodes, coordinates=True))
    with torch.no_grad():
        model.head.bias.zero_()
        model.flow.forcing_param[0, 1, 4] = 0.5
        for n in (8, 16):
            places = 2 * torch.pi * (torch.arange(n) + 0.5 * (nodes == "centres")) / n
            expected = 0.5 * torch.sin(places)[:, None] * torch.cos(2 * places)
            found = model(torch.zeros(1, 2, n, n))[0, 0]
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert build(history=2, substeps=3, coordinates=False).flow.forcing_param is None


@pytest.mark.parametrize("history", [1, 2])
def test_substeps_learn(history, assert_learns):
    model = build(history=history, substeps=2, channels=2, coordinates=True)
    with torch.no_grad():
        model.flow.source_param.fill_(0.1)
    x = torch.randn(2, 2 * history, 8, 9, requires_grad=True)
    y = model(x)
    assert y.shape == (2, 2, 8, 9)
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert_learns(model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"history": 0}, "history: expected an integer of at least 1, got 0"),
        ({"num_networks": 0}, "num_networks: expected an integer of at least 1, got 0"),
        ({"heads": 3}, "heads: expected a divisor of width=8, got 3"),
        ({"boundary": "open"}, "boundary: expected one of .*or 2 of them, got 'open'"),
        ({"boundary": ("periodic",)}, "boundary: expected one of"),
        ({"nodes": "x"}, "nodes: expected one of .*got 'x'"),
        ({"lengths": 0.0}, "lengths: expected a number > 0, or 2 of them, got 0.0"),
        ({"reach": 0.0}, "reach: expected a number > 0, got 0.0"),
        ({"damped": "none"}, "damped: expected a bool, got 'none'"),
        ({"substeps": 0}, "substeps: expected an integer of at least 1, got 0"),
        ({"substeps": 2, "boundary": "robin"}, "substeps: expected 2 axes, both periodic, got 2"),
        ({"substeps": 2, "axes": 1}, "substeps: expected 2 axes, both periodic, got 1"),
        ({"substeps": 2, "conservative": True}, "substeps: expected conservative=False"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
def test_an_axis_of_one_point(boundary):
    assert build(boundary=boundary)(frames()[..., :1]).isfinite().all()


def test_bad_inputs():
    with pytest.raises(ValueError, match=r"x: expected shape \(B, 3, H, W\), got \(2, 4, 12, 12\)"):
        build()(frames(channels=4))
    with pytest.raises(ValueError, match="spacing: expected a number > 0, or 2 of them"):
        build()(frames(), spacing=[0.1])
