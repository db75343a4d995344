"""The metrics as functions of two tensors."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from chonn_ops.metrics._statistics import METRICS, prepare


class FourierBands(NamedTuple):
    """Fourier RMSE by radial mode number: [0, 4), [4, 12), [12, inf). NaN marks an empty band."""

    low: float
    mid: float
    high: float


def _evaluate(
    name: str, pred: Tensor, target: Tensor, spacing: float | Sequence[float] = 1.0
) -> tuple[float | None, ...]:
    metric = METRICS[name]
    statistic = metric.statistic(prepare(pred, target, spacing))
    return metric.finish(statistic.amax(dim=0) if metric.worst_sample else statistic.mean(dim=0))


def _number(
    name: str, pred: Tensor, target: Tensor, spacing: float | Sequence[float] = 1.0
) -> float:
    (value,) = _evaluate(name, pred, target, spacing)
    assert value is not None
    return value


def rmse(pred: Tensor, target: Tensor) -> float:
    """Root mean square error over space, averaged over samples, frames and channels.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    float
        ``mean_{b,t,c} sqrt(mean_x (pred - target)^2)``.
    """
    return _number("rmse", pred, target)


def nrmse(pred: Tensor, target: Tensor) -> float:
    """RMSE of each sample, frame and channel divided by the RMS of its target, averaged.

    This is PDEBench's normalisation; the CHONN paper's Poisson benchmark divides by the range
    instead: `range_nrmse`. A target that is zero everywhere gives NaN or infinity.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    float
        ``mean_{b,t,c} sqrt(mean_x (pred - target)^2) / sqrt(mean_x target^2)``.
    """
    return _number("nrmse", pred, target)


def csv(pred: Tensor, target: Tensor) -> float:
    """RMSE of the conserved variable (PDEBench's cRMSE): error of the spatial mean.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    float
        ``mean_{t,c} sqrt(mean_b (mean_x pred - mean_x target)^2)``.
    """
    return _number("csv", pred, target)


def max_error(pred: Tensor, target: Tensor) -> float:
    """Largest absolute error over samples and points, averaged over frames and channels.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    float
        ``mean_{t,c} max_{b,x} |pred - target|``.
    """
    return _number("max_error", pred, target)


def boundary_rmse(pred: Tensor, target: Tensor) -> float:
    """RMSE over the points on the faces of the grid, averaged over samples, frames and channels.

    A point on several faces (an edge or corner) counts once for each. In 3-D, PDEBench adds the
    squared errors of the channels instead of averaging over channels, and so does this function.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    float
        ``mean_{b,t,c} sqrt(mean_{x on the faces} (pred - target)^2)``.
    """
    return _number("boundary_rmse", pred, target)


def fourier_rmse(pred: Tensor, target: Tensor) -> FourierBands:
    """RMSE in Fourier space, in three bands of the radial mode number.

    The spatial DFT of the error, divided by the number of points, is taken for mode numbers
    ``0 <= k_i < n_i // 2`` on every axis and binned by ``floor(|k|) < min_i(n_i // 2)``: squares
    are summed in a bin, then averaged over samples; the roots are averaged over the bins of a band,
    over frames and channels. In 1-D every mode of the real DFT, Nyquist included, is its own bin.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    FourierBands
        ``low`` (bins 0 to 3), ``mid`` (4 to 11), ``high`` (12 and up); NaN where the grid is too
        coarse to have the band.
    """
    bands = _evaluate("fourier_rmse", pred, target)
    return FourierBands(*(math.nan if band is None else band for band in bands))


def relative_l1(pred: Tensor, target: Tensor) -> float:
    """L1 norm of the error over that of the target, each over a whole sample; mean over samples.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    float
        A fraction; the CHONN paper prints it times 100%.
    """
    return _number("relative_l1", pred, target)


def relative_l2(pred: Tensor, target: Tensor) -> float:
    """L2 norm of the error over that of the target, each over a whole sample; mean over samples.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    float
        A fraction.
    """
    return _number("relative_l2", pred, target)


def h1_error(pred: Tensor, target: Tensor, spacing: "float | Sequence[float]" = 1.0) -> float:
    """Relative error of the spatial derivatives (H1 seminorm), mean over samples.

    Derivatives are differences of neighbours inside the grid, ``(u[i+1] - u[i]) / h``. They need no
    boundary rule and, unlike central differences, see an error that alternates from point to point.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).
    spacing : float or sequence of float
        Grid spacing h, one number or one a space axis. Only ratios between the axes matter.

    Returns
    -------
    float
        ``mean_b |grad(pred - target)| / |grad target|``, norms over points, axes, frames, channels.
        A target that is constant in space gives NaN or infinity.
    """
    return _number("h1_error", pred, target, spacing)


def max_mse(pred: Tensor, target: Tensor) -> float:
    """Largest squared error in a sample ("MaxMSE" of the CHONN paper), mean over samples.

    The paper defines it for one field; over a data set the mean of the per-sample maxima is taken
    here. `max_error` keeps the worst sample instead.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    float
        ``mean_b max_{x,t,c} (pred - target)^2``.
    """
    return _number("max_mse", pred, target)


def range_nrmse(pred: Tensor, target: Tensor) -> float:
    """RMSE divided by the target's range, the normalisation of the CHONN paper's Poisson benchmark.

    The range is that of each sample, frame and channel. A constant target gives NaN or infinity.

    Parameters
    ----------
    pred, target : Tensor
        (batch, \\*space, time, channels).

    Returns
    -------
    float
        ``mean_{b,t,c} sqrt(mean_x (pred - target)^2) / (max_x target - min_x target)``.
    """
    return _number("range_nrmse", pred, target)
