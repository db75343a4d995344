"""One row a metric: statistic of each sample, pooling over samples, and what is left to do then."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

BAND_EDGES = (0, 4, 12, None)


class Fields(NamedTuple):
    """What the statistics see: float64, (batch, *space, time, channels), and the grid spacing."""

    error: Tensor
    target: Tensor
    spacing: tuple[float, ...]


class Metric(NamedTuple):
    """How one metric is computed.

    ``statistic`` gives one row a sample, (batch, ...); rows are averaged over samples, or their
    maximum taken (``worst_sample``); ``finish`` turns the pooled row into one number for each of
    ``keys``, None where there is nothing to measure.
    """

    keys: tuple[str, ...]
    statistic: Callable[[Fields], Tensor]
    finish: Callable[[Tensor], tuple[float | None, ...]]
    worst_sample: bool = False


def prepare(pred: Tensor, target: Tensor, spacing: float | Sequence[float]) -> Fields:
    """Check the two tensors and form their float64 difference."""
    if pred.shape != target.shape:
        raise ValueError(
            f"pred and target must have the same shape, got {tuple(pred.shape)} "
            f"and {tuple(target.shape)}"
        )
    if target.ndim not in (4, 5, 6):
        raise ValueError(
            "expected (batch, *space, time, channels) with 1, 2 or 3 space axes (4, 5 or 6 axes), "
            f"got {target.ndim} axes: {tuple(target.shape)}"
        )
    if target.numel() == 0:
        raise ValueError(
            f"expected at least one sample, point, frame and channel, got {tuple(target.shape)}"
        )
    if pred.is_complex() or target.is_complex():
        raise ValueError(f"expected real tensors, got {pred.dtype} and {target.dtype}")
    n_space = target.ndim - 3
    spacings = (spacing,) * n_space if isinstance(spacing, (int, float)) else tuple(spacing)
    if len(spacings) != n_space or not all(h > 0 for h in spacings):
        raise ValueError(
            f"spacing must be a positive number or {n_space} of them (one a space axis), "
            f"got {spacing}"
        )
    # Apple's MPS has no float64.
    device = torch.device("cpu") if target.device.type == "mps" else target.device
    target = target.detach().to(device, torch.float64)
    error = pred.detach().to(device, torch.float64) - target
    return Fields(error, target, tuple(float(h) for h in spacings))


def _space_axes(field: Tensor) -> tuple[int, ...]:
    return tuple(range(1, field.ndim - 2))


def _space_mean(field: Tensor) -> Tensor:
    return field.mean(dim=_space_axes(field))


def _root_mean_square(field: Tensor) -> Tensor:
    return _space_mean(field.square()).sqrt()


def _sample_norm(field: Tensor, order: int) -> Tensor:
    return torch.linalg.vector_norm(field.flatten(1), ord=order, dim=1)


def _range_nrmse(fields: Fields) -> Tensor:
    axes = _space_axes(fields.target)
    target_range = fields.target.amax(dim=axes) - fields.target.amin(dim=axes)
    return _root_mean_square(fields.error) / target_range


def _boundary(fields: Fields) -> Tensor:
    error = fields.error
    axes = _space_axes(error)
    size = error.shape[1:-2]
    face_sums = [
        error.narrow(axis, side, 1).square().sum(dim=axes)
        for axis in axes
        for side in (0, error.shape[axis] - 1)
    ]
    face_points = 2 * sum(math.prod(size) // n for n in size)
    mean_square = torch.stack(face_sums).sum(dim=0) / face_points
    if len(size) == 3:
        # PDEBench pools the channels of a 3-D boundary as a sum, those of 1-D and 2-D as a mean.
        mean_square = mean_square.sum(dim=-1, keepdim=True)
    return mean_square.sqrt()


def _spectrum(fields: Fields) -> Tensor:
    """Squared error spectrum in radial bins, (batch, bins, time, channels)."""
    error = fields.error
    size = error.shape[1:-2]
    power = torch.fft.rfftn(error, dim=_space_axes(error)).abs().square() / math.prod(size) ** 2
    if len(size) == 1:
        return power
    # The quadrant of non-negative frequencies below Nyquist; its corner beyond the shortest axis
    # is dropped, as in PDEBench.
    quadrant = [n // 2 for n in size]
    power = power[(slice(None), *(slice(n) for n in quadrant))].flatten(1, -3)
    modes = torch.meshgrid(
        *(torch.arange(n, device=error.device, dtype=torch.float64) for n in quadrant),
        indexing="ij",
    )
    radius = torch.stack(modes).square().sum(dim=0).sqrt().floor().long().flatten()
    kept = radius < min(quadrant)
    spectrum = power.new_zeros(power.shape[0], min(quadrant), *power.shape[2:])
    return spectrum.index_add_(1, radius[kept], power[:, kept])


def _h1(fields: Fields) -> Tensor:
    def seminorm(field: Tensor) -> Tensor:
        slopes = [
            (field.diff(dim=axis) / h).square().flatten(1).sum(dim=1)
            for axis, h in zip(_space_axes(field), fields.spacing, strict=True)
        ]
        return torch.stack(slopes).sum(dim=0).sqrt()

    return seminorm(fields.error) / seminorm(fields.target)


def _mean(pooled: Tensor) -> tuple[float]:
    return (float(pooled.mean()),)


def _mean_of_root(pooled: Tensor) -> tuple[float]:
    return (float(pooled.sqrt().mean()),)


def _bands(pooled: Tensor) -> tuple[float | None, ...]:
    bands = [pooled[a:b].sqrt() for a, b in itertools.pairwise(BAND_EDGES)]
    return tuple(float(band.mean()) if len(band) else None for band in bands)


METRICS: dict[str, Metric] = {
    "rmse": Metric(("rmse",), lambda f: _root_mean_square(f.error), _mean),
    "nrmse": Metric(
        ("nrmse",), lambda f: _root_mean_square(f.error) / _root_mean_square(f.target), _mean
    ),
    "csv": Metric(("csv",), lambda f: _space_mean(f.error).square(), _mean_of_root),
    "max_error": Metric(
        ("max_error",),
        lambda f: f.error.abs().amax(dim=_space_axes(f.error)),
        _mean,
        worst_sample=True,
    ),
    "boundary_rmse": Metric(("boundary_rmse",), _boundary, _mean),
    "fourier_rmse": Metric(
        ("fourier_rmse_low", "fourier_rmse_mid", "fourier_rmse_high"), _spectrum, _bands
    ),
    "relative_l1": Metric(
        ("relative_l1",), lambda f: _sample_norm(f.error, 1) / _sample_norm(f.target, 1), _mean
    ),
    "relative_l2": Metric(
        ("relative_l2",), lambda f: _sample_norm(f.error, 2) / _sample_norm(f.target, 2), _mean
    ),
    "h1_error": Metric(("h1_error",), _h1, _mean),
    "max_mse": Metric(("max_mse",), lambda f: f.error.square().flatten(1).amax(dim=1), _mean),
    "range_nrmse": Metric(("range_nrmse",), _range_nrmse, _mean),
}
