"""Bands of `chonn_ops.uncertainty`: their guarantees, the inputs that hosts bring, bad input."""

import copy
import math

import pytest
import torch
from torch import nn

from chonn_ops import CHONNNetwork2d
from chonn_ops.uncertainty import (
    Bands,
    Ensemble,
    conformal,
    conformal_scale,
    fit_spread,
    samples_needed,
)

IDENTITY = nn.Identity()


def noisy(samples: int, points: int = 16, seed: int = 0):
    """Inputs and targets whose errors depend on the sample, the point and their neighbours."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(samples, 1, points, points, generator=generator)
    size = 0.1 + torch.rand(samples, 1, 1, 1, generator=generator)
    common = torch.randn(samples, 1, 1, points, generator=generator)
    return x, x + 0.1 * size * (common + torch.randn(x.shape, generator=generator))


class Model(nn.Module):
    """A function as a module, with a number that may be trained."""

    def __init__(self, function, number=None):
        super().__init__()
        self.function, self.number = function, number

    def forward(self, x):
        return self.function(x)


def constant(value):
    return Model(lambda x: value * torch.ones_like(x), value)


# Spreads that are larger on one side, and negative somewhere; and more than a field.
LEFT_SIDE = Model(lambda x: torch.linspace(0.5, 2, x.shape[-1]).expand_as(x))
SLOPE, PAIR = Model(lambda x: x - 0.5), Model(lambda x: (x, x))


@pytest.mark.parametrize(
    ("level", "spread", "fields"),
    [
        *((level, spread, True) for level in (0.5, 0.9) for spread in (None, LEFT_SIDE)),
        (0.9, None, False),  # targets (B,) have as many points as samples
    ],
)
def test_coverage_on_average_over_calibrations(level, spread, fields):
    """Neither below the level nor above it by more than the 2 / (n + 1) of the theorem."""
    n, repeats = 19, 200
    x, y = (z if fields else z[:, 0, 0, 0] for z in noisy(repeats * (n + 5), points=6))
    found = []
    for a, b in zip(x.split(n + 5), y.split(n + 5), strict=True):
        bands = conformal(IDENTITY, [(a[:n], b[:n])], level, spread=spread)
        found.append(bands.evaluate([(a[n:], b[n:])]).shares)
    shares = torch.stack(found).mean(dim=1)
    deviation = (shares.std() / math.sqrt(repeats)).item()
    assert level - 3 * deviation < shares.mean() < level + 2 / (n + 1) + 3 * deviation


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_samples_with_enough_points_inside(share):
    n, repeats = 19, 400
    x, y = noisy(repeats * (n + 1), points=6)
    enough = []
    for a, b in zip(x.split(n + 1), y.split(n + 1), strict=True):
        bands = conformal(IDENTITY, [(a[:n], b[:n])], 0.9, share=share)
        enough.append(bands.evaluate([(a[n:], b[n:])]).shares.item() >= share - 1e-9)
    # ceil(20 * 0.9) / 20 is 0.9 exactly.
    assert abs(sum(enough) / repeats - 0.9) < 3 * math.sqrt(0.09 / repeats)


@pytest.mark.parametrize(("n", "level"), [(9, 0.9), (57, 0.9), (19, 0.95), (4, 0.5)])
def test_one_point_is_the_split_conformal_interval_of_a_number(n, level):
    ratios = torch.rand(n, 1, generator=torch.Generator().manual_seed(n))
    expected = ratios.flatten().sort().values[math.ceil((n + 1) * level - 1e-9) - 1]
    for share in (None, 1.0):
        assert conformal_scale(ratios, level, share=share) == pytest.approx(expected.item())


def test_scale_is_the_least_that_is_safe():
    """By the definition: at this scale the bound holds, just below it does not."""
    ratios = torch.rand(30, 7, generator=torch.Generator().manual_seed(0)).double()
    scale = conformal_scale(ratios, 0.8)

    def bound(at):
        return (ratios > at).double().mean(dim=1).sum() + 1

    assert bound(scale) <= 0.2 * 31
    assert bound(scale * (1 - 1e-9)) > 0.2 * 31


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [None, 1.0])
def test_errors_of_equal_size_are_inside(dtype, share):
    """A scale that is rounded down would miss them all."""
    for error in (0.1, 0.3, 0.7, 1 / 3):
        x = torch.full((20, 3), 1.7, dtype=dtype)
        samples = [(x, x + error)]
        assert conformal(IDENTITY, samples, share=share).evaluate(samples).shares.mean() == 1


def test_ratios_are_arrays_of_numbers_that_are_not_negative():
    ratios = torch.rand(30, 7)
    assert conformal_scale(ratios.numpy()) == conformal_scale(ratios)
    assert conformal_scale(ratio for ratio in ratios) == conformal_scale(ratios)
    assert conformal_scale([0.9] * 9) == conformal_scale([[0.9]] * 9) == 0.9


def test_fields_of_several_grids_count_by_sample():
    coarse, fine = torch.full((20, 4), 1.0), torch.full((10, 400), 2.0)
    # Ten of thirty samples lie above 1: too many at 0.9, few enough at 0.5.
    assert conformal_scale([*coarse, *fine], 0.9) == 2
    assert conformal_scale([*coarse, *fine], 0.5) == 1


def test_batches_of_all_hosts():
    x, y = noisy(40)
    grid = torch.zeros(40, 16, 16, 2)

    class Host(nn.Module):
        def forward(self, x, grid=None, *, mask=None):
            return x if grid is None and mask is None else 2 * x

    loaders = {
        "pairs": [(x, y)],
        "lists": [[x, y]],
        "mapping": [{"x": x, "y": y}],
        "dataset": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 16),
        "iterator": iter([(x, y)]),
    }
    scales = {name: conformal(Host(), loader).scale.item() for name, loader in loaders.items()}
    assert len(set(scales.values())) == 1
    # PDEBench's coordinates, neuraloperator's further fields, meshes: for model and spread.

    class Told(nn.Module):
        def __init__(self):
            super().__init__()
            self.size = nn.Parameter(torch.zeros(()))

        def forward(self, x, grid=None, *, mask=None):
            assert grid is not None or mask is not None
            return self.size.expand_as(x)

    for loader in ([(x, y, grid)], [{"x": x, "y": y, "mask": grid}]):
        assert conformal(Host(), loader).scale > 2 * scales["pairs"]
        bands = conformal(Host(), loader, spread=fit_spread(Host(), loader, Told(), epochs=1))
        band = bands(x, grid)
        inside = ((band.lower <= y) & (y <= band.upper)).flatten(1).double().mean(1)
        assert bands.evaluate(loader).shares.tolist() == pytest.approx(inside.tolist())


def test_channels_last_and_real_models():
    model = CHONNNetwork2d(width=4, depth=1)
    x, y = noisy(12)
    first = conformal(model, [(x, y)])
    band = first(x[:2])
    assert band.lower.shape == band.prediction.shape == (2, 1, 16, 16)
    assert torch.equal(band.prediction, model.eval()(x[:2]))

    turned = Model(lambda x: model(x.movedim(-1, 1)).movedim(1, -1))
    last = conformal(turned, [(x.movedim(1, -1), y.movedim(1, -1))])
    assert last.scale == first.scale


def test_modes_are_restored_part_by_part():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Dropout(0.5), nn.BatchNorm2d(1)).train()
    model[2].eval()
    before = copy.deepcopy(model.state_dict())
    x, y = noisy(12)
    bands = conformal(model, [(x, y)])
    assert [part.training for part in model.modules()] == [True, True, True, False]
    # In evaluation mode dropout does nothing, and statistics stay.
    assert torch.equal(bands(x).prediction, bands(x).prediction)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [part.training for part in model.modules()] == [True, True, True, False]


def test_saved_and_moved_like_any_module():
    x, y = noisy(12)
    bands = conformal(nn.Conv2d(1, 1, 1), [(x, y)], spread=LEFT_SIDE)
    again = Bands(nn.Conv2d(1, 1, 1), LEFT_SIDE)
    again.load_state_dict(bands.state_dict())
    for field, same in zip(bands(x), again(x), strict=True):
        assert torch.equal(field, same)
    narrow = Bands(nn.Conv2d(1, 1, 1)).half()(x.half())
    assert narrow.prediction.dtype == torch.float16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_bands_are_narrower_than_the_rounding_of_half_precision(dtype):
    x = 100 + torch.rand(200, 1, 8, 8)
    y = x + 0.05 * torch.randn_like(x)
    model = Model(lambda x: x.to(dtype))
    shares = conformal(model, [(x[:100], y[:100])]).evaluate([(x[100:], y[100:])]).shares
    assert 0.85 < shares.mean() < 0.95


@pytest.mark.parametrize("share", [None, 0.75])
def test_bands_are_narrower_than_the_rounding_of_the_prediction(share):
    """Targets in float64 around a prediction whose next numbers are a sixteenth away."""
    generator = torch.Generator().manual_seed(0)
    x = (1e6 + 10 * torch.rand(600, 1, 4, 4, generator=generator, dtype=torch.float64)).float()
    y = x.double() + 1e-3 * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    bands = conformal(IDENTITY, [(x[:300], y[:300])], share=share)
    found = bands.evaluate([(x[300:], y[300:])])
    covered = found.shares if share is None else (found.shares >= share).double()
    assert 0.85 < covered.mean() < 0.95
    assert (bands(x).upper - bands(x).lower).mean() < 5e-3


def test_gradients_flow_through_bands():
    x, y = noisy(12)
    bands = conformal(nn.Conv2d(1, 1, 1), [(x, y)])
    x.requires_grad_()
    bands(x).upper.sum().backward()
    assert x.grad.any()


def test_ensemble():
    ensemble = Ensemble([constant(1.0), constant(2.0), constant(6.0)])
    x = torch.zeros(2, 1, 4, 4)
    mean, spread = ensemble.mean_and_spread(x)
    assert torch.equal(mean, torch.full_like(x, 3.0))
    torch.testing.assert_close(spread, torch.full_like(x, 7**0.5))
    assert torch.equal(ensemble(x), mean)
    assert len(Ensemble(constant(1.0 * k) for k in range(2)).models) == 2


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [(torch.float32, 1e-30), (torch.float32, 1e30), (torch.float16, 1e-4), (torch.float16, 1e4)],
)
def test_spreads_have_the_unit_of_the_field(dtype, unit):
    """Their squares are beyond the dtype."""
    x, ensemble = torch.zeros(2, 1, 4, dtype=dtype), Ensemble([constant(unit), constant(2 * unit)])
    found = ensemble.mean_and_spread(x)[1].double() / unit
    torch.testing.assert_close(found, x.double() + 0.5**0.5, rtol=3e-3, atol=0)


def test_a_copy_learns_errors_in_any_unit():
    def learned(unit):
        x, y = (unit * field for field in noisy(40))
        torch.manual_seed(0)
        model = nn.Conv2d(1, 1, 1, bias=False)
        nn.init.ones_(model.weight)
        return fit_spread(model, [(x, y)], epochs=5, learning_rate=0.1)(x[:1]) / unit

    torch.testing.assert_close(learned(1e25), learned(1.0), rtol=1e-4, atol=0)


def test_points_without_error_or_spread():
    """At walls models and targets agree to rounding, and so do the members of an ensemble."""
    x, y = noisy(40)
    for field in (x, y):
        field[..., 0] = 1.0
    x[..., 0] += 1e-7

    walls = Model(lambda x: torch.ones_like(x).index_fill(-1, torch.tensor(0), 0))
    bands = conformal(IDENTITY, [(x[:30], y[:30])], spread=walls)
    shares = bands.evaluate([(x[30:], y[30:])]).shares
    assert 0.8 < shares.mean() < 1
    band = bands(x)
    assert ((band.upper - band.lower)[..., 0] < 1e-5).all()


def test_learned_spread():
    """Errors are three times larger on one side: the spread learns that, and bands get narrower."""
    x, _ = noisy(300)
    generator = torch.Generator().manual_seed(1)
    size = torch.ones(16)
    size[8:] = 3.0
    y = x + 0.01 * size * torch.randn(x.shape, generator=generator)
    thirds = zip(x.split(100), y.split(100), strict=True)
    samples = [list(zip(f.split(25), g.split(25), strict=True)) for f, g in thirds]

    values = nn.Parameter(torch.zeros(16))
    columns = Model(values.expand_as, values)
    spread = fit_spread(IDENTITY, iter(samples[0]), columns, epochs=60, learning_rate=0.1)
    learned = spread(x[:1])[0, 0, 0].detach()
    # Nine tenths of normal numbers are smaller than 1.645 standard deviations.
    torch.testing.assert_close(learned, 0.01 * size * 1.645, rtol=0.1, atol=0)
    assert not spread.training
    found = {
        name: conformal(IDENTITY, samples[1], spread=module).evaluate(samples[2])
        for name, module in (("constant", None), ("learned", spread))
    }
    assert all(abs(coverage.shares.mean() - 0.9) < 0.02 for coverage in found.values())
    assert found["learned"].widths.mean() < 0.95 * found["constant"].widths.mean()


def test_the_copy_of_a_model_learns_its_errors():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.Conv2d(4, 1, 1)).train()
    before = copy.deepcopy(model.state_dict())
    x, y = noisy(32)
    spread = fit_spread(model, [(1e5 * x, 1e5 * y)], epochs=2)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    found = spread(1e5 * x)
    assert (found > 0).all()
    assert found.requires_grad  # trained weights of its own
    assert not any(p is q for p in spread.parameters() for q in model.parameters())


@pytest.mark.parametrize(("level", "needed"), [(0.9, 9), (0.5, 1), (0.95, 19), (0.99, 99)])
def test_too_few_samples(level, needed):
    x, y = noisy(needed)
    assert samples_needed(level) == needed
    assert conformal(IDENTITY, [(x, y)], level).scale > 0
    with pytest.raises(ValueError, match=f"at least {needed} to calibrate .*got {needed - 1}"):
        conformal(IDENTITY, [(x[1:], y[1:])], level)


def spoiled(value):
    x, y = noisy(20)
    x[3, 0, 0, 0] = value
    return x, y


def test_a_spread_of_zero():
    """Bands of the size of rounding errors are scaled up, but nothing scales zero."""
    x, y = noisy(40)
    zero = constant(0.0)
    bands = conformal(IDENTITY, [(x[:20], y[:20])], spread=zero)
    assert bands.evaluate([(x[20:], y[20:])]).shares.mean() > 0.8


def test_a_spread_is_fitted_where_gradients_are_off():
    torch.manual_seed(0)
    network = nn.Conv2d(1, 1, 1)
    before = network.weight.clone()
    with torch.no_grad():
        fit_spread(IDENTITY, [noisy(20)], network, epochs=1)
    assert not torch.equal(network.weight, before)


X, Y = noisy(20)
RATIOS = torch.rand(30, 7)
DATASET = torch.utils.data.TensorDataset(X, Y)


def bands(x=X, y=Y, *more, **settings):
    return lambda: conformal(settings.pop("model", IDENTITY), [(x, y, *more)], **settings)


def fitted(*arguments):
    return lambda: fit_spread(IDENTITY, *arguments)


REFUSED = [
    *((bands(level=x), f"level: expected above 0 and below 1, got {x}") for x in (1.0, 90)),
    (bands(level=math.nan), "level: expected above 0"),
    (bands(level="0.9"), "level: expected a number"),
    (lambda: samples_needed(1), "level: expected above 0 and below 1, got 1"),
    (bands(share=0.0), "share: expected above 0"),
    (bands(share=1.5), "share: expected above 0 and at most 1, got 1.5"),
    (lambda: conformal_scale(-RATIOS), "ratios: expected numbers >= 0, got -"),
    (lambda: conformal_scale(RATIOS * math.nan), "ratios: expected numbers >= 0, got nan"),
    (lambda: conformal_scale(RATIOS + 0j), "ratios: expected real numbers, got torch.complex64"),
    (lambda: conformal_scale(RATIOS[:, :0]), "samples: expected at least one point each, got 0"),
    (bands(*spoiled(math.nan)), r"prediction: .* got nan at \(3, 0, 0, 0\)"),
    (bands(*spoiled(math.inf)[::-1]), r"target: .* got inf at \(3, 0, 0, 0\)"),
    (bands(X, Y[:, 0]), r"target's shape \(20, 16, 16\), got \(20, 1,"),
    (bands(spread=SLOPE), "spread: expected at least 0 and finite everywhere, got -0"),
    (bands(spread=constant(math.inf)), "spread: expected at least 0 and finite .*, got inf"),
    (bands(spread=PAIR), "spread: expected a tensor as its output, got tuple"),
    (bands(spread=nn.Flatten()), r"spread: expected shape \(20, 1, 16, 16\), as the prediction"),
    (bands(model=constant(0.0), spread=constant(0.0)), "spread: expected above 0 where there are"),
    (bands(X, Y.numpy()), "target: expected a tensor .*, got ndarray"),
    (bands(X, Y.cfloat()), "target: expected a real field"),
    (bands(X.cfloat(), Y.cfloat()), "prediction: expected a real field"),
    (bands(torch.ones(20, 0), torch.ones(20, 0)), "prediction: expected at least 1 point"),
    (bands(torch.tensor(1.0), torch.tensor(1.0)), r"prediction: expected a field \(B, "),
    (bands(model=PAIR), "model: expected a tensor as .*, got tuple"),
    (lambda: conformal(IDENTITY, [(X,)]), "loader: expected batches"),
    (lambda: conformal(IDENTITY, [{"x": X}]), 'loader: expected keys "y"'),
    (lambda: conformal(IDENTITY, DATASET), r"wrap it: DataLoader.*got the dataset TensorDataset"),
    (lambda: Ensemble([IDENTITY, PAIR])(X), "model: expected a tensor .* tuple"),
    (lambda: Ensemble([IDENTITY, nn.Flatten()])(X), r"predictions of one shape, \(20, 1, 16"),
    (lambda: Ensemble([IDENTITY]), "at least 2, got 1"),
    (lambda: Ensemble([IDENTITY, IDENTITY]), "models: expected .*got one of them twice"),
    *(
        (lambda x=x: Bands(IDENTITY, scale=x), "scale: expected at least 0")
        for x in (-1.0, math.nan)
    ),
    (lambda: Bands(IDENTITY, scale=math.inf), "scale: expected at least 0, and finite"),
    (lambda: Bands(IDENTITY).evaluate([]), "at least one sample, got 0"),
    (fitted([]), "at least one sample, got 0"),
    (fitted([(X, X)]), "model: expected errors"),
    (fitted([(X, Y)]), "network: expected a module with .* Identity"),
    (
        fitted([(X, Y)], constant(nn.Parameter(torch.tensor(math.nan)))),
        "loss: expected a finite value, got nan in epoch 0",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_makes_no_bands_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_batches_go_to_the_device_of_the_model():
    x, y = noisy(12)
    bands = conformal(nn.Conv2d(1, 1, 1).cuda(), [(x, y)])
    assert bands(x.cuda()).lower.is_cuda
