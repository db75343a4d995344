"""The error metrics of PDEBench and of the CHONN paper, over a stream of batches.

Fields are real tensors of shape (batch, \\*space, time, channels) with one, two or three space
axes; a steady problem has a time axis of length 1. With the error e = pred - target the metrics
are:

- ``rmse``: ``mean_{b,t,c} sqrt(mean_x e^2)``.
- ``nrmse``: ``mean_{b,t,c} sqrt(mean_x e^2) / sqrt(mean_x target^2)``, PDEBench's normalisation.
- ``csv``: ``mean_{t,c} sqrt(mean_b (mean_x e)^2)``, PDEBench's cRMSE: the RMSE of the spatial mean,
  a conserved variable.
- ``max_error``: ``mean_{t,c} max_{b,x} |e|``.
- ``boundary_rmse``: ``mean_{b,t,c} sqrt(mean_{x on the faces} e^2)``. A point on several faces (an
  edge or corner) counts once for each. In 3-D the squared errors of the channels are added instead
  of averaged, as in PDEBench.
- ``fourier_rmse_low``, ``_mid``, ``_high``: RMSE in Fourier space, for radial mode numbers [0, 4),
  [4, 12) and [12, inf). The spatial DFT of the error, divided by the number of points, is taken for
  mode numbers ``0 <= k_i < n_i // 2`` on every axis and binned by ``floor(|k|) < min_i(n_i // 2)``:
  squares are summed in a bin, then averaged over samples; the roots are averaged over the bins of a
  band, over frames and channels. In 1-D every mode of the real DFT, Nyquist included, is its own
  bin. None where the grid is too coarse to have the band.
- ``relative_l1``, ``relative_l2``: ``mean_b |e| / |target|``, norms over a whole sample; fractions,
  which the CHONN paper prints times 100%.
- ``h1_error``: ``mean_b |grad e| / |grad target|``, norms over points, axes, frames and channels.
  Derivatives are differences of neighbours inside the grid, ``(u[i+1] - u[i]) / h``. They need no
  boundary rule and, unlike central differences, see an error that alternates from point to point.
- ``max_mse``: ``mean_b max_{x,t,c} e^2``. The CHONN paper defines its MaxMSE for one field.
- ``range_nrmse``: ``mean_{b,t,c} sqrt(mean_x e^2) / (max_x target - min_x target)``, the
  normalisation of the CHONN paper's Poisson benchmark.

A NaN or infinity means that the prediction diverged, or a target has norm or range zero.

Every metric is one statistic per sample, pooled over samples (mean or maximum) and then reduced to
a number, so the result does not depend on the split into batches. The mean of the metrics of the
batches does: ``csv`` and the Fourier bands take a square root after the mean over samples, and a
smaller last batch would count too much.

The first eight equal ``pdebench.models.metrics.metric_func`` of PDEBench 0.1.0 with its default
unit domain lengths; they follow the definitions in [1]_. Version 0.1.0 also scores the given
initial frames, later versions drop them: see `MetricAccumulator`.

References
----------
.. [1] M. Takamoto et al., "PDEBench: An Extensive Benchmark for Scientific Machine Learning",
   NeurIPS Datasets and Benchmarks, 2022, Appendix B.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops.checks import check_integer, check_tensor, error

__all__ = ["MetricAccumulator"]

_BAND_EDGES = (0, 4, 12, None)


class MetricAccumulator:
    """All metrics of this module, in float64, in one pass and without stored fields.

    Parameters
    ----------
    initial_step : int
        Number of leading frames that the model received as input; they are not scored.
    spacing : float or sequence of float
        The grid's h, for ``h1_error``: one number or one per space axis. Only ratios between the
        axes matter.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops.metrics import MetricAccumulator
    >>> metrics = MetricAccumulator(initial_step=1)
    >>> target = torch.rand(3, 16, 16, 5, 1)
    >>> metrics.update(target[:2] + 1, target[:2])
    >>> metrics.update(target[2:] + 1, target[2:])
    >>> round(metrics.compute()["rmse"], 6)
    1.0
    """

    def __init__(self, initial_step: int = 0, spacing: float | Sequence[float] = 1.0) -> None:
        check_integer(0, initial_step=initial_step)
        self.initial_step = initial_step
        self.spacing = spacing
        self._samples = 0
        self._sample_shape: tuple[int, ...] = ()
        self._pooled: dict[str, Tensor] = {}

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Add a batch of samples.

        Parameters
        ----------
        pred, target : Tensor
            (batch, \\*space, time, channels); the batch size may differ between calls.

        Raises
        ------
        ValueError
            If the shapes differ, do not match the layout or the earlier batches, or leave no frame
            to score. The earlier batches are kept.
        """
        fields = _prepare(pred, target, self.spacing)
        start = self.initial_step
        if target.shape[-2] <= start:
            shown = f"{target.shape[-2]} in shape {tuple(target.shape)}"
            raise error("target", f"more frames than initial_step={start}", shown)
        sample_shape = tuple(target.shape[1:])
        if self._samples and sample_shape != self._sample_shape:
            earlier = f"samples of shape {self._sample_shape} as in the earlier batches"
            raise error("target", earlier, sample_shape)
        scored = _Fields(
            fields.error[..., start:, :], fields.target[..., start:, :], fields.spacing
        )
        for name, metric in _METRICS.items():
            statistic = metric.statistic(scored)
            pooled = statistic.amax(dim=0) if metric.worst_sample else statistic.sum(dim=0)
            if self._samples:
                earlier = self._pooled[name].to(pooled.device)
                pooled = torch.maximum(earlier, pooled) if metric.worst_sample else earlier + pooled
            self._pooled[name] = pooled
        self._samples += len(target)
        self._sample_shape = sample_shape

    def compute(self) -> dict[str, float | None]:
        """Return the metrics of all samples so far.

        Returns
        -------
        dict
            The metrics by the names that this module's documentation has, in its order.

        Raises
        ------
        ValueError
            If there are no samples.
        """
        if not self._samples:
            raise ValueError("expected at least one sample before compute(), got 0")
        results: dict[str, float | None] = {}
        for name, metric in _METRICS.items():
            pooled = self._pooled[name]
            values = metric.finish(pooled if metric.worst_sample else pooled / self._samples)
            results.update(zip(metric.keys or (name,), values, strict=True))
        return results


class _Fields(NamedTuple):
    """Arguments of the statistics: float64 (batch, *space, time, channels), and the spacing."""

    error: Tensor
    target: Tensor
    spacing: tuple[float, ...]


def _mean(pooled: Tensor) -> tuple[float]:
    return (float(pooled.mean()),)


class _Metric(NamedTuple):
    """How one metric is computed.

    ``statistic`` returns one row per sample, (batch, ...). The rows are averaged over the samples,
    or with ``worst_sample`` their maximum is taken. ``finish`` reduces the pooled row to one number
    for each of ``keys``, by default the metric's name, None where there is nothing to measure.
    """

    statistic: Callable[[_Fields], Tensor]
    finish: Callable[[Tensor], tuple[float | None, ...]] = _mean
    worst_sample: bool = False
    keys: tuple[str, ...] = ()


def _prepare(pred: Tensor, target: Tensor, spacing: float | Sequence[float]) -> _Fields:
    """Check the two tensors and return their difference in float64."""
    for name, field in (("pred", pred), ("target", target)):
        check_tensor(name, field)
    if pred.shape != target.shape:
        shapes = f"{tuple(pred.shape)} and {tuple(target.shape)}"
        raise error("pred, target", "the same shape", shapes)
    if target.ndim not in (4, 5, 6):
        layout = "(batch, *space, time, channels), 1, 2 or 3 space axes (4, 5 or 6 axes)"
        raise error("target", layout, f"{target.ndim} axes: {tuple(target.shape)}")
    if target.numel() == 0:
        wanted = "at least one sample, point, frame and channel"
        raise error("target", wanted, tuple(target.shape))
    if pred.is_complex() or target.is_complex():
        raise error("pred, target", "real tensors", f"{pred.dtype} and {target.dtype}")
    n_space = target.ndim - 3
    steps: Any = (spacing,) * n_space if isinstance(spacing, Real) else spacing
    if len(steps) != n_space or not all(0 < h < math.inf for h in steps):
        raise error("spacing", f"a positive number or {n_space} of them, one an axis", spacing)
    # Apple's MPS has no float64.
    device = torch.device("cpu") if target.device.type == "mps" else target.device
    target = target.detach().to(device, torch.float64)
    difference = pred.detach().to(device, torch.float64) - target
    return _Fields(difference, target, tuple(map(float, steps)))


def _space_axes(field: Tensor) -> tuple[int, ...]:
    return tuple(range(1, field.ndim - 2))


def _space_mean(field: Tensor) -> Tensor:
    return field.mean(dim=_space_axes(field))


def _root_mean_square(field: Tensor) -> Tensor:
    return _space_mean(field.square()).sqrt()


def _sample_norm(field: Tensor, order: int) -> Tensor:
    return torch.linalg.vector_norm(field.flatten(1), ord=order, dim=1)


def _range_nrmse(fields: _Fields) -> Tensor:
    axes = _space_axes(fields.target)
    target_range = fields.target.amax(dim=axes) - fields.target.amin(dim=axes)
    return _root_mean_square(fields.error) / target_range


def _boundary(fields: _Fields) -> Tensor:
    axes, size = _space_axes(fields.error), fields.error.shape[1:-2]
    face_sums = [
        fields.error.narrow(axis, side, 1).square().sum(dim=axes)
        for axis, n in zip(axes, size, strict=True)
        for side in (0, n - 1)
    ]
    face_points = 2 * sum(math.prod(size) // n for n in size)
    mean_square = torch.stack(face_sums).sum(dim=0) / face_points
    if len(size) == 3:
        mean_square = mean_square.sum(dim=-1, keepdim=True)
    return mean_square.sqrt()


def _spectrum(fields: _Fields) -> Tensor:
    """Squared error spectrum in radial bins, (batch, bins, time, channels)."""
    axes, size = _space_axes(fields.error), fields.error.shape[1:-2]
    power = torch.fft.rfftn(fields.error, dim=axes).abs().square() / math.prod(size) ** 2
    if len(size) == 1:
        return power
    # The quadrant of non-negative frequencies below Nyquist; its corner beyond the shortest axis
    # is dropped, as in PDEBench.
    quadrant = [n // 2 for n in size]
    power = power[(slice(None), *(slice(n) for n in quadrant))].flatten(1, -3)
    modes = torch.meshgrid(
        *(torch.arange(n, device=power.device, dtype=torch.float64) for n in quadrant),
        indexing="ij",
    )
    radius = torch.stack(modes).square().sum(dim=0).sqrt().floor().long().flatten()
    kept = radius < min(quadrant)
    spectrum = power.new_zeros(power.shape[0], min(quadrant), *power.shape[2:])
    return spectrum.index_add_(1, radius[kept], power[:, kept])


def _h1(fields: _Fields) -> Tensor:
    def seminorm(field: Tensor) -> Tensor:
        slopes = [
            (field.diff(dim=axis) / h).square().flatten(1).sum(dim=1)
            for axis, h in zip(_space_axes(field), fields.spacing, strict=True)
        ]
        return torch.stack(slopes).sum(dim=0).sqrt()

    return seminorm(fields.error) / seminorm(fields.target)


def _bands(pooled: Tensor) -> tuple[float | None, ...]:
    bands = [pooled[a:b].sqrt() for a, b in itertools.pairwise(_BAND_EDGES)]
    return tuple(float(band.mean()) if len(band) else None for band in bands)


_METRICS = {
    "rmse": _Metric(lambda f: _root_mean_square(f.error)),
    "nrmse": _Metric(lambda f: _root_mean_square(f.error) / _root_mean_square(f.target)),
    "csv": _Metric(lambda f: _space_mean(f.error).square(), lambda pooled: _mean(pooled.sqrt())),
    "max_error": _Metric(lambda f: f.error.abs().amax(dim=_space_axes(f.error)), worst_sample=True),
    "boundary_rmse": _Metric(_boundary),
    "fourier_rmse": _Metric(
        _spectrum, _bands, keys=("fourier_rmse_low", "fourier_rmse_mid", "fourier_rmse_high")
    ),
    "relative_l1": _Metric(lambda f: _sample_norm(f.error, 1) / _sample_norm(f.target, 1)),
    "relative_l2": _Metric(lambda f: _sample_norm(f.error, 2) / _sample_norm(f.target, 2)),
    "h1_error": _Metric(_h1),
    "max_mse": _Metric(lambda f: f.error.square().flatten(1).amax(dim=1)),
    "range_nrmse": _Metric(_range_nrmse),
}
