"""Models of other papers: any grid, the papers' formulas, errors."""

import itertools
import math

import pytest
import torch
from torch import nn

from chonn_lab.baselines.cnext_unet import SCALE, CNextUNet
from chonn_lab.baselines.dilresnet import DilResNet
from chonn_lab.baselines.ffno import FFNO, FactorizedSpectralConv
from chonn_lab.baselines.galerkin import GalerkinAttention, GalerkinTransformer
from chonn_lab.baselines.mgno import MgNO, VCycle
from chonn_lab.baselines.transolver import PhysicsAttention, Transolver, reference_distances

SMALL = {
    FFNO: {"width": 6, "depth": 2, "modes": 4, "padding": 0.2},
    Transolver: {"width": 8, "depth": 2, "heads": 2, "slices": 5},
    GalerkinTransformer: {"width": 8, "depth": 2, "heads": 2, "modes": 4, "coarsening": 2},
    MgNO: {"width": 5, "depth": 2, "levels": 3},
    DilResNet: {"width": 7, "depth": 2},
}
MODELS = pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.__name__)


def seeded(kind, *channels, dtype=torch.float64, **changes):
    torch.manual_seed(3)
    model = kind(*channels, **{**SMALL.get(kind, {}), **changes})
    for parameter in model.parameters():
        parameter.data = parameter.to(dtype.to_complex() if parameter.is_complex() else dtype)
    return model


def field(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def relative(found, expected):
    return float(((found - expected).norm() / expected.norm()).detach())


@MODELS
@pytest.mark.parametrize("grid", [(16, 16), (15, 22), (9, 32)])
def test_any_grid(kind, grid):
    assert seeded(kind, 2, 3)(field(2, 2, *grid)).shape == (2, 3, *grid)


@MODELS
def test_samples_do_not_see_each_other(kind):
    model, x = seeded(kind, 1, 1), field(3, 1, 12, 10)
    torch.testing.assert_close(model(x)[1:2], model(x[1:2]))


@MODELS
def test_every_point_sees_the_whole_field(kind):
    x = field(1, 1, 16, 12).requires_grad_()
    seeded(kind, 1, 1)(x)[0, 0, 0, 0].backward()
    assert (x.grad != 0).all()


@MODELS
def test_a_training_step_changes_every_parameter(kind):
    model, x = seeded(kind, 1, 1), field(2, 1, 12, 16)
    target = x.cumsum(-1).cumsum(-2) / 20
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[2] < losses[0]
    for old, (name, new) in zip(before, model.named_parameters(), strict=True):
        assert new.grad.abs().sum() > 0, name
        assert not torch.equal(old, new), name


@MODELS
def test_wrong_shapes(kind):
    model = seeded(kind, 2, 1)
    for shape in [(2, 12, 12), (1, 3, 12, 12), (1, 2, 12, 12, 12)]:
        with pytest.raises(ValueError, match=r"x: expected shape \(B, 2, H, W\), got"):
            model(field(*shape))


@MODELS
@pytest.mark.parametrize("name", ["in_channels", "out_channels", "width", "depth"])
def test_sizes_below_one(kind, name):
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        kind(**{**SMALL[kind], name: 0})


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (FFNO, {"modes": 0}, "modes: expected at least 1, got 0"),
        (FFNO, {"padding": -0.1}, "padding: expected at least 0, got -0.1"),
        (Transolver, {"heads": 3}, "channels: expected a multiple of heads=3, got 8"),
        (Transolver, {"slices": 0}, "slices: expected at least 1, got 0"),
        (GalerkinTransformer, {"heads": 3}, "channels: expected a multiple of heads=3, got 8"),
        (GalerkinTransformer, {"coarsening": 0}, "coarsening: expected at least 1, got 0"),
        (MgNO, {"levels": 0}, "levels: expected at least 1, got 0"),
    ],
)
def test_bad_options(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        kind(**{**SMALL[kind], **changes})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (FFNO, r"modes: expected at most 3 on a \(padded\) grid of \(5, 5\), got 4"),
        (GalerkinTransformer, r"modes: expected at most"),
        (MgNO, "levels: expected a grid of at least 8 points an axis for 4 of them, got 4"),
    ],
)
def test_grids_that_are_too_coarse(kind, message):
    changes = {"levels": 4} if kind is MgNO else {}
    with pytest.raises(ValueError, match=message):
        seeded(kind, 1, 1, **changes)(field(1, 1, 4, 4))


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


def test_physics_attention_is_the_papers_formula():
    attention = seeded(PhysicsAttention, 6, 2, 5)
    with torch.no_grad():
        attention.temperature.copy_(torch.tensor([0.03, 0.7]).view(2, 1, 1))
    x = field(2, 6, 4, 3)
    found = attention(x)
    points, features = attention.points(x).flatten(2), attention.features(x).flatten(2)
    wq, wk, wv = attention.qkv.weight.chunk(3)
    expected = torch.empty(2, 12, 6, dtype=torch.float64)
    for b in range(2):
        for head, tau in enumerate((0.1, 0.7)):  # at least 0.1
            own = slice(3 * head, 3 * head + 3)
            w, f = torch.empty(12, 5, dtype=torch.float64), features[b, own].T
            for i in range(12):
                logits = attention.slice(points[b, own, i]) / tau
                w[i] = logits.exp() / logits.exp().sum()
            z = torch.stack(
                [sum(w[i, j] * f[i] for i in range(12)) / (w[:, j].sum() + 1e-5) for j in range(5)]
            )
            mixed = torch.empty(5, 3, dtype=torch.float64)
            for j in range(5):
                scores = torch.stack([(wq @ z[j]) @ (wk @ z[m]) / 3**0.5 for m in range(5)]).exp()
                mixed[j] = sum(scores[m] / scores.sum() * (wv @ z[m]) for m in range(5))
            for i in range(12):
                expected[b, i, own] = sum(w[i, j] * mixed[j] for j in range(5))
    expected = attention.out(expected).transpose(1, 2).reshape(x.shape)
    torch.testing.assert_close(found, expected)


def test_transolver_sees_distances_to_the_reference_points():
    places = reference_distances(field(1, 1, 5, 3))
    assert places.shape == (1, 64, 5, 3)
    for i, j, k in [(0, 0, 0), (4, 2, 63), (1, 2, 13)]:
        x, y = i / 4, j / 2
        u, v = k // 8 / 7, k % 8 / 7
        expected = math.hypot(x - u, y - v)
        assert float(places[0, k, i, j]) == pytest.approx(expected, abs=1e-6)


def test_galerkin_attention_is_the_explicit_matrix():
    """A matrix of all pairs of points, head by head, where the model never makes one."""
    attention = seeded(GalerkinAttention, 6, 2)
    with torch.no_grad():
        for parameter in (attention.scales, attention.shifts):
            parameter.add_(0.3 * torch.randn_like(parameter))
        for projection in attention.projections:
            projection.bias.add_(torch.randn_like(projection.bias))
    x, places = field(2, 7, 6), field(2, 7, 2)
    heads = []
    for head in range(2):
        own = slice(3 * head, 3 * head + 3)
        q, k, v = (projection(x)[..., own] for projection in attention.projections)
        normed = []
        for which, y in enumerate((k, v)):
            y = (y - y.mean(-1, keepdim=True)) / (
                y.var(-1, keepdim=True, unbiased=False) + 1e-7
            ).sqrt()
            normed.append(y * attention.scales[which, head] + attention.shifts[which, head])
        q, k, v = (torch.cat((places, y), -1) for y in (q, *normed))
        pairs = q @ k.transpose(1, 2) / 7
        assert pairs.shape == (2, 7, 7)
        heads.append(pairs @ v)
    torch.testing.assert_close(attention(x, places), attention.out(torch.cat(heads, -1)))


def test_galerkin_attention_is_linear_in_the_points():
    from chonn_lab.cost import measure

    attention = GalerkinAttention(8, 2)
    once, twice = (
        measure(attention, [torch.zeros(1, n, 8), torch.zeros(1, n, 2)]).multiply_adds
        for n in (64, 128)
    )
    assert twice == 2 * once


def test_dilated_blocks_add_what_they_see():
    """Residual blocks that reach 22 points, in seven steps of the paper's dilations."""
    model = seeded(DilResNet, 1, 1, depth=1)
    with torch.no_grad():
        # Delta functions at both ends of every kernel, and nothing else.
        for layer in model.blocks[0][::2]:
            layer.weight.zero_()
            layer.bias.zero_()
            layer.weight[:, :, 1, 0] = layer.weight[:, :, 1, 2] = torch.eye(7)
    z = torch.zeros(1, 7, 3, 60, dtype=torch.float64)
    z[..., 1, 30] = 1
    seen = model.blocks[0](z)[0, 0, 1]
    ways = [sum(steps) for steps in itertools.product(*((-d, d) for d in (1, 2, 4, 8, 4, 2, 1)))]
    expected = torch.tensor([float(ways.count(place - 30)) for place in range(60)]).double()
    torch.testing.assert_close(seen, expected)
    assert [i - 30 for i in (0, 59) if seen[i]] == []
    assert seen[[8, 52]].tolist() == [1, 1]
    x = field(1, 1, 9, 9)
    lifted = model.lift(x)
    torch.testing.assert_close(model(x), model.head(lifted + model.blocks[0](lifted)))


def test_convnext_u_net():
    """Parameters by hand, the skips, the grid, and blocks that begin as the identity."""
    model = seeded(CNextUNet, 2, 3, width=4, depth=1, levels=2)

    def block(c):
        return 49 * c + c + 2 * c + 4 * c * c + 4 * c + 4 * c * c + c + c

    def between(c):  # one level down, up and joined
        return 2 * c + 8 * c * c + 2 * c + 4 * c + 8 * c * c + c + 2 * c * c + c

    expected = (9 * 2 * 4 + 4) + (4 * 3 + 3) + block(16)
    expected += sum(2 * block(c) + between(c) for c in (4, 8))
    assert sum(p.numel() for p in model.parameters()) == expected
    x = field(2, 2, 8, 12).requires_grad_()
    y = model(x)
    assert y.shape == (2, 3, 8, 12)
    y[0, 0, 0, 0].backward()
    assert (x.grad[0, :, :4, :4] != 0).all()
    assert (x.grad[1] == 0).all()
    z = field(1, 4, 8, 8)
    change = (model.down[0](z) - z).norm() / z.norm()
    assert 0 < change < 10 * SCALE
    with pytest.raises(ValueError, match=r"expected a grid of multiples of 4, got \(10, 8\)"):
        model(field(1, 2, 10, 8))
    with pytest.raises(ValueError, match=r"expected shape \(B, 2, H, W\)"):
        model(field(1, 1, 8, 8))
    with pytest.raises(ValueError, match="levels: expected at least 1, got 0"):
        CNextUNet(levels=0)


def test_a_v_cycle_is_the_papers_algorithm():
    cycle, f = seeded(VCycle, 2, 3, 3), field(1, 2, 9, 12)

    def convolve(x, weight, stride=1):
        """By its definition, zeros outside."""
        padded = nn.functional.pad(x, (1, 1, 1, 1))
        rows, columns = (-(-n // stride) for n in x.shape[2:])
        y = torch.zeros(1, len(weight), rows, columns, dtype=x.dtype)
        for i in range(rows):
            for j in range(columns):
                part = padded[:, :, stride * i : stride * i + 3, stride * j : stride * j + 3]
                y[:, :, i, j] = (part[:, None] * weight).sum((2, 3, 4))
        return y

    def solve(f, level):
        systems = [conv.weight for conv in cycle.levels[level].systems]
        smoothers = [conv.weight for conv in cycle.levels[level].smoothers]
        u = torch.zeros(1, 3, *f.shape[2:], dtype=f.dtype)
        # With u = 0 the first smoothing needs no A.
        for place, smoother in enumerate(smoothers):
            known = convolve(u, systems[place - 1]) if place else 0
            u = u + convolve(f - known, smoother)
        if level == 2:
            assert len(smoothers) == 2
            return u
        left = f - convolve(u, systems[-1])
        coarse = solve(convolve(left, cycle.restrictions[level].weight, stride=2), level + 1)
        # The prolongation is the transposed convolution: spread each coarse value.
        weight = cycle.prolongations[level].weight
        spread = torch.zeros(1, 3, u.shape[2] + 2, u.shape[3] + 2, dtype=f.dtype)
        for i in range(coarse.shape[2]):
            for j in range(coarse.shape[3]):
                values = (coarse[:, :, i, j, None, None, None] * weight).sum(1)
                window = spread[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
                window += values[..., : window.shape[2], : window.shape[3]]
        return u + spread[:, :, 1:-1, 1:-1]

    torch.testing.assert_close(cycle(f), solve(f, 0))


def test_a_v_cycle_is_linear():
    cycle = seeded(VCycle, 2, 3, 3)
    a, b = field(2, 2, 10, 11), field(2, 2, 10, 11).flip(0)
    torch.testing.assert_close(cycle(2 * a - 3 * b), 2 * cycle(a) - 3 * cycle(b))


@pytest.mark.parametrize(
    ("kind", "options", "parameters"),
    [
        # Lifting 3 -> 6 and two layers: 2 axes x 6 x 6 x 4 complex, 6 -> 12 -> 6; 6 -> 12 -> 1.
        (FFNO, {}, 24 + 2 * (288 + 84 + 78) + 84 + 13),
        # 3 smoothers, 3 + 0 systems, 2 changes of grid each way, pointwise; 3 in, then 5.
        (
            MgNO,
            {},
            9 * (4 * 15 + 2 * 15 + 1 * 15 + 2 * (9 + 25)) + 20 + 9 * 25 * (4 + 3 + 4) + 30 + 6,
        ),
        # 1 -> 7, two blocks of seven 7 -> 7, 7 -> 1.
        (DilResNet, {}, 9 * 7 + 7 + 14 * (9 * 49 + 7) + 9 * 7 + 1),
    ],
)
def test_parameters_by_hand(kind, options, parameters):
    assert sum(p.numel() for p in seeded(kind, 1, 1, **options).parameters()) == parameters


@pytest.mark.parametrize("kind", [FFNO, GalerkinTransformer, Transolver, MgNO, DilResNet])
def test_autocast(kind):
    model = seeded(kind, 1, 1, dtype=torch.float32)
    x = field(1, 1, 12, 12).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(x)
    assert relative(found.float(), model(x)) < 0.1


def test_checkpoints_are_tensors_alone(tmp_path):
    for kind in SMALL:
        model = seeded(kind, 1, 1)
        torch.save(model.state_dict(), tmp_path / "model.pt")
        other = seeded(kind, 1, 1)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(1)
        other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
        x = field(1, 1, 12, 12)
        torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)
