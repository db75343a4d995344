"""Metrics against PDEBench's, against hand-computed cases, and over every cut into batches."""

import math

import numpy as np
import pytest
import torch

from chonn_ops.metrics import MetricAccumulator

SHAPES = {
    "1d": (5, 32, 4, 3),
    "1d-coarse": (5, 9, 4, 3),
    "2d": (3, 32, 32, 4, 2),
    "2d-nonsquare": (3, 40, 27, 2, 3),
    "2d-coarse": (3, 12, 10, 2, 1),
    "3d": (2, 26, 26, 26, 2, 1),
    "3d-nonsquare-channels": (2, 26, 27, 30, 2, 3),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def random_pair(shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # A target away from zero keeps the conserved-variable sums from cancelling.
    target = torch.rand(shape, generator=generator) + 0.5
    return target + 0.3 * torch.randn(shape, generator=generator), target


def scores(pred, target, **options):
    accumulator = MetricAccumulator(**options)
    accumulator.update(pred, target)
    return accumulator.compute()


def pdebench(pred, target):
    metric_func = pytest.importorskip("pdebench.models.metrics").metric_func

    def channels_first_contiguous(field):
        # PDEBench views permuted slices of a 3-D field; only this memory order survives that.
        return field.movedim(-1, 1).contiguous().movedim(1, -1)

    if target.ndim < 6:
        return [np.asarray(value) for value in metric_func(pred, target, if_mean=True)]
    # if_mean fails in 3-D: the boundary error has lost its batch and channel axes by then.
    values = metric_func(
        channels_first_contiguous(pred), channels_first_contiguous(target), if_mean=False
    )
    means = [np.asarray(value.mean()) for value in values[:5]]
    return [*means, np.asarray(values[5].mean(dim=(0, -1)))]


@shapes
def test_equal_to_pdebench(shape):
    pred, target = random_pair(shape)
    values = list(scores(pred, target).values())
    ours = [*values[:5], [math.nan if value is None else value for value in values[5:8]]]
    for value, theirs in zip(ours, pdebench(pred, target), strict=True):
        np.testing.assert_allclose(value, theirs, rtol=2e-5)


@shapes
@pytest.mark.parametrize("cuts", [(1,), (2,), (1, 2)], ids=lambda c: "-".join(map(str, c)))
def test_no_split_into_batches_matters(shape, cuts):
    pred, target = random_pair(shape)
    accumulator = MetricAccumulator(spacing=0.1)
    for part in np.split(np.arange(len(target)), [c for c in cuts if c < len(target)]):
        accumulator.update(pred[part], target[part])
    whole, result = scores(pred, target, spacing=0.1), accumulator.compute()
    assert list(result) == [
        *("rmse", "nrmse", "csv", "max_error", "boundary_rmse"),
        *("fourier_rmse_low", "fourier_rmse_mid", "fourier_rmse_high"),
        *("relative_l1", "relative_l2", "h1_error", "max_mse", "range_nrmse"),
    ]
    for key, value in whole.items():
        assert result[key] == (None if value is None else pytest.approx(value, rel=1e-12)), key


def test_initial_step_drops_leading_frames():
    pred, target = random_pair((4, 16, 16, 5, 2))
    sliced = scores(pred[..., 2:, :], target[..., 2:, :])
    assert scores(pred, target, initial_step=2) == sliced


@pytest.mark.parametrize(("points", "empty"), [(6, ["mid", "high"]), (24, ["high"]), (26, [])])
def test_bands_without_modes_are_missing(points, empty):
    pred, target = random_pair((2, points, points, 1, 1))
    result = scores(pred, target)
    assert [b for b in ("low", "mid", "high") if result[f"fourier_rmse_{b}"] is None] == empty


def test_a_diverged_prediction_is_nan_not_missing():
    pred, target = random_pair((2, 32, 32, 1, 1))
    pred[0, 0, 0] = math.nan
    values = scores(pred, target).values()
    assert all(value is not None and math.isnan(value) for value in values)


def test_one_fourier_mode_lands_in_its_band():
    x = torch.arange(32) / 32
    target = torch.zeros(1, 32, 32, 1, 1)
    pred = torch.cos(2 * math.pi * (5 * x[:, None] + 3 * x))[None, :, :, None, None]
    low, mid, high = list(scores(pred, target).values())[5:8]
    # |k| = 5.8: amplitude 1/2 in one of the eight bins 4..11.
    assert (low, mid, high) == pytest.approx((0, 0.5 / 8, 0), abs=1e-6)


def test_relative_norms_by_hand():
    target = torch.tensor([[3.0, -4.0], [1.0, 0.0]])[:, :, None, None]
    error = torch.tensor([[1.0, 1.0], [0.0, -2.0]])[:, :, None, None]
    pred = target + error
    assert scores(pred, target)["relative_l1"] == pytest.approx((2 / 7 + 2) / 2)
    assert scores(pred, target)["relative_l2"] == pytest.approx((math.sqrt(2) / 5 + 2) / 2)
    assert scores(pred, target)["max_mse"] == pytest.approx((1 + 4) / 2)
    assert scores(pred, target)["range_nrmse"] == pytest.approx((1 / 7 + math.sqrt(2)) / 2)


def test_h1_error_of_linear_fields():
    x, y = torch.meshgrid(torch.arange(5.0), torch.arange(7.0), indexing="ij")
    target = (3 * x + 8 * y)[None, :, :, None, None]
    pred = target + (x - 10)[None, :, :, None, None]
    # Slopes 3 (4 * 7 differences) and, with a spacing of 2 along y, 8 / 2 (5 * 6 differences).
    expected = math.sqrt(4 * 7 / (4 * 7 * 3**2 + 5 * 6 * 4**2))
    assert scores(pred, target, spacing=(1, 2))["h1_error"] == pytest.approx(expected)
    assert scores(target + 7, target)["h1_error"] == pytest.approx(0, abs=1e-12)


def test_h1_error_sees_an_alternating_error():
    target = torch.arange(8.0)[None, :, None, None]
    alternating = torch.tensor([1.0, -1.0]).repeat(4)[None, :, None, None]
    assert scores(target + alternating, target)["h1_error"] == pytest.approx(2)


def test_half_precision_is_accumulated_in_float64():
    target = torch.full((2, 64, 64, 1, 1), 200.0, dtype=torch.float16)
    assert scores(target + 100, target)["rmse"] == pytest.approx(100)


def test_a_spacing_of_numpy():
    pair = random_pair((1, 8, 8, 1, 1))
    assert scores(*pair, spacing=np.float32(0.5)) == scores(*pair, spacing=0.5)


def updated(*shapes, **options):
    """An accumulator that has taken random pairs of these shapes."""
    accumulator = MetricAccumulator(**options)
    for shape in shapes:
        accumulator.update(*random_pair(shape))
    return accumulator


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: scores(torch.zeros(2, 8, 8, 1, 1), torch.zeros(2, 8, 8, 1, 2)),
            r"same shape, got \(2, 8, 8, 1, 1\) and \(2, 8, 8, 1",
        ),
        (lambda: updated((2, 8, 1)), r"4, 5 or 6 axes\), got 3 axes: \(2, 8, 1\)"),
        (lambda: updated((2, 4, 4, 4, 4, 1, 1)), "got 7 axes"),
        (lambda: updated((0, 8, 1, 1)), r"at least one sample.*got \(0, 8, 1, 1\)"),
        (
            lambda: scores(*[torch.zeros(1, 8, 1, 1).cfloat()] * 2),
            "real tensors, got torch.complex64",
        ),
        (lambda: updated().compute(), "at least one sample.*got 0"),
        (
            lambda: updated(initial_step=-1),
            "initial_step: expected an integer of at least 0, got -1",
        ),
        (lambda: updated((1, 8, 2, 1), initial_step=2), "more frames than initial_step=2, got 2"),
        (
            lambda: updated((1, 8, 3, 1), (1, 9, 3, 1), initial_step=2),
            r"samples of shape \(8, 3, 1\).*got \(9, 3, 1\)",
        ),
        *(
            (lambda x=x: updated((1, 8, 8, 1, 1), spacing=x), "positive number or 2 of them")
            for x in (0, (1.0, -1.0), (1.0, 1.0, 1.0))
        ),
    ],
)
def test_what_has_no_metrics_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
